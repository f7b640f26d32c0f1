// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys of exposed memory: the handle that emulated operations use, and for each rail the key of its device.
//!
//! There is no cache of registrations: what is not cached cannot be stale after munmap, remap or fork. With the providers over sockets a
//! registration is an entry of a table; what it costs with others is not measured.

use crate::rail::Rail;
use crate::transfers::What;
use mend_base::{Reader, Writer};
use mend_ffi_ofi::bindings::{FI_MR_PROV_KEY, FI_MR_VIRT_ADDR};
use mend_ffi_ofi::{Access, Code, Registration};
use mend_transport::{Exposure, RegisterError, Remote, RemoteAccess, RemoteKey, UserMemory};
use std::collections::HashMap;

/// The registrations of exposed memory.
#[derive(Debug, Default)]
pub struct DeviceKeys {
    /// By exposure: the connection, and the registrations with each rail.
    exposures: HashMap<u64, (u32, Vec<Registration>)>,
    /// The last key, where the provider does not choose it. None is used twice, so an old key reaches nothing.
    last_key: u64,
}

/// A key and an address.
type DeviceKey = (u64, u64);

/// How many rails a key has room for.
pub const RAILS_MAX: usize = (Remote::WORDS - 2) / 2;

impl DeviceKeys {
    /// Lets the peer of a connection read `memory` by the devices of all rails. Returns keys and addresses, by rail.
    pub fn add(
        &mut self,
        rails: &[Rail],
        exposure: Exposure,
        connection: u32,
        memory: &UserMemory,
    ) -> Result<[DeviceKey; RAILS_MAX], RegisterError> {
        let mut keys = [(0, 0); RAILS_MAX];
        let mut registrations = Vec::with_capacity(rails.len());
        for (rail, key) in rails.iter().zip(&mut keys) {
            let mode = rail.device().info().registration_mode();
            self.last_key += u64::from(mode & FI_MR_PROV_KEY == 0);
            let access = Access { source: false, target: false, remote_read: true, remote_write: false };
            // SAFETY: whoever registered the memory promised that it is readable until it is unregistered, before which this exposure
            // ends. The device only reads it.
            let registration = unsafe {
                Registration::new(rail.device(), memory.start(), memory.len(), access, self.last_key)
            };
            let registration = registration.map_err(refusal)?;
            let address = if mode & FI_MR_VIRT_ADDR != 0 { memory.start().addr() as u64 } else { 0 };
            *key = (registration.key(), address);
            registrations.push(registration);
        }
        self.exposures.insert(exposure.0, (connection, registrations));
        Ok(keys)
    }

    /// The exposure has ended: no read by its keys begins any more, if all registrations could be closed. Returns the connection whose peer
    /// had the keys; `None`: no device gave access.
    pub fn remove(&mut self, exposure: Exposure) -> Option<(u32, Result<(), Code>)> {
        let (connection, registrations) = self.exposures.remove(&exposure.0)?;
        // Each is closed, also after an error.
        let closed = registrations.into_iter().map(Registration::close).fold(Ok(()), Result::and);
        Some((connection, closed))
    }

    /// Whether the peer of a connection has keys.
    pub fn has(&self, connection: u32) -> bool {
        self.exposures.values().any(|(owner, _)| *owner == connection)
    }

    /// The peer of this connection has no access any more. The caller sees to reads that were under way. An error: it may begin reads.
    pub fn sever(&mut self, connection: u32) -> Result<(), Code> {
        let ended = self.exposures.extract_if(|_, (owner, _)| *owner == connection);
        ended
            .flat_map(|(_, (_, registrations))| registrations)
            .map(Registration::close)
            .fold(Ok(()), Result::and)
    }
}

/// Why a device does not register memory.
pub fn refusal(code: Code) -> RegisterError {
    use mend_ffi_ofi::bindings as fi;
    match code.0 as u32 {
        fi::FI_ENOSPC | fi::FI_EMFILE | fi::FI_ENOKEY => RegisterError::TooManyRegions,
        _ => RegisterError::NoMemory,
    }
}

/// Bits of the rights in a key.
const READ: u64 = 1;
const WRITE: u64 = 2;
const ATOMIC: u64 = 4;

/// A key as it travels: the length, the handle of the exposure, the rights, and keys and addresses by rail.
pub fn write_key(
    bytes: u64,
    exposure: Exposure,
    access: RemoteAccess,
    keys: [DeviceKey; RAILS_MAX],
) -> RemoteKey {
    let bit = |allowed, bit| if allowed { bit } else { 0 };
    let rights = bit(access.read, READ) | bit(access.write, WRITE) | bit(access.atomic, ATOMIC);
    let mut out = [0; 8 * (1 + Remote::WORDS)];
    let mut writer = Writer::new(&mut out);
    [bytes, exposure.0, rights].into_iter().for_each(|word| writer.u64(word));
    keys.into_iter().for_each(|(key, address)| {
        writer.u64(key);
        writer.u64(address);
    });
    RemoteKey::new(&out)
}

/// Reads a key of a peer.
pub fn read_key(key: &[u8]) -> Result<Remote, RegisterError> {
    let mut reader = Reader::new(key);
    let bytes = reader.u64().filter(|&bytes| bytes <= isize::MAX as u64).ok_or(RegisterError::BadKey)?;
    let mut remote = Remote { bytes, words: [0; Remote::WORDS] };
    for word in &mut remote.words {
        *word = reader.u64().ok_or(RegisterError::BadKey)?;
    }
    let fits = (0..RAILS_MAX).all(|rail| device_key(&remote, rail).1.checked_add(bytes).is_some());
    if reader.rest().is_empty() && fits { Ok(remote) } else { Err(RegisterError::BadKey) }
}

/// The handle of the exposure at the peer.
pub fn handle(remote: &Remote) -> u64 {
    remote.words[0]
}

/// What the key allows. The peer checks emulated operations itself; a device may not, so the reader keeps to it.
pub fn access(remote: &Remote) -> RemoteAccess {
    let has = |bit| remote.words[1] & bit != 0;
    RemoteAccess { read: has(READ), write: has(WRITE), atomic: has(ATOMIC) }
}

/// Whether the key allows a transfer.
pub fn allows(remote: &Remote, what: What) -> bool {
    let access = access(remote);
    match what {
        What::DeviceGet | What::Get => access.read,
        What::Put => access.write,
        What::Atomic => access.atomic,
        What::Flush => true,
    }
}

/// Key and address for a rail.
pub fn device_key(remote: &Remote, rail: usize) -> DeviceKey {
    (remote.words[2 + 2 * rail], remote.words[3 + 2 * rail])
}

#[cfg(test)]
mod tests {
    use super::{RAILS_MAX, access, device_key, handle, read_key, write_key};
    use mend_transport::{Exposure, RegisterError, RemoteAccess};

    #[test]
    fn what_was_written_is_read_and_impossible_keys_are_refused() {
        let rights = RemoteAccess { read: true, write: false, atomic: true };
        let keys = [(1, 2), (3, 4), (5, 6), (7, 8)];
        let key = write_key(100, Exposure(77), rights, keys);
        let remote = read_key(key.as_bytes()).unwrap();
        assert_eq!((remote.bytes, handle(&remote), access(&remote)), (100, 77, rights));
        assert_eq!(core::array::from_fn::<_, RAILS_MAX, _>(|rail| device_key(&remote, rail)), keys);
        let past = write_key(100, Exposure(77), rights, [(1, u64::MAX); RAILS_MAX]);
        assert_eq!(read_key(past.as_bytes()), Err(RegisterError::BadKey));
        assert_eq!(read_key(&key.as_bytes()[1..]), Err(RegisterError::BadKey));
        let endless = write_key(u64::MAX, Exposure(77), rights, keys);
        assert_eq!(read_key(endless.as_bytes()), Err(RegisterError::BadKey));
    }
}
