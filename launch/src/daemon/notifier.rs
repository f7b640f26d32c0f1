// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tells ranks what they must know: how to reach each other, who has left, who has failed. Each is told when its socket has
//! room, and its version on the fault page is bumped, and it is woken, after the packet lies there.
//!
//! Who left and who failed is *news*: one list, which everybody is told in its order, late comers from its beginning. What
//! is for one rank alone is a *note*, and goes before the news, so that whose end is told was met before.
//!
//! A pair of ranks:
//! ```text
//!   lookup ──▶ Wanted ── both have published ──▶ Introduced ── refused by one ──▶ Refused
//!                 └── one has left or failed: nothing more; its end is news
//! ```

use crate::Failure;
use crate::daemon::serve::Desk;
use mend_base::{Job, Peer};
use mend_runtime::daemon_protocol::{Answer, FINALIZED_MAX, encode};
use mend_runtime::packet::{Sent, Waiting, send};
use mend_segment::{BellPage, FaultPage};
use mend_transport::{Card, Cause};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// What all ranks of the node are told, and have been.
#[derive(Debug)]
pub struct Notifier {
    job: Job,
    seats: Vec<Seat>,
    pairs: HashMap<(u32, u32), Pair>,
    /// Who has left or failed, in that order; each seat has been told a part of it from the front.
    news: Vec<News>,
    /// Deaths are no news: only who asks is told (a test hook).
    muted: bool,
    /// Who may have to be told something.
    open: BTreeSet<u32>,
    /// Who had no room; when to look again, and how long it was until then.
    busy: Option<(Instant, Duration)>,
    bells: BellPage,
    bells_file: OwnedFd,
    faults: FaultPage,
    faults_file: OwnedFd,
    slots: u32,
}

#[derive(Debug, Default)]
struct Seat {
    /// Kept, with its descriptor, until the job ends: late comers reach the outbox of one that has left.
    card: Option<Card>,
    notes: VecDeque<Note>,
    /// How much of the news it has been told.
    told: usize,
    /// Who wants to meet it, or whom it wants to meet, once it has a card.
    awaited: Vec<u32>,
    /// If it has left or failed, it is told nothing any more.
    fate: Fate,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Fate {
    #[default]
    Open,
    /// It has left, as is said at that place of the news.
    Left(usize),
    /// It has failed, as is said at that place of the news, if it is said there.
    Failed(Option<usize>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum News {
    Finalized(u32),
    Failed(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Note {
    Contact(u32),
    Refused(u32, Cause),
    Alive(u32),
    /// Once more, for who asked.
    Again(News),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pair {
    Wanted,
    Introduced,
    Refused,
}

/// What became of an attempt to tell one rank everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Everything,
    NoRoom,
}

impl Notifier {
    /// For ranks 0 to `ranks` - 1 of `job`, on a node with `slots` places. `muted`: only who asks hears of deaths (a test
    /// hook).
    pub fn new(job: Job, ranks: u32, slots: u32, muted: bool) -> Result<Self, Failure> {
        let (bells, bells_file) = BellPage::create(slots)?;
        let (faults, faults_file) = FaultPage::create(slots)?;
        Ok(Notifier {
            job,
            seats: (0..ranks).map(|_| Seat::default()).collect(),
            pairs: HashMap::new(),
            news: vec![],
            muted,
            open: BTreeSet::new(),
            busy: None,
            bells,
            bells_file,
            faults,
            faults_file,
            slots,
        })
    }

    /// How many places the node has.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The descriptors of bell page and fault page.
    pub fn pages(&self) -> [BorrowedFd<'_>; 2] {
        [self.bells_file.as_fd(), self.faults_file.as_fd()]
    }

    /// `rank` can be reached from now on. `false`: it had said so before, which no correct rank does.
    pub fn publish(&mut self, rank: u32, card: Card) -> bool {
        let seat = &mut self.seats[rank as usize];
        if seat.card.is_some() {
            return false;
        }
        seat.card = Some(card);
        for other in std::mem::take(&mut seat.awaited) {
            self.meet(rank, other);
        }
        true
    }

    /// `rank` wants to reach `other`.
    pub fn lookup(&mut self, rank: u32, other: u32) {
        if self.seats[other as usize].fate != Fate::Open {
            return self.again(rank, other);
        }
        if self.pairs.contains_key(&pair(rank, other)) {
            return;
        }
        self.pairs.insert(pair(rank, other), Pair::Wanted);
        self.meet(rank, other);
    }

    /// Introduces the two, if both can be reached by now.
    fn meet(&mut self, rank: u32, other: u32) {
        let missing = [rank, other].into_iter().filter(|&each| self.seats[each as usize].card.is_none());
        let missing: Vec<u32> = missing.collect();
        for &each in &missing {
            self.seats[each as usize].awaited.push(if each == rank { other } else { rank });
        }
        if missing.is_empty() && self.pairs.get(&pair(rank, other)) == Some(&Pair::Wanted) {
            self.pairs.insert(pair(rank, other), Pair::Introduced);
            self.note(rank, Note::Contact(other));
            self.note(other, Note::Contact(rank));
        }
    }

    /// `rank` cannot connect to `other`: both are told, once.
    pub fn refuse(&mut self, rank: u32, other: u32, cause: Cause) {
        if self.pairs.insert(pair(rank, other), Pair::Refused) != Some(Pair::Refused) {
            self.note(rank, Note::Refused(other, cause));
            self.note(other, Note::Refused(rank, cause));
        }
    }

    /// `to` asked about `rank`, and it lives.
    pub fn alive(&mut self, to: u32, rank: u32) {
        // One answer stands for all questions before it: who asks and never reads costs no more memory.
        if !self.seats[to as usize].notes.contains(&Note::Alive(rank)) {
            self.note(to, Note::Alive(rank));
        }
    }

    /// `rank` has left: everybody hears it, behind what they are to hear of it already.
    pub fn finalized(&mut self, rank: u32) {
        self.over(rank, Fate::Left(self.news.len()));
        self.spread(News::Finalized(rank));
    }

    /// `rank` is dead: everybody hears it, behind what they are to hear of it already.
    pub fn failed(&mut self, rank: u32) {
        let waiting = self.over(rank, Fate::Failed((!self.muted).then_some(self.news.len())));
        if !self.muted {
            return self.spread(News::Failed(rank));
        }
        // To want to meet it is to ask.
        waiting.into_iter().for_each(|other| self.again(other, rank));
    }

    fn spread(&mut self, news: News) {
        self.news.push(news);
        self.open = (0..self.seats.len() as u32).collect();
    }

    /// Nobody tells `rank` anything any more. Who still waits to meet it.
    fn over(&mut self, rank: u32, fate: Fate) -> Vec<u32> {
        let seat = &mut self.seats[rank as usize];
        seat.fate = fate;
        seat.notes.clear();
        let mut waiting = std::mem::take(&mut seat.awaited);
        for (other, seat) in (0..).zip(&mut self.seats) {
            if seat.awaited.contains(&rank) {
                seat.awaited.retain(|each| *each != rank);
                waiting.push(other);
            }
        }
        for &other in &waiting {
            self.pairs.remove(&pair(rank, other));
        }
        waiting
    }

    /// `to` asked about `rank`, which has left or failed. If that still is to come to it as news, it comes in its place.
    pub fn again(&mut self, to: u32, rank: u32) {
        let (place, news) = match self.seats[rank as usize].fate {
            Fate::Open => return,
            Fate::Left(place) => (Some(place), News::Finalized(rank)),
            Fate::Failed(place) => (place, News::Failed(rank)),
        };
        let heard = place.is_none_or(|place| place < self.seats[to as usize].told);
        if heard && !self.seats[to as usize].notes.contains(&Note::Again(news)) {
            self.note(to, Note::Again(news));
        }
    }

    fn note(&mut self, rank: u32, note: Note) {
        let seat = &mut self.seats[rank as usize];
        if seat.fate == Fate::Open {
            seat.notes.push_back(note);
            self.open.insert(rank);
        }
    }

    /// When to tell again those who had no room.
    pub fn look_again_at(&self) -> Option<Instant> {
        self.busy.map(|(at, _)| at)
    }

    /// Tells everybody what is open, as far as there is room.
    pub fn tell_all(&mut self, desk: &Desk) {
        let mut without_room = BTreeSet::new();
        for rank in std::mem::take(&mut self.open) {
            // Who has not come yet is told when it has: see `arrived`.
            let Some(socket) = desk.socket_of(rank) else { continue };
            if self.tell(rank, socket) == Told::NoRoom {
                without_room.insert(rank);
            }
        }
        self.open = without_room;
        let pause = self.busy.map_or(PAUSE_MIN, |(_, pause)| (2 * pause).min(PAUSE_MAX));
        self.busy = (!self.open.is_empty()).then(|| (Instant::now() + pause, pause));
    }

    /// `rank` has come: it is told what has happened before.
    pub fn arrived(&mut self, rank: u32) {
        self.open.insert(rank);
    }

    fn tell(&mut self, rank: u32, socket: BorrowedFd<'_>) -> Told {
        let mut told = Told::Everything;
        let mut any = false;
        while let Some((answer, step)) = self.next_for(rank) {
            let descriptor = match &answer {
                Answer::Contact(_, card) => card.descriptor.clone(),
                _ => None,
            };
            let with: Vec<_> = descriptor.iter().map(|descriptor| descriptor.as_fd()).collect();
            match send(socket, &encode(&answer), &with, Waiting::Never) {
                Sent::Yes => {
                    any = true;
                    self.advance(rank, step);
                }
                Sent::Busy => {
                    told = Told::NoRoom;
                    break;
                }
                // Its end will be heard.
                Sent::Closed => break,
            }
        }
        if any {
            self.faults.bump(rank);
            self.bells.wake(rank);
        }
        told
    }

    /// The next packet for `rank`: notes first, so that who left was met before.
    fn next_for(&self, rank: u32) -> Option<(Answer, Step)> {
        let seat = &self.seats[rank as usize];
        if seat.fate != Fate::Open {
            return None;
        }
        if let Some(note) = seat.notes.front() {
            return Some((self.answer(*note), Step::Note));
        }
        let untold = &self.news[seat.told..];
        match *untold.first()? {
            News::Failed(rank) => Some((Answer::Failed(self.peer(rank)), Step::News(1))),
            News::Finalized(_) => {
                let left = untold.iter().map_while(|news| match news {
                    News::Finalized(rank) => Some(self.peer(*rank)),
                    News::Failed(_) => None,
                });
                let peers: Vec<Peer> = left.take(FINALIZED_MAX).collect();
                let count = peers.len();
                Some((Answer::Finalized(peers), Step::News(count)))
            }
        }
    }

    fn advance(&mut self, rank: u32, step: Step) {
        let seat = &mut self.seats[rank as usize];
        match step {
            Step::Note => drop(seat.notes.pop_front()),
            Step::News(count) => seat.told += count,
        }
    }

    fn answer(&self, note: Note) -> Answer {
        match note {
            Note::Contact(other) => {
                let card = self.seats[other as usize].card.clone();
                Answer::Contact(self.peer(other), card.expect("who is introduced has published a card"))
            }
            Note::Refused(other, cause) => Answer::Refused(self.peer(other), cause),
            Note::Alive(other) => Answer::Alive(self.peer(other)),
            Note::Again(News::Finalized(other)) => Answer::Finalized(vec![self.peer(other)]),
            Note::Again(News::Failed(other)) => Answer::Failed(self.peer(other)),
        }
    }

    fn peer(&self, rank: u32) -> Peer {
        Peer::new(self.job, rank)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Note,
    News(usize),
}

fn pair(a: u32, b: u32) -> (u32, u32) {
    (a.min(b), a.max(b))
}

const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::{Answer, News, Note, Notifier};
    use mend_base::Job;
    use mend_transport::{Card, Cause};

    fn teller() -> Notifier {
        Notifier::new(Job(1), 4, 20, false).unwrap()
    }

    fn muted() -> Notifier {
        Notifier::new(Job(1), 4, 20, true).unwrap()
    }

    fn notes(teller: &mut Notifier, rank: usize) -> Vec<Note> {
        teller.seats[rank].notes.drain(..).collect()
    }

    /// All that is there for a rank, as it would be told.
    fn hear(teller: &mut Notifier, rank: u32) -> Vec<String> {
        let mut heard = vec![];
        while let Some((answer, step)) = teller.next_for(rank) {
            heard.push(match answer {
                Answer::Finalized(who) => {
                    format!("left {:?}", who.iter().map(|p| p.number()).collect::<Vec<_>>())
                }
                Answer::Failed(who) => format!("failed {}", who.number()),
                other => format!("{other:?}").split('(').next().unwrap().to_lowercase(),
            });
            teller.advance(rank, step);
        }
        heard
    }

    #[test]
    fn a_pair_meets_once_both_have_published_whoever_asked() {
        let mut teller = teller();
        teller.lookup(0, 1);
        teller.lookup(1, 0);
        assert!(teller.publish(1, Card::default()));
        assert!(notes(&mut teller, 1).is_empty());
        assert!(teller.publish(0, Card::default()));
        assert_eq!(notes(&mut teller, 0), [Note::Contact(1)]);
        assert_eq!(notes(&mut teller, 1), [Note::Contact(0)]);
        teller.lookup(1, 0);
        assert!(notes(&mut teller, 0).is_empty());
        assert!(!teller.publish(0, Card::default()), "a second card is no correct rank's");
    }

    // Row LC3
    #[test]
    fn who_waits_to_meet_one_that_fails_hears_of_its_death_and_of_no_refusal() {
        let mut teller = teller();
        assert!(teller.publish(0, Card::default()));
        teller.lookup(0, 1);
        teller.lookup(2, 1);
        teller.failed(1);
        teller.lookup(3, 1);
        for rank in [0, 2, 3] {
            assert_eq!(hear(&mut teller, rank), ["failed 1"]);
        }
        // Whoever looks it up later hears it again.
        teller.lookup(3, 1);
        assert_eq!(hear(&mut teller, 3), ["failed 1"]);
        assert!(hear(&mut teller, 1).is_empty());
    }

    #[test]
    fn a_refusal_reaches_both_ends_once() {
        let mut teller = teller();
        teller.refuse(2, 3, Cause::LayoutDiffers);
        teller.refuse(3, 2, Cause::Refused);
        assert_eq!(notes(&mut teller, 2), [Note::Refused(3, Cause::LayoutDiffers)]);
        assert_eq!(notes(&mut teller, 3), [Note::Refused(2, Cause::LayoutDiffers)]);
    }

    #[test]
    fn who_asks_again_and_again_is_answered_once() {
        let mut teller = teller();
        for rank in [2, 3, 2, 2, 3] {
            teller.alive(1, rank);
        }
        assert_eq!(notes(&mut teller, 1), [Note::Alive(2), Note::Alive(3)]);
        teller.failed(2);
        assert_eq!(hear(&mut teller, 1), ["failed 2"]);
        (0..3).for_each(|_| teller.again(1, 2));
        assert_eq!(notes(&mut teller, 1), [Note::Again(News::Failed(2))]);
    }

    #[test]
    fn who_has_left_is_told_nothing_and_everybody_else_hears_of_it_behind_their_notes() {
        let mut teller = teller();
        teller.alive(1, 2);
        teller.finalized(0);
        teller.alive(0, 2);
        assert!(teller.next_for(0).is_none());
        assert_eq!(hear(&mut teller, 1), ["alive", "left [0]"]);
    }

    #[test]
    fn everybody_hears_of_all_ends_in_one_order_and_who_comes_late_from_the_beginning() {
        let mut teller = Notifier::new(Job(1), 7, 20, false).unwrap();
        teller.finalized(0);
        teller.finalized(1);
        teller.failed(2);
        assert_eq!(hear(&mut teller, 6), ["left [0, 1]", "failed 2"]);
        teller.failed(3);
        teller.finalized(4);
        // Asking changes nothing about the order of what is still to come.
        teller.again(5, 3);
        assert_eq!(hear(&mut teller, 5), ["left [0, 1]", "failed 2", "failed 3", "left [4]"]);
        assert_eq!(hear(&mut teller, 6), ["failed 3", "left [4]"]);
    }

    #[test]
    fn who_was_introduced_to_the_dead_hears_of_the_meeting_first() {
        let mut teller = teller();
        assert!(teller.publish(0, Card::default()) && teller.publish(1, Card::default()));
        teller.lookup(0, 1);
        teller.failed(0);
        assert_eq!(hear(&mut teller, 1), ["contact", "failed 0"]);
    }

    #[test]
    fn where_deaths_are_muted_only_who_asks_or_wants_to_meet_the_dead_hears_of_them() {
        let mut teller = muted();
        assert!(teller.publish(0, Card::default()));
        teller.lookup(0, 1);
        teller.failed(1);
        teller.finalized(2);
        assert_eq!(hear(&mut teller, 0), ["failed 1", "left [2]"]);
        assert_eq!(hear(&mut teller, 3), ["left [2]"]);
        teller.lookup(3, 1);
        assert_eq!(hear(&mut teller, 3), ["failed 1"]);
        teller.again(3, 1);
        assert_eq!(hear(&mut teller, 3), ["failed 1"]);
    }
}
