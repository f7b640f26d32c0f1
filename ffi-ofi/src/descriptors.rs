// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptors that libfabric opens. Its providers open them without close-on-exec, so programs that this process starts would inherit them.
//!
//! What a call opens is found by comparing the descriptors before and after it. Connections are opened whenever a provider makes progress, where
//! comparing would cost too much: their sockets are found by their addresses. A program that another thread starts before the flag is set inherits the
//! descriptor all the same.

use crate::sockets::{Sockets, borrow, numbers};
use rustix::fs::{FileType, fstat};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use std::os::fd::BorrowedFd;

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
    let sockets = Sockets::new(own, peers);
    if sockets.is_empty() {
        return;
    }
    for number in numbers() {
        let descriptor = borrow(number);
        let is_inherited = fcntl_getfd(descriptor).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC));
        if is_inherited && sockets.contain(descriptor) {
            close_on_exec(descriptor);
        }
    }
}

fn close_on_exec(descriptor: BorrowedFd<'_>) {
    if let Ok(flags) = fcntl_getfd(descriptor) {
        // It fails where the descriptor was closed meanwhile.
        let _ = fcntl_setfd(descriptor, flags | FdFlags::CLOEXEC);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::closing_on_exec;
    use rustix::event::epoll;
    use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
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
}
