// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many jobs, one seed each: which program, how many ranks, everything follows from the seed.

use crate::killer::Killer;
use crate::network::{Liar, Trouble};
use crate::{Cluster, Summary, programs};
use mend_base::{Random, arms};
use mend_daemon::{Counting, Rules};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What many runs came to.
#[derive(Debug, Default)]
pub struct Tally {
    /// How many jobs ran, by program.
    pub jobs: BTreeMap<&'static str, u64>,
    /// Together.
    pub total: Summary,
    /// The arms of the state machines that were reached, where the feature `arms` is on.
    pub arms: BTreeMap<&'static str, u64>,
}

/// One job that went wrong.
#[derive(Debug)]
pub struct Failure {
    /// Replay it with this.
    pub seed: u64,
    /// Which program.
    pub program: &'static str,
    /// How many ranks.
    pub size: u32,
    /// What was found.
    pub what: String,
}

/// Runs the job of one seed.
pub fn run_seed(seed: u64, trace: bool) -> Result<(&'static str, Summary), Failure> {
    let mut random = Random(seed);
    let all = programs::all();
    let (name, program) = all[random.below(all.len() as u64) as usize].clone();
    let size = draw_size(&mut random);
    let mut cluster = Cluster::new(random.bits(), size, program);
    // False evidence is survived by every program, without a trace; a refused connection only by one that expects it.
    let evidence_once_in = if random.once_in(4) { 20 + random.below(200) } else { 0 };
    let refusal_once_in = if name == "refused" { 2 + random.below(8) } else { 0 };
    let liar = (name == "hostile")
        .then(|| Liar { number: random.below(size.into()) as u32, once_in: 1 + random.below(30) });
    cluster.trouble(Trouble { evidence_once_in, refusal_once_in, liar, witness_once_in: 0 });
    run(cluster, seed, name, size, trace)
}

/// Runs the job of one seed, in which ranks die: which, when and who is told how, everything follows from the seed.
pub fn run_deaths(seed: u64, trace: bool) -> Result<(&'static str, Summary), Failure> {
    let mut random = Random(seed);
    let size = 2 + random.below(5) as u32;
    let (name, program) = ("deaths", programs::deaths());
    let mut cluster = Cluster::new(random.bits(), size, program);
    let killer = Killer::draw(&mut random, size);
    let muted = random.once_in(8);
    let rules = Rules {
        fault_tolerant: !random.once_in(6),
        counting: if random.once_in(3) { Counting::Worst } else { Counting::Survivors },
        reports_deaths: random.once_in(3),
        muted,
    };
    cluster.deaths(killer, rules);
    let evidence_once_in = if random.once_in(4) { 20 + random.below(200) } else { 0 };
    let witness_once_in = if muted || random.once_in(3) { 1 + random.below(20) } else { 0 };
    cluster.trouble(Trouble { evidence_once_in, witness_once_in, ..Trouble::default() });
    if random.once_in(6) {
        cluster.freezes(50 + random.below(500));
    }
    if random.once_in(2) {
        cluster.sleeps();
    }
    run(cluster, seed, name, size, trace)
}

/// Runs the job of one seed, in which one call waits while a rank dies, or all others leave.
pub fn run_waits(seed: u64, trace: bool) -> Result<(&'static str, Summary), Failure> {
    let mut random = Random(seed);
    let size = 3 + random.below(3) as u32;
    let mut cluster = Cluster::new(random.bits(), size, programs::waits());
    cluster.deaths(Killer::new(size, Vec::new()), Rules::default());
    let evidence_once_in = if random.once_in(4) { 20 + random.below(200) } else { 0 };
    cluster.trouble(Trouble { evidence_once_in, ..Trouble::default() });
    if random.once_in(2) {
        cluster.sleeps();
    }
    run(cluster, seed, "waits", size, trace)
}

fn run(
    mut cluster: Cluster,
    seed: u64,
    program: &'static str,
    size: u32,
    trace: bool,
) -> Result<(&'static str, Summary), Failure> {
    if trace {
        cluster.trace();
    }
    let failure = |what| Failure { seed, program, size, what };
    match catch_unwind(AssertUnwindSafe(|| cluster.run())) {
        Ok(Ok(summary)) => Ok((program, summary)),
        Ok(Err(report)) => Err(failure(report)),
        Err(panic) => Err(failure(words(&*panic))),
    }
}

/// Runs jobs from `first` on until in `count` of them somebody has died, or one goes wrong.
pub fn run_until_deaths(first: u64, count: u64) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    drop(arms::take());
    let mut with_deaths = 0;
    for seed in first.. {
        if with_deaths == count {
            break;
        }
        let (name, summary) = run_deaths(seed, false)?;
        with_deaths += u64::from(summary.deaths > 0);
        tally.add(name, summary);
    }
    tally.arms = arms::take();
    Ok(tally)
}

/// Runs one seed.
pub type RunSeed = fn(u64, bool) -> Result<(&'static str, Summary), Failure>;

/// Runs the jobs of `seeds`, up to the first that goes wrong.
pub fn run_seeds(run: RunSeed, seeds: impl Iterator<Item = u64>) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    drop(arms::take());
    for seed in seeds {
        let (name, summary) = run(seed, false)?;
        tally.add(name, summary);
    }
    tally.arms = arms::take();
    Ok(tally)
}

/// Runs the jobs of `seeds`, and goes on after one that goes wrong: what was found, without its numbers, how often, and the
/// first such seed. For faults that are planted by hand, and for a first look at one that was not.
pub fn count_failures(
    seeds: impl Iterator<Item = u64>,
    run: impl Fn(u64, bool) -> Result<(&'static str, Summary), Failure>,
) -> BTreeMap<String, (u64, u64)> {
    std::panic::set_hook(Box::new(|_| {}));
    let mut found = BTreeMap::new();
    for seed in seeds {
        if let Err(failure) = run(seed, false) {
            // A report of a hang says what it is behind the seed.
            let line = failure.what.lines().next().unwrap_or_default();
            let words =
                line.rsplit_once(": ").filter(|_| line.starts_with("seed ")).map_or(line, |(_, why)| why);
            let words: String = words.chars().filter(|each| !each.is_ascii_digit()).take(100).collect();
            found.entry(words).or_insert((0, seed)).0 += 1;
        }
    }
    found
}

/// Mostly small jobs, in which schedules collide most; a few large ones.
fn draw_size(random: &mut Random) -> u32 {
    if random.once_in(500) { 64 } else { 2 + random.below(7) as u32 }
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words").to_owned()
}

impl Tally {
    fn add(&mut self, name: &'static str, summary: Summary) {
        *self.jobs.entry(name).or_default() += 1;
        self.total.steps += summary.steps;
        self.total.delivered += summary.delivered;
        self.total.deaths += summary.deaths;
        self.total.requests += summary.requests;
    }

    /// The programs, and the arms they reached, as a table.
    pub fn table(&self) -> String {
        let mut lines = vec![format!(
            "{} steps, {} messages, {} requests, {} deaths",
            self.total.steps, self.total.delivered, self.total.requests, self.total.deaths
        )];
        lines.extend(self.jobs.iter().map(|(name, count)| format!("{count:10}  jobs of {name}")));
        lines.extend(self.arms.iter().map(|(arm, count)| format!("{count:10}  {arm}")));
        lines.join("\n")
    }
}
