// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One comparison: which MPIs, which benchmarks, how often, and in which order. The MPIs alternate within each round (A B, then
//! B A), so that other work on the machine affects them equally. The transfer time of a cache line between the two processors is
//! measured before and after each run of two ranks, because the host of a virtual machine moves processors.

pub mod busy;
pub mod cell;
mod distance;
mod fabric;
mod line;
pub mod mpi;
mod options;
mod samples;
mod table;

use busy::Busy;
use cell::{CELLS, Cell, NONE_BLOCKED, SHARED, SOME_BLOCKED};
use mpi::Mpi;
use options::Options;
pub use samples::median;
use samples::{Sample, Samples};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use table::Table;

/// The result of a command; `Err`: why it could not be done, in a sentence.
pub type Outcome<T = ()> = Result<T, String>;

/// One line of the table: a cell, and how many busy processes run beside it.
#[derive(Debug)]
pub struct Row {
    cell: &'static Cell,
    busy: u32,
}

/// Two rows whose figures are divided by each other, for each MPI.
#[derive(Debug, PartialEq)]
pub struct Contrast {
    title: String,
    row: usize,
    against: usize,
}

/// `mend-bench compare`.
pub fn command(words: &[&str]) -> Outcome {
    let options = options::parse(words)?;
    let rows = rows(&options);
    if rows.is_empty() {
        return Err(format!("no benchmark's name begins with '{}'", options.only));
    }
    let folder = folder()?;
    let others: Vec<(&str, &str)> = options.before.iter().chain(&options.others).copied().collect();
    let programs: BTreeSet<_> = rows.iter().map(|row| row.cell.program).collect();
    let programs = Vec::from_iter(programs);
    let mpis = match options.fabric {
        None => Mpi::prepare(options.mend, &others, options.open_mpi, &programs, &folder)?,
        Some(provider) => {
            let mpis = Mpi::all(options.mend, &others, options.open_mpi, &folder)?;
            fabric::prepare(mpis, provider, options.library, &programs, &folder)?
        }
    };
    if options.busy > 0 {
        // The ranks and the busy processes inherit the set of processors.
        line::confine(&options.processors)?;
    }
    let measured = measure(&mpis, &rows, &options, &folder)?;
    let contrasts = contrasts(&rows);
    let table = Table { mpis: &mpis, rows: &rows, samples: &measured.samples, options: &options };
    table.print(&contrasts);
    let saved = folder.join("figures.csv");
    std::fs::write(&saved, table.csv())
        .map_err(|error| format!("cannot write {}: {error}", saved.display()))?;
    println!("\nevery run's figures: {}", saved.display());
    if measured.failures.is_empty() {
        Ok(())
    } else {
        Err(measured.failures.into_values().collect::<Vec<_>>().join("\n"))
    }
}

/// All requested rows: all cells, beside busy processes if there are any; then the cells that are measured both with and without
/// them.
fn rows(options: &Options<'_>) -> Vec<Row> {
    let cells = if options.fabric.is_some() { fabric::CELLS } else { CELLS };
    let cells = cells.iter().map(|cell| Row { cell, busy: options.busy });
    let shared = SHARED.iter().filter(|_| options.busy > 0 && options.fabric.is_none());
    let shared = shared.flat_map(|cell| [0, options.busy].map(|busy| Row { cell, busy }));
    cells.chain(shared).filter(|row| row.cell.program.starts_with(options.only)).collect()
}

fn contrasts(rows: &[Row]) -> Vec<Contrast> {
    let mut contrasts = Vec::new();
    for (row, one) in rows.iter().enumerate() {
        for (against, other) in rows.iter().enumerate() {
            let title = if one.cell == other.cell && one.busy > other.busy {
                format!("{}: busy / quiet", one.cell.title())
            } else if *one.cell == SOME_BLOCKED && *other.cell == NONE_BLOCKED {
                "blocked threads: 64 / none".to_owned()
            } else {
                continue;
            };
            contrasts.push(Contrast { title, row, against });
        }
    }
    contrasts
}

#[derive(Debug, Default)]
struct Measured {
    samples: Samples,
    /// By MPI and row; a failed pair is not tried again.
    failures: BTreeMap<(usize, usize), String>,
}

fn measure(mpis: &[Mpi], rows: &[Row], options: &Options<'_>, folder: &Path) -> Outcome<Measured> {
    let mut measured = Measured::default();
    let rounds = options.rounds;
    for round in 0..rounds {
        for (place, row) in rows.iter().enumerate() {
            let mut order: Vec<usize> = (0..mpis.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            order.retain(|&who| !measured.failures.contains_key(&(who, place)));
            for who in order {
                let what = row.cell.title();
                progress(&format!("round {} of {rounds}: {what} on {}", round + 1, mpis[who].name));
                match run(&mpis[who], row, round, options.processors, folder)? {
                    Ok(sample) => measured.samples.add(who, place, sample),
                    Err(why) => _ = measured.failures.insert((who, place), why),
                }
            }
        }
    }
    progress("");
    Ok(measured)
}

/// One run between two measurements of the line. The inner `Err`: why the MPI did not measure.
fn run(mpi: &Mpi, row: &Row, round: u32, processors: [usize; 2], folder: &Path) -> Outcome<Outcome<Sample>> {
    let _busy = Busy::start(row.busy)?;
    let line = || if row.cell.ranks == 2 { line::one_way_us(processors).map(Some) } else { Ok(None) };
    let before = line()?;
    let figures = row.cell.run(mpi, processors, folder);
    let after = line()?;
    let line_us = before.zip(after).map(|(before, after)| [before, after]);
    Ok(figures.map(|figures| Sample { round, line_us, figures }))
}

/// Prints a line that replaces the last one, if stderr is a terminal.
pub fn progress(text: &str) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        // A terminal that cannot be written to is no reason to stop measuring.
        let _ = write!(terminal, "\r\x1b[K{text}").and_then(|()| terminal.flush());
    }
}

/// The folder for other MPIs and compiled programs: `compare` in the target folder that this program was built into.
pub fn folder() -> Outcome<PathBuf> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let target = program.ancestors().nth(2).ok_or("this program lies in no target folder")?;
    let folder = target.join("compare");
    std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::{contrasts, options, rows};

    #[test]
    fn a_busy_run_has_the_cells_that_are_measured_with_and_without_busy_processes_too() {
        let quiet = rows(&options::parse(&[]).unwrap());
        assert!(quiet.iter().all(|row| row.busy == 0));
        let busy = rows(&options::parse(&["--busy", "2"]).unwrap());
        assert_eq!(busy.len(), quiet.len() + 4);
        assert!(busy[..quiet.len()].iter().all(|row| row.busy == 2));
        let shared: Vec<u32> = busy[quiet.len()..].iter().map(|row| row.busy).collect();
        assert_eq!(shared, [0, 2, 0, 2]);
        assert!(rows(&options::parse(&["--only", "nothing"]).unwrap()).is_empty());
    }

    #[test]
    fn busy_rows_are_compared_with_quiet_ones_and_blocked_threads_with_none() {
        let busy = rows(&options::parse(&["--busy", "1"]).unwrap());
        let pairs: Vec<(usize, usize)> =
            contrasts(&busy).iter().map(|each| (each.row, each.against)).collect();
        assert_eq!(pairs, [(9, 8), (11, 10), (13, 12)]);
        assert_eq!(contrasts(&rows(&options::parse(&["--only", "barrier"]).unwrap())), []);
    }
}
