// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one door for news about peers, good or bad, whoever brings them. What a transport reports is evidence: the peer
//! is quarantined and the runtime asked. What the runtime says is a declaration: it is obeyed, in the order drain and sever,
//! registry, communicators, requests, collectives, version, waiters (design "How a death travels"). So nobody sees an error that names a
//! failed process before the registry lists it (I2, Row AK3).
//!
//! ```text
//!   on_error ──▶ suspect: quarantine, ask ──▶ Alive: resume
//!                                        └──▶ Failed ──┐
//!   Failed, Finalized, Refused ────────────────────────┴▶ declaration: sever ──▶ drained ──▶ severed ──▶ end: publish, in
//!                                                                                               the order of the declarations
//! ```

use crate::contact::Contact;
use crate::{Engine, JobNotice};
use mend_base::{Peer, PeerIndex};
use mend_pml::{Gone, Upcalls};
use mend_runtime::{Notice, Runtime};
use mend_transport::{AmId, Btl, Card, Cause, ConnectError, Payload};
use std::collections::VecDeque;

/// What came up from the transports in one turn, to be looked at when they are no longer borrowed.
#[derive(Debug)]
pub(crate) struct Funnel<E> {
    evidence: Vec<(PeerIndex, Cause)>,
    severed: Vec<(PeerIndex, E)>,
    /// Whose ends are still to be published, in the order of the declarations.
    declared: VecDeque<PeerIndex>,
}

impl<E> Default for Funnel<E> {
    fn default() -> Self {
        Funnel { evidence: Vec::new(), severed: Vec::new(), declared: VecDeque::new() }
    }
}

impl<E> Funnel<E> {
    /// Whether nothing came up.
    pub fn is_empty(&self) -> bool {
        self.evidence.is_empty() && self.severed.is_empty()
    }
}

impl<E: Copy> Upcalls<E> for Funnel<E> {
    /// Nobody here listens to other ids yet, so no correct peer sends them.
    fn on_message(&mut self, from: PeerIndex, _id: AmId, _header: &[u8], _payload: Payload<'_>) {
        self.evidence.push((from, Cause::Garbage));
    }

    fn on_error(&mut self, peer: PeerIndex, _endpoint: E, cause: Cause) {
        self.evidence.push((peer, cause));
    }

    fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        self.severed.push((peer, endpoint));
    }
}

impl<N: Btl, R: Runtime> Engine<N, R> {
    /// Looks at what the last turn's progress brought. How many ends of peers were published: whoever waits looks again.
    #[cold]
    pub(crate) fn take_funnel(&mut self) -> u32 {
        let evidence = core::mem::take(&mut self.funnel.evidence);
        for (peer, cause) in evidence {
            self.suspect(peer, cause);
        }
        let severed = core::mem::take(&mut self.funnel.severed);
        let ended = severed.len() as u32;
        for (peer, endpoint) in severed {
            self.severed(peer, endpoint);
        }
        ended
    }

    /// Takes what the runtime has to say, and cuts off to the end whom it names: at most one lap of each of their rings, or
    /// as far as the transport gets now.
    #[cold]
    pub(crate) fn catch_up(&mut self) {
        if self.runtime.fault_version() != self.seen_version {
            self.take_notices();
        }
        while self.contacts.some_severing() {
            let events = self.pml.progress(&mut self.net, self.now, &mut self.funnel);
            if events + self.take_funnel() == 0 {
                mend_base::reach!("mpi.funnel: severing takes longer");
                break;
            }
        }
        self.leave_notices();
    }

    /// Progress within a call that would answer that a receive has a pending failure: what has come already is received first
    /// (row PP13), and a program that waits in a loop moves on.
    #[cold]
    pub(crate) fn progress_again(&mut self) {
        self.repeated_progress = self.repeated_progress.wrapping_add(1);
        self.progress(self.now);
        self.leave_notices();
    }

    /// The shell acts on what there is for it after the next turn that has events: this makes it one.
    fn leave_notices(&mut self) {
        if self.has_notices() {
            self.seen_version = self.runtime.fault_version().wrapping_sub(1);
        }
    }

    /// Takes everything the runtime has to say.
    #[cold]
    pub(crate) fn take_notices(&mut self) -> u32 {
        let mut taken = self.job_notices.len() as u32;
        self.seen_version = self.runtime.fault_version();
        while let Some(notice) = self.runtime.notice() {
            taken += 1;
            match notice {
                Notice::Contact { peer, card } => self.contact(peer, &card),
                Notice::Refused { peer, cause } => self.declaration(peer, Gone::Unreachable(cause)),
                Notice::Finalized(peer) => self.declaration(peer, Gone::Finalized),
                Notice::Failed(peer) => self.declaration(peer, Gone::Failed),
                Notice::Alive(peer) => self.alive(peer),
                Notice::JobAborted { code } => self.job_notices.push_back(JobNotice::Aborted { code }),
            }
        }
        taken
    }

    /// Asks the runtime for a peer that somebody sends to.
    #[cold]
    pub(crate) fn look_up(&mut self, index: PeerIndex) {
        if self.contacts.state(index).is_some() {
            mend_base::reach!("mpi.contact: wanted again");
            return;
        }
        match self.runtime.lookup(self.contacts.peer(index)) {
            Ok(()) => self.contacts.set(index, Contact::Asked),
            Err(_) => self.end(index, Gone::Unreachable(Cause::Refused)),
        }
    }

    /// First contact: the peer's card is here, as ours is there.
    fn contact(&mut self, peer: Peer, card: &Card) {
        let index = self.contacts.place(peer);
        match self.contacts.state(index) {
            None => mend_base::reach!("mpi.contact: they asked"),
            Some(Contact::Asked) => mend_base::reach!("mpi.contact: we asked"),
            Some(
                Contact::Connected { .. }
                | Contact::Severing { .. }
                | Contact::Drained { .. }
                | Contact::Gone(_),
            ) => {
                mend_base::reach!("mpi.contact: told again");
                return;
            }
        }
        let refused = match self.connect(index, card) {
            Ok(()) => return,
            Err(ConnectError::LayoutDiffers) => Cause::LayoutDiffers,
            Err(ConnectError::NoMemory) => Cause::NoMemory,
            Err(ConnectError::Unreachable) => Cause::Refused,
        };
        mend_base::reach!("mpi.contact: refused by us");
        self.runtime.refuse(peer, refused);
        self.end(index, Gone::Unreachable(refused));
    }

    /// Makes the way to a peer.
    pub(crate) fn connect(&mut self, index: PeerIndex, card: &Card) -> Result<(), ConnectError> {
        if card.layout != Card::LAYOUT {
            return Err(ConnectError::LayoutDiffers);
        }
        let endpoint = self.net.connect(index, card)?;
        self.contacts.set(index, Contact::Connected { endpoint, suspected: false });
        self.pml.connected(index, endpoint, self.net.limits(endpoint));
        Ok(())
    }

    /// Evidence: may be wrong, may repeat. The first against a peer quarantines it and asks; what follows adds nothing
    /// until the answer.
    fn suspect(&mut self, index: PeerIndex, cause: Cause) {
        let Some(Contact::Connected { endpoint, suspected: false }) = self.contacts.state(index) else {
            mend_base::reach!("mpi.funnel: evidence again");
            return;
        };
        mend_base::reach!("mpi.funnel: evidence");
        self.net.quarantine(endpoint);
        self.contacts.set(index, Contact::Connected { endpoint, suspected: true });
        let peer = self.contacts.peer(index);
        match cause {
            Cause::Refused | Cause::LayoutDiffers | Cause::NoMemory => self.runtime.refuse(peer, cause),
            Cause::Exited | Cause::LinkDown | Cause::Silent | Cause::Garbage => self.ask(index, cause),
        }
    }

    /// Asks the runtime whether it is dead.
    pub(crate) fn ask(&mut self, index: PeerIndex, cause: Cause) {
        self.contacts.question(index);
        self.runtime.ask(self.contacts.peer(index), cause);
    }

    /// It was asked about, and lives.
    fn alive(&mut self, peer: Peer) {
        let Some(index) = self.contacts.find(peer) else { return };
        self.contacts.answered(index);
        self.declared_alive(index);
        if let Some(Contact::Connected { endpoint, suspected: true }) = self.contacts.state(index) {
            mend_base::reach!("mpi.funnel: resumed");
            self.net.resume(endpoint);
            self.contacts.set(index, Contact::Connected { endpoint, suspected: false });
        }
    }

    /// A declaration is final. What the peer had sent whole is handed up before anybody sees it (Row PP7).
    fn declaration(&mut self, peer: Peer, why: Gone) {
        let index = self.contacts.place(peer);
        self.contacts.answered(index);
        match self.contacts.state(index) {
            Some(Contact::Connected { endpoint, .. }) => {
                mend_base::reach!("mpi.funnel: declaration, severing");
                self.contacts.set(index, Contact::Severing { endpoint, why });
                self.net.sever(endpoint);
            }
            None | Some(Contact::Asked) => {
                mend_base::reach!("mpi.funnel: declaration, no way yet");
                self.contacts.set(index, Contact::Drained { why });
            }
            Some(Contact::Severing { endpoint, why: Gone::Unreachable(_) }) if why == Gone::Failed => {
                mend_base::reach!("mpi.funnel: unreachable, then failed, while severing");
                self.contacts.set(index, Contact::Severing { endpoint, why });
            }
            Some(Contact::Drained { why: Gone::Unreachable(_) } | Contact::Gone(Gone::Unreachable(_)))
                if why == Gone::Failed =>
            {
                mend_base::reach!("mpi.funnel: unreachable, then failed");
                self.contacts.set(index, Contact::Drained { why });
            }
            // The first declaration stands: whatever the second says, nothing more can come or go.
            Some(Contact::Severing { .. } | Contact::Drained { .. } | Contact::Gone(_)) => {
                mend_base::reach!("mpi.funnel: declaration again");
                return;
            }
        }
        self.funnel.declared.push_back(index);
        self.publish_drained();
    }

    fn severed(&mut self, index: PeerIndex, endpoint: N::Endpoint) {
        match self.contacts.state(index) {
            Some(Contact::Severing { endpoint: severing, why }) if severing == endpoint => {
                self.contacts.set(index, Contact::Drained { why });
                self.publish_drained();
            }
            _ => debug_assert!(false, "a transport reports the end of a way that was not severed"),
        }
    }

    /// Publishes the ends of those who are drained, in the order of the declarations.
    fn publish_drained(&mut self) {
        while let Some(&index) = self.funnel.declared.front() {
            match self.contacts.state(index) {
                Some(Contact::Severing { .. }) => return,
                Some(Contact::Drained { why }) => self.end(index, why),
                _ => {}
            }
            self.funnel.declared.pop_front();
        }
    }

    /// Publishes the end of a peer: registry, communicators, requests, collectives, version. Who waits is woken by whoever turned.
    pub(crate) fn end(&mut self, index: PeerIndex, why: Gone) {
        self.contacts.set(index, Contact::Gone(why));
        let failed = why == Gone::Failed && self.registry.append(index);
        if failed {
            self.update_views(index);
        }
        self.pml.gone(index, why);
        self.waiters.concern_all();
        if failed {
            self.interrupt_collectives(index);
            self.registry.publish();
        }
    }
}

#[cfg(test)]
mod tests;
