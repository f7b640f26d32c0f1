// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The runtime of a simulated process: its connection to the simulated launcher.

use super::Launcher;
use mend_base::Peer;
use mend_runtime::daemon_protocol::RankMessage;
use mend_runtime::{Membership, Notice, Runtime, RuntimeError};
use mend_transport::{Card, Cause};
use std::cell::RefCell;
use std::rc::Rc;

/// The connection of one process to its [`Launcher`].
#[derive(Debug)]
pub struct SimRuntime {
    membership: Membership,
    launcher: Rc<RefCell<Launcher>>,
    card: Card,
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
        SimRuntime { membership, launcher: Rc::clone(launcher), card: Card::default() }
    }

    /// The failures whose notices this process has taken, in that order.
    pub fn failures_taken(&self) -> Vec<u32> {
        self.launcher.borrow().notice_oracle.taken(self.me()).to_vec()
    }

    fn me(&self) -> u32 {
        self.membership.peer.number()
    }

    /// To be called once at each call. Returns whether the call has an effect: the process is not dead.
    fn has_effect(&self) -> bool {
        let killer = Rc::clone(&self.launcher.borrow().killer);
        killer.on_call(self.me())
    }

    fn send(&mut self, message: RankMessage) {
        if self.has_effect() {
            self.launcher.borrow_mut().send(self.me(), message);
        }
    }

    /// A message about another process goes to the node daemon. About this process itself the answer is known.
    fn send_about(&mut self, peer: Peer, message: RankMessage, answer: Notice) {
        if peer != self.membership.peer {
            self.send(message);
        } else if self.has_effect() {
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
        self.send(RankMessage::Publish(card.clone()));
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

    fn notice(&mut self) -> Option<Notice> {
        if !self.has_effect() {
            return None;
        }
        let mut launcher = self.launcher.borrow_mut();
        let notice = launcher.process(self.me()).notices.pop_front();
        if let Some(Notice::Failed(peer)) = notice {
            launcher.notice_oracle.on_taken(self.me(), peer.number());
        }
        notice
    }

    fn finalize(&mut self) {
        // The life word of a dying process is marked already, so it does not leave in order.
        if self.has_effect() && !self.launcher.borrow().killer.death_has_begun(self.me()) {
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
