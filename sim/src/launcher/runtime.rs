// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The runtime of a simulated process: its connection to the simulated launcher.

use super::Launcher;
use crate::killer::Point;
use mend_base::Peer;
use mend_runtime::carried::Carried;
use mend_runtime::daemon_protocol::RankMessage;
use mend_runtime::{Membership, Notice, ResultKey, Runtime, RuntimeError};
use mend_transport::{Card, Cause};
use std::cell::RefCell;
use std::rc::Rc;

/// The connection of one process to its [`Launcher`].
#[derive(Debug)]
pub struct SimRuntime {
    membership: Membership,
    launcher: Rc<RefCell<Launcher>>,
    card: Card,
    /// The processes whose life words this one can read.
    in_contact: Vec<Peer>,
}

impl SimRuntime {
    /// Process `number` joins the job.
    pub fn new(launcher: &Rc<RefCell<Launcher>>, number: u32) -> Self {
        let mut shared = launcher.borrow_mut();
        shared.join(number);
        let (peer, size) = (Peer::new(shared.job, number), shared.size());
        let fault_tolerant = shared.rules.fault_tolerant;
        let membership =
            Membership { peer, size, node_slot: number, node_slots: size, local_ranks: size, fault_tolerant };
        SimRuntime { membership, launcher: Rc::clone(launcher), card: Card::default(), in_contact: vec![] }
    }

    /// The failures whose notices this process has taken, in that order.
    pub fn failures_taken(&self) -> Vec<u32> {
        self.launcher.borrow().notice_oracle.taken(self.me()).to_vec()
    }

    fn me(&self) -> u32 {
        self.membership.peer.number()
    }

    /// To be called once at each call. Returns whether the call has an effect: the process is not dead.
    fn has_effect(&self, point: Point) -> bool {
        let killer = Rc::clone(&self.launcher.borrow().killer);
        killer.on_call(self.me(), point)
    }

    fn send(&mut self, message: RankMessage) {
        if self.has_effect(Point::Runtime) {
            self.launcher.borrow_mut().send(self.me(), message);
        }
    }

    /// A message about another process goes to the node daemon. About this process itself the answer is known.
    fn send_about(&mut self, peer: Peer, message: RankMessage, answer: Notice) {
        if peer != self.membership.peer {
            self.send(message);
        } else if self.has_effect(Point::Runtime) {
            self.launcher.borrow_mut().process(self.me()).self_notices.push_back(answer);
        }
    }
}

impl Runtime for SimRuntime {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn publish(&mut self, card: &Card) -> Result<(), RuntimeError> {
        if std::mem::replace(&mut self.launcher.borrow_mut().process(self.me()).published, true) {
            return Err(RuntimeError::PublishedTwice);
        }
        self.card = card.clone();
        self.send(RankMessage::Publish(card.clone(), Carried::default()));
        Ok(())
    }

    fn lookup(&mut self, peer: Peer) -> Result<(), RuntimeError> {
        if peer.job() != self.membership.peer.job() || peer.number() >= self.membership.size {
            return Err(RuntimeError::NoSuchPeer);
        }
        let answer = Notice::Contact { peer, card: self.card.clone() };
        self.send_about(peer, RankMessage::Lookup(peer), answer);
        Ok(())
    }

    fn refuse(&mut self, peer: Peer, cause: Cause) {
        self.send_about(peer, RankMessage::Refuse(peer, cause), Notice::Refused { peer, cause });
    }

    fn ask(&mut self, peer: Peer, cause: Cause) {
        let is_garbage_writer = self.launcher.borrow().garbage_writer == Some(self.me());
        if !(cause == Cause::Garbage && is_garbage_writer) {
            self.send_about(peer, RankMessage::Ask(peer, cause), Notice::Alive(peer));
        }
    }

    fn notice_version(&self) -> u32 {
        self.launcher.borrow().processes[self.me() as usize].version
    }

    fn check_peers(&mut self, on_exited: &mut dyn FnMut(Peer)) {
        let launcher = self.launcher.borrow();
        let is_marked = |peer: &&Peer| launcher.processes[peer.number() as usize].life_is_marked;
        if launcher.lives_are_read {
            self.in_contact.iter().filter(is_marked).for_each(|&peer| on_exited(peer));
        }
    }

    fn notice(&mut self) -> Option<Notice> {
        if !self.has_effect(Point::Notice) {
            return None;
        }
        let mut launcher = self.launcher.borrow_mut();
        let notice = launcher.process(self.me()).notices.pop_front();
        match notice {
            Some(Notice::Contact { peer, .. }) => self.in_contact.push(peer),
            Some(Notice::Refused { peer, .. } | Notice::Finalized(peer) | Notice::Failed(peer)) => {
                self.in_contact.retain(|other| *other != peer);
            }
            _ => {}
        }
        if let Some(Notice::Failed(peer)) = notice {
            launcher.notice_oracle.on_taken(self.me(), peer.number());
        }
        notice
    }

    fn leave_result(&mut self, key: ResultKey, result: &[u8]) {
        self.send(RankMessage::LeaveResult(key, result.to_vec()));
    }

    fn recall_result(&mut self, key: ResultKey) {
        self.send(RankMessage::RecallResult(key));
    }

    fn finalize(&mut self) {
        // The life word of a dying process is marked already, so it does not leave in order.
        if self.has_effect(Point::Leave) && !self.launcher.borrow().killer.death_has_begun(self.me()) {
            let mut launcher = self.launcher.borrow_mut();
            launcher.notice_oracle.on_finalize(self.me());
            launcher.send(self.me(), RankMessage::Finalize);
        }
    }

    fn abort(&mut self, code: i32) {
        self.send(RankMessage::Abort(code));
    }

    fn abort_some(&mut self, code: i32, peers: &[Peer]) {
        self.send(RankMessage::AbortSome(code, peers.to_vec()));
    }
}

#[cfg(test)]
mod tests {
    use super::SimRuntime;
    use crate::killer::{Killer, Manner, Milestone, PlannedDeath, When};
    use crate::launcher::Launcher;
    use mend_base::{Identity, Instant, Job, Peer, Random};
    use mend_daemon::Ending;
    use mend_runtime::{Notice, ResultKey, Runtime};
    use mend_transport::Card;
    use std::cell::RefCell;
    use std::rc::Rc;

    const JOB: Job = Job(1);
    /// Left by rank 0 and rank 1, which both leave MPI in the end.
    const BOTH: ResultKey = key(1);
    /// Left by rank 0 alone.
    const FIRST: ResultKey = key(2);

    const fn key(protocol: u8) -> ResultKey {
        let identity = Identity { creator: Peer::new(JOB, 0), number: 16 };
        ResultKey { identity, protocol, sequence: 5 }
    }

    /// A job in which ranks 0 and 1 leave results and then MPI, rank 0 unless it dies before; ranks 2 and 3 ask.
    struct Schedule {
        random: Random,
        time: u64,
        launcher: Rc<RefCell<Launcher>>,
        killer: Rc<Killer>,
        runtimes: Vec<SimRuntime>,
        /// How many steps the ranks 0 and 1 have done.
        steps: [u32; 2],
    }

    /// What one asking rank knows.
    #[derive(Debug, Default)]
    struct Asker {
        ends: u32,
        /// Whether rank 0 has failed, as soon as that is known.
        failed: Option<bool>,
        answers: Vec<(ResultKey, Option<Vec<u8>>)>,
    }

    impl Schedule {
        fn new(seed: u64) -> Self {
            let mut random = Random(seed);
            let launcher = Launcher::new(JOB, 4);
            let death = PlannedDeath {
                number: 0,
                manner: Manner::Ends(Ending::Signalled(9)),
                when: When::Call(Milestone::Started, 1 + random.below(8)),
                calls_while_dying: random.below(3),
            };
            let killer = Killer::new(4, vec![death]);
            launcher.borrow_mut().killer = Rc::clone(&killer);
            killer.on_milestone(0, Milestone::Started);
            let mut runtimes: Vec<_> = (0..4).map(|rank| SimRuntime::new(&launcher, rank)).collect();
            for runtime in &mut runtimes {
                runtime.publish(&Card::default()).expect("each publishes once");
            }
            Schedule { random, time: 0, launcher, killer, runtimes, steps: [0; 2] }
        }

        /// Rank 0 or rank 1 does its next step.
        fn leave(&mut self, rank: u32) {
            let runtime = &mut self.runtimes[rank as usize];
            let step = self.steps[rank as usize];
            self.steps[rank as usize] += 1;
            if self.killer.is_dead(rank) {
                return;
            }
            match step {
                0 if rank == 0 => runtime.leave_result(FIRST, b"first"),
                1 => runtime.leave_result(BOTH, b"both"),
                2 => runtime.finalize(),
                3 if !self.killer.death_has_begun(rank) => {
                    self.killer.on_exit(rank);
                    self.launcher.borrow_mut().exit(rank, &mut self.random);
                }
                _ => drop(runtime.notice()),
            }
        }

        fn advance(&mut self, all: bool) {
            self.time += 1;
            let mut launcher = self.launcher.borrow_mut();
            for dead in self.killer.take_new_deaths() {
                launcher.begin_death(dead, Manner::Ends(Ending::Signalled(9)));
            }
            launcher.advance(Instant(self.time), &mut self.random, all);
        }

        /// Rank 2 or rank 3 takes its notices, and asks when it is notified of the end of rank 0, or again when it is notified of
        /// that of rank 1.
        fn ask(&mut self, rank: u32, asker: &mut Asker) {
            let runtime = &mut self.runtimes[rank as usize];
            while let Some(notice) = runtime.notice() {
                match notice {
                    Notice::Finalized(peer) | Notice::Failed(peer) if peer.number() == 0 => {
                        asker.failed = Some(matches!(notice, Notice::Failed(_)));
                        runtime.recall_result(FIRST);
                    }
                    Notice::Finalized(peer) if peer.number() == 1 => runtime.recall_result(BOTH),
                    Notice::Recalled { key, result } => {
                        asker.answers.push((key, result));
                        continue;
                    }
                    other => panic!("{other:?}"),
                }
                asker.ends += 1;
            }
        }
    }

    // Trap 14, X-6.11
    #[test]
    fn whoever_is_notified_that_a_rank_has_left_finds_its_results_and_those_of_the_failed_do_not_count() {
        let mut times_failed = 0;
        for seed in 0..2_000 {
            let mut job = Schedule::new(seed);
            let mut askers = [Asker::default(), Asker::default()];
            for _ in 0..40 {
                let rank = job.random.below(4) as u32;
                match rank {
                    0 | 1 => job.leave(rank),
                    _ => job.ask(rank, &mut askers[rank as usize - 2]),
                }
                job.advance(false);
            }
            (0..10).for_each(|_| [0, 1].into_iter().for_each(|rank| job.leave(rank)));
            for _ in 0..3 {
                job.advance(true);
                (2..).zip(&mut askers).for_each(|(rank, asker)| job.ask(rank, asker));
            }
            for asker in &mut askers {
                let has_failed = asker.failed.expect("rank 0 ends");
                times_failed += u32::from(has_failed);
                asker.answers.sort_by_key(|(key, _)| key.protocol);
                let first = (!has_failed).then(|| b"first".to_vec());
                let wanted = [(BOTH, Some(b"both".to_vec())), (FIRST, first)];
                assert_eq!((asker.ends, &asker.answers[..]), (2, &wanted[..]), "seed {seed}");
            }
        }
        assert!((400..3_600).contains(&times_failed), "both ends occur: {times_failed}");
    }
}
