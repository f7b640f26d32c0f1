// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Regions and exposures of a transport whose own code, not a device, accesses exposed memory: loopback, and the emulation of remote memory
//! access by messages.

use crate::{Exposure, Region, RegisterError, RemoteAccess, Span, UserMemory};
use mend_base::{Key, Slab};

/// The registered memory of one process, and what of it is exposed to which endpoint. A handle is an index and a generation (I4): a
/// handle that has ended reaches nothing, and a handle that a peer invented reaches at most what is exposed to that peer.
#[derive(Debug, Default)]
pub struct Regions {
    regions: Slab<UserMemory>,
    exposures: Slab<Exposed>,
}

#[derive(Debug)]
struct Exposed {
    /// Who may access the memory; `None`: nobody any more, because the endpoint was severed.
    to: Option<u32>,
    memory: UserMemory,
    access: RemoteAccess,
}

/// What a peer wants to do with exposed memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessKind {
    /// A get.
    Read,
    /// A put.
    Write,
    /// An atomic operation.
    Atomic,
}

impl Regions {
    /// No regions; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many regions and exposures there are.
    pub fn len(&self) -> usize {
        self.regions.len() + self.exposures.len()
    }

    /// Whether there is neither a region nor an exposure.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a region.
    pub fn register(&mut self, memory: &UserMemory) -> Result<Region, RegisterError> {
        insert(&mut self.regions, memory.share()).map(Region)
    }

    /// Removes a region; `false`: it has ended before. Exposures of the region go on until they are unexposed.
    pub fn unregister(&mut self, region: Region) -> bool {
        key(region.0).is_some_and(|key| self.regions.remove(key).is_some())
    }

    /// The memory of a span; `None`: the region has ended, or the span reaches past its end.
    pub fn local(&self, span: Span) -> Option<UserMemory> {
        part(self.regions.get(key(span.region.0)?)?, span.offset, span.bytes)
    }

    /// Exposes a span to an endpoint.
    pub fn expose(&mut self, to: u32, local: Span, access: RemoteAccess) -> Result<Exposure, RegisterError> {
        let memory = self.local(local).ok_or(RegisterError::NoSuchRegion)?;
        insert(&mut self.exposures, Exposed { to: Some(to), memory, access }).map(Exposure)
    }

    /// Removes an exposure; `false`: it has ended before.
    pub fn unexpose(&mut self, exposure: Exposure) -> bool {
        key(exposure.0).is_some_and(|key| self.exposures.remove(key).is_some())
    }

    /// Ends the access of an endpoint to all that is exposed to it. The exposures stay until they are unexposed.
    pub fn sever(&mut self, endpoint: u32) {
        for (_, exposed) in self.exposures.iter_mut().filter(|(_, exposed)| exposed.to == Some(endpoint)) {
            exposed.to = None;
        }
    }

    /// The `bytes` bytes from `offset` on of an exposure; `None`: the endpoint has no such access, or the range reaches past the end.
    pub fn exposed(
        &self,
        to: u32,
        exposure: Exposure,
        kind: AccessKind,
        offset: u64,
        bytes: u64,
    ) -> Option<UserMemory> {
        let exposed = self.exposures.get(key(exposure.0)?)?;
        let allowed = match kind {
            AccessKind::Read => exposed.access.read,
            AccessKind::Write => exposed.access.write,
            AccessKind::Atomic => exposed.access.atomic,
        };
        if exposed.to != Some(to) || !allowed {
            return None;
        }
        part(&exposed.memory, offset, bytes)
    }
}

fn part(memory: &UserMemory, offset: u64, bytes: u64) -> Option<UserMemory> {
    memory.part(usize::try_from(offset).ok()?, usize::try_from(bytes).ok()?)
}

/// Adds an entry, and returns its handle of 56 bits: the index in the lowest 24, the generation above.
fn insert<T>(slab: &mut Slab<T>, entry: T) -> Result<u64, RegisterError> {
    if slab.slots() >= 1 << INDEX_BITS && !slab.has_empty_slot() {
        return Err(RegisterError::TooManyRegions);
    }
    let key = slab.try_insert(entry).ok_or(RegisterError::NoMemory)?;
    Ok(u64::from(key.generation) << INDEX_BITS | u64::from(key.index))
}

/// The key of a handle; `None`: no handle has this value.
fn key(handle: u64) -> Option<Key> {
    let index = (handle & ((1 << INDEX_BITS) - 1)) as u32;
    Some(Key { index, generation: u32::try_from(handle >> INDEX_BITS).ok()? })
}

const INDEX_BITS: u32 = 24;

#[cfg(test)]
mod tests {
    use super::{AccessKind, Regions};
    use crate::{Buffer, Region, RegisterError, RemoteAccess, Span, UserMemory};

    const READ: RemoteAccess = RemoteAccess { read: true, write: false, atomic: false };

    fn span(region: Region, offset: u64, bytes: u64) -> Span {
        Span { region, offset, bytes }
    }

    #[test]
    fn a_handle_that_has_ended_or_was_invented_reaches_no_memory() {
        let mut regions = Regions::new();
        let memory = UserMemory::of_buffer(&Buffer::zeroed(16));
        let first = regions.register(&memory).unwrap();
        assert!(regions.unregister(first));
        let second = regions.register(&memory).unwrap();
        assert!(first != second && regions.local(span(second, 0, 16)).is_some());
        for stale in [first, Region(first.0 ^ 1), Region(0), Region(u64::MAX)] {
            assert!(regions.local(span(stale, 0, 1)).is_none(), "{stale:?}");
            assert!(!regions.unregister(stale), "{stale:?}");
            assert_eq!(regions.expose(0, span(stale, 0, 1), READ), Err(RegisterError::NoSuchRegion));
        }
    }

    #[test]
    fn an_exposure_gives_its_range_to_its_endpoint_for_its_access_alone() {
        let mut regions = Regions::new();
        let region = regions.register(&UserMemory::of_buffer(&Buffer::from_bytes(b"abcdef"))).unwrap();
        let exposure = regions.expose(3, span(region, 1, 4), READ).unwrap();
        let read = |regions: &Regions, to, offset, bytes| {
            regions.exposed(to, exposure, AccessKind::Read, offset, bytes)
        };
        let mut out = [0; 2];
        read(&regions, 3, 2, 2).unwrap().read(0, &mut out);
        assert_eq!(&out, b"de");
        assert!(read(&regions, 3, 3, 2).is_none(), "past the end");
        assert!(read(&regions, 3, u64::MAX, 2).is_none(), "past the end");
        assert!(read(&regions, 2, 0, 1).is_none(), "another endpoint");
        assert!(regions.exposed(3, exposure, AccessKind::Write, 0, 1).is_none(), "only reads");
        assert!(regions.exposed(3, exposure, AccessKind::Atomic, 0, 1).is_none(), "only reads");
        regions.sever(3);
        assert!(read(&regions, 3, 0, 1).is_none(), "severed");
        assert!(regions.unexpose(exposure) && !regions.unexpose(exposure));
        assert!(regions.unregister(region) && regions.is_empty());
    }
}
