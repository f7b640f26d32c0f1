// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages between named ranks, in all modes. Messages between living ranks arrive. Of a dead rank, the messages arrive
//! that it had sent completely. All other operations with a dead rank end with PROC_FAILED.

use super::Participant;
use crate::oracle::{assert_content, assert_status, content, overwrite, poisoned};
use crate::process::SimOperation;
use crate::record::Event;
use mend_base::{Random, Rank, Source, Tag, TagSelector};
use mend_mpi::{CommKey, Detail, Error, ErrorClass, SendMode, Status};
use mend_transport::Buffer;
use std::sync::Arc;

/// One message of a plan. Ranks are those of WORLD.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub id: u64,
    pub from: Rank,
    pub to: Rank,
    pub tag: Tag,
    pub bytes: usize,
    pub mode: SendMode,
}

/// The half of a message that this rank has started.
enum Half {
    Send(Message, SimOperation, Arc<Buffer>),
    Receive(Message, SimOperation, Arc<Buffer>),
}

/// A tag with which no rank sends.
const UNUSED_TAG: Tag = Tag(Tag::MAX.0);

impl Message {
    /// Draws a message. The ids and tags of two phases differ.
    pub fn draw(random: &mut Random, phase: u64, number: u64, size: u32, tags: u64) -> Message {
        let mut rank = || Rank(random.below(size.into()) as u32);
        let (from, to) = (rank(), rank());
        let modes = [SendMode::Standard, SendMode::Standard, SendMode::Synchronous, SendMode::Ready];
        let most = [64, 64, 64, 2_000, 2_000, 20_000][random.below(6) as usize];
        Message {
            id: phase * 10_000 + number,
            from,
            to,
            tag: Tag((phase * 10 + random.below(tags)) as i32),
            bytes: random.below(most + 1) as usize,
            mode: modes[random.below(4) as usize],
        }
    }
}

impl Participant {
    /// Each rank executes its own sends and receives in the order of a plan that all ranks share.
    pub(super) async fn named(&mut self, phase: u64) {
        let plan: Vec<Message> = {
            let mut shared_random = self.process.shared_random.borrow_mut();
            let count = 1 + shared_random.below(10 * u64::from(self.process.size));
            let size = self.process.size;
            (0..count).map(|number| Message::draw(&mut shared_random, phase, number, size, 3)).collect()
        };
        let mut open: Vec<Half> = Vec::new();
        for message in plan {
            if message.from == self.me() {
                let (sent, data) = self.send(&message);
                open.push(Half::Send(message, sent, data));
            }
            if message.to == self.me() {
                self.before_receiving(&message, open.is_empty()).await;
                let shorter =
                    if self.chance(8) { self.process.below(message.bytes as u64 + 1) as usize } else { 0 };
                let buffer = poisoned(message.bytes - shorter);
                open.push(Half::Receive(message, self.receive(&message, &buffer), buffer));
            }
            while !open.is_empty() && self.chance(3) {
                let half = open.swap_remove(self.process.below(open.len() as u64) as usize);
                self.end_half(half).await;
            }
            if self.chance(4) {
                self.process.pause().await;
            }
        }
        while !open.is_empty() {
            let half = open.swap_remove(self.process.below(open.len() as u64) as usize);
            self.end_half(half).await;
        }
    }

    pub(super) fn send(&mut self, message: &Message) -> (SimOperation, Arc<Buffer>) {
        let data = Buffer::from_bytes(&content(message.id, message.bytes));
        let mpi = &self.process.mpi;
        (mpi.send_as(message.mode, self.world, message.to, message.tag, &data), data)
    }

    fn receive(&mut self, message: &Message, buffer: &Arc<Buffer>) -> SimOperation {
        self.process.record.borrow_mut().add(Event::ReceivePosted, message.id);
        let (source, tag) = (Source::Rank(message.from), TagSelector::Tag(message.tag));
        self.process.mpi.receive(self.world, source, tag, buffer)
    }

    /// Sometimes a probe for the message, and sometimes a receive that is cancelled.
    async fn before_receiving(&mut self, message: &Message, nothing_open: bool) {
        if nothing_open && self.chance(6) {
            self.process.at("deaths: probe", message.id);
            let (source, tag) = (Source::Rank(message.from), TagSelector::Tag(message.tag));
            let mpi = self.process.mpi.clone();
            match mpi.probe(self.world, source, tag).await {
                Ok(status) => assert_status(status, message.from, message.tag, message.bytes),
                Err(error) => self.assert_names_sender(message, error),
            }
        }
        if self.chance(12) {
            self.process.at("deaths: cancel", message.id);
            let buffer = poisoned(3);
            let source = Source::Rank(message.from);
            let tag = TagSelector::Tag(UNUSED_TAG);
            let mut operation = self.process.mpi.receive(self.world, source, tag, &buffer);
            self.process.pause().await;
            operation.cancel();
            match operation.await {
                Ok(status) => assert!(status.cancelled, "no rank sends with this tag"),
                // That rank may have finalized: this may be the last phase.
                Err(error) if error.detail == Detail::PeerLeft(message.from) => {}
                Err(error) => self.assert_names_sender(message, error),
            }
            self.process.ended_buffers.borrow_mut().add(&buffer);
        }
    }

    /// Asserts that an error names the sender of the message as failed.
    fn assert_names_sender(&mut self, message: &Message, error: Error) {
        assert_eq!(self.assert_explained(self.world, error), message.from, "{error}");
    }

    async fn end_half(&mut self, half: Half) {
        match half {
            Half::Send(message, sent, data) => {
                self.process.at("deaths: send", message.id);
                let result = sent.await;
                self.end_send(&message, result, &data);
            }
            Half::Receive(message, operation, buffer) => {
                self.process.at("deaths: receive", message.id);
                let result = operation.await;
                self.end_receive(&message, result, &buffer);
            }
        }
    }

    /// Rows PP1 to PP4, PP8, PP17.
    pub(super) fn end_send(&mut self, message: &Message, result: Result<Status, Error>, data: &Arc<Buffer>) {
        match result {
            Ok(_) => {
                let posted = self.process.record.borrow().contains(Event::ReceivePosted, message.id);
                let matched = message.mode != SendMode::Synchronous || posted;
                assert!(matched, "a synchronous send ended before its receive was posted");
                self.record_sent(message);
            }
            Err(error) => assert_eq!(self.assert_explained(self.world, error), message.to, "{error}"),
        }
        overwrite(data);
        self.process.ended_buffers.borrow_mut().add(data);
    }

    /// Records a send that completed while this rank was alive: its message must arrive.
    pub(super) fn record_sent(&self, message: &Message) {
        if !self.process.death_has_begun(self.me()) {
            self.process.record.borrow_mut().add(Event::SendCompleted, message.id);
        }
    }

    /// Rows PP5 to PP8, PP17.
    fn end_receive(&mut self, message: &Message, result: Result<Status, Error>, buffer: &Arc<Buffer>) {
        self.process.ended_buffers.borrow_mut().add(buffer);
        match result {
            Ok(status) => {
                assert_status(status, message.from, message.tag, message.bytes);
                assert_content(buffer, message.id, message.bytes);
            }
            Err(error) if error.class == ErrorClass::Truncate => {
                assert!(message.bytes > buffer.len(), "{error}");
                assert_content(buffer, message.id, message.bytes);
            }
            Err(error) => {
                self.assert_names_sender(message, error);
                let sent = self.process.record.borrow().contains(Event::SendCompleted, message.id);
                assert!(!sent, "message {} was sent completely, and is lost", message.id);
            }
        }
    }

    /// Whether the death of this rank of `comm` has begun.
    pub(super) fn death_of_member_has_begun(&self, comm: CommKey, rank: Rank) -> bool {
        self.process.death_has_begun(self.members(comm)[rank.index()])
    }
}
