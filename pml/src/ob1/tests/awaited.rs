// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Peers that receives and probes wait for, and that are not connected.

use super::fabric::{Cluster, rank, tag};
use mend_base::{ContextKind, PeerIndex, Source, TagSelector};

#[test]
fn a_peer_that_a_receive_or_a_probe_names_is_wanted_at_the_next_check_and_once() {
    let mut cluster = Cluster::new(4, 1);
    cluster.connects = false;
    let on = cluster.open(1, ContextKind::PointToPoint);
    let (_posted, _buffer) = cluster.receive(0, on[0], rank(2), tag(1), 8);
    assert_eq!(cluster.probe(0, on[0], rank(3), tag(1)), None);
    let ob1 = &mut cluster.nodes[0].ob1;
    assert_eq!(ob1.next_to_connect(), None);
    for wanted in [vec![PeerIndex(2), PeerIndex(3)], vec![]] {
        assert_eq!(ob1.next_unconnected(), None, "no wildcard receive waits");
        ob1.want_awaited();
        let mut found: Vec<PeerIndex> = core::iter::from_fn(|| ob1.next_to_connect()).collect();
        found.sort_unstable();
        assert_eq!(found, wanted);
    }
}

#[test]
fn members_that_a_wildcard_receive_may_wait_for_are_given_in_turns_and_not_connected() {
    for probes in [false, true] {
        let mut cluster = Cluster::new(4, 1);
        cluster.connects = false;
        let on = cluster.open(1, ContextKind::PointToPoint);
        assert_eq!(cluster.nodes[0].ob1.next_unconnected(), None);
        let posted = (!probes).then(|| cluster.receive(0, on[0], Source::Any, tag(1), 8));
        let limits = cluster.fabric.borrow().limits.clone();
        cluster.nodes[0].ob1.connected(PeerIndex(0), 0, &limits);
        cluster.nodes[0].ob1.connected(PeerIndex(3), 3, &limits);
        let given = |cluster: &mut Cluster| {
            if posted.is_none() {
                assert_eq!(cluster.probe(0, on[0], Source::Any, TagSelector::Any), None);
            }
            let given = cluster.nodes[0].ob1.next_unconnected();
            // However many checks there are between two questions, each has its turn.
            (0..2).for_each(|_| cluster.nodes[0].ob1.want_awaited());
            given
        };
        let unconnected: Vec<_> = (0..4).map(|_| given(&mut cluster)).collect();
        assert_eq!(unconnected, [1, 2, 1, 2].map(|peer| Some(PeerIndex(peer))));
        assert_eq!(cluster.nodes[0].ob1.next_to_connect(), None);
        cluster.nodes[0].end(1, crate::End::Finalized);
        assert_eq!(given(&mut cluster), Some(PeerIndex(2)));
        assert_eq!(given(&mut cluster), Some(PeerIndex(2)));
    }
}

#[test]
fn of_several_channels_with_a_wait_each_has_its_turn_and_each_member_there() {
    let mut cluster = Cluster::new(6, 1);
    cluster.connects = false;
    let limits = cluster.fabric.borrow().limits.clone();
    cluster.nodes[0].ob1.connected(PeerIndex(0), 0, &limits);
    let on: Vec<_> = (1..4).map(|number| cluster.open(number, ContextKind::PointToPoint)[0]).collect();
    let _posted: Vec<_> = on.iter().map(|&on| cluster.receive(0, on, Source::Any, tag(1), 8)).collect();
    let ob1 = &mut cluster.nodes[0].ob1;
    let mut given: Vec<_> = (0..15).filter_map(|_| ob1.next_unconnected()).collect();
    given.sort_unstable();
    let thrice = (1..6).flat_map(|peer| [PeerIndex(peer); 3]);
    assert_eq!(given, thrice.collect::<Vec<_>>());
}
