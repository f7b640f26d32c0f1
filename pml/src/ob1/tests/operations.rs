// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collective operations that are given up, and those that never begin: poison, inquiries, refusals, and what is forgotten.

use super::fabric::{Cluster, pattern, rank, request, tag};
use crate::envelope::{ChannelName, Envelope, Form, Note, Packet};
use crate::{Channel, End, Error, Started, State};
use mend_base::{ContextKind, PeerIndex, Random, Rank, Tag};
use mend_transport::{Btl, Cause, MessageClass};

const LARGE: usize = 1 << 20;

/// A collective channel by which all processes know each other.
fn known(cluster: &mut Cluster) -> Vec<Channel> {
    let on = cluster.open(1, ContextKind::Collective);
    begin(cluster, &on, 0..on.len());
    for (from, to) in (0..on.len()).flat_map(|from| (0..on.len()).map(move |to| (from, to))) {
        let sent = cluster.send(from, on[from], to as u32, 0, b"hello");
        cluster.settle();
        let (received, _) = cluster.receive(to, on[to], rank(from as u32), tag(0), 8);
        for (at, started) in [(from, sent), (to, received)] {
            if let Started::Running(request) = started {
                cluster.nodes[at].ob1.release(request);
            }
        }
    }
    (0..on.len()).for_each(|at| cluster.nodes[at].ob1.end_operation(on[at], Tag(0)));
    on
}

/// The next operation begins at these processes. Its tag at the last of them.
fn begin(cluster: &mut Cluster, on: &[Channel], at: impl IntoIterator<Item = usize>) -> i32 {
    let begun = at.into_iter().map(|at| cluster.nodes[at].ob1.begin_operation(on[at]).expect("memory"));
    begun.last().expect("some process").0
}

fn give_up(cluster: &mut Cluster, on: &[Channel], at: usize, of: i32, failed: Option<u32>, owed: &[u32]) {
    let (ob1, lent) = cluster.nodes[at].lend();
    ob1.give_up_operation(lent, on[at], Tag(of), failed.map(Rank), owed.iter().copied().map(Rank));
}

fn poisoned(by: u32, failed: Option<u32>) -> State {
    State::Done(Err(Error::Poisoned { by: Rank(by), failed: failed.map(Rank) }))
}

/// Nothing of any operation is left at these processes.
fn assert_nothing_left(cluster: &Cluster, at: impl IntoIterator<Item = usize>) {
    for at in at {
        let counts = cluster.nodes[at].ob1.open_counts();
        assert_eq!((counts.unexpected, counts.about_operations, counts.unsent), (0, 0, 0), "{at}");
        assert_eq!(counts.held_bytes, 0, "{at}");
    }
}

#[test]
fn poison_ends_posted_and_later_receives_of_its_operation_behind_the_data() {
    for seed in 0..50 {
        let mut cluster = Cluster::new(3, seed);
        let on = known(&mut cluster);
        let first = begin(&mut cluster, &on, 0..2);
        let other = begin(&mut cluster, &on, 0..2);
        let early = Random(seed).once_in(2);
        let before: Vec<_> =
            if early { (0..3).map(|_| receive(&mut cluster, &on, first)).collect() } else { vec![] };
        let unrelated = receive(&mut cluster, &on, other);
        cluster.send(0, on[0], 1, first, b"data");
        give_up(&mut cluster, &on, 0, first, Some(2), &[1]);
        cluster.settle();
        let after: Vec<_> =
            if early { vec![] } else { (0..3).map(|_| receive(&mut cluster, &on, first)).collect() };
        let receives: Vec<_> = before.into_iter().chain(after).collect();
        assert!(matches!(cluster.poll(1, receives[0]), State::Done(Ok(_))), "the data came first");
        for &receive in &receives[1..] {
            assert_eq!(cluster.poll(1, receive), poisoned(0, Some(2)));
        }
        assert_eq!(cluster.poll(1, unrelated), State::Running, "another operation");
        cluster.nodes[1].ob1.abandon(request(unrelated));
        for (at, of) in [(0, first), (0, other), (1, first), (1, other)] {
            cluster.nodes[at].ob1.end_operation(on[at], Tag(of));
        }
        assert_nothing_left(&cluster, 0..2);
        cluster.assert_clean();
    }
}

fn receive(cluster: &mut Cluster, on: &[Channel], of: i32) -> Started {
    cluster.receive(1, on[1], rank(0), tag(of), 8).0
}

#[test]
fn a_send_of_an_operation_that_its_receiver_gave_up_is_refused_with_the_cause() {
    for (seed, failed) in (0..20).flat_map(|seed| [(seed, Some(2)), (seed, None)]) {
        let mut cluster = Cluster::new(3, seed);
        let on = known(&mut cluster);
        let of = begin(&mut cluster, &on, 0..2);
        let before = cluster.send(1, on[1], 0, of, &pattern(1, LARGE));
        cluster.settle();
        assert_eq!(cluster.poll(1, before), State::Running);
        give_up(&mut cluster, &on, 0, of, failed, &[]);
        let after = cluster.send(1, on[1], 0, of, &pattern(1, LARGE));
        cluster.settle();
        cluster.nodes[0].ob1.end_operation(on[0], Tag(of));
        let ended = cluster.send(1, on[1], 0, of, &pattern(1, LARGE));
        cluster.send(1, on[1], 0, of, b"dropped");
        cluster.settle();
        let expected = [poisoned(0, failed), poisoned(0, failed), poisoned(0, None)];
        assert_eq!([before, after, ended].map(|send| cluster.poll(1, send)), expected);
        assert_nothing_left(&cluster, 0..2);
        cluster.assert_clean();
    }
}

#[test]
fn what_a_member_that_knows_a_failure_never_begins_is_poisoned_once_for_all_later_operations() {
    let mut cluster = Cluster::new(3, 7);
    let on = known(&mut cluster);
    cluster.nodes[0].end(2, End::Failed);
    let first = cluster.nodes[1].ob1.begin_operation(on[1]).expect("memory").0;
    for _ in 0..100 {
        let (ob1, lent) = cluster.nodes[0].lend();
        ob1.refuse_operation_and_later(lent, on[0], [Rank(1), Rank(2), Rank(0)]);
        cluster.settle();
    }
    assert_eq!(cluster.nodes[1].ob1.open_counts().about_operations, 1);
    for of in first..first + 3 {
        let receive = receive(&mut cluster, &on, of);
        assert_eq!(cluster.poll(1, receive), poisoned(0, Some(2)), "{of}");
    }
    // What the other sends for operations that never begin is dropped, and a send that waits is refused.
    for of in first..first + 100 {
        cluster.send(1, on[1], 0, of, b"dropped");
        let waits = cluster.send(1, on[1], 0, of, &pattern(1, LARGE));
        cluster.settle();
        assert_eq!(cluster.poll(1, waits), poisoned(0, Some(2)));
    }
    assert_nothing_left(&cluster, 0..1);
    cluster.assert_clean();
}

/// Rule 7: rank 1 waits in an operation for rank 0, which does not begin it.
#[test]
fn who_waits_for_a_member_that_never_begins_asks_it_when_a_failure_is_published() {
    // The failure is published first at the one that waits, or at the other.
    for (seed, first) in (0..20).flat_map(|seed| [(seed, 0), (seed, 1)]) {
        let mut cluster = Cluster::new(3, seed);
        let on = known(&mut cluster);
        let of = begin(&mut cluster, &on, 1..2);
        let posted = receive(&mut cluster, &on, of);
        cluster.nodes[first].end(2, End::Failed);
        cluster.settle();
        assert_eq!(cluster.poll(1, posted), State::Running);
        cluster.nodes[1 - first].end(2, End::Failed);
        let late = receive(&mut cluster, &on, of);
        cluster.settle();
        for receive in [posted, late] {
            assert_eq!(cluster.poll(1, receive), poisoned(0, Some(2)));
        }
        assert_nothing_left(&cluster, 0..2);
        cluster.assert_clean();
    }
}

#[test]
fn an_inquiry_about_an_operation_that_begins_is_answered_by_its_message() {
    for (seed, begins_first) in (0..20).flat_map(|seed| [(seed, true), (seed, false)]) {
        let mut cluster = Cluster::new(3, seed);
        let on = known(&mut cluster);
        let of = begin(&mut cluster, &on, 1..2);
        if begins_first {
            begin(&mut cluster, &on, 0..1);
        }
        let posted = receive(&mut cluster, &on, of);
        cluster.nodes[1].end(2, End::Failed);
        cluster.settle();
        if !begins_first {
            assert_eq!(cluster.nodes[0].ob1.open_counts().about_operations, 1);
            begin(&mut cluster, &on, 0..1);
        }
        cluster.nodes[0].end(2, End::Failed);
        cluster.settle();
        assert_eq!(cluster.poll(1, posted), State::Running);
        cluster.send(0, on[0], 1, of, b"data");
        cluster.settle();
        assert!(matches!(cluster.poll(1, posted), State::Done(Ok(_))));
        assert_nothing_left(&cluster, 0..2);
        cluster.assert_clean();
    }
}

#[test]
fn an_inquiry_about_a_communicator_that_is_freed_or_never_created_is_answered() {
    for freed in [true, false] {
        let mut cluster = Cluster::new(3, 5);
        let on = cluster.open_at(1, 5, ContextKind::Collective);
        let of = cluster.nodes[1].ob1.begin_operation(on).expect("memory").0;
        let posted = cluster.receive(1, on, rank(0), tag(of), 8).0;
        let there = freed.then(|| cluster.open_at(0, 5, ContextKind::Collective));
        cluster.nodes[1].end(2, End::Failed);
        cluster.settle();
        assert_eq!(cluster.poll(1, posted), State::Running);
        match there {
            Some(there) => cluster.nodes[0].ob1.close(there),
            None => cluster.nodes[0].ob1.begin_finalize(),
        }
        cluster.settle();
        assert_eq!(cluster.poll(1, posted), poisoned(0, None));
        assert_nothing_left(&cluster, 0..1);
        cluster.assert_clean();
    }
}

/// The member that is asked has taken part, and has freed the communicator since: its message is on its way.
#[test]
fn the_answer_of_one_that_has_freed_the_communicator_does_not_overtake_its_message() {
    for seed in 0..50 {
        let mut cluster = Cluster::new(3, seed);
        let on = known(&mut cluster);
        let of = begin(&mut cluster, &on, 0..2);
        let posted = receive(&mut cluster, &on, of);
        // The inquiry leaves, and is not read before the other has freed the communicator.
        cluster.nodes[1].end(2, End::Failed);
        cluster.progress_at(1);
        cluster.send(0, on[0], 1, of, b"data");
        cluster.nodes[0].ob1.end_operation(on[0], Tag(of));
        cluster.nodes[0].ob1.close(on[0]);
        cluster.settle();
        assert!(
            matches!(cluster.poll(1, posted), State::Done(Ok(_))),
            "seed {seed}: {:?}",
            cluster.poll(1, posted)
        );
        assert_nothing_left(&cluster, 0..1);
        cluster.assert_clean();
    }
}

/// The revocation itself ends the receive that asks.
#[test]
fn what_is_stored_about_operations_goes_with_the_revocation() {
    let mut cluster = Cluster::new(3, 6);
    let on = known(&mut cluster);
    let of = begin(&mut cluster, &on, 1..2);
    let posted = receive(&mut cluster, &on, of);
    cluster.nodes[1].end(2, End::Failed);
    cluster.settle();
    assert_eq!(cluster.nodes[0].ob1.open_counts().about_operations, 1);
    cluster.nodes[0].ob1.revoke(on[0]);
    assert_nothing_left(&cluster, 0..1);
    cluster.nodes[1].ob1.revoke(on[1]);
    assert_eq!(cluster.poll(1, posted), State::Done(Err(Error::Revoked)));
    cluster.assert_clean();
}

// Row CO12
#[test]
fn a_failure_ends_no_operation_that_does_not_need_the_dead_and_no_message_of_the_program() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(3, seed);
        let user = cluster.open(2, ContextKind::PointToPoint);
        let on = known(&mut cluster);
        let of = begin(&mut cluster, &on, 0..2);
        let next = of + 1;
        // Of the next operation one message is here unread, one has its RTS here, one comes later.
        cluster.send(1, on[1], 0, next, b"unread");
        let before = cluster.send(1, on[1], 0, next, &pattern(1, LARGE));
        cluster.settle();
        let runs = cluster.receive(0, on[0], rank(1), tag(of), LARGE).0;
        let named = cluster.receive(0, user[0], rank(1), tag(6), 8).0;
        let dead = cluster.receive(0, on[0], rank(2), tag(of), 8).0;
        cluster.nodes[0].end(2, End::Failed);
        assert_eq!(cluster.poll(0, dead), State::Done(Err(Error::ProcFailed(Rank(2)))));
        assert_eq!(cluster.nodes[0].ob1.open_counts().unexpected, 0, "the next operation never begins");
        let after = cluster.send(1, on[1], 0, next, &pattern(1, LARGE));
        let sent = cluster.send(1, on[1], 0, of, &pattern(1, LARGE));
        cluster.send(1, user[1], 0, 6, b"message");
        cluster.settle();
        for refused in [before, after] {
            assert_eq!(cluster.poll(1, refused), poisoned(0, Some(2)));
        }
        assert!(matches!(cluster.poll(1, sent), State::Done(Ok(_))));
        assert!(matches!(cluster.poll(0, runs), State::Done(Ok(_))));
        assert!(matches!(cluster.poll(0, named), State::Done(Ok(_))));
        assert_nothing_left(&cluster, 0..2);
        cluster.assert_clean();
    }
}

#[test]
fn a_stream_that_is_given_up_with_its_operation_ends_with_the_cause() {
    for seed in 0..40 {
        let mut cluster = Cluster::new(3, seed);
        let on = known(&mut cluster);
        let of = begin(&mut cluster, &on, 0..2);
        let sent = cluster.send(0, on[0], 1, of, &pattern(1, LARGE));
        let (matched, _) = cluster.receive(1, on[1], rank(0), tag(of), LARGE);
        (0..Random(seed).below(40)).for_each(|_| _ = [0, 1].map(|at| cluster.progress_at(at)));
        if cluster.poll(0, sent) != State::Running {
            continue;
        }
        cluster.nodes[0].ob1.abandon(request(sent));
        let at_once = Random(seed).once_in(2);
        if at_once {
            give_up(&mut cluster, &on, 0, of, Some(2), &[1]);
        }
        cluster.settle();
        if !at_once {
            assert_eq!(cluster.poll(1, matched), State::Running, "the cause is not known yet");
            give_up(&mut cluster, &on, 0, of, Some(2), &[1]);
            cluster.settle();
        }
        assert_eq!(cluster.poll(1, matched), poisoned(0, Some(2)));
        (0..2).for_each(|at| cluster.nodes[at].ob1.end_operation(on[at], Tag(of)));
        assert_nothing_left(&cluster, 0..2);
        cluster.assert_clean();
    }
}

#[test]
fn poison_on_another_context_of_another_rank_or_about_no_member_is_garbage() {
    let by = |context_kind, source, failed| {
        let mut cluster = Cluster::new(3, 3);
        let on = cluster.open(4, context_kind);
        cluster.send(0, on[0], 1, 0, b"hello");
        cluster.settle();
        let name = cluster.nodes[0].ob1.channels.get(on[0].0).expect("it is open").name();
        let envelope = Envelope {
            channel: ChannelName::Named(name),
            sequence: 1,
            tag: Tag(0),
            source: Rank(source),
            form: Form::Eager,
        };
        let note = Note::Poison { failed: Some(Rank(failed)), and_later: false };
        let header = Packet::AboutOperation(envelope, note).write();
        let sent =
            cluster.nodes[0].port.send(1, MessageClass::Data, crate::AM_ID, header.as_bytes(), 0, |_| {});
        sent.expect("there is room");
        cluster.settle();
        cluster.nodes[1].reported.errors.clone()
    };
    let garbage = [(PeerIndex(0), Cause::Garbage)];
    assert_eq!(by(ContextKind::Collective, 0, 2), []);
    assert_eq!(by(ContextKind::PointToPoint, 0, 2), garbage);
    assert_eq!(by(ContextKind::Collective, 2, 2), garbage);
    assert_eq!(by(ContextKind::Collective, 0, 3), garbage);
}
