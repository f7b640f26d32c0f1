// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The printed table: medians and ratios by distance of the processors, and the conditions under which they were measured:
//! versions, flags, machine, how many runs were dropped.

use super::cell::{Figures, Placement};
use super::mpi::{C_FLAGS, Mpi};
use super::options::Options;
use super::samples::{Samples, Stratum, median};
use super::{Contrast, Row};
use std::fmt::Write;

/// MPIs, rows, and their samples.
#[derive(Debug)]
pub struct Table<'a> {
    /// The first is compared with each of the others.
    pub mpis: &'a [Mpi],
    /// The rows that were measured.
    pub rows: &'a [Row],
    /// All samples.
    pub samples: &'a Samples,
    /// The options.
    pub options: &'a Options<'a>,
}

impl Table<'_> {
    /// Prints all of it.
    pub fn print(&self, contrasts: &[Contrast]) {
        print!("{}", self.preface());
        let titles = self.rows.iter().map(Row::title).chain(contrasts.iter().map(|each| each.title.clone()));
        let width = titles.map(|title| title.len()).max().unwrap_or(0) + 2;
        let mut head = format!("{:<width$}{:<10}", "", "line");
        for mpi in self.mpis {
            let _ = write!(head, "{:>34}", mpi.name);
        }
        for other in &self.mpis[1..] {
            let _ = write!(head, "{:>26}", format!("{} / {}", self.mpis[0].name, other.name));
        }
        println!("{head}");
        for (place, row) in self.rows.iter().enumerate() {
            for stratum in self.samples.strata(place) {
                println!("{:<width$}{:<10}{}", row.title(), stratum.name(), self.figures(place, stratum));
            }
        }
        for contrast in contrasts {
            for stratum in self.samples.strata(contrast.row) {
                let (title, ratios) = (&contrast.title, self.ratios(contrast, stratum));
                println!("{title:<width$}{:<10}{ratios}", stratum.name());
            }
        }
    }

    fn preface(&self) -> String {
        let mut text = format!("machine: {}\n", machine());
        for mpi in self.mpis {
            let Mpi { name, version, arguments, pinned_arguments, .. } = mpi;
            let words = [arguments.as_slice(), pinned_arguments].concat().join(" ");
            let _ = writeln!(text, "{name}: {version}; mpiexec {words}");
        }
        let Options { processors: [first, second], busy, rounds, .. } = self.options;
        let flags = C_FLAGS.join(" ");
        let _ = writeln!(
            text,
            "programs: bench/c, mpicc {flags}; ranks pinned to processors {first} and {second}"
        );
        if *busy > 0 {
            let _ = writeln!(
                text,
                "beside {busy} busy processes; they and the ranks run on processors {first} and {second} alone"
            );
        }
        if self.rows.iter().any(|row| row.cell.placement == Placement::Defaults) {
            let _ = writeln!(
                text,
                "unpinned: by each MPI's defaults; the line is that of processors {first} and {second}"
            );
        }
        let (dropped, all) = self.samples.dropped();
        let _ = writeln!(
            text,
            "line: the cache line from {first} to {second}, before and after each run of 2 ranks; {dropped} of {all} runs dropped, as the distance changed"
        );
        let _ = writeln!(
            text,
            "medians of {rounds} alternating rounds; [least, greatest] (runs); ratios with how many pairs of one round are worse\n"
        );
        text
    }

    fn figures(&self, place: usize, stratum: Stratum) -> String {
        let cell = self.rows[place].cell;
        let mut line = String::new();
        for who in 0..self.mpis.len() {
            let values = self.samples.values(who, place, stratum, cell.figure);
            let text = match (median(&values), values.first(), values.last()) {
                (Some(median), Some(&least), Some(&most)) => {
                    let (unit, runs) = (cell.unit(), values.len());
                    format!("{} {unit} [{}, {}] ({runs})", short(median), short(least), short(most))
                }
                _ => "-".to_owned(),
            };
            let _ = write!(line, "{text:>34}");
        }
        for who in 1..self.mpis.len() {
            let (worse, pairs) = self.samples.worse([0, who], place, stratum, cell.figure);
            let text = match self.ratio([0, who], [place, place], stratum) {
                Some(ratio) => format!("{ratio:.2} (worse {worse} of {pairs})"),
                None => "-".to_owned(),
            };
            let _ = write!(line, "{text:>26}");
        }
        line
    }

    /// Each MPI's row divided by its other row.
    fn ratios(&self, contrast: &Contrast, stratum: Stratum) -> String {
        let ratio = |who| self.ratio([who, who], [contrast.row, contrast.against], stratum);
        let text = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        (0..self.mpis.len()).map(|who| format!("{:>34}", text(ratio(who)))).collect()
    }

    /// The ratio of two medians of one stratum.
    fn ratio(&self, who: [usize; 2], rows: [usize; 2], stratum: Stratum) -> Option<f64> {
        let figure = self.rows[rows[0]].cell.figure;
        let middle = |at: usize| median(&self.samples.values(who[at], rows[at], stratum, figure));
        Some(middle(0)? / middle(1)?)
    }

    /// Every run's figures.
    pub fn csv(&self) -> String {
        let mut text = CSV_HEAD.to_owned();
        for (who, place, sample) in self.samples.all() {
            let (mpi, row) = (&self.mpis[who], &self.rows[place]);
            let (program, size, ranks) = (row.cell.program, row.cell.size, row.cell.ranks);
            let pinned = row.cell.placement == Placement::Pinned;
            let stratum = sample.stratum().map_or("changed", Stratum::name);
            let line = sample.line_us.map(|line| line.map(|us| format!("{us:.4}"))).unwrap_or_default();
            let (round, busy, words) = (sample.round, row.busy, row.cell.words.join(" "));
            let Figures { average, p50, p99, rate } = sample.figures;
            let (name, version) = (&mpi.name, mpi.version.replace(',', " "));
            let _ = writeln!(
                text,
                "{name},{program},{size},{words},{ranks},{pinned},{busy},{round},{stratum},{},{average},{p50},{p99},{rate},{version}",
                line.join(",")
            );
        }
        text
    }
}

impl Row {
    fn title(&self) -> String {
        let busy = if self.busy > 0 { ", busy" } else { "" };
        format!("{}{busy}", self.cell.title())
    }
}

/// A number with three significant digits.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.2}M", value / 1e6),
        value if value >= 1e5 => format!("{:.0}k", value / 1e3),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}

fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let processors = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = read("/proc/sys/kernel/osrelease");
    let model = model.map_or("unknown processor", |(_, name)| name.trim());
    format!(
        "{model}, {processors} processors, Linux {}, load {}",
        kernel.trim(),
        read("/proc/loadavg").trim()
    )
}

const CSV_HEAD: &str = "mpi,benchmark,size,words,ranks,pinned,busy,round,distance,line_before_us,line_after_us,avg_us,p50_us,p99_us,rate,version\n";

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn figures_are_short() {
        assert_eq!(
            [0.2581, 14.39, 136.58, 342_812.0, 2_117_420.0].map(short),
            ["0.258", "14.4", "137", "343k", "2.12M"]
        );
    }
}
