// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys that were taken back while the peer may be reading.
//!
//! Providers over sockets go on with a read whose registration is closed meanwhile: the peer would get whatever is in the memory by then, as if
//! all were right (tried with `net`, `tcp`, `tcp;ofi_rxm` of 1.17 and 2.5; `fi_av_remove` changes nothing, closing the endpoint ends
//! the reads). So the peer is asked, and the memory is lent until it has answered:
//!
//! ```text
//!   owner                                     peer
//!     │ closes the registration: no read begins any more
//!     │ ── Remote: take back, exposure ─────▶ │
//!     │                                       │ its reads by this key end
//!     │ ◀──────── Remote: ended, exposure ─── │
//!   the memory is silent
//! ```
//!
//! A peer that does not answer for [`ANSWER_MAX`], and one that is severed and lives, is not waited for: the device is opened again, which closes
//! the endpoint through which peers read.

use mend_base::{Duration, Instant};
use mend_transport::{Cookie, Exposure};

/// The keys that this process took back and that peers may still be using.
#[derive(Debug, Default)]
pub struct KeysTakenBack {
    entries: Vec<KeyTakenBack>,
}

/// A key that the peer may be using.
#[derive(Debug)]
struct KeyTakenBack {
    connection: u32,
    exposure: Exposure,
    done: Cookie,
    /// When the device is opened again if there is no answer.
    due: Instant,
}

/// How long the answer of a peer is waited for: a peer that computes answers with its helper thread.
pub const ANSWER_MAX: Duration = Duration::from_millis(250);

impl KeysTakenBack {
    /// A key was taken back from the peer of a connection. `due`: when its memory must be silent.
    pub fn begin(&mut self, connection: u32, exposure: Exposure, done: Cookie, due: Instant) {
        self.entries.push(KeyTakenBack { connection, exposure, done, due });
    }

    /// The peer of a connection has answered. `None`: it was not asked.
    pub fn on_answer(&mut self, connection: u32, exposure: Exposure) -> Option<Cookie> {
        let is_it = |entry: &KeyTakenBack| entry.connection == connection && entry.exposure == exposure;
        let at = self.entries.iter().position(is_it)?;
        Some(self.entries.swap_remove(at).done)
    }

    /// Whether keys of this connection wait.
    pub fn has(&self, connection: u32) -> bool {
        self.entries.iter().any(|entry| entry.connection == connection)
    }

    /// Whether the device must be opened again now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.entries.iter().any(|entry| entry.due <= now)
    }

    /// The peer of a connection has ended, or no peer reads any more, if `None`: the cookies that end.
    pub fn end(&mut self, connection: Option<u32>) -> impl Iterator<Item = Cookie> {
        let ends = move |entry: &mut KeyTakenBack| connection.is_none_or(|index| entry.connection == index);
        self.entries.extract_if(.., ends).map(|entry| entry.done)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::KeysTakenBack;
    use mend_base::Instant;
    use mend_transport::{AmId, Cookie, Exposure};

    #[test]
    fn a_key_is_taken_back_once_by_its_answer_its_peer_or_the_device() {
        let mut keys_taken_back = KeysTakenBack::default();
        let cookie = |value| Cookie::new(AmId(1), value).unwrap();
        for (connection, number) in [(1, 10), (1, 11), (2, 12), (3, 13)] {
            keys_taken_back.begin(connection, Exposure(number), cookie(number), Instant(number));
        }
        assert_eq!(keys_taken_back.on_answer(2, Exposure(10)), None, "another peer");
        assert_eq!(keys_taken_back.on_answer(1, Exposure(10)), Some(cookie(10)));
        assert_eq!(keys_taken_back.on_answer(1, Exposure(10)), None, "twice");
        assert!(!keys_taken_back.is_due(Instant(10)) && keys_taken_back.is_due(Instant(11)));
        assert!(keys_taken_back.has(1));
        assert_eq!(keys_taken_back.end(Some(1)).collect::<Vec<_>>(), [cookie(11)]);
        assert!(!keys_taken_back.has(1) && !keys_taken_back.is_empty());
        assert_eq!(keys_taken_back.end(None).count(), 2);
        assert!(keys_taken_back.is_empty());
    }
}
