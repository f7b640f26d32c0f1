// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The measured figures, and which of them may be compared: figures of one distance of the processors, and, for pairs, of one
//! round. A run during which the distance changed is not compared.

use super::cell::{Figure, Figures};
use super::distance::Distance;
use std::collections::{BTreeMap, BTreeSet};

/// One run.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The round.
    pub round: u32,
    /// Transfer time of the line in microseconds one way, before and after; `None` for runs of more than two ranks, for which
    /// the line between two processors says little.
    pub line_us: Option<[f64; 2]>,
    /// The figures that the program printed.
    pub figures: Figures,
}

/// Samples that may be compared with each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stratum {
    /// The distance of the processors, before and after.
    Distance(Distance),
    /// The line was not measured.
    Unmeasured,
}

impl Stratum {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Stratum::Distance(distance) => distance.name(),
            Stratum::Unmeasured => "-",
        }
    }
}

impl Sample {
    /// The stratum of the sample; `None`: dropped, because the distance changed during the run.
    pub fn stratum(&self) -> Option<Stratum> {
        match self.line_us {
            None => Some(Stratum::Unmeasured),
            Some([before, after]) => Distance::unchanged(before, after).map(Stratum::Distance),
        }
    }
}

/// All runs, by MPI (index in the list of MPIs) and row (index in the list of rows).
#[derive(Debug, Default)]
pub struct Samples(BTreeMap<(usize, usize), Vec<Sample>>);

impl Samples {
    /// Adds a run.
    pub fn add(&mut self, who: usize, row: usize, sample: Sample) {
        self.0.entry((who, row)).or_default().push(sample);
    }

    /// Every run, with MPI and row.
    pub fn all(&self) -> impl Iterator<Item = (usize, usize, &Sample)> {
        self.0.iter().flat_map(|(&(who, row), runs)| runs.iter().map(move |sample| (who, row, sample)))
    }

    /// The strata that the runs of a row belong to.
    pub fn strata(&self, row: usize) -> BTreeSet<Stratum> {
        self.all().filter(|(_, each, _)| *each == row).filter_map(|(.., sample)| sample.stratum()).collect()
    }

    /// How many runs were dropped, and of how many.
    pub fn dropped(&self) -> (usize, usize) {
        let dropped = self.all().filter(|(.., sample)| sample.stratum().is_none()).count();
        (dropped, self.all().count())
    }

    /// The figures of one MPI, row and stratum, sorted.
    pub fn values(&self, who: usize, row: usize, stratum: Stratum, figure: Figure) -> Vec<f64> {
        let runs = self.of(who, row, stratum);
        let mut values: Vec<f64> = runs.map(|sample| sample.figures.pick(figure)).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    /// In how many rounds both MPIs ran in this stratum, and in how many of these the first was worse.
    pub fn worse(
        &self,
        [first, second]: [usize; 2],
        row: usize,
        stratum: Stratum,
        figure: Figure,
    ) -> (usize, usize) {
        let pairs: Vec<[f64; 2]> = self
            .of(first, row, stratum)
            .flat_map(|one| {
                let same_round = self.of(second, row, stratum).filter(|other| other.round == one.round);
                same_round.map(move |other| [one, other].map(|sample| sample.figures.pick(figure)))
            })
            .collect();
        let worse = pairs.iter().filter(|[one, other]| figure.is_worse(*one, *other)).count();
        (worse, pairs.len())
    }

    fn of(&self, who: usize, row: usize, stratum: Stratum) -> impl Iterator<Item = &Sample> {
        let runs = self.0.get(&(who, row)).map(Vec::as_slice).unwrap_or_default();
        runs.iter().filter(move |sample| sample.stratum() == Some(stratum))
    }
}

/// The median; `None` of no values.
pub fn median(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::{Distance, Figure, Figures, Sample, Samples, Stratum, median};

    const NEAR: Stratum = Stratum::Distance(Distance::Near);
    const FAR: Stratum = Stratum::Distance(Distance::Far);
    const TIME: Figure = Figure::Microseconds;

    fn sample(round: u32, line_us: [f64; 2], average: f64) -> Sample {
        Sample { round, line_us: Some(line_us), figures: Figures { average, p50: 0.0, p99: 0.0, rate: 0.0 } }
    }

    /// Two MPIs, one row; the processors are near in rounds 0 and 1, move in round 2, and are far in rounds 3 and 4.
    fn moved() -> Samples {
        let mut samples = Samples::default();
        for (who, times) in [[1.0, 1.2, 9.0, 4.0, 4.4], [1.1, 1.0, 9.5, 5.0, 5.5]].into_iter().enumerate() {
            let lines = [[0.06, 0.07], [0.07, 0.06], [0.07, 0.3], [0.3, 0.28], [0.27, 0.29]];
            for ((round, line), time) in (0..).zip(lines).zip(times) {
                samples.add(who, 0, sample(round, line, time));
            }
        }
        samples
    }

    #[test]
    fn figures_are_found_by_distance_and_runs_during_a_move_are_in_none() {
        let samples = moved();
        assert_eq!(samples.strata(0).into_iter().collect::<Vec<_>>(), [NEAR, FAR]);
        assert_eq!(samples.values(0, 0, NEAR, TIME), [1.0, 1.2]);
        assert_eq!(samples.values(1, 0, FAR, TIME), [5.0, 5.5]);
        assert_eq!(samples.dropped(), (2, 10));
        assert!(samples.values(0, 1, NEAR, TIME).is_empty());
    }

    #[test]
    fn pairs_are_of_one_round_and_one_distance() {
        let mut samples = moved();
        assert_eq!(samples.worse([0, 1], 0, NEAR, TIME), (1, 2));
        assert_eq!(samples.worse([0, 1], 0, FAR, TIME), (0, 2));
        samples.add(0, 0, sample(5, [0.06, 0.06], 7.0));
        samples.add(1, 0, sample(5, [0.3, 0.3], 1.0));
        assert_eq!(samples.worse([0, 1], 0, NEAR, TIME), (1, 2));
        assert_eq!(samples.worse([0, 1], 0, FAR, TIME), (0, 2));
    }

    #[test]
    fn where_no_line_was_measured_everything_is_compared() {
        let mut samples = Samples::default();
        for time in [3.0, 1.0] {
            samples.add(0, 0, Sample { line_us: None, ..sample(0, [0.0; 2], time) });
        }
        assert_eq!(samples.strata(0).into_iter().collect::<Vec<_>>(), [Stratum::Unmeasured]);
        assert_eq!(samples.values(0, 0, Stratum::Unmeasured, TIME), [1.0, 3.0]);
        assert_eq!(samples.dropped(), (0, 2));
    }

    #[test]
    fn a_median_is_the_middle_or_between_the_two_middle_ones() {
        assert_eq!(median(&[1.0, 2.0, 9.0]), Some(2.0));
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), Some(3.0));
        assert_eq!(median(&[]), None);
    }
}
