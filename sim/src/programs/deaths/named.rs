// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages between named ranks, in all modes: to the living they arrive, from the dead whatever was sent whole, and all
//! else ends with PROC_FAILED.

use super::Survivor;
use crate::board::Deed;
use crate::cluster::Net;
use crate::launcher::FabricRuntime;
use crate::oracle::{content, holds, poisoned, recycle, says};
use mend_base::{Random, Rank, Source, Tag, TagSelector};
use mend_mpi::{Class, CommKey, Detail, Error, Operation, SendMode, Status};
use mend_transport::Buffer;
use std::sync::Arc;

pub(super) type Started = Operation<Net, FabricRuntime>;

/// One message of a plan; ranks are WORLD's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub id: u64,
    pub from: Rank,
    pub to: Rank,
    pub tag: Tag,
    pub bytes: usize,
    pub mode: SendMode,
}

/// A half of a message that was started here.
enum Half {
    Send(Message, Started, Arc<Buffer>),
    Receive(Message, Started, Arc<Buffer>),
}

/// A tag that nobody sends with.
const NOBODYS: Tag = Tag(Tag::MAX.0);

impl Message {
    /// Ids and tags of one phase are not those of another.
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

impl Survivor {
    /// Everybody walks the same plan, and does what concerns it.
    pub(super) async fn named(&mut self, phase: u64) {
        let plan: Vec<Message> = {
            let mut together = self.process.together.borrow_mut();
            let count = 1 + together.below(10 * u64::from(self.process.size));
            let size = self.process.size;
            (0..count).map(|number| Message::draw(&mut together, phase, number, size, 3)).collect()
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
                let room = poisoned(message.bytes - shorter);
                open.push(Half::Receive(message, self.receive(&message, &room), room));
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

    pub(super) fn send(&mut self, message: &Message) -> (Started, Arc<Buffer>) {
        let data = Buffer::from_bytes(&content(message.id, message.bytes));
        let mpi = &self.process.mpi;
        (mpi.send_as(message.mode, self.world, message.to, message.tag, &data), data)
    }

    fn receive(&mut self, message: &Message, room: &Arc<Buffer>) -> Started {
        self.process.board.borrow_mut().write(Deed::Posted, message.id);
        let (source, tag) = (Source::Rank(message.from), TagSelector::Tag(message.tag));
        self.process.mpi.receive(self.world, source, tag, room)
    }

    /// Now and then a look, or a receive that is taken back.
    async fn before_receiving(&mut self, message: &Message, nothing_open: bool) {
        if nothing_open && self.chance(6) {
            self.process.at("deaths: probe", message.id);
            let (source, tag) = (Source::Rank(message.from), TagSelector::Tag(message.tag));
            let mpi = self.process.mpi.clone();
            match mpi.probe(self.world, source, tag).await {
                Ok(status) => says(status, message.from, message.tag, message.bytes),
                Err(error) => self.blame(message, error),
            }
        }
        if self.chance(12) {
            self.process.at("deaths: cancel", message.id);
            let room = poisoned(3);
            let source = Source::Rank(message.from);
            let tag = TagSelector::Tag(NOBODYS);
            let mut operation = self.process.mpi.receive(self.world, source, tag, &room);
            self.process.pause().await;
            operation.cancel();
            match operation.await {
                Ok(status) => assert!(status.cancelled, "nobody sends with this tag"),
                // It may have nothing more to do.
                Err(error) if error.detail == Detail::PeerLeft(message.from) => {}
                Err(error) => self.blame(message, error),
            }
            self.process.silence.borrow_mut().watch(&room);
        }
    }

    /// The error of something that needed the sender.
    fn blame(&mut self, message: &Message, error: Error) {
        assert_eq!(self.explained(self.world, error), message.from, "{error}");
    }

    async fn end_half(&mut self, half: Half) {
        match half {
            Half::Send(message, sent, data) => {
                self.process.at("deaths: send", message.id);
                let result = sent.await;
                self.end_send(&message, result, &data);
            }
            Half::Receive(message, operation, room) => {
                self.process.at("deaths: receive", message.id);
                let result = operation.await;
                self.end_receive(&message, result, &room);
            }
        }
    }

    /// Rows PP1 to PP4, PP8, PP17.
    pub(super) fn end_send(&mut self, message: &Message, result: Result<Status, Error>, data: &Arc<Buffer>) {
        match result {
            Ok(_) => {
                let posted = self.process.board.borrow().reads(Deed::Posted, message.id);
                let matched = message.mode != SendMode::Synchronous || posted;
                assert!(matched, "a synchronous send ended, and nobody had posted its receive");
                self.note_sent(message);
            }
            Err(error) => assert_eq!(self.explained(self.world, error), message.to, "{error}"),
        }
        recycle(data);
        self.process.silence.borrow_mut().watch(data);
    }

    /// What has all left us while we lived arrives.
    pub(super) fn note_sent(&self, message: &Message) {
        if !self.process.is_dead(self.me()) {
            self.process.board.borrow_mut().write(Deed::Sent, message.id);
        }
    }

    /// Rows PP5 to PP8, PP17.
    fn end_receive(&mut self, message: &Message, result: Result<Status, Error>, room: &Arc<Buffer>) {
        self.process.silence.borrow_mut().watch(room);
        match result {
            Ok(status) => {
                says(status, message.from, message.tag, message.bytes);
                holds(room, message.id, message.bytes);
            }
            Err(error) if error.class == Class::Truncate => {
                assert!(message.bytes > room.len(), "{error}");
                holds(room, message.id, message.bytes);
            }
            Err(error) => {
                self.blame(message, error);
                let sent = self.process.board.borrow().reads(Deed::Sent, message.id);
                assert!(!sent, "message {} was sent whole, and is lost", message.id);
            }
        }
    }

    /// Something in error on a communicator where this rank may have failed.
    pub(super) fn is_dead_member(&self, comm: CommKey, rank: Rank) -> bool {
        self.process.is_dead(self.members(comm)[rank.index()])
    }
}
