// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a person reads at the end: medians and ratios, and everything needed to doubt them: versions, flags, machine.

use super::Samples;
use super::cell::{Cell, Figure, PINNED};
use super::mpi::{C_FLAGS, Mpi};
use std::fmt::Write;

/// Prints the table; the first MPI is compared with each of the others.
pub fn print(mpis: &[Mpi], cells: &[&Cell], samples: &Samples, rounds: u32) {
    println!("machine: {}", machine());
    for mpi in mpis {
        println!("{}: {}; mpiexec {}", mpi.name, mpi.version, mpi.arguments.join(" "));
    }
    println!("programs: bench/c, mpicc {}; rank r on CPU r mod n of {PINNED}", C_FLAGS.join(" "));
    println!("medians of {rounds} runs each, in turns; in brackets least and greatest\n");
    let mut head = format!("{:<28}", "");
    for mpi in mpis {
        let _ = write!(head, "{:>32}", mpi.name);
    }
    for rival in &mpis[1..] {
        let _ = write!(head, "{:>22}", format!("{} / {}", mpis[0].name, rival.name));
    }
    println!("{head}");
    for (place, cell) in cells.iter().enumerate() {
        println!("{}", row(mpis, cell, place, samples));
    }
}

fn row(mpis: &[Mpi], cell: &Cell, place: usize, samples: &Samples) -> String {
    let mut line = format!("{:<28}", cell.title());
    let medians: Vec<f64> = (0..mpis.len())
        .map(|who| {
            let values = sorted(samples, who, place, cell.figure);
            let median = median(&values);
            let (least, most) =
                (values.first().copied().unwrap_or(0.0), values.last().copied().unwrap_or(0.0));
            let text = format!("{} {} [{}, {}]", short(median), cell.unit(), short(least), short(most));
            let _ = write!(line, "{text:>32}");
            median
        })
        .collect();
    for rival in &medians[1..] {
        let better =
            if (medians[0] <= *rival) == (cell.figure == Figure::Microseconds) { "" } else { " worse" };
        let _ = write!(line, "{:>22}", format!("{:.2}{better}", medians[0] / rival));
    }
    line
}

/// Every run's figures.
pub fn csv(mpis: &[Mpi], cells: &[&Cell], samples: &Samples) -> String {
    let mut text = "mpi,benchmark,size,ranks,run,avg_us,p99_us,rate,version\n".to_owned();
    for (&(who, place), runs) in samples {
        for (run, figures) in runs.iter().enumerate() {
            let (mpi, cell) = (&mpis[who], cells[place]);
            let (program, size, ranks) = (cell.program, cell.size, cell.ranks);
            let (average, p99, rate) = (figures.average, figures.p99, figures.rate);
            let (name, version) = (&mpi.name, mpi.version.replace(',', " "));
            let _ = writeln!(text, "{name},{program},{size},{ranks},{run},{average},{p99},{rate},{version}");
        }
    }
    text
}

fn sorted(samples: &Samples, who: usize, place: usize, figure: Figure) -> Vec<f64> {
    let runs = samples.get(&(who, place)).map(Vec::as_slice).unwrap_or_default();
    let mut values: Vec<f64> = runs.iter().map(|figures| figures.pick(figure)).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// Three digits that count.
fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}

fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let model = model.map_or("unknown processor", |(_, name)| name.trim());
    format!(
        "{model}, {processors} processors, Linux {}, load {}",
        kernel.trim(),
        read("/proc/loadavg").trim()
    )
}

#[cfg(test)]
mod tests {
    use super::{median, short};

    #[test]
    fn a_median_is_the_middle_or_between_the_two_middle_ones() {
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn figures_are_short() {
        assert_eq!([short(0.2581), short(14.39), short(136.58)], ["0.258", "14.4", "137"]);
    }
}
