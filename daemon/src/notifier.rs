// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The notices for each rank, and their order: contacts with its peers, and which peers have left or failed.
//!
//! When a rank leaves or fails, that is an *end*. There is one list of ends, which each rank is sent from its beginning, however
//! late it calls MPI_Init (joins). Answers and contacts concern one rank only; they are in its queue, which is sent before the
//! rest of the list. So
//! * a contact comes before the end of its peer;
//! * a death comes before the leaving of a rank that was notified of it;
//! * a question about a rank whose end is still to be sent is answered by that end, when its turn in the list comes.
//!
//! The contract of the runtime ([`Notice::Failed`](mend_runtime::Notice::Failed)) permits that two ranks are notified of two
//! deaths in different orders, so no rank may rely on one order, and the simulator swaps such notices. This notifier has one
//! list, so its own orders differ only where deaths are not in the list (`muted`, a test hook).
//!
//! A pair of ranks:
//! ```text
//!   lookup ──▶ Wanted ── both have published ──▶ InContact ── refused by one ──▶ Refused ── needed by both ──▶ one of them fails
//!                 └── one has left or failed: no contact; the other is notified of that end
//! ```

use crate::exit_policy::Muted;
use mend_base::{Job, Peer};
use mend_runtime::carried::Carried;
use mend_runtime::daemon_protocol::{DaemonMessage, FINALIZED_MAX};
use mend_runtime::{RECALLS_MAX, ResultKey};
use mend_transport::{Card, Cause};
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// The notices for all ranks, and how far they have been sent.
#[derive(Debug)]
pub(crate) struct Notifier {
    job: Job,
    addressees: Vec<Addressee>,
    pairs: HashMap<(u32, u32), PairState>,
    /// The ends of ranks, in the order in which they were declared.
    ends: Vec<End>,
    /// If not [`Muted::None`], deaths are not in the list of ends: only a rank that asks is notified, or none (a test hook).
    muted: Muted,
    /// The ranks for which there may be a notice.
    due: BTreeSet<u32>,
}

/// One rank as a receiver of notices.
#[derive(Debug, Default)]
struct Addressee {
    /// The rank is connected, so it can be notified.
    joined: bool,
    /// Stays, with its descriptors, until the job ends, so that ranks that call MPI_Init late can read the outbox of a rank that
    /// has left.
    card: Option<Card>,
    queue: VecDeque<Queued>,
    /// How many answers about results are in the queue.
    recalls: usize,
    /// How many entries of the list of ends have been sent to the rank.
    ends_sent: usize,
    /// The ranks that want a contact with this rank, which has not published its card yet. Emptied when it publishes; an entry goes
    /// also when that other rank ends.
    awaited: Vec<u32>,
    /// How many ranks could not be connected with the rank.
    refusals: u32,
    /// A rank that has left or failed is sent nothing any more.
    state: AddresseeState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum AddresseeState {
    #[default]
    Open,
    /// The rank has left; index of its end in the list.
    Left(usize),
    /// The rank has failed; index of its end in the list, if it is in the list.
    Failed(Option<usize>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Finalized(u32),
    Failed(u32),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Queued {
    Contact(u32),
    Refused(u32, Cause),
    Alive(u32),
    Running(u32),
    /// For this rank, which hears nothing of the other.
    AreYouRunning(u32),
    /// An end that was sent before, for a rank that asked again.
    Again(End),
    Recalled(ResultKey, Option<Arc<[u8]>>),
    WhereAreYou,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PairState {
    Wanted,
    InContact,
    Refused {
        /// The rank that reported it first.
        by: u32,
    },
}

/// How far a notice, once it is sent, advances a rank's queue or its place in the list of ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step(StepKind);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StepKind {
    Queued,
    Ends(usize),
}

impl Notifier {
    /// For ranks 0 to `ranks` - 1 of `job`.
    pub(crate) fn new(job: Job, ranks: u32, muted: Muted) -> Self {
        Notifier {
            job,
            addressees: (0..ranks).map(|_| Addressee::default()).collect(),
            pairs: HashMap::new(),
            ends: vec![],
            muted,
            due: BTreeSet::new(),
        }
    }

    /// `rank` is connected: it is sent the list of ends from the beginning.
    pub(crate) fn joined(&mut self, rank: u32) {
        self.addressees[rank as usize].joined = true;
        self.due.insert(rank);
    }

    /// `rank` has published its card. `false`: it had done so before, which no correct rank does.
    pub(crate) fn publish(&mut self, rank: u32, card: Card) -> bool {
        let addressee = &mut self.addressees[rank as usize];
        if addressee.card.is_some() {
            return false;
        }
        addressee.card = Some(card);
        for other in std::mem::take(&mut addressee.awaited) {
            self.make_contact(rank, other);
        }
        true
    }

    /// `rank` requests a contact with `other`.
    pub(crate) fn lookup(&mut self, rank: u32, other: u32) {
        if self.addressees[other as usize].state != AddresseeState::Open {
            return self.again(rank, other);
        }
        if self.pairs.contains_key(&pair(rank, other)) {
            return;
        }
        self.pairs.insert(pair(rank, other), PairState::Wanted);
        self.make_contact(rank, other);
    }

    /// Queues a contact for both ranks, if both have published.
    fn make_contact(&mut self, rank: u32, other: u32) {
        let missing = [rank, other].into_iter().filter(|&each| self.addressees[each as usize].card.is_none());
        let missing: Vec<u32> = missing.collect();
        for &each in &missing {
            self.addressees[each as usize].awaited.push(if each == rank { other } else { rank });
        }
        if missing.is_empty() && self.pairs.get(&pair(rank, other)) == Some(&PairState::Wanted) {
            self.pairs.insert(pair(rank, other), PairState::InContact);
            self.queue(rank, Queued::Contact(other));
            self.queue(other, Queued::Contact(rank));
        }
    }

    /// `rank` cannot connect to `other`: both are notified, once.
    pub(crate) fn refuse(&mut self, rank: u32, other: u32, cause: Cause) {
        if let Some(PairState::Refused { .. }) = self.pairs.get(&pair(rank, other)) {
            return;
        }
        self.pairs.insert(pair(rank, other), PairState::Refused { by: rank });
        for (one, two) in [(rank, other), (other, rank)] {
            self.addressees[one as usize].refusals += 1;
            self.queue(one, Queued::Refused(two, cause));
        }
    }

    /// Which rank of a refused pair is at fault, by all that is known: the one that could not be connected with more ranks; of two alike the
    /// one that reported the refusal, since most often it has no memory or no descriptor left. Whatever the order of
    /// the arguments.
    pub(crate) fn at_fault(&self, rank: u32, other: u32) -> u32 {
        let refusals = |rank: u32| self.addressees[rank as usize].refusals;
        match (refusals(rank).cmp(&refusals(other)), self.pairs.get(&pair(rank, other))) {
            (Ordering::Greater, _) => rank,
            (Ordering::Less, _) => other,
            (Ordering::Equal, Some(&PairState::Refused { by })) => by,
            // No correct rank needs another one that it could not connect with before that is reported.
            (Ordering::Equal, _) => rank.max(other),
        }
    }

    /// `to` asked about `rank`, and it lives.
    pub(crate) fn alive(&mut self, to: u32, rank: u32) {
        self.queue_once(to, Queued::Alive(rank));
    }

    /// `to` asked about `rank`, which has answered since.
    pub(crate) fn running(&mut self, to: u32, rank: u32) {
        self.queue_once(to, Queued::Running(rank));
    }

    /// `to` is asked whether it runs, since `from` hears nothing of it.
    pub(crate) fn are_you_running(&mut self, to: u32, from: u32) {
        self.queue_once(to, Queued::AreYouRunning(from));
    }

    /// One answer is enough for all earlier questions, so a rank that asks and never reads takes no more memory.
    fn queue_once(&mut self, to: u32, queued: Queued) {
        if !self.addressees[to as usize].queue.contains(&queued) {
            self.queue(to, queued);
        }
    }

    /// `to` asked for a result, and this is the answer. `false`: so many answers are unsent already that no correct rank asks
    /// again.
    pub(crate) fn recalled(&mut self, to: u32, key: ResultKey, result: Option<Arc<[u8]>>) -> bool {
        let recalls = &mut self.addressees[to as usize].recalls;
        if *recalls == RECALLS_MAX {
            return false;
        }
        *recalls += 1;
        self.queue(to, Queued::Recalled(key, result));
        true
    }

    /// `to` is asked where its program is.
    pub(crate) fn where_are_you(&mut self, to: u32) {
        self.queue(to, Queued::WhereAreYou);
    }

    /// `rank` has left: each other rank is notified, after the notices about `rank` that are queued already.
    pub(crate) fn finalized(&mut self, rank: u32) {
        self.end(rank, AddresseeState::Left(self.ends.len()));
        self.add_end(End::Finalized(rank));
    }

    /// `rank` has failed: each other rank is notified, after the notices about `rank` that are queued already.
    pub(crate) fn failed(&mut self, rank: u32) {
        let is_told = self.muted == Muted::None;
        let waiting = self.end(rank, AddresseeState::Failed(is_told.then_some(self.ends.len())));
        if is_told {
            return self.add_end(End::Failed(rank));
        }
        // A rank that waits for a contact is notified as one that asks.
        waiting.into_iter().for_each(|other| self.again(other, rank));
    }

    fn add_end(&mut self, end: End) {
        self.ends.push(end);
        let joined = (0..).zip(&self.addressees).filter(|(_, addressee)| addressee.joined);
        self.due.extend(joined.map(|(rank, _)| rank));
    }

    /// Ends notices for `rank`, and returns the ranks that still wait for a contact with it.
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

    /// `to` asked about `rank`, which has left or failed. If `to` has not been sent that end yet, nothing is queued:
    /// the end is sent when its turn in the list comes.
    pub(crate) fn again(&mut self, to: u32, rank: u32) {
        let (place, end) = match self.addressees[rank as usize].state {
            AddresseeState::Open => return,
            AddresseeState::Left(place) => (Some(place), End::Finalized(rank)),
            AddresseeState::Failed(_) if self.muted == Muted::All => return,
            AddresseeState::Failed(place) => (place, End::Failed(rank)),
        };
        let sent_before = place.is_none_or(|place| place < self.addressees[to as usize].ends_sent);
        if sent_before && !self.addressees[to as usize].queue.contains(&Queued::Again(end)) {
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

    /// The ranks for which there may be a notice.
    pub(crate) fn due(&self) -> Vec<u32> {
        self.due.iter().copied().collect()
    }

    /// The next packet for `rank`, and the step to pass to [`sent`](Notifier::sent).
    pub(crate) fn next(&mut self, rank: u32) -> Option<(DaemonMessage, Step)> {
        let next = self.next_for(rank);
        if next.is_none() {
            self.due.remove(&rank);
        }
        next
    }

    fn next_for(&self, rank: u32) -> Option<(DaemonMessage, Step)> {
        let addressee = &self.addressees[rank as usize];
        if addressee.state != AddresseeState::Open {
            return None;
        }
        if let Some(queued) = addressee.queue.front() {
            return Some((self.message(queued), Step(StepKind::Queued)));
        }
        let unsent = &self.ends[addressee.ends_sent..];
        match *unsent.first()? {
            End::Failed(rank) => Some((DaemonMessage::Failed(self.peer(rank)), Step(StepKind::Ends(1)))),
            End::Finalized(_) => {
                let left = unsent.iter().map_while(|end| match end {
                    End::Finalized(rank) => Some(self.peer(*rank)),
                    End::Failed(_) => None,
                });
                let peers: Vec<Peer> = left.take(FINALIZED_MAX).collect();
                let count = peers.len();
                Some((DaemonMessage::Finalized(peers), Step(StepKind::Ends(count))))
            }
        }
    }

    /// The packet of that step was sent to `rank`.
    pub(crate) fn sent(&mut self, rank: u32, step: Step) {
        let addressee = &mut self.addressees[rank as usize];
        match step.0 {
            StepKind::Queued => {
                let is_recall = matches!(addressee.queue.pop_front(), Some(Queued::Recalled(..)));
                addressee.recalls -= usize::from(is_recall);
            }
            StepKind::Ends(count) => addressee.ends_sent += count,
        }
    }

    fn message(&self, queued: &Queued) -> DaemonMessage {
        match *queued {
            Queued::Contact(other) => {
                let card = self.addressees[other as usize].card.clone();
                let card = card.expect("a rank with a contact has published a card");
                let carried = Carried::of(&card);
                DaemonMessage::Contact(self.peer(other), card, carried)
            }
            Queued::Refused(other, cause) => DaemonMessage::Refused(self.peer(other), cause),
            Queued::WhereAreYou => DaemonMessage::WhereAreYou,
            Queued::Alive(other) => DaemonMessage::Alive(self.peer(other)),
            Queued::Running(other) => DaemonMessage::Running(self.peer(other)),
            Queued::AreYouRunning(from) => DaemonMessage::AreYouRunning(self.peer(from)),
            Queued::Recalled(key, ref result) => {
                DaemonMessage::Recalled(key, result.as_deref().map(<[u8]>::to_vec))
            }
            Queued::Again(End::Finalized(other)) => DaemonMessage::Finalized(vec![self.peer(other)]),
            Queued::Again(End::Failed(other)) => DaemonMessage::Failed(self.peer(other)),
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
    use super::{DaemonMessage, End, Muted, Notifier, Queued, Step, StepKind};
    use mend_base::{Identity, Job, Peer};
    use mend_runtime::{RECALLS_MAX, ResultKey};
    use mend_transport::{Card, Cause};

    fn joined(ranks: u32, muted: Muted) -> Notifier {
        let mut notifier = Notifier::new(Job(1), ranks, muted);
        (0..ranks).for_each(|rank| notifier.joined(rank));
        notifier
    }

    fn notifier() -> Notifier {
        joined(4, Muted::None)
    }

    fn muted() -> Notifier {
        joined(4, Muted::Unasked)
    }

    fn queued(notifier: &mut Notifier, rank: usize) -> Vec<Queued> {
        notifier.addressees[rank].queue.drain(..).collect()
    }

    /// Takes all notices for a rank, in words.
    fn take_all(notifier: &mut Notifier, rank: u32) -> Vec<String> {
        let mut notices = vec![];
        while let Some((message, step)) = notifier.next(rank) {
            notices.push(match message {
                DaemonMessage::Finalized(peers) => {
                    format!("left {:?}", peers.iter().map(|p| p.number()).collect::<Vec<_>>())
                }
                DaemonMessage::Failed(peer) => format!("failed {}", peer.number()),
                other => format!("{other:?}").split('(').next().unwrap().to_lowercase(),
            });
            notifier.sent(rank, step);
        }
        notices
    }

    #[test]
    fn a_pair_gets_its_contacts_once_both_have_published_whichever_asked() {
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
    fn a_rank_that_waits_for_a_contact_with_a_failed_rank_is_notified() {
        let mut notifier = notifier();
        assert!(notifier.publish(0, Card::default()));
        notifier.lookup(0, 1);
        notifier.lookup(2, 1);
        notifier.failed(1);
        notifier.lookup(3, 1);
        for rank in [0, 2, 3] {
            assert_eq!(take_all(&mut notifier, rank), ["failed 1"]);
        }
        // A rank that looks it up later is notified again.
        notifier.lookup(3, 1);
        assert_eq!(take_all(&mut notifier, 3), ["failed 1"]);
        assert!(take_all(&mut notifier, 1).is_empty());
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
    fn of_a_refused_pair_the_one_that_fewer_ranks_can_connect_to_is_at_fault_or_the_one_that_reports() {
        let mut notifier = notifier();
        notifier.refuse(2, 3, Cause::NoMemory);
        notifier.refuse(3, 2, Cause::Refused);
        assert_eq!((notifier.at_fault(2, 3), notifier.at_fault(3, 2)), (2, 2));
        notifier.refuse(0, 3, Cause::Refused);
        assert_eq!([notifier.at_fault(2, 3), notifier.at_fault(3, 0), notifier.at_fault(0, 3)], [3; 3]);
    }

    #[test]
    fn a_rank_that_asks_again_and_again_is_answered_once() {
        let mut notifier = notifier();
        for rank in [2, 3, 2, 2, 3] {
            notifier.alive(1, rank);
        }
        assert_eq!(queued(&mut notifier, 1), [Queued::Alive(2), Queued::Alive(3)]);
        notifier.failed(2);
        assert_eq!(take_all(&mut notifier, 1), ["failed 2"]);
        (0..3).for_each(|_| notifier.again(1, 2));
        assert_eq!(queued(&mut notifier, 1), [Queued::Again(End::Failed(2))]);
    }

    #[test]
    fn a_question_for_a_result_is_answered_each_time_but_not_without_end() {
        let mut notifier = notifier();
        let identity = Identity { creator: Peer::new(Job(1), 0), number: 16 };
        let key = ResultKey { identity, protocol: 0, sequence: 1 };
        assert!(notifier.recalled(1, key, None));
        assert!(notifier.recalled(1, key, Some([7].into())));
        let answers = [notifier.next(1), {
            notifier.sent(1, Step(StepKind::Queued));
            notifier.next(1)
        }];
        let answers = answers.map(|answer| match answer {
            Some((DaemonMessage::Recalled(asked, result), _)) => (asked, result),
            other => panic!("{other:?}"),
        });
        assert_eq!(answers, [(key, None), (key, Some(vec![7]))]);
        notifier.sent(1, Step(StepKind::Queued));
        assert!((0..RECALLS_MAX).all(|_| notifier.recalled(1, key, None)));
        assert!(!notifier.recalled(1, key, None));
        assert!(notifier.recalled(2, key, None));
        // What was sent makes room.
        notifier.sent(1, Step(StepKind::Queued));
        assert!(notifier.recalled(1, key, None));
    }

    #[test]
    fn a_rank_that_has_left_gets_no_notices_and_the_others_are_notified_after_their_answers() {
        let mut notifier = notifier();
        notifier.alive(1, 2);
        notifier.finalized(0);
        notifier.alive(0, 2);
        assert!(notifier.next_for(0).is_none());
        assert_eq!(take_all(&mut notifier, 1), ["alive", "left [0]"]);
    }

    #[test]
    fn each_rank_is_notified_of_every_end_once_and_a_late_joiner_from_the_beginning() {
        let mut notifier = joined(7, Muted::None);
        notifier.finalized(0);
        notifier.finalized(1);
        notifier.failed(2);
        assert_eq!(take_all(&mut notifier, 6), ["left [0, 1]", "failed 2"]);
        notifier.failed(3);
        notifier.finalized(4);
        // A question does not change the order of the ends that are still to be sent.
        notifier.again(5, 3);
        assert_eq!(take_all(&mut notifier, 5), ["left [0, 1]", "failed 2", "failed 3", "left [4]"]);
        assert_eq!(take_all(&mut notifier, 6), ["failed 3", "left [4]"]);
    }

    #[test]
    fn a_contact_comes_before_the_death_of_the_peer() {
        let mut notifier = notifier();
        assert!(notifier.publish(0, Card::default()) && notifier.publish(1, Card::default()));
        notifier.lookup(0, 1);
        notifier.failed(0);
        assert_eq!(take_all(&mut notifier, 1), ["contact", "failed 0"]);
    }

    #[test]
    fn where_deaths_are_muted_only_a_rank_that_asks_or_waits_for_a_contact_is_notified() {
        let mut notifier = muted();
        assert!(notifier.publish(0, Card::default()));
        notifier.lookup(0, 1);
        notifier.failed(1);
        notifier.finalized(2);
        assert_eq!(take_all(&mut notifier, 0), ["failed 1", "left [2]"]);
        assert_eq!(take_all(&mut notifier, 3), ["left [2]"]);
        notifier.lookup(3, 1);
        assert_eq!(take_all(&mut notifier, 3), ["failed 1"]);
        notifier.again(3, 1);
        assert_eq!(take_all(&mut notifier, 3), ["failed 1"]);
    }

    #[test]
    fn where_all_deaths_are_muted_nobody_hears_of_one_and_all_hear_who_left() {
        let mut notifier = joined(4, Muted::All);
        assert!(notifier.publish(0, Card::default()));
        notifier.lookup(0, 1);
        notifier.failed(1);
        notifier.finalized(2);
        notifier.lookup(3, 1);
        notifier.again(3, 1);
        assert_eq!(take_all(&mut notifier, 0), ["left [2]"]);
        assert_eq!(take_all(&mut notifier, 3), ["left [2]"]);
    }
}
