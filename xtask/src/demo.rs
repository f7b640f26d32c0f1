// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo demo`: a demonstration of Mend in one command: install, compile, run, measure.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::install::{Build, install, succeed};
use crate::place::Place;
use crate::{CommandError, Outcome};

/// Runs the whole demonstration.
pub fn command(place: &Place) -> Outcome {
    let prefix = place.folder("demo")?;
    let bin = prefix.join("bin");
    heading("1. build and install Mend (the first time takes a minute or two)");
    install(place, &Build::release(place), &prefix)?;
    println!("installed into {}", prefix.display());

    heading("2. compile a C program with its mpicc");
    let hello = compiled(place, &prefix, "hello")?;

    heading("3. run it on 4 ranks");
    shown(Command::new(bin.join("mpiexec")).args(["-n", "4"]).arg(&hello))?;

    heading("4. kill one of 4 ranks: the others get an error code, and go on");
    let survive = compiled(place, &prefix, "survive")?;
    shown(Command::new(bin.join("mpiexec")).args(["-n", "4"]).arg(&survive))?;

    for (number, (name, what)) in BENCHMARKS.iter().enumerate() {
        heading(&format!("{}. {what} between 2 ranks", number + 5));
        let program = bin.join(name);
        if !program.is_file() {
            return Err(CommandError(format!("{} has not been installed", program.display())));
        }
        let mut measure = Command::new(bin.join("mpiexec"));
        measure.args(["-n", "2"]).arg(&program);
        if std::io::stderr().is_terminal() {
            measure.arg("--progress");
        }
        shown(&mut measure)?;
    }
    farewell(&prefix);
    Ok(())
}

/// Compiles one of `examples` by the `mpicc` of `prefix`.
fn compiled(place: &Place, prefix: &Path, name: &str) -> Outcome<PathBuf> {
    let program = prefix.join(name);
    let mut mpicc = Command::new(prefix.join("bin/mpicc"));
    let source = format!("examples/{name}.c");
    mpicc.current_dir(&place.root).args(["-O2", "-Wall", &source, "-o"]).arg(&program);
    shown(&mut mpicc)?;
    Ok(program)
}

fn heading(text: &str) {
    println!("\n== {text}");
}

/// Prints a command as one would type it, then runs it.
fn shown(command: &mut Command) -> Outcome {
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let program = command.get_program().to_string_lossy().into_owned();
    println!("$ {program} {}", words.join(" "));
    command.env_remove("LD_LIBRARY_PATH");
    succeed(command, &program)
}

fn farewell(prefix: &Path) {
    println!(
        "\nYour own programs: put {}/bin first in PATH, then mpicc and mpiexec as above.",
        prefix.display()
    );
    println!(
        "Next: docs/failure-model.md and docs/tutorial.md; 'mend-info' lists what can be set; 'cargo suite' runs all tests."
    );
}

const BENCHMARKS: [(&str, &str); 2] = [("mend-latency", "latency"), ("mend-bandwidth", "bandwidth")];
