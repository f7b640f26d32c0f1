// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The distance of two processors, by the transfer time of a cache line between them. Figures are compared only at one distance:
//! the same program is several times slower on far processors than on near ones, whichever MPI it uses.

/// Ordered from close to far.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Distance {
    /// Two threads of one core.
    Siblings,
    /// Two cores that share a cache.
    Near,
    /// Two cores that share no cache.
    Far,
}

impl Distance {
    /// The distance of two processors between which a line takes `line_us` microseconds one way.
    pub fn of(line_us: f64) -> Distance {
        match line_us {
            us if us < NEAR_US_MIN => Distance::Siblings,
            us if us < FAR_US_MIN => Distance::Near,
            _ => Distance::Far,
        }
    }

    /// The distance during a run, between two measurements of the line; `None` if it changed meanwhile, so that the figure
    /// belongs to neither.
    pub fn unchanged(before_us: f64, after_us: f64) -> Option<Distance> {
        let before = Distance::of(before_us);
        (before == Distance::of(after_us)).then_some(before)
    }

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Distance::Siblings => "siblings",
            Distance::Near => "near",
            Distance::Far => "far",
        }
    }
}

/// Measured one way: siblings 0.028, near 0.066, far 0.28 us. The thresholds are the geometric means.
const NEAR_US_MIN: f64 = 0.043;
const FAR_US_MIN: f64 = 0.136;

#[cfg(test)]
mod tests {
    use super::Distance;

    #[test]
    fn a_line_belongs_to_the_distance_that_it_is_closest_to_by_ratio() {
        let distances = [0.028, 0.042, 0.044, 0.066, 0.135, 0.137, 0.28, 3.0].map(Distance::of);
        let expected = [
            Distance::Siblings,
            Distance::Siblings,
            Distance::Near,
            Distance::Near,
            Distance::Near,
            Distance::Far,
            Distance::Far,
            Distance::Far,
        ];
        assert_eq!(distances, expected);
    }

    #[test]
    fn a_run_during_which_the_distance_changed_has_none() {
        assert_eq!(Distance::unchanged(0.06, 0.07), Some(Distance::Near));
        assert_eq!(Distance::unchanged(0.3, 0.25), Some(Distance::Far));
        assert_eq!(Distance::unchanged(0.06, 0.28), None);
        assert_eq!(Distance::unchanged(0.06, 0.028), None);
    }
}
