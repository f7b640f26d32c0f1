// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages between `mpiexec` and its node daemon. Both are the same program, so the messages have no version.

use mend_base::{Reader, Wire, Writer};
use mend_runtime::packet::{self, MayBlock, ReceiveResult, Sent};
use std::os::fd::{BorrowedFd, OwnedFd};

/// A message of `mpiexec` to its node daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DaemonCommand {
    /// Pass this signal on to every rank; after a signal that ends jobs, deaths are expected.
    Signal(i32),
    /// Kill every process of the job.
    Kill,
    /// Kill every process of the job: it exceeds --timeout. The first death, if there is one, is reported as a possible cause.
    Overdue,
}

/// A message of the node daemon to `mpiexec`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DaemonReport {
    /// This rank runs; the descriptors of its stdout and stderr are in the same packet.
    Started(u32),
    /// The descriptor of rank 0's stdin is in the same packet.
    Input,
    /// A line for the user, to be printed after everything that ranks print.
    Line(String),
    /// A line for the user, to be printed now.
    LineNow(String),
    /// The job is over, with this exit code: no process of it is left.
    Ended(u8),
}

/// The longest line, in bytes.
const LINE_BYTES_MAX: usize = 2048;

impl Wire for DaemonCommand {
    const BYTES_MAX: usize = 5;

    fn write(&self, out: &mut Writer<'_>) {
        match self {
            DaemonCommand::Signal(signal) => {
                out.u8(1);
                out.u32(*signal as u32);
            }
            DaemonCommand::Kill => out.u8(2),
            DaemonCommand::Overdue => out.u8(3),
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(match from.u8()? {
            1 => DaemonCommand::Signal(from.u32()? as i32),
            2 => DaemonCommand::Kill,
            3 => DaemonCommand::Overdue,
            _ => return None,
        })
    }
}

impl Wire for DaemonReport {
    const BYTES_MAX: usize = 1 + LINE_BYTES_MAX;

    fn write(&self, out: &mut Writer<'_>) {
        match self {
            DaemonReport::Started(rank) => {
                out.u8(1);
                out.u32(*rank);
            }
            DaemonReport::Input => out.u8(2),
            DaemonReport::Line(line) => write_line(out, 3, line),
            DaemonReport::LineNow(line) => write_line(out, 5, line),
            DaemonReport::Ended(code) => {
                out.u8(4);
                out.u8(*code);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(match from.u8()? {
            1 => DaemonReport::Started(from.u32()?),
            2 => DaemonReport::Input,
            3 => DaemonReport::Line(read_line(from)?),
            5 => DaemonReport::LineNow(read_line(from)?),
            4 => DaemonReport::Ended(from.u8()?),
            _ => return None,
        })
    }
}

fn write_line(out: &mut Writer<'_>, kind: u8, line: &str) {
    out.u8(kind);
    out.bytes(&line.as_bytes()[..line.len().min(LINE_BYTES_MAX)]);
}

fn read_line(from: &mut Reader<'_>) -> Option<String> {
    Some(String::from_utf8_lossy(from.bytes(from.rest().len())?).into_owned())
}

/// Sends a message, and waits for room. `false`: the other end is closed.
pub fn send(socket: BorrowedFd<'_>, message: &impl Wire, with: &[BorrowedFd<'_>]) -> bool {
    let mut bytes = vec![0; packet::PACKET_BYTES_MAX];
    let mut out = Writer::new(&mut bytes);
    message.write(&mut out);
    let used = out.used();
    loop {
        match packet::send(socket, &bytes[..used], with, MayBlock::Yes) {
            Sent::Yes => return true,
            Sent::Closed => return false,
            // The kernel limits descriptors in flight; the other end receives them all the time.
            Sent::Busy => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    }
}

/// The result of reading the socket between the two.
#[derive(Debug)]
pub enum Received<M> {
    /// A message, and the descriptors in its packet.
    Message(M, Vec<OwnedFd>),
    /// No message is here now.
    Nothing,
    /// The other end is closed, or wrote garbage.
    Closed,
}

/// Takes the next message, without waiting.
pub fn receive<M: Wire>(socket: BorrowedFd<'_>) -> Received<M> {
    match packet::receive(socket, MayBlock::No) {
        ReceiveResult::Nothing => Received::Nothing,
        ReceiveResult::Closed => Received::Closed,
        ReceiveResult::Packet(packet) => match M::read(&mut Reader::new(&packet.bytes)) {
            Some(message) if packet.whole && !packet.without_descriptors => {
                Received::Message(message, packet.descriptors)
            }
            _ => Received::Closed,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{DaemonCommand, DaemonReport, Received, receive, send};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::AsFd;

    #[test]
    fn commands_and_reports_arrive_and_the_end_shows() {
        let (a, b) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        for command in [DaemonCommand::Signal(15), DaemonCommand::Kill, DaemonCommand::Overdue] {
            assert!(send(a.as_fd(), &command, &[]));
            assert!(
                matches!(receive::<DaemonCommand>(b.as_fd()), Received::Message(received, _) if received == command)
            );
        }
        let lines = [DaemonReport::Line("why".to_owned()), DaemonReport::LineNow("who".to_owned())];
        for report in
            [DaemonReport::Started(3), DaemonReport::Input, DaemonReport::Ended(7)].into_iter().chain(lines)
        {
            assert!(send(a.as_fd(), &report, &[a.as_fd()]));
            let Received::Message(received, descriptors) = receive::<DaemonReport>(b.as_fd()) else {
                panic!("{report:?}")
            };
            assert_eq!((received, descriptors.len()), (report, 1));
        }
        assert!(matches!(receive::<DaemonReport>(b.as_fd()), Received::Nothing));
        drop(a);
        assert!(matches!(receive::<DaemonReport>(b.as_fd()), Received::Closed));
        assert!(!send(b.as_fd(), &DaemonCommand::Kill, &[]));
    }
}
