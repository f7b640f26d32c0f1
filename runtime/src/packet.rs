// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets between a rank and its node's daemon: one SOCK_SEQPACKET datagram each, with at most
//! [`DESCRIPTORS_MAX`] descriptors beside it (SCM_RIGHTS).

use mend_segment::above_standard_streams;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The most descriptors that one packet carries.
pub const DESCRIPTORS_MAX: usize = 2;

/// The longest packet, in bytes.
pub const PACKET_BYTES_MAX: usize = 4608;

/// One packet as it was received.
#[derive(Debug)]
pub struct ReceivedPacket {
    /// The bytes of the packet; truncated at [`PACKET_BYTES_MAX`], and then `whole` is `false`.
    pub bytes: Vec<u8>,
    /// Descriptors, in order; close-on-exec.
    pub descriptors: Vec<OwnedFd>,
    /// Whether the packet was not truncated. A correct peer never writes more than fits.
    pub whole: bool,
    /// Whether descriptors are missing: there were too many, or this process has no room for them (RLIMIT_NOFILE).
    pub without_descriptors: bool,
}

/// What reading from a socket found.
#[derive(Debug)]
pub enum ReceiveResult {
    /// A packet.
    Packet(ReceivedPacket),
    /// Nothing yet.
    Nothing,
    /// The other end has closed it; nothing more will come.
    Closed,
}

/// Whether a call may block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MayBlock {
    /// It blocks until the other end does something.
    Yes,
    /// It returns at once.
    No,
}

/// The result of sending a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// It is in the other end's queue.
    Yes,
    /// No room now: the queue is full, or this user has too many descriptors in flight.
    Busy,
    /// The other end has been closed.
    Closed,
}

/// Sends one packet.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], with: &[BorrowedFd<'_>], may_block: MayBlock) -> Sent {
    assert!(bytes.len() <= PACKET_BYTES_MAX && with.len() <= DESCRIPTORS_MAX);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !with.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(with));
        assert!(fits, "the buffer holds DESCRIPTORS_MAX descriptors");
    }
    let mut flags = SendFlags::NOSIGNAL;
    if may_block == MayBlock::No {
        flags |= SendFlags::DONTWAIT;
    }
    loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(_) => return Sent::Yes,
            Err(Errno::INTR) => continue,
            // ENOBUFS and ENOMEM: the kernel has no room now; ETOOMANYREFS: too many descriptors are in flight.
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::TOOMANYREFS) => return Sent::Busy,
            Err(_) => return Sent::Closed,
        }
    }
}

/// Takes the next packet.
pub fn receive(socket: BorrowedFd<'_>, may_block: MayBlock) -> ReceiveResult {
    let mut bytes = vec![0; PACKET_BYTES_MAX];
    let mut flags = RecvFlags::CMSG_CLOEXEC;
    if may_block == MayBlock::No {
        flags |= RecvFlags::DONTWAIT;
    }
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            // An empty packet cannot be told from the end of the connection. No correct end writes one, so it counts as the end.
            Ok(message) if message.bytes == 0 => return ReceiveResult::Closed,
            Ok(message) => {
                let (descriptors, all) = taken(&mut control);
                bytes.truncate(message.bytes);
                let has = |flag| message.flags.contains(flag);
                let (whole, without_descriptors) =
                    (!has(ReturnFlags::TRUNC), has(ReturnFlags::CTRUNC) || !all);
                return ReceiveResult::Packet(ReceivedPacket {
                    bytes,
                    descriptors,
                    whole,
                    without_descriptors,
                });
            }
            // ECONNRESET comes once if the other end closed before it read everything; packets that it had sent come afterwards.
            Err(Errno::INTR | Errno::CONNRESET) => continue,
            Err(Errno::AGAIN) => return ReceiveResult::Nothing,
            Err(_) => return ReceiveResult::Closed,
        }
    }
}

/// Takes the received descriptors, and whether this process had room for all of them.
fn taken(control: &mut RecvAncillaryBuffer<'_>) -> (Vec<OwnedFd>, bool) {
    let mut descriptors = Vec::new();
    let mut all = true;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            for right in rights {
                // Only the last ones may be missing, so that each of the others is known by its place.
                match above_standard_streams(right) {
                    Ok(descriptor) if all => descriptors.push(descriptor),
                    _ => all = false,
                }
            }
        }
    }
    (descriptors, all)
}

#[cfg(test)]
mod tests {
    use super::{MayBlock, PACKET_BYTES_MAX, ReceiveResult, Sent, receive, send};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::{AsFd, OwnedFd};

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn a_packet_arrives_whole_with_its_descriptors() {
        let (a, b) = pair();
        let (read, write) = rustix::pipe::pipe().unwrap();
        let sent = send(a.as_fd(), b"card", &[read.as_fd(), write.as_fd()], MayBlock::No);
        assert_eq!(sent, Sent::Yes);
        drop((read, write));
        let ReceiveResult::Packet(packet) = receive(b.as_fd(), MayBlock::No) else { panic!("it was sent") };
        assert_eq!(
            (packet.bytes.as_slice(), packet.descriptors.len(), packet.whole),
            (&b"card"[..], 2, true)
        );
        rustix::io::write(&packet.descriptors[1], b"x").unwrap();
        assert_eq!(rustix::io::read(&packet.descriptors[0], &mut [0; 4]), Ok(1));
    }

    #[test]
    fn what_was_sent_before_the_end_arrives_even_if_the_sender_left_something_unread() {
        let (a, b) = pair();
        assert_eq!(send(b.as_fd(), b"never read", &[], MayBlock::No), Sent::Yes);
        assert_eq!(send(a.as_fd(), b"finalize", &[], MayBlock::No), Sent::Yes);
        drop(a);
        assert!(matches!(receive(b.as_fd(), MayBlock::No), ReceiveResult::Packet(_)));
        assert!(matches!(receive(b.as_fd(), MayBlock::No), ReceiveResult::Closed));
        assert_eq!(send(b.as_fd(), b"to nobody", &[], MayBlock::No), Sent::Closed);
    }

    #[test]
    fn a_packet_that_is_too_long_or_has_too_many_descriptors_is_marked_and_leaks_nothing() {
        let (a, b) = pair();
        rustix::net::send(&a, &vec![7; PACKET_BYTES_MAX + 1], rustix::net::SendFlags::empty()).unwrap();
        assert!(matches!(receive(b.as_fd(), MayBlock::No), ReceiveResult::Packet(p) if !p.whole));
        assert!(matches!(receive(b.as_fd(), MayBlock::No), ReceiveResult::Nothing));
    }

    #[test]
    fn a_full_queue_is_busy_and_not_an_error() {
        let (a, _b) = pair();
        let mut count = 0;
        while send(a.as_fd(), &[1; 100], &[], MayBlock::No) == Sent::Yes {
            count += 1;
        }
        assert!(count > 10);
        assert_eq!(send(a.as_fd(), &[1; 100], &[], MayBlock::No), Sent::Busy);
    }
}
