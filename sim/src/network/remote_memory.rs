// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Remote memory access of the simulated network: regions, exposures, and gets that take their time. A get writes its bytes in two
//! pieces, at moments that the seed decides; one that fails, or that a sever ends, may have written some of them. What no correct caller
//! does, such as ending the use of a region of which a get runs, panics: so a buffer is never written after its request has ended.

use mend_base::{Key, Random, Reader, Slab};
use mend_transport::{
    Cookie, Exposure, Region, RegisterError, Remote, RemoteKey, SendError, Span, UserMemory,
};
use std::collections::BTreeSet;

/// What of remote memory access a job has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteAccessFaults {
    /// Memory is not registered or exposed once in so many times; 0 is never.
    pub refusal_once_in: u64,
    /// A get fails at the end of its reader once in so many times; 0 is never.
    pub failure_once_in: u64,
}

/// The regions and exposures of all processes.
#[derive(Debug, Default)]
pub(super) struct RemoteMemory {
    pub faults: RemoteAccessFaults,
    regions: Slab<RegisteredMemory>,
    exposures: Slab<ExposedMemory>,
    /// Ends of local operations that were not reported yet, by process.
    ends: Vec<(u32, LocalEnd)>,
    /// Processes that are gone: their memory cannot be read.
    gone: BTreeSet<u32>,
}

#[derive(Debug)]
struct RegisteredMemory {
    owner: u32,
    memory: UserMemory,
    /// Gets and exposures that use it.
    users: u32,
    is_ending: bool,
}

#[derive(Debug)]
struct ExposedMemory {
    owner: u32,
    reader: u32,
    region: Key,
    offset: u64,
    bytes: u64,
    /// The endpoint to the reader is severed.
    is_severed: bool,
    is_ending: bool,
}

/// The end of a local operation.
#[derive(Clone, Copy, Debug)]
enum LocalEnd {
    Unregister(Key, Cookie),
    Unexpose(Key, Cookie),
}

/// A get that runs.
#[derive(Debug)]
pub(super) struct RunningGet {
    region: Key,
    offset: u64,
    bytes: u64,
    exposure: u64,
    remote_offset: u64,
    done: Cookie,
    /// Bytes that it has written.
    written: u64,
}

const KEY_MARK: u64 = 0x6d65_6e64_6b65_7931;

fn bits(key: Key) -> u64 {
    u64::from(key.generation) << 24 | u64::from(key.index)
}

fn key_of(bits: u64) -> Key {
    Key { index: bits as u32 & 0xff_ffff, generation: (bits >> 24) as u32 }
}

impl RemoteMemory {
    fn refuses(&self, random: &mut Random) -> Option<RegisterError> {
        let refuses = self.faults.refusal_once_in > 0 && random.once_in(self.faults.refusal_once_in);
        let errors = [RegisterError::NoMemory, RegisterError::TooManyRegions];
        refuses.then(|| errors[random.below(2) as usize])
    }

    pub fn register(
        &mut self,
        owner: u32,
        memory: &UserMemory,
        random: &mut Random,
    ) -> Result<Region, RegisterError> {
        if let Some(error) = self.refuses(random) {
            mend_base::reach!("sim.network: memory is not registered");
            return Err(error);
        }
        let memory = RegisteredMemory { owner, memory: memory.share(), users: 0, is_ending: false };
        Ok(Region(bits(self.regions.insert(memory))))
    }

    pub fn unregister(&mut self, me: u32, region: Region, done: Cookie) {
        let key = key_of(region.0);
        let registered = self.regions.get_mut(key).expect("a region is unregistered once");
        assert!(registered.owner == me && !registered.is_ending, "its owner unregisters a region once");
        assert_eq!(registered.users, 0, "a region is unregistered while gets or exposures use it");
        registered.is_ending = true;
        self.ends.push((me, LocalEnd::Unregister(key, done)));
    }

    pub fn expose(
        &mut self,
        me: u32,
        reader: u32,
        local: Span,
        random: &mut Random,
    ) -> Result<(Exposure, RemoteKey), RegisterError> {
        if let Some(error) = self.refuses(random) {
            mend_base::reach!("sim.network: memory is not exposed");
            return Err(error);
        }
        let region = key_of(local.region.0);
        let registered = self.region(me, local);
        registered.users += 1;
        let exposed = ExposedMemory {
            owner: me,
            reader,
            region,
            offset: local.offset,
            bytes: local.bytes,
            is_severed: false,
            is_ending: false,
        };
        let handle = bits(self.exposures.insert(exposed));
        let key = [KEY_MARK, handle, local.bytes].map(u64::to_le_bytes).concat();
        Ok((Exposure(handle), RemoteKey::new(&key)))
    }

    pub fn unexpose(&mut self, me: u32, exposure: Exposure, done: Cookie) {
        let key = key_of(exposure.0);
        let exposed = self.exposures.get_mut(key).expect("a key is taken back once");
        assert!(exposed.owner == me && !exposed.is_ending, "its owner takes a key back once");
        exposed.is_ending = true;
        self.ends.push((me, LocalEnd::Unexpose(key, done)));
    }

    /// The endpoint of a process to a reader is severed: the reader has no access any more.
    pub fn sever(&mut self, me: u32, reader: u32) {
        for (_, exposed) in self.exposures.iter_mut() {
            exposed.is_severed |= (exposed.owner, exposed.reader) == (me, reader);
        }
    }

    pub fn import(key: &[u8]) -> Result<Remote, RegisterError> {
        let mut reader = Reader::new(key);
        let words = [reader.u64(), reader.u64(), reader.u64()];
        match words {
            [Some(KEY_MARK), Some(key), Some(bytes)] if reader.rest().is_empty() => {
                Ok(Remote::with_word(bytes, key))
            }
            _ => Err(RegisterError::BadKey),
        }
    }

    pub fn get(
        &mut self,
        me: u32,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> RunningGet {
        assert!(remote_offset + local.bytes <= remote.bytes, "a get past the end of the remote memory");
        self.region(me, local).users += 1;
        RunningGet {
            region: key_of(local.region.0),
            offset: local.offset,
            bytes: local.bytes,
            exposure: remote.words[0],
            remote_offset,
            done,
            written: 0,
        }
    }

    fn region(&mut self, owner: u32, span: Span) -> &mut RegisteredMemory {
        let registered = self.regions.get_mut(key_of(span.region.0)).expect("the region is registered");
        assert!(registered.owner == owner && !registered.is_ending, "its owner uses a region");
        assert!(
            span.offset + span.bytes <= registered.memory.len() as u64,
            "a span past the end of its region"
        );
        registered
    }

    /// Whether the memory that a get of `reader` reads is there. `None`: its process is gone, and nobody will ever know.
    fn is_readable(&self, get: &RunningGet, owner: u32, reader: u32) -> Option<bool> {
        if self.gone.contains(&owner) {
            return None;
        }
        let exposed = self.exposures.get(key_of(get.exposure));
        let fits = |exposed: &&ExposedMemory| {
            (exposed.owner, exposed.reader) == (owner, reader)
                && !exposed.is_severed
                && get.remote_offset + get.bytes <= exposed.bytes
        };
        Some(exposed.filter(fits).is_some())
    }

    /// Writes the bytes of a get up to `end`.
    fn write(&mut self, get: &mut RunningGet, end: u64) {
        let Some(exposed) = self.exposures.get(key_of(get.exposure)) else { return };
        let (from, to) = (self.regions.get(exposed.region), self.regions.get(get.region));
        let (Some(from), Some(to)) = (from, to) else {
            panic!("a get runs, and its region is not registered")
        };
        let bytes = (end - get.written) as usize;
        let at = (exposed.offset + get.remote_offset + get.written) as usize;
        to.memory.copy_from((get.offset + get.written) as usize, &from.memory, at, bytes);
        get.written = end;
    }

    /// Goes on with a get of `reader` from `owner`. `Some`: it has ended.
    pub fn advance(
        &mut self,
        get: &mut RunningGet,
        (owner, reader): (u32, u32),
        random: &mut Random,
    ) -> Option<Result<(), SendError>> {
        if !self.is_readable(get, owner, reader)? {
            mend_base::reach!("sim.network: a get with a key that was taken back");
            return Some(Err(SendError::NoAccess));
        }
        if get.written == 0 && get.bytes > 1 && random.once_in(3) {
            let end = 1 + random.below(get.bytes - 1);
            self.write(get, end);
            return None;
        }
        if self.faults.failure_once_in > 0 && random.once_in(self.faults.failure_once_in) {
            mend_base::reach!("sim.network: a get fails");
            return Some(Err(SendError::LocalFault));
        }
        self.write(get, get.bytes);
        Some(Ok(()))
    }

    /// The endpoint of a get is severed: it may have happened or not.
    pub fn cut(&mut self, get: &mut RunningGet, (owner, reader): (u32, u32), random: &mut Random) {
        if self.is_readable(get, owner, reader) == Some(true) && random.once_in(2) {
            self.write(get, get.bytes);
        }
    }

    /// A get has ended, and its end is reported: the cookie.
    pub fn end(&mut self, get: &RunningGet) -> Cookie {
        if let Some(registered) = self.regions.get_mut(get.region) {
            registered.users -= 1;
        }
        get.done
    }

    /// Whether the process of this memory is gone.
    pub fn is_gone(&self, number: u32) -> bool {
        self.gone.contains(&number)
    }

    pub fn has_local_ends(&self, me: u32) -> bool {
        self.ends.iter().any(|(owner, _)| *owner == me)
    }

    /// A local operation of a process ends now: its cookie.
    pub fn take_local_end(&mut self, me: u32, random: &mut Random) -> Option<Cookie> {
        let count = self.ends.iter().filter(|(owner, _)| *owner == me).count();
        let chosen = (count > 0).then(|| random.below(count as u64) as usize)?;
        let mut own = (0..self.ends.len()).filter(|&at| self.ends[at].0 == me);
        let (_, end) = self.ends.remove(own.nth(chosen)?);
        match end {
            LocalEnd::Unregister(region, done) => {
                self.regions.remove(region);
                Some(done)
            }
            LocalEnd::Unexpose(exposure, done) => {
                let exposed = self.exposures.remove(exposure)?;
                self.regions
                    .get_mut(exposed.region)
                    .expect("unregistered after its key is taken back")
                    .users -= 1;
                Some(done)
            }
        }
    }

    /// The process has ended.
    pub fn remove_process(&mut self, number: u32) {
        self.gone.insert(number);
        self.ends.retain(|(owner, _)| *owner != number);
        let exposures = self.exposures.iter().filter(|(_, exposed)| exposed.owner == number);
        let exposures: Vec<Key> = exposures.map(|(key, _)| key).collect();
        exposures.into_iter().for_each(|key| _ = self.exposures.remove(key));
        let regions = self.regions.iter().filter(|(_, registered)| registered.owner == number);
        let regions: Vec<Key> = regions.map(|(key, _)| key).collect();
        regions.into_iter().for_each(|key| _ = self.regions.remove(key));
    }

    /// How many regions and exposures a process has.
    pub fn count(&self, number: u32) -> (usize, usize) {
        let regions = self.regions.iter().filter(|(_, registered)| registered.owner == number).count();
        (regions, self.exposures.iter().filter(|(_, exposed)| exposed.owner == number).count())
    }
}
