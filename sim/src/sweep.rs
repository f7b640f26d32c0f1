// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A death at every point of every blocking call: for each call, each number of ranks up to five and each victim, a job for each
//! call that the victim's engine makes to transports and runtime, at which the victim dies, from its first MPI call to the end of its
//! MPI_Finalize. The survivors must return, repair the communicator, and use the new one.

use crate::history::{Creation, Disturbances, History, Repair, Round, Step, Use, WaitMode};
use crate::killer::{Manner, Milestone, PlannedDeath, When};
use crate::recoveries::{Failure, run};
use mend_daemon::Ending;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A blocking call, or one that is started and waited for.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is called.
    pub name: &'static str,
    /// As which a rank program names the call that blocks.
    call: &'static str,
    step: Option<Step>,
    repair: Repair,
}

/// The numbers of ranks.
pub const SIZES: core::ops::RangeInclusive<u32> = 2..=5;

/// What the jobs of one case have shown.
#[derive(Debug, Default)]
pub struct Row {
    /// At how many points a victim has died, by number of ranks.
    pub points: BTreeMap<u32, u64>,
    /// How many of these were within the call itself.
    pub within: u64,
    /// The jobs that failed.
    pub failures: Vec<(History, Failure)>,
}

/// Every blocking call of the working API.
pub fn cases() -> Vec<Case> {
    let step = |name, call, step| Case { name, call, step: Some(step), repair: Repair::default() };
    let create = |name, call, creation| step(name, call, Step::Create(creation, Use::Barrier));
    let used = |name, call, used| step(name, call, Step::Create(Creation::Dup, used));
    let repair = |name, call, repair| Case { name, call, step: None, repair };
    let plain = Repair::default();
    vec![
        step("MPI_Send, MPI_Recv, small", "MPI_Recv", Step::Chain(16)),
        step("MPI_Send, MPI_Recv, large", "MPI_Send", Step::Chain(20_000)),
        step("MPI_Ssend", "MPI_Ssend", Step::Ssend(300)),
        step("MPI_Sendrecv", "MPI_Sendrecv", Step::Ring(6_000)),
        step("MPI_Recv from any source", "MPI_Recv", Step::AnySource(0)),
        step("MPI_Probe for any source", "MPI_Probe", Step::Probe(1)),
        step("MPI_Waitall", "MPI_Waitall", Step::Wait(WaitMode::All)),
        step("MPI_Waitany", "MPI_Waitany", Step::Wait(WaitMode::Any)),
        step("MPI_Waitsome", "MPI_Waitsome", Step::Wait(WaitMode::Some)),
        step("MPI_Barrier", "MPI_Barrier", Step::Exactly(0)),
        step("MPI_Bcast", "MPI_Bcast", Step::Exactly(1)),
        step("MPI_Reduce", "MPI_Reduce", Step::Exactly(2)),
        step("MPI_Allreduce", "MPI_Allreduce", Step::Exactly(3)),
        step("MPI_Gather", "MPI_Gather", Step::Exactly(4)),
        step("MPI_Scatter", "MPI_Scatter", Step::Exactly(5)),
        step("MPI_Allgather", "MPI_Allgather", Step::Exactly(6)),
        step("MPI_Alltoall", "MPI_Alltoall", Step::Exactly(7)),
        create("MPI_Comm_dup", "MPI_Comm_dup", Creation::Dup),
        create("MPI_Comm_dup_with_info", "MPI_Comm_dup_with_info", Creation::DupWithInfo),
        create("MPI_Comm_idup, MPI_Wait", "MPI_Wait", Creation::Idup),
        create("MPI_Comm_split", "MPI_Comm_split", Creation::Split),
        create("MPI_Comm_create", "MPI_Comm_create", Creation::Create),
        create("MPI_Comm_create_group", "MPI_Comm_create_group", Creation::CreateGroup),
        used("MPI_Wait on a freed communicator", "MPI_Wait", Use::RingFreed),
        used("MPI_Comm_disconnect", "MPI_Comm_disconnect", Use::Disconnect),
        repair("MPIX_Comm_agree", "MPIX_Comm_agree", plain),
        repair("MPIX_Comm_agree, uniform", "MPIX_Comm_agree", Repair { uniform: true, ..plain }),
        repair("MPIX_Comm_iagree, MPI_Wait", "MPI_Wait", Repair { agrees_meanwhile: true, ..plain }),
        repair(
            "MPIX_Comm_agree_failed",
            "MPIX_Comm_agree_failed",
            Repair { agrees_on_failed: true, ..plain },
        ),
        repair("MPIX_Comm_shrink", "MPIX_Comm_shrink", Repair { shrinks_always: true, ..plain }),
        repair(
            "MPIX_Comm_ishrink, MPI_Wait",
            "MPIX_Comm_ishrink",
            Repair { shrinks_always: true, shrinks_twice: true, ..plain },
        ),
    ]
}

impl Case {
    /// The job in which `victim` dies after so many calls of its engine.
    fn history(&self, size: u32, victim: u32, calls: u64) -> History {
        let manner = Manner::Ends(Ending::Signalled(9));
        let when = When::Call(Milestone::Ready, calls);
        History {
            schedule: u64::from(size) << 8 | u64::from(victim),
            size,
            rounds: vec![Round { steps: self.step.into_iter().collect(), repair: self.repair }],
            deaths: vec![PlannedDeath { number: victim, manner, when, calls_while_dying: 0 }],
            calls_min: 0,
            waits_for_deaths: false,
            disturbances: Disturbances::default(),
        }
    }

    /// Every `stride`-th point of one victim.
    fn sweep(&self, size: u32, victim: u32, stride: u64) -> Row {
        let mut row = Row::default();
        for calls in (victim.into()..).step_by(stride.max(1) as usize) {
            let history = self.history(size, victim, calls);
            match run(&history, false) {
                // It has left MPI before.
                Ok(tally) if tally.total.deaths == 0 => break,
                Ok(tally) => {
                    *row.points.entry(size).or_default() += 1;
                    row.within += u64::from(tally.deaths.keys().any(|(call, _)| *call == self.call));
                }
                Err(failure) => row.failures.push((history, failure)),
            }
        }
        row
    }
}

/// Every `stride`-th point of all cases, on all processors, in the order of [`cases`].
pub fn sweep(stride: u64) -> Vec<(&'static str, Row)> {
    let cases = cases();
    let all: Vec<(usize, u32, u32)> = (0..cases.len())
        .flat_map(|case| SIZES.flat_map(move |size| (0..size).map(move |victim| (case, size, victim))))
        .collect();
    let rows: Vec<_> = cases.iter().map(|case| (case.name, Row::default())).collect();
    let (rows, next) = (Mutex::new(rows), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(&(case, size, victim)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let row = cases[case].sweep(size, victim, stride);
                    let mut rows = rows.lock().expect("no thread panics while it holds the lock");
                    rows[case].1.add(row);
                }
            });
        }
    });
    rows.into_inner().expect("no thread panics while it holds the lock")
}

impl Row {
    fn add(&mut self, other: Row) {
        other.points.iter().for_each(|(size, points)| *self.points.entry(*size).or_default() += points);
        self.within += other.within;
        self.failures.extend(other.failures);
    }

    /// Whether no point was tried for some number of ranks, or none within the call.
    pub fn has_hole(&self) -> bool {
        self.within == 0
            || SIZES.into_iter().any(|size| self.points.get(&size).is_none_or(|points| *points == 0))
    }
}

/// The rows as a table.
pub fn table(rows: &[(&'static str, Row)]) -> String {
    let mut lines = vec![format!(
        "{:>34} {:>9} {:>9} {:>9} {:>9} {:>11} {:>7}",
        "points at which a rank died, of",
        "2 ranks",
        "3 ranks",
        "4 ranks",
        "5 ranks",
        "in the call",
        "failed"
    )];
    for (name, row) in rows {
        let points = SIZES.map(|size| format!("{:>9}", row.points.get(&size).unwrap_or(&0)));
        let points = points.collect::<Vec<_>>().join(" ");
        lines.push(format!("{name:>34} {points} {:>11} {:>7}", row.within, row.failures.len()));
    }
    lines.join("\n")
}
