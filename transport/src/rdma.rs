// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface of transports with remote memory access. No transport implements it so far.

use crate::{Btl, Cookie, SendError, UserMemory};

/// A BTL that reads and writes registered memory of its peers: verbs, most of OFI, and shared memory for what is in an outbox.
///
/// Each operation that takes a [`Cookie`] and does not return an error ends in `on_done`, exactly once. If the peer dies, the
/// operation ends when the endpoint is severed, with `Severed`: it may have happened or not.
pub trait Rdma: Btl {
    /// Registered memory of this process, usable with every peer.
    type Region;
    /// Memory that a peer exposed to this process.
    type Remote;

    /// Registers memory with the device. A safe function, because constructing the `UserMemory` was unsafe.
    fn register(&mut self, memory: &UserMemory) -> Result<Self::Region, RegisterError>;
    /// Ends the device's access to the region; `done` ends when the device accesses it no more.
    fn unregister(&mut self, region: Self::Region, done: Cookie);
    /// Gives this peer access to the region. The key travels in a message (at most 96 bytes).
    fn expose(
        &mut self,
        region: &Self::Region,
        to: Self::Endpoint,
        access: RemoteAccess,
    ) -> Result<RemoteKey, RegisterError>;
    /// Revokes the key. After `done` has ended, no peer has access with the key, whether it lives or not.
    fn unexpose(&mut self, key: RemoteKey, done: Cookie);
    /// Checks a key that a peer sent, and returns the memory that it gives access to.
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
    /// `done` ends when all earlier puts and atomics to this peer are in its memory.
    fn flush(&mut self, to: Self::Endpoint, done: Cookie) -> Result<(), SendError>;
    /// Posts a receive: the device copies the next message with this `label` to `into`. Needs
    /// [`Ability::PostedReceive`](crate::Ability::PostedReceive).
    fn post(
        &mut self,
        from: Self::Endpoint,
        label: u64,
        into: Span<'_, Self::Region>,
        done: Cookie,
    ) -> Result<(), SendError>;
    /// Cancels an operation, if it is not complete. Its cookie ends, and after that the device does not access its memory.
    fn cancel(&mut self, operation: Cookie);
}

/// What a peer may do with exposed memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteAccess {
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
        /// The value that the word gets.
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
    /// The key is garbage: no correct peer makes it.
    BadKey,
}
