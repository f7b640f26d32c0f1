// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One thing at a time.

use super::fabric::{Cluster, DATA, pattern, rank, request, tag};
use crate::{Ends, Error, Lent, SendMode, Started, State, Status};
use mend_base::{ContextKind, Rank, Source, Tag, TagSelector};
use mend_datatype::TypedBuffer;
use mend_transport::{Buffer, UserMemory};

fn status(source: u32, tag: i32, bytes: u64) -> Status {
    Status { source: Some(Rank(source)), tag: Tag(tag), bytes, cancelled: false }
}

#[test]
fn a_small_message_goes_at_once_when_its_peer_is_known_and_takes_no_request() {
    let mut cluster = Cluster::new(2, 1);
    let on = cluster.open(1, ContextKind::PointToPoint);
    cluster.send(0, on[0], 1, 5, b"first contact");
    cluster.settle();
    let started = cluster.send(0, on[0], 1, 5, b"again");
    assert_eq!(started, Started::Done(Status::EMPTY));
    assert_eq!(cluster.fabric.borrow().queues[0][1][DATA][0].header.len(), 16);
    cluster.settle();
    for expected in ["first contact", "again"] {
        let (started, buffer) = cluster.receive(1, on[1], rank(0), tag(5), 64);
        assert_eq!(started, Started::Done(status(0, 5, expected.len() as u64)));
        assert_eq!(&buffer.to_vec()[..expected.len()], expected.as_bytes());
    }
    cluster.assert_clean();
}

#[test]
fn every_size_arrives_whole_in_every_mode_before_or_after_its_receive() {
    let sizes = [0, 1, 40, 41, 4095, 4096, 4097, 20_000, 1 << 20];
    for (seed, &size) in (0u64..).zip(sizes.iter().cycle().take(54)) {
        let mut cluster = Cluster::new(2, seed);
        let on = cluster.open(1, ContextKind::PointToPoint);
        let mode = [SendMode::Standard, SendMode::Synchronous, SendMode::Ready][seed as usize / 9 % 3];
        let bytes = pattern(seed, size);
        let receive = |cluster: &mut Cluster| cluster.receive(1, on[1], rank(0), tag(7), size);
        let early = (seed % 2 == 0).then(|| receive(&mut cluster));
        let sent = cluster.send_as(0, on[0], 1, 7, &bytes, mode);
        cluster.settle();
        if early.is_none() && (mode == SendMode::Synchronous || size > 4096) {
            assert_eq!(cluster.poll(0, sent), State::Running, "it ends before its match: {size} {mode:?}");
        }
        let (received, buffer) = early.unwrap_or_else(|| receive(&mut cluster));
        cluster.settle();
        assert_eq!(cluster.poll(0, sent), State::Done(Ok(Status::EMPTY)), "{size} {mode:?}");
        assert_eq!(cluster.poll(1, received), State::Done(Ok(status(0, 7, size as u64))), "{size} {mode:?}");
        assert_eq!(buffer.to_vec(), bytes, "{size} {mode:?}");
        assert!(cluster.nodes.iter().all(|node| node.ob1.idle()));
        cluster.assert_clean();
    }
}

#[test]
fn a_transport_without_streams_takes_large_messages_in_fragments() {
    let mut cluster = Cluster::new(2, 3);
    cluster.limit(|limits| {
        limits.abilities = 0;
        limits.chunk_bytes = 0;
        limits.message_bytes_max = 1000;
    });
    let on = cluster.open(1, ContextKind::PointToPoint);
    let bytes = pattern(1, 50_000);
    let sent = cluster.send(0, on[0], 1, 7, &bytes);
    let (received, buffer) = cluster.receive(1, on[1], rank(0), tag(7), 50_000);
    cluster.settle();
    assert_eq!(cluster.poll(0, sent), State::Done(Ok(Status::EMPTY)));
    assert_eq!(cluster.poll(1, received), State::Done(Ok(status(0, 7, 50_000))));
    assert_eq!(buffer.to_vec(), bytes);
    cluster.assert_clean();
}

#[test]
fn a_message_longer_than_its_buffer_is_truncated_and_its_status_names_its_sender() {
    for (size, room) in [(10, 4), (4096, 0), (5000, 4999), (1 << 20, 10), (5000, 0)] {
        for early in [false, true] {
            let mut cluster = Cluster::new(2, size as u64);
            let on = cluster.open(1, ContextKind::PointToPoint);
            let bytes = pattern(2, size);
            let receive =
                |cluster: &mut Cluster| cluster.receive(1, on[1], Source::Any, TagSelector::Any, room);
            let posted = early.then(|| receive(&mut cluster));
            let sent = cluster.send(0, on[0], 1, 9, &bytes);
            cluster.settle();
            let (received, buffer) = posted.unwrap_or_else(|| receive(&mut cluster));
            cluster.settle();
            let truncated = Error::Truncated(status(0, 9, room as u64));
            assert_eq!(cluster.poll(1, received), State::Done(Err(truncated)), "{size} into {room}");
            assert_eq!(
                cluster.poll(0, sent),
                State::Done(Ok(Status::EMPTY)),
                "the sender knows nothing of it"
            );
            assert_eq!(buffer.to_vec(), bytes[..room]);
            cluster.assert_clean();
        }
    }
}

#[test]
fn a_probe_sees_what_the_receive_would_take_and_takes_nothing() {
    let mut cluster = Cluster::new(3, 4);
    let on = cluster.open(1, ContextKind::PointToPoint);
    assert_eq!(cluster.probe(2, on[2], Source::Any, TagSelector::Any), None);
    cluster.send(0, on[0], 2, 1, &pattern(1, 100_000));
    cluster.settle();
    cluster.send(1, on[1], 2, 2, b"xyz");
    cluster.settle();
    for _ in 0..2 {
        let first = cluster.probe(2, on[2], Source::Any, TagSelector::Any);
        assert_eq!(first, Some(status(0, 1, 100_000)), "the one that came first");
        assert_eq!(cluster.probe(2, on[2], rank(1), TagSelector::Any), Some(status(1, 2, 3)));
        assert_eq!(cluster.probe(2, on[2], Source::Any, tag(2)), Some(status(1, 2, 3)));
        assert_eq!(cluster.probe(2, on[2], rank(1), tag(1)), None);
    }
}

#[test]
fn a_receive_is_cancelled_unless_it_has_matched() {
    let mut cluster = Cluster::new(2, 5);
    let on = cluster.open(1, ContextKind::PointToPoint);
    let (idle, _) = cluster.receive(1, on[1], rank(0), tag(1), 8);
    let (taken, buffer) = cluster.receive(1, on[1], rank(0), tag(2), 10_000);
    cluster.send(0, on[0], 1, 2, &pattern(3, 10_000));
    cluster.settle();
    for started in [idle, taken] {
        cluster.nodes[1].ob1.cancel(request(started));
    }
    let cancelled = Status { cancelled: true, ..Status::EMPTY };
    assert_eq!(cluster.poll(1, idle), State::Done(Ok(cancelled)));
    cluster.settle();
    assert_eq!(cluster.poll(1, taken), State::Done(Ok(status(0, 2, 10_000))));
    assert_eq!(buffer.to_vec(), pattern(3, 10_000));
    // What it would have matched goes to the next.
    cluster.send(0, on[0], 1, 1, b"later");
    cluster.settle();
    assert!(matches!(cluster.receive(1, on[1], rank(0), tag(1), 8).0, Started::Done(_)));
}

#[test]
fn a_detached_request_goes_on_to_its_end_and_is_forgotten() {
    let mut cluster = Cluster::new(2, 6);
    let on = cluster.open(1, ContextKind::PointToPoint);
    let sent = request(cluster.send_as(0, on[0], 1, 1, &pattern(4, 50_000), SendMode::Synchronous));
    cluster.nodes[0].ob1.free_request(sent);
    let (received, buffer) = cluster.receive(1, on[1], rank(0), tag(1), 50_000);
    cluster.nodes[1].ob1.free_request(request(received));
    cluster.settle();
    assert_eq!(buffer.to_vec(), pattern(4, 50_000));
    assert_eq!(cluster.poll(0, Started::Running(sent)), State::Done(Err(Error::NoSuchRequest)));
    assert_eq!(cluster.poll(1, received), State::Done(Err(Error::NoSuchRequest)));
    assert!(cluster.nodes.iter().all(|node| node.ob1.requests.len() == 0));
}

#[test]
fn a_send_continues_from_a_copy_in_whatever_state_it_is() {
    for turns in 0..40 {
        let mut cluster = Cluster::new(2, turns);
        let on = cluster.open(1, ContextKind::PointToPoint);
        let buffer = Buffer::from_bytes(&pattern(4, 50_000));
        let data = TypedBuffer::bytes(UserMemory::of_buffer(&buffer));
        let (received, room) = cluster.receive(1, on[1], rank(0), tag(1), 50_000);
        let (ob1, lent) = cluster.nodes[0].lend();
        let sent = request(ob1.send(lent, on[0], Rank(1), Tag(1), SendMode::Standard, data).unwrap());
        for _ in 0..turns {
            cluster.progress_at(0);
            cluster.progress_at(1);
        }
        assert!(cluster.nodes[0].ob1.continue_from_copy(sent).is_ok());
        UserMemory::of_buffer(&buffer).write(0, &[0xEE; 50_000]);
        cluster.settle();
        assert_eq!(room.to_vec(), pattern(4, 50_000));
        assert!(matches!(cluster.poll(1, received), State::Done(Ok(_))));
        assert!(cluster.nodes[0].ob1.requests.len() == 0 && cluster.nodes[0].ob1.idle());
    }
}

#[test]
fn sends_wait_for_the_connection_in_order_and_no_peer_is_wanted_twice() {
    let mut cluster = Cluster::new(2, 7);
    cluster.connects = false;
    let on = cluster.open(1, ContextKind::PointToPoint);
    let sends: Vec<_> = (0..5u8).map(|byte| cluster.send(0, on[0], 1, 1, &[byte])).collect();
    assert!(sends.iter().all(|&sent| cluster.poll(0, sent) == State::Running));
    assert!(!cluster.nodes[0].ob1.idle());
    assert_eq!(cluster.nodes[0].ob1.next_to_connect(), Some(mend_base::PeerIndex(1)));
    assert_eq!(cluster.nodes[0].ob1.next_to_connect(), None);
    let limits = cluster.fabric.borrow().limits.clone();
    cluster.nodes[0].ob1.connected(mend_base::PeerIndex(1), 1, &limits);
    cluster.connects = true;
    cluster.settle();
    assert!(sends.iter().all(|&sent| cluster.poll(0, sent) == State::Done(Ok(Status::EMPTY))));
    for byte in 0..5u8 {
        let (started, buffer) = cluster.receive(1, on[1], rank(0), tag(1), 1);
        assert!(matches!(started, Started::Done(_)));
        assert_eq!(buffer.to_vec(), [byte]);
    }
}

#[test]
fn sequence_numbers_go_round() {
    let mut cluster = Cluster::new(2, 10);
    let on = cluster.open(1, ContextKind::PointToPoint);
    for number in 0..70_000u32 {
        let sent = cluster.send(0, on[0], 1, 1, &number.to_le_bytes());
        let (received, buffer) = cluster.receive(1, on[1], rank(0), tag(1), 4);
        while cluster.poll(1, received) == State::Running || cluster.poll(0, sent) == State::Running {
            cluster.progress_at(1);
            cluster.progress_at(0);
        }
        assert_eq!(buffer.to_vec(), number.to_le_bytes());
        for (at, started) in [(0, sent), (1, received)] {
            if let Started::Running(request) = started {
                cluster.nodes[at].ob1.release(request);
            }
        }
    }
    cluster.assert_clean();
}

#[test]
fn context_kinds_do_not_meet_even_with_the_same_tags() {
    let mut cluster = Cluster::new(2, 8);
    let user = cluster.open(1, ContextKind::PointToPoint);
    let inner = cluster.open(1, ContextKind::Collective);
    cluster.send(0, inner[0], 1, 7, b"inner");
    cluster.send(0, user[0], 1, 7, b"user!");
    cluster.settle();
    let (_, buffer) = cluster.receive(1, user[1], Source::Any, TagSelector::Any, 5);
    assert_eq!(buffer.to_vec(), b"user!");
    let (_, buffer) = cluster.receive(1, inner[1], Source::Any, TagSelector::Any, 5);
    assert_eq!(buffer.to_vec(), b"inner");
}

#[test]
fn an_argument_that_names_nothing_is_refused_without_a_request() {
    let mut cluster = Cluster::new(2, 9);
    let on = cluster.open(1, ContextKind::PointToPoint);
    let node = &mut cluster.nodes[0];
    let empty = mend_datatype::TypedBuffer::empty;
    let (ob1, lent) = node.lend();
    let sent = ob1.send(lent, on[0], Rank(2), Tag(0), SendMode::Standard, empty());
    assert_eq!(sent, Err(Error::NoSuchRank(Rank(2))));
    let (ob1, lent) = node.lend();
    let received = ob1.receive(lent, on[0], rank(2), tag(0), empty());
    assert_eq!(received, Err(Error::NoSuchRank(Rank(2))));
    node.ob1.close(on[0]);
    let (ob1, lent) = node.lend();
    let sent = ob1.send(lent, on[0], Rank(1), Tag(0), SendMode::Standard, empty());
    assert_eq!(sent, Err(Error::NoSuchChannel));
    assert_eq!(node.probe(on[0], Source::Any, tag(0)), Err(Error::NoSuchChannel));
}

#[test]
fn messages_to_oneself_go_through_the_loopback_like_any_others() {
    use mend_base::{Identity, Instant, Job, Peer, PeerIndex};
    use mend_datatype::TypedBuffer;
    use mend_transport::{Btl, Buffer, Card, Loopback, UserMemory};
    let mut net = Loopback::new(Peer::new(Job(7), 0));
    let mut card = Card::default();
    net.advertise(&mut card);
    let ends = Ends::default();
    let mut ob1 = crate::Ob1::new(super::fabric::TEST_CONFIG);
    let identity = Identity { creator: Peer::new(Job(7), 0), number: 1 };
    let (kind, members) = (ContextKind::PointToPoint, [PeerIndex(0)].into());
    let on = ob1.open(identity, kind, Rank(0), members, crate::CommIndex(0), &ends);
    let endpoint = net.connect(PeerIndex(0), &card).unwrap();
    ob1.connected(PeerIndex(0), endpoint, net.limits(endpoint));
    let mut reported = Nothing;
    for (size, mode) in [(0, SendMode::Synchronous), (8, SendMode::Standard), (300_000, SendMode::Standard)] {
        let bytes = pattern(1, size);
        let data = TypedBuffer::bytes(UserMemory::of_buffer(&Buffer::from_bytes(&bytes)));
        let sent = ob1.send(Lent { net: &mut net, ends: &ends }, on, Rank(0), Tag(3), mode, data).unwrap();
        let buffer = Buffer::zeroed(size);
        let data = TypedBuffer::bytes(UserMemory::of_buffer(&buffer));
        let lent = Lent { net: &mut net, ends: &ends };
        let received = ob1.receive(lent, on, Source::Any, tag(3), data).unwrap();
        let done = |ob1: &crate::Ob1<_>, started| match started {
            Started::Done(_) => true,
            Started::Running(request) => matches!(ob1.poll(request, &ends), State::Done(Ok(_))),
        };
        let mut turns = 0;
        while !(done(&ob1, sent) && done(&ob1, received)) {
            ob1.progress(&mut net, Instant(0), &mut reported);
            turns += 1;
            assert!(turns < 10_000, "{size} {mode:?} does not arrive");
        }
        assert_eq!(buffer.to_vec(), bytes);
    }
}

struct Nothing;

impl<E> crate::Upcalls<E> for Nothing {
    fn on_message(
        &mut self,
        _: mend_base::PeerIndex,
        _: mend_transport::AmId,
        _: &[u8],
        _: mend_transport::Payload<'_>,
    ) {
    }
    fn on_error(&mut self, _: mend_base::PeerIndex, _: E, cause: mend_transport::Cause) {
        panic!("{cause:?}");
    }
    fn on_severed(&mut self, _: mend_base::PeerIndex, _: E) {}
}
