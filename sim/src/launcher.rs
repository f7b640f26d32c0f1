// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whoever started the simulated processes: cards, first contacts and notices, handed out when the seed says so. Each
//! process hears its own notices in order; when, compared with others, is open.

use crate::killer::Killer;
use mend_base::{Job, Peer, Random};
use mend_runtime::{Membership, Notice, Runtime, RuntimeError};
use mend_transport::{Card, Cause};
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

/// The launcher's books.
#[derive(Debug)]
pub struct Launcher {
    job: Job,
    seats: Vec<Seat>,
    /// Pairs, lower number first, that somebody asked for and that wait for a card.
    asked: BTreeSet<(u32, u32)>,
    /// Pairs that somebody has asked for.
    answered: BTreeSet<(u32, u32)>,
    /// Pairs that were told of each other.
    introduced: BTreeSet<(u32, u32)>,
    accusations: Vec<Accusation>,
    /// Who is to be ended, because somebody asked for it.
    condemned: Vec<u32>,
    /// Who has died, in the order in which everybody is told.
    buried: Vec<u32>,
    /// Who dies.
    pub killer: Rc<Killer>,
    /// Nobody hears of a death who has a way to the dead: evidence and its answer must do.
    pub muted: bool,
}

/// Somebody wrote what no correct peer writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accusation {
    /// Who says so.
    pub by: u32,
    /// Who wrote it.
    pub against: u32,
}

#[derive(Debug, Default)]
struct Seat {
    card: Option<Card>,
    life: Life,
    /// Not visible yet.
    coming: VecDeque<Notice>,
    visible: VecDeque<Notice>,
    version: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Life {
    #[default]
    Lives,
    Finalized,
    Dead,
}

impl Launcher {
    /// For `size` processes of a job.
    pub fn new(job: Job, size: u32) -> Rc<RefCell<Launcher>> {
        let seats = (0..size).map(|_| Seat::default()).collect();
        Rc::new(RefCell::new(Launcher {
            job,
            seats,
            asked: BTreeSet::new(),
            answered: BTreeSet::new(),
            introduced: BTreeSet::new(),
            accusations: Vec::new(),
            condemned: Vec::new(),
            buried: Vec::new(),
            killer: Killer::none(),
            muted: false,
        }))
    }

    /// Lets the processes hear some of what there is for them, as `random` decides; all of it in a hurry.
    pub fn publish(&mut self, random: &mut Random, hurry: bool) -> u32 {
        let mut published = 0;
        for seat in &mut self.seats {
            while !seat.coming.is_empty() && (hurry || random.once_in(3)) {
                seat.visible.extend(seat.coming.pop_front());
                seat.version = seat.version.wrapping_add(1);
                published += 1;
            }
        }
        published
    }

    /// The process is dead, and everybody will hear of it. One that had left has only gone home.
    pub fn bury(&mut self, number: u32) {
        if self.seats[number as usize].life != Life::Lives {
            return;
        }
        self.buried.push(number);
        let dead = Peer::new(self.job, number);
        self.asked.retain(|(low, high)| *low != number && *high != number);
        for (seat, other) in self.seats.iter_mut().zip(0u32..) {
            let met = self.introduced.contains(&(number.min(other), number.max(other)));
            if other == number {
                seat.life = Life::Dead;
            } else if !(self.muted && met) {
                seat.coming.push_back(Notice::Failed(dead));
            }
        }
    }

    /// How many have died.
    pub fn deaths(&self) -> u64 {
        self.seats.iter().filter(|seat| seat.life == Life::Dead).count() as u64
    }

    /// Whether `number` has neither left nor died.
    pub fn lives(&self, number: u32) -> bool {
        self.seats[number as usize].life == Life::Lives
    }

    /// Who was accused of garbage and lives, with who said so: to be fenced.
    pub fn accused(&mut self) -> Option<Accusation> {
        self.accusations.pop()
    }

    /// Who was named to `abort_some`, one after another: to be killed.
    pub fn condemned(&mut self) -> Option<u32> {
        self.condemned.pop()
    }

    fn seat(&mut self, peer: Peer) -> Option<&mut Seat> {
        if peer.job() != self.job {
            return None;
        }
        self.seats.get_mut(peer.number() as usize)
    }

    /// Tells the pairs whose cards are both here of each other.
    fn introduce(&mut self) {
        let ready = |(low, high): &(u32, u32)| {
            self.seats[*low as usize].card.is_some() && self.seats[*high as usize].card.is_some()
        };
        let pairs: Vec<(u32, u32)> = self.asked.iter().copied().filter(|pair| ready(pair)).collect();
        for (low, high) in pairs {
            self.asked.remove(&(low, high));
            self.introduced.insert((low, high));
            for (to, about) in [(low, high), (high, low)] {
                let card = self.seats[about as usize].card.clone().expect("both cards are here");
                let notice = Notice::Contact { peer: Peer::new(self.job, about), card };
                self.seats[to as usize].coming.push_back(notice);
            }
        }
    }
}

/// One process's connection to its [`Launcher`].
#[derive(Debug)]
pub struct FabricRuntime {
    membership: Membership,
    launcher: Rc<RefCell<Launcher>>,
}

impl FabricRuntime {
    /// For process `number`.
    pub fn new(launcher: &Rc<RefCell<Launcher>>, number: u32) -> Self {
        let (job, size) = {
            let books = launcher.borrow();
            (books.job, books.seats.len() as u32)
        };
        let peer = Peer::new(job, number);
        let membership =
            Membership { peer, size, slot: number, slots: size, local_ranks: size, fault_tolerant: true };
        FabricRuntime { membership, launcher: Rc::clone(launcher) }
    }

    /// Who has died, in the order in which everybody is told; `None`: not everybody is.
    pub fn buried(&self) -> Option<Vec<u32>> {
        let launcher = self.launcher.borrow();
        (!launcher.muted).then(|| launcher.buried.clone())
    }

    fn me(&self) -> u32 {
        self.membership.peer.number()
    }

    /// Whether the next call of ours has an effect.
    fn calls(&self) -> bool {
        let killer = Rc::clone(&self.launcher.borrow().killer);
        killer.call(self.me())
    }

    fn pair(&self, peer: Peer) -> (u32, u32) {
        (self.me().min(peer.number()), self.me().max(peer.number()))
    }
}

impl Runtime for FabricRuntime {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn publish(&mut self, card: &Card) -> Result<(), RuntimeError> {
        if !self.calls() {
            return Ok(());
        }
        let mut launcher = self.launcher.borrow_mut();
        let seat = launcher.seat(self.membership.peer).ok_or(RuntimeError::NoSuchPeer)?;
        if seat.card.is_some() {
            return Err(RuntimeError::PublishedTwice);
        }
        seat.card = Some(card.clone());
        launcher.introduce();
        Ok(())
    }

    fn lookup(&mut self, peer: Peer) -> Result<(), RuntimeError> {
        if !self.calls() {
            return Ok(());
        }
        let pair = self.pair(peer);
        let mut launcher = self.launcher.borrow_mut();
        let life = launcher.seat(peer).ok_or(RuntimeError::NoSuchPeer)?.life;
        // Of one that has left or died, everybody is told anyway.
        let lives = life == Life::Lives && launcher.lives(self.me());
        if lives && launcher.answered.insert(pair) {
            launcher.asked.insert(pair);
            launcher.introduce();
        }
        Ok(())
    }

    fn refuse(&mut self, peer: Peer, cause: Cause) {
        if !self.calls() {
            return;
        }
        let me = self.membership.peer;
        let mut launcher = self.launcher.borrow_mut();
        for (to, about) in [(me, peer), (peer, me)] {
            if let Some(seat) = launcher.seat(to) {
                seat.coming.push_back(Notice::Refused { peer: about, cause });
            }
        }
    }

    fn ask(&mut self, peer: Peer, cause: Cause) {
        if !self.calls() {
            return;
        }
        let me = self.membership.peer;
        let mut launcher = self.launcher.borrow_mut();
        if cause == Cause::Garbage {
            // Never resumed: the answer is its end.
            launcher.accusations.push(Accusation { by: me.number(), against: peer.number() });
            return;
        }
        let life = launcher.seat(peer).map(|seat| seat.life);
        let answer = match life {
            Some(Life::Lives) => Notice::Alive(peer),
            Some(Life::Dead) => Notice::Failed(peer),
            Some(Life::Finalized) | None => return,
        };
        if let Some(seat) = launcher.seat(me) {
            // As the daemon does: one answer stands for all questions before it.
            let said = |notice: &Notice| matches!(notice, Notice::Alive(who) if *who == peer);
            if !matches!(answer, Notice::Alive(_)) || !seat.coming.iter().any(said) {
                seat.coming.push_back(answer);
            }
        }
    }

    fn fault_version(&self) -> u32 {
        self.launcher.borrow().seats[self.me() as usize].version
    }

    fn notice(&mut self) -> Option<Notice> {
        if !self.calls() {
            return None;
        }
        self.launcher.borrow_mut().seats[self.membership.peer.number() as usize].visible.pop_front()
    }

    fn finalize(&mut self) {
        let me = self.membership.peer;
        if !self.calls() || !self.launcher.borrow().lives(me.number()) {
            return;
        }
        let mut launcher = self.launcher.borrow_mut();
        for (number, seat) in (0u32..).zip(&mut launcher.seats) {
            if number == me.number() {
                seat.life = Life::Finalized;
            } else {
                seat.coming.push_back(Notice::Finalized(me));
            }
        }
    }

    fn abort(&mut self, code: i32) {
        for seat in &mut self.launcher.borrow_mut().seats {
            seat.coming.push_back(Notice::JobAborted { code });
        }
    }

    fn abort_some(&mut self, _code: i32, peers: &[Peer]) {
        let mut launcher = self.launcher.borrow_mut();
        let named: Vec<u32> =
            peers.iter().filter(|&&peer| launcher.seat(peer).is_some()).map(|peer| peer.number()).collect();
        launcher.condemned.extend(named);
    }
}
