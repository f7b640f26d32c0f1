// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `sim`: whole recoveries of the production engine in the simulated cluster (`mend_sim::recoveries`).
//!
//! ```text
//! sim --seed N [--size R]              replays one job; if it fails, makes its history shorter, and prints each step of the shortest
//! sim [--jobs N] [--from N] [--size R] runs the jobs of N seeds on all processors, and prints what they have reached
//! sim --all ...                        goes on after a failure, and prints each kind of failure with its first seed
//! sim --sweep N                        a death at every N-th point of every blocking call (`mend_sim::sweep`)
//! sim scale ...                        the protocols of recovery alone, to 131,072 ranks (`mend_sim::scale::command`)
//! ```
//!
//! Ends with 0 if nothing failed, with 10 after a wrong result, with 11 if a process waits for ever, with 12 if the production code
//! has panicked; with 1 if 100,000 jobs or more have not reached something, and there is no reason for that (`mend_sim::coverage`).

use mend_sim::history::History;
use mend_sim::recoveries::{Report, Tally, report_panics, run, run_all, shorten};
use mend_sim::{coverage, scale, sweep};
use std::process::ExitCode;

/// What the command line asks for.
#[derive(Default)]
struct Options {
    seed: Option<u64>,
    jobs: Option<u64>,
    from: u64,
    size: Option<u32>,
    goes_on: bool,
    sweep: Option<u64>,
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if(|word| word == "scale").is_some() {
        return scale::command::command(words);
    }
    let options = match parse(words) {
        Ok(options) => options,
        Err(what) => {
            eprintln!(
                "sim: {what}; usage: sim --seed N [--size R] | sim [--jobs N] [--from N] [--size R] [--all] | sim --sweep N | sim scale"
            );
            return ExitCode::from(2);
        }
    };
    report_panics();
    match (options.sweep, options.seed) {
        (Some(stride), _) => run_sweep(stride),
        (None, Some(seed)) => replay(&options.history(seed), seed),
        (None, None) => run_many(&options),
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(word) = words.next() {
        let mut number = || {
            let text = words.next().ok_or(format!("{word} needs a number"))?;
            text.parse::<u64>().map_err(|_| format!("'{text}' is no number"))
        };
        match &*word {
            "--seed" => options.seed = Some(number()?),
            "--jobs" => options.jobs = Some(number()?),
            "--from" => options.from = number()?,
            "--size" => options.size = Some(number()? as u32).filter(|size| *size > 0),
            "--sweep" => options.sweep = Some(number()?),
            "--all" => options.goes_on = true,
            _ => return Err(format!("'{word}' is no option")),
        }
    }
    Ok(options)
}

impl Options {
    fn history(&self, seed: u64) -> History {
        self.size.map_or_else(|| History::draw(seed), |size| History::draw_for(seed, size))
    }
}

fn replay(history: &History, seed: u64) -> ExitCode {
    println!("seed {seed}: {history}");
    let failure = match run(history, false) {
        Ok(tally) => {
            _ = run(history, true);
            println!("seed {seed} passes\n{tally}");
            return ExitCode::SUCCESS;
        }
        Err(failure) => failure,
    };
    println!("{:?}: {}", failure.kind, failure.what);
    let (shortest, failure, jobs) = shorten(history, failure);
    let failure = run(&shortest, true).err().unwrap_or(failure);
    println!("shortest history that fails in this way, of {jobs} that were tried: {shortest}");
    println!("{:?}: {}", failure.kind, failure.what);
    ExitCode::from(failure.kind.exit_code())
}

fn run_many(options: &Options) -> ExitCode {
    let jobs = options.jobs.unwrap_or(10_000);
    let started = std::time::Instant::now();
    let Report { tally, failures } =
        run_all(options.from, jobs, |seed| options.history(seed), options.goes_on);
    println!("{tally}");
    let rate = tally.jobs as f64 / started.elapsed().as_secs_f64();
    let holes = print_unvisited(&tally);
    println!(
        "seeds {} to {}: {rate:.0} jobs per second; to go on: --from {}",
        options.from,
        options.from + jobs.max(1) - 1,
        options.from + jobs
    );
    for (signature, (times, seed, failure)) in &failures {
        println!("{times:>8} jobs, first seed {seed}: {signature}\n{:?}: {}", failure.kind, failure.what);
    }
    let worst = failures.values().map(|(_, _, failure)| failure.kind).min();
    match worst {
        Some(kind) => ExitCode::from(kind.exit_code()),
        None if holes > 0 && jobs >= coverage::JOBS_MIN => ExitCode::FAILURE,
        None => ExitCode::SUCCESS,
    }
}

/// Prints what was never reached, and why. Returns how much of it has no reason.
fn print_unvisited(tally: &Tally) -> usize {
    println!("never reached:");
    let unvisited = coverage::unvisited(tally);
    for (name, reason) in &unvisited {
        println!("{name:>70}  {}", reason.unwrap_or("NO REASON"));
    }
    let holes = unvisited.iter().filter(|(_, reason)| reason.is_none()).count();
    println!("{} never reached, {holes} of them without a reason", unvisited.len());
    holes
}

fn run_sweep(stride: u64) -> ExitCode {
    let rows = sweep::sweep(stride);
    println!("{}", sweep::table(&rows));
    for (name, row) in &rows {
        if let Some((history, failure)) = row.failures.first() {
            println!("{name}: {:?}: {}\n{history}", failure.kind, failure.what);
        }
        if row.has_hole() {
            println!("{name}: there is a hole");
        }
    }
    let points: u64 = rows.iter().flat_map(|(_, row)| row.points.values()).sum();
    println!("{} calls, {points} points; every {stride}-th point was tried", rows.len());
    let worst = rows.iter().flat_map(|(_, row)| &row.failures).map(|(_, failure)| failure.kind).min();
    match worst {
        Some(kind) => ExitCode::from(kind.exit_code()),
        None if rows.iter().any(|(_, row)| row.has_hole()) => ExitCode::FAILURE,
        None => ExitCode::SUCCESS,
    }
}
