// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What idle ranks cost: memory, descriptors, processor time; and which of their memory is in a core dump.

use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use mend_tests::watched_command::{Running, WatchedCommand};
use mend_tests::{Scratch, elf, live, prefix, program, say, skip};

#[test]
fn sixty_four_ranks_stay_within_memory_and_descriptors() {
    footprint(64);
}

#[test]
fn two_hundred_and_fifty_six_ranks_stay_within_memory_and_descriptors() {
    footprint(256);
}

/// the limits for memory and descriptors, and the formula that docs/memory.md publishes.
fn footprint(ranks: u32) {
    let (running, _) = start("idle.c", &[], ranks);
    let pids = running.processes("idle");
    let pss: u64 = pids.iter().filter_map(|&pid| live::pss_bytes(pid)).sum();
    let most = pids.iter().filter_map(|&pid| live::descriptors(pid)).max().unwrap_or(0);
    let ended = running.end();
    assert!(ended.is_clean(), "{}", ended.report());
    assert_eq!(pids.len(), ranks as usize);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    say(&format!(
        "figure: {ranks} ranks: PSS {:.1} MiB in all, {most} descriptors at most, {:.1} s",
        mib(pss),
        ended.took.as_secs_f64()
    ));
    assert!(pss <= u64::from(ranks) * (4 << 20), "PSS summed over {ranks} ranks: {:.1} MiB", mib(pss));
    assert!(most <= 24, "{most} descriptors in one rank");
    let (shared, per_rank) = formula();
    let published = shared + per_rank * f64::from(ranks);
    let measured = pss as f64 / 1024.0;
    let off = (measured / published - 1.0).abs();
    assert!(
        off <= 0.10,
        "docs/memory.md says {published:.0} KiB for {ranks} ranks, measured are {measured:.0} KiB"
    );
}

/// The numbers of the formula `PSS(N) = A KiB + B KiB * N` in docs/memory.md.
fn formula() -> (f64, f64) {
    let page = std::fs::read_to_string(prefix::place().root.join("docs/memory.md"))
        .expect("docs/memory.md is there");
    let line = page
        .lines()
        .find(|line| line.trim_start().starts_with("PSS(N) ="))
        .expect("the page has the formula");
    let numbers: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert_eq!(numbers.len(), 2, "two numbers are wanted in: {line}");
    (numbers[0], numbers[1])
}

#[test]
fn a_rank_blocked_in_a_receive_uses_less_than_2_percent_of_a_processor() {
    let test = "a_rank_blocked_in_a_receive_uses_less_than_2_percent_of_a_processor";
    if live::processor_time(std::process::id()).is_none() {
        return skip(test, live::NOT_COUNTED);
    }
    let (running, _) = start("idle.c", &[], 2);
    let pids = running.processes("idle");
    let used = |pids: &[u32]| pids.iter().map(|&pid| live::processor_time(pid)).sum::<Option<Duration>>();
    // Sleeps: processor time is measured over a span, past the first 10 ms of being blocked.
    std::thread::sleep(Duration::from_millis(100));
    let (begun, before) = (Instant::now(), used(&pids));
    // Sleeps: this is the span.
    std::thread::sleep(Duration::from_secs(2));
    let (span, after) = (begun.elapsed(), used(&pids));
    let ended = running.end();
    assert!(ended.is_clean(), "{}", ended.report());
    let used = after.zip(before).map(|(after, before)| after - before);
    let share =
        used.expect("the ranks are there, and their time was counted").as_secs_f64() / span.as_secs_f64();
    say(&format!("figure: a rank blocked in a receive uses {:.3} % of a processor", share * 100.0));
    assert!(share < 0.02, "{:.2} % of a processor", share * 100.0);
}

#[test]
fn every_mapping_of_an_outbox_is_left_out_of_core_dumps() {
    let (running, _) = start("abort.c", &[], 4);
    let pids = running.processes("abort");
    let mappings: Vec<_> = pids.iter().flat_map(|&pid| live::memory_files(pid)).collect();
    let _ = running.end();
    // Each rank has its own outbox, the bell page and the notice page, and the outboxes of those that it has met.
    assert!(mappings.len() >= 4 * 3, "{} memory files are mapped", mappings.len());
    let dumped: Vec<_> = mappings.iter().filter(|mapping| !mapping.left_out_of_dumps).collect();
    assert!(dumped.is_empty(), "{dumped:?}");
}

#[test]
fn the_core_dump_of_a_rank_holds_no_outbox() {
    let test = "the_core_dump_of_a_rank_holds_no_outbox";
    if let Some(why) = elf::no_cores() {
        return skip(test, &why);
    }
    let folder = Scratch::new("core");
    let script = format!("cd '{}' && ulimit -c unlimited && exec \"$@\"", folder.path().display());
    let (running, ready) = start("abort.c", &["sh", "-ec", &script, "sh"], 4);
    let rank_0 =
        ready.rsplit_once(' ').and_then(|(_, pid)| pid.parse().ok()).expect("rank 0 tells its process id");
    let mappings = live::memory_files(rank_0);
    assert!(mappings.len() >= 3, "{} memory files are mapped", mappings.len());
    let ended = running.end();
    assert!(!ended.exited_with(0), "a job whose rank aborts has failed: {}", ended.report());
    let cores = elf::cores_in(folder.path());
    let [core] = &cores[..] else { panic!("a core is wanted here: {cores:?}: {}", ended.report()) };
    let file = std::fs::read(core).expect("a core file of ours can be read");
    let ranges = elf::dumped(&file).expect("a core file is an ELF file");
    let size = file.len() as f64 / f64::from(1 << 20);
    say(&format!("figure: the core dump of a rank beside outboxes has {size:.1} MiB"));
    for mapping in &mappings {
        let inside =
            ranges.iter().find(|(start, bytes)| mapping.start < start + bytes && *start < mapping.end);
        assert!(inside.is_none(), "{mapping:?} is in the core dump");
    }
}

/// Starts a program of `tests/limits` under `wrapper`, and returns rank 0's line when it has printed `ready`.
fn start(name: &str, wrapper: &[&str], ranks: u32) -> (Running, String) {
    let product = program::limit_program(name);
    let mpiexec = program::mpiexec(ranks, LIMIT);
    let mut command = match wrapper {
        [] => Command::new(mpiexec.get_program()),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(mpiexec.get_program());
            command
        }
    };
    command.env_remove("LD_LIBRARY_PATH").args(mpiexec.get_args()).arg(product);
    let (sender, lines) = mpsc::channel();
    let running = WatchedCommand::new(command, LIMIT).start(move |line| {
        if line.contains("ready") {
            // The test may have ended already.
            let _ = sender.send(line.to_owned());
        }
    });
    match lines.recv_timeout(LIMIT) {
        Ok(ready) => (running, ready),
        Err(_) => panic!("{ranks} ranks of {name} never became ready: {}", running.end().report()),
    }
}

const LIMIT: Duration = Duration::from_secs(120);
