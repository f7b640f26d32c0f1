// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP connections of providers that stand still.
//!
//! While a wire is cut the kernel sends again after pauses that double, data as well as the first packet of a connection, so that a connection may
//! stand still for as long again after the wire is back. No call of libfabric breaks a connection: providers keep it when the address
//! of the peer is removed.

use crate::sockets::{Sockets, borrow, numbers};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::fstat;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{Shutdown, shutdown, sockopt};
use std::collections::BTreeMap;
use std::mem::size_of;
use std::time::Duration;

/// For how long the peer's kernel must not have acknowledged anything: it takes as long at least until data is sent again.
const SILENCE_MS: u32 = 200;

/// A connection on which data goes both ways (`tcpi_state`).
const ESTABLISHED: u8 = 1;
/// A connection that the peer's kernel has not answered yet (`tcpi_state`).
const SYN_SENT: u8 = 2;

/// Breaks TCP connections that stand still, so that the provider makes new ones.
///
/// A connection stands still if the kernel has sent something again and nothing was acknowledged since. The kernel of a peer that is stopped
/// acknowledges, and a connection on which nothing is under way does not stand still. One that begins stands still if it had begun at the call
/// before; each fourth one only if the kernel has sent its first packet again, which takes a second: an answer may take long.
#[derive(Debug, Default)]
pub struct StuckConnections {
    /// Those that had begun at the last call, by the number of their file, and whether they are given a second.
    begun: BTreeMap<u64, bool>,
    /// How many have begun since the first call.
    count: u32,
}

impl StuckConnections {
    /// Breaks those that stand still, and returns how many. Only those that peers have made to the endpoints with the names `own`, or that were made to
    /// those with the names `peers`, as in [`close_connections_on_exec`](crate::close_connections_on_exec).
    pub fn break_all<'a>(
        &mut self,
        own: impl IntoIterator<Item = &'a [u8]>,
        peers: impl IntoIterator<Item = &'a [u8]>,
    ) -> usize {
        let before = core::mem::take(&mut self.begun);
        let sockets = Sockets::new(own, peers);
        if sockets.is_empty() {
            return 0;
        }
        let found = numbers().into_iter().filter(|&number| sockets.contain(borrow(number)));
        // A provider with threads of its own may close it meanwhile, and a file of the program may get its number: what is shut down is what was
        // looked at.
        let found = found.filter_map(|number| fcntl_dupfd_cloexec(borrow(number), 0).ok());
        let stuck =
            found.filter(|socket| sockets.contain(socket.as_fd()) && self.is_stuck(socket.as_fd(), &before));
        stuck.filter(|socket| break_connection(socket.as_fd())).count()
    }

    /// `before`: those that had begun at the call before.
    fn is_stuck(&mut self, socket: BorrowedFd<'_>, before: &BTreeMap<u64, bool>) -> bool {
        let (Some(state), Ok(status)) = (state_of(socket), fstat(socket)) else { return false };
        if state.state != SYN_SENT || state.is_stuck() {
            return state.is_stuck();
        }
        let known = before.get(&status.st_ino).copied();
        let is_given_a_second = known.unwrap_or_else(|| {
            self.count = self.count.wrapping_add(1);
            self.count.is_multiple_of(4)
        });
        let is_stuck = known.is_some() && !is_given_a_second;
        if !is_stuck {
            self.begun.insert(status.st_ino, is_given_a_second);
        }
        is_stuck
    }
}

/// The provider finds the end of the connection and closes it. Nothing that is under way is sent any more.
fn break_connection(socket: BorrowedFd<'_>) -> bool {
    // Without it the kernel would go on sending what is left after the provider has closed the connection.
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
    // It fails where the connection has ended meanwhile.
    shutdown(socket, Shutdown::Both).is_ok()
}

/// What the kernel knows of a TCP connection: the first fields of its `tcp_info`, which are the same in all versions.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
struct TcpState {
    state: u8,
    congestion_state: u8,
    /// How often what is unacknowledged was sent again since something was acknowledged.
    retransmits: u8,
    /// How often the peer's kernel was asked in vain whether it has room again.
    probes: u8,
    backoff: u8,
    options: u8,
    scales: [u8; 2],
    timeouts: [u32; 2],
    segment_bytes: [u32; 2],
    unacknowledged: u32,
    segments: [u32; 4],
    last_data_sent: u32,
    last_acknowledgement_sent: u32,
    last_data_received: u32,
    /// Milliseconds since the peer's kernel acknowledged something.
    last_acknowledgement_received: u32,
}

impl TcpState {
    fn is_stuck(&self) -> bool {
        match self.state {
            SYN_SENT => self.retransmits > 0,
            ESTABLISHED => {
                let waits = self.unacknowledged > 0 && self.retransmits > 0 || self.probes > 0;
                waits && self.last_acknowledgement_received >= SILENCE_MS
            }
            _ => false,
        }
    }
}

/// `None`: it is no TCP connection.
fn state_of(socket: BorrowedFd<'_>) -> Option<TcpState> {
    let mut state = TcpState::default();
    let mut bytes = size_of::<TcpState>() as libc::socklen_t;
    let (number, into) = (socket.as_raw_fd(), (&raw mut state).cast());
    // SAFETY: `into` has room for so many bytes, of which the kernel writes no more, and all values are valid in it.
    let result = unsafe { libc::getsockopt(number, libc::IPPROTO_TCP, libc::TCP_INFO, into, &raw mut bytes) };
    (result == 0 && bytes as usize == size_of::<TcpState>()).then_some(state)
}

#[cfg(test)]
mod tests {
    use super::{ESTABLISHED, SILENCE_MS, SYN_SENT, TcpState};

    #[test]
    fn a_connection_stands_still_if_what_was_sent_again_is_not_acknowledged() {
        let sent_again = TcpState {
            state: ESTABLISHED,
            retransmits: 1,
            unacknowledged: 1,
            last_acknowledgement_received: SILENCE_MS,
            ..TcpState::default()
        };
        assert!(sent_again.is_stuck());
        assert!(!TcpState { retransmits: 0, ..sent_again }.is_stuck(), "the answer may be under way");
        assert!(!TcpState { last_acknowledgement_received: 1, ..sent_again }.is_stuck(), "it goes on");
        assert!(!TcpState { state: 0, ..sent_again }.is_stuck(), "it has ended");
    }

    #[test]
    fn a_connection_to_a_peer_without_room_stands_still_only_if_its_kernel_is_silent() {
        let without_room = TcpState {
            state: ESTABLISHED,
            backoff: 5,
            last_acknowledgement_received: 60_000,
            ..TcpState::default()
        };
        assert!(!without_room.is_stuck());
        assert!(TcpState { probes: 1, ..without_room }.is_stuck());
    }

    #[test]
    fn a_connection_that_begins_stands_still_once_its_first_packet_was_sent_again() {
        let begins = TcpState { state: SYN_SENT, unacknowledged: 1, ..TcpState::default() };
        assert!(!begins.is_stuck());
        assert!(TcpState { retransmits: 1, ..begins }.is_stuck());
    }
}
