// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All reports about peers come in here, from the transports and from the runtime. A transport reports evidence: `PeerReports`
//! quarantines the peer and asks the runtime. The runtime reports a declaration: `PeerReports` severs the peer, and the engine publishes
//! the end of the peer when it is drained (design "How a death travels").
//!
//! ```text
//!   on_error ──▶ suspect: quarantine, ask ──▶ Alive: resume
//!                                        └──▶ Failed ──┐
//!   Failed, Finalized, Refused ────────────────────────┴▶ declare: sever ──▶ severed: drained ──▶ next_end, in the order of
//!                                                                                              the declarations
//! ```
//!
//! A part of the engine: it owns the contact with each peer, evidence that is not examined yet, and ends that are declared and not
//! published. Published ends are in [`Ends`](mend_pml::Ends) only. `PeerReports` calls transports, PML and runtime.

mod contact;

use crate::layers::Layers;
use contact::{Contact, Contacts};
use mend_base::{Job, Peer, PeerIndex};
use mend_pml::End;
use mend_runtime::{Notice, Runtime};
use mend_transport::{Card, Cause, ConnectError, Rdma};
use std::collections::{BTreeSet, VecDeque};

/// A notice about the job, on which the layer above must act.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobNotice {
    /// The job is being ended.
    Aborted {
        /// Its exit code.
        code: i32,
    },
    /// This process must end at once: the other ranks have declared that it has failed, or may do so, since none of them has heard it for
    /// longer than its lease.
    Fenced,
}

/// The progress of the end of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndState {
    /// The end is not declared, or all that is known is that the peer cannot be reached: it lives.
    NotDeclared {
        /// The runtime was asked about the peer and has not answered.
        query_open: bool,
    },
    /// The end is declared and not published.
    Declared,
    /// The end is published, and final.
    Published,
}

/// The contacts with peers, evidence, and declared ends in the order in which they are published.
#[derive(Debug)]
pub(crate) struct PeerReports<E> {
    contacts: Contacts<E>,
    /// Evidence of the transports, which is examined when they are no longer borrowed.
    evidence: Vec<(PeerIndex, Cause)>,
    /// Endpoints that the transports have severed, handled at the same time.
    severed: Vec<(PeerIndex, E)>,
    /// The ends that are declared and not published, in the order of the declarations. The contact of each peer is severing or
    /// drained.
    declared: VecDeque<(PeerIndex, End)>,
    /// The notice version of the runtime when its notices were taken last.
    seen_version: u32,
    job_notices: VecDeque<JobNotice>,
    /// Peers with an open query that others say have failed.
    to_ask_again: Vec<PeerIndex>,
    /// Unreachable peers that the runtime was asked to end, or this process.
    needed: BTreeSet<PeerIndex>,
}

impl<E: Copy + Eq + core::fmt::Debug> PeerReports<E> {
    /// For the peers of `job` with numbers below `size`. The runtime has given no notice, and its notice version is `version`.
    pub fn new(job: Job, size: u32, version: u32) -> Self {
        PeerReports {
            contacts: Contacts::new(job, size),
            evidence: Vec::new(),
            severed: Vec::new(),
            declared: VecDeque::new(),
            seen_version: version.wrapping_sub(1),
            job_notices: VecDeque::new(),
            to_ask_again: Vec::new(),
            needed: BTreeSet::new(),
        }
    }

    /// Whether there is no evidence and no severed endpoint to be examined.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.evidence.is_empty() && self.severed.is_empty()
    }

    /// Adds evidence that a peer may have failed. It is examined after the transports have been polled.
    #[cold]
    pub fn on_evidence(&mut self, peer: PeerIndex, cause: Cause) {
        self.evidence.push((peer, cause));
    }

    /// The life word of `peer` is marked. Evidence, once, and once more after each answer that the peer lives.
    #[cold]
    pub fn on_exited(&mut self, peer: Peer) {
        let Some(index) = self.contacts.find(peer) else { return };
        let is_open = matches!(self.contacts.state(index), Some(Contact::Connected { suspected: false, .. }));
        if is_open && !self.evidence.contains(&(index, Cause::Exited)) {
            mend_base::reach!("mpi.peer_reports: a marked life word");
            self.evidence.push((index, Cause::Exited));
        }
    }

    /// A transport has severed an endpoint.
    #[cold]
    pub fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        self.severed.push((peer, endpoint));
    }
}

impl<E: Copy + Eq + core::fmt::Debug> PeerReports<E> {
    /// Whether the runtime has notices that were not taken.
    #[inline]
    pub fn has_notices(&self, runtime: &impl Runtime) -> bool {
        runtime.notice_version() != self.seen_version
    }

    /// The index of `peer`. A peer that has none gets a new one.
    pub fn peer_index(&mut self, peer: Peer) -> PeerIndex {
        self.contacts.peer_index(peer)
    }

    /// The index of `peer`, if it has one.
    pub fn find(&self, peer: Peer) -> Option<PeerIndex> {
        self.contacts.find(peer)
    }

    /// The peer with this index.
    pub fn peer(&self, index: PeerIndex) -> Peer {
        self.contacts.peer(index)
    }

    /// The progress of the end of a peer.
    pub fn end_state(&self, index: PeerIndex) -> EndState {
        match self.contacts.state(index) {
            Some(Contact::Ended) => EndState::Published,
            Some(Contact::Severing { .. } | Contact::Drained) if !self.is_declared_unreachable(index) => {
                EndState::Declared
            }
            _ => EndState::NotDeclared { query_open: self.contacts.has_open_query(index) },
        }
    }

    /// Whether neither side has requested the contact, and the runtime has answered all queries about the peer.
    pub fn is_unknown(&self, index: PeerIndex) -> bool {
        self.contacts.state(index).is_none() && !self.contacts.has_open_query(index)
    }

    /// The number of peers whose contact was requested and has not arrived.
    pub fn requested_contacts(&self) -> usize {
        self.contacts.iter().filter(|(_, state)| *state == Contact::Requested).count()
    }

    /// Whether an endpoint is being severed.
    pub fn some_severing(&self) -> bool {
        self.contacts.some_severing()
    }

    /// Whether a peer for which `needs` answers true is quarantined until the runtime has answered whether it lives.
    pub fn some_suspected(&self, needs: impl Fn(PeerIndex) -> bool) -> bool {
        self.contacts.iter().any(|(index, state)| {
            let is_suspected = matches!(state, Contact::Connected { suspected: true, .. });
            is_suspected && self.contacts.has_open_query(index) && needs(index)
        })
    }

    /// Whether there is a notice about the job.
    #[inline]
    pub fn has_job_notices(&self) -> bool {
        !self.job_notices.is_empty()
    }

    /// Adds a notice about the job.
    pub fn add_job_notice(&mut self, notice: JobNotice) {
        self.job_notices.push_back(notice);
    }

    /// The next notice about the job, oldest first.
    pub fn next_job_notice(&mut self) -> Option<JobNotice> {
        self.job_notices.pop_front()
    }

    /// Makes the next progress have an event if there is a notice about the job: the layer above takes such notices after progress
    /// with events.
    pub fn announce_job_notices(&mut self, runtime: &impl Runtime) {
        if self.has_job_notices() {
            self.seen_version = runtime.notice_version().wrapping_sub(1);
        }
    }

    /// To be called before the notices of the runtime are taken. Returns the number of notices about the job that wait already.
    pub fn begin_notices(&mut self, runtime: &impl Runtime) -> u32 {
        self.seen_version = runtime.notice_version();
        self.job_notices.len() as u32
    }

    /// The next end to be published; `None` while the peer that was declared first is being severed.
    pub fn next_end(&mut self) -> Option<(PeerIndex, End)> {
        let &(index, _) = self.declared.front()?;
        if let Some(Contact::Severing { .. }) = self.contacts.state(index) {
            return None;
        }
        let declared = self.declared.pop_front();
        let is_unreachable = matches!(declared, Some((_, End::Unreachable(_))));
        self.contacts.set(index, if is_unreachable { Contact::Unreachable } else { Contact::Ended });
        declared
    }

    /// Examines the evidence of the last progress. Returns the number of endpoints that were severed.
    #[cold]
    pub fn examine<N: Rdma<Endpoint = E>, R: Runtime>(&mut self, layers: &mut Layers<N, R>) -> u32 {
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

    /// Handles a notice of the runtime. Returns the peer that an `Alive` names, if it has an index.
    pub fn on_notice<N: Rdma<Endpoint = E>, R: Runtime>(
        &mut self,
        notice: Notice,
        layers: &mut Layers<N, R>,
    ) -> Option<PeerIndex> {
        match notice {
            Notice::Contact { peer, card } => self.contact(peer, &card, layers),
            Notice::Refused { peer, cause } => self.declare(peer, End::Unreachable(cause), layers),
            Notice::Finalized(peer) => self.declare(peer, End::Finalized, layers),
            Notice::Failed(peer) => self.declare(peer, End::Failed, layers),
            Notice::Alive(peer) => return self.alive(peer, layers),
            Notice::Running(peer) => self.running(peer, layers),
            Notice::Unheard(peer) => self.unheard(peer, layers),
            // About no peer: the engine takes it.
            Notice::Recalled { .. } | Notice::WhereAreYou => {}
            Notice::JobAborted { code } => self.job_notices.push_back(JobNotice::Aborted { code }),
        }
        None
    }

    /// Requests from the runtime the contact of a peer to which a message is sent.
    #[cold]
    pub fn look_up<N: Rdma<Endpoint = E>, R: Runtime>(
        &mut self,
        index: PeerIndex,
        layers: &mut Layers<N, R>,
    ) {
        if self.contacts.state(index).is_some() {
            mend_base::reach!("mpi.contact: requested again");
            return;
        }
        match layers.runtime.lookup(self.contacts.peer(index)) {
            Ok(()) => self.contacts.set(index, Contact::Requested),
            Err(_) => self.end(index, Cause::Refused),
        }
    }

    /// Connects a peer by its card; if that fails, declares the peer unreachable.
    pub fn connect_or_end<N: Rdma<Endpoint = E>, R>(
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

    fn connect<N: Rdma<Endpoint = E>, R>(
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

    /// First contact: the card of the peer has arrived, and it has that of this process.
    fn contact<N: Rdma<Endpoint = E>, R: Runtime>(
        &mut self,
        peer: Peer,
        card: &Card,
        layers: &mut Layers<N, R>,
    ) {
        let index = self.contacts.peer_index(peer);
        match self.contacts.state(index) {
            None => mend_base::reach!("mpi.contact: the peer requested it"),
            Some(Contact::Requested) => mend_base::reach!("mpi.contact: this process requested it"),
            Some(
                Contact::Connected { .. }
                | Contact::Severing { .. }
                | Contact::Drained
                | Contact::Ended
                | Contact::Unreachable,
            ) => {
                mend_base::reach!("mpi.contact: notice again");
                return;
            }
        }
        if let Err(refused) = self.connect_or_end(index, card, layers) {
            mend_base::reach!("mpi.contact: refused by this process");
            layers.runtime.refuse(peer, refused);
        }
    }

    /// Handles evidence, which may be wrong and may repeat. The first evidence against a peer quarantines it. Later evidence that it
    /// may be dead changes nothing until the runtime answers. Garbage, and causes that make a connection impossible, do not depend on
    /// whether the peer lives: they are reported in any case.
    fn suspect<N: Rdma<Endpoint = E>, R: Runtime>(
        &mut self,
        index: PeerIndex,
        cause: Cause,
        layers: &mut Layers<N, R>,
    ) {
        let Some(Contact::Connected { endpoint, suspected }) = self.contacts.state(index) else {
            mend_base::reach!("mpi.peer_reports: evidence too late");
            return;
        };
        let peer = self.contacts.peer(index);
        if peer == layers.runtime.membership().peer {
            return self.on_evidence_against_self(index, endpoint, cause, layers);
        }
        if !suspected {
            mend_base::reach!("mpi.peer_reports: evidence");
            layers.net.quarantine(endpoint);
            self.contacts.set(index, Contact::Connected { endpoint, suspected: true });
        }
        match cause {
            Cause::Refused | Cause::LayoutDiffers | Cause::NoMemory | Cause::Unreachable => {
                layers.runtime.refuse(peer, cause);
            }
            Cause::Exited | Cause::LinkDown | Cause::Silent | Cause::NoEvidence if suspected => {
                mend_base::reach!("mpi.peer_reports: evidence again");
            }
            Cause::Exited | Cause::LinkDown | Cause::Silent | Cause::NoEvidence | Cause::Garbage => {
                self.ask(index, cause, &mut layers.runtime);
            }
        }
    }

    /// Handles evidence against this process, which lives. If it has no memory for a message to itself, it can exchange no more messages
    /// with itself. The runtime has no part in that connection, so its end is declared here.
    #[cold]
    fn on_evidence_against_self<N: Rdma<Endpoint = E>, R>(
        &mut self,
        index: PeerIndex,
        endpoint: E,
        cause: Cause,
        layers: &mut Layers<N, R>,
    ) {
        if matches!(cause, Cause::Exited | Cause::LinkDown | Cause::Silent | Cause::NoEvidence) {
            mend_base::reach!("mpi.peer_reports: evidence that this process is dead");
            return;
        }
        mend_base::reach!("mpi.peer_reports: unreachable for itself");
        self.contacts.set(index, Contact::Severing { endpoint });
        layers.net.sever(endpoint);
        self.declared.push_back((index, End::Unreachable(cause)));
    }

    /// Asks the runtime about a peer of which another member knows that it has failed. An answer that is on its way may be older than
    /// the failure: if it says that the peer lives, the runtime is asked again.
    pub fn ask_about_failure(&mut self, index: PeerIndex, runtime: &mut impl Runtime) {
        match self.end_state(index) {
            EndState::NotDeclared { query_open: false } => self.ask(index, Cause::NoEvidence, runtime),
            EndState::NotDeclared { query_open: true } if !self.to_ask_again.contains(&index) => {
                self.to_ask_again.push(index);
            }
            EndState::NotDeclared { .. } | EndState::Declared | EndState::Published => {}
        }
    }

    /// A message of a protocol among members to or from this unreachable peer is lost. Such protocols need that messages arrive, or the
    /// peer has failed for all: the node daemon ends it, or this process, unless it has left. Asked once.
    pub fn need(&mut self, index: PeerIndex, runtime: &mut impl Runtime) {
        let peer = self.contacts.peer(index);
        let own = runtime.membership().peer;
        if peer != own
            && self.contacts.state(index) == Some(Contact::Unreachable)
            && self.needed.insert(index)
        {
            mend_base::reach!("mpi.peer_reports: an unreachable peer is needed");
            self.ask(index, Cause::Refused, runtime);
        }
    }

    /// Asks the runtime whether the peer has failed.
    pub fn ask(&mut self, index: PeerIndex, cause: Cause, runtime: &mut impl Runtime) {
        self.contacts.begin_query(index);
        runtime.ask(self.contacts.peer(index), cause);
    }

    /// The runtime was asked about the peer, and answers that it lives.
    fn alive<N: Rdma<Endpoint = E>, R: Runtime>(
        &mut self,
        peer: Peer,
        layers: &mut Layers<N, R>,
    ) -> Option<PeerIndex> {
        let index = self.contacts.find(peer)?;
        self.contacts.end_query(index);
        if let Some(at) = self.to_ask_again.iter().position(|&again| again == index) {
            mend_base::reach!("mpi.peer_reports: the answer was older than the failure");
            self.to_ask_again.swap_remove(at);
            self.ask(index, Cause::NoEvidence, &mut layers.runtime);
        }
        if let Some(Contact::Connected { endpoint, suspected: true }) = self.contacts.state(index) {
            mend_base::reach!("mpi.peer_reports: resumed");
            layers.net.resume(endpoint);
            self.contacts.set(index, Contact::Connected { endpoint, suspected: false });
        }
        Some(index)
    }

    /// The peer, of which its transport hears nothing, has answered the runtime.
    fn running<N: Rdma<Endpoint = E>, R>(&mut self, peer: Peer, layers: &mut Layers<N, R>) {
        let Some(index) = self.contacts.find(peer) else { return };
        if let Some(Contact::Connected { endpoint, .. }) = self.contacts.state(index) {
            mend_base::reach!("mpi.peer_reports: silent, and running");
            layers.net.on_running(endpoint);
        }
    }

    /// The peer hears nothing of this process.
    fn unheard<N: Rdma<Endpoint = E>, R>(&mut self, peer: Peer, layers: &mut Layers<N, R>) {
        let Some(index) = self.contacts.find(peer) else { return };
        if let Some(Contact::Connected { endpoint, .. }) = self.contacts.state(index) {
            mend_base::reach!("mpi.peer_reports: a peer hears nothing of this process");
            layers.net.on_unheard(endpoint);
        }
    }

    /// Whether the end that is declared, and not published yet, is that the peer cannot be reached: it lives.
    fn is_declared_unreachable(&self, index: PeerIndex) -> bool {
        let mut of_peer = self.declared.iter().filter(|(of, _)| *of == index);
        of_peer.next_back().is_some_and(|(_, end)| matches!(end, End::Unreachable(_)))
    }

    /// Declares the end of a peer, which is final. Its complete messages are handed up before its end is published (Row PP7).
    fn declare<N: Rdma<Endpoint = E>, R: Runtime>(
        &mut self,
        peer: Peer,
        end: End,
        layers: &mut Layers<N, R>,
    ) {
        let index = self.contacts.peer_index(peer);
        // Whether an unreachable peer lives is still to be answered.
        if !matches!(end, End::Unreachable(_)) {
            self.contacts.end_query(index);
            self.to_ask_again.retain(|&again| again != index);
        }
        match self.contacts.state(index) {
            Some(Contact::Connected { endpoint, .. }) => {
                mend_base::reach!("mpi.peer_reports: declaration, severing");
                self.contacts.set(index, Contact::Severing { endpoint });
                match end {
                    End::Failed | End::Finalized => layers.net.sever_dead(endpoint),
                    End::Unreachable(_) => layers.net.sever(endpoint),
                }
            }
            None | Some(Contact::Requested) => {
                mend_base::reach!("mpi.peer_reports: declaration, unconnected");
                self.contacts.set(index, Contact::Drained);
            }
            Some(Contact::Severing { .. } | Contact::Drained) => return self.declare_again(index, end),
            Some(Contact::Unreachable) if !matches!(end, End::Unreachable(_)) => {
                mend_base::reach!("mpi.peer_reports: unreachable, then failed or left");
                self.contacts.set(index, Contact::Drained);
            }
            // The first declaration is final.
            Some(Contact::Ended | Contact::Unreachable) => {
                mend_base::reach!("mpi.peer_reports: declaration again");
                return;
            }
        }
        self.declared.push_back((index, end));
    }

    /// Handles a second declaration before the end is published: the first is final, except that an unreachable peer may fail
    /// or leave.
    fn declare_again(&mut self, index: PeerIndex, end: End) {
        let declared = self.declared.iter_mut().find(|(of, _)| *of == index);
        if let Some((_, first @ End::Unreachable(_))) = declared
            && !matches!(end, End::Unreachable(_))
        {
            mend_base::reach!("mpi.peer_reports: unreachable, then failed or left, while severing");
            *first = end;
        } else {
            mend_base::reach!("mpi.peer_reports: declaration again");
        }
    }

    fn severed(&mut self, index: PeerIndex, endpoint: E) {
        match self.contacts.state(index) {
            Some(Contact::Severing { endpoint: severing }) if severing == endpoint => {
                self.contacts.set(index, Contact::Drained);
            }
            _ => {
                debug_assert!(false, "a transport reports as severed an endpoint that was not to be severed")
            }
        }
    }

    /// Declares a peer that this process cannot reach. Its end goes to the front of the declared ends, and so is published at
    /// once. Other ends are published in the order of their declarations, even if the first must still be severed, because one
    /// end may have caused the next: a rank may have finalized because it was notified of a failure, and an error that names this
    /// rank has to come after that failure. That a peer cannot be reached is caused by no end of another peer.
    fn end(&mut self, index: PeerIndex, cause: Cause) {
        self.contacts.set(index, Contact::Drained);
        self.declared.push_front((index, End::Unreachable(cause)));
    }
}

#[cfg(test)]
mod tests;
