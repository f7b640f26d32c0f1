// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the simulator knows and no process can: who has done what, for oracles that compare one process's results with
//! another's deeds, and a perfect agreement for programs that must not go on with what only some of them have.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;

/// One job's board. The dead write nothing on it.
#[derive(Debug, Default)]
pub struct Board {
    deeds: BTreeSet<(Deed, u64)>,
    rounds: BTreeMap<u64, Round>,
}

/// What a process has done, of what the number says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Deed {
    /// A message's bytes have all left it.
    Sent,
    /// A receive for a message was posted.
    Posted,
    /// It has entered a collective operation: the operation's number times 1000, plus its rank.
    Entered,
}

#[derive(Debug, Default)]
struct Round {
    votes: BTreeMap<u32, bool>,
    decided: Option<bool>,
    waiting: Vec<Waker>,
}

impl Board {
    /// It was done.
    pub fn write(&mut self, deed: Deed, number: u64) {
        self.deeds.insert((deed, number));
    }

    /// Whether it was done by somebody who lived then.
    pub fn reads(&self, deed: Deed, number: u64) -> bool {
        self.deeds.contains(&(deed, number))
    }

    /// What all have agreed on: decided once, for all, when everybody who lives has voted; `is_dead` says who does not.
    pub fn agree(
        &mut self,
        round: u64,
        (me, vote): (u32, bool),
        size: u32,
        is_dead: impl Fn(u32) -> bool,
        waker: &Waker,
    ) -> Option<bool> {
        let round = self.rounds.entry(round).or_default();
        if !is_dead(me) {
            round.votes.insert(me, vote);
        }
        if round.decided.is_none() {
            let living = (0..size).filter(|&rank| !is_dead(rank));
            let votes: Vec<Option<bool>> = living.map(|rank| round.votes.get(&rank).copied()).collect();
            if votes.iter().any(Option::is_none) {
                round.waiting.push(waker.clone());
                return None;
            }
            round.decided = Some(votes.iter().all(|vote| *vote == Some(true)));
            round.waiting.drain(..).for_each(Waker::wake);
        }
        round.decided
    }

    /// Somebody has died: those who wait look again.
    pub fn wake(&mut self) {
        for round in self.rounds.values_mut() {
            round.waiting.drain(..).for_each(Waker::wake);
        }
    }
}
