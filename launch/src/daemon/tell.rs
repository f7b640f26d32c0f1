// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tells ranks what they must know: how to reach each other, who has left. Each is told when its socket has room, and
//! its version on the fault page is bumped, and it is woken, after the packet lies there.
//!
//! A pair of ranks:
//! ```text
//!   lookup ──▶ Wanted ── both have published ──▶ Introduced ── refused by one ──▶ Refused
//!                 └── one has left without a card ────────────────────────────────▲
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
pub struct Teller {
    job: Job,
    seats: Vec<Seat>,
    pairs: HashMap<(u32, u32), Pair>,
    /// Who has left, in that order; each seat has been told a part of it from the front.
    left: Vec<u32>,
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
    /// How many of those who left it has been told.
    told_left: usize,
    /// Who wants to meet it, or whom it wants to meet, once it has a card.
    awaited: Vec<u32>,
    /// It has left, or its process is gone: it is told nothing any more.
    over: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Note {
    Contact(u32),
    Refused(u32, Cause),
    Alive(u32),
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

impl Teller {
    /// For ranks 0 to `ranks` - 1 of `job`, on a node with `slots` places.
    pub fn new(job: Job, ranks: u32, slots: u32) -> Result<Self, Failure> {
        let (bells, bells_file) = BellPage::create(slots)?;
        let (faults, faults_file) = FaultPage::create(slots)?;
        Ok(Teller {
            job,
            seats: (0..ranks).map(|_| Seat::default()).collect(),
            pairs: HashMap::new(),
            left: vec![],
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

    /// `rank` wants to reach `other`, of which no process is left if it is `gone`.
    pub fn lookup(&mut self, rank: u32, other: u32, gone: bool) {
        if self.pairs.contains_key(&pair(rank, other)) {
            return;
        }
        if gone || self.seats[other as usize].over {
            self.pairs.insert(pair(rank, other), Pair::Refused);
            return self.note(rank, Note::Refused(other, Cause::Exited));
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
        self.left.push(rank);
        self.gone(rank);
        self.open = (0..self.seats.len() as u32).collect();
    }

    /// No process of `rank` is left, or none that is in MPI: whoever still waits to meet it waits in vain.
    pub fn gone(&mut self, rank: u32) {
        let seat = &mut self.seats[rank as usize];
        seat.over = true;
        seat.notes.clear();
        let mut waiting = std::mem::take(&mut seat.awaited);
        waiting.extend(
            (0..self.seats.len() as u32).filter(|&other| self.seats[other as usize].awaited.contains(&rank)),
        );
        for other in waiting {
            if self.pairs.insert(pair(rank, other), Pair::Refused) == Some(Pair::Wanted) {
                self.note(other, Note::Refused(rank, Cause::Exited));
            }
        }
    }

    fn note(&mut self, rank: u32, note: Note) {
        let seat = &mut self.seats[rank as usize];
        if !seat.over {
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
        if seat.over {
            return None;
        }
        if let Some(note) = seat.notes.front() {
            return Some((self.answer(*note), Step::Note));
        }
        let untold = &self.left[seat.told_left..];
        let part = &untold[..untold.len().min(FINALIZED_MAX)];
        let peers = part.iter().map(|&left| self.peer(left)).collect();
        (!part.is_empty()).then(|| (Answer::Finalized(peers), Step::Left(part.len())))
    }

    fn advance(&mut self, rank: u32, step: Step) {
        let seat = &mut self.seats[rank as usize];
        match step {
            Step::Note => drop(seat.notes.pop_front()),
            Step::Left(count) => seat.told_left += count,
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
        }
    }

    fn peer(&self, rank: u32) -> Peer {
        Peer::new(self.job, rank)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Note,
    Left(usize),
}

fn pair(a: u32, b: u32) -> (u32, u32) {
    (a.min(b), a.max(b))
}

const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::{Note, Teller};
    use mend_base::Job;
    use mend_transport::{Card, Cause};

    fn teller() -> Teller {
        Teller::new(Job(1), 4, 20).unwrap()
    }

    fn notes(teller: &mut Teller, rank: usize) -> Vec<Note> {
        teller.seats[rank].notes.drain(..).collect()
    }

    #[test]
    fn a_pair_meets_once_both_have_published_whoever_asked() {
        let mut teller = teller();
        teller.lookup(0, 1, false);
        teller.lookup(1, 0, false);
        assert!(teller.publish(1, Card::default()));
        assert!(notes(&mut teller, 1).is_empty());
        assert!(teller.publish(0, Card::default()));
        assert_eq!(notes(&mut teller, 0), [Note::Contact(1)]);
        assert_eq!(notes(&mut teller, 1), [Note::Contact(0)]);
        teller.lookup(1, 0, false);
        assert!(notes(&mut teller, 0).is_empty());
        assert!(!teller.publish(0, Card::default()), "a second card is no correct rank's");
    }

    #[test]
    fn who_waits_for_one_that_left_without_a_card_is_told_so_once() {
        let mut teller = teller();
        assert!(teller.publish(0, Card::default()));
        teller.lookup(0, 1, false);
        teller.lookup(2, 1, false);
        teller.gone(1);
        teller.gone(1);
        teller.lookup(3, 1, true);
        for rank in [0, 2, 3] {
            assert_eq!(notes(&mut teller, rank), [Note::Refused(1, Cause::Exited)]);
        }
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
    }

    #[test]
    fn who_has_left_is_told_nothing_and_everybody_else_hears_of_it_behind_their_notes() {
        let mut teller = teller();
        teller.alive(1, 2);
        teller.finalized(0);
        teller.alive(0, 2);
        assert!(teller.next_for(0).is_none());
        let (first, step) = teller.next_for(1).unwrap();
        assert!(matches!(first, super::Answer::Alive(_)));
        teller.advance(1, step);
        assert!(matches!(teller.next_for(1), Some((super::Answer::Finalized(who), _)) if who.len() == 1));
    }
}
