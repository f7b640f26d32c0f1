// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line of `cargo sim scale [--max N] [--latency-ns N] [--overhead-ns N] [--ps-per-byte N] [--write FOLDER]`: executes the
//! protocols with 2 to N ranks (131,072), compares the counts with their formulas, and writes `scale.md` and `scale.svg`.

use super::cost::Cost;
use super::table;
use mend_base::Duration;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

struct Arguments {
    max: u32,
    cost: Cost,
    folder: Option<PathBuf>,
}

/// Ends with 0 if every formula holds, with 10 if one does not, with 2 if the words are not understood.
pub fn command(words: impl Iterator<Item = String>) -> ExitCode {
    let arguments = match arguments(words) {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("error: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(10)
        }
    }
}

const USAGE: &str =
    "usage: sim scale [--max N] [--latency-ns N] [--overhead-ns N] [--ps-per-byte N] [--write FOLDER]";

fn arguments(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments { max: 131_072, cost: Cost::default(), folder: None };
    while let Some(option) = words.next() {
        let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
        let number = || value.parse::<u32>().map_err(|_| format!("{option} needs a number, not '{value}'"));
        match &*option {
            "--max" => arguments.max = number()?.clamp(2, 1 << 20),
            "--latency-ns" => arguments.cost.latency = Duration(number()?.into()),
            "--overhead-ns" => arguments.cost.overhead = Duration(number()?.into()),
            "--ps-per-byte" => arguments.cost.picoseconds_per_byte = number()?.into(),
            "--write" => arguments.folder = Some(PathBuf::from(value)),
            _ => return Err(format!("there is no option {option}")),
        }
    }
    Ok(arguments)
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let rows = table::execute(&table::sizes(arguments.max), arguments.cost, |what, n| {
        print!("\r{} of {n} ranks          ", what.name());
        _ = std::io::stdout().flush();
    })?;
    println!("\r{}", table::markdown(&rows, arguments.cost));
    if let Some(folder) = &arguments.folder {
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|why| format!("{}: {why}", path.display()))
        };
        write("scale.md", table::page(&rows, arguments.cost))?;
        write("scale.svg", table::drawing(&rows))?;
    }
    table::check(&rows)?;
    println!("{} executions, every count as its formula says (1 %).", rows.len());
    Ok(())
}
