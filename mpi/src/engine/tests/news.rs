// SPDX-License-Identifier: Apache-2.0 OR MIT
//! News about communicators whose first tellers have gone.

use crate::scripted::{Process, ScriptedJob, peer};
use crate::{CommKey, CommunicatorCreation, Error, ErrorClass, SendMode, Started, State};
use mend_base::{Instant, Rank, Source, Tag, TagSelector};
use mend_datatype::TypedBuffer;
use mend_runtime::Notice;
use mend_transport::{Buffer, UserMemory};

const SIZE: u32 = 8;
/// The members that rank 0 tells: those at distances of 1, 2 and 4.
const NEIGHBOURS: [u32; 5] = [1, 2, 4, 6, 7];
const OTHERS: [u32; 2] = [3, 5];

fn progress(processes: &mut [Process], runs: &[u32]) {
    for _ in 0..20 {
        runs.iter().for_each(|&at| _ = processes[at as usize].progress(Instant(1)));
    }
}

fn job() -> (ScriptedJob, Vec<Process>) {
    let job = ScriptedJob::default();
    let mut processes: Vec<_> = (0..SIZE).map(|me| job.process(me, SIZE)).collect();
    for (me, other) in (0..SIZE).flat_map(|me| (0..SIZE).map(move |other| (me, other))) {
        if me != other {
            job.give_contact(me, other);
        }
    }
    progress(&mut processes, &[0, 1, 2, 3, 4, 5, 6, 7]);
    (job, processes)
}

fn duplicates(processes: &mut [Process]) -> Vec<CommKey> {
    let started: Vec<_> = processes
        .iter_mut()
        .map(|process| {
            let world = process.comm_world();
            process.dup(world).expect("right arguments")
        })
        .map(|started| match started {
            Started::Running(request) => CommunicatorCreation::new(request),
            Started::Done(status) => panic!("it is over: {status:?}"),
        })
        .collect();
    progress(processes, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let made = |(mut creation, process): (CommunicatorCreation, &mut Process)| {
        creation.poll(process).expect("it is over").expect("no error").expect("a member")
    };
    started.into_iter().zip(processes).map(made).collect()
}

fn die(job: &ScriptedJob, dead: &[u32], survivors: &[u32]) {
    for &rank in dead {
        job.lose_messages(rank);
        survivors.iter().for_each(|&to| job.notify(to, Notice::Failed(peer(rank))));
    }
}

/// The members that know nothing of the revocation hear of the failures, and so ask the next members that are present.
// Row RV2
#[test]
fn a_revocation_reaches_all_members_though_the_revoker_has_freed_and_all_whom_it_told_have_failed() {
    let (job, mut processes) = job();
    let comms = duplicates(&mut processes);
    processes[0].revoke(comms[0]).expect("right arguments");
    processes[0].free(comms[0]).expect("it can be freed");
    progress(&mut processes, &[0, 1, 2, 4, 6, 7]);
    for at in NEIGHBOURS {
        assert_eq!(processes[at as usize].is_revoked(comms[at as usize]), Ok(true), "{at} was told");
    }
    die(&job, &NEIGHBOURS, &[0, 3, 5]);
    progress(&mut processes, &[0, 3, 5]);
    for at in OTHERS {
        assert_eq!(processes[at as usize].is_revoked(comms[at as usize]), Ok(true), "{at}");
    }
}

/// Before, a member that had freed the communicator answered the news of a failure that it is gone, and was told of nothing more.
// Row RV5, Row CC3
#[test]
fn an_operation_on_a_freed_communicator_hears_of_a_revocation_also_after_other_news() {
    let (job, mut processes) = job();
    let comms = duplicates(&mut processes);
    let into = TypedBuffer::bytes(UserMemory::of_buffer(&Buffer::zeroed(8)));
    let receive = processes[1].receive(comms[1], Source::Rank(Rank(0)), TagSelector::Any, into);
    let Ok(Started::Running(receive)) = receive else { panic!("nothing was sent: {receive:?}") };
    processes[1].free(comms[1]).expect("it can be freed");
    let survivors = [0, 1, 2, 4, 5, 6, 7];
    die(&job, &[3], &survivors);
    progress(&mut processes, &survivors);
    assert_eq!(processes[1].poll(receive), State::Running, "rank 0 lives");
    processes[0].revoke(comms[0]).expect("right arguments");
    progress(&mut processes, &survivors);
    assert!(
        matches!(processes[1].poll(receive), State::Done(Err(Error { class: ErrorClass::Revoked, .. }))),
        "{:?}",
        processes[1].poll(receive)
    );
    processes[1].release(receive);
    for at in [0, 2, 4, 5, 6, 7] {
        processes[at as usize].free(comms[at as usize]).expect("it can be freed");
    }
    progress(&mut processes, &survivors);
    for at in survivors {
        assert_eq!(processes[at as usize].member_protocols.len(), 1, "{at}: nothing is left but WORLD's");
    }
}

#[test]
fn a_freed_communicator_needs_no_news_after_its_last_operation() {
    let (job, mut processes) = job();
    let comms = duplicates(&mut processes);
    let buffer = || TypedBuffer::bytes(UserMemory::of_buffer(&Buffer::zeroed(8)));
    let receive = processes[1].receive(comms[1], Source::Rank(Rank(0)), TagSelector::Any, buffer());
    let Ok(Started::Running(receive)) = receive else { panic!("nothing was sent: {receive:?}") };
    for (process, comm) in processes.iter_mut().zip(&comms).skip(1) {
        process.free(*comm).expect("it can be freed");
    }
    let survivors = [0, 1, 2, 4, 5, 6, 7];
    die(&job, &[3], &survivors);
    progress(&mut processes, &survivors);
    assert_eq!(processes[1].member_protocols.len(), 2, "WORLD, and the one in use");
    _ = processes[0].send(comms[0], Rank(1), Tag(1), SendMode::Standard, buffer()).expect("right arguments");
    processes[0].free(comms[0]).expect("it can be freed");
    progress(&mut processes, &survivors);
    assert!(matches!(processes[1].poll(receive), State::Done(Ok(_))), "the message has come");
    processes[1].release(receive);
    progress(&mut processes, &survivors);
    for at in survivors {
        assert_eq!(processes[at as usize].member_protocols.len(), 1, "{at}: nothing is left but WORLD's");
    }
}

#[test]
fn a_failure_leaves_nothing_of_freed_communicators() {
    let (job, mut processes) = job();
    let comms = duplicates(&mut processes);
    assert!(processes.iter().all(|process| process.member_protocols.len() <= 1), "for the votes over WORLD");
    die(&job, &[2], &[0, 1, 3, 4, 5, 6, 7]);
    progress(&mut processes, &[0, 1, 3, 4, 5, 6, 7]);
    for at in [0, 1, 3, 4, 5, 6, 7] {
        let process = &mut processes[at];
        assert_eq!(process.member_protocols.len(), 2, "{at}: WORLD and its duplicate, and not SELF");
        process.free(comms[at]).expect("it can be freed");
    }
    progress(&mut processes, &[0, 1, 3, 4, 5, 6, 7]);
    assert!([0, 1, 3, 4, 5, 6, 7].iter().all(|&at| processes[at as usize].member_protocols.len() == 1));
}
