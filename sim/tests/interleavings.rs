// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interleavings of design "Interleavings" as scripted jobs, each under 200 schedules. docs/dev/interleavings.md says where the others
//! are tested.

use mend_base::{Rank, Source, Tag, TagSelector};
use mend_daemon::Rules;
use mend_mpi::{CommKey, Detail, Error, ErrorClass, Hints, WaitMode};
use mend_sim::killer::Killer;
use mend_sim::network::Faults;
use mend_sim::oracle::{assert_content, content, poisoned};
use mend_sim::programs::program;
use mend_sim::{Cluster, Process};
use mend_transport::Buffer;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;

const TAG: Tag = Tag(5);
const ANY_TAG: TagSelector = TagSelector::Any;

/// Runs `script` on `size` ranks under 200 schedules. Its ranks may die.
fn passes<F: Future<Output = ()> + 'static>(size: u32, script: impl Fn(Process) -> F + 'static) {
    passes_with(size, Faults::default(), script);
}

fn passes_with<F: Future<Output = ()> + 'static>(
    size: u32,
    faults: Faults,
    script: impl Fn(Process) -> F + 'static,
) {
    let script = program(script);
    for seed in 0..200 {
        let mut cluster = Cluster::new(seed, size, script.clone());
        cluster.plan_deaths(Killer::new(size, vec![]), Rules::default());
        cluster.inject(faults);
        if let Err(report) = cluster.run() {
            panic!("{report}");
        }
    }
}

fn world(process: &Process) -> CommKey {
    process.mpi.engine().comm_world()
}

/// Waits until this process knows that these members of WORLD have failed.
async fn until_known(process: &Process, failed: &[u32]) {
    let is_known = || {
        let known = process.mpi.failed(world(process)).expect("WORLD exists");
        failed.iter().all(|rank| known.contains(&Rank(*rank)))
    };
    while !is_known() {
        process.pause().await;
    }
}

fn flag(value: u32) -> Arc<Buffer> {
    Buffer::from_bytes(&value.to_le_bytes())
}

fn value(flag: &Buffer) -> u32 {
    let bytes = flag.to_vec();
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn class<T>(result: &Result<T, Error>) -> ErrorClass {
    result.as_ref().err().map_or(ErrorClass::Success, |error| error.class)
}

async fn shrink(process: &Process, comm: CommKey) -> CommKey {
    process.mpi.shrink(comm).await.expect("a shrink succeeds").expect("a survivor is a member")
}

/// A barrier among survivors that all live.
async fn barrier(process: &Process, comm: CommKey) {
    process.mpi.barrier(comm).await.expect("all members live");
}

//
#[test]
fn a_member_dies_after_the_last_agreement_and_the_others_leave() {
    passes(4, |process| async move {
        let agreed = process.mpi.agree(world(&process), &flag(1)).await;
        if process.rank == Rank(1) {
            process.die().await;
        }
        assert!(matches!(class(&agreed), ErrorClass::Success | ErrorClass::ProcFailed));
    });
}

//
#[test]
fn a_failure_between_the_start_of_a_receive_and_its_wait_ends_the_wait() {
    passes(3, |process| async move {
        match process.rank.0 {
            0 => {
                let buffer = poisoned(8);
                let receive = process.mpi.receive(world(&process), Source::Rank(Rank(1)), ANY_TAG, &buffer);
                until_known(&process, &[1]).await;
                assert_eq!(class(&receive.await), ErrorClass::ProcFailed);
            }
            1 => process.die().await,
            _ => {}
        }
    });
}

// Row PP10
#[test]
fn a_wildcard_receive_survives_two_failures_and_takes_the_message_that_comes_then() {
    passes(4, |process| async move {
        let (mpi, world) = (process.mpi.clone(), world(&process));
        let told = |from: u32| Source::Rank(Rank(from));
        match process.rank.0 {
            0 => {
                let buffer = poisoned(40);
                let mut receive = mpi.receive(world, Source::Any, TagSelector::Tag(TAG), &buffer);
                for (dead, next) in [(1, 2), (2, 3)] {
                    until_known(&process, &[dead]).await;
                    let pending = (&mut receive).await;
                    assert_eq!(class(&pending), ErrorClass::ProcFailedPending);
                    mpi.acknowledge(world, None).expect("WORLD exists");
                    mpi.send(world, Rank(next), Tag(1), &poisoned(0)).await.expect("that rank lives");
                }
                let status = receive.await.expect("a message has come");
                assert_eq!(status.source, Some(Rank(3)));
                assert_content(&buffer, 9, 40);
            }
            1 => process.die().await,
            2 => {
                mpi.receive(world, told(0), TagSelector::Tag(Tag(1)), &poisoned(0)).await.expect("it lives");
                process.die().await;
            }
            _ => {
                mpi.receive(world, told(0), TagSelector::Tag(Tag(1)), &poisoned(0)).await.expect("it lives");
                let data = Buffer::from_bytes(&content(9, 40));
                mpi.send(world, Rank(0), TAG, &data).await.expect("it lives");
            }
        }
    });
}

// Row EH4
#[test]
fn a_wait_for_requests_on_a_revoked_communicator_and_on_one_with_a_dead_member_names_the_first() {
    passes(3, |process| async move {
        let (mpi, world) = (process.mpi.clone(), world(&process));
        let other = mpi.dup(world).await.expect("all live").expect("a member");
        if process.rank == Rank(1) {
            mpi.receive(world, Source::Rank(Rank(0)), ANY_TAG, &poisoned(0)).await.expect("it lives");
            process.die().await;
        }
        if process.rank == Rank(0) {
            let (first, second) = (poisoned(8), poisoned(8));
            let mut both = [
                mpi.receive(other, Source::Rank(Rank(2)), ANY_TAG, &first),
                mpi.receive(world, Source::Rank(Rank(1)), ANY_TAG, &second),
            ];
            mpi.revoke(other).expect("it exists");
            mpi.send(world, Rank(1), TAG, &poisoned(0)).await.expect("it lives");
            until_known(&process, &[1]).await;
            let report = mpi.wait_for(WaitMode::All, &mut both).await.result.expect("the handles are valid");
            let (at, error) = report.first_error.expect("both fail");
            assert_eq!((at, error.class), (0, ErrorClass::Revoked));
        } else {
            let ended = mpi.receive(other, Source::Rank(Rank(0)), ANY_TAG, &poisoned(8)).await;
            assert_eq!(class(&ended), ErrorClass::Revoked);
        }
        mpi.free(other).expect("it exists");
    });
}

//
#[test]
fn a_truncation_and_a_failure_in_one_waitall_are_both_reported() {
    passes(3, |process| async move {
        let (mpi, world) = (process.mpi.clone(), world(&process));
        match process.rank.0 {
            0 => {
                let (short, never) = (poisoned(3), poisoned(8));
                let mut both = [
                    mpi.receive(world, Source::Rank(Rank(2)), ANY_TAG, &short),
                    mpi.receive(world, Source::Rank(Rank(1)), ANY_TAG, &never),
                ];
                let mut classes = Vec::new();
                while both.iter().any(|each| !each.is_null()) {
                    let report = mpi.wait_for(WaitMode::All, &mut both).await;
                    classes.extend(report.result.expect("valid").first_error.map(|(_, error)| error.class));
                }
                let truncated = (&mut both[0]).await;
                assert_eq!(class(&truncated), ErrorClass::Truncate);
                assert_eq!(class(&(&mut both[1]).await), ErrorClass::ProcFailed);
                assert!(!classes.is_empty());
            }
            1 => process.die().await,
            _ => drop(mpi.send(world, Rank(0), TAG, &Buffer::from_bytes(&content(1, 60))).await),
        }
    });
}

// Row CC1
#[test]
fn a_revocation_during_a_duplication_has_one_outcome_and_all_return() {
    passes(4, |process| async move {
        let (mpi, world) = (process.mpi.clone(), world(&process));
        let parent = mpi.dup(world).await.expect("all live").expect("a member");
        let begun = mpi.dup(parent);
        if process.rank == Rank(2) {
            process.pause().await;
            mpi.revoke(parent).expect("it exists");
        }
        let made = begun.await;
        process.assert_creation_is_uniform(world, 1, made.is_ok());
        assert!(matches!(class(&made), ErrorClass::Success | ErrorClass::Revoked));
        if let Ok(Some(made)) = made {
            barrier(&process, made).await;
            mpi.free(made).expect("it exists");
        }
        mpi.free(parent).expect("it exists");
    });
}

// Row CO1
#[test]
fn a_leaf_that_returned_early_learns_of_the_failure_in_the_next_operation() {
    passes(5, |process| async move {
        let (mpi, world) = (process.mpi.clone(), world(&process));
        let data = Buffer::from_bytes(&content(3, 100));
        let first = mpi.bcast(world, Rank(0), &data).await;
        if process.rank == Rank(0) {
            process.die().await;
        }
        let second = mpi.barrier(world).await;
        assert_eq!(class(&second), ErrorClass::ProcFailed, "nobody completes a barrier that the root missed");
        assert!(matches!(class(&first), ErrorClass::Success | ErrorClass::ProcFailed));
    });
}

// Row CO4
#[test]
fn two_operations_that_overlap_both_end_where_a_member_is_dead() {
    passes(4, |process| async move {
        let (mpi, world) = (process.mpi.clone(), world(&process));
        if process.rank == Rank(3) {
            process.pause().await;
            process.die().await;
        }
        let both = [mpi.barrier(world), mpi.barrier(world)];
        for each in both {
            assert_eq!(class(&each.await), ErrorClass::ProcFailed);
        }
    });
}

// Row AG6
#[test]
fn an_agreement_on_a_revoked_communicator_gives_its_flag() {
    passes(4, |process| async move {
        let (mpi, world) = (process.mpi.clone(), world(&process));
        if process.rank.0 % 2 == 0 {
            mpi.revoke(world).expect("WORLD exists");
        }
        let flag = flag(!(1 << process.rank.0));
        mpi.agree(world, &flag).await.expect("all members live");
        assert_eq!(value(&flag), !0b1111);
    });
}

//
#[test]
fn agreements_of_overlapping_communicators_run_at_once_in_any_order() {
    passes(4, |process| async move {
        let (mpi, world) = (process.mpi.clone(), world(&process));
        let other =
            mpi.split(world, Some(0), -(process.rank.0 as i32)).await.expect("all live").expect("a member");
        let order = if process.rank.0 % 2 == 0 { [world, other] } else { [other, world] };
        // The first two agreements of one communicator, and the first of the other, cross those of other ranks.
        let flags = [(order[0], flag(7)), (order[1], flag(11)), (order[1], flag(13)), (order[0], flag(5))];
        let begun = flags.each_ref().map(|(comm, flag)| mpi.agree(*comm, flag));
        for each in begun.into_iter().rev() {
            each.await.expect("all members live");
        }
        assert_eq!(flags.each_ref().map(|(_, flag)| value(flag)), [7 & 11, 7 & 11, 13 & 5, 13 & 5]);
        mpi.free(other).expect("it exists");
    });
}

//
#[test]
fn false_evidence_during_agreements_changes_no_result_and_nobody_is_fenced() {
    let faults = Faults { false_evidence_once_in: 5, ..Faults::default() };
    passes_with(5, faults, |process| async move {
        for round in 0..4 {
            let flag = flag(!(1 << (process.rank.0 + round)));
            process.mpi.agree(world(&process), &flag).await.expect("all members live");
            assert_eq!(value(&flag), !(0b11111 << round));
        }
    });
}

//
#[test]
fn members_that_die_between_the_decision_and_their_creation_of_the_communicator_leave_the_others_one() {
    passes(5, |process| async move {
        let (mpi, world) = (process.mpi.clone(), world(&process));
        if process.rank == Rank(1) {
            process.die().await;
        }
        // It has decided, or not; it never returns.
        let begun = mpi.shrink(world);
        if process.rank == Rank(0) {
            for _ in 0..process.below(20) {
                process.pause().await;
            }
            process.die().await;
        }
        let made = begun.await.expect("a shrink succeeds").expect("a member");
        let again = shrink(&process, made).await;
        let members: Vec<u32> = mpi
            .engine()
            .communicator(again)
            .expect("it exists")
            .group
            .iter()
            .map(|peer| peer.number())
            .collect();
        assert!(members == [2, 3, 4] || members == [0, 2, 3, 4], "{members:?}");
        mpi.free(made).expect("it exists");
        mpi.free(again).expect("it exists");
    });
}

//
#[test]
fn a_message_on_the_new_communicator_may_come_before_it_exists_and_after_its_parent_was_freed() {
    passes(4, |process| async move {
        let (mpi, world) = (process.mpi.clone(), world(&process));
        let parent = mpi.dup(world).await.expect("all live").expect("a member");
        let made = shrink(&process, parent).await;
        mpi.free(parent).expect("it exists");
        let (next, before) = (Rank((process.rank.0 + 1) % 4), Rank((process.rank.0 + 3) % 4));
        let buffer = poisoned(700);
        let data = Buffer::from_bytes(&content(process.rank.0.into(), 700));
        let sent = mpi.send(made, next, TAG, &data);
        mpi.receive(made, Source::Rank(before), ANY_TAG, &buffer).await.expect("it lives");
        assert_content(&buffer, before.0.into(), 700);
        sent.await.expect("it lives");
        mpi.free(made).expect("it exists");
    });
}

//
#[test]
fn two_shrinks_of_overlapping_communicators_may_begin_in_opposite_orders() {
    passes(4, |process| async move {
        let (mpi, world) = (process.mpi.clone(), world(&process));
        let other = mpi.dup(world).await.expect("all live").expect("a member");
        if process.rank == Rank(3) {
            process.die().await;
        }
        let order = if process.rank.0 % 2 == 0 { [world, other] } else { [other, world] };
        let both = [mpi.shrink(order[0]), mpi.shrink(order[1])];
        let [first, second] = both;
        for begun in [second, first] {
            let made = begun.await.expect("a shrink succeeds").expect("a member");
            // Rank 3 may have died after it took part.
            assert!((3..=4).contains(&mpi.size(made).expect("it exists")));
            mpi.free(made).expect("it exists");
        }
        mpi.free(other).expect("it exists");
    });
}

// Row CO4
#[test]
fn who_is_in_a_collective_while_others_shrink_gets_the_failure() {
    passes(5, |process| async move {
        let (mpi, world) = (process.mpi.clone(), world(&process));
        if process.rank == Rank(4) {
            process.die().await;
        }
        if process.rank.0 % 2 == 0 {
            assert_eq!(class(&mpi.barrier(world).await), ErrorClass::ProcFailed);
        }
        let made = shrink(&process, world).await;
        mpi.free(made).expect("it exists");
    });
}

//
#[test]
fn the_only_survivor_shrinks_to_itself() {
    passes(5, |process| async move {
        let world = world(&process);
        if process.rank != Rank(3) {
            for _ in 0..process.below(6) {
                process.pause().await;
            }
            process.die().await;
        }
        until_known(&process, &[0, 1, 2, 4]).await;
        let made = shrink(&process, world).await;
        assert_eq!(process.mpi.size(made), Some(1));
        barrier(&process, made).await;
        process.mpi.free(made).expect("it exists");
    });
}

//
#[test]
fn a_shrink_is_the_same_whether_the_failures_were_acknowledged_or_not() {
    passes(4, |process| async move {
        let world = world(&process);
        if process.rank == Rank(2) {
            process.die().await;
        }
        until_known(&process, &[2]).await;
        if process.rank == Rank(0) {
            process.mpi.acknowledge(world, None).expect("WORLD exists");
        }
        let made = shrink(&process, world).await;
        assert_eq!(process.mpi.size(made), Some(3));
        barrier(&process, made).await;
        process.mpi.free(made).expect("it exists");
    });
}

//
#[test]
fn the_parent_may_be_freed_while_its_shrink_runs() {
    passes(4, |process| async move {
        let (mpi, world) = (process.mpi.clone(), world(&process));
        let parent = mpi.dup(world).await.expect("all live").expect("a member");
        let begun = mpi.shrink(parent);
        mpi.free(parent).expect("it exists");
        let made = begun.await.expect("a shrink succeeds").expect("a member");
        barrier(&process, made).await;
        mpi.free(made).expect("it exists");
    });
}

// Row CC3
#[test]
fn the_parent_may_be_freed_while_it_is_duplicated() {
    passes(4, |process| async move {
        let (mpi, world) = (process.mpi.clone(), world(&process));
        let key = -(process.rank.0 as i32);
        let parent = mpi.split(world, Some(0), key).await.expect("all live").expect("a member");
        let begun = mpi.dup(parent);
        mpi.free(parent).expect("it exists");
        let made = begun.await.expect("all live").expect("a member");
        barrier(&process, made).await;
        mpi.free(made).expect("it exists");
    });
}

// Row CC1
#[test]
fn a_creation_that_fails_at_one_member_fails_at_all() {
    passes(4, |process| async move {
        let (mpi, world) = (process.mpi.clone(), world(&process));
        if process.rank == Rank(3) {
            process.die().await;
        }
        if process.rank == Rank(0) {
            until_known(&process, &[3]).await;
        }
        let made = mpi.dup(world).await;
        assert_eq!(class(&made), ErrorClass::ProcFailed);
    });
}

//
#[test]
fn acknowledging_so_many_failures_acknowledges_the_first_ones_of_this_communicator() {
    passes(4, |process| async move {
        let (mpi, world) = (process.mpi.clone(), world(&process));
        let other =
            mpi.split(world, Some(0), -(process.rank.0 as i32)).await.expect("all live").expect("a member");
        if process.rank.0 > 1 {
            process.die().await;
        }
        until_known(&process, &[2, 3]).await;
        let listed = mpi.failed(world).expect("WORLD exists");
        assert_eq!(mpi.acknowledge(world, Some(1)), Ok(1));
        let acknowledged = mpi.engine().acknowledged(world).expect("WORLD exists");
        assert_eq!(acknowledged, listed[..1]);
        assert_eq!(mpi.engine().acknowledged(other).expect("it exists"), [], "each communicator has its own");
        // The same failures, by the ranks of the other one.
        let there: Vec<Rank> = mpi.failed(other).expect("it exists");
        assert_eq!(there, listed.iter().map(|rank| Rank(3 - rank.0)).collect::<Vec<_>>());
        mpi.free(other).expect("it exists");
    });
}

// Row AG4
#[test]
fn an_agreement_has_the_acknowledgements_of_its_start() {
    passes(4, |process| async move {
        let (mpi, world) = (process.mpi.clone(), world(&process));
        if process.rank == Rank(3) {
            process.die().await;
        }
        until_known(&process, &[3]).await;
        let begun = mpi.agree(world, &flag(1));
        mpi.acknowledge(world, None).expect("WORLD exists");
        assert_eq!(class(&begun.await), ErrorClass::ProcFailed, "it was not acknowledged at the start");
        mpi.agree(world, &flag(1)).await.expect("all have acknowledged it");
    });
}

// Row IK2
#[test]
fn an_implicit_and_an_explicit_revocation_at_once_are_one() {
    passes(4, |process| async move {
        let (mpi, world) = (process.mpi.clone(), world(&process));
        let hints = Hints::from_pairs([(&b"mpi_error_range"[..], &b"group"[..])]);
        let comm = mpi.dup_with_hints(world, hints).await.expect("all live").expect("a member");
        if process.rank == Rank(1) {
            process.die().await;
        }
        if process.rank == Rank(2) {
            mpi.revoke(comm).expect("it exists");
        }
        let ended =
            mpi.receive(comm, Source::Rank(Rank((process.rank.0 + 2) % 4)), ANY_TAG, &poisoned(1)).await;
        let detail = ended.expect_err("nobody sends").detail;
        assert!(matches!(detail, Detail::Revoked | Detail::ProcFailed(_)), "{detail:?}");
        mpi.free(comm).expect("it exists");
    });
}

/// Makes a communicator of 5 ranks, of which rank 4 dies. Rank 3 does not get it, nor do those whose messages to it need an answer. `None`:
/// this member does not get it.
async fn made_without_rank_3(process: &Process) -> Option<CommKey> {
    let (mpi, world) = (&process.mpi, world(process));
    mpi.set_hints(world, Hints::from_pairs([(&b"mpi_error_uniform"[..], &b"local"[..])])).expect("it exists");
    match process.rank.0 {
        3 => until_known(process, &[4]).await,
        4 => {
            process.pause().await;
            process.die().await;
        }
        _ => {}
    }
    let made = mpi.dup(world).await;
    assert!(matches!(class(&made), ErrorClass::Success | ErrorClass::ProcFailed), "{made:?}");
    assert!(process.rank != Rank(3) || made.is_err(), "it knew of the failure");
    until_known(process, &[4]).await;
    made.ok().flatten()
}

// Row IK3. Rank 0 alone learned that rank 3 has no such communicator: nobody asked rank 3 any more.
#[test]
fn repair_goes_on_when_who_has_asked_a_member_without_the_communicator_dies() {
    passes(5, |process| async move {
        let mpi = process.mpi.clone();
        let made = made_without_rank_3(&process).await;
        if let Some(made) = made {
            let agreed = mpi.agree(made, &flag(1)).await;
            assert!(matches!(class(&agreed), ErrorClass::ProcFailed | ErrorClass::Other), "{agreed:?}");
        }
        process.agree(1, true).await;
        if process.rank == Rank(0) {
            process.die().await;
        }
        if let Some(made) = made {
            let shrunk =
                mpi.shrink(made).await.expect("Row SH1: a shrink succeeds").expect("this rank lives");
            let agreed = mpi.agree(shrunk, &flag(1)).await;
            assert!(!matches!(class(&agreed), ErrorClass::Revoked), "{agreed:?}");
            mpi.free(shrunk).expect("it exists");
            mpi.free(made).expect("it exists");
        }
        process.agree(2, true).await;
    });
}

/// How many interleavings each chapter has. The others have none, or are of later work.
const COUNTS: [(u32, u32); 10] =
    [(1, 12), (2, 8), (3, 12), (4, 12), (5, 8), (6, 16), (7, 8), (8, 5), (9, 4), (15, 9)];

#[test]
fn every_interleaving_has_its_row_and_every_test_that_a_row_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/dev/interleavings.md")).expect("the page is there");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| X-")).collect();
    let names = rows.iter().filter_map(|row| row.split(' ').nth(1));
    let wanted = COUNTS
        .into_iter()
        .flat_map(|(chapter, count)| (1..=count).map(move |at| format!("X-{chapter}.{at}")));
    assert_eq!(names.collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
    let mut tests = 0;
    for row in rows {
        let (mut file, quoted) = (String::new(), row.split('`').skip(1).step_by(2));
        for word in quoted {
            if word.contains('/') {
                file = std::fs::read_to_string(root.join(word))
                    .unwrap_or_else(|_| panic!("{word} is not there"));
            } else if word.contains('_') && !word.starts_with("MPI") {
                // A test of the conformance suite is generic over the transport.
                let is_there =
                    ["(", "<F: Fixture>("].iter().any(|end| file.contains(&format!("fn {word}{end}")));
                assert!(is_there, "{row}: there is no test {word}");
                tests += 1;
            }
        }
    }
    assert!(tests > 50, "{tests} tests are named");
}
