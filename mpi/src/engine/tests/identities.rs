// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The numbers that processes allocate for the identities of communicators: none is lost if nothing fails.

use crate::scripted::{Process, ScriptedJob, peer};
use crate::{CommKey, CommunicatorCreation, Detail, Error, Started};
use mend_base::{Identity, Instant, Rank, Tag};
use mend_comm::Group;
use mend_proto::identity::IdentityAllocator;
use mend_runtime::Notice;

/// A job whose processes are all connected.
fn job(size: u32) -> Vec<Process> {
    job_of(size).1
}

fn job_of(size: u32) -> (ScriptedJob, Vec<Process>) {
    let job = ScriptedJob::default();
    let processes = (0..size).map(|me| job.process(me, size)).collect();
    for (me, other) in (0..size).flat_map(|me| (0..size).map(move |other| (me, other))) {
        if me != other {
            job.give_contact(me, other);
        }
    }
    (job, processes)
}

/// The communicator that each process gets from a creation by all; `None`: it is not a member.
fn make(
    processes: &mut [Process],
    start: impl Fn(&mut Process, u32) -> Result<Started, Error>,
) -> Vec<Option<CommKey>> {
    let started: Vec<_> = (0..).zip(&mut *processes).map(|(rank, process)| start(process, rank)).collect();
    let mut creations: Vec<_> = started
        .into_iter()
        .map(|started| match started.unwrap() {
            Started::Running(request) => (CommunicatorCreation::new(request), None),
            Started::Done(_) => panic!("a creation has a request"),
        })
        .collect();
    for _ in 0..100 {
        for (process, (creation, made)) in processes.iter_mut().zip(&mut creations) {
            process.progress(Instant(1));
            if made.is_none() {
                *made = creation.poll(process).map(|made| made.unwrap());
            }
        }
    }
    creations.into_iter().map(|(_, made)| made.expect("it was made in time")).collect()
}

// Row LC7
#[test]
fn shrinks_over_a_communicator_with_a_failed_member_lose_no_number() {
    let (job, mut processes) = job_of(4);
    drop(processes.pop());
    for (rank, process) in (0..).zip(&mut processes) {
        job.notify(rank, Notice::Failed(peer(3)));
        while process.progress(Instant(1)) > 0 {}
    }
    for round in 0..50 {
        let made = make(&mut processes, |process, _| {
            process.shrink(process.comm_world(), None).map(Started::Running)
        });
        assert_eq!(freed(&mut processes, &made), [named(0, FIRST + round); 3]);
    }
    let shrunk =
        make(&mut processes, |process, _| process.shrink(process.comm_world(), None).map(Started::Running));
    let pair = make(&mut processes, |process, rank| {
        process.split(shrunk[rank as usize].expect("it survived"), (rank > 0).then_some(0), 0)
    });
    assert_eq!(freed(&mut processes, &pair), [None, named(1, FIRST), named(1, FIRST)]);
}

/// Frees the communicators. Returns the identity of each.
fn freed(processes: &mut [Process], made: &[Option<CommKey>]) -> Vec<Option<Identity>> {
    let each = processes.iter_mut().zip(made);
    let free = |(process, made): (&mut Process, &Option<CommKey>)| {
        let comm = (*made)?;
        let identity = process.communicator(comm).map(|communicator| communicator.identity);
        process.free(comm).unwrap();
        identity
    };
    each.map(free).collect()
}

fn split(processes: &mut [Process], colors: [Option<u32>; 3]) -> Vec<Option<Identity>> {
    let made = make(processes, |process, rank| process.split(process.comm_world(), colors[rank as usize], 0));
    freed(processes, &made)
}

fn named(by: u32, number: u32) -> Option<Identity> {
    Some(Identity { creator: peer(by), number })
}

const FIRST: u32 = IdentityAllocator::FIRST;

#[test]
fn only_the_rank_that_names_a_duplicate_allocates_a_number() {
    let mut processes = job(3);
    for round in 0..50 {
        let made = make(&mut processes, |process, _| process.dup(process.comm_world()));
        assert_eq!(freed(&mut processes, &made), [named(0, FIRST + round); 3]);
    }
    let pair = split(&mut processes, [None, Some(0), Some(0)]);
    assert_eq!(pair, [None, named(1, FIRST), named(1, FIRST)]);
}

#[test]
fn a_split_returns_the_numbers_that_no_communicator_got() {
    let mut processes = job(3);
    for round in 0..20 {
        let all = split(&mut processes, [Some(4); 3]);
        assert_eq!(all, [named(0, FIRST + round); 3]);
        // A communicator of one process gets a number from the other end of the range, which no other process learns.
        let parts = split(&mut processes, [Some(1), Some(2), Some(2)]);
        let expected = [named(0, u32::MAX - 1 - round), named(1, FIRST + round), named(1, FIRST + round)];
        assert_eq!(parts, expected);
    }
    let last = split(&mut processes, [None, None, Some(0)]);
    assert_eq!(last, [None, None, named(2, u32::MAX - 1)]);
}

#[test]
fn communicators_of_one_process_leave_the_numbers_of_others_without_a_gap() {
    let mut processes = job(3);
    for round in 0..20 {
        let made = make(&mut processes, |process, _| process.dup(process.comm_self()));
        let alone = freed(&mut processes, &made);
        assert_eq!(alone, [0, 1, 2].map(|rank| named(rank, u32::MAX - 1 - round)));
    }
    assert_eq!(split(&mut processes, [Some(0); 3]), [named(0, FIRST); 3]);
}

#[test]
fn a_leader_alone_in_its_group_gives_back_the_number_that_the_other_leader_did_not_use() {
    let mut processes = job(3);
    for round in 0..20 {
        let made = make(&mut processes, |process, rank| {
            let (alone, world) = (process.comm_self(), process.comm_world());
            match rank {
                2 => process.dup(alone),
                rank => process.create_inter(alone, Rank(0), Some(Ok((world, Rank(1 - rank)))), Tag(0)),
            }
        });
        assert_eq!(freed(&mut processes, &made)[..2], [named(0, FIRST + round); 2]);
    }
    let pair = split(&mut processes, [None, Some(0), Some(0)]);
    assert_eq!(pair, [None, named(1, FIRST), named(1, FIRST)], "the numbers of rank 1 have no gap");
}

/// A creation in which rank 0 has no number left ends at all members: there for this reason, elsewhere because rank 0 gave up.
fn assert_refused(name: &str, start: impl Fn(&mut Process) -> Result<Started, Error>) {
    let (job, mut processes) = job_of(3);
    processes[0].communicators.exhaust_numbers(peer(0));
    let mut errors = [None; 3];
    let mut creations = Vec::new();
    for (process, error) in processes.iter_mut().zip(&mut errors) {
        match start(process) {
            Ok(Started::Running(request)) => creations.push(Some(CommunicatorCreation::new(request))),
            Ok(Started::Done(_)) => panic!("{name}: a creation has a request"),
            Err(at_once) => {
                *error = Some(at_once.detail);
                creations.push(None);
            }
        }
    }
    let mut answered = 0;
    for _ in 0..100 {
        for ((process, creation), error) in processes.iter_mut().zip(&mut creations).zip(&mut errors) {
            process.progress(Instant(1));
            if let (Some(creation), None) = (creation, *error) {
                *error = creation.poll(process).map(|made| made.expect_err("it was refused").detail);
            }
        }
        for (to, about) in job.asked().split_off(answered) {
            answered += 1;
            job.notify(to, Notice::Alive(about));
        }
    }
    let errors = errors.map(|error| error.unwrap_or_else(|| panic!("{name}: a member waits for ever")));
    assert_eq!(errors[0], Detail::IdentitiesExhausted, "{name}");
    for error in &errors[1..] {
        assert!(matches!(error, Detail::CreationRefused | Detail::PeerFreed(Rank(0))), "{name}: {error:?}");
    }
    // The next call is the same one at all members.
    let next =
        make(&mut processes, |process, rank| process.split(process.comm_world(), (rank > 0).then_some(0), 0));
    assert!(next[1].is_some(), "{name}");
}

// Row CC1
#[test]
fn a_creation_ends_at_all_members_if_one_has_no_number_left() {
    let group = Group::consecutive(peer(0), 3);
    assert_refused("dup", |process| process.dup(process.comm_world()));
    assert_refused("split", |process| process.split(process.comm_world(), Some(0), 0));
    assert_refused("create", |process| process.create(process.comm_world(), &group));
    assert_refused("create_group", |process| process.create_group(process.comm_world(), &group, Tag(3)));
    assert_refused("shrink", |process| process.shrink(process.comm_world(), None).map(Started::Running));
}
