// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Conservation of requests: what the books must catch, planted.

use super::fabric::{Cluster, rank, request, tag};
use crate::{Channel, Request, Status};
use mend_base::{ContextKind, LifecycleCounts};

/// Two processes, the first with a posted receive.
fn posted() -> (Cluster, Channel, Request) {
    let mut cluster = Cluster::new(2, 1);
    let channel = cluster.open(1, ContextKind::PointToPoint)[0];
    let (started, _buffer) = cluster.receive(0, channel, rank(1), tag(3), 8);
    (cluster, channel, request(started))
}

#[test]
fn a_request_begins_ends_and_is_forgotten_once() {
    let (mut cluster, _, request) = posted();
    let counts = |cluster: &Cluster| cluster.nodes[0].ob1.lifecycle_check();
    assert_eq!(counts(&cluster), LifecycleCounts { begun: 1, ended: 0, forgotten: 0 });
    cluster.nodes[0].ob1.cancel(request);
    assert_eq!(counts(&cluster), LifecycleCounts { begun: 1, ended: 1, forgotten: 0 });
    cluster.nodes[0].ob1.release(request);
    assert_eq!(counts(&cluster), LifecycleCounts { begun: 1, ended: 1, forgotten: 1 });
}

#[test]
#[should_panic(expected = "ends twice")]
fn a_second_end_is_caught() {
    let (mut cluster, _, request) = posted();
    cluster.nodes[0].ob1.cancel(request);
    cluster.nodes[0].ob1.finish(request.0, Ok(Status::EMPTY));
}

#[test]
#[should_panic(expected = "but is not in the table")]
fn an_end_of_what_was_forgotten_is_caught() {
    let (mut cluster, _, request) = posted();
    cluster.nodes[0].ob1.abandon(request);
    cluster.nodes[0].ob1.finish(request.0, Ok(Status::EMPTY));
}

#[test]
#[should_panic(expected = "released before it ended")]
fn a_request_that_is_forgotten_before_its_end_is_caught() {
    let (mut cluster, _, request) = posted();
    cluster.nodes[0].ob1.forget(request.0);
}

#[test]
#[should_panic(expected = "what was reported")]
fn a_request_that_leaves_the_table_past_the_books_is_caught() {
    let (mut cluster, _, request) = posted();
    cluster.nodes[0].ob1.entries.remove(request.0);
    cluster.lifecycle_check();
}

#[test]
#[should_panic(expected = "that are not over")]
fn an_operation_that_its_channel_does_not_count_is_caught() {
    let (mut cluster, channel, _) = posted();
    let open = cluster.nodes[0].ob1.channels.get_mut(channel.0).expect("it stands");
    open.active -= 1;
    cluster.lifecycle_check();
}
