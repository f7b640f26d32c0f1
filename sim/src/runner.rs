// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The job of one seed, and many seeds in a row. The seed decides the program, the number of ranks, the faults and the deaths.

use crate::killer::{Killer, Manner, Milestone, PlannedDeath, When};
use crate::network::{Faults, GarbageWriter};
use crate::{Cluster, Program, Summary, programs};
use mend_base::{Duration, Random, branches};
use mend_daemon::{Counting, Ending, Muted, Rules};
use mend_proto::detector::{Config, Lease};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The counters of many jobs.
#[derive(Debug, Default)]
pub struct Tally {
    /// The number of jobs of each program.
    pub jobs: BTreeMap<&'static str, u64>,
    /// The sums over all jobs.
    pub total: Summary,
    /// How often each named branch of the code was reached. Empty in a build without the feature `branches`.
    pub branches: BTreeMap<&'static str, u64>,
}

/// A job that failed.
#[derive(Debug)]
pub struct FailedSeed {
    /// The seed with which it can be replayed.
    pub seed: u64,
    /// The name of its program.
    pub program: &'static str,
    /// The number of its ranks.
    pub size: u32,
    /// The message of the panic, or the report of the hang.
    pub what: String,
}

/// Runs the job of one seed without deaths.
pub fn run_seed(seed: u64, trace: bool) -> Result<(&'static str, Summary), FailedSeed> {
    let mut random = Random(seed);
    let all = programs::all();
    let (name, program) = all[random.below(all.len() as u64) as usize].clone();
    let size = draw_size(&mut random);
    let mut cluster = Cluster::new(random.bits(), size, program);
    // False evidence must change no result of any program. A refused connection does: only one program expects it.
    let false_evidence_once_in = if random.once_in(4) { 20 + random.below(200) } else { 0 };
    let refusal_once_in = if name == "refused" { 2 + random.below(8) } else { 0 };
    let garbage_writer = (name == "garbage")
        .then(|| GarbageWriter { number: random.below(size.into()) as u32, once_in: 1 + random.below(30) });
    cluster.inject(Faults { false_evidence_once_in, refusal_once_in, garbage_writer, ..Faults::default() });
    run(cluster, seed, name, size, trace)
}

/// Runs the job of one seed in which ranks may die.
pub fn run_deaths(seed: u64, trace: bool) -> Result<(&'static str, Summary), FailedSeed> {
    let mut random = Random(seed);
    let size = 2 + random.below(5) as u32;
    run(with_deaths(random, size, programs::deaths(), true), seed, "deaths", size, trace)
}

/// Runs the job of one seed in which ranks connect by intercommunicators, and may die.
pub fn run_inter(seed: u64, trace: bool) -> Result<(&'static str, Summary), FailedSeed> {
    let mut random = Random(seed);
    let size = 2 + random.below(6) as u32;
    run(with_deaths(random, size, programs::inter(), false), seed, "inter", size, trace)
}

/// A job whose deaths and faults are drawn. `any_rules`: notices of deaths may be lost, and the first
/// death may end the job.
fn with_deaths(mut random: Random, size: u32, program: Program, any_rules: bool) -> Cluster {
    let mut cluster = Cluster::new(random.bits(), size, program);
    let killer = Killer::draw(&mut random, size);
    let muted = random.once_in(8) && any_rules;
    let rules = Rules {
        fault_tolerant: !random.once_in(6) || !any_rules,
        counting: if random.once_in(3) { Counting::Worst } else { Counting::NotFailed },
        reports_deaths: random.once_in(3),
        reports_transports: false,
        muted: if muted { Muted::Unasked } else { Muted::None },
    };
    cluster.plan_deaths(killer, rules);
    let false_evidence_once_in = if random.once_in(4) { 20 + random.below(200) } else { 0 };
    let true_evidence_once_in = if muted || random.once_in(3) { 1 + random.below(20) } else { 0 };
    cluster.inject(Faults { false_evidence_once_in, true_evidence_once_in, ..Faults::default() });
    if random.once_in(6) {
        cluster.stop_processes(50 + random.below(500));
    }
    if random.once_in(2) {
        cluster.let_processes_sleep();
    }
    cluster
}

/// Runs the job of one seed in which allocations fail. Ranks end before their time only where members that cannot reach each other
/// agree.
pub fn run_no_memory(seed: u64, trace: bool) -> Result<(&'static str, Summary), FailedSeed> {
    let mut random = Random(seed);
    let size = 2 + random.below(5) as u32;
    let agrees = random.once_in(2);
    let program = if agrees { programs::no_memory_and_agreements() } else { programs::no_memory() };
    let mut cluster = Cluster::new(random.bits(), size, program);
    cluster.plan_deaths(Killer::new(size, Vec::new()), Rules::default());
    let once_in = [2, 5, 20, 100][random.below(4) as usize];
    cluster.fail_allocations(once_in);
    if random.once_in(2) {
        cluster.let_processes_sleep();
    }
    let (name, summary) = run(cluster, seed, "no memory", size, trace)?;
    if summary.deaths > 0 && !agrees {
        let what = format!("{} ranks were ended, and none agreed", summary.deaths);
        return Err(FailedSeed { seed, program: name, size, what });
    }
    Ok((name, summary))
}

/// Runs the job of one seed in which communicators are created, allocations fail, and ranks may die.
pub fn run_no_memory_creations(seed: u64, trace: bool) -> Result<(&'static str, Summary), FailedSeed> {
    let mut random = Random(seed);
    let size = 2 + random.below(7) as u32;
    let mut cluster = Cluster::new(random.bits(), size, programs::no_memory_and_creations());
    let killer =
        if random.once_in(2) { Killer::draw(&mut random, size) } else { Killer::new(size, Vec::new()) };
    cluster.plan_deaths(killer, Rules::default());
    cluster.fail_allocations([2, 5, 20, 100][random.below(4) as usize]);
    // A member that has no memory for an announcement in a stream votes on nothing, and the one above it in the tree is not told.
    cluster.send_eagerly(16);
    if random.once_in(2) {
        cluster.let_processes_sleep();
    }
    run(cluster, seed, "no memory, creations", size, trace)
}

/// Runs the job of one seed in which one call waits while a rank dies, or while all other ranks finalize.
pub fn run_waits(seed: u64, trace: bool) -> Result<(&'static str, Summary), FailedSeed> {
    let mut random = Random(seed);
    let size = 3 + random.below(3) as u32;
    let mut cluster = Cluster::new(random.bits(), size, programs::waits());
    cluster.plan_deaths(Killer::new(size, Vec::new()), Rules::default());
    let false_evidence_once_in = if random.once_in(4) { 20 + random.below(200) } else { 0 };
    cluster.inject(Faults { false_evidence_once_in, ..Faults::default() });
    if random.once_in(2) {
        cluster.let_processes_sleep();
    }
    run(cluster, seed, "waits", size, trace)
}

/// Runs the job of one seed in which recoveries wait for each other, and ranks may die.
pub fn run_crossed(seed: u64, trace: bool) -> Result<(&'static str, Summary), FailedSeed> {
    let mut random = Random(seed);
    let size = 2 + random.below(5) as u32;
    let mut cluster = Cluster::new(random.bits(), size, programs::crossed());
    let killer =
        if random.once_in(2) { Killer::draw(&mut random, size) } else { Killer::new(size, Vec::new()) };
    cluster.plan_deaths(killer, Rules::default());
    let false_evidence_once_in = if random.once_in(4) { 20 + random.below(200) } else { 0 };
    cluster.inject(Faults { false_evidence_once_in, ..Faults::default() });
    if random.once_in(6) {
        cluster.stop_processes(50 + random.below(500));
    }
    if random.once_in(2) {
        cluster.let_processes_sleep();
    }
    cluster.let_processes_look();
    run(cluster, seed, "crossed", size, trace)
}

/// Runs the job of one seed in which the ranks find failures by themselves, without the launcher: up to two die, and some are stopped for a
/// while, perhaps for longer than their lease.
pub fn run_detector(seed: u64, trace: bool) -> Result<(&'static str, Summary), FailedSeed> {
    let mut random = Random(seed);
    let size = 3 + random.below(6) as u32;
    let mut cluster = Cluster::new(random.bits(), size, programs::detector());
    let deaths = random.below(3).min(u64::from(size) - 2);
    let mut numbers: Vec<u32> = (0..size).collect();
    let planned = (0..deaths).map(|_| {
        let number = numbers.swap_remove(random.below(numbers.len() as u64) as usize);
        let digits = random.below(12);
        let when = When::Call(Milestone::Ready, random.below(1 << digits));
        let manner = Manner::Ends(Ending::Signalled(9));
        PlannedDeath { number, manner, when, calls_while_dying: 0 }
    });
    let killer = Killer::new(size, planned.collect());
    cluster.plan_deaths(killer, Rules { muted: Muted::All, ..Rules::default() });
    let lease = Lease { span: Duration::from_millis(40), margin: Duration::from_millis(20) };
    cluster.detect_failures(Config {
        period: Duration::from_millis(1),
        timeout: Duration::from_millis(10),
        observers: 3,
        lease: Some(lease),
    });
    let false_evidence_once_in = if random.once_in(4) { 200 + random.below(2_000) } else { 0 };
    cluster.inject(Faults { false_evidence_once_in, ..Faults::default() });
    if random.once_in(2) {
        cluster.stop_processes(2_000 + random.below(20_000));
    }
    run(cluster, seed, "detector", size, trace)
}

fn run(
    mut cluster: Cluster,
    seed: u64,
    program: &'static str,
    size: u32,
    trace: bool,
) -> Result<(&'static str, Summary), FailedSeed> {
    if trace {
        cluster.trace();
    }
    let failed = |what| FailedSeed { seed, program, size, what };
    match catch_unwind(AssertUnwindSafe(|| cluster.run())) {
        Ok(Ok(summary)) => Ok((program, summary)),
        Ok(Err(report)) => Err(failed(report)),
        Err(panic) => Err(failed(message(&*panic))),
    }
}

/// Runs the jobs of the seeds from `first` on, until a rank has died in `count` of them, or a job fails.
pub fn run_until_deaths(first: u64, count: u64) -> Result<Tally, FailedSeed> {
    let mut tally = Tally::default();
    drop(branches::take());
    let mut with_deaths = 0;
    for seed in first.. {
        if with_deaths == count {
            break;
        }
        let (name, summary) = run_deaths(seed, false)?;
        with_deaths += u64::from(summary.deaths > 0);
        tally.add(name, summary);
    }
    tally.branches = branches::take();
    Ok(tally)
}

/// A function that runs the job of one seed; `true` prints its steps. It returns the name of the program.
pub type RunSeed = fn(u64, bool) -> Result<(&'static str, Summary), FailedSeed>;

/// Runs the jobs of `seeds`, up to the first that fails.
pub fn run_seeds(run: RunSeed, seeds: impl Iterator<Item = u64>) -> Result<Tally, FailedSeed> {
    let mut tally = Tally::default();
    drop(branches::take());
    for seed in seeds {
        let (name, summary) = run(seed, false)?;
        tally.add(name, summary);
    }
    tally.branches = branches::take();
    Ok(tally)
}

/// Runs the jobs of all `seeds`, those after a failed one too. Returns each kind of error (its message without numbers), how
/// often it occurred, and its first seed. For planted faults.
pub fn count_failed_seeds(seeds: impl Iterator<Item = u64>, run: RunSeed) -> BTreeMap<String, (u64, u64)> {
    std::panic::set_hook(Box::new(|_| {}));
    let mut found = BTreeMap::new();
    for seed in seeds {
        if let Err(failed) = run(seed, false) {
            // The report of a hang begins with the seed and the step.
            let line = failed.what.lines().next().unwrap_or_default();
            let words =
                line.rsplit_once(": ").filter(|_| line.starts_with("seed ")).map_or(line, |(_, why)| why);
            let words: String = words.chars().filter(|each| !each.is_ascii_digit()).take(100).collect();
            found.entry(words).or_insert((0, seed)).0 += 1;
        }
    }
    found
}

/// 2 to 8 ranks, since more interleavings differ in small jobs; in one job of 500, 64 ranks.
fn draw_size(random: &mut Random) -> u32 {
    if random.once_in(500) { 64 } else { 2 + random.below(7) as u32 }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").to_owned()
}

impl Tally {
    fn add(&mut self, name: &'static str, summary: Summary) {
        *self.jobs.entry(name).or_default() += 1;
        self.total.steps += summary.steps;
        self.total.delivered += summary.delivered;
        self.total.deaths += summary.deaths;
        self.total.requests += summary.requests;
        self.total.failed_allocations += summary.failed_allocations;
    }

    /// All counters as a table.
    pub fn table(&self) -> String {
        let mut lines = vec![format!(
            "{} steps, {} messages, {} requests, {} deaths, {} failed allocations",
            self.total.steps,
            self.total.delivered,
            self.total.requests,
            self.total.deaths,
            self.total.failed_allocations
        )];
        lines.extend(self.jobs.iter().map(|(name, count)| format!("{count:10}  jobs of {name}")));
        lines.extend(self.branches.iter().map(|(branch, count)| format!("{count:10}  {branch}")));
        lines.join("\n")
    }
}
