// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Failures over libfabric, without shared memory between ranks (`MEND_BTL=ofi,self`): the programs about failures and repair, the time until
//! a death is known, memory after an error return, fresh mappings, and ranks that sleep. `MENDTEST_JOBS` is the number of jobs of those that draw.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use mend_tests::fabric::{OVER_LIBFABRIC, missing};
use mend_tests::program::{self, Header};
use mend_tests::watched_command::{Ended, WatchedCommand};
use mend_tests::{chance, prefix, say, skip};
use mend_xtask::install::c_programs;

#[test]
fn every_program_about_failures_prints_no_errors_over_libfabric() {
    let test = "every_program_about_failures_prints_no_errors_over_libfabric";
    if let Some(why) = missing() {
        return skip(test, &why);
    }
    let only = std::env::var("MENDTEST_ONLY").unwrap_or_default();
    let (mut passed, mut failures) = (0, Vec::new());
    let begun = Instant::now();
    for source in c_programs(&prefix::place().root.join("tests/c")) {
        let text = std::fs::read_to_string(&source).expect("a source that was listed can be read");
        let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !is_about_failures(&text) || !name.contains(&only) {
            continue;
        }
        match try_out(&source, &text) {
            Ok(took) => {
                passed += 1;
                say(&format!("  {name:<28} ok {:>6.2} s", took.as_secs_f64()));
            }
            Err(why) => failures.push(format!("{name}: {why}")),
        }
    }
    say(&format!(
        "figure: {passed} programs about failures over libfabric, {:.1} s",
        begun.elapsed().as_secs_f64()
    ));
    say(&format!("checks: {passed} passed, {} failed", failures.len()));
    assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
    assert!(passed >= if only.is_empty() { 40 } else { 1 }, "{passed} programs");
}

// Row PP6, Row PP9, Row WT5, Row CO1: the class does not depend on the transport, nor on the notices of the node daemon.
#[test]
fn every_blocked_call_returns_with_its_class_over_libfabric_with_notices_and_without() {
    let test = "every_blocked_call_returns_with_its_class_over_libfabric_with_notices_and_without";
    if let Some(why) = missing() {
        return skip(test, &why);
    }
    for call in ["receive", "wildcard", "probe", "barrier", "allreduce", "waitall"] {
        for is_muted in [false, true] {
            blocked_in(call, is_muted);
        }
    }
}

// Row RV6, Row PP6: what an error return promises about the buffer, over both transports.
#[test]
fn nothing_writes_to_a_receive_buffer_or_reads_a_send_buffer_after_an_error_return() {
    let test = "nothing_writes_to_a_receive_buffer_or_reads_a_send_buffer_after_an_error_return";
    if let Some(why) = missing() {
        return skip(test, &why);
    }
    let jobs = chance::number("MENDTEST_JOBS").unwrap_or(3);
    let mut random = chance::drawn();
    for btl in ["shm,self", OVER_LIBFABRIC.1] {
        let mut counts = [(0, 0); 4];
        for _ in 0..jobs {
            let seed = random.below(1 << 30);
            let mut command = program::mpiexec(SILENCE_RANKS, LIMIT);
            command.env(OVER_LIBFABRIC.0, btl).arg(program::death_program("silence.c"));
            command.args([seed.to_string(), SILENCE_ROUNDS.to_string()]);
            let ended = WatchedCommand::new(command, LIMIT).run();
            assert!(ended.is_clean(), "{btl}, seed {seed}: {}", ended.report());
            count_rounds(&ended, &mut counts);
        }
        let kinds = ["the sender dies", "the receiver dies", "revoked", "cancelled"].iter().zip(counts);
        let words: Vec<String> =
            kinds.map(|(kind, (rounds, errors))| format!("{kind} {rounds} ({errors} errors)")).collect();
        say(&format!("figure: {btl}: rounds in which {}: 0 writes after an error return", words.join(", ")));
    }
}

#[test]
fn messages_from_and_into_memory_that_is_mapped_anew_each_time_are_right_over_each_provider() {
    let test = "messages_from_and_into_memory_that_is_mapped_anew_each_time_are_right_over_each_provider";
    if let Some(why) = missing() {
        return skip(test, &why);
    }
    let fresh = program::compile(&prefix::place().root.join("tests/c/fresh_mappings.c"));
    let fresh = fresh.unwrap_or_else(|why| panic!("{why}"));
    for provider in PROVIDERS {
        let mut command = over(provider, 2);
        command.arg(&fresh).arg("100");
        let ended = WatchedCommand::new(command, LIMIT).run();
        assert!(ended.is_clean(), "{provider}: {}", ended.report());
    }
}

#[test]
fn frames_of_ranks_that_are_stopped_in_the_middle_of_them_are_right_over_each_provider() {
    let test = "frames_of_ranks_that_are_stopped_in_the_middle_of_them_are_right_over_each_provider";
    if let Some(why) = missing() {
        return skip(test, &why);
    }
    let paused = program::compile(&prefix::place().root.join("tests/c/paused_senders.c"));
    let paused = paused.unwrap_or_else(|why| panic!("{why}"));
    for provider in PROVIDERS {
        let mut command = over(provider, 4);
        command.arg(&paused).arg("300");
        let ended = WatchedCommand::new(command, LIMIT).run();
        assert!(ended.is_clean(), "{provider}: {}", ended.report());
        say(&format!(
            "figure: {provider}: 900 messages of 64 KB of ranks that are stopped, {:.1} s",
            ended.took.as_secs_f64()
        ));
    }
}

#[test]
fn a_rank_asleep_in_a_receive_uses_less_than_2_per_cent_of_a_processor_over_each_provider() {
    let test = "a_rank_asleep_in_a_receive_uses_less_than_2_per_cent_of_a_processor_over_each_provider";
    if let Some(why) = missing() {
        return skip(test, &why);
    }
    let asleep = program::compile(&prefix::place().root.join("tests/wires/asleep.c"));
    let asleep = asleep.unwrap_or_else(|why| panic!("{why}"));
    for provider in PROVIDERS {
        let mut command = over(provider, 2);
        command.arg(&asleep).arg("3000");
        let ended = WatchedCommand::new(command, LIMIT).run();
        let share = ended.stdout.trim().strip_prefix("share ").and_then(|number| number.parse::<u32>().ok());
        let hundredths = share.unwrap_or_else(|| panic!("{provider}: {}", ended.report()));
        say(&format!(
            "figure: {provider}: a rank asleep for 3 s uses {:.2} % of a processor",
            f64::from(hundredths) / 100.0
        ));
        assert!(hundredths < 200, "{provider}: {hundredths} hundredths of a per cent");
    }
}

/// Programs about failures and repair use the extension, or kill ranks.
fn is_about_failures(text: &str) -> bool {
    ["mpi-ext.h", "deaths.h", "SIGKILL"].iter().any(|word| text.contains(word))
}

/// Runs a program once, on the greatest number of ranks of its header that is not large: a rank needs half a second to open libfabric.
fn try_out(source: &Path, text: &str) -> Result<Duration, String> {
    let header = Header::parse(text)?;
    let product = program::compile(source)?;
    let (few, many): (Vec<u32>, Vec<u32>) = header.ranks.iter().partition(|ranks| **ranks <= RANKS_MAX);
    let ranks = few.into_iter().max().or(many.into_iter().min()).ok_or("no number of ranks")?;
    let mut command = program::mpiexec(ranks, header.limit);
    command.envs([OVER_LIBFABRIC]).envs(header.variables.iter().map(|(name, value)| (name, value)));
    command.args(&header.options).arg(product).args(&header.arguments);
    let ended = WatchedCommand::new(command, header.limit).run();
    header.check(&ended).map(|()| ended.took)
}

fn blocked_in(call: &str, is_muted: bool) {
    let mut command = program::mpiexec(BLOCKED_RANKS, LIMIT);
    command.envs([OVER_LIBFABRIC]);
    if is_muted {
        command.arg("--test-hooks").env("MEND_TEST_MUTED", "1");
    }
    command.arg(prefix::prefix().join("bin/mend-detect")).args(["--samples", "--call", call]);
    let ended = WatchedCommand::new(command, LIMIT).run();
    let right = ended.stdout.lines().filter(|line| line.ends_with(",right")).count();
    let how = if is_muted { "muted" } else { "with notices" };
    assert!(ended.exited_with(0) && right + 1 == BLOCKED_RANKS as usize, "{call}, {how}: {}", ended.report());
    let times = ended.stdout.lines().filter_map(|line| line.split(',').nth(1)?.parse::<f64>().ok());
    say(&format!(
        "figure: {call} over libfabric, {how}: the last returned after {:.0} us",
        times.fold(0.0, f64::max)
    ));
}

/// Adds the lines `KIND: N rounds, M errors`, which come in one order.
fn count_rounds(ended: &Ended, counts: &mut [(u32, u32)]) {
    let lines = ended.stdout.lines().filter(|line| line.contains(" rounds, "));
    for (line, (rounds, errors)) in lines.zip(counts) {
        let numbers: Vec<u32> = line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
        if let [of_rounds, of_errors] = numbers[..] {
            (*rounds, *errors) = (*rounds + of_rounds, *errors + of_errors);
        }
    }
}

/// `mpiexec` over one provider.
fn over(provider: &str, ranks: u32) -> Command {
    let mut command = program::mpiexec(ranks, LIMIT);
    command.envs([OVER_LIBFABRIC]).env("MEND_BTL_OFI_PROVIDER", provider);
    command
}

/// Those of libfabric 1.17; `tcp` is named `net` there.
const PROVIDERS: [&str; 3] = ["tcp", "tcp;ofi_rxm", "sockets"];
const RANKS_MAX: u32 = 5;
const BLOCKED_RANKS: u32 = 4;
const SILENCE_RANKS: u32 = 7;
const SILENCE_ROUNDS: u32 = 16;
const LIMIT: Duration = Duration::from_secs(120);
