// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A receive that polls: what comes between two polls never makes it lose its place or its message.

use super::fabric::{Cluster, Node, rank, tag};
use crate::{Channel, Error, Lent, PollingReceive, Started, State};
use mend_base::{ContextKind, Instant, Source};
use mend_datatype::TypedBuffer;
use mend_transport::{Buffer, UserMemory};
use std::sync::Arc;

/// Rank 1 polls for a message of rank 0 with tag 1.
fn polling(on: &[Channel], cluster: &mut Cluster, from: Source) -> (PollingReceive<u32>, Arc<Buffer>) {
    let buffer = Buffer::zeroed(8);
    let data = TypedBuffer::bytes(UserMemory::of_buffer(&buffer));
    (cluster.nodes[1].ob1.begin_polling(on[1], from, tag(1), data), buffer)
}

fn poll(cluster: &mut Cluster, polling: &mut PollingReceive<u32>) -> Option<Result<Started, Error>> {
    let Node { ob1, ends, port, reported } = &mut cluster.nodes[1];
    ob1.poll_once(Lent { net: port, ends }, Instant(0), polling, reported)
}

fn known() -> (Cluster, Vec<Channel>) {
    let mut cluster = Cluster::new(2, 1);
    let on = cluster.open(1, ContextKind::PointToPoint);
    for (from, to) in [(0, 1), (1, 0)] {
        let sent = cluster.send(from, on[from], to as u32, 0, b"hello");
        cluster.settle();
        cluster.receive(to, on[to], rank(from as u32), tag(0), 8);
        if let Started::Running(request) = sent {
            cluster.nodes[from].ob1.release(request);
        }
    }
    (cluster, on)
}

#[test]
fn a_message_at_the_head_is_taken_without_a_request() {
    let (mut cluster, on) = known();
    let (mut value, buffer) = polling(&on, &mut cluster, rank(0));
    assert!(value.has_ring());
    for _ in 0..3 {
        assert_eq!(poll(&mut cluster, &mut value), None);
    }
    cluster.send(0, on[0], 1, 1, b"the text");
    assert!(matches!(poll(&mut cluster, &mut value), Some(Ok(Started::Done(_)))));
    assert_eq!(buffer.to_vec(), b"the text");
    assert_eq!(cluster.nodes[1].ob1.requests.len(), 0);
    cluster.settle();
    cluster.assert_clean();
}

#[test]
fn a_message_with_another_tag_goes_the_usual_way_and_the_receive_is_posted() {
    let (mut cluster, on) = known();
    let (mut value, buffer) = polling(&on, &mut cluster, rank(0));
    cluster.send(0, on[0], 1, 2, b"another");
    let Some(Ok(started)) = poll(&mut cluster, &mut value) else { panic!("it still polls") };
    assert_eq!(cluster.poll(1, started), State::Running);
    assert!(cluster.probe(1, on[1], rank(0), tag(2)).is_some());
    cluster.send(0, on[0], 1, 1, b"the text");
    cluster.settle();
    assert!(matches!(cluster.poll(1, started), State::Done(Ok(_))));
    assert_eq!(buffer.to_vec(), b"the text");
}

#[test]
fn a_wildcard_receive_has_no_ring_and_is_posted() {
    let (mut cluster, on) = known();
    let (mut value, _) = polling(&on, &mut cluster, Source::Any);
    assert!(!value.has_ring());
    let Some(Ok(started)) = poll(&mut cluster, &mut value) else { panic!("it still polls") };
    assert_eq!(cluster.poll(1, started), State::Running);
}

#[test]
fn a_message_that_progress_took_between_two_polls_is_found_when_the_receive_is_posted() {
    let (mut cluster, on) = known();
    let (mut value, buffer) = polling(&on, &mut cluster, rank(0));
    assert_eq!(poll(&mut cluster, &mut value), None);
    cluster.send(0, on[0], 1, 1, b"first");
    cluster.settle();
    cluster.send(0, on[0], 1, 1, b"second");
    // The second is at the head, and the first has come before it.
    let Some(Ok(Started::Done(_))) = poll(&mut cluster, &mut value) else { panic!("not received") };
    assert_eq!(&buffer.to_vec()[..5], b"first");
    cluster.settle();
    let (_, buffer) = cluster.receive(1, on[1], rank(0), tag(1), 6);
    assert_eq!(buffer.to_vec(), b"second");
    cluster.assert_clean();
}

#[test]
fn a_receive_that_was_posted_between_two_polls_and_admits_the_message_takes_it() {
    let (mut cluster, on) = known();
    let (mut value, polled) = polling(&on, &mut cluster, rank(0));
    assert_eq!(poll(&mut cluster, &mut value), None);
    let (posted, buffer) = cluster.receive(1, on[1], rank(0), tag(1), 8);
    cluster.send(0, on[0], 1, 1, b"for post");
    let Some(Ok(started)) = poll(&mut cluster, &mut value) else { panic!("it still polls") };
    assert!(matches!(cluster.poll(1, posted), State::Done(Ok(_))));
    assert_eq!((buffer.to_vec(), polled.to_vec()), (b"for post".to_vec(), vec![0; 8]));
    assert_eq!(cluster.poll(1, started), State::Running);
}

#[test]
fn a_channel_that_is_closed_between_two_polls_ends_the_receive() {
    let (mut cluster, on) = known();
    let (mut value, _) = polling(&on, &mut cluster, rank(0));
    cluster.nodes[1].ob1.close(on[1]);
    cluster.send(0, on[0], 1, 1, b"late");
    assert_eq!(poll(&mut cluster, &mut value), Some(Err(Error::NoSuchChannel)));
    cluster.settle();
    cluster.assert_clean();
}
