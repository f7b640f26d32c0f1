// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several transports as one (Open MPI's BML): to oneself and shared memory inlined, networks behind one `dyn` each.

use crate::network::once;
use crate::{
    AmId, Btl, Card, Cause, Class, ConnectError, Cookie, Limits, Network, Payload, Pending, SendError, Sink,
    Stream, WakeSet, WriteSlot,
};
use mend_base::{Instant, PeerIndex};

/// `Own` (to oneself) where it connects, else `Near` (shared memory), else the first network that does. Either may be
/// absent, because the user excluded it (`MEND_BTL`); then its peers are reached by the next, or not at all.
///
/// ```
/// use mend_base::{Job, Peer, PeerIndex};
/// use mend_transport::{Bml, Btl, Card, ConnectError, Loopback, Way};
///
/// let (me, somebody) = (Peer::new(Job(1), 0), Peer::new(Job(1), 1));
/// let mut all: Bml<Loopback, Loopback> = Bml::new(Some(Loopback::new(me)), None, Vec::new());
/// let mut card = Card::default();
/// all.advertise(&mut card);
/// assert_eq!(all.connect(PeerIndex(0), &card), Ok(Way::Own(0)));
/// let mut foreign = Card::default();
/// Loopback::new(somebody).advertise(&mut foreign);
/// assert_eq!(all.connect(PeerIndex(1), &foreign), Err(ConnectError::Unreachable));
/// ```
pub struct Bml<Own: Btl, Near: Btl> {
    own: Option<Own>,
    near: Option<Near>,
    networks: Vec<Box<dyn Network>>,
    /// Turns so far: tells when the networks are due although shared memory is busy.
    turns: u32,
    /// Which of the inlined two goes first: they change places when one used the whole budget.
    own_first: bool,
    /// Which network goes first.
    first_network: u8,
}

/// The way to a peer: which transport, and its endpoint there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way<O, N> {
    /// To oneself.
    Own(O),
    /// Through shared memory.
    Near(N),
    /// Through a network.
    Far {
        /// Its place among the networks.
        network: u8,
        /// Its endpoint.
        endpoint: u32,
    },
}

impl<Own: Btl, Near: Btl> Bml<Own, Near> {
    /// These transports as one.
    pub fn new(own: Option<Own>, near: Option<Near>, networks: Vec<Box<dyn Network>>) -> Self {
        assert!(networks.len() <= NETWORKS_MAX, "more networks than any host has");
        Bml { own, near, networks, turns: 0, own_first: true, first_network: 0 }
    }

    fn own(&mut self) -> &mut Own {
        self.own.as_mut().expect(OF_ANOTHER)
    }

    fn near(&mut self) -> &mut Near {
        self.near.as_mut().expect(OF_ANOTHER)
    }

    fn network(&mut self, index: u8) -> &mut dyn Network {
        &mut *self.networks[usize::from(index)]
    }

    fn progress_own(
        &mut self,
        now: Instant,
        budget: u32,
        sink: &mut impl Sink<Way<Own::Endpoint, Near::Endpoint>>,
    ) -> u32 {
        match &mut self.own {
            Some(own) if budget > 0 => own.progress(now, budget, &mut Named(sink, Way::Own)),
            _ => 0,
        }
    }

    fn progress_near(
        &mut self,
        now: Instant,
        budget: u32,
        sink: &mut impl Sink<Way<Own::Endpoint, Near::Endpoint>>,
    ) -> u32 {
        match &mut self.near {
            Some(near) if budget > 0 => near.progress(now, budget, &mut Named(sink, Way::Near)),
            _ => 0,
        }
    }

    /// Each network once, another one first each time.
    fn progress_networks(
        &mut self,
        now: Instant,
        budget: u32,
        sink: &mut impl Sink<Way<Own::Endpoint, Near::Endpoint>>,
    ) -> u32 {
        let count = self.networks.len() as u8;
        if count == 0 {
            return 0;
        }
        let mut events = 0;
        for step in 0..count {
            let network = wrap(self.first_network + step, count);
            if events < budget {
                let way = |endpoint| Way::Far { network, endpoint };
                events += self.network(network).progress(now, budget - events, &mut Named(&mut *sink, way));
            }
        }
        self.first_network = wrap(self.first_network + 1, count);
        events
    }
}

impl<Own: Btl, Near: Btl> Btl for Bml<Own, Near> {
    type Endpoint = Way<Own::Endpoint, Near::Endpoint>;

    fn advertise(&self, card: &mut Card) {
        self.own.iter().for_each(|own| own.advertise(card));
        self.near.iter().for_each(|near| near.advertise(card));
        self.networks.iter().for_each(|network| network.advertise(card));
    }

    fn connect(&mut self, peer: PeerIndex, card: &Card) -> Result<Self::Endpoint, ConnectError> {
        if let Some(own) = &mut self.own {
            match own.connect(peer, card) {
                Err(ConnectError::Unreachable) => {}
                answer => return answer.map(Way::Own),
            }
        }
        if let Some(near) = &mut self.near {
            match near.connect(peer, card) {
                Err(ConnectError::Unreachable) => {}
                answer => return answer.map(Way::Near),
            }
        }
        for (network, btl) in (0u8..).zip(&mut self.networks) {
            match btl.connect(peer, card) {
                Err(ConnectError::Unreachable) => {}
                answer => return answer.map(|endpoint| Way::Far { network, endpoint }),
            }
        }
        Err(ConnectError::Unreachable)
    }

    fn limits(&self, to: Self::Endpoint) -> &Limits {
        match to {
            Way::Own(endpoint) => self.own.as_ref().expect(OF_ANOTHER).limits(endpoint),
            Way::Near(endpoint) => self.near.as_ref().expect(OF_ANOTHER).limits(endpoint),
            Way::Far { network, endpoint } => self.networks[usize::from(network)].limits(endpoint),
        }
    }

    fn quarantine(&mut self, endpoint: Self::Endpoint) {
        match endpoint {
            Way::Own(endpoint) => self.own().quarantine(endpoint),
            Way::Near(endpoint) => self.near().quarantine(endpoint),
            Way::Far { network, endpoint } => self.network(network).quarantine(endpoint),
        }
    }

    fn resume(&mut self, endpoint: Self::Endpoint) {
        match endpoint {
            Way::Own(endpoint) => self.own().resume(endpoint),
            Way::Near(endpoint) => self.near().resume(endpoint),
            Way::Far { network, endpoint } => self.network(network).resume(endpoint),
        }
    }

    fn sever(&mut self, endpoint: Self::Endpoint) {
        match endpoint {
            Way::Own(endpoint) => self.own().sever(endpoint),
            Way::Near(endpoint) => self.near().sever(endpoint),
            Way::Far { network, endpoint } => self.network(network).sever(endpoint),
        }
    }

    // Hot: per message.
    #[inline(always)]
    fn send(
        &mut self,
        to: Self::Endpoint,
        class: Class,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(WriteSlot<'_>),
    ) -> Result<(), SendError> {
        match to {
            Way::Near(endpoint) => self.near().send(endpoint, class, id, header, len, fill),
            Way::Own(endpoint) => self.own().send(endpoint, class, id, header, len, fill),
            Way::Far { network, endpoint } => {
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
        fill: impl FnOnce(WriteSlot<'_>),
    ) -> Result<(), SendError> {
        match to {
            Way::Near(endpoint) => self.near().send_chunk(endpoint, stream, len, fill),
            Way::Own(endpoint) => self.own().send_chunk(endpoint, stream, len, fill),
            Way::Far { network, endpoint } => {
                self.network(network).send_chunk(endpoint, stream, len, &mut once(fill))
            }
        }
    }

    // Hot: per look.
    #[inline]
    fn ready(&self, from: Self::Endpoint) -> bool {
        match from {
            Way::Near(endpoint) => self.near.as_ref().is_some_and(|near| near.ready(endpoint)),
            Way::Own(endpoint) => self.own.as_ref().is_some_and(|own| own.ready(endpoint)),
            Way::Far { network, endpoint } => self.networks[usize::from(network)].ready(endpoint),
        }
    }

    // Hot: per look.
    #[inline(always)]
    fn has_message(&self, from: Self::Endpoint) -> bool {
        match (from, &self.near) {
            (Way::Near(endpoint), Some(near)) => near.has_message(endpoint),
            _ => false,
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
        match (from, &mut self.near) {
            (Way::Near(endpoint), Some(near)) => {
                near.take_message(now, endpoint, &mut Named(sink, Way::Near))
            }
            _ => 0,
        }
    }

    // Hot: per turn.
    fn progress(&mut self, now: Instant, budget: u32, sink: &mut impl Sink<Self::Endpoint>) -> u32 {
        self.turns = self.turns.wrapping_add(1);
        let due = self.turns & (NETWORK_TURNS - 1) == 0;
        // When they are due the networks go first, so that a busy neighbour cannot use up the budget before them.
        let mut events = if due { self.progress_networks(now, budget, sink) } else { 0 };
        if self.own_first {
            events += self.progress_own(now, budget - events, sink);
            events += self.progress_near(now, budget - events, sink);
        } else {
            events += self.progress_near(now, budget - events, sink);
            events += self.progress_own(now, budget - events, sink);
        }
        if events == budget {
            self.own_first = !self.own_first;
        }
        if events == 0 && !due {
            events = self.progress_networks(now, budget, sink);
        }
        events
    }

    fn check_peers(&mut self) {
        self.own.iter_mut().for_each(Btl::check_peers);
        self.near.iter_mut().for_each(Btl::check_peers);
        self.networks.iter_mut().for_each(|network| network.check_peers());
    }

    /// All are armed, or none: where one has something, the others are disarmed again.
    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), Pending> {
        let armed = self.arm_each(wake);
        if armed.is_err() {
            self.disarm();
        }
        armed
    }

    fn disarm(&mut self) {
        self.own.iter_mut().for_each(Btl::disarm);
        self.near.iter_mut().for_each(Btl::disarm);
        self.networks.iter_mut().for_each(|network| network.disarm());
    }
}

impl<Own: Btl, Near: Btl> Bml<Own, Near> {
    fn arm_each(&mut self, wake: &mut WakeSet) -> Result<(), Pending> {
        self.own.iter_mut().try_for_each(|own| own.arm(wake))?;
        self.near.iter_mut().try_for_each(|near| near.arm(wake))?;
        self.networks.iter_mut().try_for_each(|network| network.arm(wake))
    }
}

impl<Own: Btl, Near: Btl> core::fmt::Debug for Bml<Own, Near> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Bml")
            .field("own", &self.own.is_some())
            .field("near", &self.near.is_some())
            .field("networks", &self.networks.len())
            .finish_non_exhaustive()
    }
}

/// A sink that gives a transport's endpoints their names among all transports.
struct Named<'a, S, F>(&'a mut S, F);

impl<S: Sink<W>, W, E, F: Fn(E) -> W> Sink<E> for Named<'_, S, F> {
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

    fn on_room(&mut self, to: PeerIndex, endpoint: E) {
        self.0.on_room(to, (self.1)(endpoint));
    }

    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause) {
        self.0.on_error(peer, (self.1)(endpoint), cause);
    }

    fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        self.0.on_severed(peer, (self.1)(endpoint));
    }
}

/// `index`, which is less than twice `count`, on the circle of `count` places.
fn wrap(index: u8, count: u8) -> u8 {
    if index >= count { index - count } else { index }
}

/// How many turns may pass between two looks at the networks while shared memory is busy: a power of two.
const NETWORK_TURNS: u32 = 32;

const NETWORKS_MAX: usize = 16;

const OF_ANOTHER: &str = "a Way names a transport of the Bml that made it";

#[cfg(test)]
mod tests {
    use super::{Bml, NETWORK_TURNS, Way};
    use crate::conformance::paper::{self, Paper};
    use crate::conformance::{Fixture, Injected};
    use crate::{
        AmId, Btl, Card, Cause, Class, ConnectError, Cookie, Loopback, Payload, SendError, Sink, Stream,
    };
    use crate::{Network, Pending, WakeSet};
    use mend_base::{Instant, Job, Peer, PeerIndex};

    /// Plain queues as the near transport, or, with `FAR`, as the second of two networks.
    struct Composed<const FAR: bool>(paper::Job<{ paper::NONE }>);

    impl<const FAR: bool> Fixture for Composed<FAR> {
        type Btl = Bml<Loopback, Paper<{ paper::NONE }>>;
        const SEES_DEATHS: bool = true;

        fn start(count: usize) -> (Self, Vec<Self::Btl>) {
            let (inner, papers) = paper::Job::start(count);
            let compose = |(number, paper)| {
                let own = Some(Loopback::new(peer(number)));
                let unused = Box::new(Loopback::new(peer(number))) as Box<dyn Network>;
                if FAR {
                    Bml::new(own, None, vec![unused, Box::new(paper)])
                } else {
                    Bml::new(own, Some(paper), vec![unused])
                }
            };
            (Composed(inner), (0..).zip(papers).map(compose).collect())
        }

        fn abandon(&mut self, index: usize, _btl: Self::Btl) {
            self.0.end(index);
        }

        fn announce_sleep(&mut self, index: usize) {
            self.0.announce_sleep(index);
        }

        fn was_woken(&mut self, index: usize) -> Option<bool> {
            self.0.was_woken(index)
        }
    }

    mod near_conforms {
        crate::conformance!(super::Composed<false>);
    }

    mod far_conforms {
        crate::conformance!(super::Composed<true>);
    }

    mod far_conforms_with_faults {
        crate::conformance!(super::Injected<super::Composed<true>>);
    }

    /// Who sent what, by the way's name.
    #[derive(Default)]
    struct Heard {
        messages: Vec<(PeerIndex, u8)>,
        rooms: Vec<Way<u32, u32>>,
        severed: Vec<Way<u32, u32>>,
    }

    impl Sink<Way<u32, u32>> for Heard {
        fn on_message(&mut self, from: PeerIndex, id: AmId, _: &[u8], _: Payload<'_>) {
            self.messages.push((from, id.0));
        }
        fn on_chunk(&mut self, _: PeerIndex, _: Stream, _: Payload<'_>) {}
        fn on_done(&mut self, _: Cookie, _: Result<(), SendError>) {}
        fn on_room(&mut self, _: PeerIndex, endpoint: Way<u32, u32>) {
            self.rooms.push(endpoint);
        }
        fn on_error(&mut self, _: PeerIndex, _: Way<u32, u32>, _: Cause) {}
        fn on_severed(&mut self, _: PeerIndex, endpoint: Way<u32, u32>) {
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
    fn four() -> (Bml<Loopback, Loopback>, Vec<Way<u32, u32>>) {
        let far = |number| Box::new(Loopback::new(peer(number))) as Box<dyn Network>;
        let mut bml =
            Bml::new(Some(Loopback::new(peer(0))), Some(Loopback::new(peer(1))), vec![far(2), far(3)]);
        let ways: Vec<_> =
            (0..4).map(|number| bml.connect(PeerIndex(number), &card(number)).unwrap()).collect();
        let mut heard = Heard::default();
        for turn in 0..100 {
            bml.progress(Instant(turn), 1, &mut heard);
        }
        heard.rooms.sort_by_key(|way| ways.iter().position(|each| each == way));
        assert_eq!(heard.rooms, ways, "each connection stands, under the name that connect gave");
        (bml, ways)
    }

    fn send(bml: &mut Bml<Loopback, Loopback>, way: Way<u32, u32>, id: u8) -> Result<(), SendError> {
        bml.send(way, Class::Data, AmId(id), &[], 1, |mut slot| slot.put(&[id]))
    }

    #[test]
    fn each_peer_is_reached_by_the_first_transport_that_leads_there() {
        let (mut bml, ways) = four();
        let far = |network| Way::Far { network, endpoint: 0 };
        assert_eq!(ways, [Way::Own(0), Way::Near(0), far(0), far(1)]);
        let nowhere = bml.connect(PeerIndex(4), &card(4));
        assert_eq!(nowhere, Err(ConnectError::Unreachable));
        ways.iter().zip(10..).for_each(|(&way, id)| send(&mut bml, way, id).unwrap());
        let mut heard = Heard::default();
        for turn in 0..u64::from(2 * NETWORK_TURNS) {
            bml.progress(Instant(turn), 8, &mut heard);
        }
        heard.messages.sort_by_key(|(_, id)| *id);
        assert_eq!(heard.messages, [0, 1, 2, 3].map(|number| (PeerIndex(number), 10 + number as u8)));
    }

    #[test]
    fn no_transport_starves_another_even_with_a_budget_of_one() {
        let (mut bml, ways) = four();
        let mut heard = Heard::default();
        for turn in 0..u64::from(16 * NETWORK_TURNS) {
            for (&way, id) in ways.iter().zip(0..) {
                // Busy is fine: what counts is that each always has something.
                let _ = send(&mut bml, way, id);
            }
            assert!(bml.progress(Instant(turn), 1, &mut heard) <= 1);
        }
        for id in 0..4 {
            let count = heard.messages.iter().filter(|(_, each)| *each == id).count();
            assert!(count >= 4, "transport {id} was heard {count} times");
        }
    }

    #[test]
    fn severing_one_way_ends_that_one_alone() {
        let (mut bml, ways) = four();
        bml.sever(ways[1]);
        bml.sever(ways[3]);
        assert_eq!(send(&mut bml, ways[1], 1), Err(SendError::PeerFailed));
        send(&mut bml, ways[0], 5).unwrap();
        let mut heard = Heard::default();
        for turn in 0..u64::from(2 * NETWORK_TURNS) {
            bml.progress(Instant(turn), 8, &mut heard);
        }
        assert_eq!(heard.severed, [ways[1], ways[3]]);
        assert_eq!(heard.messages, [(PeerIndex(0), 5)]);
    }

    #[test]
    fn it_may_sleep_only_if_every_transport_may() {
        let (mut bml, ways) = four();
        let mut wake = WakeSet::default();
        assert_eq!(bml.arm(&mut wake), Ok(()));
        bml.disarm();
        for (turn, way) in (0..).zip(ways) {
            send(&mut bml, way, 1).unwrap();
            assert!(bml.ready(way));
            assert_eq!(bml.arm(&mut wake), Err(Pending));
            while bml.ready(way) {
                bml.progress(Instant(turn), 8, &mut Heard::default());
            }
        }
    }
}
