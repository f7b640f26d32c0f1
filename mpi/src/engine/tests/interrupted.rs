// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations in which a member dies end where they need the dead, directly or through others, and nowhere else; poison takes the place of
//! notices, and nothing is left (design "Interrupted collectives").

use super::collectives::{ended, ints, job, progress, result};
use crate::scripted::{Process, ScriptedJob, peer};
use crate::{Detail, Started};
use mend_base::{Instant, Random, Rank};
use mend_coll::Collective;
use mend_datatype::Op;
use mend_runtime::Notice;
use mend_transport::Buffer;

/// The node daemon answers all new questions: who of `dead` is asked about has failed.
fn answer_truly(job: &ScriptedJob, answered: &mut usize, dead: u32) {
    for (to, about) in job.asked().split_off(*answered) {
        *answered += 1;
        job.notify(to, if about == peer(dead) { Notice::Failed(about) } else { Notice::Alive(about) });
    }
}

/// Makes progress everywhere, and answers questions, until nothing happens any more.
fn settle(job: &ScriptedJob, processes: &mut [Option<Process>], answered: &mut usize, dead: u32) {
    let mut quiet = 0;
    while quiet < 3 {
        let events: u32 = processes.iter_mut().flatten().map(|process| process.progress(Instant(1))).sum();
        answer_truly(job, answered, dead);
        quiet = if events == 0 { quiet + 1 } else { 0 };
    }
}

/// An operation in which all need the dead member, which never starts it. Members are notified one after the other, `first` before others,
/// until all have ended; the rest is never notified, but for answers to its questions. Returns how many were notified.
fn without_most_notices(size: u32, dead: u32, first: Option<u32>, seed: u64) -> usize {
    let (job, processes) = job(size);
    let mut processes: Vec<_> = processes.into_iter().map(Some).collect();
    processes[dead as usize] = None;
    let world = processes.iter().flatten().next().expect("a survivor").comm_world();
    let data: Vec<_> = (0..size).map(|_| Buffer::from_bytes(&vec![1; 40 * size as usize])).collect();
    let call = |me: usize| match seed % 5 {
        0 => Collective::Barrier,
        1 => Collective::Allreduce { send: None, receive: ints(&data[me]), op: Op::Sum },
        2 => Collective::Alltoall { send: None, receive: ints(&data[me]) },
        3 => Collective::Allgather { send: None, receive: ints(&data[me]) },
        _ => Collective::Bcast { data: ints(&data[me]), root: Rank(dead) },
    };
    let mut running = Vec::new();
    for (me, process) in processes.iter_mut().enumerate() {
        let Some(process) = process else { continue };
        running.push((me, process.collective(world, call(me)).expect("nobody knows yet")));
    }
    let mut answered = 0;
    settle(&job, &mut processes, &mut answered, dead);
    let mut random = Random(seed);
    let mut notified: Vec<u32> = Vec::new();
    loop {
        let is_over =
            |(me, started): &(usize, Started)| result(processes[*me].as_ref().expect("it lives"), *started);
        let left: Vec<_> = running.iter().filter(|each| is_over(each).is_none()).map(|(me, _)| *me).collect();
        if left.is_empty() {
            break;
        }
        let left: Vec<_> = left.into_iter().map(|me| me as u32).filter(|me| !notified.contains(me)).collect();
        let next = first.filter(|_| notified.is_empty());
        let next = next.unwrap_or_else(|| left[random.below(left.len() as u64) as usize]);
        notified.push(next);
        job.notify(next, Notice::Failed(peer(dead)));
        settle(&job, &mut processes, &mut answered, dead);
    }
    for (me, started) in running {
        assert_eq!(ended(processes[me].as_ref().expect("it lives"), started), Detail::ProcFailed(Rank(dead)));
    }
    assert!(
        job.asked().iter().all(|(_, about)| *about == peer(dead)),
        "no member is asked about but the dead"
    );
    for process in processes.iter().flatten() {
        let counts = process.open_counts();
        assert_eq!((counts.pml.unexpected, counts.pml.held_bytes), (0, 0));
    }
    notified.len()
}

// Row CO1, Rule 7
#[test]
fn who_waits_for_a_living_member_that_gave_up_is_poisoned_and_needs_no_notice() {
    for seed in 0..200 {
        let size = 3 + (seed / 5 % 9) as u32;
        without_most_notices(size, Random(seed).below(size.into()) as u32, None, seed);
    }
    // The parent of the dead in the tree of a barrier is the only one that needs it directly.
    assert_eq!(without_most_notices(64, 63, Some(8), 0), 1);
    assert_eq!(without_most_notices(64, 9, Some(1), 0), 1);
}

// Rule 7
#[test]
fn who_waits_for_a_member_that_never_starts_the_operation_ends_when_both_know_of_a_death() {
    let (job, mut processes) = job(9);
    let world = processes[0].comm_world();
    // Rank 8 is a child of rank 1. Rank 1 does not start the barrier, and is told of the death later than rank 0.
    let barrier = processes[0].collective(world, Collective::Barrier).expect("nobody has failed yet");
    (0..4).for_each(|_| processes.iter_mut().for_each(progress));
    job.notify(0, Notice::Failed(peer(8)));
    (0..9).for_each(|_| processes.iter_mut().for_each(progress));
    assert_eq!(result(&processes[0], barrier), None, "rank 0 does not need rank 8 itself");
    job.notify(1, Notice::Failed(peer(8)));
    (0..9).for_each(|_| processes.iter_mut().for_each(progress));
    assert_eq!(ended(&processes[0], barrier), Detail::ProcFailed(Rank(8)));
}

// I8
#[test]
fn many_failing_operations_leave_nothing() {
    let (job, mut processes) = job(9);
    let world = processes[0].comm_world();
    processes.pop();
    // Rank 0 does not know of the death at first, and starts its operations behind the others.
    (1..8).for_each(|at| job.notify(at, Notice::Failed(peer(8))));
    (1..8).for_each(|at| assert_eq!(processes[at].failed(world), Ok(vec![Rank(8)])));
    let mut answered = 0;
    for round in 0..1_000 {
        for process in &mut processes[1..] {
            let error = process.collective(world, Collective::Barrier).expect_err("a member failed");
            assert_eq!(error.detail, Detail::ProcFailed(Rank(8)));
        }
        processes.iter_mut().for_each(progress);
        let counts = processes[0].open_counts().pml;
        assert!(counts.about_operations <= 7, "round {round}: {counts:?}");
        assert_eq!(counts.unexpected, 0);
    }
    let started = processes[0].collective(world, Collective::Barrier).expect("rank 0 does not know");
    for _ in 0..9 {
        processes.iter_mut().for_each(progress);
        answer_truly(&job, &mut answered, 8);
    }
    assert_eq!(ended(&processes[0], started), Detail::ProcFailed(Rank(8)));
    assert_eq!(processes[0].failed(world), Ok(vec![Rank(8)]));
    for process in &mut processes {
        let counts = process.open_counts().pml;
        assert_eq!((counts.unexpected, counts.unsent), (0, 0));
    }
}

// Row CO3, Row CO5: each of the others gets its result.
#[test]
fn the_death_of_a_member_that_has_completed_an_operation_ends_it_for_nobody() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let size = 2 + random.below(8) as u32;
        let (job, mut processes) = job(size);
        let data: Vec<_> = (0..size).map(|_| Buffer::from_bytes(&vec![1; 400])).collect();
        let world = processes[0].comm_world();
        let mut start = |me: usize| match seed % 4 {
            0 => processes[me].collective(world, Collective::Barrier),
            1 => processes[me].collective(
                world,
                Collective::Allreduce { send: None, receive: ints(&data[me]), op: Op::Sum },
            ),
            2 => processes[me].collective(world, Collective::Bcast { data: ints(&data[me]), root: Rank(0) }),
            _ => processes[me].dup(world),
        };
        let started: Vec<_> = (0..size as usize).map(|me| start(me).expect("nobody has failed")).collect();
        let mut processes: Vec<_> = processes.into_iter().map(Some).collect();
        // The first that is done dies at once.
        let dead = loop {
            let at = random.below(size.into()) as usize;
            progress(processes[at].as_mut().expect("it lives"));
            if result(processes[at].as_ref().expect("it lives"), started[at]).is_some() {
                break at;
            }
        };
        processes[dead] = None;
        for at in (0..size).filter(|at| *at != dead as u32) {
            job.notify(at, Notice::Failed(peer(dead as u32)));
        }
        settle(&job, &mut processes, &mut 0, dead as u32);
        for (process, started) in processes.iter().zip(started) {
            let Some(process) = process else { continue };
            assert!(matches!(result(process, started), Some(Ok(_))), "seed {seed}");
        }
    }
}
