// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the simulator knows and no process can know: which process did what, so that an oracle can compare the results of
//! one process with the actions of another; and an agreement that cannot fail, for programs that use a communicator only
//! if every living member has created it.

pub mod repairs;

use crate::killer::Point;
use mend_base::Identity;
use repairs::Repairs;
use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;

/// The events and agreements of one job. A dead process adds nothing.
#[derive(Debug, Default)]
pub struct JobRecord {
    events: BTreeSet<(Event, u64)>,
    agreements: BTreeMap<u64, Agreement>,
    creations: BTreeMap<(Identity, u64), Returned>,
    /// The results of agreements, shrinks and creations.
    pub repairs: Repairs,
    /// How often each MPI call was begun.
    pub calls: BTreeMap<&'static str, u64>,
    /// At which points of which calls processes have died.
    pub deaths: BTreeMap<(&'static str, Point), u64>,
    /// The answers of calls, by call and rank.
    answers: BTreeMap<u64, BTreeMap<u32, u64>>,
}

/// How members have returned from the creation of a communicator.
#[derive(Debug, Default)]
struct Returned {
    with_success: bool,
    with_error: BTreeSet<u32>,
}

/// What a process did; each is recorded with a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Event {
    /// A send ended with success. The number is the message's.
    SendCompleted,
    /// A receive was posted. The number is the message's.
    ReceivePosted,
    /// A rank entered a collective operation. The number is 1,000 times the operation's number, plus the rank.
    CollectiveEntered,
    /// A rank entered a collective operation, and knew of no failure of a member. The number is as above.
    CollectiveBegun,
    /// A collective operation has succeeded at a rank. The number is as above.
    CollectiveCompleted,
}

#[derive(Debug, Default)]
struct Agreement {
    votes: BTreeMap<u32, bool>,
    decision: Option<bool>,
    waiting: Vec<Waker>,
}

impl JobRecord {
    /// A process begins an MPI call.
    pub fn called(&mut self, name: &'static str) {
        *self.calls.entry(name).or_default() += 1;
    }

    /// The death of a process begins.
    pub fn died_at(&mut self, call: &'static str, point: Point) {
        *self.deaths.entry((call, point)).or_default() += 1;
    }

    /// Adds an event.
    pub fn add(&mut self, event: Event, number: u64) {
        self.events.insert((event, number));
    }

    /// Whether a living process has added this event.
    pub fn contains(&self, event: Event, number: u64) -> bool {
        self.events.contains(&(event, number))
    }

    /// A member has returned from the creation `number`. Whether the results agree (Row CC1): who has returned success has not done so while
    /// a living member has returned, or will return, an error.
    pub fn returned_from_creation(
        &mut self,
        creation: (Identity, u64),
        (me, success): (u32, bool),
        is_dead: impl Fn(u32) -> bool,
    ) -> bool {
        let returned = self.creations.entry(creation).or_default();
        if success {
            returned.with_success = true;
            returned.with_error.iter().all(|&rank| is_dead(rank))
        } else {
            returned.with_error.insert(me);
            !returned.with_success || is_dead(me)
        }
    }

    /// A rank got an answer from a call that has one answer. Returns another rank that lives and got a different one, with that.
    pub fn answered(
        &mut self,
        call: u64,
        (me, answer): (u32, u64),
        is_dead: impl Fn(u32) -> bool,
    ) -> Option<(u32, u64)> {
        if is_dead(me) {
            return None;
        }
        let answers = self.answers.entry(call).or_default();
        answers.insert(me, answer);
        answers
            .iter()
            .map(|(&rank, &other)| (rank, other))
            .find(|&(rank, other)| other != answer && !is_dead(rank))
    }

    /// The agreement `round`: true if every living process has voted true. It is decided once, when every living process
    /// has voted; until then the answer is `None`, and `waker` is called when that may have changed.
    pub fn agree(
        &mut self,
        round: u64,
        (me, vote): (u32, bool),
        size: u32,
        is_dead: impl Fn(u32) -> bool,
        waker: &Waker,
    ) -> Option<bool> {
        let agreement = self.agreements.entry(round).or_default();
        if !is_dead(me) {
            agreement.votes.insert(me, vote);
        }
        if agreement.decision.is_none() {
            let living = (0..size).filter(|&rank| !is_dead(rank));
            let votes: Vec<Option<bool>> = living.map(|rank| agreement.votes.get(&rank).copied()).collect();
            if votes.iter().any(Option::is_none) {
                agreement.waiting.push(waker.clone());
                return None;
            }
            agreement.decision = Some(votes.iter().all(|vote| *vote == Some(true)));
            agreement.waiting.drain(..).for_each(Waker::wake);
        }
        // The vote of a dying process does not count, but a process that voted false never gets true.
        agreement.decision.map(|decision| decision && vote)
    }

    /// To be called after each death: processes that wait for an agreement examine it again.
    pub fn wake(&mut self) {
        for agreement in self.agreements.values_mut() {
            agreement.waiting.drain(..).for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::JobRecord;
    use mend_base::{Identity, Job, Peer};
    use std::task::Waker;

    // Row CC1
    #[test]
    fn an_error_beside_a_success_is_noticed_unless_its_process_is_dead() {
        for (first, dead, agree) in [(true, false, false), (false, false, false), (false, true, true)] {
            let mut record = JobRecord::default();
            let over = |number| Identity { creator: Peer::new(Job(1), 0), number };
            assert!(record.returned_from_creation((over(1), 7), (0, first), |_| false));
            assert!(record.returned_from_creation((over(1), 7), (1, first), |_| false));
            assert!(
                record.returned_from_creation((over(2), 7), (2, !first), |_| false),
                "of another communicator"
            );
            assert_eq!(record.returned_from_creation((over(1), 7), (2, !first), |_| dead), agree);
        }
    }

    #[test]
    fn a_different_answer_is_noticed_unless_its_process_is_dead() {
        let mut record = JobRecord::default();
        assert_eq!(record.answered(7, (0, 1), |_| false), None);
        assert_eq!(record.answered(8, (1, 2), |_| false), None);
        assert_eq!(record.answered(7, (1, 2), |rank| rank == 0), None);
        assert_eq!(record.answered(7, (2, 1), |rank| rank == 0), Some((1, 2)));
    }

    // Seed 1882517983468250: a dying rank without the communicator was told to use it.
    #[test]
    fn a_process_that_voted_false_never_gets_true() {
        let mut record = JobRecord::default();
        let mut agree = |me, vote| record.agree(1, (me, vote), 3, |rank| rank == 2, Waker::noop());
        assert_eq!(agree(0, true), None);
        assert_eq!(agree(2, false), None);
        assert_eq!(agree(1, true), Some(true));
        assert_eq!((agree(0, true), agree(2, false)), (Some(true), Some(false)));
    }
}
