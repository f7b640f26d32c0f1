// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ends the job, or some of its processes, without the engine. A signal handler may have interrupted a thread inside the engine, or
//! inside the allocator; another thread of a program that promised to use MPI from one may be there. The channel is a second
//! descriptor of the node daemon's socket, whose packets do not mix. It takes no lock, allocates nothing, and reads nothing that the
//! interrupted thread may be writing.

use crate::daemon_protocol::{ABORT_SOME_MAX, RankMessage, write_abort_some};
use crate::packet::{MayBlock, Sent, send};
use mend_base::{Peer, Wire, Writer};
use std::os::fd::{AsFd, OwnedFd};

/// A second descriptor of the socket to the node daemon, used only for messages that end processes.
#[derive(Debug)]
pub struct EmergencyChannel {
    socket: OwnedFd,
    me: Peer,
}

impl EmergencyChannel {
    pub(crate) fn new(socket: OwnedFd, me: Peer) -> Self {
        EmergencyChannel { socket, me }
    }

    /// Requests the end of the job. Returns whether the message was sent. Async-signal-safe.
    pub fn abort(&self, code: i32) -> bool {
        self.say::<ABORT_BYTES_MAX>(|out| RankMessage::Abort(code).write(out))
    }

    /// Requests the end of this process alone, with `code`. Returns whether the message was sent. Async-signal-safe.
    pub fn abort_alone(&self, code: i32) -> bool {
        self.say::<ABORT_BYTES_MAX>(|out| write_abort_some(out, code, &[self.me]))
    }

    /// Requests the end of these peers with `code`. Returns whether all messages were sent. Async-signal-safe, if `peers` is.
    /// Names this process last, as the node daemon may kill it before it has named the others.
    pub fn abort_some(&self, code: i32, peers: impl Iterator<Item = Peer>) -> bool {
        let (mut part, mut named, mut with_me) = ([self.me; ABORT_SOME_MAX], 0, false);
        for peer in peers {
            if peer == self.me {
                with_me = true;
                continue;
            }
            if named == part.len() {
                if !self.say_some(code, &part) {
                    return false;
                }
                named = 0;
            }
            part[named] = peer;
            named += 1;
        }
        (named == 0 || self.say_some(code, &part[..named])) && (!with_me || self.abort_alone(code))
    }

    fn say_some(&self, code: i32, peers: &[Peer]) -> bool {
        self.say::<ABORT_SOME_BYTES_MAX>(|out| write_abort_some(out, code, peers))
    }

    fn say<const BYTES_MAX: usize>(&self, write: impl FnOnce(&mut Writer<'_>)) -> bool {
        let mut bytes = [0; BYTES_MAX];
        let mut out = Writer::new(&mut bytes);
        write(&mut out);
        let used = out.used();
        send(self.socket.as_fd(), &bytes[..used], &[], MayBlock::Yes) == Sent::Yes
    }
}

/// Longer than a message that names one peer or none.
const ABORT_BYTES_MAX: usize = 32;

/// Longer than a message that names [`ABORT_SOME_MAX`] peers.
const ABORT_SOME_BYTES_MAX: usize = ABORT_BYTES_MAX + ABORT_SOME_MAX * size_of::<u64>();

#[cfg(test)]
mod tests {
    use super::EmergencyChannel;
    use crate::daemon_protocol::{ABORT_SOME_MAX, RankMessage, decode};
    use crate::packet::{MayBlock, ReceiveResult, receive};
    use mend_base::{Job, Peer};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::{AsFd, OwnedFd};

    const ME: Peer = Peer::new(Job(7), 3);

    fn received(daemons: &OwnedFd) -> Option<RankMessage> {
        let ReceiveResult::Packet(packet) = receive(daemons.as_fd(), MayBlock::No) else {
            panic!("it was sent")
        };
        decode(&packet.bytes)
    }

    #[test]
    fn the_emergency_channel_sends_ordinary_requests_and_reports_that_the_daemon_has_ended() {
        let flags = SocketFlags::CLOEXEC;
        let (ours, daemons) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let emergency_channel = EmergencyChannel::new(ours, ME);
        assert!(emergency_channel.abort(-7) && emergency_channel.abort_alone(i32::MIN));
        assert!(matches!(received(&daemons), Some(RankMessage::Abort(-7))));
        assert!(matches!(received(&daemons), Some(RankMessage::AbortSome(i32::MIN, who)) if who == [ME]));
        drop(daemons);
        assert!(!emergency_channel.abort(1) && !emergency_channel.abort_alone(1));
    }

    #[test]
    fn some_peers_are_named_in_as_many_requests_as_they_need_and_this_process_last() {
        let flags = SocketFlags::CLOEXEC;
        let (ours, daemons) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let emergency_channel = EmergencyChannel::new(ours, ME);
        let peers = || (0..ABORT_SOME_MAX as u32 + 5).map(|number| Peer::new(Job(7), number));
        assert!(emergency_channel.abort_some(4, peers()));
        let mut named = Vec::new();
        for expected in [ABORT_SOME_MAX, 4, 1] {
            let Some(RankMessage::AbortSome(4, part)) = received(&daemons) else { panic!("some were named") };
            assert_eq!(part.len(), expected);
            named.extend(part);
        }
        assert_eq!(named.pop(), Some(ME));
        assert!(named.into_iter().eq(peers().filter(|&peer| peer != ME)));
    }
}
