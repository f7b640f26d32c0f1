// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Soaks that need a special build: loom, mutations, sanitizers. Each has a separate target folder, so that the ordinary build
//! stays as it is.

use std::process::Command;
use std::time::Duration;

use crate::Outcome;
use crate::install::Build;
use crate::place::Place;
use crate::step::Step;

/// `--cfg loom` turns segment's atomics into loom's.
pub fn loom(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let cargo = loom_models(place, "")?;
    let guard = guard_models(place, "")?;
    Ok(vec![
        Step::new("loom", "models of ring, bell and sleep", cargo).within(time + COMPILING),
        Step::new("loom-guard", "models of the biased guard", guard).within(time + COMPILING),
    ])
}

/// Removes one protection after another: the loom models must detect it, and so must the example `wakeups` within a minute.
pub fn mutations(place: &Place, _time: Duration) -> Outcome<Vec<Step>> {
    let mut steps = Vec::new();
    for mutation in MUTATIONS {
        let name = |kind: &str| format!("{kind}-{}", mutation.replace('_', "-"));
        let models = format!("a loom model fails under '{mutation}'");
        let step = Step::new(&name("loom"), &models, loom_models(place, mutation)?);
        steps.push(step.within(COMPILING).must_fail("deadlock"));
        let stress = format!("the stress of wake-ups finds '{mutation}' within a minute");
        let step = Step::new(&name("stress"), &stress, mutated_wakeups(place, mutation)?);
        steps.push(step.within(COMPILING).must_fail("HANG"));
    }
    let models = "the models of the guard fail under 'no_settle'";
    let step = Step::new("loom-guard-no-settle", models, guard_models(place, "no_settle")?);
    steps.push(step.within(COMPILING).must_fail("Causality violation"));
    Ok(steps)
}

/// All mutants of the recovery protocols; in a short run it is only checked that each can be made.
pub fn mutants(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let mut cargo = place.cargo();
    cargo.args(["xtask", "mutants"]);
    if time < ALL_MUTANTS {
        cargo.arg("--check");
    }
    let sentence = "the recovery protocols with one rule broken, for each rule";
    Ok(vec![Step::new("mutants", sentence, cargo).within(4 * time + COMPILING)])
}

/// A mutation changes every object file, so each has a separate target folder.
fn loom_models(place: &Place, mutation: &str) -> Outcome<Command> {
    let mut cargo = place.cargo();
    cargo.args(["test", "--release", "--package", "mend-segment", "--lib", "model", "--", "--nocapture"]);
    cargo.env("RUSTFLAGS", format!("--cfg loom{}", flag_of(mutation)));
    cargo.env("CARGO_TARGET_DIR", place.folder(&format!("loom/{mutation}"))?);
    Ok(cargo)
}

/// The model of `world` has loom's atomics without `--cfg loom`.
fn guard_models(place: &Place, mutation: &str) -> Outcome<Command> {
    let mut cargo = place.cargo();
    cargo.args([
        "test",
        "--release",
        "--package",
        "mend-world",
        "--test",
        "guard_model",
        "--",
        "--nocapture",
    ]);
    cargo.env("RUSTFLAGS", flag_of(mutation).trim());
    cargo.env("CARGO_TARGET_DIR", place.folder(&format!("guard/{mutation}"))?);
    Ok(cargo)
}

fn mutated_wakeups(place: &Place, mutation: &str) -> Outcome<Command> {
    let mut cargo = place.cargo();
    cargo.args(["run", "--quiet", "--release", "--package", "mend-btl-shm", "--example", "wakeups", "--"]);
    cargo.args(["pair", "--for", "60s"]).env("RUSTFLAGS", flag_of(mutation).trim());
    cargo.env("CARGO_TARGET_DIR", place.folder(&format!("mutated/{mutation}"))?);
    Ok(cargo)
}

fn flag_of(mutation: &str) -> String {
    if mutation.is_empty() { String::new() } else { format!(" --cfg mend_mutation=\"{mutation}\"") }
}

/// The child that this unit forks ends by exit, where the sanitizer would report as leaks what other threads of the test harness,
/// which the child does not have, had allocated.
const ENDS_BY_EXIT: &str = "when_the_last_thread_of_the_program_ends_so_does_the_process";

/// AddressSanitizer on a stable compiler: RUSTC_BOOTSTRAP permits the flag for our crates and their dependencies; std is not
/// instrumented. The C programs are compiled with gcc's ASan, whose runtime the library uses too.
pub fn asan(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let build = asan_build(place);
    let prefix = build.target.join("prefix");
    let tests = || {
        let mut cargo = place.cargo();
        cargo.args(["test", "--no-fail-fast", "--target", TRIPLE]).envs(build.environment.clone());
        cargo.env("CARGO_TARGET_DIR", &build.target);
        cargo
    };
    let mut units = tests();
    for package in ["mend-segment", "mend-btl-shm", "mend-world", "mend-abi"] {
        units.args(["--package", package]);
    }
    units.args(["--", "--skip", ENDS_BY_EXIT]);
    let mut exiting = tests();
    exiting.args(["--package", "mend-world", "--lib", ENDS_BY_EXIT]).env("ASAN_OPTIONS", "detect_leaks=0");
    let mut install = place.cargo();
    install.args(["xtask", "install", "--asan", "--prefix"]).arg(&prefix);
    let mut programs = place.cargo();
    programs.args(["test", "--package", "mend-tests", "--test", "programs", "--", "--nocapture"]);
    programs.env("MENDTEST_PREFIX", &prefix).env("MENDTEST_CFLAGS", ASAN);
    // Memory that the process holds at its end (one engine, the helper thread's stack) is not leaked by a call. Without memory an
    // allocation fails, as tests/c/no_memory.c expects; by default the sanitizer aborts.
    programs.env("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1");
    Ok(vec![
        Step::new("asan-units", "units and conformance of segment, btl-shm, world and abi", units)
            .within(time + COMPILING),
        Step::new("asan-exit", "the unit whose forked child ends by exit", exiting).within(COMPILING),
        Step::new("asan-install", "the library built with AddressSanitizer", install).within(COMPILING),
        Step::new("asan-programs", "C programs on that library", programs).within(time + COMPILING),
    ])
}

/// The build of the library with AddressSanitizer. The triple is named so that the flags do not reach build scripts.
pub fn asan_build(place: &Place) -> Build {
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    Build {
        target: place.target.join("asan"),
        environment: vec![variable("RUSTC_BOOTSTRAP", "1"), variable("RUSTFLAGS", "-Zsanitizer=address")],
        triple: Some(TRIPLE.to_owned()),
        c_flags: &[ASAN],
    }
}

/// gcc's UBSan for the C programs; the library is the ordinary one.
pub fn ubsan(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let mut cargo = place.cargo();
    cargo.args(["test", "--package", "mend-tests", "--test", "programs", "--", "--nocapture"]);
    cargo.env("MENDTEST_CFLAGS", "-g -fsanitize=undefined -fno-sanitize-recover=undefined");
    Ok(vec![Step::new("ubsan", "C programs under gcc's UBSan", cargo).within(time + COMPILING)])
}

/// The mutations: names by which `segment` and `btl-shm` remove one protection of ring, bell or sleep.
const MUTATIONS: [&str; 3] = ["no_settle", "no_last_look", "clear_bell_unpolled"];
const ASAN: &str = "-fsanitize=address";
const TRIPLE: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-unknown-linux-gnu" };
const COMPILING: Duration = Duration::from_secs(900);
/// From this duration on there is time for all mutants.
const ALL_MUTANTS: Duration = Duration::from_secs(600);
