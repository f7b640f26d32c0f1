// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contributions in absentia of a process that has agreements of its own.

use crate::scripted::{Process, ScriptedJob, peer};
use crate::{CommKey, CommunicatorCreation, Detail, Error, Request, Started, State};
use mend_base::{Instant, Rank};
use mend_runtime::Notice;
use mend_transport::{Buffer, UserMemory};

const ALL: [usize; 3] = [0, 1, 2];

fn job() -> Vec<Process> {
    job_of_three().1
}

fn job_of_three() -> (ScriptedJob, Vec<Process>) {
    let job = ScriptedJob::default();
    let mut processes: Vec<_> = (0..3).map(|me| job.process(me, 3)).collect();
    for (me, other) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        job.give_contact(me, other);
    }
    progress(&mut processes, &ALL);
    (job, processes)
}

fn progress(processes: &mut [Process], runs: &[usize]) {
    for _ in 0..20 {
        runs.iter().for_each(|&at| _ = processes[at].progress(Instant(1)));
    }
}

/// All processes, in the order of these keys.
fn ordered(processes: &mut [Process], keys: [i32; 3]) -> Vec<CommKey> {
    let made = split(processes, keys.map(Some));
    made.into_iter().map(|comm| comm.expect("a member")).collect()
}

/// Those with a key, in the order of the keys.
fn split(processes: &mut [Process], keys: [Option<i32>; 3]) -> Vec<Option<CommKey>> {
    let start = |(process, key): (&mut Process, Option<i32>)| {
        let world = process.comm_world();
        match process.split(world, key.map(|_| 0), key.unwrap_or(0)).expect("right arguments") {
            Started::Running(request) => CommunicatorCreation::new(request),
            Started::Done(status) => panic!("it is over: {status:?}"),
        }
    };
    let started: Vec<_> = processes.iter_mut().zip(keys).map(start).collect();
    progress(processes, &ALL);
    let made = |(mut creation, process): (CommunicatorCreation, &mut Process)| {
        creation.poll(process).expect("it is over").expect("no error")
    };
    started.into_iter().zip(processes).map(made).collect()
}

fn agree(process: &mut Process, comm: CommKey) -> Request {
    let flag = Buffer::from_bytes(&7u32.to_le_bytes());
    process.agree(comm, UserMemory::of_buffer(&flag)).expect("right arguments")
}

/// A look at a call that waits for this request alone, in a process of one thread.
fn look(process: &mut Process, request: Request) {
    look_at_all(process, &[request]);
}

/// The same, at one that waits for all of these requests.
fn look_at_all(process: &mut Process, requests: &[Request]) {
    process.begin_look();
    let running = requests.iter().filter(|&&request| !matches!(process.poll(request), State::Done(_)));
    let is_waiting = running.count() > 0;
    process.end_look(is_waiting, Instant(1), || Some(1));
}

/// Rank 0 waits for all of `waited`, and rank 1 for `other`.
fn wait_long(processes: &mut [Process], waited: &[Request], other: Request) {
    for _ in 0..64 {
        look_at_all(&mut processes[0], waited);
        look(&mut processes[1], other);
        progress(processes, &ALL[..processes.len()]);
    }
}

fn is_crossed(process: &Process, request: Request) -> bool {
    matches!(process.poll(request), State::Done(Err(Error { detail: Detail::Crossed(_), .. })))
}

/// Rank 0 waited for an agreement on A and a shrink, and the shrink ended the wait with an error: what it does next nobody knows, so its wait is no
/// part of a cycle though the agreement on A still runs.
#[test]
fn a_wait_that_another_of_its_requests_has_ended_is_no_part_of_a_cycle() {
    let mut processes = job();
    let (a, b) = (ordered(&mut processes, [0, 1, 2]), ordered(&mut processes, [1, 0, 2]));
    let waited = agree(&mut processes[0], a[0]);
    (0..8).for_each(|_| look(&mut processes[0], waited));
    processes[0].end_wait();
    // Rank 1 waits for rank 0, which has not called on B, and has not called on A itself.
    let waits = agree(&mut processes[1], b[1]);
    for _ in 0..64 {
        look(&mut processes[1], waits);
        progress(&mut processes, &[0, 1]);
    }
    assert_eq!(processes[1].poll(waits), State::Running);
    let calls = [agree(&mut processes[0], b[0]), agree(&mut processes[2], b[2])];
    progress(&mut processes, &ALL);
    assert!(matches!(processes[1].poll(waits), State::Done(Ok(_))));
    assert!(
        [(0, calls[0]), (2, calls[1])]
            .iter()
            .all(|&(at, call)| matches!(processes[at].poll(call), State::Done(Ok(_))))
    );
}

/// The second agreement of a communicator ends after the first, so a failure that it may report is no other way out.
// Row AG16
#[test]
fn a_wait_for_several_agreements_of_one_communicator_is_part_of_a_cycle() {
    let mut processes = job();
    let (a, b) = (ordered(&mut processes, [0, 1, 2]), ordered(&mut processes, [1, 0, 2]));
    let waited = [agree(&mut processes[0], a[0]), agree(&mut processes[0], a[0])];
    let other = agree(&mut processes[1], b[1]);
    let [on_a, on_b] = [a[2], b[2]].map(|comm| agree(&mut processes[2], comm));
    wait_long(&mut processes, &waited, other);
    for (at, crossed) in [(0, waited[0]), (1, other), (2, on_a), (2, on_b)] {
        assert!(is_crossed(&processes[at], crossed), "rank {at}: {:?}", processes[at].poll(crossed));
    }
    let last =
        [agree(&mut processes[1], a[1]), agree(&mut processes[1], a[1]), agree(&mut processes[2], a[2])];
    progress(&mut processes, &ALL);
    assert!(is_crossed(&processes[1], last[0]));
    for (at, good) in [(0, waited[1]), (1, last[1]), (2, last[2])] {
        assert!(matches!(processes[at].poll(good), State::Done(Ok(_))), "rank {at}");
    }
}

/// Rank 0 waits for rank 1 on A, which waits for rank 0 on B. But a failure that the agreement on C reports ends the wait of rank 0 for
/// both (Row WT5), and then it calls on B. So a cycle through one of several agreements that may report failures proves nothing.
#[test]
fn a_wait_that_a_failure_in_one_of_its_agreements_may_end_is_no_part_of_a_cycle() {
    let (job, mut processes) = job_of_three();
    let a = split(&mut processes, [Some(0), Some(1), None]);
    let b = split(&mut processes, [Some(1), Some(0), None]);
    let c = split(&mut processes, [Some(0), None, Some(1)]);
    let [a0, b0, c0] = [a[0], b[0], c[0]].map(|comm| comm.expect("a member"));
    let [a1, b1] = [a[1], b[1]].map(|comm| comm.expect("a member"));
    let waited = [agree(&mut processes[0], a0), agree(&mut processes[0], c0)];
    let other = agree(&mut processes[1], b1);
    wait_long(&mut processes, &waited, other);
    assert_eq!([processes[0].poll(waited[0]), processes[1].poll(other)], [State::Running; 2]);
    drop(processes.pop());
    (0..2).for_each(|at| job.notify(at, Notice::Failed(peer(2))));
    progress(&mut processes, &[0, 1]);
    let is_reported = matches!(
        processes[0].poll(waited[1]),
        State::Done(Err(Error { detail: Detail::ProcFailed(Rank(1)), .. }))
    );
    assert!(is_reported, "{:?}", processes[0].poll(waited[1]));
    processes[0].end_wait();
    let own = agree(&mut processes[0], b0);
    progress(&mut processes, &[0, 1]);
    assert!(
        [(0, own), (1, other)]
            .iter()
            .all(|&(at, on_b)| matches!(processes[at].poll(on_b), State::Done(Ok(_))))
    );
    let last = agree(&mut processes[1], a1);
    progress(&mut processes, &[0, 1]);
    assert!(
        [(0, waited[0]), (1, last)]
            .iter()
            .all(|&(at, on_a)| matches!(processes[at].poll(on_a), State::Done(Ok(_))))
    );
}

/// Answers that the programs never take are forgotten with their communicators.
#[test]
fn answers_that_the_program_does_not_take_end_with_the_communicator() {
    let mut processes = job();
    for _ in 0..3 {
        let (a, b) = (ordered(&mut processes, [0, 1, 2]), ordered(&mut processes, [1, 0, 2]));
        let waits = [agree(&mut processes[0], a[0]), agree(&mut processes[1], b[1])];
        [a[2], b[2]].into_iter().for_each(|comm| _ = agree(&mut processes[2], comm));
        wait_long(&mut processes, &waits[..1], waits[1]);
        assert!((0..2).all(|at| is_crossed(&processes[at], waits[at])));
        assert!((0..2).all(|at| processes[at].agreements.answers() == 1));
        for (at, process) in processes.iter_mut().enumerate() {
            [a[at], b[at]].into_iter().for_each(|comm| process.free(comm).expect("it exists"));
        }
        progress(&mut processes, &ALL);
        // The votes of the splits were on WORLD.
        let is_clean =
            |process: &Process| process.agreements.answers() == 0 && process.member_protocols.len() == 1;
        assert!(processes.iter().all(is_clean), "what a communicator leaves grows with each");
    }
}

/// Rank 2 hears in one batch that its agreement on A was crossed with the next one on B, and the decision of its own on B: in this order.
// Row AG16
#[test]
fn a_contribution_in_absentia_waits_for_a_decision_that_has_come_and_is_not_applied() {
    let mut processes = job();
    let (a, b) = (ordered(&mut processes, [0, 1, 2]), ordered(&mut processes, [1, 0, 2]));
    let (on_a, on_b) = (agree(&mut processes[2], a[2]), agree(&mut processes[2], b[2]));
    let [zero, one] = [0, 1].map(|at| agree(&mut processes[at], b[at]));
    progress(&mut processes, &[0, 1]);
    assert!(
        [(0, zero), (1, one)].iter().all(|&(at, own)| matches!(processes[at].poll(own), State::Done(Ok(_))))
    );
    // Rank 0, the root of A, waits there, and rank 1, the root of B, on B. Rank 2 does nothing meanwhile.
    let waits = [agree(&mut processes[0], a[0]), agree(&mut processes[1], b[1])];
    for _ in 0..8 {
        (0..2).for_each(|at| look(&mut processes[at], waits[at]));
        progress(&mut processes, &[0, 1]);
    }
    assert!(is_crossed(&processes[0], waits[0]), "its root decides A");
    let woken = processes[2].wake_ups.notify_all_count();
    progress(&mut processes, &ALL);
    assert_ne!(
        processes[2].wake_ups.notify_all_count(),
        woken,
        "a thread may wait for more requests than it has noted"
    );
    assert!(is_crossed(&processes[1], waits[1]));
    assert!(is_crossed(&processes[2], on_a), "{:?}", processes[2].poll(on_a));
    assert!(matches!(processes[2].poll(on_b), State::Done(Ok(_))), "{:?}", processes[2].poll(on_b));
    // The programs of those that contributed in absentia get the answer of the crossed agreement, and the communicator goes on.
    for at in [0, 2] {
        let answered = agree(&mut processes[at], b[at]);
        assert!(is_crossed(&processes[at], answered), "{at}");
    }
    let last = [0, 1, 2].map(|at| agree(&mut processes[at], b[at]));
    progress(&mut processes, &ALL);
    assert!(ALL.iter().all(|&at| matches!(processes[at].poll(last[at]), State::Done(Ok(_)))));
}
