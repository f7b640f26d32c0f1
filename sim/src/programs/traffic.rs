// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random traffic: sizes, modes, wildcards, probes, cancels, truncation, and waits in any order.
//!
//! All ranks draw the same plan, a list of messages, and walk it in order, each doing what concerns it. That no schedule
//! can deadlock follows: take the blocked operation of the lowest number; everybody else has started all that has a lower
//! or the same number, or is blocked at a higher one; so its partner's half has been started. Where a wildcard may take
//! the message of a later number, its sender does not wait before the end.
//!
//! Each kind of receive has a communicator of its own, so that the plan knows what may match what:
//! named source and tag; named source, any tag; any source, named tag; any source, any tag.

use crate::Process;
use crate::cluster::Net;
use crate::launcher::FabricRuntime;
use crate::oracle::{Silence, content, holds, poisoned, recycle, says};
use mend_base::{Random, Rank, Source, Tag, TagSelector};
use mend_mpi::{Class, CommKey, Detail, Operation, SendMode, Status};
use mend_transport::Buffer;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

type Started = Operation<Net, FabricRuntime>;

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

/// Which communicator, and so how it is received.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Named,
    AnyTag,
    AnySource,
    Anything,
}

const KINDS: [Kind; 4] = [Kind::Named, Kind::AnyTag, Kind::AnySource, Kind::Anything];
/// A tag that nobody sends with.
const NOBODYS: Tag = Tag(Tag::MAX.0);

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

/// What one rank has under way.
struct Walk {
    process: Process,
    comms: [CommKey; 4],
    sends: Vec<(Started, Arc<Buffer>)>,
    receives: Vec<Receive>,
    /// What is still to come, by kind and tag where a wildcard may take it; each sender's in order.
    expected: BTreeMap<(Kind, Option<Tag>, Rank), VecDeque<Message>>,
    /// Wildcard receives in the order they were posted, with what they got.
    wildcards: Vec<Option<(Message, Status, Arc<Buffer>)>>,
    silence: Silence,
}

struct Receive {
    message: Message,
    operation: Started,
    room: Arc<Buffer>,
    /// Its place among the wildcards.
    wildcard: Option<usize>,
}

/// One job.
pub async fn run(process: Process) {
    let plan = draw_plan(&process);
    process.at("traffic: dup", 0);
    let world = process.mpi.engine().world();
    let mut comms = [world; 4];
    for comm in &mut comms[1..] {
        *comm = process.mpi.dup(world).await.expect("a dup").expect("a member");
    }
    let mut walk = Walk {
        process: process.clone(),
        comms,
        sends: Vec::new(),
        receives: Vec::new(),
        expected: BTreeMap::new(),
        wildcards: Vec::new(),
        silence: Silence::default(),
    };
    for message in &plan {
        walk.expect(message);
    }
    for message in plan {
        walk.step(message).await;
    }
    walk.end().await;
    for comm in &comms[1..] {
        process.mpi.free(*comm).expect("our own communicator");
    }
}

fn draw_plan(process: &Process) -> Vec<Message> {
    let mut random = process.together.borrow_mut();
    let count = 1 + random.below(40 * u64::from(process.size));
    (0..count).map(|id| Message::draw(&mut random, id, process.size)).collect()
}

impl Walk {
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
            let (sent, data) = self.sends.pop().expect("it was pushed above");
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
        let mut room = message.bytes + [0, 0, 1, 100][self.process.below(4) as usize];
        if !message.wildcard() {
            match self.process.below(16) {
                0 if self.receives.is_empty() => self.probe(message).await,
                1 => self.take_back(message).await,
                2 => self.cancel_nothing().await,
                // Too little room: the message is cut off, and says so.
                3 => room = self.process.below(message.bytes as u64 + 1) as usize,
                _ => {}
            }
        } else {
            // Whatever comes, it fits: which message a wildcard takes is open.
            room = self.longest(message) + 3;
        }
        let room = poisoned(room);
        let comm = self.comm(message.kind);
        let operation = self.process.mpi.receive(comm, message.source(), message.tags(), &room);
        let wildcard = message.wildcard().then(|| {
            self.wildcards.push(None);
            self.wildcards.len() - 1
        });
        self.receives.push(Receive { message, operation, room, wildcard });
    }

    /// The longest message that this wildcard may take.
    fn longest(&self, message: Message) -> usize {
        let same = |key: &(Kind, Option<Tag>, Rank)| (key.0, key.1) == (place(&message).0, place(&message).1);
        let lists = self.expected.iter().filter(|(key, _)| same(key)).flat_map(|(_, list)| list);
        lists.map(|each| each.bytes).max().unwrap_or(0)
    }

    /// Nothing of ours is posted, so the first that matches is this one.
    async fn probe(&mut self, message: Message) {
        self.process.at("traffic: probe", message.id);
        let (comm, mpi) = (self.comm(message.kind), self.process.mpi.clone());
        let status = mpi.probe(comm, message.source(), message.tags()).await.expect("the sender lives");
        says(status, message.from, message.tag, message.bytes);
    }

    /// Starts to receive and takes it back; if it had matched already, that is the message.
    async fn take_back(&mut self, message: Message) {
        self.process.at("traffic: cancel", message.id);
        let room = poisoned(3);
        let tag = TagSelector::Tag(NOBODYS);
        let comm = self.comm(Kind::Named);
        let mut operation = self.process.mpi.receive(comm, Source::Rank(message.from), tag, &room);
        self.process.pause().await;
        operation.cancel();
        match operation.await {
            Ok(status) => assert!(status.cancelled, "nobody sends with this tag"),
            Err(error) => {
                assert_eq!(error.detail, Detail::PeerLeft(message.from), "it may have nothing more to do")
            }
        }
    }

    /// A receive that is given up without a word.
    async fn cancel_nothing(&mut self) {
        let room = poisoned(8);
        let tag = TagSelector::Tag(NOBODYS);
        drop(self.process.mpi.receive(self.comm(Kind::AnySource), Source::Any, tag, &room));
        self.process.pause().await;
        self.silence.watch(&room);
    }

    async fn end_send(&mut self, sent: Started, data: Arc<Buffer>) {
        sent.await.expect("the receiver lives");
        recycle(&data);
        self.silence.watch(&data);
    }

    async fn end_receive(&mut self, receive: Receive) {
        let Receive { message, operation, room, wildcard } = receive;
        self.process.at("traffic: wait for", message.id);
        let result = operation.await;
        self.silence.watch(&room);
        if let Some(at) = wildcard {
            let status = result.expect("a wildcard has room for all");
            self.wildcards[at] = Some((message, status, room));
            return;
        }
        if message.bytes > room.len() {
            let error = result.expect_err("a message longer than its buffer");
            assert_eq!(error.class, Class::Truncate);
        } else {
            says(result.expect("the sender lives"), message.from, message.tag, message.bytes);
        }
        holds(&room, message.id, message.bytes);
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
        self.silence.check();
    }

    /// Wildcards match in the order they were posted, and each sender's messages in the order they were sent
    /// (MPI-5.0 §3.5): whatever sender each of them took, it must be that sender's next message.
    fn check_wildcards(&mut self) {
        for got in std::mem::take(&mut self.wildcards) {
            let (posted, status, room) = got.expect("every receive was waited for");
            let source = status.source.expect("a message has a source");
            let (kind, tag, _) = place(&posted);
            let list = self.expected.get_mut(&(kind, tag, source)).expect("this rank sends such messages");
            let message = list.pop_front().expect("this rank has sent no more");
            says(status, message.from, message.tag, message.bytes);
            holds(&room, message.id, message.bytes);
        }
        assert!(self.expected.values().all(VecDeque::is_empty), "a message was lost");
    }
}

/// Among which messages a wildcard receive of this one's kind chooses.
fn place(message: &Message) -> (Kind, Option<Tag>, Rank) {
    let tag = (message.kind == Kind::AnySource).then_some(message.tag);
    (message.kind, tag, message.from)
}
