// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of the job, asked for from where nobody may enter the engine: a signal handler that interrupted a thread inside
//! it. Takes no lock and no memory, and looks at nothing that the interrupted thread may have half written: a second
//! descriptor of the same socket, whose packets do not mix.

use crate::daemon_protocol::Request;
use crate::packet::{Sent, Waiting, send};
use mend_base::{Wire, Writer};
use std::os::fd::{AsFd, OwnedFd};

/// A second way to the daemon, for last words alone.
#[derive(Debug)]
pub struct LastWords {
    socket: OwnedFd,
}

impl LastWords {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        LastWords { socket }
    }

    /// Asks for the end of the job; whether the daemon will hear it. Async-signal-safe.
    pub fn abort(&self, code: i32) -> bool {
        let mut bytes = [0; BYTES_MAX];
        let mut out = Writer::new(&mut bytes);
        Request::Abort(code).write(&mut out);
        let used = out.used();
        send(self.socket.as_fd(), &bytes[..used], &[], Waiting::Allowed) == Sent::Yes
    }
}

/// More than the request takes.
const BYTES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::LastWords;
    use crate::daemon_protocol::{Request, decode};
    use crate::packet::{Arrival, Waiting, receive};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::AsFd;

    #[test]
    fn last_words_are_a_request_like_any_other_and_a_daemon_that_is_gone_hears_none() {
        let flags = SocketFlags::CLOEXEC;
        let (ours, daemons) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let last_words = LastWords::new(ours);
        assert!(last_words.abort(-7));
        let Arrival::Packet(packet) = receive(daemons.as_fd(), Waiting::Never) else { panic!("it was sent") };
        assert!(matches!(decode(&packet.bytes), Some(Request::Abort(-7))));
        drop(daemons);
        assert!(!last_words.abort(1));
    }
}
