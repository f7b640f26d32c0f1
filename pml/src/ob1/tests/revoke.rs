// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Communicators that are revoked. The tests play the engine: they revoke channels, at once or when the report comes.

use super::fabric::{CHUNKS, CONTROL, Cluster, DATA, Node, identity, pattern, rank, request, tag};
use crate::{Channel, End, Error, Lent, SendMode, Started, State, Status};
use mend_base::{ContextKind, Instant, PeerIndex, Random, Rank, Source, TagSelector};
use mend_datatype::TypedBuffer;
use mend_transport::{Buffer, UserMemory};

const LARGE: usize = 100_000;
const REVOKED: State = State::Done(Err(Error::Revoked));
const SENT: State = State::Done(Ok(Status::EMPTY));

/// The first communicator, whose context ids all know.
fn known(cluster: &mut Cluster) -> Vec<Channel> {
    let on = cluster.open(1, ContextKind::PointToPoint);
    for (from, to) in (0..on.len()).flat_map(|from| (0..on.len()).map(move |to| (from, to))) {
        cluster.send(from, on[from], to as u32, 0, b"hello");
        cluster.settle();
        cluster.receive(to, on[to], rank(from as u32), tag(0), 8);
    }
    on
}

fn revoke(cluster: &mut Cluster, at: usize, on: Channel) {
    cluster.nodes[at].ob1.revoke(on);
    assert!(cluster.nodes[at].ob1.is_revoked(on));
}

fn progress(cluster: &mut Cluster, nodes: &[usize]) {
    for &at in nodes {
        cluster.progress_at(at);
    }
}

/// Makes progress at both until the condition holds.
fn until(cluster: &mut Cluster, condition: impl Fn(&Cluster) -> bool) {
    for call in 0.. {
        if condition(cluster) {
            return;
        }
        assert!(call < 100_000, "it never comes to that");
        progress(cluster, &[0, 1]);
    }
}

/// Nothing is stored, sent or received any more.
fn assert_quiet(cluster: &Cluster, at: usize, case: u64) {
    let counts = cluster.nodes[at].ob1.open_counts();
    assert_eq!((counts.unexpected, counts.early, counts.held_bytes), (0, 0, 0), "case {case}: {at}");
    assert_eq!((counts.incoming, counts.pending_cts, counts.unsent), (0, 0, 0), "case {case}: {at}");
}

// Rows RV3, RV5, RV12
#[test]
fn receives_without_a_match_end_and_so_does_all_that_is_started_later_on_this_communicator_alone() {
    let mut cluster = Cluster::new(2, 1);
    let (on, other) = (known(&mut cluster), cluster.open(2, ContextKind::PointToPoint));
    let named = cluster.receive(0, on[0], rank(1), tag(1), 8).0;
    let wildcard = cluster.receive(0, on[0], Source::Any, TagSelector::Any, 8).0;
    let elsewhere = cluster.receive(0, other[0], Source::Any, tag(1), 8).0;
    cluster.send(0, on[0], 1, 5, b"x");
    cluster.settle();
    assert!(matches!(cluster.send(0, on[0], 1, 5, b"x"), Started::Done(_)), "sends need no queue");
    cluster.settle();
    (0..2).for_each(|_| revoke(&mut cluster, 0, on[0]));
    let large = pattern(1, LARGE);
    let later = [
        cluster.send(0, on[0], 1, 1, b"x"),
        cluster.send(0, on[0], 1, 1, &large),
        cluster.send_as(0, on[0], 1, 1, b"x", SendMode::Synchronous),
        cluster.send(0, on[0], 0, 1, b"to itself"),
        cluster.receive(0, on[0], rank(1), tag(1), 8).0,
        cluster.receive(0, on[0], Source::Any, tag(1), 8).0,
    ];
    for ended in later.into_iter().chain([named, wildcard]) {
        assert!(matches!(ended, Started::Running(_)), "the wait reports it");
        assert_eq!(cluster.poll(0, ended), REVOKED);
    }
    assert!(cluster.fabric.borrow().queues[0][1][DATA].is_empty(), "nothing is sent");
    cluster.send(1, other[1], 0, 1, b"x");
    cluster.settle();
    assert!(matches!(cluster.poll(0, elsewhere), State::Done(Ok(_))));
    assert_eq!(cluster.nodes[0].ob1.active(on[0]), 0);
    assert!(!cluster.nodes[1].ob1.is_revoked(on[1]), "the engine passes the news on");
    assert_quiet(&cluster, 0, 0);
    cluster.assert_clean();
}

// Row RV9, X-4.4, X-4.5
#[test]
fn what_has_matched_goes_on_to_its_end_at_both_sides() {
    for case in 0..60 {
        let mut cluster = Cluster::new(2, case);
        let on = known(&mut cluster);
        let bytes = pattern(case, LARGE);
        let (received, buffer) = cluster.receive(1, on[1], rank(0), tag(1), LARGE);
        let sent = cluster.send(0, on[0], 1, 1, &bytes);
        // The CTS, or the first chunks, are under way.
        until(&mut cluster, |cluster| match case % 2 {
            0 => !cluster.fabric.borrow().queues[1][0][CONTROL].is_empty(),
            _ => !cluster.fabric.borrow().queues[0][1][CHUNKS].is_empty(),
        });
        let order = [[1, 0], [0, 1]][case as usize / 2 % 2];
        revoke(&mut cluster, order[0], on[order[0]]);
        progress(&mut cluster, &[0, 1][..case as usize % 3 % 2]);
        revoke(&mut cluster, order[1], on[order[1]]);
        cluster.settle();
        assert_eq!(cluster.poll(0, sent), SENT);
        assert!(matches!(cluster.poll(1, received), State::Done(Ok(_))));
        assert_eq!(buffer.to_vec(), bytes);
        cluster.assert_clean();
        (0..2).for_each(|at| assert_quiet(&cluster, at, case));
    }
}

/// The receiver has revoked: its refusal is the first news, or the sender knows already.
// Row RV8, X-4.1
#[test]
fn a_refused_send_ends_with_the_revocation_whichever_of_refusal_and_notice_comes_first() {
    for case in 0..80 {
        let [notice_first, before, large] = [1, 2, 4].map(|bit| case & bit != 0);
        let mut cluster = Cluster::new(2, case);
        let on = known(&mut cluster);
        let bytes = pattern(case, if large { LARGE } else { 8 });
        let mode = if large { SendMode::Standard } else { SendMode::Synchronous };
        if !before {
            revoke(&mut cluster, 1, on[1]);
        }
        let sent = cluster.send_as(0, on[0], 1, 1, &bytes, mode);
        if before {
            until(&mut cluster, |cluster| cluster.nodes[1].ob1.open_counts().unexpected == 1);
            revoke(&mut cluster, 1, on[1]);
        }
        if notice_first {
            until(&mut cluster, |cluster| cluster.fabric.borrow().queues[0][1][DATA].is_empty());
            revoke(&mut cluster, 0, on[0]);
            let is_known = matches!(cluster.poll(0, sent), State::Running | REVOKED);
            assert!(is_known, "only the receiver knows whether it has matched");
        }
        cluster.settle();
        assert_eq!(cluster.poll(0, sent), REVOKED, "case {case}");
        let reported = &cluster.nodes[0].reported.revoked;
        assert!(reported.iter().all(|report| *report == (PeerIndex(1), identity(1))));
        assert!(!notice_first || reported.len() <= 1);
        assert!(notice_first || reported.len() == 1, "case {case}: it is the notice itself");
        cluster.assert_clean();
        (0..2).for_each(|at| assert_quiet(&cluster, at, case));
    }
}

/// Sends, receives and revocations at random moments, and the reports obeyed like notices.
// Row RV8, Row RV9, X-4.1
#[test]
fn no_synchronous_or_large_send_succeeds_without_its_receive_and_all_end() {
    let (mut matched, mut refused) = (0, 0);
    for seed in 0..600 {
        let mut random = Random(seed);
        let mut cluster = Cluster::new(2, seed);
        cluster.fabric.borrow_mut().busy_once_in = [0, 3][random.below(2) as usize];
        let other = cluster.open(2, ContextKind::PointToPoint);
        let on =
            if random.once_in(2) { known(&mut cluster) } else { cluster.open(1, ContextKind::PointToPoint) };
        let (mut pairs, mut elsewhere) = (vec![], vec![]);
        let deadlines = [random.below(60), random.below(60)];
        for step in 0..60 {
            for at in 0..2 {
                let told = cluster.nodes[at].reported.revoked.pop();
                if deadlines[at] == step || told.is_some() {
                    revoke(&mut cluster, at, on[at]);
                }
            }
            if random.once_in(3) {
                let from = random.below(2) as usize;
                let (to, label) = (1 - from, 100 + step as i32);
                let bytes = pattern(seed, [8, 4096, 30_000][random.below(3) as usize]);
                let mode = [SendMode::Synchronous, SendMode::Standard][random.below(2) as usize];
                let answered = mode == SendMode::Synchronous || bytes.len() > 4096;
                let sent = cluster.send_as(from, on[from], to as u32, label, &bytes, mode);
                (0..random.below(6)).for_each(|_| progress(&mut cluster, &[0, 1]));
                let received = cluster.receive(to, on[to], rank(from as u32), tag(label), bytes.len());
                pairs.push((from, answered, sent, received, bytes));
                let sent = cluster.send(from, other[from], to as u32, label, b"other");
                let received = cluster.receive(to, other[to], rank(from as u32), tag(label), 5).0;
                elsewhere.push((from, sent, received));
            }
            progress(&mut cluster, &[random.below(2) as usize]);
        }
        (0..2).for_each(|at| revoke(&mut cluster, at, on[at]));
        cluster.settle();
        for (from, answered, sent, (received, buffer), bytes) in pairs {
            let (sent, received) = (cluster.poll(from, sent), cluster.poll(1 - from, received));
            let is_received = matches!(received, State::Done(Ok(_)));
            assert!(is_received || received == REVOKED, "seed {seed}: {received:?}");
            assert!(sent == SENT || sent == REVOKED, "seed {seed}: {sent:?}");
            if answered {
                assert_eq!(sent == SENT, is_received, "seed {seed}: {sent:?}, {received:?}");
            }
            assert!(!is_received || buffer.to_vec() == bytes, "seed {seed}");
            matched += u32::from(answered && is_received);
            refused += u32::from(answered && !is_received);
        }
        // Row RV12
        for (from, sent, received) in elsewhere {
            assert_eq!(cluster.poll(from, sent), SENT, "seed {seed}");
            assert!(matches!(cluster.poll(1 - from, received), State::Done(Ok(_))), "seed {seed}");
        }
        cluster.assert_clean();
        (0..2).for_each(|at| assert_quiet(&cluster, at, seed));
    }
    assert!(matched > 500 && refused > 500, "{matched} matched, {refused} refused");
}

#[test]
fn a_queued_send_ends_without_being_sent_and_leaves_no_hole_in_the_sequence() {
    let mut cluster = Cluster::new(2, 3);
    let on = known(&mut cluster);
    let rts = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
    cluster.fabric.borrow_mut().room = 1;
    let queued = [cluster.send(0, on[0], 1, 2, b"x"), cluster.send(0, on[0], 1, 3, &pattern(1, LARGE))];
    revoke(&mut cluster, 0, on[0]);
    queued.iter().for_each(|&queued| assert_eq!(cluster.poll(0, queued), REVOKED));
    assert_eq!(cluster.poll(0, rts), State::Running, "it has left");
    cluster.fabric.borrow_mut().room = 64;
    // The cancellation has the number behind the RTS.
    cluster.nodes[0].ob1.cancel(request(rts));
    assert!(matches!(cluster.poll(0, rts), State::Done(Ok(Status { cancelled: true, .. }))));
    cluster.settle();
    assert_eq!(
        cluster.nodes[1].ob1.open_counts().unexpected,
        0,
        "the RTS is cancelled, and nothing else came"
    );
    cluster.assert_clean();
    (0..2).for_each(|at| assert_quiet(&cluster, at, 0));
}

#[test]
fn a_send_to_an_unconnected_peer_ends_with_the_revocation() {
    let mut cluster = Cluster::new(2, 4);
    cluster.connects = false;
    let on = cluster.open(1, ContextKind::PointToPoint);
    let waits = cluster.send(0, on[0], 1, 1, b"x");
    revoke(&mut cluster, 0, on[0]);
    assert_eq!(cluster.poll(0, waits), REVOKED);
    assert!(cluster.nodes[0].ob1.idle() && cluster.nodes[0].ob1.queues.congested() == 0);
}

// Row RV5
#[test]
fn unexpected_messages_are_dropped_their_senders_refused_and_their_memory_given_back() {
    let mut cluster = Cluster::new(2, 5);
    let on = known(&mut cluster);
    let eager = cluster.send(0, on[0], 1, 1, &pattern(1, 4000));
    let synchronous = cluster.send_as(0, on[0], 1, 1, b"x", SendMode::Synchronous);
    let large = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
    cluster.settle();
    assert!(cluster.nodes[1].ob1.open_counts().held_bytes > 4000);
    revoke(&mut cluster, 1, on[1]);
    assert_quiet_but_answers(&cluster, 1);
    cluster.settle();
    assert_eq!(cluster.poll(0, eager), SENT, "it ended before");
    [synchronous, large].iter().for_each(|&refused| assert_eq!(cluster.poll(0, refused), REVOKED));
    cluster.assert_clean();
}

fn assert_quiet_but_answers(cluster: &Cluster, at: usize) {
    let counts = cluster.nodes[at].ob1.open_counts();
    assert_eq!((counts.unexpected, counts.early, counts.held_bytes), (0, 0, 0));
}

/// The sender does not know yet, and sends on by id and by name.
#[test]
fn every_message_that_arrives_on_a_revoked_channel_consumes_its_number() {
    for by_id in [true, false] {
        for seed in 0..20 {
            let mut cluster = Cluster::new(2, seed);
            cluster.fabric.borrow_mut().busy_once_in = 3;
            let on = if by_id { known(&mut cluster) } else { cluster.open(1, ContextKind::PointToPoint) };
            revoke(&mut cluster, 1, on[1]);
            for number in 0..40 {
                let mode = [SendMode::Standard, SendMode::Synchronous][number % 2];
                let sent = cluster.send_as(0, on[0], 1, 1, &pattern(1, number * 100), mode);
                cluster.settle();
                let expected = if number % 2 == 0 { SENT } else { REVOKED };
                assert_eq!(cluster.poll(0, sent), expected, "seed {seed}");
            }
            assert_eq!(cluster.nodes[0].reported.revoked.len(), 20, "each refusal while it is news");
            cluster.assert_clean();
            (0..2).for_each(|at| assert_quiet(&cluster, at, seed));
        }
    }
}

// Row RV14
#[test]
fn early_messages_of_a_communicator_that_is_created_as_revoked_are_dropped_and_refused() {
    let mut cluster = Cluster::new(2, 6);
    let on = cluster.open_at(0, 5, ContextKind::PointToPoint);
    let eager = cluster.send(0, on, 1, 1, b"first");
    let refused = [
        cluster.send_as(0, on, 1, 1, b"x", SendMode::Synchronous),
        cluster.send(0, on, 1, 1, &pattern(1, LARGE)),
    ];
    cluster.settle();
    assert_eq!(cluster.nodes[1].ob1.open_counts().early, 3);
    let late = cluster.open_at(1, 5, ContextKind::PointToPoint);
    revoke(&mut cluster, 1, late);
    assert_quiet_but_answers(&cluster, 1);
    cluster.settle();
    assert_eq!(cluster.poll(0, eager), SENT);
    refused.iter().for_each(|&refused| assert_eq!(cluster.poll(0, refused), REVOKED));
    assert_eq!(cluster.nodes[0].reported.revoked[0], (PeerIndex(1), identity(5)));
    cluster.assert_clean();
}

// Row RV15
#[test]
fn probes_raise_the_revocation_and_a_pending_failure_has_no_precedence() {
    let mut cluster = Cluster::new(3, 7);
    let on = known(&mut cluster);
    cluster.send(1, on[1], 0, 1, b"unread");
    cluster.settle();
    assert!(cluster.probe(0, on[0], rank(1), tag(1)).is_some());
    // Row RV10
    cluster.nodes[0].end(2, End::Failed);
    revoke(&mut cluster, 0, on[0]);
    for from in [rank(1), rank(2), Source::Any] {
        assert_eq!(cluster.nodes[0].probe(on[0], from, tag(1)), Err(Error::Revoked));
    }
    let no_such_rank = cluster.nodes[0].probe(on[0], rank(3), tag(1));
    assert_eq!(no_such_rank, Err(Error::NoSuchRank(Rank(3))), "a mistake in an argument is found first");
}

// Row RV10, X-4.3
#[test]
fn the_death_of_a_peer_after_a_revocation_ends_with_the_revocation_and_one_before_it_with_the_death() {
    for dies_first in [true, false] {
        let mut cluster = Cluster::new(3, 8);
        let on = known(&mut cluster);
        let large = pattern(1, 1 << 20);
        let pending = cluster.receive(0, on[0], Source::Any, tag(9), 8).0;
        let posted = cluster.receive(0, on[0], rank(1), tag(8), 8).0;
        let waiting = cluster.send_as(0, on[0], 1, 1, b"x", SendMode::Synchronous);
        let streaming = cluster.send(0, on[0], 1, 2, &large);
        cluster.receive(1, on[1], rank(0), tag(2), 1 << 20);
        let (matched, buffer) = cluster.receive(0, on[0], rank(1), tag(3), 1 << 20);
        cluster.send(1, on[1], 0, 3, &large);
        until(&mut cluster, |cluster| {
            buffer.to_vec()[0] != 0 && !cluster.fabric.borrow().queues[0][1][CHUNKS].is_empty()
        });
        if dies_first {
            cluster.nodes[0].end(1, End::Failed);
            assert_eq!(cluster.poll(0, pending), State::PendingFailure);
        }
        revoke(&mut cluster, 0, on[0]);
        let before = buffer.to_vec();
        if !dies_first {
            for goes_on in [waiting, streaming, matched] {
                assert_eq!(cluster.poll(0, goes_on), State::Running);
            }
            cluster.nodes[0].end(1, End::Failed);
        }
        assert_eq!(cluster.poll(0, pending), REVOKED);
        let ended = if dies_first { State::Done(Err(Error::ProcFailed(Rank(1)))) } else { REVOKED };
        for operation in [posted, waiting, streaming, matched] {
            assert_eq!(cluster.poll(0, operation), ended);
        }
        cluster.settle();
        assert_eq!(buffer.to_vec(), before);
        let later = cluster.send(0, on[0], 1, 1, b"x");
        assert_eq!(cluster.poll(0, later), REVOKED);
        assert!(cluster.nodes[0].ob1.rendezvous.streams().is_empty());
    }
}

#[test]
fn a_receive_that_polls_ends_with_the_revocation_and_takes_no_message() {
    for message in [None, Some(SendMode::Standard), Some(SendMode::Synchronous)] {
        let mut cluster = Cluster::new(2, 9);
        let on = known(&mut cluster);
        let buffer = Buffer::zeroed(8);
        let data = TypedBuffer::bytes(UserMemory::of_buffer(&buffer));
        let mut polling = cluster.nodes[1].ob1.begin_polling(on[1], rank(0), tag(1), data);
        assert!(polling.has_ring());
        revoke(&mut cluster, 1, on[1]);
        let sent = message.map(|mode| cluster.send_as(0, on[0], 1, 1, b"the text", mode));
        let Node { ob1, ends, port, reported } = &mut cluster.nodes[1];
        let polled = ob1.poll_once(Lent { net: port, ends }, Instant(0), &mut polling, reported);
        assert_eq!(polled.is_some(), sent.is_some());
        let started = match polled {
            Some(started) => started.unwrap(),
            None => ob1.post(Lent { net: port, ends }, polling).unwrap(),
        };
        assert_eq!(cluster.poll(1, started), REVOKED);
        assert_eq!(buffer.to_vec(), [0; 8]);
        // The number is consumed: the next message is no garbage.
        let next = cluster.send_as(0, on[0], 1, 1, b"x", SendMode::Synchronous);
        cluster.settle();
        assert_eq!(cluster.poll(0, next), REVOKED);
        if let Some(sent) = sent {
            let expected = if message == Some(SendMode::Standard) { SENT } else { REVOKED };
            assert_eq!(cluster.poll(0, sent), expected);
        }
        cluster.assert_clean();
    }
}

/// Freeing is local, and later messages are still refused as revoked: by id until it is confirmed, and by name for ever.
// Row RV8
#[test]
fn a_revoked_communicator_is_freed_at_once_and_refuses_as_revoked_for_ever() {
    for seed in 0..20 {
        for by_id in [true, false] {
            let mut cluster = Cluster::new(2, seed);
            let on = if by_id { known(&mut cluster) } else { cluster.open(1, ContextKind::PointToPoint) };
            cluster.receive(1, on[1], rank(0), tag(1), 8);
            revoke(&mut cluster, 1, on[1]);
            cluster.nodes[1].ob1.close(on[1]);
            assert!(cluster.nodes[1].ob1.channels.is_empty(), "Trap 11: nothing is waited for");
            for bytes in [8, LARGE] {
                let sent = cluster.send_as(0, on[0], 1, 1, &pattern(1, bytes), SendMode::Synchronous);
                cluster.settle();
                assert_eq!(cluster.poll(0, sent), REVOKED, "seed {seed}");
            }
            assert_eq!(cluster.nodes[1].ob1.contexts.ids_in_use(), 0);
            cluster.assert_clean();
            (0..2).for_each(|at| assert_quiet(&cluster, at, seed));
        }
    }
}

#[test]
fn a_freed_communicator_goes_with_the_answers_to_its_sends_once_it_is_revoked() {
    let mut cluster = Cluster::new(2, 10);
    let on = known(&mut cluster);
    let posted = cluster.receive(0, on[0], rank(1), tag(7), 8).0;
    let synchronous = cluster.send_as(0, on[0], 1, 1, b"x", SendMode::Synchronous);
    cluster.nodes[0].ob1.close(on[0]);
    revoke(&mut cluster, 0, on[0]);
    assert_eq!(cluster.poll(0, posted), REVOKED);
    assert_eq!(cluster.nodes[0].ob1.channels.len(), 1, "the receiver decides about the send");
    cluster.settle();
    revoke(&mut cluster, 1, on[1]);
    cluster.settle();
    assert_eq!(cluster.poll(0, synchronous), REVOKED);
    assert!(cluster.nodes[0].ob1.channels.is_empty());
    cluster.nodes[0].ob1.revoke(on[0]);
    assert!(!cluster.nodes[0].ob1.is_revoked(on[0]), "a stale channel is nothing");
}

#[test]
fn requests_of_a_revoked_channel_are_cancelled_freed_and_given_up_as_any_other() {
    let mut cluster = Cluster::new(2, 11);
    let on = known(&mut cluster);
    let large = pattern(1, LARGE);
    let others = cluster.nodes[0].ob1.requests.len();
    let sends = [1, 2, 3, 4].map(|label| cluster.send(0, on[0], 1, label, &large));
    let (matched, buffer) = cluster.receive(1, on[1], rank(0), tag(4), LARGE);
    let posted = [5, 6, 7].map(|label| cluster.receive(0, on[0], rank(1), tag(label), 8).0);
    until(&mut cluster, |cluster| cluster.nodes[1].ob1.open_counts().unexpected == 3);
    revoke(&mut cluster, 0, on[0]);
    let ob1 = &mut cluster.nodes[0].ob1;
    ob1.cancel(request(sends[0]));
    assert!(ob1.continue_from_copy(request(sends[1])).unwrap().is_some());
    ob1.abandon(request(sends[2]));
    assert!(ob1.free_request(request(sends[3])).is_some());
    // These have ended.
    ob1.cancel(request(posted[0]));
    assert!(ob1.free_request(request(posted[1])).is_some());
    ob1.abandon(request(posted[2]));
    assert_eq!(cluster.poll(0, posted[0]), REVOKED, "too late to cancel it");
    assert!(matches!(cluster.poll(0, sends[0]), State::Done(Ok(Status { cancelled: true, .. }))));
    cluster.settle();
    revoke(&mut cluster, 1, on[1]);
    cluster.settle();
    assert!(matches!(cluster.poll(1, matched), State::Done(Ok(_))));
    assert_eq!(buffer.to_vec(), large, "what has matched goes on without its handle");
    assert_eq!(cluster.nodes[0].ob1.rendezvous.owed(PeerIndex(1)), 0);
    assert_eq!(cluster.nodes[0].ob1.requests.len(), others + 2, "the two whose handles stand");
    cluster.assert_clean();
    (0..2).for_each(|at| assert_quiet(&cluster, at, 0));
}

/// A match that its sender takes back before a byte was sent is none.
#[test]
fn a_receive_that_loses_its_match_on_a_revoked_channel_is_not_posted_again() {
    for (seed, is_cancelled) in (0..20).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut cluster = Cluster::new(2, seed);
        let on = known(&mut cluster);
        let sent = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
        let matched = cluster.receive(1, on[1], Source::Any, TagSelector::Any, LARGE).0;
        until(&mut cluster, |cluster| !cluster.fabric.borrow().queues[1][0][CONTROL].is_empty());
        revoke(&mut cluster, 1, on[1]);
        assert_eq!(cluster.poll(1, matched), State::Running);
        cluster.nodes[0].ob1.cancel(request(sent));
        if is_cancelled {
            cluster.nodes[1].ob1.cancel(request(matched));
        }
        cluster.settle();
        let expected = if is_cancelled { State::Done(Ok(Status::CANCELLED)) } else { REVOKED };
        assert_eq!(cluster.poll(1, matched), expected, "seed {seed}");
        cluster.assert_clean();
        (0..2).for_each(|at| assert_quiet(&cluster, at, seed));
    }
}

/// The owner of a collective operation gives up what has matched, and what has not.
#[test]
fn operations_that_are_given_up_on_a_revoked_collective_channel_end_the_others_with_the_revocation() {
    for seed in 0..20 {
        let config = crate::Config { streams_max: 1, ..super::fabric::TEST_CONFIG };
        let mut cluster = Cluster::with(2, seed, config);
        let on = cluster.open(1, ContextKind::Collective);
        let large = pattern(1, LARGE);
        let sends = [1, 2].map(|label| cluster.send(0, on[0], 1, label, &large));
        let receives = [1, 2].map(|label| cluster.receive(1, on[1], rank(0), tag(label), LARGE).0);
        until(&mut cluster, |cluster| cluster.nodes[1].ob1.rendezvous.pending() == 1);
        revoke(&mut cluster, 1, on[1]);
        receives.iter().for_each(|&receive| cluster.nodes[1].ob1.abandon(request(receive)));
        cluster.settle();
        assert_eq!(cluster.poll(0, sends[0]), SENT, "its bytes are dropped");
        assert_eq!(cluster.poll(0, sends[1]), REVOKED, "it was refused");
        assert_eq!(cluster.nodes[0].reported.revoked, [(PeerIndex(1), identity(1))]);
        cluster.assert_clean();
    }
}

// Row PP8, X-4.12
#[test]
fn living_pairs_go_on_beside_a_collective_context_whose_messages_are_dropped() {
    for (seed, revoked) in (0..20).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut cluster = Cluster::new(3, seed);
        let user = known(&mut cluster);
        let collective = cluster.open(1, ContextKind::Collective);
        // Rank 1 does not know, and sends on.
        cluster.nodes[0].end(2, End::Failed);
        if revoked {
            revoke(&mut cluster, 0, collective[0]);
        }
        let bytes = pattern(seed, LARGE);
        for label in 0..10 {
            let mode = [SendMode::Standard, SendMode::Synchronous][label as usize % 2];
            cluster.send_as(1, collective[1], 0, label, &bytes[..label as usize * 600], mode);
            let sent = cluster.send(1, user[1], 0, label, &bytes);
            let (received, buffer) = cluster.receive(0, user[0], rank(1), tag(label), LARGE);
            cluster.settle();
            assert_eq!(cluster.poll(1, sent), SENT, "seed {seed}");
            assert!(matches!(cluster.poll(0, received), State::Done(Ok(_))), "seed {seed}");
            assert_eq!(buffer.to_vec(), bytes, "seed {seed}");
        }
        cluster.assert_clean();
        assert_quiet(&cluster, 0, seed);
    }
}

#[test]
fn a_creation_context_goes_on_beside_revoked_ones_and_without_its_dead_members() {
    let mut cluster = Cluster::new(3, 12);
    let user = known(&mut cluster);
    let kinds = [ContextKind::Collective, ContextKind::Creation];
    let [collective, creation] = kinds.map(|kind| cluster.open(1, kind));
    for at in 0..2 {
        [user[at], collective[at]].iter().for_each(|&on| revoke(&mut cluster, at, on));
        cluster.nodes[at].end(2, End::Failed);
    }
    let bytes = pattern(1, LARGE);
    let sent = cluster.send(0, creation[0], 1, 1, &bytes);
    let (received, buffer) = cluster.receive(1, creation[1], rank(0), tag(1), LARGE);
    let from_dead = cluster.receive(1, creation[1], rank(2), tag(1), 8).0;
    let to_dead = cluster.send(1, creation[1], 2, 1, b"x");
    cluster.settle();
    assert_eq!(cluster.poll(0, sent), SENT);
    assert!(matches!(cluster.poll(1, received), State::Done(Ok(_))));
    assert_eq!(buffer.to_vec(), bytes);
    for needs_dead in [from_dead, to_dead] {
        assert_eq!(cluster.poll(1, needs_dead), State::Done(Err(Error::ProcFailed(Rank(2)))));
    }
    for at in 0..2 {
        [user[at], collective[at], creation[at]].iter().for_each(|&on| cluster.nodes[at].ob1.close(on));
    }
    cluster.settle();
    assert!(cluster.nodes[..2].iter().all(|node| node.ob1.channels.is_empty()));
    assert_eq!(cluster.nodes[0].ob1.contexts.ids_in_use(), 0);
    cluster.assert_clean();
}

#[test]
fn messages_for_a_creation_context_wait_for_it_and_are_refused_when_the_communicator_is_freed() {
    let kinds = [ContextKind::Creation, ContextKind::Leaders];
    for (opens, kind) in [true, false].into_iter().flat_map(|opens| kinds.map(|kind| (opens, kind))) {
        let mut cluster = Cluster::new(2, 13);
        let user = known(&mut cluster);
        let creation = cluster.open_at(0, 1, kind);
        let sent = cluster.send_as(0, creation, 1, 1, b"x", SendMode::Synchronous);
        cluster.settle();
        assert_eq!(cluster.nodes[1].ob1.open_counts().early, 1);
        if opens {
            let late = cluster.open_at(1, 1, kind);
            assert!(matches!(cluster.receive(1, late, rank(0), tag(1), 8).0, Started::Done(_)));
            cluster.nodes[1].ob1.close(late);
        }
        revoke(&mut cluster, 1, user[1]);
        cluster.nodes[1].ob1.close(user[1]);
        cluster.settle();
        let expected = if opens { SENT } else { State::Done(Err(Error::PeerFreed(Rank(1)))) };
        assert_eq!(cluster.poll(0, sent), expected);
        // Also those that come later, and not as revoked: the context was not.
        let later = cluster.send_as(0, creation, 1, 1, b"x", SendMode::Synchronous);
        cluster.settle();
        assert_eq!(cluster.poll(0, later), State::Done(Err(Error::PeerFreed(Rank(1)))));
        assert!(cluster.nodes[0].reported.revoked.is_empty());
        cluster.assert_clean();
        (0..2).for_each(|at| assert_quiet(&cluster, at, 0));
    }
}

#[test]
fn a_send_on_a_communicator_that_its_peer_never_created_ends_and_a_collective_one_asks_why() {
    for (kind, error) in [
        (ContextKind::PointToPoint, Error::NotCreated(Rank(1))),
        (ContextKind::Collective, Error::PeerFreed(Rank(1))),
        (ContextKind::Creation, Error::PeerFreed(Rank(1))),
    ] {
        let mut cluster = Cluster::new(2, 14);
        let on = cluster.open_at(0, 5, kind);
        let before = cluster.send(0, on, 1, 1, &pattern(1, LARGE));
        cluster.settle();
        cluster.nodes[1].ob1.never_open(identity(5));
        let after = cluster.send_as(0, on, 1, 1, b"x", SendMode::Synchronous);
        cluster.settle();
        for refused in [before, after] {
            assert_eq!(cluster.poll(0, refused), State::Done(Err(error)));
        }
        // Row RV10: where it is revoked here, that is the reason.
        if kind == ContextKind::PointToPoint {
            let waits = cluster.send_as(0, on, 1, 1, b"x", SendMode::Synchronous);
            revoke(&mut cluster, 0, on);
            cluster.settle();
            assert_eq!(cluster.poll(0, waits), REVOKED);
        }
        assert!(cluster.nodes[1].ob1.contexts.early() == 0);
        cluster.assert_clean();
    }
}

/// Revocations and a death at random moments of random traffic among three.
// Row RV5
#[test]
fn on_a_revoked_communicator_everything_ends_whoever_dies() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut cluster = Cluster::new(3, seed);
        cluster.fabric.borrow_mut().busy_once_in = [0, 3][random.below(2) as usize];
        let on = cluster.open(1, ContextKind::PointToPoint);
        let mut started = vec![];
        let death = random.below(200);
        for step in 0..220 {
            let alive = if step < death { 3 } else { 2 };
            let (at, other) = (random.below(alive) as usize, random.below(3) as u32);
            let length = [4, 4096, 60_000][random.below(3) as usize];
            let from = if random.once_in(3) { Source::Any } else { rank(other) };
            match random.below(30) {
                0..5 => started.push((at, cluster.send(at, on[at], other, 1, &pattern(1, length)))),
                5..10 => started.push((at, cluster.receive(at, on[at], from, tag(1), length).0)),
                10 => revoke(&mut cluster, at, on[at]),
                _ => drop(cluster.progress_at(at)),
            }
            if step == death {
                cut_off(&mut cluster, 2);
                (0..2).for_each(|at| cluster.nodes[at].end(2, End::Failed));
            }
        }
        (0..2).for_each(|at| revoke(&mut cluster, at, on[at]));
        cut_off(&mut cluster, 2);
        for at in (0..1_500).map(|_| random.below(2) as usize) {
            cluster.progress_at(at);
        }
        for (at, request) in started.into_iter().filter(|(at, _)| *at < 2) {
            let state = cluster.poll(at, request);
            let ended = matches!(
                state,
                State::Done(Ok(_) | Err(Error::Revoked | Error::ProcFailed(Rank(2)) | Error::Truncated(_)))
            );
            assert!(ended, "seed {seed}: {state:?}");
        }
        cluster.lifecycle_check();
        for (at, node) in cluster.nodes[..2].iter().enumerate() {
            assert!(node.reported.errors.is_empty(), "seed {seed}: {:?}", node.reported.errors);
            assert_quiet(&cluster, at, seed);
        }
    }
}

/// The process is cut off: what it had sent is handed up first.
fn cut_off(cluster: &mut Cluster, at: usize) {
    while !cluster.fabric.borrow().queues[at][..2].iter().flatten().all(|queue| queue.is_empty()) {
        progress(cluster, &[0, 1]);
    }
    for queues in &mut cluster.fabric.borrow_mut().queues {
        queues[at].iter_mut().for_each(|queue| queue.clear());
    }
}
