// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the requirements of remote memory access share: memory that one process exposes to another, and operations that a test starts and
//! waits for.

use super::cluster::{Endpoint, STEPS, Sent};
use super::{Callback, Cluster, Fixture, skip};
use crate::{
    Ability, Atomic, Btl, Buffer, Cookie, Exposure, Rdma, Region, Remote, RemoteAccess, RemoteKey, SendError,
    Span, UserMemory,
};
use std::sync::Arc;

/// Memory of one process that is exposed to another one.
#[derive(Debug)]
pub struct Shared {
    /// The memory.
    pub buffer: Arc<Buffer>,
    /// All of the memory.
    pub region: Region,
    /// What is exposed.
    pub exposure: Exposure,
    /// The key as it travels.
    pub key: RemoteKey,
    /// The key as the other process imported it.
    pub remote: Remote,
}

/// An operation on remote memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// [`Rdma::put`].
    Put,
    /// [`Rdma::get`].
    Get,
    /// [`Rdma::atomic`].
    Atomic(Atomic),
    /// [`Rdma::flush`], for which local and remote memory do not count.
    Flush,
}

/// Every access.
pub const ALL: RemoteAccess = RemoteAccess { read: true, write: true, atomic: false };

/// Atomic operations, and reads.
pub const ATOMIC: RemoteAccess = RemoteAccess { read: true, write: false, atomic: true };

impl<F: Fixture> Cluster<F> {
    /// Starts `count` processes for a requirement that needs these abilities. `None`: the transport lacks one, and the requirement counts
    /// as skipped.
    pub fn with_abilities(requirement: &str, count: usize, abilities: &[Ability]) -> Option<Self> {
        let mut cluster = Self::connected(count);
        if let Some(lacking) = abilities.iter().find(|&&ability| !cluster.can(ability)) {
            skip(requirement, &format!("no {lacking:?}"));
            return None;
        }
        Some(cluster)
    }

    /// A cookie that no other operation of this cluster has.
    pub fn new_cookie(&mut self) -> Cookie {
        self.cookies += 1;
        Cookie::new(super::cluster::ID, self.cookies).expect("the cookies of a test have few bits")
    }

    /// Registers a buffer at process `at` for use with `with`.
    pub fn register(&mut self, at: usize, with: usize, buffer: &Arc<Buffer>) -> Region {
        let endpoint = self.endpoint(at, with);
        let region = self.btl(at).register(endpoint, &UserMemory::of_buffer(buffer));
        region.expect("a region for a test")
    }

    /// Registers a buffer at `owner`, and exposes the span of it that `part` gives to `user`.
    pub fn share_part(
        &mut self,
        owner: usize,
        user: usize,
        buffer: &Arc<Buffer>,
        access: RemoteAccess,
        (offset, bytes): (usize, usize),
    ) -> Shared {
        let region = self.register(owner, user, buffer);
        let (there, back) = (self.endpoint(owner, user), self.endpoint(user, owner));
        let (exposure, key) =
            self.btl(owner).expose(there, span(region, offset, bytes), access).expect("a span of the region");
        let remote = self.btl(user).import(back, key.as_bytes()).expect("the key that the owner made");
        assert_eq!(remote.bytes, bytes as u64, "the key gives access to what was exposed");
        Shared { buffer: Arc::clone(buffer), region, exposure, key, remote }
    }

    /// Registers a buffer at `owner`, and exposes all of it to `user`.
    pub fn share(&mut self, owner: usize, user: usize, buffer: &Arc<Buffer>, access: RemoteAccess) -> Shared {
        self.share_part(owner, user, buffer, access, (0, buffer.len()))
    }

    /// Tries once to start an operation.
    pub fn try_start(
        &mut self,
        (at, to): (usize, usize),
        operation: Operation,
        local: Span,
        remote: Remote,
        remote_offset: usize,
        done: Cookie,
    ) -> Sent {
        let (endpoint, remote_offset) = (self.endpoint(at, to), remote_offset as u64);
        let btl = self.btl(at);
        match operation {
            Operation::Put => btl.put(endpoint, local, remote, remote_offset, done),
            Operation::Get => btl.get(endpoint, local, remote, remote_offset, done),
            Operation::Atomic(atomic) => btl.atomic(endpoint, atomic, local, remote, remote_offset, done),
            Operation::Flush => btl.flush(endpoint, done),
        }
    }

    /// Starts an operation; makes a round after each `Busy`.
    pub fn start(
        &mut self,
        way: (usize, usize),
        operation: Operation,
        local: Span,
        remote: Remote,
        remote_offset: usize,
    ) -> Result<Cookie, SendError> {
        let done = self.new_cookie();
        for _ in 0..STEPS {
            match self.try_start(way, operation, local, remote, remote_offset, done) {
                Err(SendError::Busy) => _ = self.progress_all(),
                answer => return answer.map(|()| done),
            }
        }
        panic!("{operation:?} is still Busy after {STEPS} rounds");
    }

    /// How the operation of this cookie ended at `at`, if it has. Fails if it ended twice.
    pub fn end_of(&self, at: usize, cookie: Cookie) -> Option<Sent> {
        end_in::<F>(self.callbacks(at), cookie)
    }

    /// Makes rounds until the operation of this cookie ends, and returns how.
    pub fn wait_for(&mut self, at: usize, cookie: Cookie) -> Sent {
        self.until("the operation ends", |cluster| cluster.end_of(at, cookie).is_some());
        self.end_of(at, cookie).expect("it was waited for")
    }

    /// Starts an operation and waits for its end.
    pub fn operate(
        &mut self,
        way: (usize, usize),
        operation: Operation,
        local: Span,
        remote: Remote,
        remote_offset: usize,
    ) -> Sent {
        let done = self.start(way, operation, local, remote, remote_offset)?;
        self.wait_for(way.0, done)
    }

    /// Copies `local` to or from remote memory in as many operations as the limits require, and waits until the bytes are there.
    pub fn transfer(
        &mut self,
        way: (usize, usize),
        operation: Operation,
        local: Span,
        remote: Remote,
        remote_offset: usize,
    ) {
        let endpoint = self.endpoint(way.0, way.1);
        let most = self.btl(way.0).limits(endpoint).transfer_bytes_max;
        let (mut done, mut at) = (Vec::new(), 0);
        while at < local.bytes || done.is_empty() {
            let bytes = most.min(local.bytes - at);
            let piece = Span { region: local.region, offset: local.offset + at, bytes };
            let cookie = self.start(way, operation, piece, remote, remote_offset + at as usize);
            done.push(cookie.expect("an operation inside both memories"));
            at += bytes;
        }
        for cookie in done {
            assert_eq!(self.wait_for(way.0, cookie), Ok(()), "{operation:?} of {} bytes", local.bytes);
        }
        if operation != Operation::Get {
            self.flush(way);
        }
    }

    /// Waits until all earlier puts and atomic operations are in the memory of the peer.
    pub fn flush(&mut self, way: (usize, usize)) {
        let endpoint = self.endpoint(way.0, way.1);
        if !self.btl(way.0).limits(endpoint).can(Ability::Flush) {
            return self.settle();
        }
        assert_eq!(self.operate(way, Operation::Flush, NOWHERE, NO_REMOTE, 0), Ok(()), "flush");
    }

    /// Takes a key back, and waits for its end.
    pub fn unexpose(&mut self, at: usize, exposure: Exposure) -> Sent {
        let done = self.new_cookie();
        self.btl(at).unexpose(exposure, done);
        self.wait_for(at, done)
    }

    /// Unregisters a region, and waits for its end.
    pub fn unregister(&mut self, at: usize, region: Region) -> Sent {
        let done = self.new_cookie();
        self.btl(at).unregister(region, done);
        self.wait_for(at, done)
    }

    /// Asserts that nothing comes any more, and that each of these operations of `at` ended once.
    pub fn assert_each_ended_once(&mut self, at: usize, cookies: &[Cookie]) {
        self.settle();
        for &cookie in cookies {
            assert!(self.end_of(at, cookie).is_some(), "{cookie:?} never ended");
        }
        let ends = self.callbacks(at).iter().filter(|callback| matches!(callback, Callback::Done(..)));
        assert!(ends.count() >= cookies.len());
    }
}

/// How the operation of this cookie ended. Fails if it ended twice.
pub(super) fn end_in<F: Fixture>(callbacks: &[Callback<Endpoint<F>>], cookie: Cookie) -> Option<Sent> {
    let mut ends = callbacks.iter().filter_map(|callback| match callback {
        Callback::Done(done, result) if *done == cookie => Some(*result),
        _ => None,
    });
    let end = ends.next();
    assert!(ends.next().is_none(), "{cookie:?} ended twice");
    end
}

/// A span of a region.
pub(super) fn span(region: Region, offset: usize, bytes: usize) -> Span {
    Span { region, offset: offset as u64, bytes: bytes as u64 }
}

/// Overwrites all bytes of a buffer.
pub(super) fn fill(buffer: &Arc<Buffer>, byte: u8) {
    UserMemory::of_buffer(buffer).write(0, &vec![byte; buffer.len()]);
}

/// Zero bytes for `words` words of 64 bits, and the offset of the first word in them.
pub(super) fn words(words: usize) -> (Arc<Buffer>, usize) {
    let buffer = Buffer::zeroed(8 * words + 8);
    let offset = UserMemory::of_buffer(&buffer).start().align_offset(8);
    (buffer, offset)
}

/// The word at an offset of a buffer.
pub(super) fn word(buffer: &Buffer, offset: usize) -> u64 {
    let bytes = buffer.to_vec()[offset..offset + 8].try_into().expect("a word has 8 bytes");
    u64::from_ne_bytes(bytes)
}

const NOWHERE: Span = Span { region: Region(0), offset: 0, bytes: 0 };
const NO_REMOTE: Remote = Remote::with_word(0, 0);
