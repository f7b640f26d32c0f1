// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A simulated rank's end of the connection to its node's daemon.

use super::Launcher;
use mend_base::Peer;
use mend_runtime::daemon_protocol::Request;
use mend_runtime::{Membership, Notice, Runtime, RuntimeError};
use mend_transport::{Card, Cause};
use std::cell::RefCell;
use std::rc::Rc;

/// One process's connection to its [`Launcher`].
#[derive(Debug)]
pub struct FabricRuntime {
    membership: Membership,
    launcher: Rc<RefCell<Launcher>>,
    card: Card,
}

impl FabricRuntime {
    /// For process `number`, which joins.
    pub fn new(launcher: &Rc<RefCell<Launcher>>, number: u32) -> Self {
        let mut shared = launcher.borrow_mut();
        shared.join(number);
        let (peer, size) = (Peer::new(shared.job, number), shared.size());
        let fault_tolerant = shared.rules.fault_tolerant;
        let membership =
            Membership { peer, size, slot: number, slots: size, local_ranks: size, fault_tolerant };
        FabricRuntime { membership, launcher: Rc::clone(launcher), card: Card::default() }
    }

    /// The deaths that this process took notice of, in that order.
    pub fn deaths_taken(&self) -> Vec<u32> {
        self.launcher.borrow().notices.taken(self.me()).to_vec()
    }

    fn me(&self) -> u32 {
        self.membership.peer.number()
    }

    /// Whether the next call has an effect.
    fn calls(&self) -> bool {
        let killer = Rc::clone(&self.launcher.borrow().killer);
        killer.call(self.me())
    }

    fn send(&mut self, request: Request) {
        if self.calls() {
            self.launcher.borrow_mut().send(self.membership.peer.number(), request);
        }
    }

    /// About another process the daemon is asked; about this one the answer is here.
    fn send_about(&mut self, peer: Peer, request: Request, own: Notice) {
        if peer != self.membership.peer {
            self.send(request);
        } else if self.calls() {
            self.launcher.borrow_mut().processes[peer.number() as usize].own.push_back(own);
        }
    }
}

impl Runtime for FabricRuntime {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn publish(&mut self, card: &Card) -> Result<(), RuntimeError> {
        let me = self.me() as usize;
        if std::mem::replace(&mut self.launcher.borrow_mut().processes[me].published, true) {
            return Err(RuntimeError::PublishedTwice);
        }
        self.card = card.clone();
        self.send(Request::Publish(card.clone()));
        Ok(())
    }

    fn lookup(&mut self, peer: Peer) -> Result<(), RuntimeError> {
        if peer.job() != self.membership.peer.job() || peer.number() >= self.membership.size {
            return Err(RuntimeError::NoSuchPeer);
        }
        let own = Notice::Contact { peer, card: self.card.clone() };
        self.send_about(peer, Request::Lookup(peer), own);
        Ok(())
    }

    fn refuse(&mut self, peer: Peer, cause: Cause) {
        self.send_about(peer, Request::Refuse(peer, cause), Notice::Refused { peer, cause });
    }

    fn ask(&mut self, peer: Peer, cause: Cause) {
        let lies = cause == Cause::Garbage && self.launcher.borrow().liar == Some(self.me());
        if !lies {
            self.send_about(peer, Request::Ask(peer, cause), Notice::Alive(peer));
        }
    }

    fn fault_version(&self) -> u32 {
        self.launcher.borrow().processes[self.me() as usize].version
    }

    fn notice(&mut self) -> Option<Notice> {
        if !self.calls() {
            return None;
        }
        let mut launcher = self.launcher.borrow_mut();
        let notice = launcher.processes[self.me() as usize].visible.pop_front();
        if let Some(Notice::Failed(peer)) = notice {
            launcher.notices.on_taken(self.me(), peer.number());
        }
        notice
    }

    fn finalize(&mut self) {
        // A thread that still runs in a process which dies has lost its life word.
        if self.calls() && !self.launcher.borrow().killer.is_declared(self.me()) {
            let mut launcher = self.launcher.borrow_mut();
            launcher.notices.on_leaving(self.membership.peer.number());
            launcher.send(self.membership.peer.number(), Request::Finalize);
        }
    }

    fn abort(&mut self, code: i32) {
        self.send(Request::Abort(code));
    }

    fn abort_some(&mut self, code: i32, peers: &[Peer]) {
        self.send(Request::AbortSome(code, peers.to_vec()));
    }
}
