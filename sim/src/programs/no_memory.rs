// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Allocations fail at random. A call without memory returns `NoMemory`, and a point-to-point operation that was not started is
//! started again. Of two ranks, one of which has no memory for a message of the other, neither reaches the other any more. Every operation
//! ends, nobody is accused of garbage, and nobody dies.
//!
//! In half of the jobs the ranks agree, too. An agreement never lacks memory to begin. Members that cannot reach each other cannot agree: the node daemon ends one of the two.

pub(super) mod creations;

use super::collectives::{assert_result, start};
use crate::Process;
use crate::oracle::{assert_content, assert_status, content, overwrite, poisoned};
use crate::process::SimOperation;
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_mpi::{CommKey, Detail, Error};
use mend_transport::{Buffer, Cause};
use std::sync::Arc;

/// One rank of a job.
struct Member {
    process: Process,
    world: CommKey,
    /// The ranks agree, so some may be ended.
    agrees: bool,
}

/// A message from or to another rank.
#[derive(Clone, Copy)]
struct Message {
    other: Rank,
    tag: Tag,
    id: u64,
    bytes: usize,
}

/// A send or receive that was started.
struct Begun {
    message: Message,
    operation: SimOperation,
    buffer: Arc<Buffer>,
}

/// All ranks draw the same rounds.
pub async fn run(process: Process, agrees: bool) {
    let world = process.mpi.engine().comm_world();
    let rounds = 1 + process.shared_random.borrow_mut().below(5);
    let member = Member { process, world, agrees };
    for round in 0..rounds {
        let which = member.process.shared_random.borrow_mut().below(if agrees { 7 } else { 4 });
        match which {
            0..2 => member.exchange(round).await,
            2..4 => member.collectives(round).await,
            4 => member.agree(round).await,
            5 => member.shrink(round).await,
            _ => member.dup(round).await,
        }
        if member.process.below(3) == 0 {
            member.process.pause().await;
        }
    }
}

impl Member {
    /// Up to six messages from each rank to each rank, each with its own tag. All are started before any is awaited.
    async fn exchange(&self, round: u64) {
        let (bytes, count) = {
            let mut shared_random = self.process.shared_random.borrow_mut();
            ([0, 4, 600, 20_000][shared_random.below(4) as usize], 1 + shared_random.below(6))
        };
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        for number in 0..count {
            let tag = Tag((round * 10 + number) as i32);
            for other in (0..self.process.size).map(Rank) {
                let id = |from: Rank, to: Rank| {
                    (u64::from(tag.0 as u32) * 100 + u64::from(from.0)) * 100 + u64::from(to.0)
                };
                let me = self.process.rank;
                sent.push(self.send(Message { other, tag, id: id(me, other), bytes }).await);
                received.push(self.receive(Message { other, tag, id: id(other, me), bytes }).await);
            }
        }
        for begun in sent {
            self.end_send(begun).await;
        }
        for begun in received {
            self.end_receive(begun).await;
        }
    }

    async fn send(&self, message: Message) -> Begun {
        let Message { other, tag, id, bytes } = message;
        let buffer = Buffer::from_bytes(&content(id, bytes));
        let synchronous = self.process.below(2) == 0;
        let send = || match synchronous {
            true => self.process.mpi.ssend(self.world, other, tag, &buffer),
            false => self.process.mpi.send(self.world, other, tag, &buffer),
        };
        let operation = self.start("no memory: start a send", send).await;
        Begun { message, operation, buffer }
    }

    /// A send that ends without memory has sent nothing, and its receive still waits: it is sent again.
    async fn end_send(&self, mut begun: Begun) {
        loop {
            self.process.at("no memory: send", begun.message.id);
            let ended = begun.operation.await;
            overwrite(&begun.buffer);
            match ended {
                Ok(_) => return,
                Err(error) if error.detail == Detail::NoMemory => begun = self.send(begun.message).await,
                Err(error) => return self.assert_explained(error, Some(begun.message.other)),
            }
        }
    }

    async fn receive(&self, message: Message) -> Begun {
        let Message { other, tag, bytes, .. } = message;
        let buffer = poisoned(bytes);
        let (source, tag) = (Source::Rank(other), TagSelector::Tag(tag));
        let receive = || self.process.mpi.receive(self.world, source, tag, &buffer);
        let operation = self.start("no memory: start a receive", receive).await;
        Begun { message, operation, buffer }
    }

    /// A receive that ends without memory has taken its message, and the send ends with an error.
    async fn end_receive(&self, Begun { message, operation, buffer }: Begun) {
        let Message { other, tag, id, bytes } = message;
        self.process.at("no memory: receive", id);
        match operation.await {
            Ok(status) => {
                assert_status(status, other, tag, bytes);
                assert_content(&buffer, id, bytes);
            }
            Err(error) => self.assert_explained(error, Some(other)),
        }
        self.process.ended_buffers.borrow_mut().add(&buffer);
    }

    /// Starts an operation, again and again until there is memory: without memory nothing has begun.
    async fn start(&self, what: &'static str, start: impl Fn() -> SimOperation) -> SimOperation {
        let mut tries = 0;
        loop {
            self.process.at(what, tries);
            let operation = start();
            match operation.start_error() {
                None => return operation,
                Some(error) => assert_eq!(error.detail, Detail::NoMemory, "only memory can be short here"),
            }
            tries += 1;
            self.process.next_step().await;
        }
    }

    /// Up to four collective operations. One that cannot be started has ended for all members that need this one.
    async fn collectives(&self, round: u64) {
        let count = 1 + self.process.shared_random.borrow_mut().below(4);
        let mut open = Vec::new();
        for number in round * 100..round * 100 + count {
            open.push((number, start(&self.process, self.world, number as i32)));
        }
        for (number, checked) in open {
            self.process.at(checked.name, number);
            match checked.operation.await {
                Ok(_) => checked.expected.iter().for_each(assert_result),
                Err(error) => self.assert_explained(error, None),
            }
            if let Some((buffer, _)) = checked.expected {
                self.process.ended_buffers.borrow_mut().add(&buffer);
            }
        }
    }

    /// An agreement. It begins without memory.
    async fn agree(&self, round: u64) {
        let flag = Buffer::from_bytes(&1u32.to_le_bytes());
        self.process.at("no memory: agree", round);
        let operation = self.process.mpi.agree(self.world, &flag);
        assert_eq!(operation.start_error(), None, "the memory of an agreement is reserved");
        let agreed = operation.await;
        self.process.assert_answers_agree(round, agreed.is_ok().into());
        if let Err(error) = agreed {
            assert!(matches!(error.detail, Detail::ProcFailed(_)), "{error}");
        }
    }

    /// A shrink, repeated while its error is that this member has no memory.
    async fn shrink(&self, round: u64) {
        let mut tries = 0;
        let made = loop {
            self.process.at("no memory: shrink", round * 1000 + tries);
            match self.process.mpi.shrink(self.world).await {
                Err(error) if error.detail == Detail::NoMemory => tries += 1,
                made => break made,
            }
            self.process.next_step().await;
        };
        let made = made.expect("a shrink succeeds").expect("this rank is a member");
        self.process.mpi.free(made).expect("it exists");
    }

    /// A duplicate: a member without memory for it makes the creation fail at all members (Row CC1).
    async fn dup(&self, round: u64) {
        self.process.at("no memory: dup", round);
        let made = self.process.mpi.dup(self.world).await;
        self.process.assert_creation_is_uniform(self.world, round, made.is_ok());
        match made {
            Ok(made) => self.process.mpi.free(made.expect("this rank is a member")).expect("it exists"),
            Err(error) if error.detail == Detail::CreationRefused => {}
            Err(error) => self.assert_explained(error, None),
        }
    }

    /// Asserts that lack of memory explains the error of an operation, here or at another rank.
    fn assert_explained(&self, error: Error, partner: Option<Rank>) {
        let is_partner = |rank| partner.is_none_or(|partner| partner == rank);
        let explained = match error.detail {
            Detail::NoMemory => true,
            Detail::Unreachable(rank, cause) => is_partner(rank) && cause == Cause::NoMemory,
            // It gave the operation up, or has finalized after it could not be reached.
            Detail::PeerFreed(rank) | Detail::PeerLeft(rank) => is_partner(rank),
            Detail::ProcFailed(rank) => self.agrees && is_partner(rank),
            _ => false,
        };
        assert!(explained, "rank {}: {error} ({:?})", self.process.rank.0, error.detail);
    }
}
