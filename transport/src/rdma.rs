// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface of transports with remote memory access. Reserved for the network transports; unused so far.

use crate::{Btl, Cookie, SendError, UserMemory};

/// A transport that reads and writes registered memory of its peers: verbs, most of OFI, shared memory for what is in
/// an outbox. Each operation that takes time ends in `on_done`, exactly once.
pub trait Rdma: Btl {
    /// Registered memory, usable with every peer.
    type Region;
    /// Memory that a peer exposed to this process.
    type Remote;

    /// Safe, because making a `UserMemory` was not: see `transport/src/memory.rs`.
    fn register(&mut self, memory: &UserMemory) -> Result<Self::Region, RegisterError>;
    /// Ends the device's access to the region.
    fn unregister(&mut self, region: Self::Region, done: Cookie);
    /// Gives this peer access to the region. The key travels in a message (at most 96 bytes).
    fn expose(
        &mut self,
        region: &Self::Region,
        to: Self::Endpoint,
        access: Access,
    ) -> Result<RemoteKey, RegisterError>;
    /// Revokes the key. Once `done`, also a living peer has no access with it.
    fn unexpose(&mut self, key: RemoteKey, done: Cookie);
    /// Checks a peer's key and keeps what it gives access to.
    fn import(&mut self, from: Self::Endpoint, key: &[u8]) -> Result<Self::Remote, RegisterError>;

    /// Copies local bytes to the peer.
    fn put(
        &mut self,
        to: Self::Endpoint,
        local: Span<'_, Self::Region>,
        remote: Span<'_, Self::Remote>,
        done: Cookie,
    ) -> Result<(), SendError>;
    /// Copies the peer's bytes here.
    fn get(
        &mut self,
        from: Self::Endpoint,
        local: Span<'_, Self::Region>,
        remote: Span<'_, Self::Remote>,
        done: Cookie,
    ) -> Result<(), SendError>;
    /// An atomic operation on a 64-bit word at `remote`; its old value goes to `local`.
    fn atomic(
        &mut self,
        to: Self::Endpoint,
        operation: Atomic,
        local: Span<'_, Self::Region>,
        remote: Span<'_, Self::Remote>,
        done: Cookie,
    ) -> Result<(), SendError>;
    /// `done` when all earlier puts and atomics to this peer are in its memory.
    fn flush(&mut self, to: Self::Endpoint, done: Cookie) -> Result<(), SendError>;
    /// Posts a receive: the next message with this `label` goes straight to `into`. Needs
    /// [`Ability::PostedReceive`](crate::Ability::PostedReceive).
    fn post(
        &mut self,
        from: Self::Endpoint,
        label: u64,
        into: Span<'_, Self::Region>,
        done: Cookie,
    ) -> Result<(), SendError>;
    /// Cancels an operation as far as possible. Its cookie ends, and afterwards the device does not access its memory
    /// any more.
    fn withdraw(&mut self, operation: Cookie);
}

/// What a peer may do with exposed memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// [`Rdma::get`].
    pub read: bool,
    /// [`Rdma::put`].
    pub write: bool,
    /// [`Rdma::atomic`].
    pub atomic: bool,
}

/// The key to exposed memory: opaque bytes, at most 96.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteKey(pub Vec<u8>);

/// A range of a region.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a, R> {
    /// The region.
    pub region: &'a R,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub bytes: u64,
}

/// An atomic operation on a remote word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Atomic {
    /// Adds, and returns the old value.
    FetchAdd(u64),
    /// Replaces the value if it is as expected, and returns the old value.
    CompareSwap {
        /// The value that the word must have.
        expected: u64,
        /// The value that it gets.
        desired: u64,
    },
    /// Replaces the value, and returns the old one.
    Swap(u64),
}

/// Why memory could not be registered, exposed or imported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegisterError {
    /// Locked memory, or memory for registration metadata, ran out.
    NoMemory,
    /// The device has no more regions.
    TooManyRegions,
    /// No correct peer makes this key.
    BadKey,
}
