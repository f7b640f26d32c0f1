// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Jobs whose ranks, or whose mpiexec, are killed at random moments: the living ranks end with success, and nothing is left behind.
//! 50 jobs in the suite, `MENDTEST_JOBS` of them in `cargo soak kills`.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use mend_base::Random;
use mend_tests::watched_command::{Ended, Running, WatchedCommand};
use mend_tests::{chance, program, say, signal};

/// Which processes are killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Victim {
    One,
    Several,
    All,
    Mpiexec,
}

// Row CN8, Row CN9, Row CO12, Row LC1: for any victims and moments.
#[test]
fn jobs_killed_at_random_moments_leave_nothing_behind() {
    let jobs = chance::number("MENDTEST_JOBS").unwrap_or(50);
    let mut random = chance::drawn();
    let before = Traces::now();
    assert!(before.descriptors >= 3, "/proc does not show our descriptors");
    let begun = Instant::now();
    let mut counts = [0; 4];
    let mut failures = Vec::new();
    for job in 0..jobs {
        let victim = [Victim::One, Victim::Several, Victim::All, Victim::Mpiexec][random.below(4) as usize];
        counts[victim as usize] += 1;
        if let Err(why) = one_job(victim, &mut random) {
            failures.push(format!("job {job}, {victim:?}: {why}"));
        }
    }
    let after = Traces::now();
    let [one, several, all, mpiexec] = counts;
    say(&format!(
        "figure: {jobs} jobs killed: one rank {one}, several {several}, all {all}, mpiexec {mpiexec}; {} wrong, {:.1} s",
        failures.len(),
        begun.elapsed().as_secs_f64()
    ));
    say(&format!("checks: {} passed, {} failed", jobs as usize - failures.len(), failures.len()));
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    assert_eq!(after.new_since(&before), [""; 0]);
    assert!(
        after.descriptors <= before.descriptors,
        "{} descriptors, then {}",
        before.descriptors,
        after.descriptors
    );
}

fn one_job(victim: Victim, random: &mut Random) -> Result<(), String> {
    let ranks = 2 + random.below(5) as u32;
    let mut command = program::mpiexec(ranks, LIMIT);
    command.arg(program::death_program("kills.c")).arg(ROUNDS);
    let job = WatchedCommand::new(command, LIMIT).start(|_| {});
    let moment = chance::span(random, LATEST);
    // Sleeps: the random moment of the kill is what is tested; there is no event to wait for.
    std::thread::sleep(moment);
    let killed = kill_victims(&job, victim, random);
    let ended = job.end();
    match outcome(victim, ranks, killed, &ended) {
        Ok(()) => Ok(()),
        Err(what) => {
            Err(format!("{killed} of {ranks} ranks killed after {moment:?}: {what}: {}", ended.report()))
        }
    }
}

/// Kills the victims; returns how many ranks were killed.
fn kill_victims(job: &Running, victim: Victim, random: &mut Random) -> usize {
    if victim == Victim::Mpiexec {
        // The job may be over already.
        let _ = signal::send(job.first(), signal::KILL);
        return 0;
    }
    let mut pids = job.processes("kills");
    let number = match victim {
        Victim::One => 1,
        Victim::Several => 1 + random.below(pids.len().max(1) as u64) as usize,
        _ => pids.len(),
    };
    while pids.len() > number {
        pids.swap_remove(random.below(pids.len() as u64) as usize);
    }
    pids.into_iter().filter(|&pid| signal::send(pid, signal::KILL).is_ok()).count()
}

fn outcome(victim: Victim, ranks: u32, killed: usize, ended: &Ended) -> Result<(), &'static str> {
    if !ended.left_behind.is_empty() {
        return Err("somebody is left behind");
    }
    let Some(status) = ended.status else { return Err("HANG") };
    if victim == Victim::Mpiexec {
        return Ok(());
    }
    match status.code() {
        // A zombie that is killed counts as killed here, but not for mpiexec.
        Some(0) if ended.stderr.is_empty() => Ok(()),
        Some(0) => Err("a death that the program survives prints nothing"),
        Some(137) if killed == ranks as usize => Ok(()),
        // A rank that has left MPI has not failed: its end by a signal counts.
        Some(137) if ended.stderr.contains("E-JOB-004") => Ok(()),
        _ => Err("the exit code"),
    }
}

/// Things that a job could leave behind, besides processes.
struct Traces {
    names: BTreeSet<String>,
    descriptors: usize,
}

impl Traces {
    fn now() -> Traces {
        let names = ["/dev/shm", "/tmp"].into_iter().flat_map(|folder| {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(move |entry| format!("{folder}/{}", entry.file_name().to_string_lossy()))
        });
        Traces {
            names: names.collect(),
            descriptors: std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
        }
    }

    /// Other programs use these folders too; files of jobs have our name in theirs. Tests use other folders
    /// ([`mend_tests::Scratch`]).
    fn new_since(&self, before: &Traces) -> Vec<String> {
        let new = self.names.difference(&before.names).filter(|name| name.contains("mend"));
        new.filter(|name| stays(Path::new(name))).cloned().collect()
    }
}

/// Whether it is a file that is still there after a while: another job's benchmark has one for a moment.
fn stays(name: &Path) -> bool {
    let begun = Instant::now();
    let is_there = || name.symlink_metadata().is_ok_and(|data| !data.is_dir());
    while is_there() && begun.elapsed() < FOR_A_MOMENT {
        // Sleeps: between two looks at a folder of the whole machine.
        std::thread::sleep(Duration::from_millis(50));
    }
    is_there()
}

const FOR_A_MOMENT: Duration = Duration::from_secs(10);
/// Some 0.3 s.
const ROUNDS: &str = "1500";
const LATEST: Duration = Duration::from_millis(400);
const LIMIT: Duration = Duration::from_secs(60);
