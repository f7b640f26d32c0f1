// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Remote memory of the fabric: gets write one half of their bytes, then the other, at moments that the seed decides. A wrong use of
//! a region or an exposure panics.

use mend_base::Random;
use mend_transport::{
    Cookie, Exposure, Region, RegisterError, Remote, RemoteKey, SendError, Span, UserMemory,
};

/// The memory of all processes. Handles are indices, which are never used again.
#[derive(Default, Debug)]
pub(super) struct RemoteMemory {
    /// The process at which no memory can be registered.
    pub(super) registers_nothing: Option<usize>,
    /// No memory can be exposed.
    pub(super) exposes_nothing: bool,
    /// Gets write, and do not end.
    pub(super) holds_gets: bool,
    /// Ends of exposures and unregistrations do not end.
    pub(super) holds_ends: bool,
    /// Every get fails.
    pub(super) fails_gets: bool,
    /// Every get is refused as busy.
    pub(super) refuses_gets: bool,
    /// So many gets of one process run at the same time; 0: any number.
    pub(super) gets_max: usize,
    /// The most gets that ran at the same time.
    pub(super) most: usize,
    regions: Vec<Option<Registered>>,
    exposures: Vec<Option<Exposed>>,
    gets: Vec<Get>,
    ends: Vec<(usize, LocalEnd, Cookie)>,
}

#[derive(Debug)]
struct Registered {
    owner: usize,
    memory: UserMemory,
}

#[derive(Debug)]
struct Exposed {
    owner: usize,
    reader: usize,
    local: Span,
}

#[derive(Clone, Copy, Debug)]
enum LocalEnd {
    Unregister(usize),
    Unexpose(usize),
}

#[derive(Clone, Copy, Debug)]
struct Get {
    reader: usize,
    owner: usize,
    local: Span,
    exposure: usize,
    at: u64,
    done: Cookie,
    has_written: bool,
}

impl RemoteMemory {
    pub(super) fn register(&mut self, owner: usize, memory: &UserMemory) -> Result<Region, RegisterError> {
        if self.registers_nothing == Some(owner) {
            return Err(RegisterError::TooManyRegions);
        }
        self.regions.push(Some(Registered { owner, memory: memory.share() }));
        Ok(Region(self.regions.len() as u64 - 1))
    }

    pub(super) fn unregister(&mut self, owner: usize, region: Region, done: Cookie) {
        let index = region.0 as usize;
        assert_eq!(self.regions[index].as_ref().expect("it is registered").owner, owner);
        assert!(self.gets.iter().all(|get| get.local.region != region), "a get uses the region");
        let exposed = self.exposures.iter().flatten().any(|exposed| exposed.local.region == region);
        assert!(!exposed, "an exposure uses the region");
        self.ends.push((owner, LocalEnd::Unregister(index), done));
    }

    pub(super) fn expose(
        &mut self,
        owner: usize,
        reader: u32,
        local: Span,
    ) -> Result<(Exposure, RemoteKey), RegisterError> {
        if self.exposes_nothing {
            return Err(RegisterError::NoMemory);
        }
        let reader = reader as usize;
        self.exposures.push(Some(Exposed { owner, reader, local }));
        let handle = self.exposures.len() as u64 - 1;
        Ok((Exposure(handle), key(handle, local.bytes)))
    }

    pub(super) fn unexpose(&mut self, owner: usize, exposure: Exposure, done: Cookie) {
        let index = exposure.0 as usize;
        assert_eq!(self.exposures[index].as_ref().expect("it is exposed").owner, owner);
        self.ends.push((owner, LocalEnd::Unexpose(index), done));
    }

    /// No get uses the exposure.
    pub(super) fn assert_unused(&self, exposure: Exposure) {
        let uses = |get: &Get| get.exposure == exposure.0 as usize;
        assert!(!self.gets.iter().any(uses), "a get uses a key that its reader is said not to use");
    }

    pub(super) fn get(
        &mut self,
        reader: usize,
        owner: u32,
        local: Span,
        remote: Remote,
        at: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        let running = self.gets.iter().filter(|get| get.reader == reader).count();
        if self.refuses_gets {
            return Err(SendError::Busy);
        }
        if self.gets_max > 0 && running >= self.gets_max {
            return Err(SendError::Busy);
        }
        assert!(at + local.bytes <= remote.bytes, "a get past the end");
        let owner = owner as usize;
        let exposure = remote.words[0] as usize;
        self.gets.push(Get { reader, owner, local, exposure, at, done, has_written: false });
        self.most = self.most.max(running + 1);
        Ok(())
    }

    /// Something that happens at this process: the end of an operation.
    pub(super) fn step(&mut self, me: usize, random: &mut Random) -> Option<(Cookie, Result<(), SendError>)> {
        if !self.holds_ends
            && let Some(at) = self.ends.iter().position(|(owner, ..)| *owner == me)
        {
            let (_, end, done) = self.ends.remove(at);
            match end {
                LocalEnd::Unregister(region) => self.regions[region] = None,
                LocalEnd::Unexpose(exposure) => self.exposures[exposure] = None,
            }
            return Some((done, Ok(())));
        }
        let own: Vec<usize> = (0..self.gets.len()).filter(|&at| self.gets[at].reader == me).collect();
        let at = *own.get(random.below(own.len().max(1) as u64) as usize)?;
        let get = self.gets[at];
        let half = get.local.bytes / 2;
        let range = if get.has_written { half..get.local.bytes } else { 0..half };
        if !self.write(&get, range) || self.fails_gets {
            self.gets.remove(at);
            return Some((get.done, Err(SendError::LocalFault)));
        }
        self.gets[at].has_written = true;
        if !get.has_written || self.holds_gets {
            return None;
        }
        self.gets.remove(at);
        Some((get.done, Ok(())))
    }

    /// False if the memory is not exposed to the reader any more.
    fn write(&self, get: &Get, range: core::ops::Range<u64>) -> bool {
        let Some(exposed) = &self.exposures[get.exposure] else { return false };
        assert_eq!((exposed.owner, exposed.reader), (get.owner, get.reader));
        let memory = |region: Region| &self.regions[region.0 as usize].as_ref().expect("registered").memory;
        let from = exposed.local.offset + get.at + range.start;
        let to = get.local.offset + range.start;
        let bytes = (range.end - range.start) as usize;
        let target = memory(get.local.region);
        target.copy_from(to as usize, memory(exposed.local.region), from as usize, bytes);
        true
    }

    /// The gets of a process from another one are cut off: their cookies.
    pub(super) fn sever(&mut self, reader: usize, owner: usize) -> Vec<Cookie> {
        let cut = self.gets.extract_if(.., |get| get.reader == reader && get.owner == owner);
        cut.map(|get| get.done).collect()
    }

    /// Whether something goes on by itself.
    pub(super) fn is_busy(&self) -> bool {
        !self.holds_gets && !self.gets.is_empty() || !self.holds_ends && !self.ends.is_empty()
    }

    /// How many gets run.
    pub(super) fn running(&self) -> usize {
        self.gets.len()
    }

    /// How many exposures there are.
    pub(super) fn exposed(&self) -> usize {
        self.exposures.iter().flatten().count()
    }

    /// How many regions, exposures, gets and ends there are.
    pub(super) fn left(&self) -> usize {
        self.regions.iter().flatten().count() + self.exposed() + self.gets.len() + self.ends.len()
    }
}

/// The key of an exposure.
pub(super) fn key(handle: u64, bytes: u64) -> RemoteKey {
    RemoteKey::new(&[handle, bytes].map(u64::to_le_bytes).concat())
}

/// The memory of a key.
pub(super) fn import(key: &[u8]) -> Result<Remote, RegisterError> {
    let words = key.as_chunks::<8>();
    match words {
        ([handle, bytes], []) => {
            Ok(Remote::with_word(u64::from_le_bytes(*bytes), u64::from_le_bytes(*handle)))
        }
        _ => Err(RegisterError::BadKey),
    }
}
