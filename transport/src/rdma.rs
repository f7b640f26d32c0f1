// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface of transports with remote memory access.

use crate::{Atomic, Btl, Cookie, SendError, UserMemory};

/// A BTL that reads and writes memory that a peer has exposed. A BTL without remote memory access implements it with an empty
/// `impl`: its [`Limits`](crate::Limits) have none of the abilities, and nobody calls the methods.
///
/// **Cookies.** Each operation that takes a [`Cookie`] and does not return an error ends in `on_done`, exactly once. If the peer dies,
/// the operation ends when the endpoint is severed, with `Severed`: it may have happened or not. If the connection breaks and is made
/// again ([`Btl::resume`]), gets are repeated; puts and atomics end with [`SendError::Unknown`]. From `on_done` on, the transport does
/// not access the local memory of the operation (I7).
///
/// **Emulation.** Where a device lacks an operation, the BTL may emulate it by messages to the peer's BTL. `Limits::emulated` names
/// such abilities: they need progress of the peer, and cost copies.
///
/// **Handles.** [`Region`] and [`Exposure`] are indices with generations (I4). Using one after its end is a mistake of the caller, which
/// ends in [`RegisterError::NoSuchRegion`] or in an error of the operation; it never reaches other memory. A local range past the end of
/// its region is such a mistake, too ([`SendError::LocalFault`]). What the peer does not allow ends with [`SendError::NoAccess`], or
/// another error if the device cannot tell.
///
/// **Sever.** From `on_severed` on, no peer has access through the endpoint, also where exposures are still there. Regions and
/// exposures of the endpoint can still be unregistered and unexposed, and these cookies end, also after `on_severed`.
pub trait Rdma: Btl {
    /// Registers memory for use with the peers of the transport that has this endpoint. A safe function, because constructing the
    /// `UserMemory` was unsafe. The memory must stay valid until the `done` of [`unregister`](Rdma::unregister) has ended.
    fn register(&mut self, with: Self::Endpoint, memory: &UserMemory) -> Result<Region, RegisterError> {
        let _ = (with, memory);
        Err(RegisterError::Unsupported)
    }
    /// Ends the use of a region, which no unfinished operation and no exposure may use; `done` ends when the device accesses it no more.
    fn unregister(&mut self, region: Region, done: Cookie) {
        let _ = (region, done);
    }
    /// Gives this peer access to `bytes` bytes of the region from `offset` on. The key travels in a message of the caller.
    fn expose(
        &mut self,
        to: Self::Endpoint,
        local: Span,
        access: RemoteAccess,
    ) -> Result<(Exposure, RemoteKey), RegisterError> {
        let _ = (to, local, access);
        Err(RegisterError::Unsupported)
    }
    /// Takes the key back. After `done` has ended, no peer has access with this key, whether the peer lives or not: an operation of the
    /// peer that was under way has ended, or fails. The transport may have to ask the peer's BTL.
    fn unexpose(&mut self, exposure: Exposure, done: Cookie) {
        let _ = (exposure, done);
    }
    /// As [`unexpose`](Rdma::unexpose), where the peer has said that none of its operations uses the key any more: it need not be
    /// asked.
    fn unexpose_unused(&mut self, exposure: Exposure, done: Cookie) {
        self.unexpose(exposure, done);
    }
    /// Checks a key that this peer sent, and returns the memory to which it gives access.
    fn import(&mut self, from: Self::Endpoint, key: &[u8]) -> Result<Remote, RegisterError> {
        let _ = (from, key);
        Err(RegisterError::Unsupported)
    }

    /// Copies local bytes to the peer's memory, from `remote_offset` on. At most `transfer_bytes_max` bytes. Returns `Busy` as
    /// [`Btl::send`] does.
    fn put(
        &mut self,
        to: Self::Endpoint,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        let _ = (to, local, remote, remote_offset, done);
        Err(SendError::Unsupported)
    }
    /// Copies the peer's bytes from `remote_offset` on to local memory. Otherwise as [`put`](Rdma::put).
    fn get(
        &mut self,
        from: Self::Endpoint,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        let _ = (from, local, remote, remote_offset, done);
        Err(SendError::Unsupported)
    }
    /// An atomic operation on the 64-bit word at `remote_offset`, which is a multiple of 8; its old value goes to `local`, which has 8
    /// bytes.
    fn atomic(
        &mut self,
        to: Self::Endpoint,
        operation: Atomic,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        let _ = (to, operation, local, remote, remote_offset, done);
        Err(SendError::Unsupported)
    }
    /// `done` ends when all earlier puts and atomics to this peer are in its memory.
    fn flush(&mut self, to: Self::Endpoint, done: Cookie) -> Result<(), SendError> {
        let _ = (to, done);
        Err(SendError::Unsupported)
    }
}

/// Registered memory of this process: a handle of the transport that registered it. A [`Bml`](crate::Bml) keeps the number of the
/// transport in the highest 8 bits; a BTL uses the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Region(pub u64);

/// Memory that this process has exposed to one peer. Bits as in [`Region`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Exposure(pub u64);

/// Memory that a peer exposed to this process: a checked key. It needs no release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// How many bytes may be accessed.
    pub bytes: u64,
    /// What the transport needs: handles of the peer, keys and addresses of its devices.
    pub words: [u64; Remote::WORDS],
}

impl Remote {
    /// How many words a transport has.
    pub const WORDS: usize = 10;

    /// Memory of `bytes` bytes that the transport knows by one word.
    pub const fn with_word(bytes: u64, word: u64) -> Remote {
        let mut words = [0; Remote::WORDS];
        words[0] = word;
        Remote { bytes, words }
    }
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

/// The key to exposed memory, as it travels: opaque bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RemoteKey {
    bytes: [u8; RemoteKey::BYTES_MAX],
    len: u8,
}

impl RemoteKey {
    /// The longest key, in bytes.
    pub const BYTES_MAX: usize = 96;

    /// A key of these bytes, of which there are at most [`BYTES_MAX`](RemoteKey::BYTES_MAX).
    pub fn new(key: &[u8]) -> RemoteKey {
        let mut bytes = [0; RemoteKey::BYTES_MAX];
        bytes[..key.len()].copy_from_slice(key);
        RemoteKey { bytes, len: key.len() as u8 }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl core::fmt::Debug for RemoteKey {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_tuple("RemoteKey").field(&self.as_bytes()).finish()
    }
}

/// A range of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The region.
    pub region: Region,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub bytes: u64,
}

/// Why memory could not be registered, exposed or imported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegisterError {
    /// The transport has no remote memory access.
    Unsupported,
    /// Locked memory, or memory for registration metadata, ran out.
    NoMemory,
    /// The device has no more regions.
    TooManyRegions,
    /// The region or exposure has ended, or the range reaches past its end.
    NoSuchRegion,
    /// The key is garbage: no correct peer makes it.
    BadKey,
}
