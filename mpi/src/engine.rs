// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engine of one process.
//!
//! The engine is composed of the parts that `lib.rs` lists, each a type with private fields. This file and the files of its folder
//! call the parts, in the order that the rules demand. The engine never blocks and never calls the user's code: a waiter above it
//! calls [`progress`](Engine::progress) repeatedly.

mod call_report;
mod collectives;
mod creation;
mod crossing;
mod detection;
mod ends;
mod failures;
mod group_creation;
mod intercomm_creation;
mod origins;
mod properties;
mod repair;
mod reports;
pub(crate) mod unsatisfiable;
mod waiting;
mod without_ft;

use crate::agreements::Agreements;
use crate::call_reports::CallReports;
use crate::collective::{Collectives, Parts};
use crate::communicator::{CommEntry, Communicators};
use crate::creations::Creations;
use crate::dispatch::Dispatch;
use crate::expected_senders::ExpectedSenders;
use crate::heartbeats::Heartbeats;
use crate::layers::Layers;
use crate::member_protocols::MemberProtocols;
use crate::parameters::detector_config;
use crate::peer_reports::PeerReports;
use crate::program_wait::ProgramWaits;
use crate::request::{RequestsEndedAtStart, Started, State};
use crate::unconnected_query::UnconnectedQuery;
use crate::wake_ups::WakeUps;
use crate::{CommKey, Detail, Error, Request};
pub use creation::Shared;
use mend_base::parameter::Settings;
use mend_base::{Instant, Rank, Source, Tag, TagSelector};
use mend_coll::Framework;
use mend_comm::Communicator;
use mend_datatype::TypedBuffer;
use mend_pml::{CommIndex, Config, Ends, Lent, Ob1, PollingReceive, SendMode, Status};
use mend_runtime::{Runtime, RuntimeError};
use mend_transport::{Ability, Card, Rdma};
pub use reports::OpenCounts;

/// All MPI state of one process, as a value: a test may have a thousand of them.
#[derive(Debug)]
pub struct Engine<N: Rdma, R: Runtime> {
    layers: Layers<N, R>,
    peer_reports: PeerReports<N::Endpoint>,
    ends: Ends,
    communicators: Communicators,
    collectives: Collectives,
    agreements: Agreements,
    creations: Creations,
    member_protocols: MemberProtocols,
    heartbeats: Heartbeats,
    ended_at_start: RequestsEndedAtStart,
    expected_senders: ExpectedSenders<N::Endpoint>,
    wake_ups: WakeUps,
    unconnected_query: UnconnectedQuery,
    program_waits: ProgramWaits,
    call_reports: CallReports,
    /// The time of the last call of progress.
    now: Instant,
    phase: Phase,
    /// This process has nothing to send, and waits until all has been received.
    is_flushing: bool,
    /// The number of calls of [`progress_again`](Engine::progress_again), by which a future sees that its poll made progress;
    /// wraps.
    repeated_progress: u32,
}

/// The phase of MPI_Finalize.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    /// The communicators are closed: messages of other processes are refused.
    Closing,
    /// The runtime was notified that this process left MPI.
    Finalized,
}

/// Why an engine does not start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EngineStartError {
    /// The runtime did not accept the card of this process.
    #[error("the node daemon did not take this process's card: {0}")]
    Runtime(#[from] RuntimeError),
    /// The predefined communicators could not be created.
    #[error(transparent)]
    Communicators(#[from] Error),
}

impl<N: Rdma, R: Runtime> Engine<N, R> {
    /// Publishes the card of the transports `net`, and creates WORLD and SELF. The framework is of the same settings.
    pub fn new(
        now: Instant,
        net: N,
        runtime: R,
        framework: Framework,
        settings: &Settings,
    ) -> Result<Self, EngineStartError> {
        let mut engine = Self::start(net, runtime, framework, Config::from(settings))?;
        if let Some(config) = detector_config(settings).filter(|_| engine.is_fault_tolerant()) {
            engine.detect_failures(now, config)?;
        }
        Ok(engine)
    }

    /// As [`new`](Engine::new), with limits of the PML that are given directly and not by parameters, and the default collective
    /// components.
    pub fn with_config(net: N, runtime: R, config: Config) -> Result<Self, EngineStartError> {
        let framework = Framework::with_defaults(runtime.membership().fault_tolerant);
        Self::start(net, runtime, framework, config)
    }

    fn start(net: N, mut runtime: R, framework: Framework, config: Config) -> Result<Self, EngineStartError> {
        let mut card = Card { layout: Card::LAYOUT, ..Card::default() };
        net.advertise(&mut card);
        runtime.publish(&card)?;
        let membership = runtime.membership();
        let (me, size) = (membership.peer, membership.size);
        let mut engine = Engine {
            peer_reports: PeerReports::new(me.job(), size, runtime.notice_version()),
            layers: Layers { net, pml: Ob1::new(config), runtime },
            ends: Ends::default(),
            communicators: Communicators::new(me, framework),
            collectives: Collectives::default(),
            agreements: Agreements::default(),
            creations: Creations::default(),
            member_protocols: MemberProtocols::default(),
            heartbeats: Heartbeats::default(),
            ended_at_start: RequestsEndedAtStart::default(),
            expected_senders: ExpectedSenders::ANY,
            wake_ups: WakeUps::default(),
            unconnected_query: UnconnectedQuery::default(),
            program_waits: ProgramWaits::default(),
            call_reports: CallReports::default(),
            now: Instant(0),
            phase: Phase::Running,
            is_flushing: false,
            repeated_progress: 0,
        };
        let index = engine.peer_reports.peer_index(me);
        engine.communicators.open_predefined(me, size, index, &mut engine.layers)?;
        engine.reserve_for_communicator()?;
        if engine.peer_reports.connect_or_end(index, &card, &mut engine.layers).is_err() {
            engine.publish_ends();
        }
        Ok(engine)
    }

    // Hot: per message.
    /// Makes progress without blocking. Returns the number of events. `now` may be stale.
    pub fn progress(&mut self, now: Instant) -> u32 {
        self.now = now;
        let is_ring_due = self.heartbeats.is_due(now);
        if is_ring_due && self.fence_if_late() {
            // An event: the layer above takes the notice.
            return 1;
        }
        let mut events = self.poll_transports();
        if is_ring_due && self.advance_detection() {
            return 1;
        }
        if !self.member_protocols.is_idle() {
            events += self.progress_member_protocols();
        }
        if !self.peer_reports.is_empty() {
            events += self.examine_evidence();
        }
        if self.peer_reports.has_notices(&self.layers.runtime) {
            events += self.take_notices();
        }
        if !self.collectives.is_idle() {
            events += self.progress_collectives();
        }
        if !self.creations.is_idle() {
            events += self.progress_creations_and_votes();
        }
        while let Some(peer) = self.layers.pml.next_to_connect() {
            self.look_up(peer);
            events += 1;
        }
        events
    }

    // Hot: per progress.
    #[inline]
    fn poll_transports(&mut self) -> u32 {
        let Engine {
            layers: Layers { net, pml, .. }, peer_reports, member_protocols, heartbeats, now, ..
        } = self;
        pml.progress(net, *now, &mut Dispatch { peer_reports, member_protocols, heartbeats })
    }

    /// MPI_COMM_WORLD.
    pub fn comm_world(&self) -> CommKey {
        self.communicators.comm_world()
    }

    /// MPI_COMM_SELF.
    pub fn comm_self(&self) -> CommKey {
        self.communicators.comm_self()
    }

    /// The communicator, until its handle is freed.
    pub fn communicator(&self, comm: CommKey) -> Option<&Communicator> {
        self.communicators.valid(comm).ok().map(CommEntry::communicator)
    }

    /// MPI_Comm_free, which is local: the handle is invalid at once; operations that run on the communicator go on.
    pub fn free(&mut self, comm: CommKey) -> Result<(), Error> {
        let identity = self.communicators.valid(comm)?.communicator().identity;
        self.communicators.free(comm, &mut self.layers)?;
        self.close_member_protocols(identity);
        self.member_protocols.recheck_early();
        Ok(())
    }

    /// Whether operations on a communicator that can be freed are still pending, as MPI_Comm_disconnect asks. A receive from any source
    /// that only the program can end does not count.
    pub fn has_pending_operations(&self, comm: CommKey) -> Result<bool, Error> {
        let entry = self.communicators.valid(comm)?;
        if comm == self.comm_world() || comm == self.comm_self() {
            return Err(Error::of(Detail::PredefinedCommunicator));
        }
        Ok(entry.has_running_operations() || self.layers.pml.has_running(entry.point_to_point(), &self.ends))
    }

    // Hot: per message.
    /// Starts a send. `Err`: an argument is invalid. Every other error ends the request.
    #[inline(always)]
    pub fn send(
        &mut self,
        comm: CommKey,
        to: Rank,
        tag: Tag,
        mode: SendMode,
        data: TypedBuffer,
    ) -> Result<Started, Error> {
        let channel = self.communicators.valid(comm)?.channel_to(to)?;
        let Layers { net, pml, .. } = &mut self.layers;
        let lent = Lent { net, ends: &self.ends };
        let send = pml.send(lent, channel, to, check_tag(tag)?, mode, data)?;
        Ok(self.started(Some(comm), send))
    }

    // Hot: per message.
    /// Starts a receive. `Err`: as of [`send`](Engine::send).
    pub fn receive(
        &mut self,
        comm: CommKey,
        from: Source,
        tag: TagSelector,
        data: TypedBuffer,
    ) -> Result<Started, Error> {
        let channel = self.selected(comm, from, tag)?;
        let Layers { net, pml, .. } = &mut self.layers;
        let lent = Lent { net, ends: &self.ends };
        let receive = pml.receive(lent, channel, from, tag, data)?;
        Ok(self.started(Some(comm), receive))
    }

    // Hot: per message.
    /// Prepares a polling receive: its caller [polls](Engine::poll_once) the ring of the sender before it
    /// [posts](Engine::post) the receive. No operation has started when this returns.
    #[inline(always)]
    pub fn begin_polling(
        &self,
        comm: CommKey,
        from: Source,
        tag: TagSelector,
        data: TypedBuffer,
    ) -> Result<PollingReceive<N::Endpoint>, Error> {
        let channel = self.selected(comm, from, tag)?;
        Ok(self.layers.pml.begin_polling(channel, from, tag, data))
    }

    // Hot: per poll.
    /// Polls the ring of the sender once. `Some`: the receive has started, as [`receive`](Engine::receive) would have started it, and
    /// `polling` must not be used again.
    #[inline(always)]
    pub fn poll_once(&mut self, polling: &mut PollingReceive<N::Endpoint>) -> Option<Result<Started, Error>> {
        let Layers { net, pml, .. } = &mut self.layers;
        let mut up = Dispatch {
            peer_reports: &mut self.peer_reports,
            member_protocols: &mut self.member_protocols,
            heartbeats: &mut self.heartbeats,
        };
        let lent = Lent { net, ends: &self.ends };
        let result = pml.poll_once(lent, self.now, polling, &mut up)?;
        Some(result.map_err(Error::from).map(|receive| self.started(None, receive)))
    }

    // Hot: per message that the first poll has not found.
    /// Whether further polls may find the message. If not, a call of progress must bring it.
    #[inline]
    pub fn can_poll(&self, polling: &PollingReceive<N::Endpoint>) -> bool {
        polling.endpoint().is_some_and(|endpoint| self.layers.net.limits(endpoint).can(Ability::Polling))
    }

    // Hot: per message that polling has not found.
    /// Ends the polling and starts the receive.
    #[inline]
    pub fn post(&mut self, polling: PollingReceive<N::Endpoint>) -> Result<Started, Error> {
        let Layers { net, pml, .. } = &mut self.layers;
        let receive = pml.post(Lent { net, ends: &self.ends }, polling)?;
        Ok(self.started(None, receive))
    }

    /// The status of the unexpected message that such a receive would match now, if there is one. Makes no progress.
    pub fn probe(&mut self, comm: CommKey, from: Source, tag: TagSelector) -> Result<Option<Status>, Error> {
        let channel = self.selected(comm, from, tag)?;
        Ok(self.layers.pml.probe(channel, from, tag, &self.ends)?)
    }

    #[inline(always)]
    fn selected(&self, comm: CommKey, from: Source, tag: TagSelector) -> Result<mend_pml::Channel, Error> {
        if let TagSelector::Tag(tag) = tag {
            check_tag(tag)?;
        }
        let entry = self.communicators.valid(comm)?;
        match from {
            Source::Rank(rank) => entry.channel_to(rank),
            Source::Any => Ok(entry.point_to_point()),
        }
    }

    // Hot: per poll.
    /// The state of an operation. After the operation has ended its state does not change until [`release`](Engine::release).
    pub fn poll(&self, request: Request) -> State {
        let state = self.state(request);
        if !matches!(state, State::Done(_)) {
            self.wake_ups.note(request);
        }
        state
    }

    #[inline]
    fn state(&self, request: Request) -> State {
        match request {
            Request::PointToPoint(key) => match self.layers.pml.poll(mend_pml::Request(key), &self.ends) {
                mend_pml::State::Running => State::Running,
                mend_pml::State::PendingFailure => State::PendingFailure,
                mend_pml::State::Done(result) => State::Done(result.map_err(Error::from)),
            },
            Request::Collective(key) => self.collectives.operations().poll(key),
            Request::Agreement(key) => self.agreements.operations().poll(key),
            Request::Creation(key) => self.creations.operations().poll(key),
            Request::EndedAtStart(key) => self.ended_at_start.poll(key),
        }
    }

    /// Whether the request was started and is not released.
    pub fn has_request(&self, request: Request) -> bool {
        !matches!(self.poll(request), State::Done(Err(error)) if error.detail == Detail::NoSuchRequest)
    }

    /// Releases a request that a call has reported. If its operation still runs, the operation goes on without a request.
    pub fn release(&mut self, request: Request) {
        self.release_by(request, |pml, key| pml.release(key));
    }

    /// Releases a request; calls `by` for a request of the PML. From now on its communicator does not count it.
    #[inline]
    fn release_by(
        &mut self,
        request: Request,
        by: impl FnOnce(&mut Ob1<N::Endpoint>, mend_pml::Request) -> Option<CommIndex>,
    ) {
        let comm = match request {
            Request::PointToPoint(key) => {
                let index = by(&mut self.layers.pml, mend_pml::Request(key));
                index.and_then(|index| self.communicators.with_index(index))
            }
            Request::Collective(key) => self.collectives.operations_mut().release(key),
            Request::Agreement(key) => self.agreements.operations_mut().release(key),
            Request::Creation(key) => self.creations.operations_mut().release(key),
            Request::EndedAtStart(key) => self.ended_at_start.release(key),
        };
        if let Some(comm) = comm {
            self.communicators.release_request(comm);
        }
    }

    /// MPI_Request_free: as [`release`](Engine::release), and makes progress if progress is due, since the program may never
    /// wait.
    pub fn free_request(&mut self, request: Request) {
        self.release_by(request, |pml, key| pml.free_request(key));
        self.make_due_progress();
    }

    /// MPI_Cancel: a receive that no message has matched, or a send whose bytes have not left, is cancelled; every other operation goes
    /// on (MPI-5.0 §3.8.4).
    pub fn cancel(&mut self, request: Request) {
        if let Request::PointToPoint(key) = request {
            self.layers.pml.cancel(mend_pml::Request(key));
        }
        self.make_due_progress();
    }

    /// The result of a start at the PML, as the engine returns it. `comm`: the communicator, if the caller has it. Makes progress if
    /// progress is due: a program that only starts,
    /// cancels and frees operations would otherwise neither send queued messages nor answer its peers.
    #[inline(always)]
    fn started(&mut self, comm: Option<CommKey>, started: mend_pml::Started) -> Started {
        match started {
            mend_pml::Started::Done(status) => Started::Done(status),
            mend_pml::Started::Running(mend_pml::Request(key)) => {
                let request = Request::PointToPoint(key);
                if let Some(comm) = comm.or_else(|| self.communicator_of(request)) {
                    self.communicators.add_request(comm);
                }
                self.make_due_progress();
                Started::Running(request)
            }
        }
    }

    #[inline]
    fn make_due_progress(&mut self) {
        if self.layers.pml.must_progress() {
            self.progress_within_a_call();
        }
    }

    /// Releases a send and its buffer at once: the send continues from a copy, since its receiver lives and must receive the
    /// message. `false`: there is no memory for a copy, or the receiver may still read the buffer; the send goes on from the buffer, and is
    /// not released. The caller calls again after progress.
    pub(crate) fn continue_from_copy(&mut self, request: Request) -> bool {
        let mut has_copy = true;
        self.release_by(request, |pml, key| {
            pml.continue_from_copy(key).unwrap_or_else(|_| {
                has_copy = false;
                None
            })
        });
        has_copy
    }

    // Hot: per message.
    /// To be called before an operation whose request needs an entry also if it ends at its start: without memory for the entry, a
    /// receive must not take a message. One load and one branch where an entry was used before.
    #[inline]
    pub fn reserve_request(&mut self) -> Result<(), Error> {
        self.ended_at_start.reserve()
    }

    /// Adds a request on `comm` that is complete, for a handle of the program.
    pub fn add_ended_at_start(&mut self, comm: CommKey, status: Status) -> Result<Request, Error> {
        let request = self.ended_at_start.add(comm, status)?;
        self.communicators.add_request(comm);
        Ok(request)
    }

    /// Whether [`finish`](Engine::finish) waits until the peers have received everything: of that progress has no event.
    pub fn is_flushing(&self) -> bool {
        self.is_flushing && self.phase == Phase::Closing
    }

    /// A step of MPI_Finalize, to be called after progress until it returns true: then this process has nothing to send, its peers have
    /// received everything, and the runtime was notified that it left MPI. This happens because every send ends: it is received, it is refused because its
    /// receiver finalizes too, or its receiver has ended (Rule 7).
    pub fn finish(&mut self) -> bool {
        self.finish_after(|_, _| {})
    }

    /// As [`finish`](Engine::finish). `last` is called once, right before the runtime is notified: from then on nothing is connected.
    pub fn finish_after(&mut self, last: impl FnOnce(&N, &mut R)) -> bool {
        let is_idle =
            self.collectives.is_idle() && self.agreements.is_idle() && self.creations.operations().is_idle();
        let is_idle = is_idle && self.heartbeats.barrier().is_none();
        if self.heartbeats.is_fenced() {
            // To the others it has failed: it must not leave as one that has finalized.
            return false;
        }
        if self.phase == Phase::Running && is_idle {
            self.phase = Phase::Closing;
            self.communicators.close_all(&mut self.layers);
        }
        if self.phase == Phase::Closing && self.layers.pml.idle() && self.member_protocols.has_sent_all() {
            // Until here this process could be found dead. It leaves when the others can hear that it is not.
            if self.heartbeats.quit(&mut self.layers) && !self.layers.pml.idle() {
                return false;
            }
            // What a peer has not received would be lost with this process. A suspected peer receives nothing until the runtime has answered.
            self.is_flushing = true;
            let heartbeats = &self.heartbeats;
            let mut needs = |peer| !heartbeats.has_left(peer);
            let is_flushed = self.layers.net.is_flushed(&mut needs);
            if self.peer_reports.some_suspected(needs) || !is_flushed {
                mend_base::reach!("mpi.finish: a peer has not received everything");
                return false;
            }
            self.heartbeats.end();
            self.phase = Phase::Finalized;
            last(&self.layers.net, &mut self.layers.runtime);
            self.leave_results();
            self.layers.runtime.finalize();
        }
        self.phase == Phase::Finalized
    }

    /// Splits the borrow of the engine: the collective operations, and the parts that they use.
    fn collectives_and_parts(&mut self) -> (&mut Collectives, Parts<'_, N, R>) {
        let Engine { layers, communicators, peer_reports, ends, collectives, .. } = self;
        (collectives, Parts { layers, communicators, peer_reports, ends })
    }
}

#[inline]
fn check_tag(tag: Tag) -> Result<Tag, Error> {
    if tag.0 < 0 { Err(Error::of(Detail::NegativeTag(tag))) } else { Ok(tag) }
}

#[cfg(test)]
mod tests;
