// SPDX-License-Identifier: Apache-2.0 OR MIT
//! News about communicators whose first tellers have gone.

use crate::scripted::{Process, ScriptedJob, peer};
use crate::{CommKey, CommunicatorCreation, Started};
use mend_base::Instant;
use mend_runtime::Notice;

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
