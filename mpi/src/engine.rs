// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engine of one process, and its crank [`turn`](Engine::turn).
//!
//! It owns the transports and lends them to the PML for the length of a call (Rule 3); it owns the runtime, from
//! which news of others come; it keeps the tables of communicators, collective operations and contacts. It never blocks
//! and never calls the user: who waits, stands above and turns it.

use crate::collective::{Running, awaited_by};
use crate::communicator::CommEntry;
use crate::contact::{Contact, Contacts};
use crate::funnel::Funnel;
use crate::waiters::Waiters;
use crate::watched::Watched;
use crate::{CommKey, Error, Registry, Request, RequestHandle, Started, State};
use mend_base::parameter::Settings;
use mend_base::{
    Identity, Instant, Key, LifecycleCheck, LifecycleCounts, Peer, PeerIndex, Rank, Slab, Source, Tag,
    TagSelector,
};
use mend_comm::{Communicator, Group};
use mend_datatype::Typed;
use mend_pml::{Config, Gone, Ob1, SendMode, Status};
use mend_proto::identity::IdentityAllocator;
use mend_runtime::{Runtime, RuntimeError};
use mend_transport::{Btl, Card, Cause, Pending, WakeSet};
use std::collections::VecDeque;
use std::sync::Arc;

/// One process's MPI, as a value: a thousand of them fit into one test.
#[derive(Debug)]
pub struct Engine<N: Btl, R: Runtime> {
    pub(crate) net: N,
    pub(crate) pml: Ob1<N::Endpoint>,
    pub(crate) runtime: R,
    pub(crate) contacts: Contacts<N::Endpoint>,
    pub(crate) funnel: Funnel<N::Endpoint>,
    pub(crate) registry: Registry,
    pub(crate) communicators: Slab<CommEntry>,
    pub(crate) collectives: Slab<Running>,
    /// Each of `collectives` ends once.
    pub(crate) lifecycle_check: LifecycleCheck,
    /// Those of `collectives` that are not over: what a turn looks at.
    pub(crate) active: Vec<Key>,
    completed: Slab<Status>,
    pub(crate) waiters: Waiters,
    pub(crate) world: CommKey,
    pub(crate) myself: CommKey,
    pub(crate) identities: IdentityAllocator,
    pub(crate) seen_version: u32,
    /// Of the last turn.
    pub(crate) now: Instant,
    pub(crate) job_notices: VecDeque<JobNotice>,
    phase: Phase,
    watched: Watched<N::Endpoint>,
    /// Calls of progress that were made within another call; wraps.
    pub(crate) repeated_progress: u32,
    /// Timed looks so far.
    checks: u32,
    /// The same, of the call that waits.
    pub(crate) checks_of_wait: u32,
    /// Blocking receives so far; wraps.
    direct: u32,
}

/// Of so many blocking receives one is posted, and its caller turns the crank.
const POLLED_PER_PROGRESS: u32 = 16;

/// How far MPI_Finalize is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    /// No more is received: communicators are closed, and what others still offer is refused.
    Closing,
    /// The runtime knows that we left.
    Finalized,
}

/// What the shell above must act on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobNotice {
    /// The job is being ended.
    Aborted {
        /// Its exit code.
        code: i32,
    },
}

/// What stands in an engine's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Communicators, WORLD and SELF included; after Finalize none.
    pub communicators: u32,
    /// Collective operations, and communicators being made, that nobody released.
    pub collectives: u32,
    /// Requests that were done when they were started.
    pub completed: u32,
    /// Peers that we asked the runtime for, and that have not answered yet.
    pub asked: u32,
    /// What stands in the PML's.
    pub pml: mend_pml::Census,
}

/// Why an engine does not start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StartError {
    /// The runtime did not take our card.
    #[error("the launcher did not take this process's card: {0}")]
    Runtime(#[from] RuntimeError),
}

/// Timed looks for each question about a peer that may be the sender that somebody waits for, and that we never met: a
/// sleeper's are 100 ms apart in the end, and an answer wakes it.
const CHECKS_PER_QUESTION: u32 = 16;

/// Of the looks of one call that waits, those that ask besides: from some 15 ms on, since most waits are shorter, for some 6 s.
const ASKS_AT: core::ops::Range<u32> = 4..68;

/// The numbers of WORLD, whose creator is its rank 0, and SELF: everybody knows them without asking.
const WORLD_NUMBER: u32 = 0;
const SELF_NUMBER: u32 = 1;
const _: () = assert!(WORLD_NUMBER < IdentityAllocator::FIRST && SELF_NUMBER < IdentityAllocator::FIRST);

impl<N: Btl, R: Runtime> Engine<N, R> {
    /// Publishes the card of these transports; WORLD and SELF stand when this returns.
    pub fn new(net: N, runtime: R, settings: &Settings) -> Result<Self, StartError> {
        Self::with_config(net, runtime, Config::from(settings))
    }

    /// The same with a PML whose limits are not parameters.
    pub fn with_config(net: N, mut runtime: R, config: Config) -> Result<Self, StartError> {
        let mut card = Card { layout: Card::LAYOUT, ..Card::default() };
        net.advertise(&mut card);
        runtime.publish(&card)?;
        let membership = runtime.membership();
        let (me, size) = (membership.peer, membership.size);
        let nobody = CommKey(Key { index: 0, generation: 0 });
        let mut engine = Engine {
            net,
            pml: Ob1::new(config),
            seen_version: runtime.fault_version().wrapping_sub(1),
            now: Instant(0),
            runtime,
            contacts: Contacts::new(me.job(), size),
            funnel: Funnel::default(),
            registry: Registry::default(),
            communicators: Slab::new(),
            collectives: Slab::new(),
            lifecycle_check: LifecycleCheck::default(),
            active: Vec::new(),
            completed: Slab::new(),
            waiters: Waiters::default(),
            world: nobody,
            myself: nobody,
            identities: IdentityAllocator::new(me),
            job_notices: VecDeque::new(),
            phase: Phase::Running,
            watched: Watched::ANY,
            repeated_progress: 0,
            checks: 0,
            checks_of_wait: 0,
            direct: 0,
        };
        engine.open_predefined();
        let myself = engine.contacts.place(me);
        if engine.connect(myself, &card).is_err() {
            engine.end(myself, Gone::Unreachable(Cause::Refused));
        }
        Ok(engine)
    }

    fn open_predefined(&mut self) {
        let membership = self.runtime.membership();
        let (me, size) = (membership.peer, membership.size);
        let first = mend_base::Peer::new(me.job(), 0);
        let world = Communicator {
            identity: Identity { creator: first, number: WORLD_NUMBER },
            rank: Rank(me.number()),
            group: Arc::new(Group::consecutive(first, size)),
        };
        self.world = self.enter(world, (0..size).map(PeerIndex).collect());
        let myself = Communicator {
            identity: Identity { creator: me, number: SELF_NUMBER },
            rank: Rank(0),
            group: Arc::new(Group::consecutive(me, 1)),
        };
        let place = self.contacts.place(me);
        self.myself = self.enter(myself, Arc::new([place]));
    }

    // Hot: per message.
    /// Makes progress and returns; how many events there were. `now` may be stale.
    pub fn progress(&mut self, now: Instant) -> u32 {
        self.now = now;
        let mut events = self.pml.progress(&mut self.net, now, &mut self.funnel);
        if !self.funnel.is_empty() {
            events += self.take_funnel();
        }
        if self.runtime.fault_version() != self.seen_version {
            events += self.take_notices();
        }
        if !self.active.is_empty() {
            events += self.progress_collectives();
            if let Some(collective) = self.watched.collective() {
                self.watch_next_round(collective);
            }
        }
        while let Some(peer) = self.pml.wanted() {
            self.look_up(peer);
            events += 1;
        }
        events
    }

    /// The waiting call does not say from whom it expects something: [`is_ready`](Engine::is_ready) says yes.
    pub fn unwatch(&mut self) {
        self.watched = Watched::ANY;
        self.checks_of_wait = 0;
    }

    // Hot: per blocking receive.
    /// A blocking call waits for `from`: its ring is what [`is_ready`](Engine::is_ready) polls until the next call.
    #[inline]
    pub fn watch(&mut self, comm: CommKey, from: Source) {
        self.checks_of_wait = 0;
        self.watched.only(match (from, self.communicators.get(comm.0)) {
            (Source::Rank(rank), Some(entry)) => self.pml.endpoint(entry.user, rank),
            _ => None,
        });
    }

    /// A blocking call waits for this operation: the rings of those from whom it expects something are polled.
    pub fn watch_request(&mut self, request: Request) {
        self.watch_requests(&[RequestHandle::Request(request)]);
    }

    /// The same of several.
    pub(crate) fn watch_requests(&mut self, requests: &[RequestHandle]) {
        self.checks_of_wait = 0;
        self.watched.clear();
        for &handle in requests {
            match handle {
                RequestHandle::Request(Request::PointToPoint(key)) => {
                    let request = mend_pml::Request(key);
                    if !matches!(self.pml.poll(request), mend_pml::State::Done(_)) {
                        self.watched.add(self.pml.awaited_from(request));
                    }
                }
                RequestHandle::Request(Request::Collective(key)) => self.watch_rounds(key),
                RequestHandle::Request(Request::Completed(_)) | RequestHandle::Null | RequestHandle::Done => {
                }
            }
        }
    }

    /// Adds those from whom a collective operation expects something in this round.
    fn watch_rounds(&mut self, collective: Key) {
        self.watched.follow(collective);
        for &request in awaited_by(&self.collectives, collective) {
            if let Some(endpoint) = self.pml.awaited_from(request) {
                self.watched.add(Some(endpoint));
            }
        }
    }

    /// The collective operation that is waited for may be in another round now.
    fn watch_next_round(&mut self, collective: Key) {
        self.watched.clear();
        self.watch_rounds(collective);
    }

    // Hot: per look.
    /// Whether a call of progress is worth it now: something lies in a ring that is watched, or any counts; there are notices;
    /// or something of ours is still to be sent.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.watched.is_ready(|endpoint| self.net.ready(endpoint))
            || self.runtime.fault_version() != self.seen_version
            || !self.pml.idle()
    }

    /// Before sleeping: adds what to sleep on. `Pending`: a turn would find something.
    pub fn arm(&mut self, wake: &mut WakeSet) -> Result<(), Pending> {
        if self.runtime.fault_version() != self.seen_version || !self.funnel.is_empty() {
            return Err(Pending);
        }
        self.net.arm(wake)
    }

    /// After sleeping, or instead of it.
    pub fn disarm(&mut self) {
        self.net.disarm();
    }

    /// MPI_COMM_WORLD.
    pub fn world(&self) -> CommKey {
        self.world
    }

    /// MPI_COMM_SELF.
    pub fn myself(&self) -> CommKey {
        self.myself
    }

    // Hot: per message.
    /// Starts a send. An error here is one of the arguments; whatever else goes wrong ends the request.
    #[inline(always)]
    pub fn send(
        &mut self,
        comm: CommKey,
        to: Rank,
        tag: Tag,
        mode: SendMode,
        data: Typed,
    ) -> Result<Started, Error> {
        let entry = self.entry(comm)?;
        let (to, channel) = (entry.check(to)?, entry.user);
        started(self.pml.send(&mut self.net, channel, to, check_tag(tag)?, mode, data)?)
    }

    // Hot: per message.
    /// Starts a receive.
    pub fn receive(
        &mut self,
        comm: CommKey,
        from: Source,
        tag: TagSelector,
        data: Typed,
    ) -> Result<Started, Error> {
        let channel = self.selected(comm, from, tag)?;
        started(self.pml.receive(&mut self.net, channel, from, tag, data)?)
    }

    // Hot: per message.
    /// As [`receive`](Engine::receive), for a caller that will wait for it: looks up to `looks` times at the ring of the
    /// sender before it posts anything. Every [`POLLED_PER_PROGRESS`]th time it does not, so that the caller turns the crank:
    /// two ranks that exchange messages without a pause shall not keep everything else waiting.
    #[inline(always)]
    pub fn polling_receive(
        &mut self,
        comm: CommKey,
        from: Source,
        tag: TagSelector,
        data: Typed,
        looks: u32,
    ) -> Result<Started, Error> {
        let channel = self.selected(comm, from, tag)?;
        self.direct = self.direct.wrapping_add(1);
        let looks = if self.direct.is_multiple_of(POLLED_PER_PROGRESS) { 0 } else { looks };
        let patience = mend_pml::Patience { up: &mut self.funnel, now: self.now, looks };
        started(self.pml.polling_receive(&mut self.net, patience, channel, from, tag, data)?)
    }

    /// Whether a message lies here that a receive would match now. Looks at what came; turns nothing.
    pub fn probe(&mut self, comm: CommKey, from: Source, tag: TagSelector) -> Result<Option<Status>, Error> {
        let channel = self.selected(comm, from, tag)?;
        Ok(self.pml.probe(&mut self.net, channel, from, tag)?)
    }

    #[inline(always)]
    fn selected(&self, comm: CommKey, from: Source, tag: TagSelector) -> Result<mend_pml::Channel, Error> {
        let entry = self.entry(comm)?;
        if let Source::Rank(rank) = from {
            entry.check(rank)?;
        }
        if let TagSelector::Tag(tag) = tag {
            check_tag(tag)?;
        }
        Ok(entry.user)
    }

    // Hot: per look.
    /// Where the operation stands. Stays what it is until [`release`](Engine::release), once it is over.
    pub fn poll(&self, request: Request) -> State {
        let state = self.state(request);
        if !matches!(state, State::Done(_)) {
            self.waiters.note(request);
        }
        state
    }

    #[inline]
    fn state(&self, request: Request) -> State {
        match request {
            Request::PointToPoint(key) => match self.pml.poll(mend_pml::Request(key)) {
                mend_pml::State::Running => State::Running,
                mend_pml::State::Stalled => State::PendingFailure,
                mend_pml::State::Done(result) => State::Done(result.map_err(Error::from)),
            },
            Request::Collective(key) => self.poll_collective(key),
            Request::Completed(key) => {
                State::Done(self.completed.get(key).copied().ok_or_else(no_such_request))
            }
        }
    }

    /// Whether it was started, and not released since.
    pub fn stands(&self, request: Request) -> bool {
        !matches!(self.poll(request), State::Done(Err(error)) if error.detail == crate::Detail::NoSuchRequest)
    }

    /// Forgets an operation that is over.
    pub fn release(&mut self, request: Request) {
        match request {
            Request::PointToPoint(key) => self.pml.release(mend_pml::Request(key)),
            Request::Collective(key) => self.release_collective(key),
            Request::Completed(key) => drop(self.completed.remove(key)),
        }
    }

    /// MPI_Request_free: the operation goes on and then vanishes.
    pub fn detach(&mut self, request: Request) {
        match request {
            Request::PointToPoint(key) => self.pml.detach(mend_pml::Request(key)),
            Request::Collective(key) => self.detach_collective(key),
            Request::Completed(key) => drop(self.completed.remove(key)),
        }
    }

    /// Takes a receive back if nothing has matched it; everything else goes on (MPI-5.0 §3.8.4).
    pub fn cancel(&mut self, request: Request) {
        if let Request::PointToPoint(key) = request {
            self.pml.cancel(mend_pml::Request(key));
        }
    }

    /// Lets go of a send whose buffer is the user's again at once: it goes on from a copy, since its receiver lives and must
    /// get it. `false`: there is no memory for one, and the buffer stays ours.
    pub fn continue_from_copy(&mut self, request: Request) -> bool {
        match request {
            Request::PointToPoint(key) => self.pml.continue_from_copy(mend_pml::Request(key)),
            Request::Collective(_) | Request::Completed(_) => true,
        }
    }

    /// A request that is over already, for a user's handle.
    pub fn complete(&mut self, status: Status) -> Request {
        Request::Completed(self.completed.insert(status))
    }

    /// MPI_Finalize, asked until it says true: nothing of ours is still to be sent, and the runtime knows that we left.
    /// Ends because every send ends: received, refused because its receiver finalizes too, or its receiver gone (Rule 7).
    pub fn finish(&mut self) -> bool {
        if self.phase == Phase::Running && self.active.is_empty() {
            self.phase = Phase::Closing;
            self.close_all();
        }
        if self.phase == Phase::Closing && self.pml.idle() {
            self.phase = Phase::Finalized;
            self.runtime.finalize();
        }
        self.phase == Phase::Finalized
    }

    /// MPI_Abort: ends the members of the communicator; on WORLD, and on whatever else holds everybody, the job.
    pub fn abort_members(&mut self, comm: CommKey, code: i32) -> Result<(), Error> {
        let members: Vec<Peer> = self.entry(comm)?.communicator.group.iter().collect();
        if members.len() as u32 == self.runtime.membership().size {
            self.runtime.abort(code);
        } else {
            self.runtime.abort_some(code, &members);
        }
        Ok(())
    }

    /// Ends this process alone.
    pub fn abort_alone(&mut self, code: i32) {
        let me = self.runtime.membership().peer;
        self.runtime.abort_some(code, &[me]);
    }

    /// Ends the job.
    pub fn abort(&mut self, code: i32) {
        self.runtime.abort(code);
    }

    /// Whether there is something that the shell must act on.
    #[inline]
    pub fn has_notices(&self) -> bool {
        !self.job_notices.is_empty()
    }

    /// A timed look, between sleeps and about once a millisecond while waiting without one: is whoever started us still
    /// there, and is one of our peers dead? Of those who are waited for and were never met, it asks, or has them met.
    /// What it finds comes with the next turn.
    pub fn check(&mut self) {
        self.runtime.check();
        self.net.check_peers();
        self.checks = self.checks.wrapping_add(1);
        self.checks_of_wait = self.checks_of_wait.saturating_add(1);
        if (ASKS_AT.contains(&self.checks_of_wait) || self.checks.is_multiple_of(CHECKS_PER_QUESTION))
            && let Some(peer) = self.pml.next_unconnected()
            && self.contacts.state(peer).is_none()
            && !self.contacts.is_questioned(peer)
        {
            self.ask(peer, Cause::Silent);
        }
        self.pml.want_awaited();
    }

    /// What the shell must act on, oldest first.
    pub fn notices(&mut self) -> Option<JobNotice> {
        self.job_notices.pop_front()
    }

    /// Who failed, as this process knows.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Whether the job outlives the death of some of its ranks.
    pub fn is_fault_tolerant(&self) -> bool {
        self.runtime.membership().fault_tolerant
    }

    /// The transports, for reports.
    pub fn net(&self) -> &N {
        &self.net
    }

    /// The runtime, for reports.
    pub fn runtime(&self) -> &R {
        &self.runtime
    }

    /// What stands in the tables: for reports and tests.
    pub fn census(&self) -> Census {
        Census {
            communicators: self.communicators.len() as u32,
            collectives: self.collectives.len() as u32,
            completed: self.completed.len() as u32,
            asked: self.contacts.iter().filter(|(_, state)| *state == Contact::Asked).count() as u32,
            pml: self.pml.census(),
        }
    }

    /// Asserts that every request, of messages and of collective operations, ends once and is forgotten once, as
    /// [`Ob1::lifecycle_check`] says. How many so far, together, where a build keeps books.
    pub fn lifecycle_check(&self) -> LifecycleCounts {
        self.lifecycle_check
            .assert_agrees(self.collectives.iter().map(|(key, running)| (key, running.is_over())));
        let (ours, messages) = (self.lifecycle_check.counts(), self.pml.lifecycle_check());
        LifecycleCounts {
            begun: ours.begun + messages.begun,
            ended: ours.ended + messages.ended,
            forgotten: ours.forgotten + messages.forgotten,
        }
    }
}

#[inline]
fn check_tag(tag: Tag) -> Result<Tag, Error> {
    if tag.0 < 0 { Err(Error::of(crate::Detail::NegativeTag(tag))) } else { Ok(tag) }
}

#[inline]
fn started(started: mend_pml::Started) -> Result<Started, Error> {
    Ok(match started {
        mend_pml::Started::Done(status) => Started::Done(status),
        mend_pml::Started::Running(mend_pml::Request(key)) => Started::Running(Request::PointToPoint(key)),
    })
}

pub(crate) fn no_such_request() -> Error {
    Error::of(crate::Detail::NoSuchRequest)
}
