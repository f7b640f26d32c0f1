// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ways between living ranks that break, over libfabric, in a network namespace that each test makes: the loopback interface is taken down and up
//! again, and connections are reset.

use std::process::Command;
use std::time::Duration;

use mend_tests::watched_command::{Ended, WatchedCommand};
use mend_tests::{fabric, prefix, program, skip};

#[test]
fn a_wire_that_is_cut_for_a_while_loses_nothing_and_no_rank_gets_an_error() {
    let cut = "ip link set lo down; sleep 3; ip link set lo up";
    let Some(ended) = run("a_wire_that_is_cut_for_a_while_loses_nothing_and_no_rank_gets_an_error", cut, 7)
    else {
        return;
    };
    assert_no_error(&ended);
}

#[test]
fn connections_that_are_reset_again_and_again_lose_nothing_and_no_rank_gets_an_error() {
    let name = "connections_that_are_reset_again_and_again_lose_nothing_and_no_rank_gets_an_error";
    let resets = "for i in 1 2 3 4 5 6 7 8 9 10; do ss -HK state established dst 127.0.0.1; sleep 0.2; done";
    let Some(ended) = run(name, resets, 6) else { return };
    assert_no_error(&ended);
}

fn assert_no_error(ended: &Ended) {
    let all = (0..2).all(|rank| ended.stdout.contains(&format!("rank {rank}: class 0\n")));
    assert!(ended.exited_with(0) && all, "no error was expected: {}", ended.report());
}

/// Runs the program for `seconds` in a namespace of its own; `breaks` runs in a shell there, from the first second on. `None`: this machine cannot
/// do it.
fn run(test: &str, breaks: &str, seconds: u32) -> Option<Ended> {
    if let Some(why) = missing() {
        skip(test, &why);
        return None;
    }
    let source = prefix::place().root.join("tests/wires/ping.c");
    let ping = program::compile(&source).expect("a program of the tests compiles");
    let limit = Duration::from_secs(60);
    let mpiexec = program::mpiexec(2, limit);
    let words: Vec<String> = std::iter::once(mpiexec.get_program())
        .chain(mpiexec.get_args())
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    // Sleeps: the wire is broken while the program runs, for a time that the test is about.
    let script = format!(
        "ip link set lo up; (sleep 1; {breaks}) > /dev/null 2>&1 & {} '{}' {seconds}; code=$?; wait; exit $code",
        words.join(" "),
        ping.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--net", "bash", "-c", &script]).envs([fabric::OVER_LIBFABRIC]);
    Some(WatchedCommand::new(command, limit).run())
}

/// What this machine lacks for these tests.
fn missing() -> Option<String> {
    if let Some(why) = fabric::missing() {
        return Some(why);
    }
    let works = |program: &str, arguments: &[&str]| {
        Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
    };
    let tools = works("unshare", &["--net", "ip", "link", "set", "lo", "up"]) && works("ss", &["-V"]);
    (!tools).then(|| "no network namespaces, or no ip and ss (Debian: apt-get install iproute2)".to_owned())
}
