// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receives from any source: they have a pending failure until the failure is acknowledged, and then go on (Rows PP10, AK7).
//! When all messages of living ranks have arrived, the receives that are still posted are cancelled.

use super::Participant;
use super::named::Message;
use crate::oracle::{assert_status, content, poisoned};
use crate::process::SimOperation;
use crate::record::Event;
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_mpi::{Detail, Error, ErrorClass, Status};
use mend_transport::Buffer;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

/// The messages that one rank expects in one phase.
struct Expected {
    /// The messages of each sender to this rank, in order.
    lists: BTreeMap<Rank, VecDeque<Message>>,
    longest: usize,
    tag: Tag,
    /// How many messages of each sender have arrived, or have failed with it.
    arrived: BTreeMap<Rank, usize>,
}

/// The result of a wildcard receive, and its buffer.
type Got = (Result<Status, Error>, Arc<Buffer>);

impl Expected {
    fn of(me: Rank, plan: &[Message], tag: Tag) -> Self {
        let mut expected = Expected { lists: BTreeMap::new(), longest: 0, tag, arrived: BTreeMap::new() };
        for message in plan.iter().filter(|message| message.to == me) {
            expected.lists.entry(message.from).or_default().push_back(*message);
            expected.longest = expected.longest.max(message.bytes);
        }
        expected
    }

    fn count(&self) -> usize {
        self.lists.values().map(VecDeque::len).sum()
    }

    fn on_arrival(&mut self, from: Rank) {
        *self.arrived.entry(from).or_default() += 1;
    }

    /// Whether all messages have arrived from the senders that are not among the `failed`.
    fn complete(&self, failed: &[Rank]) -> bool {
        let arrived = |from: &Rank| self.arrived.get(from).copied().unwrap_or(0);
        self.lists.iter().all(|(from, list)| failed.contains(from) || arrived(from) == list.len())
    }
}

impl Participant {
    /// Posts one wildcard receive for each expected message.
    pub(super) async fn posted_wildcards(&mut self, phase: u64) {
        let (sends, mut expected) = self.start_wildcards(phase);
        let mut open: BTreeMap<usize, (SimOperation, Arc<Buffer>)> = BTreeMap::new();
        let mut got: BTreeMap<usize, Got> = BTreeMap::new();
        for at in 0..expected.count() {
            let buffer = poisoned(expected.longest);
            let tag = TagSelector::Tag(expected.tag);
            open.insert(at, (self.process.mpi.receive(self.world, Source::Any, tag, &buffer), buffer));
            if self.chance(4) {
                self.process.pause().await;
            }
        }
        let mut failed = self.failed(self.world);
        while !open.is_empty() && !expected.complete(&failed) {
            self.process.at("deaths: wildcards, open", open.len() as u64);
            let (at, result) = any_of(&mut open).await;
            match result {
                Err(error) if Self::is_pending_failure(error) => {
                    // Row WT1: the request stays active, and goes on when all failures are acknowledged.
                    let Detail::SenderMayHaveFailed(Some(rank)) = error.detail else { panic!("{error}") };
                    assert!(self.death_of_member_has_begun(self.world, rank));
                    if self.chance(3) {
                        self.process.pause().await;
                    }
                    failed = self.acknowledge(self.world);
                    assert!(failed.contains(&rank));
                }
                result => {
                    let (_, buffer) = open.remove(&at).expect("it is open");
                    self.process.ended_buffers.borrow_mut().add(&buffer);
                    match result {
                        Ok(status) => expected.on_arrival(status.source.expect("a message has a source")),
                        Err(error) => {
                            let from = self.assert_explained(self.world, error);
                            expected.on_arrival(from);
                        }
                    }
                    got.insert(at, (result, buffer));
                }
            }
        }
        for (at, (mut operation, buffer)) in open {
            operation.cancel();
            let result = operation.await;
            self.process.ended_buffers.borrow_mut().add(&buffer);
            match result {
                Ok(status) if status.cancelled => continue,
                // A message of a dead rank, which had arrived before the cancel.
                Ok(status) => expected.on_arrival(status.source.expect("a message has a source")),
                Err(error) => self.ended_without_message(error),
            }
            got.insert(at, (result, buffer));
        }
        self.check_wildcards(expected, got.into_values());
        self.end_sends(sends).await;
    }

    /// Probes for messages from any source, and receives each from the source that the probe has found.
    pub(super) async fn probed_wildcards(&mut self, phase: u64) {
        let (sends, mut expected) = self.start_wildcards(phase);
        let mut got: Vec<Got> = Vec::new();
        let mut failed = self.failed(self.world);
        while !expected.complete(&failed) {
            self.process.at("deaths: probe any source", got.len() as u64);
            let tag = TagSelector::Tag(expected.tag);
            let mpi = self.process.mpi.clone();
            match mpi.probe(self.world, Source::Any, tag).await {
                Ok(status) => got.push(self.receive_found(status, &mut expected).await),
                // Row PP9.
                Err(error) => {
                    let rank = self.assert_explained(self.world, error);
                    failed = self.acknowledge(self.world);
                    assert!(failed.contains(&rank));
                }
            }
        }
        // Complete messages of dead ranks are found too, whether failures are acknowledged or not (Row PP13).
        let tag = TagSelector::Tag(expected.tag);
        let mpi = self.process.mpi.clone();
        let world = self.world;
        let iprobe = || mpi.engine_mut().probe(world, Source::Any, tag);
        while let Ok(Some(status)) = iprobe() {
            got.push(self.receive_found(status, &mut expected).await);
        }
        self.check_wildcards(expected, got.into_iter());
        self.end_sends(sends).await;
    }

    /// Receives the message that a probe has found.
    async fn receive_found(&mut self, status: Status, expected: &mut Expected) -> Got {
        let from = status.source.expect("a message has a source");
        self.process.at("deaths: receive what was found", from.0.into());
        let buffer = poisoned(expected.longest);
        let (source, tag) = (Source::Rank(from), TagSelector::Tag(expected.tag));
        let mpi = self.process.mpi.clone();
        let result = mpi.receive(self.world, source, tag, &buffer).await;
        self.process.ended_buffers.borrow_mut().add(&buffer);
        if let Err(error) = result {
            assert_eq!(self.assert_explained(self.world, error), from);
        }
        expected.on_arrival(from);
        (result, buffer)
    }

    /// Draws the plan and starts the sends of it.
    fn start_wildcards(&mut self, phase: u64) -> (Vec<(Message, SimOperation, Arc<Buffer>)>, Expected) {
        let plan: Vec<Message> = {
            let mut shared_random = self.process.shared_random.borrow_mut();
            let (count, size) =
                (1 + shared_random.below(6 * u64::from(self.process.size)), self.process.size);
            (0..count).map(|number| Message::draw(&mut shared_random, phase, number, size, 1)).collect()
        };
        let tag = plan[0].tag;
        let expected = Expected::of(self.me(), &plan, tag);
        for message in plan.iter().filter(|message| message.to == self.me()) {
            self.process.record.borrow_mut().add(Event::ReceivePosted, message.id);
        }
        let mine: Vec<Message> = plan.into_iter().filter(|message| message.from == self.me()).collect();
        let send = |message: Message| {
            let (sent, data) = self.send(&message);
            (message, sent, data)
        };
        (mine.into_iter().map(send).collect(), expected)
    }

    async fn end_sends(&mut self, sends: Vec<(Message, SimOperation, Arc<Buffer>)>) {
        for (message, sent, data) in sends {
            self.process.at("deaths: send to a wildcard", message.id);
            let result = sent.await;
            self.end_send(&message, result, &data);
        }
    }

    /// Asserts that a wildcard receive failed because it had matched an RTS of a rank that died, or because all other ranks
    /// have finalized.
    fn ended_without_message(&mut self, error: Error) {
        if !matches!(error.detail, Detail::PeerLeft(_)) {
            self.assert_explained(self.world, error);
        }
    }

    /// Asserts that the wildcards, in the order in which they were posted, have received the messages of each sender in the order
    /// in which it sent them (MPI-5.0 §3.5), and that only incomplete messages of dead ranks are missing.
    fn check_wildcards(&mut self, expected: Expected, got: impl Iterator<Item = Got>) {
        let mut lists = expected.lists;
        for (result, buffer) in got {
            match result {
                Ok(status) => {
                    let source = status.source.expect("a message has a source");
                    let list = lists.get_mut(&source).expect("the plan has messages of this sender");
                    let message = loop {
                        let message = list.pop_front().expect("this sender has sent no more messages");
                        if is_message(&message, status, &buffer) {
                            break message;
                        }
                        self.assert_may_be_lost(&message);
                    };
                    assert_status(status, message.from, message.tag, message.bytes);
                }
                Err(error) => {
                    let Detail::ProcFailed(rank) = error.detail else { continue };
                    let list = lists.get_mut(&rank);
                    if let Some(message) = list.and_then(VecDeque::pop_front) {
                        self.assert_may_be_lost(&message);
                    }
                }
            }
        }
        for message in lists.values().flatten() {
            self.assert_may_be_lost(message);
        }
    }

    /// Asserts that a message may be missing: its sender has died before it had sent the message completely.
    fn assert_may_be_lost(&self, message: &Message) {
        assert!(
            self.process.death_has_begun(message.from),
            "message {} is lost, and its sender lives",
            message.id
        );
        let sent = self.process.record.borrow().contains(Event::SendCompleted, message.id);
        assert!(!sent, "message {} was sent completely, and is lost", message.id);
    }
}

fn is_message(message: &Message, status: Status, buffer: &Buffer) -> bool {
    status.bytes == message.bytes as u64
        && buffer.to_vec()[..message.bytes] == content(message.id, message.bytes)
}

/// Like MPI_Waitany: the first request that is complete; if there is none, one with a pending failure.
async fn any_of(open: &mut BTreeMap<usize, (SimOperation, Arc<Buffer>)>) -> (usize, Result<Status, Error>) {
    std::future::poll_fn(|context| {
        let mut pending = None;
        for (at, (operation, _)) in open.iter_mut() {
            match Pin::new(operation).poll(context) {
                Poll::Ready(Err(error)) if error.class == ErrorClass::ProcFailedPending => {
                    pending = pending.or(Some((*at, Err(error))));
                }
                Poll::Ready(result) => return Poll::Ready((*at, result)),
                Poll::Pending => {}
            }
        }
        pending.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
