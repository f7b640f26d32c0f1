// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transports that reach into their peers' registered memory. Declared so that nothing stands in its way; its first
//! user comes with the networks.

use crate::{Btl, Cookie, SendError, UserMemory};

/// A transport that reads and writes registered memory of its peers: verbs, most of OFI, shared memory for what lies in
/// an outbox. Everything that takes time ends in `on_done`, exactly once.
pub trait Rdma: Btl {
    /// Memory that the device may use, whoever the peer.
    type Region;
    /// What a peer exposed to us.
    type Remote;

    /// Safe, because making a `UserMemory` was not: see `transport/src/memory.rs`.
    fn register(&mut self, memory: &UserMemory) -> Result<Self::Region, RegisterError>;
    /// Ends the device's use of the region.
    fn unregister(&mut self, region: Self::Region, done: Cookie);
    /// Lets this peer at the region, as the key says; the key travels in a message (at most 96 bytes).
    fn expose(
        &mut self,
        region: &Self::Region,
        to: Self::Endpoint,
        access: Access,
    ) -> Result<RemoteKey, RegisterError>;
    /// Once `done`, the key opens nothing: also towards a peer that lives (revoke, cancel: I7).
    fn unexpose(&mut self, key: RemoteKey, done: Cookie);
    /// Checks and keeps what a peer's key opens.
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
    /// On a 64-bit word at `remote`; its old value into `local`.
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
    /// The next message with this `label` goes straight into `into`. Needs
    /// [`Ability::PostedReceive`](crate::Ability::PostedReceive).
    fn post(
        &mut self,
        from: Self::Endpoint,
        label: u64,
        into: Span<'_, Self::Region>,
        done: Cookie,
    ) -> Result<(), SendError>;
    /// Takes an operation back as far as it can be; its cookie ends, and after that its memory is silent.
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

/// What opens exposed memory: opaque bytes, at most 96.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteKey(pub Vec<u8>);

/// A piece of a region.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a, R> {
    /// Of this.
    pub region: &'a R,
    /// From here, in bytes.
    pub offset: u64,
    /// So many.
    pub bytes: u64,
}

/// What to do to a remote word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Atomic {
    /// Add, and give the old value.
    FetchAdd(u64),
    /// Replace if it is as expected, and give the old value.
    CompareSwap {
        /// What it must be.
        expected: u64,
        /// What it becomes.
        desired: u64,
    },
    /// Replace, and give the old value.
    Swap(u64),
}

/// Why memory could not be registered, exposed or imported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegisterError {
    /// Locked memory, or memory for the books, ran out.
    NoMemory,
    /// The device has no more.
    TooManyRegions,
    /// The key is not one that a correct peer makes.
    BadKey,
}
