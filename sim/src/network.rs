// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network in memory whose deliveries a seed decides: [`FabricBtl`] is one process's end of it.
//!
//! For each ordered pair of processes there are four match lists: messages and chunks with little room, so that senders meet
//! `Busy` often; control, which passes both; mailboxes, where the newest state replaces the last. Within a match list order
//! holds; which match list moves, how far, and when a sender hears of room again, the seed decides at each `progress`.

use crate::killer::Killer;
use mend_base::{Instant, PeerIndex, Random, Reader};
use mend_transport::{
    Ability, AmId, Btl, Card, Cause, Class, ConnectError, Limits, Payload, Pending, SendError, Sink, Stream,
    TransportId, WakeSet, WriteSlot,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// What all ends share.
pub type Shared = Rc<RefCell<Network>>;

/// The whole network.
#[derive(Debug)]
pub struct Network {
    /// Decides every delivery.
    pub random: Random,
    /// Everything that can move, moves: how a run finds out whether it has come to rest.
    pub hurry: bool,
    /// What else may happen.
    pub trouble: Trouble,
    /// Who dies.
    pub killer: Rc<Killer>,
    misjudged: u64,
    /// Who has been rung since it last lay down.
    rung: BTreeSet<u32>,
    pipes: BTreeMap<(u32, u32), Pipe>,
    /// Messages and chunks handed to the network, and by it: they are equal at the end of a run that lost nobody.
    pub sent: u64,
    /// See [`sent`](Network::sent).
    pub delivered: u64,
}

/// What may happen although everybody lives: once in so many times; 0 is never.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trouble {
    /// A look at a way reports evidence against the peer, falsely.
    pub evidence_once_in: u64,
    /// A look at the way to one who has died reports it.
    pub witness_once_in: u64,
    /// A connection cannot be made, for want of memory.
    pub refusal_once_in: u64,
    /// A process that writes garbage into this share of what it sends.
    pub liar: Option<Liar>,
}

/// A process whose memory is broken, or which means ill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Liar {
    /// Who.
    pub number: u32,
    /// How often.
    pub once_in: u64,
}

/// From one process to another.
#[derive(Debug, Default)]
struct Pipe {
    data: VecDeque<Item>,
    control: VecDeque<Item>,
    chunks: VecDeque<(Stream, Vec<u8>)>,
    mailboxes: BTreeMap<AmId, Item>,
}

#[derive(Debug)]
struct Item {
    id: AmId,
    header: Vec<u8>,
    payload: Vec<u8>,
}

/// What a match list hands up.
#[derive(Debug)]
enum Arrival {
    Message(Item),
    Chunk(Stream, Vec<u8>),
}

impl Arrival {
    fn hand_up(self, from: PeerIndex, sink: &mut impl Sink<u32>) {
        match self {
            Arrival::Message(item) => {
                sink.on_message(from, item.id, &item.header, Payload::from(&item.payload[..]));
            }
            Arrival::Chunk(stream, bytes) => sink.on_chunk(from, stream, Payload::from(&bytes[..])),
        }
    }
}

/// How much room the match lists towards one process have, and how long its pieces are: what its card says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Messages on their way from one sender.
    pub data_depth: u32,
    /// Control messages on their way from one sender.
    pub control_depth: u32,
    /// Chunks on their way from one sender.
    pub chunk_depth: u32,
    /// [`Limits::inline_bytes_max`].
    pub inline_bytes_max: u32,
    /// [`Limits::packed_bytes_max`].
    pub packed_bytes_max: u32,
    /// [`Limits::chunk_bytes`]; 0: no streams.
    pub chunk_bytes: u32,
}

impl Sizes {
    /// As a seed decides.
    pub fn random(random: &mut Random) -> Self {
        Sizes {
            data_depth: 1 + random.below(8) as u32,
            control_depth: 1 + random.below(8) as u32,
            chunk_depth: 1 + random.below(6) as u32,
            inline_bytes_max: 24 + random.below(41) as u32,
            packed_bytes_max: 64 << random.below(7),
            // Some ways have no streams: large messages go as fragments.
            chunk_bytes: if random.once_in(4) { 0 } else { 256 << random.below(7) },
        }
    }

    fn write(&self) -> Vec<u8> {
        let words = [
            self.data_depth,
            self.control_depth,
            self.chunk_depth,
            self.inline_bytes_max,
            self.packed_bytes_max,
            self.chunk_bytes,
        ];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(Sizes {
            data_depth: from.u32()?,
            control_depth: from.u32()?,
            chunk_depth: from.u32()?,
            inline_bytes_max: from.u32()?,
            packed_bytes_max: from.u32()?,
            chunk_bytes: from.u32()?,
        })
    }
}

impl Network {
    /// A network over which nothing has gone yet.
    pub fn new(seed: u64) -> Shared {
        Rc::new(RefCell::new(Network {
            random: Random(seed),
            hurry: false,
            trouble: Trouble::default(),
            killer: Killer::none(),
            misjudged: 0,
            rung: BTreeSet::new(),
            pipes: BTreeMap::new(),
            sent: 0,
            delivered: 0,
        }))
    }

    /// Whether somebody rang since the last call: a message, a chunk, or room for one.
    pub fn answer_bell(&mut self, number: u32) -> bool {
        self.rung.remove(&number)
    }

    /// What has been sent and not handed up yet, pair by pair: for reports of runs that came to rest too early.
    pub fn in_flight(&self) -> Vec<String> {
        let busy = self.pipes.iter().filter(|(_, pipe)| !pipe.is_empty());
        busy.map(|((from, to), pipe)| {
            let (data, control) = (pipe.data.len(), pipe.control.len());
            format!("{from}->{to}: {data} messages, {control} control, {} chunks", pipe.chunks.len())
        })
        .collect()
    }
}

impl Pipe {
    fn is_empty(&self) -> bool {
        self.data.is_empty() && self.control.is_empty() && self.chunks.is_empty() && self.mailboxes.is_empty()
    }

    fn has_room(&self, sizes: &Sizes) -> bool {
        self.data.len() < sizes.data_depth as usize
            && self.control.len() < sizes.control_depth as usize
            && self.chunks.len() < sizes.chunk_depth as usize
    }

    /// The next of a match list that `random` chooses among those that have something.
    fn take(&mut self, random: &mut Random) -> Option<Arrival> {
        let first = random.below(4);
        (0..4).find_map(|step| match (first + step) % 4 {
            0 => self.data.pop_front().map(Arrival::Message),
            1 => self.control.pop_front().map(Arrival::Message),
            2 => self.mailboxes.pop_first().map(|(_, item)| Arrival::Message(item)),
            _ => self.chunks.pop_front().map(|(stream, bytes)| Arrival::Chunk(stream, bytes)),
        })
    }
}

/// One process's end of a [`Network`]. What it leaves in the network when it is dropped can still be handed up, as the
/// outbox of a process that has ended can still be read.
#[derive(Debug)]
pub struct FabricBtl {
    me: u32,
    sizes: Sizes,
    shared: Shared,
    endpoints: Vec<Way>,
    /// Where the last `progress` ended.
    next: usize,
}

#[derive(Debug)]
struct Way {
    peer: u32,
    index: PeerIndex,
    state: State,
    /// A send was answered `Busy`: `on_room` is owed.
    refused: bool,
    /// What the peer had sent when the way was severed: what comes later stays in the network, as in a full ring.
    last: Pipe,
    /// The peer's.
    sizes: Sizes,
    limits: Limits,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Connecting,
    Standing,
    Quarantined,
    Severing,
    Severed,
}

/// How much false evidence a job gets.
const MISJUDGED_MAX: u64 = 500;

/// The fabric's entry in a card.
const FABRIC: TransportId = TransportId(200);

impl FabricBtl {
    /// The end of process `me`.
    pub fn new(shared: &Shared, me: u32, sizes: Sizes) -> Self {
        FabricBtl { me, sizes, shared: Rc::clone(shared), endpoints: Vec::new(), next: 0 }
    }

    /// Hands up what the seed lets through on one way; how many events.
    fn progress_one(&mut self, at: usize, budget: u32, sink: &mut impl Sink<u32>) -> u32 {
        let way = &mut self.endpoints[at];
        let endpoint = at as u32;
        let mut network = self.shared.borrow_mut();
        let hurry = network.hurry;
        let mut events = 0;
        match way.state {
            _ if !network.killer.call(self.me) => return 0,
            State::Connecting if hurry || network.random.once_in(3) => {
                way.state = State::Standing;
                way.refused = false;
                drop(network);
                sink.on_room(way.index, endpoint);
                return 1;
            }
            State::Standing if network.testifies(way.peer) => {
                mend_base::reach!("sim.network: true evidence");
                let causes = [Cause::Exited, Cause::LinkDown, Cause::Silent];
                let cause = causes[network.random.below(3) as usize];
                drop(network);
                sink.on_error(way.index, endpoint, cause);
                return 1;
            }
            // Evidence may repeat.
            State::Standing | State::Quarantined if !hurry && network.misjudges() => {
                drop(network);
                sink.on_error(way.index, endpoint, Cause::Silent);
                return 1;
            }
            State::Connecting | State::Quarantined | State::Severed => return 0,
            State::Standing => {
                let allowed = if hurry { budget } else { network.random.below(5).min(budget.into()) as u32 };
                while events < allowed && network.hand_up(way, self.me, sink) {
                    events += 1;
                }
            }
            State::Severing => {
                while events < budget && network.hand_up_last(way, self.me, sink) {
                    events += 1;
                }
                if events == budget || network.killer.is_dead(self.me) {
                    return events;
                }
                way.state = State::Severed;
                sink.on_severed(way.index, endpoint);
                return events + 1;
            }
        }
        if way.refused && events < budget && (hurry || network.random.once_in(2)) {
            let pipe = network.pipes.entry((self.me, way.peer)).or_default();
            if pipe.has_room(&way.sizes) {
                way.refused = false;
                sink.on_room(way.index, endpoint);
                events += 1;
            }
        }
        events
    }

    fn has_room(&self, way: &Way) -> bool {
        self.shared.borrow().pipes.get(&(self.me, way.peer)).is_none_or(|pipe| pipe.has_room(&way.sizes))
    }

    fn way(&mut self, endpoint: u32) -> &mut Way {
        &mut self.endpoints[endpoint as usize]
    }

    /// Whether this way takes anything now, and we live to send it.
    fn check(&mut self, endpoint: u32) -> Result<(), SendError> {
        let lives = self.shared.borrow().killer.call(self.me);
        let way = self.way(endpoint);
        match way.state {
            _ if !lives => Err(SendError::Busy),
            State::Standing => Ok(()),
            State::Connecting | State::Quarantined => Err(SendError::Busy),
            State::Severing | State::Severed => Err(SendError::PeerFailed),
        }
    }
}

impl Item {
    /// Changes something that its receiver reads: a byte, the length of header or payload, the id.
    fn garble(&mut self, random: &mut Random) {
        match random.below(16) {
            0 => self.header.truncate(random.below(self.header.len() as u64 + 1) as usize),
            1 => self.header.resize(Limits::HEADER_BYTES_MAX, 7),
            2 => self.payload.truncate(random.below(self.payload.len() as u64 + 1) as usize),
            3 => self.payload.push(0),
            4 => self.id = AmId(random.bits() as u8),
            _ if self.header.is_empty() => {}
            kind => {
                let at = random.below(self.header.len() as u64) as usize;
                let noise = if kind < 10 { 1 << random.below(8) } else { random.bits() as u8 };
                self.header[at] ^= noise;
            }
        }
    }
}

impl Network {
    fn lies(&mut self, me: u32) -> bool {
        self.trouble.liar.is_some_and(|liar| liar.number == me && self.random.once_in(liar.once_in))
    }

    /// Not for ever: false evidence moves a job that is at rest otherwise, and would hide that it hangs.
    fn misjudges(&mut self) -> bool {
        let now = self.trouble.evidence_once_in > 0
            && self.misjudged < MISJUDGED_MAX
            && self.random.once_in(self.trouble.evidence_once_in);
        self.misjudged += u64::from(now);
        now
    }

    /// Whether a look at the way to `peer` finds it dead.
    fn testifies(&mut self, peer: u32) -> bool {
        let once_in = self.trouble.witness_once_in;
        once_in > 0 && self.killer.is_declared(peer) && (self.hurry || self.random.once_in(once_in))
    }

    fn refuses(&mut self) -> bool {
        self.trouble.refusal_once_in > 0 && self.random.once_in(self.trouble.refusal_once_in)
    }

    /// Hands up the next arrival of this way, if there is one.
    fn hand_up(&mut self, way: &Way, me: u32, sink: &mut impl Sink<u32>) -> bool {
        if !self.killer.call(me) {
            return false;
        }
        let Some(pipe) = self.pipes.get_mut(&(way.peer, me)) else { return false };
        let Some(arrival) = pipe.take(&mut self.random) else { return false };
        self.rung.insert(way.peer);
        self.delivered += 1;
        arrival.hand_up(way.index, sink);
        true
    }

    /// The same of what was there when the way was severed.
    fn hand_up_last(&mut self, way: &mut Way, me: u32, sink: &mut impl Sink<u32>) -> bool {
        if !self.killer.call(me) {
            return false;
        }
        let Some(arrival) = way.last.take(&mut self.random) else { return false };
        self.delivered += 1;
        arrival.hand_up(way.index, sink);
        true
    }
}

impl Btl for FabricBtl {
    type Endpoint = u32;

    fn advertise(&self, card: &mut Card) {
        let mut entry = self.me.to_le_bytes().to_vec();
        entry.extend(self.sizes.write());
        card.entries.push((FABRIC, entry));
    }

    fn connect(&mut self, peer: PeerIndex, card: &Card) -> Result<u32, ConnectError> {
        let entry = card.entry(FABRIC).ok_or(ConnectError::Unreachable)?;
        let mut reader = Reader::new(entry);
        let number = reader.u32().ok_or(ConnectError::LayoutDiffers)?;
        let sizes = Sizes::read(&mut reader).ok_or(ConnectError::LayoutDiffers)?;
        if number != self.me && self.shared.borrow_mut().refuses() {
            return Err(ConnectError::NoMemory);
        }
        let limits = Limits {
            abilities: if sizes.chunk_bytes > 0 { Ability::Streams as u32 } else { 0 },
            inline_bytes_max: sizes.inline_bytes_max,
            packed_bytes_max: sizes.packed_bytes_max,
            chunk_bytes: sizes.chunk_bytes,
            transfer_bytes_max: 0,
        };
        let state = State::Connecting;
        self.endpoints.push(Way {
            peer: number,
            index: peer,
            state,
            refused: false,
            last: Pipe::default(),
            sizes,
            limits,
        });
        Ok(self.endpoints.len() as u32 - 1)
    }

    fn limits(&self, to: u32) -> &Limits {
        &self.endpoints[to as usize].limits
    }

    fn quarantine(&mut self, endpoint: u32) {
        let way = self.way(endpoint);
        if matches!(way.state, State::Connecting | State::Standing) {
            way.state = State::Quarantined;
        }
    }

    fn resume(&mut self, endpoint: u32) {
        let way = self.way(endpoint);
        if way.state == State::Quarantined {
            // Whoever was told `Busy` meanwhile hears of room as after a connection.
            way.state = State::Connecting;
        }
    }

    fn sever(&mut self, endpoint: u32) {
        let way = &mut self.endpoints[endpoint as usize];
        if !matches!(way.state, State::Severing | State::Severed) {
            way.state = State::Severing;
            way.last = self.shared.borrow_mut().pipes.remove(&(way.peer, self.me)).unwrap_or_default();
        }
    }

    fn send(
        &mut self,
        to: u32,
        class: Class,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(WriteSlot<'_>),
    ) -> Result<(), SendError> {
        let me = self.me;
        let checked = self.check(to);
        let way = self.way(to);
        let longest =
            if class == Class::Data { way.sizes.packed_bytes_max } else { way.sizes.inline_bytes_max };
        assert!(header.len() <= Limits::HEADER_BYTES_MAX, "a header longer than any transport takes");
        assert!(len <= longest as usize, "a payload longer than this way takes");
        let (peer, sizes) = (way.peer, way.sizes);
        let shared = Rc::clone(&self.shared);
        let mut network = shared.borrow_mut();
        let (lies, mut garbling) = (network.lies(me), Random(network.random.bits()));
        let pipe = network.pipes.entry((me, peer)).or_default();
        let full = match class {
            Class::Data => pipe.data.len() >= sizes.data_depth as usize,
            Class::Control => pipe.control.len() >= sizes.control_depth as usize,
            Class::Mailbox => false,
        };
        if checked == Err(SendError::Busy) || full {
            self.way(to).refused = true;
            return Err(checked.err().unwrap_or(SendError::Busy));
        }
        checked?;
        let mut payload = vec![0; len];
        fill(WriteSlot::from(&mut payload[..]));
        let mut item = Item { id, header: header.to_vec(), payload };
        if lies {
            item.garble(&mut garbling);
        }
        let replaced = match class {
            Class::Data => {
                pipe.data.push_back(item);
                false
            }
            Class::Control => {
                pipe.control.push_back(item);
                false
            }
            Class::Mailbox => pipe.mailboxes.insert(id, item).is_some(),
        };
        network.sent += u64::from(!replaced);
        network.rung.insert(peer);
        Ok(())
    }

    fn send_chunk(
        &mut self,
        to: u32,
        stream: Stream,
        len: usize,
        fill: impl FnOnce(WriteSlot<'_>),
    ) -> Result<(), SendError> {
        let me = self.me;
        let checked = self.check(to);
        let way = self.way(to);
        assert!(len <= way.sizes.chunk_bytes as usize, "a chunk longer than this way takes");
        let (peer, sizes) = (way.peer, way.sizes);
        let shared = Rc::clone(&self.shared);
        let mut network = shared.borrow_mut();
        let stream = if network.lies(me) { Stream(network.random.bits() as u32) } else { stream };
        let pipe = network.pipes.entry((me, peer)).or_default();
        if checked == Err(SendError::Busy) || pipe.chunks.len() >= sizes.chunk_depth as usize {
            self.way(to).refused = true;
            return Err(checked.err().unwrap_or(SendError::Busy));
        }
        checked?;
        let mut bytes = vec![0; len];
        fill(WriteSlot::from(&mut bytes[..]));
        pipe.chunks.push_back((stream, bytes));
        network.sent += 1;
        network.rung.insert(peer);
        Ok(())
    }

    fn ready(&self, from: u32) -> bool {
        let way = &self.endpoints[from as usize];
        way.state == State::Standing
            && self.shared.borrow().pipes.get(&(way.peer, self.me)).is_some_and(|pipe| !pipe.is_empty())
    }

    /// A blocking receive that looks may see what lies there, or miss it.
    fn has_message(&self, from: u32) -> bool {
        let way = &self.endpoints[from as usize];
        let mut network = self.shared.borrow_mut();
        let seen = way.state == State::Standing && network.random.once_in(2);
        seen && network.pipes.get(&(way.peer, self.me)).is_some_and(|pipe| !pipe.data.is_empty())
    }

    fn take_message(&mut self, _now: Instant, from: u32, sink: &mut impl Sink<u32>) -> u32 {
        let way = &self.endpoints[from as usize];
        let mut network = self.shared.borrow_mut();
        let Some(pipe) = network.pipes.get_mut(&(way.peer, self.me)) else { return 0 };
        let Some(item) = pipe.data.pop_front() else { return 0 };
        network.rung.insert(way.peer);
        network.delivered += 1;
        drop(network);
        Arrival::Message(item).hand_up(way.index, sink);
        1
    }

    fn progress(&mut self, _now: Instant, budget: u32, sink: &mut impl Sink<u32>) -> u32 {
        let ways = self.endpoints.len();
        let mut events = 0;
        for _ in 0..ways {
            if events >= budget {
                break;
            }
            self.next = (self.next + 1) % ways;
            events += self.progress_one(self.next, budget - events, sink);
        }
        events
    }

    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), Pending> {
        let moves = |way: &Way| match way.state {
            State::Connecting | State::Severing => true,
            State::Standing => way.refused && self.has_room(way),
            State::Quarantined | State::Severed => false,
        };
        let ready = (0..self.endpoints.len() as u32).any(|endpoint| self.ready(endpoint));
        if ready || self.endpoints.iter().any(moves) {
            return Err(Pending);
        }
        wake.futex = true;
        Ok(())
    }

    fn disarm(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::{FabricBtl, Network, Shared, Sizes};
    use mend_transport::conformance::Fixture;

    struct Seeded(#[expect(dead_code, reason = "keeps the network alive")] Shared);

    impl Fixture for Seeded {
        type Btl = FabricBtl;
        /// Deliveries wait for the seed.
        const EXACT: bool = false;

        fn start(count: usize) -> (Self, Vec<FabricBtl>) {
            let shared = Network::new(count as u64);
            // The suite fills queues before anybody receives, so they must have the room that real ones have.
            let sizes = Sizes {
                data_depth: 64,
                control_depth: 16,
                chunk_depth: 16,
                inline_bytes_max: 64,
                packed_bytes_max: 4_096,
                chunk_bytes: 4_096,
            };
            let btls = (0..count as u32).map(|me| FabricBtl::new(&shared, me, sizes));
            let btls = btls.collect();
            (Seeded(shared), btls)
        }
    }

    mod conforms {
        mend_transport::conformance!(super::Seeded);
    }

    mod conserves {
        use mend_transport::conformance::Counted;
        mend_transport::conformance!(Counted<super::Seeded>);
    }
}
