// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask WORD`: reads the word and calls its module.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use mend_xtask::place::Place;
use mend_xtask::{CommandError, Outcome, compare, demo, docs, install, mutants, soak, suite};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match obey(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(CommandError(why)) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn obey(words: &[&str]) -> Outcome {
    let place = Place::find()?;
    match words {
        ["install", "--prefix", prefix] => install::command(&place, &install::Build::release(&place), prefix),
        ["install", "--asan", "--prefix", prefix] => {
            install::command(&place, &soak::asan_build(&place), prefix)
        }
        ["demo"] => demo::command(&place),
        ["suite", only @ ..] => suite::command(&place, only),
        ["soak", rest @ ..] => soak::command(&place, rest),
        ["bench-compare", rest @ ..] => compare::command(&place, "compare", rest),
        ["bench-detect", rest @ ..] => compare::command(&place, "detect", rest),
        ["bench-repair", rest @ ..] => compare::command(&place, "repair", rest),
        ["scale", words @ ..] => compare::scale(&place, words),
        ["mutants", words @ ..] => mutants::command(&place, words),
        ["docs"] => docs::command(&place),
        [] | ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        _ => Err(CommandError(format!("'cargo xtask {}' is not understood\n{USAGE}", words.join(" ")))),
    }
}

const USAGE: &str = "\
cargo xtask install --prefix DIR     build the library and lay out bin, lib, include and share under DIR
cargo xtask install --asan --prefix DIR   the same, built with AddressSanitizer, for programs compiled with it
cargo xtask mutants [--check] [WORD...]   break the recovery protocols in a copy: the tests must fail (cargo soak mutants)
cargo xtask docs                     write docs/parameters.md from the table of parameters
cargo demo                           build, compile and run examples on 4 ranks, then two benchmarks on 2
cargo suite [--allow-skips FILE] [STEP...]   every kind of test, in minutes; STEP: only these; FILE: a skip not named there fails
cargo soak [NAME] [--for DURATION]   the long runs; without NAME: list them and run each for a short while
cargo bench-compare [ARGUMENTS]      figures against other MPIs (arguments go to mend-bench)
cargo bench-detect [ARGUMENTS]       from SIGKILL of a rank to the return of every other's call
cargo bench-repair [ARGUMENTS]       agreement, shrink, revocation, creation of communicators
cargo xtask scale [ARGUMENTS]        cargo sim scale, with the constants of this host
";
