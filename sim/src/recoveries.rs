// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Jobs of recoveries ([`crate::programs::recovery`]): one for each seed, run and counted; and a failing [`History`] is made shorter.

use crate::history::History;
use crate::killer::{Killer, Point};
use crate::network::Faults;
use crate::{Cluster, Summary, programs};
use mend_base::branches;
use mend_daemon::{Muted, Rules};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How a job has failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Which promise was broken.
    pub kind: Kind,
    /// The message of the panic, or the report of the hang.
    pub what: String,
}

/// Which promise was broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// An oracle has found a wrong result.
    Correctness,
    /// A living process waits for ever.
    Liveness,
    /// The production code has panicked.
    Crash,
}

impl Kind {
    /// The exit code of a program that reports it.
    pub const fn exit_code(self) -> u8 {
        match self {
            Kind::Correctness => 10,
            Kind::Liveness => 11,
            Kind::Crash => 12,
        }
    }
}

impl Failure {
    /// The same for failures that look alike: the first line without its numbers; of a hang, where living ranks are.
    pub fn signature(&self) -> String {
        let without_numbers =
            |text: &str| text.chars().filter(|each| !each.is_ascii_digit()).collect::<String>();
        let line = without_numbers(self.what.lines().next().unwrap_or_default());
        let places = self.what.lines().filter_map(|line| line.trim_start().strip_prefix("rank "));
        let living =
            places.filter(|place| !["killed", "fenced", "ended"].iter().any(|end| place.contains(end)));
        let places: BTreeSet<String> = living.map(without_numbers).collect();
        let words: String = line.chars().take(120).collect();
        format!("{:?}: {words} {}", self.kind, places.into_iter().collect::<Vec<_>>().join(";"))
    }
}

/// The counters of many jobs.
#[derive(Debug, Default)]
pub struct Tally {
    /// Jobs in which a process has died.
    pub jobs_with_deaths: u64,
    /// All jobs.
    pub jobs: u64,
    /// The sums over all jobs.
    pub total: Summary,
    /// How often each MPI call was begun.
    pub calls: BTreeMap<&'static str, u64>,
    /// How often processes died at each point of each call.
    pub deaths: BTreeMap<(&'static str, Point), u64>,
    /// How often each named branch of the code was reached. Empty in a build without the feature `branches`.
    pub branches: BTreeMap<&'static str, u64>,
}

/// Runs the job of a history. `trace` prints its steps.
pub fn run(history: &History, trace: bool) -> Result<Tally, Failure> {
    drop(branches::take());
    let shared = Rc::new(history.clone());
    let mut cluster = Cluster::new(history.schedule, history.size, programs::recovery::of(&shared));
    let muted = if history.disturbances.muted { Muted::Unasked } else { Muted::None };
    cluster.plan_deaths(
        Killer::new(history.size, history.deaths.clone()),
        Rules { fault_tolerant: true, muted, ..Rules::default() },
    );
    disturb(&mut cluster, history);
    if trace {
        cluster.trace();
    }
    let record = cluster.record();
    IS_RUNNING.set(true);
    let ran = catch_unwind(AssertUnwindSafe(|| cluster.run()));
    IS_RUNNING.set(false);
    let kind = || {
        LAST_PANIC
            .with_borrow(|place| if place.starts_with("sim/") { Kind::Correctness } else { Kind::Crash })
    };
    let total = match ran {
        Ok(Ok(summary)) => summary,
        Ok(Err(what)) => return Err(Failure { kind: Kind::Liveness, what }),
        Err(panic) => {
            // The engines of the job may be in any state: they are not dropped.
            std::mem::forget(cluster);
            let what = format!("{} ({})", message(&*panic), LAST_PANIC.with_borrow(String::clone));
            return Err(Failure { kind: kind(), what });
        }
    };
    let record = record.borrow();
    Ok(Tally {
        jobs_with_deaths: u64::from(total.deaths > 0),
        jobs: 1,
        total,
        calls: record.calls.clone(),
        deaths: record.deaths.clone(),
        branches: branches::take(),
    })
}

fn disturb(cluster: &mut Cluster, history: &History) {
    let all = history.disturbances;
    cluster.inject(Faults {
        false_evidence_once_in: all.false_evidence_once_in,
        true_evidence_once_in: all.true_evidence_once_in,
        slow_pairs: all.slow_pairs,
        one_queue: all.one_queue,
        ..Faults::default()
    });
    cluster.launcher().borrow_mut().late_notices = all.late_notices;
    if all.stop_once_in > 0 {
        cluster.stop_processes(all.stop_once_in);
    }
    if all.sleeps {
        cluster.let_processes_sleep();
    }
}

thread_local! {
    /// File and line of the last panic of this thread.
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
    static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Panics of jobs are remembered with their place and not printed: [`run`] reports them. To be called once.
pub fn report_panics() {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !IS_RUNNING.get() {
            return others(info);
        }
        let place = info.location().map(|location| format!("{}:{}", location.file(), location.line()));
        LAST_PANIC.set(place.unwrap_or_default());
    }));
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").to_owned()
}

/// What the jobs of many seeds have shown.
#[derive(Debug, Default)]
pub struct Report {
    /// The counters of the jobs that passed.
    pub tally: Tally,
    /// The failures by signature: how many, and the first with its seed.
    pub failures: BTreeMap<String, (u64, u64, Failure)>,
}

/// Runs the jobs of `count` seeds from `first` on, on all processors. After a failure no more jobs are begun, unless `goes_on`.
pub fn run_all(first: u64, count: u64, history: impl Fn(u64) -> History + Sync, goes_on: bool) -> Report {
    let (next, stops, all) = (AtomicU64::new(0), AtomicBool::new(false), Mutex::new(Report::default()));
    let work = || {
        let mut tally = Tally::default();
        loop {
            // Which thread runs which seed does not matter; what the threads found is behind the mutex.
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count || stops.load(Ordering::Relaxed) {
                return tally;
            }
            let seed = first.wrapping_add(number);
            match run(&history(seed), false) {
                Ok(one) => tally.add(&one),
                Err(failure) => {
                    stops.store(!goes_on, Ordering::Relaxed);
                    let mut all = all.lock().expect(NO_PANIC);
                    let known = all.failures.entry(failure.signature()).or_insert((0, seed, failure));
                    known.0 += 1;
                }
            }
        }
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                let tally = work();
                all.lock().expect(NO_PANIC).tally.add(&tally);
            });
        }
    });
    all.into_inner().expect(NO_PANIC)
}

const NO_PANIC: &str = "no thread panics while it holds the lock";

/// Makes a failing history shorter as long as it fails in the same way. Each shorter one is tried with a few schedules. Returns the
/// shortest, with its failure and the number of jobs that were run.
pub fn shorten(history: &History, failure: Failure) -> (History, Failure, u64) {
    let signature = failure.signature();
    let (mut shortest, mut jobs) = ((history.clone(), failure), 0);
    'again: loop {
        for candidate in shortest.0.shorter() {
            for schedule in (0..SCHEDULES).map(|each| shortest.0.schedule.wrapping_add(each)) {
                let tried = History { schedule, ..candidate.clone() };
                jobs += 1;
                match run(&tried, false) {
                    Err(failure) if failure.signature() == signature => {
                        shortest = (tried, failure);
                        continue 'again;
                    }
                    _ => {}
                }
            }
        }
        return (shortest.0, shortest.1, jobs);
    }
}

/// How many schedules of a shorter history are tried.
const SCHEDULES: u64 = 20;

impl Tally {
    /// Adds the counters of another tally.
    pub fn add(&mut self, other: &Tally) {
        self.jobs += other.jobs;
        self.jobs_with_deaths += other.jobs_with_deaths;
        self.total.steps += other.total.steps;
        self.total.delivered += other.total.delivered;
        self.total.deaths += other.total.deaths;
        self.total.requests += other.total.requests;
        add(&mut self.calls, &other.calls);
        add(&mut self.deaths, &other.deaths);
        add(&mut self.branches, &other.branches);
    }
}

fn add<K: Ord + Copy>(all: &mut BTreeMap<K, u64>, more: &BTreeMap<K, u64>) {
    more.iter().for_each(|(key, count)| *all.entry(*key).or_default() += count);
}

impl core::fmt::Display for Tally {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Summary { steps, delivered, deaths, requests, .. } = self.total;
        writeln!(
            f,
            "{} jobs, {} of them with deaths: {deaths} deaths, {steps} steps, {delivered} messages, {requests} requests",
            self.jobs, self.jobs_with_deaths
        )?;
        writeln!(f, "\nMPI calls, and deaths within them, by what the engine did:")?;
        write!(f, "{:>26} {:>10}", "", "calls")?;
        Point::ALL.iter().try_for_each(|point| write!(f, " {:>12}", format!("{point:?}")))?;
        writeln!(f)?;
        let mut names: Vec<&str> = self.calls.keys().copied().collect();
        names.extend(self.deaths.keys().map(|(name, _)| *name).filter(|name| !self.calls.contains_key(name)));
        names.dedup();
        for name in names {
            write!(f, "{name:>26} {:>10}", self.calls.get(name).unwrap_or(&0))?;
            for point in Point::ALL {
                write!(f, " {:>12}", self.deaths.get(&(name, point)).unwrap_or(&0))?;
            }
            writeln!(f)?;
        }
        writeln!(f, "\nbranches of the code:")?;
        self.branches.iter().try_for_each(|(branch, count)| writeln!(f, "{count:>12}  {branch}"))
    }
}
