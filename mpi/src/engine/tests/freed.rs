// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Freed communicators of which messages are still under way.

use crate::scripted::{Process, ScriptedJob};
use crate::{CommKey, CommunicatorCreation, Request, SendMode, Started};
use mend_base::{Instant, Rank, Tag};
use mend_datatype::TypedBuffer;
use mend_transport::{Buffer, UserMemory};

fn progress(processes: &mut [Process]) {
    for _ in 0..9 {
        processes.iter_mut().for_each(|process| _ = process.progress(Instant(1)));
    }
}

fn request(started: Started) -> Request {
    match started {
        Started::Running(request) => request,
        Started::Done(status) => panic!("it is over: {status:?}"),
    }
}

fn created(process: &mut Process, started: Request) -> CommKey {
    CommunicatorCreation::new(started)
        .poll(process)
        .expect("it is over")
        .expect("no error")
        .expect("a member")
}

/// A send that the program gave up keeps the channel of its communicator open; the next communicator gets the place of the freed one.
// Row RV12, Row RV13
#[test]
fn the_revocation_of_a_freed_communicator_concerns_no_later_one_and_accuses_nobody() {
    let job = ScriptedJob::default();
    let mut processes = [0, 1, 2].map(|me| job.process(me, 3));
    for (from, to) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        job.give_contact(from, to);
    }
    progress(&mut processes);
    let world = processes[0].comm_world();
    let dups = [0, 1, 2].map(|at| request(processes[at].dup(world).expect("right arguments")));
    progress(&mut processes);
    let [freed, other, _] = [0, 1, 2].map(|at| created(&mut processes[at], dups[at]));
    let data = TypedBuffer::bytes(UserMemory::of_buffer(&Buffer::zeroed(1 << 16)));
    let send = processes[0].send(freed, Rank(2), Tag(1), SendMode::Synchronous, data);
    processes[0].free_request(request(send.expect("right arguments")));
    processes[0].free(freed).expect("it can be freed");
    let myself = processes[0].comm_self();
    let later = request(processes[0].dup(myself).expect("right arguments"));
    progress(&mut processes[..2]);
    let later = created(&mut processes[0], later);
    processes[1].revoke(other).expect("right arguments");
    // Rank 2 makes no progress, so it does not refuse the send.
    progress(&mut processes[..2]);
    assert_eq!(processes[1].is_revoked(other), Ok(true));
    assert_eq!(processes[0].is_revoked(later), Ok(false));
    assert_eq!(job.asked(), [], "nobody is accused");
}
