// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Jobs that are not fault tolerant: the calls of repair act as if nothing failed (Row CN6).

use super::collectives::{progress, result};
use crate::scripted::{Process, ScriptedJob};
use crate::{AgreedGroup, CommKey, Detail, Request, Started};
use mend_coll::Collective;
use mend_transport::{Buffer, UserMemory};
use std::sync::Arc;

fn job(size: u32) -> Vec<Process> {
    let job = ScriptedJob::default();
    let mut processes: Vec<_> = (0..size).map(|me| job.process_without_ft(me, size)).collect();
    for (me, other) in (0..size).flat_map(|me| (0..size).map(move |other| (me, other))) {
        if me != other {
            job.give_contact(me, other);
        }
    }
    processes.iter_mut().for_each(progress);
    processes
}

/// Makes progress until the request of each process is over. Asserts that all succeed, and releases them.
fn finish(processes: &mut [Process], requests: &[Request]) -> Vec<Option<CommKey>> {
    let is_over =
        |process: &Process, &request: &Request| result(process, Started::Running(request)).is_some();
    for _ in 0..100 {
        if processes.iter().zip(requests).all(|(process, request)| is_over(process, request)) {
            break;
        }
        processes.iter_mut().for_each(progress);
    }
    let ended = processes.iter_mut().zip(requests).map(|(process, &request)| {
        assert!(matches!(result(process, Started::Running(request)), Some(Ok(_))), "it succeeds");
        let created = process.created(request);
        process.release(request);
        created
    });
    ended.collect()
}

fn agree(process: &mut Process, comm: CommKey, flag: &Arc<Buffer>) -> Request {
    process.agree(comm, UserMemory::of_buffer(flag)).expect("the communicator exists")
}

// Rows CN6, AG1, AG6, SH2
#[test]
fn the_members_agree_and_shrink_by_schedules_also_when_they_were_revoked_inside_a_barrier_that_one_never_entered()
 {
    for size in [1, 2, 5] {
        let mut processes = job(size);
        let world = processes[0].comm_world();
        let barriers: Vec<_> = processes[1..]
            .iter_mut()
            .map(|process| process.collective(world, Collective::Barrier).expect("nothing is revoked"))
            .collect();
        processes[0].revoke(world).expect("it exists");
        (0..10).for_each(|_| processes.iter_mut().for_each(progress));
        for (process, &barrier) in processes[1..].iter().zip(&barriers) {
            assert_eq!(
                result(process, barrier).map(|result| result.map_err(|error| error.detail)),
                Some(Err(Detail::Revoked))
            );
        }
        assert!(processes.iter().all(|process| process.is_revoked(world) == Ok(true)));
        for round in 0..3 {
            let flags: Vec<_> =
                (0..size).map(|me| Buffer::from_bytes(&(!(1u32 << me)).to_le_bytes())).collect();
            let requests: Vec<_> =
                processes.iter_mut().zip(&flags).map(|(process, flag)| agree(process, world, flag)).collect();
            finish(&mut processes, &requests);
            let all = !((1u32 << size) - 1);
            assert!(flags.iter().all(|flag| flag.to_vec() == all.to_le_bytes()), "{size}, round {round}");
        }
        let shrinks: Vec<_> =
            processes.iter_mut().map(|process| process.shrink(world, None).expect("it exists")).collect();
        let shrunk = finish(&mut processes, &shrinks);
        let shrunk: Vec<_> = shrunk.into_iter().map(|comm| comm.expect("each has one")).collect();
        let barriers: Vec<_> = processes
            .iter_mut()
            .zip(&shrunk)
            .map(|(process, &comm)| process.collective(comm, Collective::Barrier).expect("it is not revoked"))
            .collect();
        (0..10).for_each(|_| processes.iter_mut().for_each(progress));
        for ((process, &comm), &barrier) in processes.iter().zip(&shrunk).zip(&barriers) {
            assert!(matches!(result(process, barrier), Some(Ok(_))));
            assert_eq!(process.members(comm).map(|group| group.size()), Some(size));
        }
    }
}

// Row AG15
#[test]
fn the_members_agree_that_nobody_has_failed() {
    let mut processes = job(3);
    let world = processes[0].comm_world();
    let groups: Vec<_> = (0..3).map(|_| AgreedGroup::default()).collect();
    let agree = |process: &mut Process, group: &AgreedGroup| {
        process.agree_failed(world, Arc::clone(group)).expect("it exists")
    };
    let mut requests: Vec<_> =
        processes.iter_mut().zip(&groups[..2]).map(|(process, group)| agree(process, group)).collect();
    (0..10).for_each(|_| processes.iter_mut().for_each(progress));
    for (process, &request) in processes.iter().zip(&requests) {
        assert_eq!(result(process, Started::Running(request)), None, "it waits for the third");
    }
    requests.push(agree(&mut processes[2], &groups[2]));
    finish(&mut processes, &requests);
    assert!(groups.iter().all(|group| group.get().is_some_and(|group| group.size() == 0)));
}
