// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ends the job, or this process, where the engine may not be entered: in a signal handler that interrupted a thread inside
//! the engine, or in another thread of a program that promised to use MPI from one. It uses a second descriptor of the node
//! daemon's socket, whose packets do not mix. It takes no lock, allocates nothing, and reads nothing that the interrupted thread
//! may be writing.

use crate::daemon_protocol::{Request, write_abort_some};
use crate::packet::{Sent, Waiting, send};
use mend_base::{Peer, Wire, Writer};
use std::os::fd::{AsFd, OwnedFd};

/// A second descriptor of the socket to the node daemon, used only for requests to end processes.
#[derive(Debug)]
pub struct EmergencyChannel {
    socket: OwnedFd,
    me: Peer,
}

impl EmergencyChannel {
    pub(crate) fn new(socket: OwnedFd, me: Peer) -> Self {
        EmergencyChannel { socket, me }
    }

    /// Requests the end of the job. Returns whether the request was sent. Async-signal-safe.
    pub fn abort(&self, code: i32) -> bool {
        self.say(|out| Request::Abort(code).write(out))
    }

    /// Requests the end of this process alone, with `code`. Returns whether the request was sent. Async-signal-safe.
    pub fn abort_alone(&self, code: i32) -> bool {
        self.say(|out| write_abort_some(out, code, &[self.me]))
    }

    fn say(&self, write: impl FnOnce(&mut Writer<'_>)) -> bool {
        let mut bytes = [0; BYTES_MAX];
        let mut out = Writer::new(&mut bytes);
        write(&mut out);
        let used = out.used();
        send(self.socket.as_fd(), &bytes[..used], &[], Waiting::Allowed) == Sent::Yes
    }
}

/// Longer than either request.
const BYTES_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::EmergencyChannel;
    use crate::daemon_protocol::{Request, decode};
    use crate::packet::{Arrival, Waiting, receive};
    use mend_base::{Job, Peer};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::{AsFd, OwnedFd};

    const ME: Peer = Peer::new(Job(7), 3);

    fn received(daemons: &OwnedFd) -> Option<Request> {
        let Arrival::Packet(packet) = receive(daemons.as_fd(), Waiting::Never) else { panic!("it was sent") };
        decode(&packet.bytes)
    }

    #[test]
    fn the_emergency_channel_sends_ordinary_requests_and_reports_that_the_daemon_has_ended() {
        let flags = SocketFlags::CLOEXEC;
        let (ours, daemons) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let emergency_channel = EmergencyChannel::new(ours, ME);
        assert!(emergency_channel.abort(-7) && emergency_channel.abort_alone(i32::MIN));
        assert!(matches!(received(&daemons), Some(Request::Abort(-7))));
        assert!(matches!(received(&daemons), Some(Request::AbortSome(i32::MIN, who)) if who == [ME]));
        drop(daemons);
        assert!(!emergency_channel.abort(1) && !emergency_channel.abort_alone(1));
    }
}
