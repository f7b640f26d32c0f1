// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The notices for each rank, and their order: how to reach its peers, which have left, which have failed.
//!
//! A leaving or a failure is an *end*. There is one list of ends, which each rank is told from its beginning, however late it
//! joins. Answers and contacts concern one rank alone and stand in its queue, which goes before its share of the list. So
//! * a contact comes before the end of the peer that it introduces;
//! * a death comes before the leaving of a rank that heard of it;
//! * an answer to a question about an end which the rank is still to be told is that end, in its place.
//!
//! Each rank has an order of its own: that two ranks are told of two deaths in the same order is not promised.
//!
//! A pair of ranks:
//! ```text
//!   lookup ──▶ Wanted ── both have published ──▶ Introduced ── refused by one ──▶ Refused
//!                 └── one has left or failed: nothing more; each rank is told of its end
//! ```

use mend_base::{Job, Peer};
use mend_runtime::daemon_protocol::{Answer, FINALIZED_MAX};
use mend_transport::{Card, Cause};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// What all ranks are to be told, and have been.
#[derive(Debug)]
pub(crate) struct Notifier {
    job: Job,
    addressees: Vec<Addressee>,
    pairs: HashMap<(u32, u32), PairState>,
    /// Of ranks, in the order in which they ended here.
    ends: Vec<End>,
    /// Deaths are not in the list of ends: only a rank that asks is told (a test hook).
    muted: bool,
    /// The ranks for which there may be something.
    due: BTreeSet<u32>,
}

/// One rank, as the notifier sees it.
#[derive(Debug, Default)]
struct Addressee {
    /// It is connected: it can be told.
    joined: bool,
    /// Kept, with its descriptor, until the job ends: late comers reach the outbox of one that has left.
    card: Option<Card>,
    queue: VecDeque<Queued>,
    /// How much of the list of ends it has been told.
    ends_told: usize,
    /// The ranks that wait to be introduced to it, or it to them, once it has a card.
    awaited: Vec<u32>,
    /// If it has left or failed, it is told nothing any more.
    state: AddresseeState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum AddresseeState {
    #[default]
    Open,
    /// It has left: that place of the list of ends.
    Left(usize),
    /// It has failed: that place of the list of ends, if it stands there.
    Failed(Option<usize>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Finalized(u32),
    Failed(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Queued {
    Contact(u32),
    Refused(u32, Cause),
    Alive(u32),
    /// Once more, for a rank that asked.
    Again(End),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PairState {
    Wanted,
    Introduced,
    Refused,
}

/// What a notice that was sent takes off what a rank is still to be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step(StepKind);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StepKind {
    Queued,
    Ends(usize),
}

impl Notifier {
    /// For ranks 0 to `ranks` - 1 of `job`.
    pub(crate) fn new(job: Job, ranks: u32, muted: bool) -> Self {
        Notifier {
            job,
            addressees: (0..ranks).map(|_| Addressee::default()).collect(),
            pairs: HashMap::new(),
            ends: vec![],
            muted,
            due: BTreeSet::new(),
        }
    }

    /// `rank` is connected: it is told what has happened before.
    pub(crate) fn joined(&mut self, rank: u32) {
        self.addressees[rank as usize].joined = true;
        self.due.insert(rank);
    }

    /// `rank` can be reached from now on. `false`: it had said so before, which no correct rank does.
    pub(crate) fn publish(&mut self, rank: u32, card: Card) -> bool {
        let addressee = &mut self.addressees[rank as usize];
        if addressee.card.is_some() {
            return false;
        }
        addressee.card = Some(card);
        for other in std::mem::take(&mut addressee.awaited) {
            self.introduce(rank, other);
        }
        true
    }

    /// `rank` wants to reach `other`.
    pub(crate) fn lookup(&mut self, rank: u32, other: u32) {
        if self.addressees[other as usize].state != AddresseeState::Open {
            return self.again(rank, other);
        }
        if self.pairs.contains_key(&pair(rank, other)) {
            return;
        }
        self.pairs.insert(pair(rank, other), PairState::Wanted);
        self.introduce(rank, other);
    }

    /// Introduces the two, if both can be reached by now.
    fn introduce(&mut self, rank: u32, other: u32) {
        let missing = [rank, other].into_iter().filter(|&each| self.addressees[each as usize].card.is_none());
        let missing: Vec<u32> = missing.collect();
        for &each in &missing {
            self.addressees[each as usize].awaited.push(if each == rank { other } else { rank });
        }
        if missing.is_empty() && self.pairs.get(&pair(rank, other)) == Some(&PairState::Wanted) {
            self.pairs.insert(pair(rank, other), PairState::Introduced);
            self.queue(rank, Queued::Contact(other));
            self.queue(other, Queued::Contact(rank));
        }
    }

    /// `rank` cannot connect to `other`: both are told, once.
    pub(crate) fn refuse(&mut self, rank: u32, other: u32, cause: Cause) {
        if self.pairs.insert(pair(rank, other), PairState::Refused) != Some(PairState::Refused) {
            self.queue(rank, Queued::Refused(other, cause));
            self.queue(other, Queued::Refused(rank, cause));
        }
    }

    /// `to` asked about `rank`, and it lives.
    pub(crate) fn alive(&mut self, to: u32, rank: u32) {
        // One answer stands for all questions before it: a rank that asks and never reads costs no more memory.
        if !self.addressees[to as usize].queue.contains(&Queued::Alive(rank)) {
            self.queue(to, Queued::Alive(rank));
        }
    }

    /// `rank` has left: each other rank is told, behind what it is to be told of it already.
    pub(crate) fn finalized(&mut self, rank: u32) {
        self.end(rank, AddresseeState::Left(self.ends.len()));
        self.add_end(End::Finalized(rank));
    }

    /// `rank` is dead: each other rank is told, behind what it is to be told of it already.
    pub(crate) fn failed(&mut self, rank: u32) {
        let waiting = self.end(rank, AddresseeState::Failed((!self.muted).then_some(self.ends.len())));
        if !self.muted {
            return self.add_end(End::Failed(rank));
        }
        // To wait for an introduction is to ask.
        waiting.into_iter().for_each(|other| self.again(other, rank));
    }

    fn add_end(&mut self, end: End) {
        self.ends.push(end);
        let joined = (0..).zip(&self.addressees).filter(|(_, addressee)| addressee.joined);
        self.due.extend(joined.map(|(rank, _)| rank));
    }

    /// `rank` is told nothing any more. The ranks that still wait to be introduced to it.
    fn end(&mut self, rank: u32, state: AddresseeState) -> Vec<u32> {
        let addressee = &mut self.addressees[rank as usize];
        addressee.state = state;
        addressee.queue.clear();
        let mut waiting = std::mem::take(&mut addressee.awaited);
        for (other, addressee) in (0..).zip(&mut self.addressees) {
            if addressee.awaited.contains(&rank) {
                addressee.awaited.retain(|each| *each != rank);
                waiting.push(other);
            }
        }
        for &other in &waiting {
            self.pairs.remove(&pair(rank, other));
        }
        waiting
    }

    /// `to` asked about `rank`, which has left or failed. If `to` still is to be told of that end, it comes in its place.
    pub(crate) fn again(&mut self, to: u32, rank: u32) {
        let (place, end) = match self.addressees[rank as usize].state {
            AddresseeState::Open => return,
            AddresseeState::Left(place) => (Some(place), End::Finalized(rank)),
            AddresseeState::Failed(place) => (place, End::Failed(rank)),
        };
        let told = place.is_none_or(|place| place < self.addressees[to as usize].ends_told);
        if told && !self.addressees[to as usize].queue.contains(&Queued::Again(end)) {
            self.queue(to, Queued::Again(end));
        }
    }

    fn queue(&mut self, rank: u32, queued: Queued) {
        let addressee = &mut self.addressees[rank as usize];
        if addressee.state == AddresseeState::Open {
            addressee.queue.push_back(queued);
            if addressee.joined {
                self.due.insert(rank);
            }
        }
    }

    /// The ranks for which there may be something.
    pub(crate) fn due(&self) -> Vec<u32> {
        self.due.iter().copied().collect()
    }

    /// The next packet for `rank`, and what [`sent`](Notifier::sent) wants to know of it.
    pub(crate) fn next(&mut self, rank: u32) -> Option<(Answer, Step)> {
        let next = self.next_for(rank);
        if next.is_none() {
            self.due.remove(&rank);
        }
        next
    }

    fn next_for(&self, rank: u32) -> Option<(Answer, Step)> {
        let addressee = &self.addressees[rank as usize];
        if addressee.state != AddresseeState::Open {
            return None;
        }
        if let Some(queued) = addressee.queue.front() {
            return Some((self.answer(*queued), Step(StepKind::Queued)));
        }
        let untold = &self.ends[addressee.ends_told..];
        match *untold.first()? {
            End::Failed(rank) => Some((Answer::Failed(self.peer(rank)), Step(StepKind::Ends(1)))),
            End::Finalized(_) => {
                let left = untold.iter().map_while(|end| match end {
                    End::Finalized(rank) => Some(self.peer(*rank)),
                    End::Failed(_) => None,
                });
                let peers: Vec<Peer> = left.take(FINALIZED_MAX).collect();
                let count = peers.len();
                Some((Answer::Finalized(peers), Step(StepKind::Ends(count))))
            }
        }
    }

    /// That packet was sent to `rank`.
    pub(crate) fn sent(&mut self, rank: u32, step: Step) {
        let addressee = &mut self.addressees[rank as usize];
        match step.0 {
            StepKind::Queued => drop(addressee.queue.pop_front()),
            StepKind::Ends(count) => addressee.ends_told += count,
        }
    }

    fn answer(&self, queued: Queued) -> Answer {
        match queued {
            Queued::Contact(other) => {
                let card = self.addressees[other as usize].card.clone();
                Answer::Contact(
                    self.peer(other),
                    card.expect("a rank that is introduced has published a card"),
                )
            }
            Queued::Refused(other, cause) => Answer::Refused(self.peer(other), cause),
            Queued::Alive(other) => Answer::Alive(self.peer(other)),
            Queued::Again(End::Finalized(other)) => Answer::Finalized(vec![self.peer(other)]),
            Queued::Again(End::Failed(other)) => Answer::Failed(self.peer(other)),
        }
    }

    fn peer(&self, rank: u32) -> Peer {
        Peer::new(self.job, rank)
    }
}

fn pair(a: u32, b: u32) -> (u32, u32) {
    (a.min(b), a.max(b))
}

#[cfg(test)]
mod tests {
    use super::{Answer, End, Notifier, Queued};
    use mend_base::Job;
    use mend_transport::{Card, Cause};

    fn joined(ranks: u32, muted: bool) -> Notifier {
        let mut notifier = Notifier::new(Job(1), ranks, muted);
        (0..ranks).for_each(|rank| notifier.joined(rank));
        notifier
    }

    fn notifier() -> Notifier {
        joined(4, false)
    }

    fn muted() -> Notifier {
        joined(4, true)
    }

    fn queued(notifier: &mut Notifier, rank: usize) -> Vec<Queued> {
        notifier.addressees[rank].queue.drain(..).collect()
    }

    /// All that is there for a rank, as it would be told.
    fn hear(notifier: &mut Notifier, rank: u32) -> Vec<String> {
        let mut heard = vec![];
        while let Some((answer, step)) = notifier.next(rank) {
            heard.push(match answer {
                Answer::Finalized(peers) => {
                    format!("left {:?}", peers.iter().map(|p| p.number()).collect::<Vec<_>>())
                }
                Answer::Failed(peer) => format!("failed {}", peer.number()),
                other => format!("{other:?}").split('(').next().unwrap().to_lowercase(),
            });
            notifier.sent(rank, step);
        }
        heard
    }

    #[test]
    fn a_pair_is_introduced_once_both_have_published_whichever_asked() {
        let mut notifier = notifier();
        notifier.lookup(0, 1);
        notifier.lookup(1, 0);
        assert!(notifier.publish(1, Card::default()));
        assert!(queued(&mut notifier, 1).is_empty());
        assert!(notifier.publish(0, Card::default()));
        assert_eq!(queued(&mut notifier, 0), [Queued::Contact(1)]);
        assert_eq!(queued(&mut notifier, 1), [Queued::Contact(0)]);
        notifier.lookup(1, 0);
        assert!(queued(&mut notifier, 0).is_empty());
        assert!(!notifier.publish(0, Card::default()), "a correct rank publishes one card");
    }

    // Row LC3
    #[test]
    fn a_rank_that_waits_for_an_introduction_to_one_that_fails_is_told_of_the_death() {
        let mut notifier = notifier();
        assert!(notifier.publish(0, Card::default()));
        notifier.lookup(0, 1);
        notifier.lookup(2, 1);
        notifier.failed(1);
        notifier.lookup(3, 1);
        for rank in [0, 2, 3] {
            assert_eq!(hear(&mut notifier, rank), ["failed 1"]);
        }
        // A rank that looks it up later is told again.
        notifier.lookup(3, 1);
        assert_eq!(hear(&mut notifier, 3), ["failed 1"]);
        assert!(hear(&mut notifier, 1).is_empty());
    }

    #[test]
    fn a_refusal_reaches_both_ends_once() {
        let mut notifier = notifier();
        notifier.refuse(2, 3, Cause::LayoutDiffers);
        notifier.refuse(3, 2, Cause::Refused);
        assert_eq!(queued(&mut notifier, 2), [Queued::Refused(3, Cause::LayoutDiffers)]);
        assert_eq!(queued(&mut notifier, 3), [Queued::Refused(2, Cause::LayoutDiffers)]);
    }

    #[test]
    fn a_rank_that_asks_again_and_again_is_answered_once() {
        let mut notifier = notifier();
        for rank in [2, 3, 2, 2, 3] {
            notifier.alive(1, rank);
        }
        assert_eq!(queued(&mut notifier, 1), [Queued::Alive(2), Queued::Alive(3)]);
        notifier.failed(2);
        assert_eq!(hear(&mut notifier, 1), ["failed 2"]);
        (0..3).for_each(|_| notifier.again(1, 2));
        assert_eq!(queued(&mut notifier, 1), [Queued::Again(End::Failed(2))]);
    }

    #[test]
    fn a_rank_that_has_left_is_told_nothing_and_the_others_hear_of_it_behind_their_own_answers() {
        let mut notifier = notifier();
        notifier.alive(1, 2);
        notifier.finalized(0);
        notifier.alive(0, 2);
        assert!(notifier.next_for(0).is_none());
        assert_eq!(hear(&mut notifier, 1), ["alive", "left [0]"]);
    }

    #[test]
    fn each_rank_is_told_every_end_once_and_a_late_comer_from_the_beginning() {
        let mut notifier = joined(7, false);
        notifier.finalized(0);
        notifier.finalized(1);
        notifier.failed(2);
        assert_eq!(hear(&mut notifier, 6), ["left [0, 1]", "failed 2"]);
        notifier.failed(3);
        notifier.finalized(4);
        // Asking changes nothing about the order of what is still to come.
        notifier.again(5, 3);
        assert_eq!(hear(&mut notifier, 5), ["left [0, 1]", "failed 2", "failed 3", "left [4]"]);
        assert_eq!(hear(&mut notifier, 6), ["failed 3", "left [4]"]);
    }

    #[test]
    fn a_contact_comes_before_the_death_of_the_peer() {
        let mut notifier = notifier();
        assert!(notifier.publish(0, Card::default()) && notifier.publish(1, Card::default()));
        notifier.lookup(0, 1);
        notifier.failed(0);
        assert_eq!(hear(&mut notifier, 1), ["contact", "failed 0"]);
    }

    #[test]
    fn where_deaths_are_muted_only_a_rank_that_asks_or_waits_for_an_introduction_is_told() {
        let mut notifier = muted();
        assert!(notifier.publish(0, Card::default()));
        notifier.lookup(0, 1);
        notifier.failed(1);
        notifier.finalized(2);
        assert_eq!(hear(&mut notifier, 0), ["failed 1", "left [2]"]);
        assert_eq!(hear(&mut notifier, 3), ["left [2]"]);
        notifier.lookup(3, 1);
        assert_eq!(hear(&mut notifier, 3), ["failed 1"]);
        notifier.again(3, 1);
        assert_eq!(hear(&mut notifier, 3), ["failed 1"]);
    }
}
