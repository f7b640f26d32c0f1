// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What repair costs, beside other MPIs: agreement, shrink, revocation, and the creation of communicators (`bench/c/repair.c`,
//! `bench/c/revoke.c`), round by round, all MPIs in each round. An MPI without the extension for process failures has only the rows that
//! it can have. A run that fails or hangs is counted, and does not end the comparison.

use crate::compare::mpi::Mpi;
use crate::compare::{Outcome, folder, median, progress};
use std::collections::BTreeMap;
use std::path::Path;

/// The options of the command line.
#[derive(Debug, PartialEq)]
struct Options<'a> {
    mend: Option<&'a str>,
    others: Vec<(&'a str, &'a str)>,
    open_mpi: bool,
    spinning: bool,
    ranks: Vec<u32>,
    rounds: u32,
    iterations: u32,
    pin: &'a str,
}

impl Options<'_> {
    /// The option that takes no value.
    fn flag(&mut self, option: &str) -> Option<&mut bool> {
        match option {
            "--open-mpi" => Some(&mut self.open_mpi),
            "--spinning" => Some(&mut self.spinning),
            _ => None,
        }
    }
}

/// One operation: the program, the number of its row, and its name.
struct Operation {
    program: &'static str,
    row: u32,
    name: &'static str,
}

const fn operation(program: &'static str, row: u32, name: &'static str) -> Operation {
    Operation { program, row, name }
}

/// The C programs.
const PROGRAMS: [&str; 2] = ["repair", "revoke"];

/// `repair --dead`: the last rank has killed itself.
const AFTER_A_DEATH: &str = "repair --dead";

/// All operations that are compared.
const OPERATIONS: [Operation; 12] = [
    operation("repair", 0, "allreduce of 8 bytes"),
    operation("repair", 1, "dup and free"),
    operation("repair", 2, "split and free"),
    operation("repair", 3, "agree"),
    operation("repair", 4, "shrink"),
    operation("repair", 5, "dup and free, local"),
    operation("repair", 6, "split and free, local"),
    operation(AFTER_A_DEATH, 0, "allreduce, one died"),
    operation(AFTER_A_DEATH, 3, "agree, one left out"),
    operation(AFTER_A_DEATH, 7, "agree, one dead"),
    operation("revoke", 0, "revoke, last return"),
    operation("revoke", 1, "barrier, last return"),
];

/// Medians of runs in microseconds, by MPI, ranks and operation; and the runs that failed, by MPI.
#[derive(Default)]
struct Measured {
    medians: BTreeMap<(usize, u32, usize), Vec<f64>>,
    failures: BTreeMap<usize, u32>,
}

/// `mend-bench repair`.
pub fn command(words: &[&str]) -> Outcome {
    let options = parse(words)?;
    let folder = folder()?;
    let mut mpis = Mpi::prepare(options.mend, &options.others, options.open_mpi, &PROGRAMS, &folder)?;
    if let (true, Some(prefix)) = (options.spinning, options.mend) {
        mpis.push(Mpi::spinning(prefix, &PROGRAMS, &folder)?);
    }
    let mut measured = Measured::default();
    for round in 0..options.rounds {
        for &ranks in &options.ranks {
            for program in ["repair", AFTER_A_DEATH, "revoke"] {
                for at in 0..mpis.len() {
                    // Every second round in the opposite order, so that other work on the machine affects all equally.
                    let who = if round % 2 == 0 { at } else { mpis.len() - 1 - at };
                    progress(&format!(
                        "round {} of {}: {} on {ranks} ranks: {program}",
                        round + 1,
                        options.rounds,
                        mpis[who].name
                    ));
                    measured.run((who, &mpis[who]), program, ranks, &options, &folder);
                }
            }
        }
    }
    progress("");
    print(&measured, &mpis, &options);
    Ok(())
}

impl Measured {
    fn run(
        &mut self,
        (who, mpi): (usize, &Mpi),
        program: &str,
        ranks: u32,
        options: &Options<'_>,
        folder: &Path,
    ) {
        let is_after_a_death = program == AFTER_A_DEATH;
        if is_after_a_death && !mpi.repairs {
            return;
        }
        let mut command = match is_after_a_death {
            true => mpi.run_with_deaths(folder, "repair", ranks, &[]),
            false => mpi.run_repair(folder, program, ranks),
        };
        // A revocation sleeps for milliseconds first, so fewer of them are made.
        let iterations =
            if program == "revoke" { options.iterations.div_ceil(20) } else { options.iterations };
        command.args(["--format", "csv", "--pin", options.pin, "--iterations", &iterations.to_string()]);
        if is_after_a_death {
            command.arg("--dead");
        }
        let output = command.output();
        let rows: Vec<(u32, f64)> = output
            .as_ref()
            .map(|output| String::from_utf8_lossy(&output.stdout).lines().filter_map(read).collect())
            .unwrap_or_default();
        // The status of a job of which a rank has died is no success.
        let succeeds = output.is_ok_and(|output| output.status.success());
        if rows.is_empty() || !is_after_a_death && !succeeds {
            *self.failures.entry(who).or_default() += 1;
        }
        for (row, median) in rows {
            let found = OPERATIONS.iter().position(|each| each.program == program && each.row == row);
            if let Some(operation) = found {
                self.medians.entry((who, ranks, operation)).or_default().push(median);
            }
        }
    }

    /// The median over the runs.
    fn of(&self, who: usize, ranks: u32, operation: usize) -> Option<f64> {
        let mut values = self.medians.get(&(who, ranks, operation))?.clone();
        values.sort_by(f64::total_cmp);
        median(&values)
    }
}

/// The number of the row and the median, of a line of figures.
fn read(line: &str) -> Option<(u32, f64)> {
    let columns: Vec<&str> = line.split(',').collect();
    Some((columns.get(2)?.parse().ok()?, columns.get(6)?.parse().ok()?))
}

fn print(measured: &Measured, mpis: &[Mpi], options: &Options<'_>) {
    println!(
        "# medians in microseconds of {} runs; in brackets: the first MPI's time divided by this one's",
        options.rounds
    );
    print!("{:<22} {:>5}", "operation", "ranks");
    mpis.iter().for_each(|mpi| print!(" {:>20}", mpi.name));
    println!();
    for (at, operation) in OPERATIONS.iter().enumerate() {
        for &ranks in &options.ranks {
            print!("{:<22} {ranks:>5}", operation.name);
            let first = measured.of(0, ranks, at);
            for who in 0..mpis.len() {
                let cell = match (measured.of(who, ranks, at), first) {
                    (Some(time), Some(first)) if who > 0 => format!("{time:.2} ({:.2} x)", first / time),
                    (Some(time), _) => format!("{time:.2}"),
                    (None, _) => "-".to_owned(),
                };
                print!(" {cell:>20}");
            }
            println!();
        }
    }
    for (&who, failures) in &measured.failures {
        println!("{}: {failures} runs failed or hung", mpis[who].name);
    }
}

fn parse<'a>(words: &[&'a str]) -> Outcome<Options<'a>> {
    let mut options = Options {
        mend: None,
        others: Vec::new(),
        open_mpi: false,
        spinning: false,
        ranks: vec![2, 4, 8],
        rounds: 5,
        iterations: 2_000,
        pin: "0,1",
    };
    let mut words = words.iter();
    while let Some(&option) = words.next() {
        if let Some(flag) = options.flag(option) {
            *flag = true;
            continue;
        }
        let &value = words.next().ok_or_else(|| format!("{option} needs a value\n{}", super::USAGE))?;
        let number = |word: &str| {
            let parsed = word.parse().ok().filter(|number| (1..=1_000_000).contains(number));
            parsed.ok_or_else(|| format!("'{word}' is no number from 1 to 1000000"))
        };
        match option {
            "--mend" => options.mend = Some(value),
            "--rival" => {
                let other = value.split_once('=').ok_or_else(|| format!("'{value}' is not NAME=PREFIX"))?;
                options.others.push(other);
            }
            "--ranks" => options.ranks = value.split(',').map(number).collect::<Outcome<_>>()?,
            "--rounds" => options.rounds = number(value)?,
            "--iterations" => options.iterations = number(value)?,
            "--pin" => options.pin = value,
            _ => return Err(format!("'{option}' is not understood\n{}", super::USAGE)),
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::{parse, read};

    #[test]
    fn the_command_line_is_understood_or_refused() {
        let options = parse(&["--mend", "p", "--ranks", "2,8", "--rounds", "3", "--spinning"]).unwrap();
        assert_eq!((options.ranks, options.rounds, options.spinning), (vec![2, 8], 3, true));
        for wrong in [&["--ranks", "0"][..], &["--rounds"], &["--calls", "x"], &["--rival", "x"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_line_of_figures_is_read_and_the_header_is_not() {
        assert_eq!(read("repair,4,3,10,1.0,2.0,1.500,9.0,7.0,operations/s"), Some((3, 1.5)));
        assert_eq!(read("benchmark,ranks,bytes,iterations,min_us,avg_us,p50_us,p99_us,rate,rate_unit"), None);
    }
}
