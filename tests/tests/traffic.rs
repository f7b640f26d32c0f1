// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `tests/c/traffic.c` on 8 ranks for as long as `cargo soak traffic` says; the suite runs a short sample.

use std::time::{Duration, SystemTime};

use mend_tests::watched_command::WatchedCommand;
use mend_tests::{prefix, program, say};

#[test]
#[ignore = "a long run: cargo soak traffic"]
fn random_traffic_between_eight_ranks_is_right_and_in_order() {
    let seconds = number("MENDTEST_TRAFFIC_SECONDS").unwrap_or(600);
    let seed = number("MENDTEST_TRAFFIC_SEED").unwrap_or_else(drawn);
    say(&format!("seed: {seed} (replay: MENDTEST_TRAFFIC_SEED={seed} cargo soak traffic)"));
    let limit = Duration::from_secs(seconds + 120);
    let traffic = program::compile(&prefix::place().root.join("tests/c/traffic.c"))
        .unwrap_or_else(|why| panic!("{why}"));
    let mut command = program::mpiexec(8, limit);
    command.arg(traffic).args(["--seed", &seed.to_string(), "--for", &seconds.to_string(), "--threads", "2"]);
    let ended = WatchedCommand::new(command, limit).run();
    assert!(ended.is_clean(), "seed {seed}: {}", ended.report());
    say(&format!("figure: {}", ended.stdout.trim().replace('\n', "; ")));
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

fn drawn() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(1, |time| time.as_nanos() as u64)
}
