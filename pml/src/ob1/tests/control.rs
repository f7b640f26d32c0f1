// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control messages of another protocol: they share the queues of the PML and neither wait for its data nor for its answers.

use super::fabric::{CONTROL, Cluster, DATA, Node, rank, tag};
use crate::{ControlError, End, Places, Started};
use mend_base::{ContextKind, PeerIndex};
use mend_transport::AmId;
use std::rc::Rc;

const ID: AmId = AmId(2);
const PEER: PeerIndex = PeerIndex(1);

#[test]
fn a_control_message_connects_its_peer_and_goes_before_data() {
    let mut cluster = Cluster::new(2, 1);
    let on = cluster.open(1, ContextKind::PointToPoint);
    let protocol = cluster.nodes[0].ob1.open_control(ID, Places::Reserved(2)).unwrap();
    cluster.send(0, on[0], 1, 0, b"data");
    cluster.nodes[0].ob1.send_control(PEER, protocol, b"state").unwrap();
    cluster.progress_at(0);
    let first = |queue: usize| cluster.fabric.borrow().queues[0][1][queue].front().cloned();
    let control = first(CONTROL).expect("a control message is on its way");
    assert_eq!((control.id, &control.header[..]), (ID, &b"state"[..]));
    assert!(first(DATA).is_some());
    cluster.settle();
    assert_eq!(cluster.nodes[1].reported.others, [(PeerIndex(0), ID)]);
    let (received, _) = cluster.receive(1, on[1], rank(0), tag(0), 4);
    assert!(matches!(received, Started::Done(_)));
}

#[test]
fn a_reserved_message_is_queued_while_the_answers_of_the_pml_fill_the_queue() {
    let mut cluster = Cluster::new(2, 2);
    let on = cluster.open(1, ContextKind::PointToPoint);
    let protocol = cluster.nodes[1].ob1.open_control(ID, Places::Reserved(3)).unwrap();
    for number in 0..200 {
        cluster.send_as(0, on[0], 1, number, b"x", crate::SendMode::Synchronous);
    }
    cluster.settle();
    cluster.fabric.borrow_mut().room = 0;
    for number in 0..200 {
        cluster.receive(1, on[1], rank(0), tag(number), 1);
    }
    let ob1 = &mut cluster.nodes[1].ob1;
    (0..3).for_each(|_| ob1.send_control(PeerIndex(0), protocol, b"state").unwrap());
    assert_eq!(ob1.send_control(PeerIndex(0), protocol, b"state"), Err(ControlError::TooMany));
    assert!(!ob1.idle());
    cluster.fabric.borrow_mut().room = 64;
    cluster.settle();
    assert_eq!(cluster.nodes[0].reported.others, [(PeerIndex(1), ID); 3]);
    cluster.nodes[1].ob1.send_control(PeerIndex(0), protocol, b"state").expect("the places are free again");
}

#[test]
fn a_control_message_leaves_at_once_only_where_none_waits_before_it() {
    let mut cluster = Cluster::new(2, 4);
    let protocol = cluster.nodes[0].ob1.open_control(ID, Places::OnDemand(2)).unwrap();
    let fabric = Rc::clone(&cluster.fabric);
    let sent =
        || -> Vec<u8> { fabric.borrow().queues[0][1][CONTROL].iter().map(|sent| sent.header[0]).collect() };
    let send = |cluster: &mut Cluster, header: &[u8]| {
        let Node { ob1, port, .. } = &mut cluster.nodes[0];
        ob1.send_control_at_once(port, PEER, protocol, header)
    };
    send(&mut cluster, &[1]).unwrap();
    assert!(sent().is_empty(), "the peer is not connected");
    cluster.progress_at(0);
    assert_eq!(sent(), [1]);
    send(&mut cluster, &[2]).unwrap();
    assert_eq!(sent(), [1, 2]);
    fabric.borrow_mut().room = 0;
    send(&mut cluster, &[3]).unwrap();
    fabric.borrow_mut().room = 64;
    send(&mut cluster, &[4]).unwrap();
    assert_eq!(sent(), [1, 2], "the fourth waits behind the third");
    assert_eq!(send(&mut cluster, &[5]), Err(ControlError::TooMany));
    cluster.progress_at(0);
    assert_eq!(sent(), [1, 2, 3, 4]);
    cluster.nodes[0].end(PEER.0, End::Failed);
    send(&mut cluster, &[6]).unwrap();
    assert_eq!(sent(), [1, 2, 3, 4]);
    assert!(cluster.nodes[0].ob1.idle());
}

#[test]
fn a_peer_that_has_ended_gets_no_control_message() {
    let mut cluster = Cluster::new(2, 3);
    cluster.connects = false;
    let node = &mut cluster.nodes[0];
    let protocol = node.ob1.open_control(ID, Places::Reserved(2)).unwrap();
    node.ob1.send_control(PEER, protocol, b"state").unwrap();
    node.end(PEER.0, End::Failed);
    assert!(node.ob1.idle());
    node.ob1.send_control(PEER, protocol, b"state").unwrap();
    assert!(node.ob1.idle());
}
