// SPDX-License-Identifier: Apache-2.0 OR MIT
//! For tests: a job of a few engines in one thread. The test decides which evidence the transport reports, how many messages it
//! receives at once, and which notices the runtime gives.

use crate::layers::Layers;
use crate::{Config, Engine};
use mend_base::{Instant, Job, Peer, PeerIndex};
use mend_pml::Ob1;
use mend_runtime::{Membership, Notice, RESULT_BYTES_MAX, ResultKey, Runtime, RuntimeError};
use mend_transport::{
    Ability, AmId, Btl, Card, Cause, ConnectError, EventPending, Limits, MessageClass, PayloadWriter,
    SendError, Sink, Stream, TransportId, WakeSet,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// The job of all these processes.
pub(crate) const JOB: Job = Job(3);

/// The peer with rank `number` in that job.
pub(crate) const fn peer(number: u32) -> Peer {
    Peer::new(JOB, number)
}

#[derive(Debug)]
enum Item {
    Message(AmId, Vec<u8>, Vec<u8>),
    Chunk(Stream, Vec<u8>),
}

#[derive(Debug, Default)]
struct JobState {
    /// Sent and not received, by sender and receiver.
    in_flight: BTreeMap<(u32, u32), VecDeque<Item>>,
    /// Given by the runtime and not taken, by rank.
    notices: BTreeMap<u32, VecDeque<Notice>>,
    /// The calls of `Runtime::ask`: the asking rank, and the peer that it asked about.
    asked: Vec<(u32, Peer)>,
    /// The calls of `Runtime::refuse`: the refusing rank, the peer, and the cause.
    refused: Vec<(u32, Peer, Cause)>,
    /// The calls of `Runtime::leave_result`: the rank, the key and the result.
    left_results: Vec<(u32, ResultKey, Vec<u8>)>,
    /// The calls of `Runtime::recall_result`: the asking rank, and the key.
    recalled: Vec<(u32, ResultKey)>,
    /// The ranks that have finalized.
    finalized: Vec<u32>,
    /// The calls of `abort` (no peers) and `abort_some`, with their exit codes.
    aborted: Vec<(i32, Vec<Peer>)>,
}

/// A job in which the test causes every event.
#[derive(Debug, Default, Clone)]
pub(crate) struct ScriptedJob(Rc<RefCell<JobState>>);

/// One engine of the job.
pub(crate) type Process = Engine<ScriptedTransport, ScriptedRuntime>;

impl ScriptedJob {
    /// The engine of rank `me` of `size`.
    pub fn process(&self, me: u32, size: u32) -> Process {
        let (net, runtime) = self.transport_and_runtime(me, size);
        Engine::with_config(net, runtime, config()).expect("the scripted runtime accepts every card")
    }

    /// The same, in a job that is not fault tolerant.
    pub fn process_without_ft(&self, me: u32, size: u32) -> Process {
        let (net, mut runtime) = self.transport_and_runtime(me, size);
        runtime.membership.fault_tolerant = false;
        Engine::with_config(net, runtime, config()).expect("the scripted runtime accepts every card")
    }

    /// The layers below the engine of rank `me` of `size`.
    pub fn layers(&self, me: u32, size: u32) -> Layers<ScriptedTransport, ScriptedRuntime> {
        let (net, runtime) = self.transport_and_runtime(me, size);
        Layers { net, pml: Ob1::new(config()), runtime }
    }

    fn transport_and_runtime(&self, me: u32, size: u32) -> (ScriptedTransport, ScriptedRuntime) {
        let (endpoints, evidence, receives_max, is_flushed) = (Vec::new(), Vec::new(), usize::MAX, true);
        let net = ScriptedTransport { me, endpoints, job: self.clone(), evidence, receives_max, is_flushed };
        let membership = Membership {
            peer: peer(me),
            size,
            node_slot: me,
            node_slots: size,
            local_ranks: size,
            fault_tolerant: true,
        };
        (net, ScriptedRuntime { membership, job: self.clone(), version: 0 })
    }

    /// The runtime of rank `to` gives this notice after those before.
    pub fn notify(&self, to: u32, notice: Notice) {
        self.0.borrow_mut().notices.entry(to).or_default().push_back(notice);
    }

    /// What this rank has sent and no other has received is lost, since the rank dies.
    pub fn lose_messages(&self, from: u32) {
        self.0.borrow_mut().in_flight.retain(|&(sender, _), _| sender != from);
    }

    /// The runtime of rank `to` gives the contact of rank `about`.
    pub fn give_contact(&self, to: u32, about: u32) {
        self.notify(to, Notice::Contact { peer: peer(about), card: card(about) });
    }

    /// The transport delivers this message, which the first of these ranks has not sent.
    pub fn give_message(&self, (from, to): (u32, u32), id: AmId, header: Vec<u8>) {
        let item = Item::Message(id, header, Vec::new());
        self.0.borrow_mut().in_flight.entry((from, to)).or_default().push_back(item);
    }

    /// Exit code and peers of each abort so far; no peers: the whole job was aborted.
    pub fn aborted(&self) -> Vec<(i32, Vec<Peer>)> {
        self.0.borrow().aborted.clone()
    }

    /// The calls of `Runtime::ask` so far: the asking rank, and the peer that it asked about.
    pub fn asked(&self) -> Vec<(u32, Peer)> {
        self.0.borrow().asked.clone()
    }

    /// The results that were left so far: by which rank, under which key. A result that a rank leaves after it has finalized
    /// panics.
    pub fn left_results(&self) -> Vec<(u32, ResultKey, Vec<u8>)> {
        self.0.borrow().left_results.clone()
    }

    /// The calls of `Runtime::recall_result` so far: the asking rank, and the key. The test answers with
    /// [`give_recalled`](ScriptedJob::give_recalled).
    pub fn recalled(&self) -> Vec<(u32, ResultKey)> {
        self.0.borrow().recalled.clone()
    }

    /// The runtime of rank `to` gives the answer to a question for a result.
    pub fn give_recalled(&self, to: u32, key: ResultKey, result: Option<&[u8]>) {
        self.notify(to, Notice::Recalled { key, result: result.map(<[u8]>::to_vec) });
    }

    /// The ranks that have finalized.
    pub fn finalized(&self) -> Vec<u32> {
        self.0.borrow().finalized.clone()
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
    Card { layout: Card::LAYOUT, entries, ..Card::default() }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open,
    Quarantined,
    Severing,
    Severed,
}

/// The transport of one process.
#[derive(Debug)]
pub(crate) struct ScriptedTransport {
    me: u32,
    /// The rank and the state of each, by endpoint.
    endpoints: Vec<(u32, PeerIndex, State)>,
    job: ScriptedJob,
    /// Evidence that the next progress reports: the rank, and the cause.
    pub evidence: Vec<(u32, Cause)>,
    /// So many messages of each endpoint are received by one call of progress; an endpoint that is being severed is drained.
    pub receives_max: usize,
    /// The peers have received everything.
    pub is_flushed: bool,
}

impl mend_transport::Rdma for ScriptedTransport {}

impl Btl for ScriptedTransport {
    type Endpoint = u32;

    fn advertise(&self, card: &mut Card) {
        card.entries.push((TransportId::SHM, vec![self.me as u8]));
    }

    fn connect(&mut self, index: PeerIndex, card: &Card) -> Result<u32, ConnectError> {
        let number = card.entry(TransportId::SHM).ok_or(ConnectError::Unreachable)?[0];
        self.endpoints.push((u32::from(number), index, State::Open));
        Ok(self.endpoints.len() as u32 - 1)
    }

    fn limits(&self, _to: u32) -> &Limits {
        const {
            &Limits {
                abilities: Ability::Streams as u32 | Ability::Polling as u32,
                emulated: 0,
                control_bytes_max: 24,
                message_bytes_max: 256,
                eager_bytes: 256,
                chunk_bytes: 256,
                transfer_bytes_max: 0,
            }
        }
    }

    fn quarantine(&mut self, endpoint: u32) {
        self.endpoints[endpoint as usize].2 = State::Quarantined;
    }

    fn resume(&mut self, endpoint: u32) {
        self.endpoints[endpoint as usize].2 = State::Open;
    }

    fn sever(&mut self, endpoint: u32) {
        self.endpoints[endpoint as usize].2 = State::Severing;
    }

    fn send(
        &mut self,
        to: u32,
        _class: MessageClass,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        let mut payload = vec![0; len];
        self.check(to)?;
        fill(PayloadWriter::from(&mut payload[..]));
        self.put(to, Item::Message(id, header.to_vec(), payload));
        Ok(())
    }

    fn send_chunk(
        &mut self,
        to: u32,
        stream: Stream,
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        let mut payload = vec![0; len];
        self.check(to)?;
        fill(PayloadWriter::from(&mut payload[..]));
        self.put(to, Item::Chunk(stream, payload));
        Ok(())
    }

    fn ready(&self, _from: u32) -> bool {
        true
    }

    fn progress(&mut self, _now: Instant, _budget: u32, sink: &mut impl Sink<u32>) -> u32 {
        let mut events = 0;
        for (number, cause) in core::mem::take(&mut self.evidence) {
            let at = self
                .endpoints
                .iter()
                .position(|endpoint| endpoint.0 == number)
                .expect("evidence names a connected rank");
            sink.on_error(self.endpoints[at].1, at as u32, cause);
            events += 1;
        }
        for at in 0..self.endpoints.len() {
            let (number, index, state) = self.endpoints[at];
            if matches!(state, State::Quarantined | State::Severed) {
                continue;
            }
            let most = if state == State::Severing { usize::MAX } else { self.receives_max };
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
                self.endpoints[at].2 = State::Severed;
                sink.on_severed(index, at as u32);
                events += 1;
            }
        }
        events
    }

    fn is_flushed(&mut self, _needs: &mut dyn FnMut(PeerIndex) -> bool) -> bool {
        self.is_flushed
    }

    fn arm(&mut self, _wake: &mut WakeSet) -> Result<(), EventPending> {
        Ok(())
    }

    fn disarm(&mut self) {}
}

impl ScriptedTransport {
    fn check(&self, to: u32) -> Result<(), SendError> {
        if self.endpoints[to as usize].2 == State::Open { Ok(()) } else { Err(SendError::Busy) }
    }

    fn put(&mut self, to: u32, item: Item) {
        let pair = (self.me, self.endpoints[to as usize].0);
        self.job.0.borrow_mut().in_flight.entry(pair).or_default().push_back(item);
    }
}

impl ScriptedJob {
    fn take(&self, from: u32, to: u32) -> Option<Item> {
        self.0.borrow_mut().in_flight.get_mut(&(from, to))?.pop_front()
    }
}

/// The runtime of one process.
#[derive(Debug)]
pub(crate) struct ScriptedRuntime {
    membership: Membership,
    job: ScriptedJob,
    version: u32,
}

impl Runtime for ScriptedRuntime {
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

    fn notice_version(&self) -> u32 {
        let job = self.job.0.borrow();
        let waiting = job.notices.get(&self.membership.peer.number()).map_or(0, VecDeque::len);
        self.version.wrapping_add(waiting as u32)
    }

    fn notice(&mut self) -> Option<Notice> {
        let notice = self.job.0.borrow_mut().notices.get_mut(&self.membership.peer.number())?.pop_front();
        self.version = self.version.wrapping_add(u32::from(notice.is_some()));
        notice
    }

    fn leave_result(&mut self, key: ResultKey, result: &[u8]) {
        let me = self.membership.peer.number();
        let mut job = self.job.0.borrow_mut();
        assert!(result.len() <= RESULT_BYTES_MAX && !job.finalized.contains(&me));
        job.left_results.push((me, key, result.to_vec()));
    }

    fn recall_result(&mut self, key: ResultKey) {
        self.job.0.borrow_mut().recalled.push((self.membership.peer.number(), key));
    }

    fn finalize(&mut self) {
        self.job.0.borrow_mut().finalized.push(self.membership.peer.number());
    }

    fn abort(&mut self, code: i32) {
        self.job.0.borrow_mut().aborted.push((code, Vec::new()));
    }

    fn abort_some(&mut self, code: i32, peers: &[Peer]) {
        self.job.0.borrow_mut().aborted.push((code, peers.to_vec()));
    }
}
