// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One comparison: who, what, how often, and in which order. The MPIs take turns within each round (A B, then B A), so
//! that whatever else the machine does meets them alike.

mod cell;
pub mod mpi;
mod table;

use cell::{CELLS, Cell, Figures};
use mpi::Mpi;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Why it could not be done, in a sentence.
pub type Outcome<T = ()> = Result<T, String>;

/// What the command line asks for.
#[derive(Debug, PartialEq)]
struct Request<'a> {
    mend: Option<&'a str>,
    rivals: Vec<(&'a str, &'a str)>,
    rounds: u32,
    only: &'a str,
}

/// `mend-bench compare`.
pub fn command(words: &[&str]) -> Outcome {
    let request = parse(words)?;
    let cells: Vec<&Cell> = CELLS.iter().filter(|cell| cell.program.starts_with(request.only)).collect();
    if cells.is_empty() {
        return Err(format!("no benchmark's name begins with '{}'", request.only));
    }
    let folder = folder()?;
    let mut mpis = Mpi::named(request.mend, &request.rivals)?;
    mpis.push(Mpi::open_mpi(&folder)?);
    for mpi in &mpis {
        mpi.compile(&sources(), &folder)?;
    }
    let samples = measure(&mpis, &cells, request.rounds, &folder)?;
    table::print(&mpis, &cells, &samples, request.rounds);
    let saved = folder.join("figures.csv");
    std::fs::write(&saved, table::csv(&mpis, &cells, &samples))
        .map_err(|error| format!("cannot write {}: {error}", saved.display()))?;
    println!("\nevery run's figures: {}", saved.display());
    Ok(())
}

/// By place in the list of MPIs, and in that of cells: one entry a run.
type Samples = BTreeMap<(usize, usize), Vec<Figures>>;

fn measure(mpis: &[Mpi], cells: &[&Cell], rounds: u32, folder: &Path) -> Outcome<Samples> {
    let mut samples = Samples::new();
    for round in 0..rounds {
        for (place, cell) in cells.iter().enumerate() {
            let mut order: Vec<usize> = (0..mpis.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for who in order {
                progress(&format!("round {} of {rounds}: {} on {}", round + 1, cell.title(), mpis[who].name));
                let figures = cell.run(&mpis[who], folder)?;
                samples.entry((who, place)).or_default().push(figures);
            }
        }
    }
    progress("");
    Ok(samples)
}

/// One line that replaces the last; only where a person looks.
pub fn progress(text: &str) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        // A terminal that cannot be written to is no reason to stop measuring.
        let _ = write!(terminal, "\r\x1b[K{text}").and_then(|()| terminal.flush());
    }
}

fn parse<'a>(words: &[&'a str]) -> Outcome<Request<'a>> {
    let mut request = Request { mend: None, rivals: Vec::new(), rounds: 7, only: "" };
    let mut words = words.iter();
    while let Some(&option) = words.next() {
        let &value = words.next().ok_or_else(|| format!("{option} needs a value\n{}", super::USAGE))?;
        match option {
            "--mend" => request.mend = Some(value),
            "--only" => request.only = value,
            "--rival" => {
                let rival = value.split_once('=').ok_or_else(|| format!("'{value}' is not NAME=PREFIX"))?;
                request.rivals.push(rival);
            }
            "--rounds" => match value.parse() {
                Ok(rounds @ 1..=1000) => request.rounds = rounds,
                _ => return Err(format!("'{value}' is no number of rounds from 1 to 1000")),
            },
            _ => return Err(format!("'{option}' is not understood\n{}", super::USAGE)),
        }
    }
    Ok(request)
}

/// Where the C programs lie.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("c")
}

/// Where rivals and compiled programs are kept: `compare` in the target folder that this program was built into.
pub fn folder() -> Outcome<PathBuf> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let target = program.ancestors().nth(2).ok_or("this program lies in no target folder")?;
    let folder = target.join("compare");
    std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::{Request, parse};

    #[test]
    fn the_command_line_is_understood_or_refused() {
        let request = parse(&["--mend", "p", "--rival", "MPICH=/opt/mpich", "--rounds", "3"]).unwrap();
        let rivals = vec![("MPICH", "/opt/mpich")];
        assert_eq!(request, Request { mend: Some("p"), rivals, rounds: 3, only: "" });
        for wrong in [&["--rounds", "0"][..], &["--mend"], &["--rival", "x"], &["--fast", "1"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
