// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random point-to-point messages: all sizes and modes, wildcards, probes, cancels, truncation, and waits in any order.
//!
//! All ranks draw the same plan, a list of messages, and each rank executes its own sends and receives in the order of the
//! plan. No schedule can deadlock: consider the blocked operation with the lowest number. Its partner has started
//! everything up to that number, since the partner is not blocked at a lower one; so both halves are started, and the
//! operation completes. A wildcard receive may match a message of a higher number, so the senders of wildcard messages wait
//! only at the end.
//!
//! Each kind of receive has its own communicator, so that the plan determines which messages a receive may match.

use crate::Process;
use crate::oracle::{EndedBuffers, assert_content, assert_status, content, overwrite, poisoned};
use crate::process::SimOperation;
use mend_base::{Random, Rank, Source, Tag, TagSelector};
use mend_mpi::{CommKey, Detail, ErrorClass, SendMode, Status};
use mend_transport::Buffer;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// One message of the plan.
#[derive(Clone, Copy, Debug)]
struct Message {
    id: u64,
    from: Rank,
    to: Rank,
    tag: Tag,
    bytes: usize,
    mode: SendMode,
    kind: Kind,
}

/// How a message is received: by named source and tag, by source and any tag, by tag from any source, or by neither.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Named,
    AnyTag,
    AnySource,
    Anything,
}

const KINDS: [Kind; 4] = [Kind::Named, Kind::AnyTag, Kind::AnySource, Kind::Anything];
/// A tag with which no rank sends.
const UNUSED_TAG: Tag = Tag(Tag::MAX.0);

impl Message {
    fn draw(random: &mut Random, id: u64, size: u32) -> Message {
        let rank = |random: &mut Random| Rank(random.below(size.into()) as u32);
        let mode = [SendMode::Standard, SendMode::Standard, SendMode::Synchronous, SendMode::Ready];
        Message {
            id,
            from: rank(random),
            to: rank(random),
            tag: Tag([0, 1, 2, Tag::MAX.0 - 1][random.below(4) as usize]),
            bytes: draw_bytes(random),
            mode: mode[random.below(4) as usize],
            kind: KINDS[random.below(4) as usize],
        }
    }

    fn wildcard(&self) -> bool {
        matches!(self.kind, Kind::AnySource | Kind::Anything)
    }

    fn source(&self) -> Source {
        if self.wildcard() { Source::Any } else { Source::Rank(self.from) }
    }

    fn tags(&self) -> TagSelector {
        match self.kind {
            Kind::Named | Kind::AnySource => TagSelector::Tag(self.tag),
            Kind::AnyTag | Kind::Anything => TagSelector::Any,
        }
    }
}

fn draw_bytes(random: &mut Random) -> usize {
    let most = match random.below(50) {
        0..30 => 64,
        30..44 => 2_000,
        44..49 => 10_000,
        _ => 65_536,
    };
    random.below(most + 1) as usize
}

/// What one rank has started, and what it still expects.
struct Traffic {
    process: Process,
    comms: [CommKey; 4],
    sends: Vec<(SimOperation, Arc<Buffer>)>,
    receives: Vec<Receive>,
    /// Messages that wildcards have not received: by kind, by tag where the receives name one, and by sender, in order.
    expected: BTreeMap<(Kind, Option<Tag>, Rank), VecDeque<Message>>,
    /// The wildcard receives in the order in which they were posted, each with its result.
    wildcards: Vec<Option<(Message, Status, Arc<Buffer>)>>,
    ended_buffers: EndedBuffers,
}

struct Receive {
    message: Message,
    operation: SimOperation,
    buffer: Arc<Buffer>,
    /// Its index in [`Traffic::wildcards`].
    wildcard: Option<usize>,
}

/// One job.
pub async fn run(process: Process) {
    let plan = draw_plan(&process);
    process.at("traffic: dup", 0);
    let world = process.mpi.engine().comm_world();
    let mut comms = [world; 4];
    for comm in &mut comms[1..] {
        *comm = process.mpi.dup(world).await.expect("all members live").expect("this rank is a member");
    }
    let mut traffic = Traffic {
        process: process.clone(),
        comms,
        sends: Vec::new(),
        receives: Vec::new(),
        expected: BTreeMap::new(),
        wildcards: Vec::new(),
        ended_buffers: EndedBuffers::default(),
    };
    for message in &plan {
        traffic.expect(message);
    }
    for message in plan {
        traffic.step(message).await;
    }
    traffic.end().await;
    for comm in &comms[1..] {
        process.mpi.free(*comm).expect("this rank has created it");
    }
}

fn draw_plan(process: &Process) -> Vec<Message> {
    let mut random = process.shared_random.borrow_mut();
    let count = 1 + random.below(40 * u64::from(process.size));
    (0..count).map(|id| Message::draw(&mut random, id, process.size)).collect()
}

impl Traffic {
    fn comm(&self, kind: Kind) -> CommKey {
        self.comms[kind as usize]
    }

    fn expect(&mut self, message: &Message) {
        if message.to == self.process.rank && message.wildcard() {
            self.expected.entry(place(message)).or_default().push_back(*message);
        }
    }

    async fn step(&mut self, message: Message) {
        let me = self.process.rank;
        if message.from == me {
            self.process.at("traffic: send", message.id);
            let data = Buffer::from_bytes(&content(message.id, message.bytes));
            let comm = self.comm(message.kind);
            let sent = self.process.mpi.send_as(message.mode, comm, message.to, message.tag, &data);
            self.sends.push((sent, data));
        }
        if message.to == me {
            self.receive(message).await;
        }
        if message.from == me && !message.wildcard() && self.process.below(4) == 0 {
            let (sent, data) = self.sends.pop().expect("this message was sent above");
            self.end_send(sent, data).await;
        }
        if !self.receives.is_empty() && self.process.below(3) == 0 {
            let at = self.process.below(self.receives.len() as u64) as usize;
            let receive = self.receives.swap_remove(at);
            self.end_receive(receive).await;
        }
        if self.process.below(4) == 0 {
            self.process.pause().await;
        }
    }

    async fn receive(&mut self, message: Message) {
        self.process.at("traffic: receive", message.id);
        let mut length = message.bytes + [0, 0, 1, 100][self.process.below(4) as usize];
        if !message.wildcard() {
            match self.process.below(16) {
                0 if self.receives.is_empty() => self.probe(message).await,
                1 => self.cancel(message).await,
                2 => self.drop_receive().await,
                // A buffer that is too short: the receive ends with MPI_ERR_TRUNCATE.
                3 => length = self.process.below(message.bytes as u64 + 1) as usize,
                _ => {}
            }
        } else {
            // Long enough for each message that the wildcard may match.
            length = self.longest(message) + 3;
        }
        let buffer = poisoned(length);
        let comm = self.comm(message.kind);
        let operation = self.process.mpi.receive(comm, message.source(), message.tags(), &buffer);
        let wildcard = message.wildcard().then(|| {
            self.wildcards.push(None);
            self.wildcards.len() - 1
        });
        self.receives.push(Receive { message, operation, buffer, wildcard });
    }

    /// The length of the longest message that this wildcard may match.
    fn longest(&self, message: Message) -> usize {
        let same = |key: &(Kind, Option<Tag>, Rank)| (key.0, key.1) == (place(&message).0, place(&message).1);
        let lists = self.expected.iter().filter(|(key, _)| same(key)).flat_map(|(_, list)| list);
        lists.map(|each| each.bytes).max().unwrap_or(0)
    }

    /// No receive is posted here, so the probe finds the message for which the next receive is posted.
    async fn probe(&mut self, message: Message) {
        self.process.at("traffic: probe", message.id);
        let (comm, mpi) = (self.comm(message.kind), self.process.mpi.clone());
        let status = mpi.probe(comm, message.source(), message.tags()).await.expect("the sender lives");
        assert_status(status, message.from, message.tag, message.bytes);
    }

    /// Posts a receive that no message matches, and cancels it.
    async fn cancel(&mut self, message: Message) {
        self.process.at("traffic: cancel", message.id);
        let buffer = poisoned(3);
        let tag = TagSelector::Tag(UNUSED_TAG);
        let comm = self.comm(Kind::Named);
        let mut operation = self.process.mpi.receive(comm, Source::Rank(message.from), tag, &buffer);
        self.process.pause().await;
        operation.cancel();
        match operation.await {
            Ok(status) => assert!(status.cancelled, "no rank sends with this tag"),
            Err(error) => {
                assert_eq!(
                    error.detail,
                    Detail::PeerLeft(message.from),
                    "only a rank that has left ends such a receive"
                )
            }
        }
    }

    /// Posts a receive that no message matches, and drops it.
    async fn drop_receive(&mut self) {
        let buffer = poisoned(8);
        let tag = TagSelector::Tag(UNUSED_TAG);
        drop(self.process.mpi.receive(self.comm(Kind::AnySource), Source::Any, tag, &buffer));
        self.process.pause().await;
        self.ended_buffers.add(&buffer);
    }

    async fn end_send(&mut self, sent: SimOperation, data: Arc<Buffer>) {
        sent.await.expect("the receiver lives");
        overwrite(&data);
        self.ended_buffers.add(&data);
    }

    async fn end_receive(&mut self, receive: Receive) {
        let Receive { message, operation, buffer, wildcard } = receive;
        self.process.at("traffic: wait for", message.id);
        let result = operation.await;
        self.ended_buffers.add(&buffer);
        if let Some(at) = wildcard {
            let status = result.expect("its buffer is long enough");
            self.wildcards[at] = Some((message, status, buffer));
            return;
        }
        if message.bytes > buffer.len() {
            let error = result.expect_err("a message longer than its buffer");
            assert_eq!(error.class, ErrorClass::Truncate);
        } else {
            assert_status(result.expect("the sender lives"), message.from, message.tag, message.bytes);
        }
        assert_content(&buffer, message.id, message.bytes);
    }

    async fn end(mut self) {
        while !self.receives.is_empty() {
            let at = self.process.below(self.receives.len() as u64) as usize;
            let receive = self.receives.swap_remove(at);
            self.end_receive(receive).await;
        }
        self.process.at("traffic: wait for sends", self.sends.len() as u64);
        for (sent, data) in std::mem::take(&mut self.sends) {
            self.end_send(sent, data).await;
        }
        self.check_wildcards();
        self.ended_buffers.assert_unchanged();
    }

    /// Wildcards match in the order in which they were posted, and the messages of one sender in the order in which they were
    /// sent (MPI-5.0 §3.5). So each wildcard has received the next message of its sender.
    fn check_wildcards(&mut self) {
        for got in std::mem::take(&mut self.wildcards) {
            let (posted, status, buffer) = got.expect("every receive was waited for");
            let source = status.source.expect("a message has a source");
            let (kind, tag, _) = place(&posted);
            let list = self
                .expected
                .get_mut(&(kind, tag, source))
                .expect("the plan has such messages of this sender");
            let message = list.pop_front().expect("this sender has sent no more messages");
            assert_status(status, message.from, message.tag, message.bytes);
            assert_content(&buffer, message.id, message.bytes);
        }
        assert!(self.expected.values().all(VecDeque::is_empty), "a message was lost");
    }
}

/// The key in [`Traffic::expected`] of a message.
fn place(message: &Message) -> (Kind, Option<Tag>, Rank) {
    let tag = (message.kind == Kind::AnySource).then_some(message.tag);
    (message.kind, tag, message.from)
}
