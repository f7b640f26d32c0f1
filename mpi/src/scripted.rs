// SPDX-License-Identifier: Apache-2.0 OR MIT
//! For tests: a job of few engines over wires that a test cuts where it likes, and a launcher that says what the test says.

use crate::layers::Layers;
use crate::{Config, Engine};
use mend_base::{Instant, Job, Peer, PeerIndex};
use mend_pml::Ob1;
use mend_runtime::{Membership, Notice, Runtime, RuntimeError};
use mend_transport::{
    Ability, AmId, Btl, Card, Cause, Class, ConnectError, Limits, Pending, SendError, Sink, Stream,
    TransportId, WakeSet, WriteSlot,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// The job that all of these processes are of.
pub(crate) const JOB: Job = Job(3);

/// Rank `number` of it.
pub(crate) fn peer(number: u32) -> Peer {
    Peer::new(JOB, number)
}

#[derive(Debug)]
enum Item {
    Message(AmId, Vec<u8>, Vec<u8>),
    Chunk(Stream, Vec<u8>),
}

/// What lies between the processes, by sender and receiver; what each launcher's line holds; what was asked and ended.
#[derive(Debug, Default)]
struct JobScript {
    wires: BTreeMap<(u32, u32), VecDeque<Item>>,
    said: BTreeMap<u32, VecDeque<Notice>>,
    asked: Vec<(u32, Peer)>,
    refused: Vec<(u32, Peer, Cause)>,
    aborted: Vec<(i32, Vec<Peer>)>,
}

/// A job whose every event is the test's.
#[derive(Debug, Default, Clone)]
pub(crate) struct Rehearsal(Rc<RefCell<JobScript>>);

/// One engine of it.
pub(crate) type Process = Engine<Wires, Script>;

impl Rehearsal {
    /// Rank `me` of `size`.
    pub fn process(&self, me: u32, size: u32) -> Process {
        let (wires, script) = self.ends(me, size);
        Engine::with_config(wires, script, config()).expect("the script takes every card")
    }

    /// What lies below the engine of such a rank.
    pub fn layers(&self, me: u32, size: u32) -> Layers<Wires, Script> {
        let (net, runtime) = self.ends(me, size);
        Layers { net, pml: Ob1::new(config()), runtime }
    }

    fn ends(&self, me: u32, size: u32) -> (Wires, Script) {
        let (ways, evidence, pace) = (Vec::new(), Vec::new(), usize::MAX);
        let wires = Wires { me, ways, job: self.clone(), evidence, pace };
        let membership = Membership {
            peer: peer(me),
            size,
            slot: me,
            slots: size,
            local_ranks: size,
            fault_tolerant: true,
        };
        (wires, Script { membership, job: self.clone(), version: 0 })
    }

    /// The launcher of `to` says this next.
    pub fn say(&self, to: u32, notice: Notice) {
        self.0.borrow_mut().said.entry(to).or_default().push_back(notice);
    }

    /// The launcher tells `to` how to reach `about`.
    pub fn introduce(&self, to: u32, about: u32) {
        self.say(to, Notice::Contact { peer: peer(about), card: card(about) });
    }

    /// With which codes who was to be ended, so far; nobody named: everybody.
    pub fn aborted(&self) -> Vec<(i32, Vec<Peer>)> {
        self.0.borrow().aborted.clone()
    }

    /// Who asked about whom, so far.
    pub fn asked(&self) -> Vec<(u32, Peer)> {
        self.0.borrow().asked.clone()
    }

    /// Which processes refused which peers, and why.
    pub fn refused(&self) -> Vec<(u32, Peer, Cause)> {
        self.0.borrow().refused.clone()
    }
}

fn config() -> Config {
    Config { eager_bytes: 64, ..Config::default() }
}

/// The card of rank `number`.
pub(crate) fn card(number: u32) -> Card {
    let entries = vec![(TransportId::SHM, vec![number as u8])];
    Card { layout: Card::LAYOUT, entries, descriptor: None }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Standing,
    Quarantined,
    Severing,
    Severed,
}

/// Every wire of one process.
#[derive(Debug)]
pub(crate) struct Wires {
    me: u32,
    ways: Vec<(u32, PeerIndex, State)>,
    job: Rehearsal,
    /// What the next progress reports against whom.
    pub evidence: Vec<(u32, Cause)>,
    /// The most that one progress takes from each wire; one that is severed is drained.
    pub pace: usize,
}

impl Btl for Wires {
    type Endpoint = u32;

    fn advertise(&self, card: &mut Card) {
        card.entries.push((TransportId::SHM, vec![self.me as u8]));
    }

    fn connect(&mut self, index: PeerIndex, card: &Card) -> Result<u32, ConnectError> {
        let number = card.entry(TransportId::SHM).ok_or(ConnectError::Unreachable)?[0];
        self.ways.push((u32::from(number), index, State::Standing));
        Ok(self.ways.len() as u32 - 1)
    }

    fn limits(&self, _to: u32) -> &Limits {
        const {
            &Limits {
                abilities: Ability::Streams as u32,
                inline_bytes_max: 24,
                packed_bytes_max: 256,
                chunk_bytes: 256,
                transfer_bytes_max: 0,
            }
        }
    }

    fn quarantine(&mut self, endpoint: u32) {
        self.ways[endpoint as usize].2 = State::Quarantined;
    }

    fn resume(&mut self, endpoint: u32) {
        self.ways[endpoint as usize].2 = State::Standing;
    }

    fn sever(&mut self, endpoint: u32) {
        self.ways[endpoint as usize].2 = State::Severing;
    }

    fn send(
        &mut self,
        to: u32,
        _class: Class,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(WriteSlot<'_>),
    ) -> Result<(), SendError> {
        let mut payload = vec![0; len];
        self.check(to)?;
        fill(WriteSlot::from(&mut payload[..]));
        self.put(to, Item::Message(id, header.to_vec(), payload));
        Ok(())
    }

    fn send_chunk(
        &mut self,
        to: u32,
        stream: Stream,
        len: usize,
        fill: impl FnOnce(WriteSlot<'_>),
    ) -> Result<(), SendError> {
        let mut payload = vec![0; len];
        self.check(to)?;
        fill(WriteSlot::from(&mut payload[..]));
        self.put(to, Item::Chunk(stream, payload));
        Ok(())
    }

    fn ready(&self, _from: u32) -> bool {
        true
    }

    fn progress(&mut self, _now: Instant, _budget: u32, sink: &mut impl Sink<u32>) -> u32 {
        let mut events = 0;
        for (number, cause) in core::mem::take(&mut self.evidence) {
            let at = self.ways.iter().position(|way| way.0 == number).expect("a way that there is");
            sink.on_error(self.ways[at].1, at as u32, cause);
            events += 1;
        }
        for at in 0..self.ways.len() {
            let (number, index, state) = self.ways[at];
            if matches!(state, State::Quarantined | State::Severed) {
                continue;
            }
            let most = if state == State::Severing { usize::MAX } else { self.pace };
            for _ in 0..most {
                let Some(item) = self.job.take(number, self.me) else { break };
                match item {
                    Item::Message(id, header, payload) => {
                        sink.on_message(index, id, &header, payload.as_slice().into());
                    }
                    Item::Chunk(stream, payload) => sink.on_chunk(index, stream, payload.as_slice().into()),
                }
                events += 1;
            }
            if state == State::Severing {
                self.ways[at].2 = State::Severed;
                sink.on_severed(index, at as u32);
                events += 1;
            }
        }
        events
    }

    fn arm(&mut self, _wake: &mut WakeSet) -> Result<(), Pending> {
        Ok(())
    }

    fn disarm(&mut self) {}
}

impl Wires {
    fn check(&self, to: u32) -> Result<(), SendError> {
        if self.ways[to as usize].2 == State::Standing { Ok(()) } else { Err(SendError::Busy) }
    }

    fn put(&mut self, to: u32, item: Item) {
        let wire = (self.me, self.ways[to as usize].0);
        self.job.0.borrow_mut().wires.entry(wire).or_default().push_back(item);
    }
}

impl Rehearsal {
    fn take(&self, from: u32, to: u32) -> Option<Item> {
        self.0.borrow_mut().wires.get_mut(&(from, to))?.pop_front()
    }
}

/// A launcher's line to one process.
#[derive(Debug)]
pub(crate) struct Script {
    membership: Membership,
    job: Rehearsal,
    version: u32,
}

impl Runtime for Script {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn publish(&mut self, _card: &Card) -> Result<(), RuntimeError> {
        Ok(())
    }

    fn lookup(&mut self, _peer: Peer) -> Result<(), RuntimeError> {
        Ok(())
    }

    fn refuse(&mut self, peer: Peer, cause: Cause) {
        self.job.0.borrow_mut().refused.push((self.membership.peer.number(), peer, cause));
    }

    fn ask(&mut self, peer: Peer, _cause: Cause) {
        self.job.0.borrow_mut().asked.push((self.membership.peer.number(), peer));
    }

    fn fault_version(&self) -> u32 {
        let script = self.job.0.borrow();
        let waiting = script.said.get(&self.membership.peer.number()).map_or(0, VecDeque::len);
        self.version.wrapping_add(waiting as u32)
    }

    fn notice(&mut self) -> Option<Notice> {
        let notice = self.job.0.borrow_mut().said.get_mut(&self.membership.peer.number())?.pop_front();
        self.version = self.version.wrapping_add(u32::from(notice.is_some()));
        notice
    }

    fn finalize(&mut self) {}

    fn abort(&mut self, code: i32) {
        self.job.0.borrow_mut().aborted.push((code, Vec::new()));
    }

    fn abort_some(&mut self, code: i32, peers: &[Peer]) {
        self.job.0.borrow_mut().aborted.push((code, peers.to_vec()));
    }
}
