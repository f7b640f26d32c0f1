// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scripted jobs under many schedules. Each test checks one rule: a regression that a random job has found, or a row of the
//! semantics table.

use mend_base::{Random, Rank, Source, Tag, TagSelector};
use mend_daemon::{Ending, Rules};
use mend_mpi::{Detail, ErrorClass};
use mend_sim::killer::{Killer, Manner, PlannedDeath, When};
use mend_sim::network::Faults;
use mend_sim::oracle::{assert_content, assert_status, content, poisoned};
use mend_sim::programs::program;
use mend_sim::{Cluster, Process};
use mend_transport::{Buffer, UserMemory};
use std::future::Future;

const TAG: Tag = Tag(5);

/// Runs `script` on `size` ranks under 300 schedules.
fn passes_always<F: Future<Output = ()> + 'static>(size: u32, script: impl Fn(Process) -> F + 'static) {
    with_faults(size, Faults::default(), script);
}

fn with_faults<F: Future<Output = ()> + 'static>(
    size: u32,
    faults: Faults,
    script: impl Fn(Process) -> F + 'static,
) {
    let script = program(script);
    for seed in 0..300 {
        let mut cluster = Cluster::new(seed, size, script.clone());
        cluster.inject(faults);
        if let Err(report) = cluster.run() {
            panic!("{report}");
        }
    }
}

/// Waits until this rank knows that all other ranks have left.
async fn until_others_have_left(process: &Process) {
    let world = process.mpi.engine().comm_world();
    for rank in (0..process.size).map(Rank).filter(|rank| *rank != process.rank) {
        let buffer = poisoned(0);
        let never = process.mpi.receive(world, Source::Rank(rank), TagSelector::Tag(Tag(99)), &buffer).await;
        assert!(matches!(never.expect_err("that rank has left").detail, Detail::PeerLeft(_)));
    }
}

#[test]
fn a_wildcard_receives_a_message_to_itself_when_all_others_have_left() {
    passes_always(2, |process| async move {
        if process.rank == Rank(1) {
            return;
        }
        until_others_have_left(&process).await;
        let world = process.mpi.engine().comm_world();
        let buffer = poisoned(5_000);
        let received = process.mpi.receive(world, Source::Any, TagSelector::Any, &buffer);
        let sent = process.mpi.send(world, Rank(0), TAG, &Buffer::from_bytes(&content(1, 5_000)));
        assert_status(received.await.expect("this rank has sent it"), Rank(0), TAG, 5_000);
        assert_content(&buffer, 1, 5_000);
        sent.await.expect("this process lives");
    });
}

#[test]
fn a_wildcard_ends_when_all_others_have_left() {
    passes_always(3, |process| async move {
        if process.rank != Rank(0) {
            return;
        }
        let world = process.mpi.engine().comm_world();
        let ended = process.mpi.receive(world, Source::Any, TagSelector::Any, &poisoned(8)).await;
        assert_eq!(ended.expect_err("no other rank is left").class, ErrorClass::Other);
    });
}

#[test]
fn a_collective_ends_when_a_member_finalizes_without_it() {
    passes_always(4, |process| async move {
        let world = process.mpi.engine().comm_world();
        if process.rank == Rank(2) {
            return;
        }
        let ended = process.mpi.barrier(world).await;
        let error = ended.expect_err("a member has left without entering");
        assert!(matches!(error.detail, Detail::PeerLeft(_) | Detail::PeerFreed(_)), "{error}");
    });
}

#[test]
fn two_ranks_that_finalize_with_unreceived_rts_to_each_other_both_leave() {
    passes_always(2, |process| async move {
        let world = process.mpi.engine().comm_world();
        let other = Rank(1 - process.rank.0);
        // Dropped at once, as by MPI_Request_free. The other rank never receives it.
        drop(process.mpi.ssend(world, other, TAG, &poisoned(9_000)));
    });
}

#[test]
fn false_evidence_loses_and_reorders_no_message() {
    let faults = Faults { false_evidence_once_in: 4, ..Faults::default() };
    with_faults(2, faults, |process| async move {
        let world = process.mpi.engine().comm_world();
        for id in 0..20 {
            let bytes = [0, 40, 3_000][id as usize % 3];
            if process.rank == Rank(0) {
                let data = Buffer::from_bytes(&content(id, bytes));
                process.mpi.send(world, Rank(1), TAG, &data).await.expect("the other rank lives");
            } else {
                let buffer = poisoned(bytes);
                let source = Source::Rank(Rank(0));
                let status = process.mpi.receive(world, source, TagSelector::Tag(TAG), &buffer).await;
                assert_status(status.expect("the other rank lives"), Rank(0), TAG, bytes);
                assert_content(&buffer, id, bytes);
            }
        }
    });
}

#[test]
fn a_refused_connection_is_reported_at_both_ends() {
    let faults = Faults { refusal_once_in: 1, ..Faults::default() };
    with_faults(2, faults, |process| async move {
        let world = process.mpi.engine().comm_world();
        let other = Rank(1 - process.rank.0);
        let sent = process.mpi.ssend(world, other, TAG, &poisoned(3)).await;
        let error = sent.expect_err("no connection can be made");
        assert!(matches!(error.detail, Detail::Unreachable(rank, _) if rank == other), "{error}");
    });
}

/// Rows AG1 to AG4, CC1: two members that cannot connect are both alive, but one of them is ended as soon as a protocol needs
/// messages between them. Before, each counted the other as departed: members decided differently, or waited for ever.
#[test]
fn members_of_which_some_cannot_connect_agree_and_shrink_alike() {
    let script = program(|process: Process| async move {
        let (mpi, world) = (process.mpi.clone(), process.mpi.engine().comm_world());
        let mut comm = world;
        for call in 0..3 {
            let flag = Buffer::from_bytes(&(!(1u32 << process.rank.0)).to_le_bytes());
            let result = mpi.agree(comm, &flag).await;
            let mut bytes = [0; 4];
            UserMemory::of_buffer(&flag).read(0, &mut bytes);
            let class = result.err().map_or(0, |error| error.class as u64);
            process.assert_answers_agree(2 * call, u64::from(u32::from_le_bytes(bytes)) << 8 | class);
            let shrunk = mpi.shrink(comm).await.expect("a shrink succeeds").expect("this rank lives");
            process.assert_answers_agree(2 * call + 1, mpi.size(shrunk).expect("it is open").into());
            if comm != world {
                mpi.free(comm).expect("it is open");
            }
            comm = shrunk;
        }
    });
    let mut deaths = 0;
    for (size, seed) in (2..=6).flat_map(|size| (0..150).map(move |seed| (size, seed))) {
        let mut cluster = Cluster::new(seed, size, script.clone());
        cluster.plan_deaths(Killer::new(size, vec![]), Rules::default());
        cluster.inject(Faults { refusal_once_in: 2 + seed % 5, ..Faults::default() });
        match cluster.run() {
            Ok(summary) => deaths += summary.deaths,
            Err(report) => panic!("{report}"),
        }
    }
    assert!(deaths > 100, "{deaths} members were ended");
}

/// Creations, revocations and deaths beside pairs that cannot connect: every operation ends, and survivors agree at the end.
#[test]
fn survivors_recover_though_some_cannot_connect_and_some_die() {
    let script = program(|process: Process| async move {
        let mpi = process.mpi.clone();
        let mut comm = mpi.engine().comm_world();
        for call in 0..2 {
            let (me, size) = (mpi.rank(comm).expect("it is open"), mpi.size(comm).expect("it is open"));
            // Whoever gets an error calls the same operations as the others, but may have no part in one that needs all.
            if let Ok(Some(made)) = mpi.dup(comm).await {
                mpi.free(made).expect("it was created");
            }
            if me.0 % 2 == 0 {
                let group = mpi.engine().communicator(comm).expect("it is open").group.clone();
                let ranks: Vec<Rank> = (0..size).step_by(2).map(Rank).collect();
                let group = group.include(&ranks).expect("ranks of it");
                if let Ok(Some(made)) = mpi.create_group(comm, &group, TAG).await {
                    mpi.free(made).expect("it was created");
                }
            }
            if process.below(3) == 0 {
                mpi.revoke(comm).expect("right arguments");
            }
            let shrunk = mpi.shrink(comm).await.expect("a shrink succeeds").expect("this rank lives");
            process.assert_answers_agree(call, mpi.size(shrunk).expect("it is open").into());
            comm = shrunk;
        }
    });
    for (size, seed) in (2..=6).flat_map(|size| (0..200).map(move |seed| (size, seed))) {
        let mut random = Random(seed << 8 | u64::from(size));
        let mut cluster = Cluster::new(seed, size, script.clone());
        cluster.plan_deaths(Killer::draw(&mut random, size), Rules::default());
        cluster.inject(Faults { refusal_once_in: 2 + seed % 5, ..Faults::default() });
        if let Err(report) = cluster.run() {
            panic!("size {size}, seed {seed}: {report}");
        }
    }
}

#[test]
fn wrong_arguments_are_refused_and_leave_no_request() {
    passes_always(2, |process| async move {
        let world = process.mpi.engine().comm_world();
        let data = poisoned(1);
        let wrong = [
            (process.mpi.send(world, Rank(2), TAG, &data).await, ErrorClass::Rank),
            (process.mpi.send(world, Rank(0), Tag(-3), &data).await, ErrorClass::Tag),
            (
                process.mpi.receive(world, Source::Rank(Rank(7)), TagSelector::Any, &data).await,
                ErrorClass::Rank,
            ),
            (process.mpi.bcast(world, Rank(2), &data).await, ErrorClass::Root),
        ];
        for (result, class) in wrong {
            assert_eq!(result.expect_err("a wrong argument").class, class);
        }
        assert_eq!(process.mpi.free(world).expect_err("WORLD is predefined").class, ErrorClass::Comm);
    });
}

/// MPI-5.0 §3.5: of two receives that both match a message, the one that was posted first receives it, whether it names
/// the source or not.
#[test]
fn receives_match_in_the_order_in_which_they_were_posted() {
    passes_always(2, |process| async move {
        let world = process.mpi.engine().comm_world();
        let pattern = process.shared_random.borrow_mut().below(64);
        let lengths = [3, 900, 20_000, 0, 64, 5];
        if process.rank == Rank(0) {
            let mut sent = Vec::new();
            for (id, bytes) in (0..).zip(lengths) {
                let data = Buffer::from_bytes(&content(id, bytes));
                sent.push(process.mpi.send(world, Rank(1), TAG, &data));
                process.pause().await;
            }
            for each in sent {
                each.await.expect("the other rank lives");
            }
            return;
        }
        let mut posted = Vec::new();
        for (at, &length) in lengths.iter().enumerate() {
            let named = pattern >> at & 1 == 1;
            let source = if named { Source::Rank(Rank(0)) } else { Source::Any };
            let tag = if named { TagSelector::Any } else { TagSelector::Tag(TAG) };
            let buffer = poisoned(length);
            posted.push((process.mpi.receive(world, source, tag, &buffer), buffer));
            process.pause().await;
        }
        for (id, ((receive, buffer), bytes)) in (0..).zip(posted.into_iter().zip(lengths)) {
            assert_status(receive.await.expect("the other rank lives"), Rank(0), TAG, bytes);
            assert_content(&buffer, id, bytes);
        }
    });
}

/// Seed 13909 of `deaths`: a planned death came after its rank had exited, and before the node daemon saw the exit.
#[test]
fn a_job_ends_whether_a_planned_death_comes_before_or_after_the_exit_of_its_rank() {
    let script = program(|process: Process| async move {
        if process.rank == Rank(0) {
            let world = process.mpi.engine().comm_world();
            let never = process.mpi.receive(world, Source::Rank(Rank(1)), TagSelector::Any, &poisoned(0));
            never.await.expect_err("rank 1 sends nothing");
        }
    });
    let (mut died, mut exited) = (0, 0);
    for seed in 0..600 {
        let mut cluster = Cluster::new(seed, 2, script.clone());
        let manner = Manner::Ends(Ending::Signalled(9));
        let death = PlannedDeath { number: 1, manner, when: When::Step(seed % 30), calls_while_dying: 5 };
        cluster.plan_deaths(Killer::new(2, vec![death]), Rules::default());
        match cluster.run() {
            Ok(summary) if summary.deaths > 0 => died += 1,
            Ok(_) => exited += 1,
            Err(report) => panic!("{report}"),
        }
    }
    assert!(died > 100 && exited > 100, "{died} deaths before the exit, {exited} after");
}
