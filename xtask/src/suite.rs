// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo suite`: every kind of test in minutes, from a clean clone, with Rust and gcc alone.
//!
//! Every step runs, also after failures. Tests that cannot run on this machine are skipped and named, with the reason; a skip is a
//! failure only if `--allow-skips FILE` is given and the file does not name the test.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::place::{Logs, Place};
use crate::skips::AllowedSkips;
use crate::step::{self, Report, Step};
use crate::{CommandError, Outcome, soak};

/// `cargo suite [--allow-skips FILE] [STEP...]`: runs the steps named, or all.
pub fn command(place: &Place, words: &[&str]) -> Outcome {
    let (only, allowed) = match words {
        ["--allow-skips", file, only @ ..] => (only, Some(AllowedSkips::read(Path::new(file))?)),
        only => (only, None),
    };
    let mut steps = steps(place);
    steps.extend(soak::samples(place)?);
    if let Some(unknown) = only.iter().find(|name| !steps.iter().any(|step| step.name == **name)) {
        let names: Vec<_> = steps.iter().map(|step| step.name.as_str()).collect();
        return Err(CommandError(format!("the suite has no step '{unknown}'; it has {}", names.join(", "))));
    }
    steps.retain(|step| only.is_empty() || only.contains(&step.name.as_str()));
    println!("Mend's suite: {} steps on {}", steps.len(), machine());
    let logs = Logs::open(place, "suite")?;
    let started = Instant::now();
    let reports =
        steps.into_iter().map(|step| step::run(step, logs.path())).collect::<Outcome<Vec<Report>>>()?;
    summary(&reports, started.elapsed(), logs.path(), allowed.as_ref())
}

/// The steps that are not samples of soaks.
pub fn steps(place: &Place) -> Vec<Step> {
    let mut steps = code_checks(place);
    let symbols = "symbols and dependencies of the installed library, pages made from tables";
    let limits = "memory limits, small /dev/shm, namespaces, footprint, core dumps, MPI_Abort";
    let fabric = "failures over libfabric: repair, silent memory, sleepers";
    steps.extend([
        cargo_step(place, "units", "units of every crate, conformance of every transport", UNITS)
            .tests_within(MINUTE, LONG_UNITS),
        seeds(place),
        documentation(place),
        installation(place),
        cargo_step(place, "symbols", symbols, SYMBOLS),
        cargo_step(place, "programs", "C and C++ programs as real processes", PROGRAMS),
        cargo_step(place, "limits", limits, LIMITS),
        cargo_step(place, "fabric", fabric, FABRIC),
    ]);
    steps
}

/// Format, lints and rules. Two of these need components of the toolchain that may be absent.
fn code_checks(place: &Place) -> Vec<Step> {
    vec![
        component(place, "fmt", "rustfmt", "every file is formatted", &["fmt", "--all", "--check"]),
        component(place, "clippy", "clippy", "no lint is violated", CLIPPY),
        cargo_step(place, "tidy", "the rules that a program can check", TIDY),
    ]
}

fn component(place: &Place, name: &str, component: &str, sentence: &str, words: &[&str]) -> Step {
    let present =
        place.cargo().args([name, "--version"]).output().is_ok_and(|output| output.status.success());
    if present {
        return cargo_step(place, name, sentence, words);
    }
    let why = format!("{name}: {component} is not installed (rustup component add {component})");
    Step::skipped(name, sentence, why)
}

fn cargo_step(place: &Place, name: &str, sentence: &str, words: &[&str]) -> Step {
    let mut cargo = place.cargo();
    cargo.args(words);
    Step::new(name, sentence, cargo).within(LONGEST_STEP)
}

fn seeds(place: &Place) -> Step {
    let mut cargo = place.cargo();
    cargo.args(["test", "--package", "mend-sim", "--no-fail-fast", "--", "--nocapture"]);
    cargo.env("MEND_SIM_SEEDS", "10000");
    Step::new(
        "seeds",
        "10,000 seeds of the simulated cluster, 10,000 with deaths, 10,000 whole recoveries",
        cargo,
    )
    .within(LONGEST_STEP)
}

/// Installs into the prefix that the tests after this step use, so that they need not install.
fn installation(place: &Place) -> Step {
    let mut cargo = place.cargo();
    cargo.args(["xtask", "install", "--prefix"]).arg(place.target.join("mend-tests/prefix"));
    Step::new("install", "the release build, laid out as a user gets it", cargo).within(LONGEST_STEP)
}

fn documentation(place: &Place) -> Step {
    let mut cargo = place.cargo();
    cargo.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", DOC_FLAGS);
    Step::new("doc", "the documentation of every crate builds without a warning", cargo).within(LONGEST_STEP)
}

fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{processors} processors, {}, {}",
        first_line("rustc", "--version"),
        first_line("gcc", "--version")
    )
}

fn first_line(program: &str, argument: &str) -> String {
    let output = Command::new(program).arg(argument).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("no such program").to_owned()
}

/// Prints the summary; the last line is for programs.
pub fn summary(reports: &[Report], took: Duration, logs: &Path, allowed: Option<&AllowedSkips>) -> Outcome {
    println!("\nsummary, {} s in all, logs in {}", took.as_secs(), logs.display());
    for report in reports {
        println!("  {:<26} {} {:>8.1} s", report.name, counts(report), report.took.as_secs_f64());
    }
    show("skipped on this machine", reports, |report| &report.skips);
    show("seeds and figures", reports, |report| &report.notes);
    show("faults", reports, |report| &report.faults);
    let unnamed = allowed.map(|allowed| (allowed, allowed.missing_in(reports)));
    let passed: u32 = reports.iter().map(|report| report.passed).sum();
    let failed: u32 = reports.iter().map(|report| report.failed).sum();
    let skipped: usize = reports.iter().map(|report| report.skips.len()).sum();
    println!("\n{passed} passed, {failed} failed, {skipped} skipped");
    let broken: Vec<_> =
        reports.iter().filter(|report| report.failed > 0).map(|report| report.name.as_str()).collect();
    if !broken.is_empty() {
        return Err(CommandError(format!("failed: {}", broken.join(", "))));
    }
    match unnamed {
        Some((allowed, missing)) if !missing.is_empty() => {
            let file = allowed.file().display();
            Err(CommandError(format!("skipped, and {file} does not name it:\n  {}", missing.join("\n  "))))
        }
        _ => Ok(()),
    }
}

fn counts(report: &Report) -> String {
    let Report { passed, failed, skips, .. } = report;
    format!("{passed:>6} passed {failed:>4} failed {:>4} skipped", skips.len())
}

fn show(title: &str, reports: &[Report], lines: impl Fn(&Report) -> &Vec<String>) {
    if reports.iter().all(|report| lines(report).is_empty()) {
        return;
    }
    println!("{title}:");
    for report in reports {
        for line in lines(report) {
            println!("  {}: {line}", report.name);
        }
    }
}

const UNITS: &[&str] =
    &["test", "--workspace", "--exclude", "mend-tests", "--exclude", "mend-sim", "--no-fail-fast"];
const CLIPPY: &[&str] = &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
const TIDY: &[&str] = &["run", "--quiet", "--package", "mend-ci", "--bin", "tidy"];
const SYMBOLS: &[&str] = &[
    "test",
    "--package",
    "mend-tests",
    "--no-fail-fast",
    "--lib",
    "--test",
    "symbols",
    "--test",
    "zeros",
    "--test",
    "pages",
];
const PROGRAMS: &[&str] = &[
    "test",
    "--package",
    "mend-tests",
    "--no-fail-fast",
    "--test",
    "programs",
    "--test",
    "benchmarks",
    "--test",
    "transports",
    "--test",
    "wires",
];
const LIMITS: &[&str] = &[
    "test",
    "--package",
    "mend-tests",
    "--no-fail-fast",
    "--test",
    "limits",
    "--test",
    "footprint",
    "--test",
    "namespaces",
    "--test",
    "aborts",
    "--test",
    "computes",
    "--test",
    "detector",
    "--test",
    "streams",
    "--",
    "--test-threads=1",
];
const FABRIC: &[&str] = &[
    "test",
    "--package",
    "mend-tests",
    "--no-fail-fast",
    "--test",
    "fabric",
    "--test",
    "fabric_faults",
    "--",
    "--test-threads=1",
];
/// A crate's first page may link to private modules; in the users' documentation such a link is plain text, and no error.
const DOC_FLAGS: &str = "-D warnings -A rustdoc::private-intra-doc-links";
/// libtest itself names tests that have not ended after a minute.
const MINUTE: Duration = Duration::from_secs(60);
/// Units with thousands of schedules, or with many jobs: on a busy machine they take longer than a minute.
pub const LONG_UNITS: &[(&str, Duration)] = &[
    ("every_message_arrives_once_whole_and_in_order_and_nothing_is_left", LONG),
    ("one_random_word_at_a_time_never_crashes_and_never_stops_the_others", LONG),
    ("jobs_ended_at_random_moments_leave_nothing_behind", LONG),
];
const LONG: Duration = Duration::from_secs(300);
/// A clean clone compiles everything in its first steps, on two slow processors.
const LONGEST_STEP: Duration = Duration::from_secs(900);
