// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of our sends that their receivers may read: registered, exposed to one peer, and released again.
//!
//! ```text
//!             close                 unexposed                   unregistered
//!   Open ────────────▶ Unexposing ───────────▶ Unregistering ───────────────▶ (removed; the request goes on, or ends)
//!     └── it could not be exposed ──────────────▶
//! ```
//!
//! From the end of the second step on no peer reads the memory and no transport uses it: only then may its request end, or the program
//! write to it (I7). The transports are lent with the next flush: until then an entry is *due*.

use crate::cookies::{Step, cookie, entry_of, reserve_entry};
use mend_base::{Key, Slab};
use mend_transport::{Cookie, Exposure, Region, RemoteKey};
use std::collections::VecDeque;

/// The exposed memory of all sends.
#[derive(Default, Debug)]
pub(crate) struct Exposures {
    entries: Slab<Exposed>,
    /// Entries whose next step is to be started. The capacity is at least the number of entries, and each is in it once at most.
    due: VecDeque<Key>,
}

/// The memory of one send.
#[derive(Debug)]
struct Exposed {
    request: Key,
    region: Region,
    /// `None`: no peer has access, or none will have soon.
    exposure: Option<(Exposure, RemoteKey)>,
    /// No get of the receiver uses the key: it has answered the RTS, or the RTS was not sent.
    is_unused: bool,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Open,
    Unexposing,
    Unregistering,
}

/// A step to be started at the transports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Release {
    Unexpose(Exposure, Cookie),
    /// As `Unexpose`; the receiver does not use the key any more.
    UnexposeUnused(Exposure, Cookie),
    Unregister(Region, Cookie),
}

impl Exposures {
    /// Sees to it that one more send can be added. `false`: there is no memory.
    pub(crate) fn reserve(&mut self) -> bool {
        let missing = self.entries.len() + 1 - self.due.len();
        reserve_entry(&mut self.entries) && mend_base::reserve_queue(&mut self.due, missing)
    }

    /// Adds the memory of a send, for which [`reserve`](Exposures::reserve) has found room. `None`: it could not be exposed, and is
    /// released at once.
    pub(crate) fn add(
        &mut self,
        request: Key,
        region: Region,
        exposure: Option<(Exposure, RemoteKey)>,
    ) -> Key {
        let is_exposed = exposure.is_some();
        let (is_unused, stage) = (false, Stage::Open);
        let entry = self.entries.insert(Exposed { request, region, exposure, is_unused, stage });
        if !is_exposed {
            self.close(entry);
        }
        entry
    }

    /// The key for the receiver; `None`: it is being taken back.
    pub(crate) fn remote_key(&self, entry: Key) -> Option<RemoteKey> {
        let exposed = self.entries.get(entry).filter(|exposed| exposed.stage == Stage::Open)?;
        exposed.exposure.map(|(_, key)| key)
    }

    /// The receiver has answered the RTS, which it does after all its gets have ended, or the RTS was not sent.
    pub(crate) fn set_unused(&mut self, entry: Key) {
        if let Some(exposed) = self.entries.get_mut(entry) {
            exposed.is_unused = true;
        }
    }

    /// The memory is to be released. No effect on memory that is being released.
    pub(crate) fn close(&mut self, entry: Key) {
        let Some(exposed) = self.entries.get_mut(entry) else { return };
        if exposed.stage == Stage::Open {
            exposed.stage = Stage::Unexposing;
            self.due.push_back(entry);
        }
    }

    /// The next step that is to be started.
    pub(crate) fn next_due(&mut self) -> Option<Release> {
        let entry = self.due.pop_front()?;
        let exposed = self.entries.get_mut(entry)?;
        let done = cookie(Step::ReleaseExposure, entry);
        Some(match exposed.exposure.take() {
            Some((exposure, _)) if exposed.is_unused => Release::UnexposeUnused(exposure, done),
            Some((exposure, _)) => Release::Unexpose(exposure, done),
            None => {
                exposed.stage = Stage::Unregistering;
                Release::Unregister(exposed.region, done)
            }
        })
    }

    /// A step has ended. The request, if its memory is released now.
    pub(crate) fn on_done(&mut self, done: Cookie) -> Option<Key> {
        let entry = entry_of(&self.entries, done);
        debug_assert!(entry.is_some(), "an operation ends once");
        let entry = entry?;
        if self.entries.get(entry)?.stage == Stage::Unregistering {
            return self.entries.remove(entry).map(|exposed| exposed.request);
        }
        self.due.push_back(entry);
        None
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Exposures, Release};
    use mend_base::Key;
    use mend_transport::{Exposure, Region, RemoteKey};

    const REQUEST: Key = Key { index: 4, generation: 1 };

    #[test]
    fn memory_is_unexposed_then_unregistered_and_then_its_request_is_named_once() {
        let mut exposures = Exposures::default();
        assert!(exposures.reserve());
        let key = RemoteKey::new(b"key");
        let entry = exposures.add(REQUEST, Region(7), Some((Exposure(8), key)));
        assert_eq!((exposures.remote_key(entry), exposures.next_due()), (Some(key), None));
        (0..2).for_each(|_| exposures.close(entry));
        assert_eq!(exposures.remote_key(entry), None);
        let Some(Release::Unexpose(Exposure(8), done)) = exposures.next_due() else { panic!("first") };
        assert_eq!((exposures.next_due(), exposures.on_done(done)), (None, None));
        let Some(Release::Unregister(Region(7), done)) = exposures.next_due() else { panic!("second") };
        assert_eq!((exposures.on_done(done), exposures.len()), (Some(REQUEST), 0));
    }

    #[test]
    fn the_receiver_need_not_be_asked_for_a_key_after_its_answer() {
        let mut exposures = Exposures::default();
        assert!(exposures.reserve());
        let entry = exposures.add(REQUEST, Region(7), Some((Exposure(8), RemoteKey::new(b"key"))));
        exposures.set_unused(entry);
        exposures.close(entry);
        assert!(matches!(exposures.next_due(), Some(Release::UnexposeUnused(Exposure(8), _))));
    }

    #[test]
    fn memory_that_could_not_be_exposed_is_unregistered_at_once() {
        let mut exposures = Exposures::default();
        assert!(exposures.reserve());
        let entry = exposures.add(REQUEST, Region(7), None);
        assert_eq!(exposures.remote_key(entry), None);
        let Some(Release::Unregister(Region(7), done)) = exposures.next_due() else { panic!("at once") };
        assert_eq!(exposures.on_done(done), Some(REQUEST));
    }
}
