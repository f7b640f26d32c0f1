// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A descriptor that becomes readable when it is rung, for the mock BTL.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// Two sockets that are connected: what is written to one can be read from the other.
pub(super) struct Descriptor {
    sleeper: UnixStream,
    ringer: UnixStream,
}

impl Descriptor {
    pub(super) fn new() -> Self {
        let (sleeper, ringer) = UnixStream::pair().expect("two sockets for a test");
        sleeper.set_nonblocking(true).expect("a socket need not block");
        Descriptor { sleeper, ringer }
    }

    pub(super) fn number(&self) -> i32 {
        self.sleeper.as_raw_fd()
    }

    pub(super) fn ring(&self) {
        (&self.ringer).write_all(&[1]).expect("a test rings less often than a socket has room for");
    }

    pub(super) fn is_one_of(&self, descriptors: &[i32]) -> bool {
        descriptors.contains(&self.number())
    }

    /// Whether it was rung.
    pub(super) fn is_readable(&self) -> bool {
        let rung = (&self.sleeper).read(&mut [0]).is_ok();
        if rung {
            self.ring();
        }
        rung
    }
}
