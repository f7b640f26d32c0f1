// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is measured: one benchmark, at one size, on so many ranks.

use super::Outcome;
use super::mpi::Mpi;
use std::path::Path;

/// One benchmark run.
#[derive(Debug)]
pub struct Cell {
    /// The C program.
    pub program: &'static str,
    /// As the program reads it; empty: it has no sizes.
    pub size: &'static str,
    /// On how many ranks.
    pub ranks: u32,
    /// Which of the program's columns counts.
    pub figure: Figure,
}

/// Which column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Figure {
    /// Average time: less is better.
    Microseconds,
    /// The program's rate: more is better.
    Rate,
}

/// What one run said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Average, in microseconds, over a loop without clock readings.
    pub average: f64,
    /// The 99th percentile, in microseconds.
    pub p99: f64,
    /// In the program's unit.
    pub rate: f64,
}

impl Figures {
    /// The one that counts.
    pub fn pick(&self, figure: Figure) -> f64 {
        match figure {
            Figure::Microseconds => self.average,
            Figure::Rate => self.rate,
        }
    }
}

impl Cell {
    /// As the table calls it.
    pub fn title(&self) -> String {
        let size = if self.size.is_empty() { String::new() } else { format!(" {}B", spaced(self.size)) };
        format!("{}{size}, {} ranks", self.program.replace('_', " "), self.ranks)
    }

    /// The unit of the figure that counts.
    pub fn unit(&self) -> &'static str {
        match (self.figure, self.program) {
            (Figure::Microseconds, _) => "us",
            (Figure::Rate, "message_rate") => "msg/s",
            (Figure::Rate, _) => "MB/s",
        }
    }

    /// Runs it once.
    pub fn run(&self, mpi: &Mpi, folder: &Path) -> Outcome<Figures> {
        let mut command = mpi.run(folder, self.program, self.ranks);
        command.args(["--format", "csv", "--pin", PINNED]);
        if !self.size.is_empty() {
            command.args(["--sizes", self.size]);
        }
        let output = command.output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let figures = text.lines().find_map(read);
        figures.filter(|_| output.status.success()).ok_or_else(|| {
            let said = String::from_utf8_lossy(&output.stderr);
            format!(
                "{} did not measure {} ({}): {command:?}\n{text}{said}",
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
    Some(Figures { average: number(5)?, p99: number(7)?, rate: number(8)? })
}

/// Rank r runs on the r-th of these, around and around: the same for every MPI.
pub const PINNED: &str = "0,1";

const fn time(program: &'static str, size: &'static str, ranks: u32) -> Cell {
    Cell { program, size, ranks, figure: Figure::Microseconds }
}

const fn rate(program: &'static str, size: &'static str, ranks: u32) -> Cell {
    Cell { program, size, ranks, figure: Figure::Rate }
}

/// Everything that is compared.
pub const CELLS: &[Cell] = &[
    time("latency", "8", 2),
    time("latency", "64K", 2),
    time("latency", "1M", 2),
    rate("bandwidth", "64K", 2),
    rate("bandwidth", "1M", 2),
    rate("message_rate", "8", 2),
    time("barrier", "", 8),
    time("ring", "8", 8),
];

#[cfg(test)]
mod tests {
    use super::{CELLS, Figures, read};

    #[test]
    fn a_line_of_figures_is_read_and_others_are_not() {
        let line = "latency,2,8,10000,0.180,0.258,0.245,0.321,30.990,MB/s";
        assert_eq!(read(line), Some(Figures { average: 0.258, p99: 0.321, rate: 30.99 }));
        assert_eq!(read("benchmark,ranks,bytes,iterations,min_us,avg_us,p50_us,p99_us,rate,rate_unit"), None);
        assert_eq!(read(""), None);
    }

    #[test]
    fn titles_are_what_a_person_would_write() {
        let titles: Vec<String> = CELLS.iter().map(super::Cell::title).collect();
        assert_eq!(titles[0], "latency 8 B, 2 ranks");
        assert_eq!(titles[1], "latency 64 KiB, 2 ranks");
        assert_eq!(titles[6], "barrier, 8 ranks");
    }
}
