// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulated network, and the BTL of one process on it ([`SimBtl`]). The seed decides each delivery.
//!
//! Each ordered pair of processes has four queues: data messages and chunks, of which each has little room, so that senders
//! often get [`SendError::Busy`]; control messages, which may overtake both; and mailboxes, in which a new state replaces
//! the old one. Each queue keeps its order. At each call of progress the seed decides which queues deliver, how many
//! messages they deliver, and whether a sender gets `on_sendable`.
//!
//! A job may have remote memory access (`remote_memory`): then most of its processes reach each other as by a network, and can get.
//! It may also lose what was not delivered when its sender exits, so that a process must wait for acknowledgements first.

mod eager_limits;
mod queues;
mod remote_memory;

use crate::killer::{Killer, Point};
pub use eager_limits::EagerLimits;
use mend_base::{Instant, PeerIndex, Random, Reader};
use mend_transport::{
    Ability, AmId, Btl, Card, Cause, ConnectError, Cookie, EventPending, Exposure, Limits, MessageClass,
    PayloadWriter, Rdma, Region, RegisterError, Remote, RemoteAccess, RemoteKey, SendError, Sink, Span,
    Stream, TransportId, UserMemory, WakeSet,
};
use queues::{Message, Pair, PairQueues, Queues};
pub use remote_memory::RemoteAccessFaults;
use remote_memory::{RemoteMemory, RunningGet};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The network, as launcher, scheduler and all processes of a job share it.
pub type SharedNetwork = Rc<RefCell<SimNetwork>>;

/// The network of one job.
#[derive(Debug)]
pub struct SimNetwork {
    /// Decides every delivery.
    pub random: Random,
    /// Each call of progress delivers as much as its budget allows. Set to find out whether anything can move.
    pub delivers_all: bool,
    /// The faults that the network injects.
    pub faults: Faults,
    /// The planned deaths.
    pub killer: Rc<Killer>,
    /// How often false evidence was injected.
    false_evidence: u64,
    /// By process: whether its bell was rung since it began to sleep.
    rung: Vec<bool>,
    /// The pairs of which one side could not connect, lower rank first.
    refused: BTreeSet<(u32, u32)>,
    queues: Queues,
    remote_memory: RemoteMemory,
    /// What was not delivered is lost when its sender exits.
    loses_undelivered: bool,
    /// The eager limits of the pairs.
    pub eager_limits: EagerLimits,
    /// Messages and chunks that were sent. Equal to `delivered` at the end of a job without deaths.
    pub sent: u64,
    /// Messages and chunks that were delivered.
    pub delivered: u64,
}

/// The faults that a network injects: each once in so many times; 0 is never.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Progress of an endpoint reports evidence against a living peer.
    pub false_evidence_once_in: u64,
    /// Progress of an endpoint reports evidence against a peer that dies or is dead.
    pub true_evidence_once_in: u64,
    /// A connection fails for lack of memory.
    pub refusal_once_in: u64,
    /// The process that writes garbage.
    pub garbage_writer: Option<GarbageWriter>,
    /// One pair of processes in four delivers only once in so many times that another one would.
    pub slow_pairs: u64,
    /// Each pair has one queue: control messages do not overtake others.
    pub one_queue: bool,
}

/// A process with broken memory, or a hostile one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GarbageWriter {
    /// Its rank in WORLD.
    pub number: u32,
    /// One of so many messages that it sends is garbage.
    pub once_in: u64,
}

/// The capacity of the queues towards one process, and the largest messages that it takes. Its card contains them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Data messages in flight from one sender.
    pub data_depth: u32,
    /// Control messages in flight from one sender.
    pub control_depth: u32,
    /// Chunks in flight from one sender.
    pub chunk_depth: u32,
    /// [`Limits::control_bytes_max`].
    pub control_bytes_max: u32,
    /// [`Limits::message_bytes_max`].
    pub message_bytes_max: u32,
    /// [`Limits::chunk_bytes`]. 0: no streams.
    pub chunk_bytes: u32,
    /// [`Limits::transfer_bytes_max`]. 0: no gets.
    pub transfer_bytes_max: u32,
    /// Gets that run at the same time to one peer.
    pub get_depth: u32,
}

impl Sizes {
    /// Draws the sizes of one process. One process in four has no streams, so that large messages go as fragments.
    pub fn draw(random: &mut Random) -> Self {
        Sizes {
            data_depth: 1 + random.below(8) as u32,
            control_depth: 1 + random.below(8) as u32,
            chunk_depth: 1 + random.below(6) as u32,
            control_bytes_max: 24 + random.below(41) as u32,
            message_bytes_max: 64 << random.below(7),
            chunk_bytes: if random.once_in(4) { 0 } else { 256 << random.below(7) },
            transfer_bytes_max: 0,
            get_depth: 0,
        }
    }

    /// Draws the sizes of gets. One process in four has none. Some of the others take long messages, too.
    pub fn draw_gets(&mut self, random: &mut Random) {
        if !random.once_in(4) {
            self.transfer_bytes_max = 100 << random.below(10);
            self.get_depth = 1 + random.below(6) as u32;
            if random.once_in(3) {
                self.message_bytes_max = 8_000;
            }
        }
    }

    /// Whether the process can get, and be read.
    pub fn can_get(&self) -> bool {
        self.transfer_bytes_max > 0
    }

    fn write(&self) -> Vec<u8> {
        let words = [
            self.data_depth,
            self.control_depth,
            self.chunk_depth,
            self.control_bytes_max,
            self.message_bytes_max,
            self.chunk_bytes,
            self.transfer_bytes_max,
            self.get_depth,
        ];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(Sizes {
            data_depth: from.u32()?,
            control_depth: from.u32()?,
            chunk_depth: from.u32()?,
            control_bytes_max: from.u32()?,
            message_bytes_max: from.u32()?,
            chunk_bytes: from.u32()?,
            transfer_bytes_max: from.u32()?,
            get_depth: from.u32()?,
        })
    }

    /// The limits of an endpoint of a process that may get so many bytes to a peer with these sizes.
    fn limits(&self, own_transfer_bytes_max: u32, eager_bytes: u32) -> Limits {
        let streams = if self.chunk_bytes > 0 { Ability::Streams as u32 } else { 0 };
        let transfer_bytes_max = self.transfer_bytes_max.min(own_transfer_bytes_max);
        let get = if transfer_bytes_max > 0 { Ability::Get as u32 } else { 0 };
        Limits {
            abilities: streams | get | Ability::Polling as u32,
            emulated: 0,
            control_bytes_max: self.control_bytes_max,
            message_bytes_max: self.message_bytes_max,
            eager_bytes,
            chunk_bytes: self.chunk_bytes,
            transfer_bytes_max: transfer_bytes_max.into(),
        }
    }
}

impl SimNetwork {
    /// An empty network.
    pub fn new(seed: u64) -> SharedNetwork {
        Rc::new(RefCell::new(SimNetwork {
            random: Random(seed),
            delivers_all: false,
            faults: Faults::default(),
            killer: Killer::none(),
            false_evidence: 0,
            rung: vec![],
            refused: BTreeSet::new(),
            queues: Queues::default(),
            remote_memory: RemoteMemory::default(),
            loses_undelivered: false,
            eager_limits: EagerLimits::default(),
            sent: 0,
            delivered: 0,
        }))
    }

    /// Clears the bell of a process. Returns whether it was rung: a message or chunk was sent to the process, or one of its own
    /// was delivered, so that there is room.
    pub fn take_bell(&mut self, number: u32) -> bool {
        self.rung.get_mut(number as usize).is_some_and(std::mem::take)
    }

    /// Sets the faults of remote memory access, and whether what was not delivered is lost when its sender exits.
    pub fn set_remote_access(&mut self, faults: RemoteAccessFaults, loses_undelivered: bool) {
        self.remote_memory.faults = faults;
        self.loses_undelivered = loses_undelivered;
    }

    /// The process has left MPI and exits. Asserts that it has no registered and no exposed memory.
    pub fn exit(&mut self, number: u32) {
        let left = self.remote_memory.count(number);
        assert_eq!(left, (0, 0), "rank {number} has left MPI with regions and exposures");
        if self.loses_undelivered {
            self.queues.lose_from(number);
        }
    }

    fn ring(&mut self, number: u32) {
        let at = number as usize;
        if self.rung.len() <= at {
            self.rung.resize(at + 1, false);
        }
        self.rung[at] = true;
    }

    /// What was sent and not delivered, one line for each pair: for reports of a hang.
    pub fn in_flight(&self) -> Vec<String> {
        self.queues.busy().map(|((from, to), queues)| format!("{from}->{to}: {queues}")).collect()
    }

    /// Delivers the next message or chunk from the peer of this endpoint. False if there is none.
    fn deliver(&mut self, endpoint: &Endpoint, me: u32, sink: &mut impl Sink<u32>) -> bool {
        if !self.killer.on_call(me, Point::Deliver) {
            return false;
        }
        let Some(queues) = self.queues.get_mut(endpoint.incoming) else { return false };
        let Some(delivery) = queues.take(&mut self.random, self.faults.one_queue) else { return false };
        self.ring(endpoint.peer);
        self.delivered += 1;
        delivery.hand_up(endpoint.index, sink);
        true
    }

    /// The same of an endpoint that is being severed: what the peer had sent when that began.
    fn deliver_before_sever(&mut self, endpoint: &mut Endpoint, me: u32, sink: &mut impl Sink<u32>) -> bool {
        if !self.killer.on_call(me, Point::Drain) {
            return false;
        }
        let in_order = self.faults.one_queue;
        let left = endpoint.before_sever.get_or_insert_default();
        let Some(delivery) = left.take(&mut self.random, in_order) else { return false };
        self.delivered += 1;
        delivery.hand_up(endpoint.index, sink);
        true
    }
}

/// Injected faults.
impl SimNetwork {
    /// Whether the next message of `me` becomes garbage.
    fn draws_garbage(&mut self, me: u32) -> bool {
        let writer = self.faults.garbage_writer;
        writer.is_some_and(|writer| writer.number == me && self.random.once_in(writer.once_in))
    }

    /// Whether an endpoint now reports evidence against its living peer. At most [`FALSE_EVIDENCE_MAX`] times in a job: evidence
    /// makes engines move, so it would hide a hang.
    fn draws_false_evidence(&mut self) -> bool {
        let injected = self.faults.false_evidence_once_in > 0
            && self.false_evidence < FALSE_EVIDENCE_MAX
            && self.random.once_in(self.faults.false_evidence_once_in);
        self.false_evidence += u64::from(injected);
        injected
    }

    /// Whether an endpoint now reports evidence against `peer`, which dies or is dead.
    fn draws_true_evidence(&mut self, peer: u32) -> bool {
        let once_in = self.faults.true_evidence_once_in;
        once_in > 0
            && self.killer.death_has_begun(peer)
            && (self.delivers_all || self.random.once_in(once_in))
    }

    /// Whether this pair delivers nothing now because it is slow.
    fn is_slow(&mut self, from: u32, to: u32) -> bool {
        let slow = self.faults.slow_pairs;
        slow > 0 && (from * 7 + to * 13 + slow as u32).is_multiple_of(4) && !self.random.once_in(slow)
    }

    /// Whether the connection of this pair fails.
    fn draws_refusal(&mut self, me: u32, peer: u32) -> bool {
        let refuses = self.faults.refusal_once_in > 0 && self.random.once_in(self.faults.refusal_once_in);
        if refuses {
            self.refused.insert((me.min(peer), me.max(peer)));
        }
        refuses
    }

    /// Whether the connection of this pair failed at one of its sides.
    pub fn is_refused(&self, one: u32, two: u32) -> bool {
        self.refused.contains(&(one.min(two), one.max(two)))
    }
}

/// The BTL of one process. What it has sent can be delivered after it was dropped, as the outbox of a process that has
/// ended can still be read.
#[derive(Debug)]
pub struct SimBtl {
    me: u32,
    sizes: Sizes,
    shared: SharedNetwork,
    endpoints: Vec<Endpoint>,
    /// The endpoint at which the last call of progress ended.
    last: usize,
    /// The endpoints at which something may happen: each call of progress looks at these where there are many.
    busy: Vec<u32>,
}

/// With more endpoints than this, a call of progress looks at the busy ones, and in turns at [`IDLE_LOOKS`] of all.
const MANY_ENDPOINTS: usize = 32;
const IDLE_LOOKS: usize = 8;

#[derive(Debug)]
struct Endpoint {
    peer: u32,
    index: PeerIndex,
    state: EndpointState,
    /// It is in [`SimBtl::busy`].
    is_busy: bool,
    /// A send got [`SendError::Busy`] and no `on_sendable` yet.
    owes_room: bool,
    /// What the peer sends to this process, and the other way round.
    incoming: Pair,
    outgoing: Pair,
    gets: Vec<RunningGet>,
    /// What the peer had sent when this endpoint was severed. What it sent later is not delivered.
    before_sever: Option<Box<PairQueues>>,
    /// Of the peer.
    sizes: Sizes,
    limits: Limits,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EndpointState {
    Connecting,
    Connected,
    Quarantined,
    Severing,
    Severed,
}

/// In one job.
const FALSE_EVIDENCE_MAX: u64 = 500;

/// The entry of this BTL in a card.
const SIMULATED: TransportId = TransportId(200);

impl SimBtl {
    /// The BTL of process `me`.
    pub fn new(shared: &SharedNetwork, me: u32, sizes: Sizes) -> Self {
        SimBtl { me, sizes, shared: Rc::clone(shared), endpoints: Vec::new(), last: 0, busy: Vec::new() }
    }

    fn endpoint(&mut self, endpoint: u32) -> &mut Endpoint {
        &mut self.endpoints[endpoint as usize]
    }

    fn has_room(&self, endpoint: &Endpoint) -> bool {
        let shared = self.shared.borrow();
        endpoint.has_room_for_gets()
            && shared.queues.get(endpoint.outgoing).is_none_or(|queues| queues.has_room(&endpoint.sizes))
    }

    /// Reports ends of local operations on registered memory, some of them late.
    fn report_local_ends(&self, network: &mut SimNetwork, budget: u32, sink: &mut impl Sink<u32>) -> u32 {
        let SimNetwork { remote_memory, random, delivers_all, killer, .. } = network;
        let mut events = 0;
        while events < budget
            && remote_memory.has_local_ends(self.me)
            && (*delivers_all || !random.once_in(3))
            && killer.on_call(self.me, Point::Poll)
            && let Some(done) = remote_memory.take_local_end(self.me, random)
        {
            sink.on_done(done, Ok(()));
            events += 1;
        }
        events
    }

    fn mark_busy(&mut self, endpoint: u32) {
        if !std::mem::replace(&mut self.endpoint(endpoint).is_busy, true) {
            self.busy.push(endpoint);
        }
    }

    /// Progress with many endpoints: at the busy ones, from any of them on, and at some others.
    fn progress_many(&mut self, network: &mut SimNetwork, budget: u32, sink: &mut impl Sink<u32>) -> u32 {
        for at in network.queues.take_arrivals(self.me) {
            network.queues.on_noticed(self.endpoints[at as usize].incoming);
            self.mark_busy(at);
        }
        let mut looks = std::mem::take(&mut self.busy);
        if !looks.is_empty() {
            let first = network.random.below(looks.len() as u64) as usize;
            looks.rotate_left(first);
        }
        let busy = looks.len();
        let count = self.endpoints.len();
        looks.extend((1..=IDLE_LOOKS).map(|step| ((self.last + step) % count) as u32));
        self.last = (self.last + IDLE_LOOKS) % count;
        let mut events = 0;
        for &at in &looks {
            if events >= budget {
                break;
            }
            let endpoint = &mut self.endpoints[at as usize];
            events += endpoint.progress((self.me, at), network, budget - events, sink);
        }
        looks.truncate(busy);
        looks.retain(|&at| self.endpoints[at as usize].update_busy(&network.queues));
        self.busy = looks;
        events
    }

    fn has_effect(&self, point: Point) -> bool {
        self.shared.borrow().killer.on_call(self.me, point)
    }

    /// Whether this endpoint takes a send now, and this process is not dead.
    fn check(&mut self, endpoint: u32, point: Point) -> Result<(), SendError> {
        let has_effect = self.has_effect(point);
        match self.endpoint(endpoint).state {
            _ if !has_effect => Err(SendError::Busy),
            EndpointState::Connected => Ok(()),
            EndpointState::Connecting | EndpointState::Quarantined => Err(SendError::Busy),
            EndpointState::Severing | EndpointState::Severed => Err(SendError::Severed),
        }
    }
}

/// Progress of one endpoint of process `me`, as the seed decides. Each returns the number of events.
impl Endpoint {
    /// Whether something may happen here without another call for this endpoint.
    fn update_busy(&mut self, queues: &Queues) -> bool {
        self.is_busy = match self.state {
            EndpointState::Connecting | EndpointState::Severing => true,
            EndpointState::Connected => {
                self.owes_room
                    || !self.gets.is_empty()
                    || queues.get(self.incoming).is_some_and(|queues| !queues.is_empty())
            }
            EndpointState::Quarantined | EndpointState::Severed => false,
        };
        self.is_busy
    }

    fn progress(
        &mut self,
        (me, at): (u32, u32),
        network: &mut SimNetwork,
        budget: u32,
        sink: &mut impl Sink<u32>,
    ) -> u32 {
        if !network.killer.on_call(me, Point::Poll) {
            return 0;
        }
        let cause = match self.state {
            EndpointState::Connecting => return self.progress_connecting(at, network, sink),
            EndpointState::Connected => self.draw_evidence(network, true),
            EndpointState::Quarantined => self.draw_evidence(network, false),
            EndpointState::Severing => return self.progress_severing((me, at), network, budget, sink),
            EndpointState::Severed => return 0,
        };
        if let Some(cause) = cause {
            sink.on_error(self.index, at, cause);
            return 1;
        }
        if self.state == EndpointState::Connected {
            self.progress_connected((me, at), network, budget, sink)
        } else {
            0
        }
    }

    fn progress_connecting(&mut self, at: u32, network: &mut SimNetwork, sink: &mut impl Sink<u32>) -> u32 {
        if !(network.delivers_all || network.random.once_in(3)) {
            return 0;
        }
        self.state = EndpointState::Connected;
        self.owes_room = false;
        sink.on_sendable(self.index, at);
        1
    }

    /// The evidence that this endpoint reports now. False evidence may repeat while the endpoint is quarantined.
    fn draw_evidence(&self, network: &mut SimNetwork, connected: bool) -> Option<Cause> {
        if connected && network.draws_true_evidence(self.peer) {
            mend_base::reach!("sim.network: true evidence");
            let causes = [Cause::Exited, Cause::LinkDown, Cause::Silent];
            return Some(causes[network.random.below(3) as usize]);
        }
        (!network.delivers_all && network.draws_false_evidence()).then_some(Cause::Silent)
    }

    fn progress_connected(
        &mut self,
        (me, at): (u32, u32),
        network: &mut SimNetwork,
        budget: u32,
        sink: &mut impl Sink<u32>,
    ) -> u32 {
        let all = network.delivers_all;
        if !all && network.is_slow(self.peer, me) {
            return 0;
        }
        let allowed = if all { budget } else { network.random.below(5).min(budget.into()) as u32 };
        let mut events = 0;
        while events < allowed && network.deliver(self, me, sink) {
            events += 1;
        }
        events += self.advance_gets(me, network, budget - events, sink);
        if self.owes_room && events < budget && (all || network.random.once_in(2)) {
            let has_room = self.has_room_for_gets();
            let queues = network.queues.get_or_create(self.outgoing);
            if has_room && queues.has_room(&self.sizes) {
                self.owes_room = false;
                sink.on_sendable(self.index, at);
                events += 1;
            }
        }
        events
    }

    fn has_room_for_gets(&self) -> bool {
        self.gets.is_empty() || self.gets.len() < self.sizes.get_depth as usize
    }

    /// Goes on with gets, in any order.
    fn advance_gets(
        &mut self,
        me: u32,
        network: &mut SimNetwork,
        budget: u32,
        sink: &mut impl Sink<u32>,
    ) -> u32 {
        let mut events = 0;
        let SimNetwork { remote_memory, random, delivers_all, killer, .. } = network;
        let mut looks = if self.gets.is_empty() { 0 } else { random.below(4) };
        if *delivers_all {
            looks = 2 * self.gets.len() as u64;
        }
        for _ in 0..looks {
            if self.gets.is_empty() || events >= budget || !killer.on_call(me, Point::Deliver) {
                break;
            }
            let at = random.below(self.gets.len() as u64) as usize;
            if let Some(result) = remote_memory.advance(&mut self.gets[at], (self.peer, me), random) {
                let get = self.gets.swap_remove(at);
                sink.on_done(remote_memory.end(&get), result);
                events += 1;
            }
        }
        events
    }

    fn progress_severing(
        &mut self,
        (me, at): (u32, u32),
        network: &mut SimNetwork,
        budget: u32,
        sink: &mut impl Sink<u32>,
    ) -> u32 {
        let mut events = 0;
        while events < budget && network.deliver_before_sever(self, me, sink) {
            events += 1;
        }
        while events < budget
            && network.killer.on_call(me, Point::Drain)
            && let Some(mut get) = self.gets.pop()
        {
            mend_base::reach!("sim.network: severed with gets that run");
            let SimNetwork { remote_memory, random, .. } = &mut *network;
            remote_memory.cut(&mut get, (self.peer, me), random);
            sink.on_done(remote_memory.end(&get), Err(SendError::Severed));
            events += 1;
        }
        if events >= budget || !self.gets.is_empty() || network.killer.is_dead(me) {
            return events;
        }
        self.state = EndpointState::Severed;
        network.remote_memory.sever(me, self.peer);
        sink.on_severed(self.index, at);
        events + 1
    }
}

impl Rdma for SimBtl {
    fn register(&mut self, with: u32, memory: &UserMemory) -> Result<Region, RegisterError> {
        assert!(self.endpoint(with).limits.can(Ability::Get), "memory is registered for gets");
        if !self.has_effect(Point::Send) {
            return Err(RegisterError::NoMemory);
        }
        let SimNetwork { remote_memory, random, .. } = &mut *self.shared.borrow_mut();
        remote_memory.register(self.me, memory, random)
    }

    fn unregister(&mut self, region: Region, done: Cookie) {
        if self.has_effect(Point::Send) {
            self.shared.borrow_mut().remote_memory.unregister(self.me, region, done);
        }
    }

    fn expose(
        &mut self,
        to: u32,
        local: Span,
        access: RemoteAccess,
    ) -> Result<(Exposure, RemoteKey), RegisterError> {
        assert!(access.read, "memory is exposed for gets");
        if !self.has_effect(Point::Send) {
            return Err(RegisterError::NoMemory);
        }
        let (me, reader) = (self.me, self.endpoint(to).peer);
        let SimNetwork { remote_memory, random, .. } = &mut *self.shared.borrow_mut();
        remote_memory.expose(me, reader, local, random)
    }

    fn unexpose(&mut self, exposure: Exposure, done: Cookie) {
        if self.has_effect(Point::Send) {
            self.shared.borrow_mut().remote_memory.unexpose(self.me, exposure, done);
        }
    }

    fn import(&mut self, _from: u32, key: &[u8]) -> Result<Remote, RegisterError> {
        RemoteMemory::import(key)
    }

    fn get(
        &mut self,
        from: u32,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        let checked = self.check(from, Point::SendChunk);
        let endpoint = self.endpoint(from);
        assert!(local.bytes > 0 && local.bytes <= endpoint.limits.transfer_bytes_max, "the length of a get");
        if checked == Err(SendError::Busy) || !endpoint.has_room_for_gets() {
            endpoint.owes_room = true;
            self.mark_busy(from);
            return Err(checked.err().unwrap_or(SendError::Busy));
        }
        checked?;
        let get = self.shared.borrow_mut().remote_memory.get(self.me, local, remote, remote_offset, done);
        self.endpoint(from).gets.push(get);
        self.mark_busy(from);
        Ok(())
    }
}

/// The process has ended.
impl Drop for SimBtl {
    fn drop(&mut self) {
        if let Ok(mut network) = self.shared.try_borrow_mut() {
            network.remote_memory.remove_process(self.me);
        }
    }
}

impl Btl for SimBtl {
    type Endpoint = u32;

    fn advertise(&self, card: &mut Card) {
        let mut entry = self.me.to_le_bytes().to_vec();
        entry.extend(self.sizes.write());
        card.entries.push((SIMULATED, entry));
    }

    fn connect(&mut self, peer: PeerIndex, card: &Card) -> Result<u32, ConnectError> {
        let entry = card.entry(SIMULATED).ok_or(ConnectError::Unreachable)?;
        let mut reader = Reader::new(entry);
        let number = reader.u32().ok_or(ConnectError::LayoutDiffers)?;
        let sizes = Sizes::read(&mut reader).ok_or(ConnectError::LayoutDiffers)?;
        if number != self.me && self.shared.borrow_mut().draws_refusal(self.me, number) {
            return Err(ConnectError::NoMemory);
        }
        let mut network = self.shared.borrow_mut();
        let (incoming, outgoing) =
            (network.queues.pair(number, self.me), network.queues.pair(self.me, number));
        let at = self.endpoints.len() as u32;
        network.queues.connect(incoming, at);
        let eager_bytes = network.eager_limits.of_pair(self.me, number, sizes.message_bytes_max);
        drop(network);
        self.endpoints.push(Endpoint {
            peer: number,
            index: peer,
            incoming,
            outgoing,
            gets: Vec::new(),
            state: EndpointState::Connecting,
            is_busy: false,
            owes_room: false,
            before_sever: None,
            sizes,
            limits: sizes.limits(self.sizes.transfer_bytes_max, eager_bytes),
        });
        self.mark_busy(at);
        Ok(at)
    }

    fn limits(&self, to: u32) -> &Limits {
        &self.endpoints[to as usize].limits
    }

    fn quarantine(&mut self, endpoint: u32) {
        let endpoint = self.endpoint(endpoint);
        if matches!(endpoint.state, EndpointState::Connecting | EndpointState::Connected) {
            endpoint.state = EndpointState::Quarantined;
        }
    }

    fn resume(&mut self, endpoint: u32) {
        self.mark_busy(endpoint);
        let endpoint = self.endpoint(endpoint);
        if endpoint.state == EndpointState::Quarantined {
            // A send that got `Busy` meanwhile gets `on_sendable` as after a connection.
            endpoint.state = EndpointState::Connecting;
        }
    }

    fn sever(&mut self, endpoint: u32) {
        self.mark_busy(endpoint);
        let endpoint = &mut self.endpoints[endpoint as usize];
        if !matches!(endpoint.state, EndpointState::Severing | EndpointState::Severed) {
            endpoint.state = EndpointState::Severing;
            endpoint.before_sever = self.shared.borrow_mut().queues.remove(endpoint.incoming);
        }
    }

    fn send(
        &mut self,
        to: u32,
        class: MessageClass,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        let me = self.me;
        let checked = self.check(to, Point::Send);
        let endpoint = self.endpoint(to);
        let longest = if class == MessageClass::Data {
            endpoint.sizes.message_bytes_max
        } else {
            endpoint.sizes.control_bytes_max
        };
        assert!(header.len() <= Limits::HEADER_BYTES_MAX, "a header longer than any BTL takes");
        assert!(len <= longest as usize, "a payload longer than the peer takes");
        let (peer, sizes, outgoing) = (endpoint.peer, endpoint.sizes, endpoint.outgoing);
        let shared = Rc::clone(&self.shared);
        let mut network = shared.borrow_mut();
        let in_order = network.faults.one_queue;
        let (is_garbage, mut garbling) = (network.draws_garbage(me), Random(network.random.bits()));
        let queues = network.queues.get_or_create(outgoing);
        let full = match class {
            MessageClass::Data => queues.data_is_full(&sizes),
            MessageClass::Control => queues.control_is_full(&sizes),
            MessageClass::Mailbox => false,
        };
        if checked == Err(SendError::Busy) || full {
            self.endpoint(to).owes_room = true;
            self.mark_busy(to);
            return Err(checked.err().unwrap_or(SendError::Busy));
        }
        checked?;
        let mut payload = vec![0; len];
        fill(PayloadWriter::from(&mut payload[..]));
        let mut message = Message { id, header: header.to_vec(), payload };
        if is_garbage {
            message.garble(&mut garbling);
        }
        let replaced = queues.push(class, id, message, in_order);
        network.sent += u64::from(!replaced);
        network.ring(peer);
        network.queues.on_sent(outgoing, peer);
        Ok(())
    }

    fn send_chunk(
        &mut self,
        to: u32,
        stream: Stream,
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        let me = self.me;
        let checked = self.check(to, Point::SendChunk);
        let endpoint = self.endpoint(to);
        assert!(len <= endpoint.sizes.chunk_bytes as usize, "a chunk longer than the peer takes");
        let (peer, sizes, outgoing) = (endpoint.peer, endpoint.sizes, endpoint.outgoing);
        let shared = Rc::clone(&self.shared);
        let mut network = shared.borrow_mut();
        let in_order = network.faults.one_queue;
        let stream = if network.draws_garbage(me) { Stream(network.random.bits() as u32) } else { stream };
        let queues = network.queues.get_or_create(outgoing);
        if checked == Err(SendError::Busy) || queues.chunks_are_full(&sizes) {
            self.endpoint(to).owes_room = true;
            self.mark_busy(to);
            return Err(checked.err().unwrap_or(SendError::Busy));
        }
        checked?;
        let mut bytes = vec![0; len];
        fill(PayloadWriter::from(&mut bytes[..]));
        queues.push_chunk(stream, bytes, in_order);
        network.sent += 1;
        network.ring(peer);
        network.queues.on_sent(outgoing, peer);
        Ok(())
    }

    fn ready(&self, from: u32) -> bool {
        let endpoint = &self.endpoints[from as usize];
        endpoint.state == EndpointState::Connected
            && self.shared.borrow().queues.get(endpoint.incoming).is_some_and(|queues| !queues.is_empty())
    }

    /// In half of the calls a message in the queue is not noticed, as on real hardware.
    fn has_message(&self, from: u32) -> bool {
        let endpoint = &self.endpoints[from as usize];
        let mut network = self.shared.borrow_mut();
        let seen = endpoint.state == EndpointState::Connected && network.random.once_in(2);
        seen && network.queues.get(endpoint.incoming).is_some_and(PairQueues::data_is_first)
    }

    fn take_message(&mut self, _now: Instant, from: u32, sink: &mut impl Sink<u32>) -> u32 {
        let endpoint = &self.endpoints[from as usize];
        let mut network = self.shared.borrow_mut();
        let Some(queues) = network.queues.get_mut(endpoint.incoming) else { return 0 };
        let Some(message) = queues.take_data() else { return 0 };
        network.ring(endpoint.peer);
        network.delivered += 1;
        drop(network);
        message.hand_up(endpoint.index, sink);
        1
    }

    fn progress(&mut self, _now: Instant, budget: u32, sink: &mut impl Sink<u32>) -> u32 {
        let (me, count) = (self.me, self.endpoints.len());
        let shared = Rc::clone(&self.shared);
        let mut network = shared.borrow_mut();
        // Evidence may come from any endpoint.
        let looks_at_all = network.delivers_all && network.faults.true_evidence_once_in > 0;
        if count > MANY_ENDPOINTS && !looks_at_all {
            let events = self.report_local_ends(&mut network, budget, sink);
            return events + self.progress_many(&mut network, budget - events, sink);
        }
        let mut events = self.report_local_ends(&mut network, budget, sink);
        for _ in 0..count {
            if events >= budget {
                break;
            }
            self.last = if self.last + 1 < count { self.last + 1 } else { 0 };
            let endpoint = &mut self.endpoints[self.last];
            events += endpoint.progress((me, self.last as u32), &mut network, budget - events, sink);
        }
        events
    }

    /// Where messages of a process that has exited are lost: whether the peers have received all messages, as they acknowledge them.
    fn is_flushed(&mut self, needs: &mut dyn FnMut(PeerIndex) -> bool) -> bool {
        let network = self.shared.borrow();
        let is_received = |endpoint: &Endpoint| match endpoint.state {
            EndpointState::Connecting | EndpointState::Connected => {
                !needs(endpoint.index)
                    || network.queues.get(endpoint.outgoing).is_none_or(PairQueues::is_empty)
            }
            EndpointState::Quarantined | EndpointState::Severing | EndpointState::Severed => true,
        };
        !network.loses_undelivered || self.endpoints.iter().all(is_received)
    }

    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), EventPending> {
        let network = self.shared.borrow();
        let gets_run =
            |endpoint: &Endpoint| !endpoint.gets.is_empty() && !network.remote_memory.is_gone(endpoint.peer);
        if network.remote_memory.has_local_ends(self.me) {
            return Err(EventPending);
        }
        let moves = |endpoint: &Endpoint| match endpoint.state {
            EndpointState::Connecting | EndpointState::Severing => true,
            EndpointState::Connected => gets_run(endpoint) || endpoint.owes_room && self.has_room(endpoint),
            EndpointState::Quarantined | EndpointState::Severed => false,
        };
        let ready = (0..self.endpoints.len() as u32).any(|endpoint| self.ready(endpoint));
        if ready || self.endpoints.iter().any(moves) {
            return Err(EventPending);
        }
        wake.futex = true;
        Ok(())
    }

    fn disarm(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::{SharedNetwork, SimBtl, SimNetwork, Sizes};
    use mend_transport::conformance::Fixture;

    struct Simulated(#[expect(dead_code, reason = "keeps the network alive")] SharedNetwork);

    impl Fixture for Simulated {
        type Btl = SimBtl;
        /// The seed decides when a message is delivered.
        const EXACT: bool = false;

        fn start(count: usize) -> (Self, Vec<SimBtl>) {
            let shared = SimNetwork::new(count as u64);
            // The suite fills queues before it receives anything, so they need the room that real BTLs have.
            let sizes = Sizes {
                data_depth: 64,
                control_depth: 16,
                chunk_depth: 16,
                control_bytes_max: 64,
                message_bytes_max: 4_096,
                chunk_bytes: 4_096,
                transfer_bytes_max: 4_096,
                get_depth: 4,
            };
            let btls = (0..count as u32).map(|me| SimBtl::new(&shared, me, sizes));
            let btls = btls.collect();
            (Simulated(shared), btls)
        }
    }

    mod conforms {
        mend_transport::conformance!(super::Simulated);
    }

    mod conserves {
        use mend_transport::conformance::Counted;
        mend_transport::conformance!(Counted<super::Simulated>);
    }
}
