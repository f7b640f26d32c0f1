// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which descriptors of this process are sockets of connections that a provider has made.
//!
//! libfabric does not tell. But a provider listens at the port in the name of an endpoint, so the kernel gives that port to no other socket than
//! those that are accepted there; and what is connected with such a port of a peer is connected with the peer's provider.

use rustix::fd::{AsRawFd, BorrowedFd, RawFd};
use rustix::fs::{Mode, OFlags};
use rustix::net::{SocketAddrAny, getsockname};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// The sockets of connections that peers have made to some endpoints of this process, and of those that were made to some of peers.
#[derive(Debug)]
pub(crate) struct Sockets {
    own: Vec<SocketAddr>,
    peers: Vec<SocketAddr>,
}

impl Sockets {
    /// Of endpoints with these names. Some providers have other names than addresses of sockets, and no sockets.
    pub(crate) fn new<'a>(
        own: impl IntoIterator<Item = &'a [u8]>,
        peers: impl IntoIterator<Item = &'a [u8]>,
    ) -> Sockets {
        Sockets {
            own: own.into_iter().filter_map(address).collect(),
            peers: peers.into_iter().filter_map(address).collect(),
        }
    }

    /// Whether no socket is one of these.
    pub(crate) fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// Whether this is one of them.
    pub(crate) fn contain(&self, socket: BorrowedFd<'_>) -> bool {
        let Some(local) = getsockname(socket).ok().and_then(internet) else { return false };
        // An endpoint without an interface of its own is bound to all of them: the port alone tells.
        let is_accepted = self.own.iter().any(|own| own.port() == local.port());
        is_accepted || peer_of(socket, local.is_ipv4()).is_some_and(|peer| self.peers.contains(&peer))
    }
}

/// The descriptors of this process, without the one that is needed to list them; none where /proc is not mounted.
pub(crate) fn numbers() -> BTreeSet<RawFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = rustix::fs::open("/proc/self/fd", flags, Mode::empty()) else { return BTreeSet::new() };
    let own = folder.as_raw_fd();
    let entries = rustix::fs::Dir::new(folder).into_iter().flatten().flatten();
    let all = entries.filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok());
    all.filter(|number| *number != own).collect()
}

/// A descriptor of [`numbers`], to read its properties, to duplicate it, or to set a flag.
pub(crate) fn borrow(number: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the number was that of an open descriptor a moment ago. Its owner may close it meanwhile, and another one may get its number: this crate
    // reads properties and sets the flag of sockets, queues and devices alone. What it shuts down is a duplicate, at which it has looked.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// The address with which a socket of the internet is connected, or is being connected: then `getpeername` does not tell.
fn peer_of(socket: BorrowedFd<'_>, is_ipv4: bool) -> Option<SocketAddr> {
    let mut name = [0; size_of::<libc::sockaddr_in6>()];
    // The kernel refuses to write less than there is room for.
    let room = if is_ipv4 { size_of::<libc::sockaddr_in>() } else { name.len() };
    let (mut bytes, into) = (room as libc::socklen_t, name.as_mut_ptr().cast());
    let number = socket.as_raw_fd();
    // SAFETY: `into` has room for so many bytes, of which the kernel writes no more.
    let result =
        unsafe { libc::getsockopt(number, libc::SOL_SOCKET, libc::SO_PEERNAME, into, &raw mut bytes) };
    if result == 0 { address(&name[..room]) } else { None }
}

fn internet(address: SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(address).ok()
}

/// The address in the name of an endpoint: a `sockaddr_in` or a `sockaddr_in6`.
fn address(name: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(name.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(name.get(2..4)?.try_into().ok()?);
    if family == rustix::net::AddressFamily::INET.as_raw() {
        let host: [u8; 4] = name.get(4..8)?.try_into().ok()?;
        return Some(SocketAddr::from((Ipv4Addr::from(host), port)));
    }
    if family == rustix::net::AddressFamily::INET6.as_raw() {
        let host: [u8; 16] = name.get(8..24)?.try_into().ok()?;
        return Some(SocketAddr::from((Ipv6Addr::from(host), port)));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::address;
    use std::net::{Ipv4Addr, SocketAddr};

    #[test]
    fn a_name_that_is_no_address_of_a_socket_is_none() {
        let family = rustix::net::AddressFamily::INET.as_raw().to_ne_bytes();
        let name = [&family[..], &[0, 77], &Ipv4Addr::LOCALHOST.octets(), &[0; 8]].concat();
        assert_eq!(address(&name), Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 77))));
        for other in [&b""[..], b"fi_shm://123", &name[..7]] {
            assert_eq!(address(other), None);
        }
    }
}
