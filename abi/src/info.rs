// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Info objects (MPI-5.0 chapter 10): lists of keys and values, with the handles that the program has.
//!
//! The table exists before Init and after Finalize too, where info objects may be created, read and freed. One lock protects it. While
//! it is held, no other lock is taken, the engine is not entered, and no memory of the program is read or written.

mod environment;

use crate::argument_error::ArgumentError;
use crate::generated::constants::{INFO_ENV, INFO_NULL};
use crate::handle::{self, Handle};
pub(crate) use environment::{of_arguments, of_process};
use mend_base::Slab;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Keys and values in the order in which the keys were set first; bytes as the program gave them. A key occurs once.
#[derive(Default, Debug)]
pub(crate) struct Info {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Info {
    /// The keys and values, in order.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.pairs.iter().map(|(key, value)| (&key[..], &value[..]))
    }

    pub(crate) fn len(&self) -> usize {
        self.pairs.len()
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.pairs().find(|(each, _)| *each == key).map(|(_, value)| value)
    }

    /// Sets the value of a key. `Err`: there is no memory for it, and nothing is changed.
    pub(crate) fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), ArgumentError> {
        let value = copy(value)?;
        match self.pairs.iter_mut().find(|(each, _)| each == key) {
            Some(pair) => pair.1 = value,
            None => {
                self.pairs.try_reserve(1).map_err(|_| ArgumentError::Memory)?;
                self.pairs.push((copy(key)?, value));
            }
        }
        Ok(())
    }

    /// Removes a key. `None`: it is not there.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<()> {
        let at = self.pairs.iter().position(|(each, _)| each == key)?;
        self.pairs.remove(at);
        Some(())
    }

    pub(crate) fn try_clone(&self) -> Result<Info, ArgumentError> {
        let mut clone = Info::default();
        clone.pairs.try_reserve_exact(self.pairs.len()).map_err(|_| ArgumentError::Memory)?;
        for (key, value) in self.pairs() {
            clone.pairs.push((copy(key)?, copy(value)?));
        }
        Ok(clone)
    }
}

fn copy(bytes: &[u8]) -> Result<Vec<u8>, ArgumentError> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| ArgumentError::Memory)?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// The info objects that the program has created and not freed.
static INFOS: LazyLock<Mutex<Slab<Info>>> = LazyLock::new(Mutex::default);

fn infos() -> MutexGuard<'static, Slab<Info>> {
    // A panic under the lock was a bug that was reported; the table is consistent, since every change of it is one step.
    INFOS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new handle of an info object.
pub(crate) fn insert(info: Info) -> Result<Handle, ArgumentError> {
    infos().try_insert(info).map(handle::of_key).ok_or(ArgumentError::Memory)
}

/// Whether an argument may have this handle: MPI_INFO_NULL, MPI_INFO_ENV, or that of an info object that was not freed.
pub(crate) fn is_valid(handle: Handle) -> bool {
    matches!(handle, INFO_NULL | INFO_ENV)
        || handle::key(handle).is_some_and(|key| infos().get(key).is_some())
}

/// Reads the info object with this handle, also MPI_INFO_ENV.
pub(crate) fn read<R>(handle: Handle, read: impl FnOnce(&Info) -> R) -> Result<R, ArgumentError> {
    if handle == INFO_ENV {
        return Ok(read(of_process()));
    }
    let key = handle::key(handle).ok_or(ArgumentError::Info)?;
    infos().get(key).map(read).ok_or(ArgumentError::Info)
}

/// A copy of the info object that a call was given; MPI_INFO_NULL is an empty one.
pub(crate) fn given(handle: Handle) -> Result<Info, ArgumentError> {
    if handle == INFO_NULL { Ok(Info::default()) } else { read(handle, Info::try_clone)? }
}

/// Changes the info object with this handle. MPI_INFO_ENV cannot be changed.
pub(crate) fn change<R>(handle: Handle, change: impl FnOnce(&mut Info) -> R) -> Result<R, ArgumentError> {
    let key = own_key(handle)?;
    infos().get_mut(key).map(change).ok_or(ArgumentError::Info)
}

/// MPI_Info_free.
pub(crate) fn free(handle: Handle) -> Result<(), ArgumentError> {
    let key = own_key(handle)?;
    // Dropped after the lock.
    let freed = infos().remove(key);
    freed.map(drop).ok_or(ArgumentError::Info)
}

/// The key of an info object that the program may change.
fn own_key(handle: Handle) -> Result<mend_base::Key, ArgumentError> {
    if handle == INFO_ENV {
        return Err(ArgumentError::InfoReadOnly);
    }
    handle::key(handle).ok_or(ArgumentError::Info)
}

#[cfg(test)]
mod tests {
    use super::{Info, change, free, given, insert, is_valid, read};
    use crate::argument_error::ArgumentError;
    use crate::generated::constants::{INFO_ENV, INFO_NULL};

    fn keys(info: &Info) -> Vec<&[u8]> {
        info.pairs().map(|(key, _)| key).collect()
    }

    #[test]
    fn keys_stay_in_order_and_a_new_value_replaces_the_old_one() {
        let mut info = Info::default();
        for (key, value) in [("b", "1"), ("a", "2"), ("c", "3"), ("a", "4")] {
            info.set(key.as_bytes(), value.as_bytes()).unwrap();
        }
        assert_eq!(keys(&info), [b"b", b"a", b"c"]);
        assert_eq!((info.get(b"a"), info.get(b"A")), (Some(&b"4"[..]), None));
        let clone = info.try_clone().unwrap();
        assert_eq!((info.remove(b"b"), info.remove(b"b")), (Some(()), None));
        assert_eq!((keys(&info), info.len()), (vec![&b"a"[..], b"c"], 2));
        assert_eq!(keys(&clone), [b"b", b"a", b"c"]);
    }

    #[test]
    fn handles_are_valid_until_they_are_freed_and_predefined_ones_are_not_changed() {
        let handle = insert(Info::default()).unwrap();
        change(handle, |info| info.set(b"key", b"value")).unwrap().unwrap();
        assert_eq!(read(handle, Info::len), Ok(1));
        assert_eq!(given(handle).map(|info| info.len()), Ok(1));
        assert_eq!(given(INFO_NULL).map(|info| info.len()), Ok(0));
        assert!(is_valid(handle) && is_valid(INFO_NULL) && is_valid(INFO_ENV) && !is_valid(0));
        assert_eq!((free(handle), free(handle)), (Ok(()), Err(ArgumentError::Info)));
        assert!(!is_valid(handle));
        assert_eq!(
            (read(handle, Info::len), read(INFO_NULL, Info::len)),
            (Err(ArgumentError::Info), Err(ArgumentError::Info))
        );
        assert_eq!(
            (free(INFO_ENV), free(INFO_NULL)),
            (Err(ArgumentError::InfoReadOnly), Err(ArgumentError::Info))
        );
        assert_eq!(change(INFO_ENV, |_| ()), Err(ArgumentError::InfoReadOnly));
        assert!(read(INFO_ENV, Info::len).unwrap() > 0);
    }
}
