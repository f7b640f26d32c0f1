// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Jobs whose ranks are killed by SIGKILL at any instruction while they communicate, and whose survivors revoke, agree, shrink and go
//! on. At least 200 deaths in the suite, `MENDTEST_DEATHS` of them in `cargo soak recoveries`.

use std::time::{Duration, Instant};

use mend_base::Random;
use mend_tests::watched_command::{Ended, WatchedCommand};
use mend_tests::{chance, say};

/// What the survivors of one job report.
#[derive(Default)]
struct Counts {
    deaths: u64,
    repairs: u64,
}

// Row SH7, Row SH9, Row AG7, Row RV2: for any victims and moments.
#[test]
fn survivors_repair_their_communicator_whenever_others_are_killed() {
    until_so_many_have_died("recover.c", 1000, 200);
}

// Row CC1, Row DY6, Row AG9, Row SH10: for any victims and moments.
#[test]
fn groups_connect_and_merge_at_all_survivors_or_at_none_whenever_members_are_killed() {
    until_so_many_have_died("inter_deaths.c", 100, 200);
}

// Row CC1, Row CC5, Row CC6, Row IK3, Row SH13: at any instruction of any call that creates a communicator.
#[test]
fn a_communicator_exists_at_all_survivors_or_at_none_whenever_others_are_killed() {
    until_so_many_have_died("creations.c", 500, 100);
}

// Row IK3, Row AG1: at any instruction of any call that creates a communicator without an agreement.
#[test]
fn members_that_have_a_communicator_wait_for_none_that_does_not_whenever_others_are_killed() {
    until_so_many_have_died("local_creations.c", 500, 100);
}

/// Runs jobs of a program with so many rounds each until `wanted` ranks have died in them, or more as `MENDTEST_DEATHS` says.
fn until_so_many_have_died(program: &str, rounds: u32, wanted: u64) {
    let wanted = chance::number("MENDTEST_DEATHS").unwrap_or(wanted);
    let mut random = chance::drawn();
    let begun = Instant::now();
    let (mut counts, mut jobs, mut failures) = (Counts::default(), 0, Vec::new());
    while counts.deaths < wanted && failures.len() < FAILURES_MAX {
        jobs += 1;
        match one_job(program, rounds, &mut random) {
            Ok(of_job) => {
                counts.deaths += of_job.deaths;
                counts.repairs += of_job.repairs;
            }
            Err(why) => failures.push(format!("job {jobs}: {why}")),
        }
    }
    say(&format!(
        "figure: {program}: {jobs} jobs, {} deaths survived, {} repairs at rank 0; {} wrong, {:.1} s",
        counts.deaths,
        counts.repairs,
        failures.len(),
        begun.elapsed().as_secs_f64()
    ));
    say(&format!("checks: {} passed, {} failed", jobs - failures.len(), failures.len()));
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn one_job(program: &str, rounds: u32, random: &mut Random) -> Result<Counts, String> {
    let ranks = 2 + random.below(7) as u32;
    let (seed, latest_us) = (random.below(1 << 30), 300 + random.below(LATEST_US));
    let mut command = mend_tests::program::mpiexec(ranks, LIMIT);
    command.arg(mend_tests::program::death_program(program));
    command.args([rounds.to_string(), seed.to_string(), latest_us.to_string()]);
    let ended = WatchedCommand::new(command, LIMIT).run();
    outcome(&ended)
        .map_err(|what| format!("{ranks} ranks, seed {seed}, {latest_us} us: {what}: {}", ended.report()))
}

fn outcome(ended: &Ended) -> Result<Counts, &'static str> {
    if !ended.left_behind.is_empty() {
        return Err("somebody is left behind");
    }
    let Some(status) = ended.status else { return Err("HANG") };
    match status.code() {
        Some(0) => {}
        // A rank that has left MPI has not failed: its end by a signal counts.
        Some(137) if ended.stderr.contains("E-JOB-004") => {}
        _ => return Err("the exit code"),
    }
    let line = ended.stdout.lines().find_map(|line| line.strip_prefix("no errors: "));
    let mut numbers = line.ok_or("rank 0 printed no result")?.split(' ').filter_map(|word| word.parse().ok());
    let (deaths, repairs) = numbers.next().zip(numbers.next()).ok_or("rank 0 printed no counts")?;
    Ok(Counts { deaths, repairs })
}

const FAILURES_MAX: usize = 10;
const LATEST_US: u64 = 20_000;
const LIMIT: Duration = Duration::from_secs(60);
