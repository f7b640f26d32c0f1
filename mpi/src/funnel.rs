// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one way in for reports about peers, from transports and runtime. What a transport reports is evidence: the funnel
//! quarantines the peer and asks the runtime. What the runtime says is a declaration: the funnel severs the peer, and the engine
//! publishes the end when the peer is drained (design "How a death travels").
//!
//! ```text
//!   on_error ──▶ suspect: quarantine, ask ──▶ Alive: resume
//!                                        └──▶ Failed ──┐
//!   Failed, Finalized, Refused ────────────────────────┴▶ declare: sever ──▶ severed: drained ──▶ next_end, in the order of
//!                                                                                              the declarations
//! ```
//!
//! A part of the engine: it owns the contact with each peer, evidence that is not examined yet, and ends that are declared and not
//! published. An end that is published stands in [`Ends`] alone. The funnel calls transports, PML and runtime.

mod contact;

use crate::layers::Layers;
use contact::{Contact, Contacts};
use mend_base::{Job, Peer, PeerIndex};
use mend_pml::{End, Ends};
use mend_runtime::{Notice, Runtime};
use mend_transport::{Btl, Card, Cause, ConnectError};
use std::collections::VecDeque;

/// What the shell above must act on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobNotice {
    /// The job is being ended.
    Aborted {
        /// Its exit code.
        code: i32,
    },
}

/// How far the end of a peer has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndState {
    /// It is not declared.
    NotDeclared {
        /// The runtime was asked about the peer and has not answered.
        query_open: bool,
    },
    /// It is declared and not published.
    Declared,
    /// It is published.
    Published,
}

/// Evidence, declarations, and the order in which they are published.
#[derive(Debug)]
pub(crate) struct Funnel<E> {
    contacts: Contacts<E>,
    /// What the transports reported, to be examined when they are no longer borrowed.
    evidence: Vec<(PeerIndex, Cause)>,
    severed: Vec<(PeerIndex, E)>,
    /// The ends that are declared and not published, in the order of the declarations. Each is of a peer whose contact is
    /// severing or drained.
    declared: VecDeque<(PeerIndex, End)>,
    /// The runtime's version when its notices were taken.
    seen_version: u32,
    job_notices: VecDeque<JobNotice>,
}

impl<E: Copy + Eq + core::fmt::Debug> Funnel<E> {
    /// For the peers that `job` numbered below `size`, before a runtime of this version has given any notice.
    pub fn new(job: Job, size: u32, version: u32) -> Self {
        Funnel {
            contacts: Contacts::new(job, size),
            evidence: Vec::new(),
            severed: Vec::new(),
            declared: VecDeque::new(),
            seen_version: version.wrapping_sub(1),
            job_notices: VecDeque::new(),
        }
    }

    /// Whether the transports have reported nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.evidence.is_empty() && self.severed.is_empty()
    }

    /// Evidence that a peer may have failed. It is examined after the transports have been polled.
    #[cold]
    pub fn on_evidence(&mut self, peer: PeerIndex, cause: Cause) {
        self.evidence.push((peer, cause));
    }

    /// A transport has severed an endpoint.
    #[cold]
    pub fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        self.severed.push((peer, endpoint));
    }
}

impl<E: Copy + Eq + core::fmt::Debug> Funnel<E> {
    /// Whether the runtime has notices that were not taken.
    #[inline]
    pub fn has_notices(&self, runtime: &impl Runtime) -> bool {
        runtime.fault_version() != self.seen_version
    }

    /// The place of `peer`; a new one where it has none yet.
    pub fn peer_index(&mut self, peer: Peer) -> PeerIndex {
        self.contacts.peer_index(peer)
    }

    /// Who has this place.
    pub fn peer(&self, index: PeerIndex) -> Peer {
        self.contacts.peer(index)
    }

    /// How far the end of a peer has come.
    pub fn end_state(&self, index: PeerIndex) -> EndState {
        match self.contacts.state(index) {
            Some(Contact::Ended) => EndState::Published,
            Some(Contact::Severing { .. } | Contact::Drained) => EndState::Declared,
            None | Some(Contact::Asked | Contact::Connected { .. }) => {
                EndState::NotDeclared { query_open: self.contacts.has_open_query(index) }
            }
        }
    }

    /// Whether neither side has asked for the other, and no question about it waits.
    pub fn is_unknown(&self, index: PeerIndex) -> bool {
        self.contacts.state(index).is_none() && !self.contacts.has_open_query(index)
    }

    /// Peers that were asked for, and have not answered.
    pub fn asked(&self) -> usize {
        self.contacts.iter().filter(|(_, state)| *state == Contact::Asked).count()
    }

    /// Whether somebody is being severed.
    pub fn some_severing(&self) -> bool {
        self.contacts.some_severing()
    }

    /// Whether the shell must act on something.
    #[inline]
    pub fn has_job_notices(&self) -> bool {
        !self.job_notices.is_empty()
    }

    /// What the shell must act on, oldest first.
    pub fn next_job_notice(&mut self) -> Option<JobNotice> {
        self.job_notices.pop_front()
    }

    /// The shell acts on what there is for it after the next progress that has events: this makes it one.
    pub fn announce_job_notices(&mut self, runtime: &impl Runtime) {
        if self.has_job_notices() {
            self.seen_version = runtime.fault_version().wrapping_sub(1);
        }
    }

    /// The notices of the runtime are taken now; how many of the shell's there are already.
    pub fn begin_notices(&mut self, runtime: &impl Runtime) -> u32 {
        self.seen_version = runtime.fault_version();
        self.job_notices.len() as u32
    }

    /// The next end to be published. None while the peer that was declared first is still being severed.
    pub fn next_end(&mut self) -> Option<(PeerIndex, End)> {
        let &(index, _) = self.declared.front()?;
        if let Some(Contact::Severing { .. }) = self.contacts.state(index) {
            return None;
        }
        self.contacts.set(index, Contact::Ended);
        self.declared.pop_front()
    }

    /// Examines what the last progress brought. How many endpoints were severed: waiting calls poll again.
    #[cold]
    pub fn examine<N: Btl<Endpoint = E>, R: Runtime>(&mut self, layers: &mut Layers<N, R>) -> u32 {
        for (peer, cause) in core::mem::take(&mut self.evidence) {
            self.suspect(peer, cause, layers);
        }
        let severed = core::mem::take(&mut self.severed);
        let count = severed.len() as u32;
        for (peer, endpoint) in severed {
            self.severed(peer, endpoint);
        }
        count
    }

    /// One notice of the runtime. A peer that it says lives, if it ever had a place.
    pub fn on_notice<N: Btl<Endpoint = E>, R: Runtime>(
        &mut self,
        notice: Notice,
        ends: &Ends,
        layers: &mut Layers<N, R>,
    ) -> Option<PeerIndex> {
        match notice {
            Notice::Contact { peer, card } => self.contact(peer, &card, layers),
            Notice::Refused { peer, cause } => self.declare(peer, End::Unreachable(cause), ends, layers),
            Notice::Finalized(peer) => self.declare(peer, End::Finalized, ends, layers),
            Notice::Failed(peer) => self.declare(peer, End::Failed, ends, layers),
            Notice::Alive(peer) => return self.alive(peer, layers),
            Notice::JobAborted { code } => self.job_notices.push_back(JobNotice::Aborted { code }),
        }
        None
    }

    /// Asks the runtime for a peer that something is sent to.
    #[cold]
    pub fn look_up<N: Btl<Endpoint = E>, R: Runtime>(&mut self, index: PeerIndex, layers: &mut Layers<N, R>) {
        if self.contacts.state(index).is_some() {
            mend_base::reach!("mpi.contact: wanted again");
            return;
        }
        match layers.runtime.lookup(self.contacts.peer(index)) {
            Ok(()) => self.contacts.set(index, Contact::Asked),
            Err(_) => self.end(index, Cause::Refused),
        }
    }

    /// Connects a peer whose card is here; where that fails, its end is published.
    pub fn connect_or_end<N: Btl<Endpoint = E>, R>(
        &mut self,
        index: PeerIndex,
        card: &Card,
        layers: &mut Layers<N, R>,
    ) -> Result<(), Cause> {
        let refused = match self.connect(index, card, layers) {
            Ok(()) => return Ok(()),
            Err(ConnectError::LayoutDiffers) => Cause::LayoutDiffers,
            Err(ConnectError::NoMemory) => Cause::NoMemory,
            Err(ConnectError::Unreachable) => Cause::Refused,
        };
        self.end(index, refused);
        Err(refused)
    }

    fn connect<N: Btl<Endpoint = E>, R>(
        &mut self,
        index: PeerIndex,
        card: &Card,
        layers: &mut Layers<N, R>,
    ) -> Result<(), ConnectError> {
        if card.layout != Card::LAYOUT {
            return Err(ConnectError::LayoutDiffers);
        }
        let endpoint = layers.net.connect(index, card)?;
        self.contacts.set(index, Contact::Connected { endpoint, suspected: false });
        layers.pml.connected(index, endpoint, layers.net.limits(endpoint));
        Ok(())
    }

    /// First contact: the peer's card is here, as ours is there.
    fn contact<N: Btl<Endpoint = E>, R: Runtime>(
        &mut self,
        peer: Peer,
        card: &Card,
        layers: &mut Layers<N, R>,
    ) {
        let index = self.contacts.peer_index(peer);
        match self.contacts.state(index) {
            None => mend_base::reach!("mpi.contact: they asked"),
            Some(Contact::Asked) => mend_base::reach!("mpi.contact: we asked"),
            Some(
                Contact::Connected { .. } | Contact::Severing { .. } | Contact::Drained | Contact::Ended,
            ) => {
                mend_base::reach!("mpi.contact: told again");
                return;
            }
        }
        if let Err(refused) = self.connect_or_end(index, card, layers) {
            mend_base::reach!("mpi.contact: refused by us");
            layers.runtime.refuse(peer, refused);
        }
    }

    /// Evidence: may be wrong, may repeat. The first against a peer quarantines it. Later evidence that it may be dead adds nothing
    /// until the runtime answers. Garbage, and what makes a connection impossible, stay true when the peer lives: they are reported
    /// in any case.
    fn suspect<N: Btl<Endpoint = E>, R: Runtime>(
        &mut self,
        index: PeerIndex,
        cause: Cause,
        layers: &mut Layers<N, R>,
    ) {
        let Some(Contact::Connected { endpoint, suspected }) = self.contacts.state(index) else {
            mend_base::reach!("mpi.funnel: evidence too late");
            return;
        };
        let peer = self.contacts.peer(index);
        if peer == layers.runtime.membership().peer {
            return self.on_evidence_against_self(index, endpoint, cause, layers);
        }
        if !suspected {
            mend_base::reach!("mpi.funnel: evidence");
            layers.net.quarantine(endpoint);
            self.contacts.set(index, Contact::Connected { endpoint, suspected: true });
        }
        match cause {
            Cause::Refused | Cause::LayoutDiffers | Cause::NoMemory => layers.runtime.refuse(peer, cause),
            Cause::Exited | Cause::LinkDown | Cause::Silent if suspected => {
                mend_base::reach!("mpi.funnel: evidence again");
            }
            Cause::Exited | Cause::LinkDown | Cause::Silent | Cause::Garbage => {
                self.ask(index, cause, &mut layers.runtime);
            }
        }
    }

    /// This process lives. But without memory for a message to itself it can exchange no more messages with itself. No runtime
    /// knows more about that, so the end of that connection is declared here.
    #[cold]
    fn on_evidence_against_self<N: Btl<Endpoint = E>, R>(
        &mut self,
        index: PeerIndex,
        endpoint: E,
        cause: Cause,
        layers: &mut Layers<N, R>,
    ) {
        if matches!(cause, Cause::Exited | Cause::LinkDown | Cause::Silent) {
            mend_base::reach!("mpi.funnel: evidence that this process is dead");
            return;
        }
        mend_base::reach!("mpi.funnel: unreachable for itself");
        self.contacts.set(index, Contact::Severing { endpoint });
        layers.net.sever(endpoint);
        self.declared.push_back((index, End::Unreachable(cause)));
    }

    /// Asks the runtime whether it is dead.
    pub fn ask(&mut self, index: PeerIndex, cause: Cause, runtime: &mut impl Runtime) {
        self.contacts.begin_query(index);
        runtime.ask(self.contacts.peer(index), cause);
    }

    /// It was asked about, and lives.
    fn alive<N: Btl<Endpoint = E>, R>(&mut self, peer: Peer, layers: &mut Layers<N, R>) -> Option<PeerIndex> {
        let index = self.contacts.find(peer)?;
        self.contacts.end_query(index);
        if let Some(Contact::Connected { endpoint, suspected: true }) = self.contacts.state(index) {
            mend_base::reach!("mpi.funnel: resumed");
            layers.net.resume(endpoint);
            self.contacts.set(index, Contact::Connected { endpoint, suspected: false });
        }
        Some(index)
    }

    /// A declaration is final. What the peer had sent completely is handed up before its end is published (Row PP7).
    fn declare<N: Btl<Endpoint = E>, R: Runtime>(
        &mut self,
        peer: Peer,
        end: End,
        ends: &Ends,
        layers: &mut Layers<N, R>,
    ) {
        let index = self.contacts.peer_index(peer);
        self.contacts.end_query(index);
        match self.contacts.state(index) {
            Some(Contact::Connected { endpoint, .. }) => {
                mend_base::reach!("mpi.funnel: declaration, severing");
                self.contacts.set(index, Contact::Severing { endpoint });
                layers.net.sever(endpoint);
            }
            None | Some(Contact::Asked) => {
                mend_base::reach!("mpi.funnel: declaration, no way yet");
                self.contacts.set(index, Contact::Drained);
            }
            Some(Contact::Severing { .. } | Contact::Drained) => return self.declare_again(index, end),
            Some(Contact::Ended) => match (ends.of(index), end) {
                (Some(End::Unreachable(_)), End::Failed) => {
                    mend_base::reach!("mpi.funnel: unreachable, then failed");
                    self.contacts.set(index, Contact::Drained);
                }
                // The first end stands: nothing more can come or go.
                _ => {
                    mend_base::reach!("mpi.funnel: declaration again");
                    return;
                }
            },
        }
        self.declared.push_back((index, end));
    }

    /// A second declaration before the end is published: the first stands, except that an unreachable peer may fail.
    fn declare_again(&mut self, index: PeerIndex, end: End) {
        let declared = self.declared.iter_mut().find(|(of, _)| *of == index);
        if let Some((_, first @ End::Unreachable(_))) = declared
            && end == End::Failed
        {
            mend_base::reach!("mpi.funnel: unreachable, then failed, while severing");
            *first = end;
        } else {
            mend_base::reach!("mpi.funnel: declaration again");
        }
    }

    fn severed(&mut self, index: PeerIndex, endpoint: E) {
        match self.contacts.state(index) {
            Some(Contact::Severing { endpoint: severing }) if severing == endpoint => {
                self.contacts.set(index, Contact::Drained);
            }
            _ => debug_assert!(false, "a transport reports the end of a way that was not severed"),
        }
    }

    /// This process cannot reach a peer. No declaration before it can be the cause, so its end is published at once.
    fn end(&mut self, index: PeerIndex, cause: Cause) {
        self.contacts.set(index, Contact::Drained);
        self.declared.push_front((index, End::Unreachable(cause)));
    }
}

#[cfg(test)]
mod tests;
