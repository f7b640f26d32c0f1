// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several transports as one (Open MPI's BML): loopback and shared memory inlined, networks behind one `dyn` each.

use crate::network::once;
use crate::{
    AmId, Atomic, Btl, Card, Cause, ConnectError, Cookie, EventPending, Exposure, Limits, MessageClass,
    Network, Payload, PayloadWriter, Rdma, Region, RegisterError, Remote, RemoteAccess, RemoteKey, SendError,
    Sink, Span, Stream, UserMemory, WakeSet,
};
use mend_base::{Instant, PeerIndex};

/// Reaches each peer by the first transport that can connect to it: loopback (`L`), then shared memory (`S`), then the networks
/// in order. Loopback or shared memory is absent if the user excluded it (`MEND_BTL`).
///
/// ```
/// use mend_base::{Job, Peer, PeerIndex};
/// use mend_transport::{Bml, Btl, Card, ConnectError, Loopback, BmlEndpoint};
///
/// let (me, other) = (Peer::new(Job(1), 0), Peer::new(Job(1), 1));
/// let mut all: Bml<Loopback, Loopback> = Bml::new(Some(Loopback::new(me)), None, Vec::new());
/// let mut card = Card::default();
/// all.advertise(&mut card);
/// assert_eq!(all.connect(PeerIndex(0), &card), Ok(BmlEndpoint::Loopback(0)));
/// let mut foreign = Card::default();
/// Loopback::new(other).advertise(&mut foreign);
/// assert_eq!(all.connect(PeerIndex(1), &foreign), Err(ConnectError::Unreachable));
/// ```
pub struct Bml<L: Btl, S: Btl> {
    loopback: Option<L>,
    shm: Option<S>,
    networks: Vec<Box<dyn Network>>,
    /// Number of calls of progress. Every [`CALLS_PER_NETWORK_POLL`]th polls the networks although shared memory is busy.
    calls: u32,
    /// Which of the two inlined transports is polled first. The order is reversed after a call that used its whole budget.
    loopback_first: bool,
    /// The network that is polled first.
    first_network: u8,
    /// The transport of each peer that was connected, in this order.
    connections: Vec<(PeerIndex, Via)>,
}

/// One of the transports of a [`Bml`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Via {
    /// Loopback.
    Loopback,
    /// Shared memory.
    Shm,
    /// The network with this index.
    Network(u8),
}

/// An endpoint of a [`Bml`]: a transport, and the endpoint of that transport. `L` and `S`: the endpoints of loopback and of
/// shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BmlEndpoint<L, S> {
    /// An endpoint of the loopback.
    Loopback(L),
    /// An endpoint of shared memory.
    Shm(S),
    /// An endpoint of a network.
    Network {
        /// The index of the network.
        network: u8,
        /// The endpoint of this network.
        endpoint: u32,
    },
}

impl<L: Btl, S: Btl> Bml<L, S> {
    /// Combines these transports.
    pub fn new(loopback: Option<L>, shm: Option<S>, networks: Vec<Box<dyn Network>>) -> Self {
        assert!(networks.len() <= NETWORKS_MAX, "more networks than any host has");
        let connections = Vec::new();
        Bml { loopback, shm, networks, calls: 0, loopback_first: true, first_network: 0, connections }
    }

    /// The transport of each peer that was connected since the start, in this order, whatever has become of the peer.
    pub fn connections(&self) -> &[(PeerIndex, Via)] {
        &self.connections
    }

    /// Connects by the first transport that reaches the peer.
    fn connect_by_first(
        &mut self,
        peer: PeerIndex,
        card: &Card,
    ) -> Result<BmlEndpoint<L::Endpoint, S::Endpoint>, ConnectError> {
        if let Some(loopback) = &mut self.loopback {
            match loopback.connect(peer, card) {
                Err(ConnectError::Unreachable) => {}
                answer => return answer.map(BmlEndpoint::Loopback),
            }
        }
        if let Some(shm) = &mut self.shm {
            match shm.connect(peer, card) {
                Err(ConnectError::Unreachable) => {}
                answer => return answer.map(BmlEndpoint::Shm),
            }
        }
        for (network, btl) in (0u8..).zip(&mut self.networks) {
            match btl.connect(peer, card) {
                Err(ConnectError::Unreachable) => {}
                answer => return answer.map(|endpoint| BmlEndpoint::Network { network, endpoint }),
            }
        }
        Err(ConnectError::Unreachable)
    }

    fn loopback(&mut self) -> &mut L {
        self.loopback.as_mut().expect(ENDPOINT_OF_THIS_BML)
    }

    fn shm(&mut self) -> &mut S {
        self.shm.as_mut().expect(ENDPOINT_OF_THIS_BML)
    }

    fn network(&mut self, index: u8) -> &mut dyn Network {
        &mut *self.networks[usize::from(index)]
    }

    fn progress_loopback(
        &mut self,
        now: Instant,
        budget: u32,
        sink: &mut impl Sink<BmlEndpoint<L::Endpoint, S::Endpoint>>,
    ) -> u32 {
        match &mut self.loopback {
            Some(loopback) if budget > 0 => {
                loopback.progress(now, budget, &mut MapEndpoint(sink, BmlEndpoint::Loopback))
            }
            _ => 0,
        }
    }

    fn progress_shm(
        &mut self,
        now: Instant,
        budget: u32,
        sink: &mut impl Sink<BmlEndpoint<L::Endpoint, S::Endpoint>>,
    ) -> u32 {
        match &mut self.shm {
            Some(shm) if budget > 0 => shm.progress(now, budget, &mut MapEndpoint(sink, BmlEndpoint::Shm)),
            _ => 0,
        }
    }

    /// Makes progress of each network once. Each call begins with the next network.
    fn progress_networks(
        &mut self,
        now: Instant,
        budget: u32,
        sink: &mut impl Sink<BmlEndpoint<L::Endpoint, S::Endpoint>>,
    ) -> u32 {
        let count = self.networks.len() as u8;
        if count == 0 {
            return 0;
        }
        let mut events = 0;
        for step in 0..count {
            let network = modulo(self.first_network + step, count);
            if events < budget {
                let map = |endpoint| BmlEndpoint::Network { network, endpoint };
                events +=
                    self.network(network).progress(now, budget - events, &mut MapEndpoint(&mut *sink, map));
            }
        }
        self.first_network = modulo(self.first_network + 1, count);
        events
    }
}

impl<L: Btl, S: Btl> Btl for Bml<L, S> {
    type Endpoint = BmlEndpoint<L::Endpoint, S::Endpoint>;

    fn advertise(&self, card: &mut Card) {
        self.loopback.iter().for_each(|loopback| loopback.advertise(card));
        self.shm.iter().for_each(|shm| shm.advertise(card));
        self.networks.iter().for_each(|network| network.advertise(card));
    }

    fn connect(&mut self, peer: PeerIndex, card: &Card) -> Result<Self::Endpoint, ConnectError> {
        let endpoint = self.connect_by_first(peer, card)?;
        let via = match endpoint {
            BmlEndpoint::Loopback(_) => Via::Loopback,
            BmlEndpoint::Shm(_) => Via::Shm,
            BmlEndpoint::Network { network, .. } => Via::Network(network),
        };
        self.connections.push((peer, via));
        Ok(endpoint)
    }

    fn limits(&self, to: Self::Endpoint) -> &Limits {
        match to {
            BmlEndpoint::Loopback(endpoint) => {
                self.loopback.as_ref().expect(ENDPOINT_OF_THIS_BML).limits(endpoint)
            }
            BmlEndpoint::Shm(endpoint) => self.shm.as_ref().expect(ENDPOINT_OF_THIS_BML).limits(endpoint),
            BmlEndpoint::Network { network, endpoint } => {
                self.networks[usize::from(network)].limits(endpoint)
            }
        }
    }

    fn quarantine(&mut self, endpoint: Self::Endpoint) {
        match endpoint {
            BmlEndpoint::Loopback(endpoint) => self.loopback().quarantine(endpoint),
            BmlEndpoint::Shm(endpoint) => self.shm().quarantine(endpoint),
            BmlEndpoint::Network { network, endpoint } => self.network(network).quarantine(endpoint),
        }
    }

    fn resume(&mut self, endpoint: Self::Endpoint) {
        match endpoint {
            BmlEndpoint::Loopback(endpoint) => self.loopback().resume(endpoint),
            BmlEndpoint::Shm(endpoint) => self.shm().resume(endpoint),
            BmlEndpoint::Network { network, endpoint } => self.network(network).resume(endpoint),
        }
    }

    fn on_running(&mut self, endpoint: Self::Endpoint) {
        match endpoint {
            BmlEndpoint::Loopback(endpoint) => self.loopback().on_running(endpoint),
            BmlEndpoint::Shm(endpoint) => self.shm().on_running(endpoint),
            BmlEndpoint::Network { network, endpoint } => self.network(network).on_running(endpoint),
        }
    }

    fn on_unheard(&mut self, endpoint: Self::Endpoint) {
        match endpoint {
            BmlEndpoint::Loopback(endpoint) => self.loopback().on_unheard(endpoint),
            BmlEndpoint::Shm(endpoint) => self.shm().on_unheard(endpoint),
            BmlEndpoint::Network { network, endpoint } => self.network(network).on_unheard(endpoint),
        }
    }

    fn sever(&mut self, endpoint: Self::Endpoint) {
        match endpoint {
            BmlEndpoint::Loopback(endpoint) => self.loopback().sever(endpoint),
            BmlEndpoint::Shm(endpoint) => self.shm().sever(endpoint),
            BmlEndpoint::Network { network, endpoint } => self.network(network).sever(endpoint),
        }
    }

    fn sever_dead(&mut self, endpoint: Self::Endpoint) {
        match endpoint {
            BmlEndpoint::Loopback(endpoint) => self.loopback().sever_dead(endpoint),
            BmlEndpoint::Shm(endpoint) => self.shm().sever_dead(endpoint),
            BmlEndpoint::Network { network, endpoint } => self.network(network).sever_dead(endpoint),
        }
    }

    // Hot: per message.
    #[inline(always)]
    fn send(
        &mut self,
        to: Self::Endpoint,
        class: MessageClass,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        match to {
            BmlEndpoint::Shm(endpoint) => self.shm().send(endpoint, class, id, header, len, fill),
            BmlEndpoint::Loopback(endpoint) => self.loopback().send(endpoint, class, id, header, len, fill),
            BmlEndpoint::Network { network, endpoint } => {
                self.network(network).send(endpoint, class, id, header, len, &mut once(fill))
            }
        }
    }

    // Hot: per message.
    #[inline]
    fn send_chunk(
        &mut self,
        to: Self::Endpoint,
        stream: Stream,
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        match to {
            BmlEndpoint::Shm(endpoint) => self.shm().send_chunk(endpoint, stream, len, fill),
            BmlEndpoint::Loopback(endpoint) => self.loopback().send_chunk(endpoint, stream, len, fill),
            BmlEndpoint::Network { network, endpoint } => {
                self.network(network).send_chunk(endpoint, stream, len, &mut once(fill))
            }
        }
    }

    // Hot: per poll.
    #[inline]
    fn ready(&self, from: Self::Endpoint) -> bool {
        match from {
            BmlEndpoint::Shm(endpoint) => self.shm.as_ref().is_some_and(|shm| shm.ready(endpoint)),
            BmlEndpoint::Loopback(endpoint) => {
                self.loopback.as_ref().is_some_and(|loopback| loopback.ready(endpoint))
            }
            BmlEndpoint::Network { network, endpoint } => self.networks[usize::from(network)].ready(endpoint),
        }
    }

    // Hot: per poll.
    #[inline(always)]
    fn has_message(&self, from: Self::Endpoint) -> bool {
        match from {
            BmlEndpoint::Shm(endpoint) => self.shm.as_ref().is_some_and(|shm| shm.has_message(endpoint)),
            BmlEndpoint::Loopback(endpoint) => {
                self.loopback.as_ref().is_some_and(|loopback| loopback.has_message(endpoint))
            }
            BmlEndpoint::Network { .. } => false,
        }
    }

    // Hot: per message.
    #[inline(always)]
    fn take_message(
        &mut self,
        now: Instant,
        from: Self::Endpoint,
        sink: &mut impl Sink<Self::Endpoint>,
    ) -> u32 {
        match (from, &mut self.shm, &mut self.loopback) {
            (BmlEndpoint::Shm(endpoint), Some(shm), _) => {
                shm.take_message(now, endpoint, &mut MapEndpoint(sink, BmlEndpoint::Shm))
            }
            (BmlEndpoint::Loopback(endpoint), _, Some(loopback)) => {
                loopback.take_message(now, endpoint, &mut MapEndpoint(sink, BmlEndpoint::Loopback))
            }
            _ => 0,
        }
    }

    // Hot: per call of progress.
    fn progress(&mut self, now: Instant, budget: u32, sink: &mut impl Sink<Self::Endpoint>) -> u32 {
        self.calls = self.calls.wrapping_add(1);
        let due = self.calls & (CALLS_PER_NETWORK_POLL - 1) == 0;
        // Networks that are due are polled first, so that busy shared memory cannot use up their budget.
        let mut events = if due { self.progress_networks(now, budget, sink) } else { 0 };
        if self.loopback_first {
            events += self.progress_loopback(now, budget - events, sink);
            events += self.progress_shm(now, budget - events, sink);
        } else {
            events += self.progress_shm(now, budget - events, sink);
            events += self.progress_loopback(now, budget - events, sink);
        }
        if events == budget {
            self.loopback_first = !self.loopback_first;
        }
        if events == 0 && !due {
            events = self.progress_networks(now, budget, sink);
        }
        events
    }

    fn check_peers(&mut self) {
        self.loopback.iter_mut().for_each(Btl::check_peers);
        self.shm.iter_mut().for_each(Btl::check_peers);
        self.networks.iter_mut().for_each(|network| network.check_peers());
    }

    // A network calls no helper threads: those of its peers watch its descriptor.
    fn call_helpers(&mut self) {
        self.shm.iter_mut().for_each(Btl::call_helpers);
    }

    fn is_flushed(&mut self, needs: &mut dyn FnMut(PeerIndex) -> bool) -> bool {
        let shm = self.shm.as_mut().is_none_or(|shm| shm.is_flushed(needs));
        // Each network is asked, so that all ask their peers at the same time.
        self.networks.iter_mut().fold(shm, |flushed, network| network.is_flushed(needs) && flushed)
    }

    /// Arms all transports or none: if one is pending, the others are disarmed.
    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), EventPending> {
        let armed = self.arm_each(wake);
        if armed.is_err() {
            self.disarm();
        }
        armed
    }

    fn disarm(&mut self) {
        self.loopback.iter_mut().for_each(Btl::disarm);
        self.shm.iter_mut().for_each(Btl::disarm);
        self.networks.iter_mut().for_each(|network| network.disarm());
    }

    /// Only networks have descriptors.
    fn arm_descriptors(&mut self, wake: &mut WakeSet) -> Result<(), EventPending> {
        let armed = self.networks.iter_mut().try_for_each(|network| network.arm(wake));
        if armed.is_err() {
            self.networks.iter_mut().for_each(|network| network.disarm());
        }
        armed
    }
}

/// A handle has the number of its transport in the highest 8 bits.
impl<L: Rdma, S: Rdma> Rdma for Bml<L, S> {
    fn register(&mut self, with: Self::Endpoint, memory: &UserMemory) -> Result<Region, RegisterError> {
        let region = match with {
            BmlEndpoint::Loopback(endpoint) => self.loopback().register(endpoint, memory),
            BmlEndpoint::Shm(endpoint) => self.shm().register(endpoint, memory),
            BmlEndpoint::Network { network, endpoint } => self.network(network).register(endpoint, memory),
        }?;
        Ok(Region(tag(number(with), region.0)))
    }

    fn unregister(&mut self, region: Region, done: Cookie) {
        let (owner, region) = untag(region.0);
        match owner {
            LOOPBACK => self.loopback().unregister(Region(region), done),
            SHM => self.shm().unregister(Region(region), done),
            network => self.network(network).unregister(Region(region), done),
        }
    }

    fn expose(
        &mut self,
        to: Self::Endpoint,
        local: Span,
        access: RemoteAccess,
    ) -> Result<(Exposure, RemoteKey), RegisterError> {
        let local = of_transport(local, number(to)).ok_or(RegisterError::NoSuchRegion)?;
        let (exposure, key) = match to {
            BmlEndpoint::Loopback(endpoint) => self.loopback().expose(endpoint, local, access),
            BmlEndpoint::Shm(endpoint) => self.shm().expose(endpoint, local, access),
            BmlEndpoint::Network { network, endpoint } => {
                self.network(network).expose(endpoint, local, access)
            }
        }?;
        Ok((Exposure(tag(number(to), exposure.0)), key))
    }

    fn unexpose(&mut self, exposure: Exposure, done: Cookie) {
        let (owner, exposure) = untag(exposure.0);
        match owner {
            LOOPBACK => self.loopback().unexpose(Exposure(exposure), done),
            SHM => self.shm().unexpose(Exposure(exposure), done),
            network => self.network(network).unexpose(Exposure(exposure), done),
        }
    }

    fn unexpose_unused(&mut self, exposure: Exposure, done: Cookie) {
        let (owner, exposure) = untag(exposure.0);
        match owner {
            LOOPBACK => self.loopback().unexpose_unused(Exposure(exposure), done),
            SHM => self.shm().unexpose_unused(Exposure(exposure), done),
            network => self.network(network).unexpose_unused(Exposure(exposure), done),
        }
    }

    fn import(&mut self, from: Self::Endpoint, key: &[u8]) -> Result<Remote, RegisterError> {
        match from {
            BmlEndpoint::Loopback(endpoint) => self.loopback().import(endpoint, key),
            BmlEndpoint::Shm(endpoint) => self.shm().import(endpoint, key),
            BmlEndpoint::Network { network, endpoint } => self.network(network).import(endpoint, key),
        }
    }

    fn put(
        &mut self,
        to: Self::Endpoint,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        let local = of_transport(local, number(to)).ok_or(SendError::LocalFault)?;
        match to {
            BmlEndpoint::Loopback(endpoint) => {
                self.loopback().put(endpoint, local, remote, remote_offset, done)
            }
            BmlEndpoint::Shm(endpoint) => self.shm().put(endpoint, local, remote, remote_offset, done),
            BmlEndpoint::Network { network, endpoint } => {
                self.network(network).put(endpoint, local, remote, remote_offset, done)
            }
        }
    }

    fn get(
        &mut self,
        from: Self::Endpoint,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        let local = of_transport(local, number(from)).ok_or(SendError::LocalFault)?;
        match from {
            BmlEndpoint::Loopback(endpoint) => {
                self.loopback().get(endpoint, local, remote, remote_offset, done)
            }
            BmlEndpoint::Shm(endpoint) => self.shm().get(endpoint, local, remote, remote_offset, done),
            BmlEndpoint::Network { network, endpoint } => {
                self.network(network).get(endpoint, local, remote, remote_offset, done)
            }
        }
    }

    fn atomic(
        &mut self,
        to: Self::Endpoint,
        operation: Atomic,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        let local = of_transport(local, number(to)).ok_or(SendError::LocalFault)?;
        match to {
            BmlEndpoint::Loopback(endpoint) => {
                self.loopback().atomic(endpoint, operation, local, remote, remote_offset, done)
            }
            BmlEndpoint::Shm(endpoint) => {
                self.shm().atomic(endpoint, operation, local, remote, remote_offset, done)
            }
            BmlEndpoint::Network { network, endpoint } => {
                self.network(network).atomic(endpoint, operation, local, remote, remote_offset, done)
            }
        }
    }

    fn flush(&mut self, to: Self::Endpoint, done: Cookie) -> Result<(), SendError> {
        match to {
            BmlEndpoint::Loopback(endpoint) => self.loopback().flush(endpoint, done),
            BmlEndpoint::Shm(endpoint) => self.shm().flush(endpoint, done),
            BmlEndpoint::Network { network, endpoint } => self.network(network).flush(endpoint, done),
        }
    }
}

/// The number of the transport of an endpoint, in handles.
fn number<L, S>(endpoint: BmlEndpoint<L, S>) -> u8 {
    match endpoint {
        BmlEndpoint::Loopback(_) => LOOPBACK,
        BmlEndpoint::Shm(_) => SHM,
        BmlEndpoint::Network { network, .. } => network,
    }
}

/// A handle of a transport, with the number of the transport in the highest 8 bits.
fn tag(transport: u8, handle: u64) -> u64 {
    debug_assert!(handle >> HANDLE_BITS == 0, "a transport uses the lowest 56 bits of a handle");
    u64::from(transport) << HANDLE_BITS | handle
}

fn untag(handle: u64) -> (u8, u64) {
    ((handle >> HANDLE_BITS) as u8, handle & ((1 << HANDLE_BITS) - 1))
}

/// The span as the transport knows it; `None` if another transport registered the region.
fn of_transport(span: Span, transport: u8) -> Option<Span> {
    let (owner, region) = untag(span.region.0);
    (owner == transport).then_some(Span { region: Region(region), ..span })
}

impl<L: Btl, S: Btl> Bml<L, S> {
    fn arm_each(&mut self, wake: &mut WakeSet) -> Result<(), EventPending> {
        self.loopback.iter_mut().try_for_each(|loopback| loopback.arm(wake))?;
        self.shm.iter_mut().try_for_each(|shm| shm.arm(wake))?;
        self.networks.iter_mut().try_for_each(|network| network.arm(wake))
    }
}

impl<L: Btl, S: Btl> core::fmt::Debug for Bml<L, S> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Bml")
            .field("loopback", &self.loopback.is_some())
            .field("shm", &self.shm.is_some())
            .field("networks", &self.networks.len())
            .finish_non_exhaustive()
    }
}

/// A sink that passes each callback on, with the transport's endpoint mapped to one of the [`Bml`].
struct MapEndpoint<'a, S, F>(&'a mut S, F);

impl<S: Sink<W>, W, E, F: Fn(E) -> W> Sink<E> for MapEndpoint<'_, S, F> {
    #[inline]
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>) {
        self.0.on_message(from, id, header, payload);
    }

    #[inline]
    fn on_chunk(&mut self, from: PeerIndex, stream: Stream, payload: Payload<'_>) {
        self.0.on_chunk(from, stream, payload);
    }

    fn on_done(&mut self, done: Cookie, result: Result<(), SendError>) {
        self.0.on_done(done, result);
    }

    fn on_sendable(&mut self, to: PeerIndex, endpoint: E) {
        self.0.on_sendable(to, (self.1)(endpoint));
    }

    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause) {
        self.0.on_error(peer, (self.1)(endpoint), cause);
    }

    fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        self.0.on_severed(peer, (self.1)(endpoint));
    }
}

/// `index` modulo `count`, for an index that is less than twice `count`.
fn modulo(index: u8, count: u8) -> u8 {
    if index >= count { index - count } else { index }
}

/// Calls of progress between two polls of the networks while shared memory is busy: a power of two.
const CALLS_PER_NETWORK_POLL: u32 = 32;

const NETWORKS_MAX: usize = 16;

/// The numbers of loopback and shared memory in handles; networks have their indices.
const LOOPBACK: u8 = 254;
const SHM: u8 = 255;

/// Bits of a handle that belong to its transport.
const HANDLE_BITS: u32 = 56;

const ENDPOINT_OF_THIS_BML: &str = "the endpoint belongs to this Bml";

#[cfg(test)]
mod tests {
    use super::{Bml, BmlEndpoint, CALLS_PER_NETWORK_POLL};
    use crate::conformance::mock::{self, MockBtl};
    use crate::conformance::{Fixture, Injected};
    use crate::{
        AmId, Btl, Buffer, Card, Cause, ConnectError, Cookie, Loopback, MessageClass, Payload, Rdma,
        RegisterError, RemoteAccess, SendError, Sink, Span, Stream, UserMemory,
    };
    use crate::{EventPending, Network, WakeSet};
    use mend_base::{Instant, Job, Peer, PeerIndex};

    /// The mock BTL as shared memory, or, with `NETWORK`, as the second of two networks.
    struct Composed<const NETWORK: bool>(mock::MockFixture<{ mock::NONE }>);

    impl<const NETWORK: bool> Fixture for Composed<NETWORK> {
        type Btl = Bml<Loopback, MockBtl<{ mock::NONE }>>;
        const SEES_DEATHS: bool = true;
        const KEYS_ARE_PERSONAL: bool = true;

        fn start(count: usize) -> (Self, Vec<Self::Btl>) {
            let (inner, mocks) = mock::MockFixture::start(count);
            let compose = |(number, mock)| {
                let loopback = Some(Loopback::new(peer(number)));
                let unused = Box::new(Loopback::new(peer(number))) as Box<dyn Network>;
                if NETWORK {
                    Bml::new(loopback, None, vec![unused, Box::new(mock)])
                } else {
                    Bml::new(loopback, Some(mock), vec![unused])
                }
            };
            (Composed(inner), (0..).zip(mocks).map(compose).collect())
        }

        fn abandon(&mut self, index: usize, _btl: Self::Btl) {
            self.0.end(index);
        }

        fn break_connection(
            &mut self,
            _btl: &mut Self::Btl,
            _endpoint: BmlEndpoint<u32, u32>,
            from: usize,
            to: usize,
        ) -> bool {
            self.0.cut(from, to)
        }

        fn is_readable(&mut self, descriptors: &[i32]) -> bool {
            self.0.is_readable(descriptors)
        }

        fn announce_sleep(&mut self, index: usize) {
            self.0.announce_sleep(index);
        }

        fn was_woken(&mut self, index: usize) -> Option<bool> {
            self.0.was_woken(index)
        }
    }

    mod shm_conforms {
        crate::conformance!(super::Composed<false>);
    }

    mod network_conforms {
        crate::conformance!(super::Composed<true>);
    }

    mod network_conforms_with_faults {
        crate::conformance!(super::Injected<super::Composed<true>>);
    }

    /// What the sink was given.
    #[derive(Default)]
    struct Delivered {
        messages: Vec<(PeerIndex, u8)>,
        sendable: Vec<BmlEndpoint<u32, u32>>,
        severed: Vec<BmlEndpoint<u32, u32>>,
        /// Operations, and whether they ended well.
        done: Vec<(Cookie, bool)>,
    }

    impl Sink<BmlEndpoint<u32, u32>> for Delivered {
        fn on_message(&mut self, from: PeerIndex, id: AmId, _: &[u8], _: Payload<'_>) {
            self.messages.push((from, id.0));
        }
        fn on_chunk(&mut self, _: PeerIndex, _: Stream, _: Payload<'_>) {}
        fn on_done(&mut self, done: Cookie, result: Result<(), SendError>) {
            self.done.push((done, result.is_ok()));
        }
        fn on_sendable(&mut self, _: PeerIndex, endpoint: BmlEndpoint<u32, u32>) {
            self.sendable.push(endpoint);
        }
        fn on_error(&mut self, _: PeerIndex, _: BmlEndpoint<u32, u32>, _: Cause) {}
        fn on_severed(&mut self, _: PeerIndex, endpoint: BmlEndpoint<u32, u32>) {
            self.severed.push(endpoint);
        }
    }

    fn peer(number: u32) -> Peer {
        Peer::new(Job(1), number)
    }

    fn card(number: u32) -> Card {
        let mut card = Card::default();
        Btl::advertise(&Loopback::new(peer(number)), &mut card);
        card
    }

    /// Four loopbacks with different names stand for four transports.
    fn four() -> (Bml<Loopback, Loopback>, Vec<BmlEndpoint<u32, u32>>) {
        let far = |number| Box::new(Loopback::new(peer(number))) as Box<dyn Network>;
        let mut bml =
            Bml::new(Some(Loopback::new(peer(0))), Some(Loopback::new(peer(1))), vec![far(2), far(3)]);
        let endpoints: Vec<_> =
            (0..4).map(|number| bml.connect(PeerIndex(number), &card(number)).unwrap()).collect();
        let mut delivered = Delivered::default();
        for time in 0..100 {
            bml.progress(Instant(time), 1, &mut delivered);
        }
        delivered.sendable.sort_by_key(|endpoint| endpoints.iter().position(|each| each == endpoint));
        assert_eq!(delivered.sendable, endpoints, "each endpoint that connect returned is connected");
        (bml, endpoints)
    }

    fn send(
        bml: &mut Bml<Loopback, Loopback>,
        endpoint: BmlEndpoint<u32, u32>,
        id: u8,
    ) -> Result<(), SendError> {
        bml.send(endpoint, MessageClass::Data, AmId(id), &[], 1, |mut slot| slot.put(&[id]))
    }

    #[test]
    fn each_peer_is_reached_by_the_first_transport_that_connects_to_it() {
        let (mut bml, endpoints) = four();
        let far = |network| BmlEndpoint::Network { network, endpoint: 0 };
        assert_eq!(endpoints, [BmlEndpoint::Loopback(0), BmlEndpoint::Shm(0), far(0), far(1)]);
        let nowhere = bml.connect(PeerIndex(4), &card(4));
        assert_eq!(nowhere, Err(ConnectError::Unreachable));
        endpoints.iter().zip(10..).for_each(|(&endpoint, id)| send(&mut bml, endpoint, id).unwrap());
        let mut delivered = Delivered::default();
        for time in 0..u64::from(2 * CALLS_PER_NETWORK_POLL) {
            bml.progress(Instant(time), 8, &mut delivered);
        }
        delivered.messages.sort_by_key(|(_, id)| *id);
        assert_eq!(delivered.messages, [0, 1, 2, 3].map(|number| (PeerIndex(number), 10 + number as u8)));
    }

    #[test]
    fn a_region_is_used_with_the_transport_that_registered_it_and_no_other() {
        let (mut bml, endpoints) = four();
        let memory = UserMemory::of_buffer(&Buffer::from_bytes(&[1; 8]));
        let access = RemoteAccess { read: true, write: true, atomic: false };
        for (number, &endpoint) in endpoints.iter().enumerate() {
            let region = bml.register(endpoint, &memory).unwrap();
            let local = Span { region, offset: 0, bytes: 8 };
            let (exposure, key) = bml.expose(endpoint, local, access).unwrap();
            let remote = bml.import(endpoint, key.as_bytes()).unwrap();
            assert_eq!(bml.get(endpoint, local, remote, 0, Cookie(1)), Ok(()));
            let other = endpoints[(number + 1) % 4];
            assert_eq!(bml.get(other, local, remote, 0, Cookie(2)), Err(SendError::LocalFault));
            assert_eq!(bml.put(other, local, remote, 0, Cookie(2)), Err(SendError::LocalFault));
            let refused = bml.expose(other, local, access).map(|_| ());
            assert_eq!(refused, Err(RegisterError::NoSuchRegion));
            bml.unexpose(exposure, Cookie(3));
            bml.unregister(region, Cookie(4));
            assert_eq!(bml.expose(endpoint, local, access).map(|_| ()), Err(RegisterError::NoSuchRegion));
        }
        let mut delivered = Delivered::default();
        for time in 0..u64::from(2 * CALLS_PER_NETWORK_POLL) {
            bml.progress(Instant(time), 8, &mut delivered);
        }
        delivered.done.sort();
        let each = |cookie| [(Cookie(cookie), true); 4];
        assert_eq!(delivered.done, [each(1), each(3), each(4)].concat());
    }

    #[test]
    fn no_transport_starves_another_even_with_a_budget_of_one() {
        let (mut bml, endpoints) = four();
        let mut delivered = Delivered::default();
        for time in 0..u64::from(16 * CALLS_PER_NETWORK_POLL) {
            for (&endpoint, id) in endpoints.iter().zip(0..) {
                // May be `Busy`: each transport must always have something to deliver.
                let _ = send(&mut bml, endpoint, id);
            }
            assert!(bml.progress(Instant(time), 1, &mut delivered) <= 1);
        }
        for id in 0..4 {
            let count = delivered.messages.iter().filter(|(_, each)| *each == id).count();
            assert!(count >= 4, "transport {id} delivered {count} messages");
        }
    }

    #[test]
    fn severing_an_endpoint_does_not_affect_the_others() {
        let (mut bml, endpoints) = four();
        bml.sever(endpoints[1]);
        bml.sever(endpoints[3]);
        assert_eq!(send(&mut bml, endpoints[1], 1), Err(SendError::Severed));
        send(&mut bml, endpoints[0], 5).unwrap();
        let mut delivered = Delivered::default();
        for time in 0..u64::from(2 * CALLS_PER_NETWORK_POLL) {
            bml.progress(Instant(time), 8, &mut delivered);
        }
        assert_eq!(delivered.severed, [endpoints[1], endpoints[3]]);
        assert_eq!(delivered.messages, [(PeerIndex(0), 5)]);
    }

    #[test]
    fn arm_succeeds_only_if_no_transport_is_pending() {
        let (mut bml, endpoints) = four();
        let mut wake = WakeSet::default();
        assert_eq!(bml.arm(&mut wake), Ok(()));
        bml.disarm();
        for (time, endpoint) in (0..).zip(endpoints) {
            send(&mut bml, endpoint, 1).unwrap();
            assert!(bml.ready(endpoint));
            assert_eq!(bml.arm(&mut wake), Err(EventPending));
            while bml.ready(endpoint) {
                bml.progress(Instant(time), 8, &mut Delivered::default());
            }
        }
    }

    #[test]
    fn descriptors_are_armed_unless_a_network_is_pending() {
        let (mut bml, endpoints) = four();
        for (endpoint, is_network) in endpoints.into_iter().zip([false, false, true, true]) {
            assert_eq!(bml.arm_descriptors(&mut WakeSet::default()), Ok(()));
            send(&mut bml, endpoint, 1).unwrap();
            let expected = if is_network { Err(EventPending) } else { Ok(()) };
            assert_eq!(bml.arm_descriptors(&mut WakeSet::default()), expected, "{endpoint:?}");
            while bml.ready(endpoint) {
                bml.progress(Instant(0), 8, &mut Delivered::default());
            }
        }
    }
}
