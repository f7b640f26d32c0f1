// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interleavings of agreements that design "Interleavings" lists, one by one. Members are numbered as in the binary tree of
//! seven: 0 is the parent of 1 and 2, 1 of 3 and 4, 2 of 5 and 6.

use super::network::{Cut, Network, coded};
use super::records::Record;
use super::{Agreement, AgreementId, Body, Contribution, Decision, Expected, Message, Op, Output};
use crate::protocol::Protocol;
use crate::ranks::{Ranks, SetHash};
use crate::tree::Shape;
use mend_base::{Identity, Peer, Random, Rank};

const OP: Op = Op::Sum;

fn binary(size: u32) -> Network {
    Network::new(size, Shape::Binary)
}

fn contribution(rank: u32) -> Contribution {
    let value = coded(OP, Rank(rank));
    Contribution { value, op: OP, acknowledged: SetHash::default(), uniform: false }
}

fn uniform(rank: u32) -> Contribution {
    Contribution { uniform: true, ..contribution(rank) }
}

fn set(ranks: &[u32]) -> Ranks {
    ranks.iter().copied().map(Rank).collect()
}

/// Nothing is lost with the member that fails.
fn nothing(_: Rank, _: usize) -> usize {
    0
}

impl Network {
    fn contribute(&mut self, ranks: impl IntoIterator<Item = u32>, of: fn(u32) -> Contribution) {
        ranks.into_iter().for_each(|rank| self.start(Rank(rank), of(rank), None));
    }

    /// All messages from one member to another arrive.
    fn arrive(&mut self, pairs: &[(u32, u32)]) {
        for &(from, to) in pairs {
            while !self.channel(Rank(from), Rank(to)).is_empty() {
                self.deliver(Rank(from), Rank(to), None);
            }
        }
    }

    /// All aggregates arrive but the last one at the root, which comes from `last`. All seven have contributed.
    fn gather_all_but(&mut self, last: u32) {
        self.arrive(&[(3, 1), (4, 1), (5, 2), (6, 2), (3 - last, 0)]);
    }

    fn news(&mut self, at: u32, ended: &[u32]) {
        ended.iter().for_each(|&ended| self.publish(Rank(at), Rank(ended), None));
    }

    fn bodies(&mut self, from: u32, to: u32) -> Vec<Body> {
        self.channel(Rank(from), Rank(to)).iter().map(|message| message.body).collect()
    }

    fn only_decision(&self, rank: u32) -> &Decision {
        let [decision] = self.decisions(Rank(rank)) else { panic!("{rank} has not one decision") };
        decision
    }

    fn has_returned(&self, rank: u32) -> bool {
        !self.decisions(Rank(rank)).is_empty()
    }

    /// Everything happens, and all members that live have passed.
    fn finish(&mut self) {
        self.settle();
        self.check_end();
    }

    /// The root has the last aggregate, decides, sends the decision to these of its children in their order, and fails.
    fn root_decides_and_fails(&mut self, last: u32, sends: usize) {
        self.deliver(Rank(last), Rank(0), Some(Cut { sends, returns: true }));
        self.fail(Rank(0), nothing);
    }
}

/// An agreement of another communicator.
fn listed(number: u32) -> AgreementId {
    AgreementId { communicator: Identity { creator: Peer(1), number }, sequence: 7 }
}

/// The value of an agreement in which these are counted.
fn sum(ranks: &[u32]) -> u64 {
    ranks.iter().map(|&rank| coded(OP, Rank(rank))).sum()
}

#[test]
fn the_root_informs_a_subset_and_fails_and_an_informed_child_is_asked() {
    //
    let mut net = binary(7);
    net.contribute(0..7, contribution);
    net.gather_all_but(1);
    net.root_decides_and_fails(1, 1);
    net.arrive(&[(0, 2)]);
    assert!(net.has_returned(2) && !net.has_returned(1));
    net.news(1, &[0]);
    assert_eq!(net.bodies(1, 2), [Body::Request]);
    net.finish();
    assert_eq!(net.only_decision(1).value, sum(&[0, 1, 2, 3, 4, 5, 6]));
    assert_eq!(net.only_decision(1).failed, set(&[]));
}

#[test]
fn the_root_informs_a_subset_and_fails_and_the_informed_child_too() {
    // those below the informed child have the decision, and are asked when the child's failure is published.
    let mut net = binary(7);
    net.contribute(0..7, contribution);
    net.gather_all_but(1);
    net.root_decides_and_fails(1, 1);
    net.arrive(&[(0, 2), (2, 6)]);
    net.fail(Rank(2), |to, length| if to == Rank(5) { length } else { 0 });
    assert!(net.has_returned(6) && !net.has_returned(5));
    net.news(1, &[0]);
    assert_eq!(net.bodies(1, 2), [], "it does not live");
    net.news(1, &[2]);
    assert_eq!((net.bodies(1, 5), net.bodies(1, 6)), (vec![Body::Request], vec![Body::Request]));
    net.finish();
    assert_eq!(net.only_decision(5).value, sum(&[0, 1, 2, 3, 4, 5, 6]));
}

#[test]
fn a_request_is_remembered_while_the_decision_of_a_failed_root_is_on_its_way() {
    //
    let mut net = binary(7);
    net.contribute(0..7, contribution);
    net.gather_all_but(1);
    net.root_decides_and_fails(1, 1);
    net.news(1, &[0]);
    net.arrive(&[(1, 2)]);
    assert_eq!(net.bodies(2, 1), []);
    net.arrive(&[(0, 2)]);
    assert!(matches!(net.bodies(2, 1)[..], [Body::Down(_)]));
    net.finish();
    assert_eq!(net.only_decision(1).value, sum(&[0, 1, 2, 3, 4, 5, 6]));
}

#[test]
fn the_root_informs_its_successor_alone_and_fails() {
    //
    let mut net = binary(7);
    net.contribute(0..7, contribution);
    net.gather_all_but(1);
    net.deliver(Rank(1), Rank(0), None);
    net.fail(Rank(0), |to, length| if to == Rank(2) { length } else { 0 });
    net.arrive(&[(0, 1)]);
    net.news(2, &[0]);
    net.arrive(&[(2, 1)]);
    assert!(matches!(net.bodies(1, 2)[..], [Body::Down(_)]), "who has passed answers at once");
    net.finish();
}

#[test]
fn when_all_informed_members_have_failed_the_survivors_decide_again() {
    //
    let mut net = binary(7);
    net.contribute(0..7, contribution);
    net.gather_all_but(1);
    net.root_decides_and_fails(1, 1);
    net.deliver(Rank(0), Rank(2), Some(Cut { sends: 0, returns: true }));
    net.fail(Rank(2), nothing);
    assert!(net.has_returned(2));
    net.finish();
    assert_eq!(net.only_decision(1).value, sum(&[1, 3, 4, 5, 6]));
    assert_eq!(net.only_decision(1).failed, set(&[0, 2]));
}

// Row AG14
#[test]
fn in_uniform_mode_nobody_returns_what_the_survivors_might_decide_anew() {
    //
    let mut net = binary(7);
    net.contribute(0..7, uniform);
    net.gather_all_but(1);
    net.root_decides_and_fails(1, 1);
    net.arrive(&[(0, 2)]);
    net.fail(Rank(2), |_, length| length);
    assert!(!net.has_returned(0) && !net.has_returned(2));
    net.finish();
    assert_eq!(net.only_decision(1).value, sum(&[1, 3, 4, 5, 6]));
}

// Row AG14
#[test]
fn in_uniform_mode_the_survivors_return_what_a_failed_member_has_returned() {
    // every way in which the release can get lost.
    for informed in 0..3 {
        let mut net = binary(7);
        net.contribute(0..7, uniform);
        net.gather_all_but(1);
        net.deliver(Rank(1), Rank(0), None);
        for pair in [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6), (3, 1), (4, 1), (5, 2), (6, 2), (1, 0)] {
            net.arrive(&[pair]);
        }
        assert!(net.ranks().all(|rank| net.decisions(rank).is_empty()));
        net.root_decides_and_fails(2, informed);
        if informed > 0 {
            net.deliver(Rank(0), Rank(2), Some(Cut { sends: 0, returns: true }));
            net.fail(Rank(2), nothing);
        }
        let returned = net.only_decision(0).clone();
        net.finish();
        assert_eq!(*net.only_decision(6), returned);
        assert_eq!(returned.failed, set(&[]));
    }
}

#[test]
fn in_uniform_mode_a_stored_decision_is_adopted() {
    let mut net = binary(7);
    net.contribute(0..7, uniform);
    net.gather_all_but(1);
    net.root_decides_and_fails(1, 1);
    net.arrive(&[(0, 2)]);
    net.finish();
    assert_eq!(net.only_decision(1).value, sum(&[0, 1, 2, 3, 4, 5, 6]));
}

#[test]
fn an_aggregate_that_is_sent_again_crosses_the_decision() {
    // member 3 sends up to the root while the root decides with what member 1, which has failed, sent for it.
    let mut net = binary(7);
    net.contribute(0..7, contribution);
    net.gather_all_but(2);
    net.fail(Rank(1), nothing);
    net.news(3, &[1]);
    assert!(matches!(net.bodies(3, 0)[..], [Body::Failures { .. }, Body::Up(_)]));
    net.arrive(&[(2, 0)]);
    assert!(net.has_returned(0));
    net.arrive(&[(3, 0)]);
    assert!(matches!(net.bodies(0, 3)[..], [Body::Down(_)]));
    net.finish();
    assert_eq!(net.only_decision(3).value, sum(&[0, 1, 2, 3, 4, 5, 6]));
}

#[test]
fn a_root_by_succession_that_knows_of_nothing_stores_what_it_is_sent() {
    //
    let mut net = binary(7);
    net.contribute([2, 3, 4, 5, 6], contribution);
    net.arrive(&[(5, 2), (6, 2)]);
    net.fail(Rank(0), nothing);
    net.fail(Rank(1), nothing);
    net.news(3, &[1]);
    assert_eq!(net.bodies(3, 0), [], "it does not live");
    net.news(3, &[0]);
    net.arrive(&[(3, 2)]);
    assert!(matches!(net.member(Rank(2)).records.get(Rank(3)), Some(Record::Up(_))));
    net.news(2, &[0]);
    assert_eq!(net.bodies(2, 1), []);
    net.news(2, &[1]);
    assert_eq!(net.bodies(2, 3), [], "it has sent up");
    assert_eq!(net.bodies(2, 4), [Body::Request]);
    net.finish();
    assert_eq!(net.only_decision(4).value, sum(&[2, 3, 4, 5, 6]));
    assert_eq!(net.only_decision(4).failed, set(&[0, 1]));
}

#[test]
fn what_a_member_one_agreement_ahead_sends_is_kept() {
    // without member 0, the parent of 4 is 2, which has not passed yet.
    let mut net = binary(6);
    net.fail(Rank(0), nothing);
    (1..6).for_each(|at| net.news(at, &[0]));
    net.contribute(1..6, contribution);
    net.arrive(&[(3, 1), (4, 1), (5, 2), (2, 1), (1, 4)]);
    assert!(net.has_returned(4) && !net.has_returned(2));
    net.contribute([4], contribution);
    net.arrive(&[(4, 2)]);
    assert!(matches!(net.member(Rank(2)).records.get(Rank(4)), Some(Record::Ahead(_))));
    net.arrive(&[(1, 2)]);
    assert!(matches!(net.member(Rank(2)).records.get(Rank(4)), Some(Record::Up(_))));
    net.settle();
    net.contribute([1, 2, 3, 5], contribution);
    net.finish();
    assert_eq!(net.decisions(Rank(5)).len(), 2);
}

#[test]
fn a_request_for_an_agreement_before_the_last_has_no_effect() {
    // no correct member sends it.
    let mut net = binary(3);
    for _ in 0..3 {
        net.contribute(0..3, contribution);
        net.settle();
    }
    let mut member = net.member(Rank(2)).clone();
    let mut out = Output::new();
    for sequence in [1, 4, 5, u32::MAX] {
        for body in [Body::Request, Body::Confirm] {
            member.on_message(Rank(0), Message { sequence, body }, &mut out);
        }
    }
    assert_eq!((&member, out.sends.len()), (net.member(Rank(2)), 0));
}

#[test]
fn a_failure_between_contribution_and_decision_is_decided_or_not_alike_everywhere() {
    //
    let mut net = binary(3);
    net.contribute([0, 1, 2], contribution);
    net.arrive(&[(2, 0)]);
    net.fail(Rank(2), nothing);
    net.news(0, &[2]);
    net.finish();
    assert_eq!((net.only_decision(1).value, &net.only_decision(1).failed), (sum(&[0, 1]), &set(&[2])));

    let mut net = binary(3);
    net.contribute([0, 1, 2], contribution);
    net.arrive(&[(2, 0)]);
    net.fail(Rank(2), nothing);
    net.arrive(&[(1, 0)]);
    net.finish();
    assert_eq!((net.only_decision(1).value, &net.only_decision(1).failed), (sum(&[0, 1, 2]), &set(&[])));
}

#[test]
fn a_failure_that_one_member_knows_of_is_decided() {
    // those of 3, which has contributed, and of 6 are published at member 2 alone.
    let mut net = binary(7);
    net.contribute(0..6, contribution);
    net.arrive(&[(3, 1), (4, 1), (1, 0)]);
    net.fail(Rank(3), nothing);
    net.fail(Rank(6), nothing);
    net.news(2, &[6, 3]);
    assert_eq!(net.bodies(2, 0), []);
    net.arrive(&[(5, 2), (2, 0)]);
    assert_eq!(net.only_decision(0).failed, set(&[3, 6]));
    assert_eq!(net.only_decision(0).value, sum(&[0, 1, 2, 3, 4, 5]));
    net.finish();
}

#[test]
fn acknowledged_sets_are_compared_whatever_their_order() {
    //
    let acknowledging = |rank: u32, acknowledged: &[u32]| {
        let acknowledged = set(acknowledged).hash();
        Contribution { acknowledged, ..contribution(rank) }
    };
    let mut net = binary(4);
    for failed in [1, 3] {
        net.fail(Rank(failed), nothing);
    }
    net.settle();
    net.start(Rank(0), acknowledging(0, &[1, 3]), None);
    net.start(Rank(2), acknowledging(2, &[3, 1]), None);
    net.settle();
    assert!(net.only_decision(2).acknowledged);
    net.start(Rank(0), acknowledging(0, &[1, 3]), None);
    net.start(Rank(2), acknowledging(2, &[3]), None);
    net.finish();
    assert!(net.ranks().filter_map(|rank| net.decisions(rank).get(1)).all(|decision| !decision.acknowledged));
}

#[test]
fn the_decision_of_members_that_have_left_is_recalled() {
    // the root leaves MPI; all others that had its decision fail.
    let mut net = binary(7);
    net.contribute(0..7, contribution);
    net.gather_all_but(1);
    net.fail(Rank(6), nothing);
    net.deliver(Rank(1), Rank(0), None);
    net.depart(Rank(0));
    for informed in [1, 2] {
        net.deliver(Rank(0), Rank(informed), Some(Cut { sends: 0, returns: false }));
        net.fail(Rank(informed), nothing);
    }
    net.settle();
    assert_eq!(net.only_decision(3), net.only_decision(0));
    assert_eq!(net.only_decision(3).value, sum(&[0, 1, 2, 3, 4, 5, 6]));
    net.check_end();
}

#[test]
fn nothing_is_decided_while_the_node_daemon_is_asked() {
    //
    let mut net = binary(7);
    net.contribute(0..7, contribution);
    net.settle();
    net.depart(Rank(6));
    net.contribute(0..6, contribution);
    net.fail(Rank(0), nothing);
    net.arrive(&[(3, 1), (4, 1), (5, 2)]);
    net.news(1, &[0, 6]);
    net.news(2, &[0, 6]);
    net.arrive(&[(2, 1)]);
    assert_eq!(net.questions.len(), 1);
    net.fail(Rank(5), nothing);
    net.news(1, &[5]);
    assert!(net.decisions(Rank(1)).len() == 1 && net.questions.len() == 1);
    net.finish();
    assert_eq!(net.decisions(Rank(3))[1].value, sum(&[1, 2, 3, 4, 5]));
}

#[test]
fn a_member_that_left_without_taking_part_is_missing_in_the_decision() {
    // and nothing is recalled.
    let mut net = binary(7);
    net.contribute(0..7, contribution);
    net.settle();
    net.depart(Rank(4));
    net.contribute([0, 1, 2, 3, 5, 6], contribution);
    net.fail(Rank(0), nothing);
    net.settle();
    let second = &net.decisions(Rank(3))[1];
    assert_eq!((second.value, second.departed, &second.failed), (sum(&[1, 2, 3, 5, 6]), true, &set(&[0])));
    assert!(!net.decisions(Rank(3))[0].departed);
    net.check_end();
}

#[test]
fn sequence_numbers_wrap_around() {
    // Row AG12, X-6.12: the decision is asked for on both sides of the wrap.
    for first in [u32::MAX - 1, u32::MAX] {
        let mut net = Network::at(first, 7, Shape::Binary);
        net.contribute(0..7, contribution);
        net.settle();
        net.contribute(0..7, contribution);
        net.gather_all_but(1);
        net.root_decides_and_fails(1, 1);
        net.settle();
        assert_eq!(net.member(Rank(6)).sequence(), first.wrapping_add(2));
        net.contribute(1..7, contribution);
        net.finish();
        assert_eq!(net.decisions(Rank(6))[2].failed, set(&[0]));
    }
}

#[test]
fn messages_to_a_member_that_has_not_started_are_kept() {
    //
    let mut net = binary(3);
    net.contribute([1, 2], contribution);
    net.settle();
    assert!(!net.member(Rank(0)).is_running() && net.member(Rank(0)).sequence() == 0);
    net.contribute([0], contribution);
    assert!(net.has_returned(0), "it has all aggregates");
    net.finish();
}

#[test]
fn a_request_to_a_member_that_has_not_started_is_needless() {
    // it will send up to the root that asks.
    let mut net = binary(3);
    net.contribute([1], contribution);
    net.fail(Rank(0), nothing);
    net.news(1, &[0]);
    net.arrive(&[(1, 2)]);
    assert!(net.member(Rank(2)).requests.is_empty());
    net.contribute([2], contribution);
    net.finish();
    assert_eq!(net.only_decision(1).value, sum(&[1, 2]));
}

#[test]
#[should_panic(expected = "one after the other")]
fn a_second_start_waits_for_the_first_agreement() {
    // the owner queues calls, so that agreements are in the order of calls.
    let mut net = binary(3);
    net.contribute([2, 2], contribution);
}

#[test]
fn failures_of_a_decision_count_only_with_the_decision() {
    // A root decides that 9 has failed and fails itself before member 2 has the decision; the next one decides without it.
    let mut member = Agreement::new(Rank(2), 16, Shape::Chain);
    let mut out = Output::new();
    member.start(contribution(2), &mut out);
    let up = Body::Up(super::Aggregate { value: 0, acknowledged: None, departed: false, crossed: false });
    member.on_message(Rank(3), Message { sequence: 0, body: up }, &mut out);
    out.sends.clear();
    let announce = |rank| Body::Failures { ranks: [Some(Rank(rank)), None, None, None], decided: true };
    member.on_message(Rank(0), Message { sequence: 0, body: announce(9) }, &mut out);
    member.on_message(Rank(1), Message { sequence: 0, body: announce(0) }, &mut out);
    // As many failed members as were announced, but others.
    let down = super::Down {
        value: 5,
        failed: set(&[8]).hash(),
        acknowledged: true,
        departed: false,
        crossed: false,
        released: true,
    };
    member.on_message(Rank(1), Message { sequence: 0, body: Body::Down(down) }, &mut out);
    assert!(out.outcomes.is_empty(), "the failures that it names were not announced");
    let down = super::Down { failed: set(&[0]).hash(), ..down };
    member.on_message(Rank(1), Message { sequence: 0, body: Body::Down(down) }, &mut out);
    assert_eq!(out.outcomes[0].failed, set(&[0]));
    assert_eq!(out.sends.iter().map(|send| send.0).collect::<Vec<_>>(), [Rank(3), Rank(3)]);
}

#[test]
fn the_last_of_all_members_decides_alone() {
    let mut net = binary(7);
    net.contribute(0..7, contribution);
    (0..6).for_each(|rank| net.fail(Rank(rank), |_, length| length));
    net.finish();
    assert_eq!((net.only_decision(6).value, net.only_decision(6).failed.len()), (sum(&[6]), 6));
    let mut alone = binary(1);
    alone.contribute([0], uniform);
    assert_eq!((alone.only_decision(0).value, alone.sent), (sum(&[0]), 0));
}

#[test]
fn many_failures_take_several_messages() {
    let mut net = Network::new(16, Shape::Chain);
    (1..15).for_each(|rank| net.fail(Rank(rank), nothing));
    net.news(15, &(1..15).collect::<Vec<_>>());
    net.contribute([0, 15], contribution);
    assert_eq!(net.bodies(15, 0).len(), 5);
    net.settle();
    assert_eq!(net.only_decision(15).failed.len(), 14);
    net.contribute([0, 15], contribution);
    assert_eq!(net.bodies(15, 0).len(), 1, "the decided failures are known");
    net.finish();
}

#[test]
fn a_contribution_in_absentia_marks_the_decision_of_all_members() {
    for (absent, of) in [(0, contribution as fn(u32) -> Contribution), (1, contribution), (6, uniform)] {
        let mut net = binary(7);
        net.contribute((0..7).filter(|&rank| rank != absent), of);
        net.settle();
        assert!((0..7).all(|rank| !net.has_returned(rank)));
        net.contribute_in_absentia(absent, of(absent), &[listed(2), listed(1)]);
        net.finish();
        let expected = Some(vec![listed(1), listed(2)]);
        assert!((0..7).all(|rank| net.only_decision(rank).crossed == expected), "{absent}");
        net.contribute(0..7, of);
        net.finish();
        assert!((0..7).all(|rank| net.decisions(Rank(rank))[1].crossed.is_none()), "the next one is good");
    }
}

#[test]
fn the_mark_and_its_list_survive_the_root_and_members_that_are_one_ahead() {
    // The root decides, informs 2 alone and fails; 2 and those below it go on, and contribute in absentia to the next agreement.
    let mut net = binary(7);
    net.contribute([0, 2, 3, 4, 5, 6], contribution);
    net.contribute_in_absentia(1, contribution(1), &[listed(1)]);
    net.gather_all_but(1);
    net.arrive(&[(1, 0)]);
    net.fail(Rank(0), |to, length| if to == Rank(1) { length } else { 0 });
    net.arrive(&[(0, 2), (2, 5), (2, 6)]);
    net.contribute_in_absentia(5, contribution(5), &[listed(2)]);
    net.contribute([6, 2], contribution);
    net.news(2, &[0]);
    net.news(1, &[0]);
    net.settle();
    assert!(
        [1, 2, 3, 4, 5, 6].iter().all(|&rank| net.decisions(Rank(rank))[0].crossed == Some(vec![listed(1)]))
    );
    net.contribute([1, 3, 4], contribution);
    net.finish();
    assert!(
        [1, 2, 3, 4, 5, 6].iter().all(|&rank| net.decisions(Rank(rank))[1].crossed == Some(vec![listed(2)]))
    );
}

#[test]
fn a_member_knows_for_whom_it_waits_and_who_waits_for_it() {
    let mut net = binary(7);
    let awaited = |net: &Network, rank: u32| {
        let mut ranks = Vec::new();
        net.member(Rank(rank)).awaited(&mut |rank| ranks.push(rank.0));
        ranks
    };
    let expected = |net: &Network, rank: u32, by: u32| net.member(Rank(rank)).expected_by(Rank(by), 0);
    net.contribute([0, 1, 3, 4, 5], contribution);
    assert_eq!((awaited(&net, 0), awaited(&net, 1), awaited(&net, 2)), (vec![1, 2], vec![3, 4], vec![]));
    net.settle();
    assert_eq!((awaited(&net, 0), awaited(&net, 1), awaited(&net, 5)), (vec![2], vec![0], vec![2]));
    assert_eq!((expected(&net, 2, 0), expected(&net, 6, 2)), (Expected::Start, Expected::Start));
    assert_eq!(expected(&net, 1, 0), Expected::Nothing, "it has sent up");
    assert_eq!((expected(&net, 1, 3), expected(&net, 0, 1)), (Expected::End, Expected::End));
    assert_eq!(net.member(Rank(2)).expected_by(Rank(0), 1), Expected::Nothing, "another agreement");
    net.contribute([2, 6], contribution);
    net.finish();
    assert_eq!((awaited(&net, 0), expected(&net, 2, 0)), (vec![], Expected::Nothing));
}

#[test]
fn no_message_and_no_order_of_events_makes_a_member_panic() {
    let mut random = Random(4);
    let mut passed = 0;
    for round in 0..10_000 {
        let mut member =
            Agreement::new(Rank(round % 8), 8, [Shape::Binary, Shape::Nomial(4)][round as usize % 2]);
        let mut out = Output::new();
        for _ in 0..60 {
            let rank = |random: &mut Random| Rank(random.below(9) as u32);
            let hash = |random: &mut Random| set(&[random.below(3) as u32]).hash();
            let mut flag = || random.once_in(2);
            let (decided, acknowledged, departed, released, is_uniform) =
                (flag(), flag(), flag(), flag(), flag());
            let ranks: [Option<Rank>; 4] = std::array::from_fn(|_| Some(rank(&mut random)));
            let body = match random.below(7) {
                0 | 1 => Body::Up(super::Aggregate {
                    value: random.bits(),
                    acknowledged: None,
                    departed,
                    crossed: random.once_in(2),
                }),
                2 => {
                    let failed = if decided { SetHash::default() } else { hash(&mut random) };
                    let crossed = random.once_in(2);
                    Body::Down(super::Down { value: 0, failed, acknowledged, departed, crossed, released })
                }
                3 => Body::Confirm,
                4 => Body::Request,
                5 => Body::Listed { agreement: listed(random.below(20) as u32), decided },
                _ => Body::Failures { ranks, decided },
            };
            let from = rank(&mut random);
            match random.below(60) {
                0 => member.on_failure(from, &mut out),
                1 => member.on_departure(from, &mut out),
                2 => {
                    let failed = ranks.into_iter().flatten().collect();
                    let decision = Decision { value: 0, failed, acknowledged, departed, crossed: None };
                    _ = member.take_recall();
                    member.on_recalled(member.sequence(), Some(decision), &mut out);
                }
                3..13 if !member.is_running() => {
                    let contribution = if is_uniform { uniform(0) } else { contribution(0) };
                    if random.once_in(4) {
                        member.contribute_in_absentia(contribution, &[listed(0)], &mut out);
                    } else {
                        member.start(contribution, &mut out);
                    }
                }
                _ => {
                    let sequence = member.sequence().wrapping_add(random.below(4) as u32).wrapping_sub(2);
                    member.on_message(from, Message { sequence, body }, &mut out);
                }
            }
        }
        passed += out.outcomes.len();
    }
    assert!(passed > 1_000, "{passed}");
}
