// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cell: one benchmark, at one size, on a number of ranks.

use super::Outcome;
use super::mpi::Mpi;
use std::path::Path;

/// One benchmark run.
#[derive(Debug, PartialEq)]
pub struct Cell {
    /// The C program.
    pub program: &'static str,
    /// The size as the program reads it; empty if it has no sizes.
    pub size: &'static str,
    /// Further words for the program.
    pub words: &'static [&'static str],
    /// What these words mean, for a title.
    pub meaning: &'static str,
    /// On how many ranks.
    pub ranks: u32,
    /// The column of the program's output that counts.
    pub figure: Figure,
    /// What determines where ranks run.
    pub placement: Placement,
}

/// Which column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Figure {
    /// Average time: less is better.
    Microseconds,
    /// Twice the average time, of programs that print half a round trip: less is better.
    RoundTrip,
    /// The program's rate: more is better.
    Rate,
}

/// What determines where ranks run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// The benchmark pins each rank, the same for every MPI.
    Pinned,
    /// The MPI by its defaults, and the system.
    Defaults,
}

/// The figures of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Average, in microseconds, over a loop without clock readings.
    pub average: f64,
    /// The median, in microseconds, of single samples.
    pub p50: f64,
    /// The 99th percentile of them.
    pub p99: f64,
    /// The rate, in the program's unit.
    pub rate: f64,
}

impl Figures {
    /// The figure that counts.
    pub fn pick(&self, figure: Figure) -> f64 {
        match figure {
            Figure::Microseconds => self.average,
            Figure::RoundTrip => self.average * 2.0,
            Figure::Rate => self.rate,
        }
    }
}

impl Figure {
    /// Whether `one` is worse than `other`.
    pub fn is_worse(self, one: f64, other: f64) -> bool {
        match self {
            Figure::Microseconds | Figure::RoundTrip => one > other,
            Figure::Rate => one < other,
        }
    }
}

impl Cell {
    /// The name in the table.
    pub fn title(&self) -> String {
        let name = match self.figure {
            Figure::RoundTrip => "round trip".to_owned(),
            _ => self.program.replace('_', " "),
        };
        let size = if self.size.is_empty() { String::new() } else { format!(" {}B", spaced(self.size)) };
        let meaning = if self.meaning.is_empty() { String::new() } else { format!(", {}", self.meaning) };
        format!("{name}{size}, {} ranks{meaning}", self.ranks)
    }

    /// The unit of the figure that counts.
    pub fn unit(&self) -> &'static str {
        match (self.figure, self.program) {
            (Figure::Microseconds | Figure::RoundTrip, _) => "us",
            (Figure::Rate, "message_rate") => "msg/s",
            (Figure::Rate, _) => "MB/s",
        }
    }

    /// Runs the cell once; pinned ranks run on these processors round robin.
    pub fn run(&self, mpi: &Mpi, processors: [usize; 2], folder: &Path) -> Outcome<Figures> {
        let mut command = mpi.run(folder, self.program, self.ranks, self.placement);
        command.args(["--format", "csv"]).args(self.words);
        if self.placement == Placement::Pinned {
            command.args(["--pin", &format!("{},{}", processors[0], processors[1])]);
        }
        if !self.size.is_empty() {
            command.args(["--sizes", self.size]);
        }
        let output = command.output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let figures = text.lines().find_map(read);
        figures.filter(|_| output.status.success()).ok_or_else(|| {
            let errors = String::from_utf8_lossy(&output.stderr);
            format!(
                "{} did not measure {} ({}): {command:?}\n{text}{errors}",
                mpi.name,
                self.title(),
                output.status
            )
        })
    }
}

/// `64K` as `64 Ki`.
fn spaced(size: &str) -> String {
    match size.strip_suffix(['K', 'M']) {
        Some(number) => format!("{number} {}i", &size[number.len()..]),
        None => format!("{size} "),
    }
}

/// A line of figures, as `common.h` prints it: benchmark, ranks, bytes, iterations, min, avg, p50, p99, rate, unit.
fn read(line: &str) -> Option<Figures> {
    let columns: Vec<&str> = line.split(',').collect();
    let number = |at: usize| columns.get(at)?.parse::<f64>().ok();
    Some(Figures { average: number(5)?, p50: number(6)?, p99: number(7)?, rate: number(8)? })
}

pub(super) const fn time(program: &'static str, size: &'static str, ranks: u32) -> Cell {
    let (words, meaning) = (&[], "");
    let (figure, placement) = (Figure::Microseconds, Placement::Pinned);
    Cell { program, size, words, meaning, ranks, figure, placement }
}

pub(super) const fn rate(program: &'static str, size: &'static str, ranks: u32) -> Cell {
    Cell { figure: Figure::Rate, ..time(program, size, ranks) }
}

const fn blocked(words: &'static [&'static str], meaning: &'static str) -> Cell {
    Cell { words, meaning, ..time("blocked_threads", "8", 2) }
}

/// All cells that are compared.
pub const CELLS: &[Cell] = &[
    time("latency", "8", 2),
    time("latency", "64K", 2),
    time("latency", "1M", 2),
    rate("bandwidth", "64K", 2),
    rate("bandwidth", "1M", 2),
    rate("message_rate", "8", 2),
    time("barrier", "", 8),
    time("ring", "8", 8),
    NONE_BLOCKED,
    SOME_BLOCKED,
];

/// A ping-pong without other threads, which is compared with [`SOME_BLOCKED`].
pub const NONE_BLOCKED: Cell = blocked(&["--blocked", "0"], "none");
/// A ping-pong with 64 blocked threads.
pub const SOME_BLOCKED: Cell = blocked(&["--blocked", "64"], "64");

/// Cells that are measured with and without busy processes, one after the other: means over a second, because a busy process
/// affects a rank only in some time slices; and with every MPI's default placement, because pinning would reduce the effect.
pub const SHARED: &[Cell] = &[
    Cell { figure: Figure::RoundTrip, ..shared("latency", "8", &["--seconds", "1"]) },
    Cell { figure: Figure::Rate, ..shared("bandwidth", "1M", &["--seconds", "1", "--iterations", "1"]) },
];

const fn shared(program: &'static str, size: &'static str, words: &'static [&'static str]) -> Cell {
    Cell { words, meaning: "1 s, unpinned", placement: Placement::Defaults, ..time(program, size, 2) }
}

#[cfg(test)]
mod tests {
    use super::{CELLS, Cell, Figures, SHARED, read};

    #[test]
    fn a_line_of_figures_is_read_and_others_are_not() {
        let line = "latency,2,8,10000,0.180,0.258,0.245,0.321,30.990,MB/s";
        assert_eq!(read(line), Some(Figures { average: 0.258, p50: 0.245, p99: 0.321, rate: 30.99 }));
        assert_eq!(read("benchmark,ranks,bytes,iterations,min_us,avg_us,p50_us,p99_us,rate,rate_unit"), None);
        assert_eq!(read(""), None);
    }

    #[test]
    fn titles_are_readable() {
        let titles: Vec<String> = CELLS.iter().chain(SHARED).map(Cell::title).collect();
        assert_eq!(titles[0], "latency 8 B, 2 ranks");
        assert_eq!(titles[1], "latency 64 KiB, 2 ranks");
        assert_eq!(titles[6], "barrier, 8 ranks");
        assert_eq!(titles[9], "blocked threads 8 B, 2 ranks, 64");
        assert_eq!(titles[10], "round trip 8 B, 2 ranks, 1 s, unpinned");
    }
}
