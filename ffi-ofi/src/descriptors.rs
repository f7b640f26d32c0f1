// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptors that libfabric opens. Its providers open them without close-on-exec, so programs that this process starts would inherit them.
//!
//! What a call opens is found by comparing the descriptors before and after it. Connections are opened whenever a provider makes progress, where
//! comparing would cost too much: their sockets are found by their addresses. A program that another thread starts before the flag is set inherits the
//! descriptor all the same.

use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::net::{SocketAddrAny, getpeername, getsockname};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Runs `open`. The descriptors that it opens will close on exec.
///
/// Another thread of the program may open one at the same time. Of its descriptors files keep their flags, and nothing else is changed but the flag.
pub(crate) fn closing_on_exec<R>(open: impl FnOnce() -> R) -> R {
    let before = numbers();
    let result = open();
    for number in numbers().difference(&before) {
        let descriptor = borrow(*number);
        let is_file =
            |mode| matches!(FileType::from_raw_mode(mode), FileType::RegularFile | FileType::Directory);
        if fstat(descriptor).is_ok_and(|status| !is_file(status.st_mode)) {
            close_on_exec(descriptor);
        }
    }
    result
}

/// The sockets of connections that peers have made to the endpoints with the names `own`, or that were made to those with the names `peers`, will
/// close on exec. Names are those of [`Endpoint::name`](crate::Endpoint::name); some providers have other names than addresses of sockets,
/// and no sockets.
pub fn close_connections_on_exec<'a>(
    own: impl IntoIterator<Item = &'a [u8]>,
    peers: impl IntoIterator<Item = &'a [u8]>,
) {
    let own: Vec<SocketAddr> = own.into_iter().filter_map(address).collect();
    if own.is_empty() {
        return;
    }
    let peers: Vec<SocketAddr> = peers.into_iter().filter_map(address).collect();
    for number in numbers() {
        let descriptor = borrow(number);
        if !fcntl_getfd(descriptor).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC)) {
            continue;
        }
        // An endpoint without an interface of its own is bound to all of them: the port alone tells.
        let is_ours = |local: SocketAddr| own.iter().any(|own| own.port() == local.port());
        let is_local = getsockname(descriptor).ok().and_then(internet).is_some_and(is_ours);
        let is_peer = || {
            let theirs = getpeername(descriptor).ok().flatten().and_then(internet);
            theirs.is_some_and(|theirs| peers.contains(&theirs))
        };
        if is_local || is_peer() {
            close_on_exec(descriptor);
        }
    }
}

/// The descriptors of this process, without the one that is needed to list them; none where /proc is not mounted.
fn numbers() -> BTreeSet<RawFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = rustix::fs::open("/proc/self/fd", flags, Mode::empty()) else { return BTreeSet::new() };
    let own = folder.as_raw_fd();
    let entries = rustix::fs::Dir::new(folder).into_iter().flatten().flatten();
    let all = entries.filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok());
    all.filter(|number| *number != own).collect()
}

fn borrow(number: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the number was that of an open descriptor a moment ago. Its owner may close it meanwhile, and another one may get its number: the system
    // calls of this file read properties, and set the flag of sockets, queues and devices alone.
    unsafe { BorrowedFd::borrow_raw(number) }
}

fn close_on_exec(descriptor: BorrowedFd<'_>) {
    if let Ok(flags) = fcntl_getfd(descriptor) {
        // It fails where the descriptor was closed meanwhile.
        let _ = fcntl_setfd(descriptor, flags | FdFlags::CLOEXEC);
    }
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
pub(crate) mod tests {
    use super::{address, closing_on_exec};
    use rustix::event::epoll;
    use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
    use std::net::{Ipv4Addr, SocketAddr};
    use std::os::fd::AsFd;
    use std::sync::Mutex;

    fn closes(descriptor: impl AsFd) -> bool {
        fcntl_getfd(descriptor).unwrap().contains(FdFlags::CLOEXEC)
    }

    /// What another test opens during a call would count as opened by it.
    pub(crate) static TURN: Mutex<()> = Mutex::new(());

    #[test]
    fn what_a_call_opens_closes_on_exec_unless_it_is_a_file() {
        let _turn = TURN.lock();
        let before = epoll::create(epoll::CreateFlags::empty()).unwrap();
        let (queue, file) = closing_on_exec(|| {
            let file = std::fs::File::open("/proc/self/exe").unwrap();
            fcntl_setfd(&file, FdFlags::empty()).unwrap();
            (epoll::create(epoll::CreateFlags::empty()).unwrap(), file)
        });
        assert!(closes(&queue) && !closes(&file) && !closes(&before));
    }

    #[test]
    fn the_first_descriptor_that_a_call_opens_closes_on_exec() {
        let _turn = TURN.lock();
        // It has the number that the list of descriptors had while it was read.
        let queue = closing_on_exec(|| epoll::create(epoll::CreateFlags::empty()).unwrap());
        assert!(closes(&queue));
    }

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
