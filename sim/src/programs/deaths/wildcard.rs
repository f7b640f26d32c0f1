// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receives from anybody: in doubt while a failure is not acknowledged, and going on when it is (Rows PP10, AK7). When
//! everything of the living has come, what is still posted waits for the dead, and is taken back.

use super::Survivor;
use super::named::{Message, Started};
use crate::board::Deed;
use crate::oracle::{content, poisoned, says};
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_mpi::{Class, Detail, Error, Status};
use mend_transport::Buffer;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

/// What one rank expects in one phase.
struct Expected {
    /// What each rank sends us, in order.
    lists: BTreeMap<Rank, VecDeque<Message>>,
    longest: usize,
    tag: Tag,
    /// How many of each rank have come, or were lost with it.
    came: BTreeMap<Rank, usize>,
}

/// What a wildcard has come to.
type Got = (Result<Status, Error>, Arc<Buffer>);

impl Expected {
    fn of(me: Rank, plan: &[Message], tag: Tag) -> Self {
        let mut expected = Expected { lists: BTreeMap::new(), longest: 0, tag, came: BTreeMap::new() };
        for message in plan.iter().filter(|message| message.to == me) {
            expected.lists.entry(message.from).or_default().push_back(*message);
            expected.longest = expected.longest.max(message.bytes);
        }
        expected
    }

    fn count(&self) -> usize {
        self.lists.values().map(VecDeque::len).sum()
    }

    fn comes(&mut self, from: Rank) {
        *self.came.entry(from).or_default() += 1;
    }

    /// Whether all has come of those who are not among the `failed`.
    fn complete(&self, failed: &[Rank]) -> bool {
        let came = |from: &Rank| self.came.get(from).copied().unwrap_or(0);
        self.lists.iter().all(|(from, list)| failed.contains(from) || came(from) == list.len())
    }
}

impl Survivor {
    /// As many wildcards as there are messages to come.
    pub(super) async fn posted_wildcards(&mut self, phase: u64) {
        let (sends, mut expected) = self.start_wildcards(phase);
        let mut open: BTreeMap<usize, (Started, Arc<Buffer>)> = BTreeMap::new();
        let mut got: BTreeMap<usize, Got> = BTreeMap::new();
        for at in 0..expected.count() {
            let room = poisoned(expected.longest);
            let tag = TagSelector::Tag(expected.tag);
            open.insert(at, (self.process.mpi.receive(self.world, Source::Any, tag, &room), room));
            if self.chance(4) {
                self.process.pause().await;
            }
        }
        let mut failed = self.failed(self.world);
        while !open.is_empty() && !expected.complete(&failed) {
            self.process.at("deaths: wildcards, open", open.len() as u64);
            let (at, result) = any_of(&mut open).await;
            match result {
                Err(error) if Self::is_doubt(error) => {
                    // Row WT1: it stays, and goes on when all failures are acknowledged.
                    let Detail::SenderMayHaveFailed(Some(rank)) = error.detail else { panic!("{error}") };
                    assert!(self.is_dead_member(self.world, rank));
                    if self.chance(3) {
                        self.process.pause().await;
                    }
                    failed = self.acknowledge(self.world);
                    assert!(failed.contains(&rank));
                }
                result => {
                    let (_, room) = open.remove(&at).expect("it is open");
                    self.process.silence.borrow_mut().watch(&room);
                    match result {
                        Ok(status) => expected.comes(status.source.expect("a message has a source")),
                        Err(error) => {
                            let from = self.explained(self.world, error);
                            expected.comes(from);
                        }
                    }
                    got.insert(at, (result, room));
                }
            }
        }
        for (at, (mut operation, room)) in open {
            operation.cancel();
            let result = operation.await;
            self.process.silence.borrow_mut().watch(&room);
            match result {
                Ok(status) if status.cancelled => continue,
                // Of the dead, what had come before we looked.
                Ok(status) => expected.comes(status.source.expect("a message has a source")),
                Err(error) => self.ended_without_message(error),
            }
            got.insert(at, (result, room));
        }
        self.check_wildcards(expected, got.into_values());
        self.end_sends(sends).await;
    }

    /// A look at what comes from anybody, and a receive that names whom it found.
    pub(super) async fn probed_wildcards(&mut self, phase: u64) {
        let (sends, mut expected) = self.start_wildcards(phase);
        let mut got: Vec<Got> = Vec::new();
        let mut failed = self.failed(self.world);
        while !expected.complete(&failed) {
            self.process.at("deaths: probe from anybody", got.len() as u64);
            let tag = TagSelector::Tag(expected.tag);
            let mpi = self.process.mpi.clone();
            match mpi.probe(self.world, Source::Any, tag).await {
                Ok(status) => got.push(self.receive_found(status, &mut expected).await),
                // Row PP9.
                Err(error) => {
                    let rank = self.explained(self.world, error);
                    failed = self.acknowledge(self.world);
                    assert!(failed.contains(&rank));
                }
            }
        }
        // What the dead had sent whole lies here too (Row PP13: failures unacknowledged or not).
        let tag = TagSelector::Tag(expected.tag);
        let mpi = self.process.mpi.clone();
        let world = self.world;
        let look = || mpi.engine_mut().probe(world, Source::Any, tag);
        while let Ok(Some(status)) = look() {
            got.push(self.receive_found(status, &mut expected).await);
        }
        self.check_wildcards(expected, got.into_iter());
        self.end_sends(sends).await;
    }

    /// What a probe from anybody has found.
    async fn receive_found(&mut self, status: Status, expected: &mut Expected) -> Got {
        let from = status.source.expect("a message has a source");
        self.process.at("deaths: receive what was found", from.0.into());
        let room = poisoned(expected.longest);
        let (source, tag) = (Source::Rank(from), TagSelector::Tag(expected.tag));
        let mpi = self.process.mpi.clone();
        let result = mpi.receive(self.world, source, tag, &room).await;
        self.process.silence.borrow_mut().watch(&room);
        if let Err(error) = result {
            assert_eq!(self.explained(self.world, error), from);
        }
        expected.comes(from);
        (result, room)
    }

    /// Draws the plan and starts the sends of it.
    fn start_wildcards(&mut self, phase: u64) -> (Vec<(Message, Started, Arc<Buffer>)>, Expected) {
        let plan: Vec<Message> = {
            let mut together = self.process.together.borrow_mut();
            let (count, size) = (1 + together.below(6 * u64::from(self.process.size)), self.process.size);
            (0..count).map(|number| Message::draw(&mut together, phase, number, size, 1)).collect()
        };
        let tag = plan[0].tag;
        let expected = Expected::of(self.me(), &plan, tag);
        for message in plan.iter().filter(|message| message.to == self.me()) {
            self.process.board.borrow_mut().write(Deed::Posted, message.id);
        }
        let mine: Vec<Message> = plan.into_iter().filter(|message| message.from == self.me()).collect();
        let send = |message: Message| {
            let (sent, data) = self.send(&message);
            (message, sent, data)
        };
        (mine.into_iter().map(send).collect(), expected)
    }

    async fn end_sends(&mut self, sends: Vec<(Message, Started, Arc<Buffer>)>) {
        for (message, sent, data) in sends {
            self.process.at("deaths: send to a wildcard", message.id);
            let result = sent.await;
            self.end_send(&message, result, &data);
        }
    }

    /// It had matched an offer of one who died, or everybody else is gone, having left in order.
    fn ended_without_message(&mut self, error: Error) {
        if !matches!(error.detail, Detail::PeerLeft(_)) {
            self.explained(self.world, error);
        }
    }

    /// In the order in which they were posted, the wildcards took each rank's messages in the order in which it sent them
    /// (MPI-5.0 §3.5). Of the dead those are missing that were not sent whole, and no other.
    fn check_wildcards(&mut self, expected: Expected, got: impl Iterator<Item = Got>) {
        let mut lists = expected.lists;
        for (result, room) in got {
            match result {
                Ok(status) => {
                    let source = status.source.expect("a message has a source");
                    let list = lists.get_mut(&source).expect("this rank sends us something");
                    let message = loop {
                        let message = list.pop_front().expect("this rank has sent no more");
                        if is_it(&message, status, &room) {
                            break message;
                        }
                        self.lost(&message);
                    };
                    says(status, message.from, message.tag, message.bytes);
                }
                Err(error) => {
                    let Detail::ProcFailed(rank) = error.detail else { continue };
                    let list = lists.get_mut(&rank);
                    if let Some(message) = list.and_then(VecDeque::pop_front) {
                        self.lost(&message);
                    }
                }
            }
        }
        for message in lists.values().flatten() {
            self.lost(message);
        }
    }

    /// Only the dead's messages may be, and only those that were not sent whole.
    fn lost(&self, message: &Message) {
        assert!(self.process.is_dead(message.from), "message {} of the living is lost", message.id);
        let sent = self.process.board.borrow().reads(Deed::Sent, message.id);
        assert!(!sent, "message {} was sent whole, and is lost", message.id);
    }
}

fn is_it(message: &Message, status: Status, room: &Buffer) -> bool {
    status.bytes == message.bytes as u64
        && room.to_vec()[..message.bytes] == content(message.id, message.bytes)
}

/// MPI_Waitany, but in doubt too: the first that has something to say.
async fn any_of(open: &mut BTreeMap<usize, (Started, Arc<Buffer>)>) -> (usize, Result<Status, Error>) {
    std::future::poll_fn(|context| {
        let mut doubt = None;
        for (at, (operation, _)) in open.iter_mut() {
            match Pin::new(operation).poll(context) {
                Poll::Ready(Err(error)) if error.class == Class::ProcFailedPending => {
                    doubt = doubt.or(Some((*at, Err(error))));
                }
                Poll::Ready(result) => return Poll::Ready((*at, result)),
                Poll::Pending => {}
            }
        }
        doubt.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
