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
        // Who is dead and lingers has no vote, but its own no holds for itself.
        round.decided.map(|all| all && vote)
    }

    /// Somebody has died: those who wait look again.
    pub fn wake(&mut self) {
        for round in self.rounds.values_mut() {
            round.waiting.drain(..).for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Board;
    use std::task::Waker;

    // Seed 1882517983468250: a dead rank that lingered was told to use what it had not got.
    #[test]
    fn whoever_said_no_is_never_told_yes() {
        let mut board = Board::default();
        let mut agree = |me, vote| board.agree(1, (me, vote), 3, |rank| rank == 2, Waker::noop());
        assert_eq!(agree(0, true), None);
        assert_eq!(agree(2, false), None);
        assert_eq!(agree(1, true), Some(true));
        assert_eq!((agree(0, true), agree(2, false)), (Some(true), Some(false)));
    }
}
