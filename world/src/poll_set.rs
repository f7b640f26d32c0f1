// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptors to poll. The list is made anew before each sleep, so a descriptor that a transport has closed and opened again is right;
//! its memory is kept.

use mend_base::Duration;
use mend_segment::timespec;

/// Some descriptors, and which of them the last wait found readable.
#[derive(Default)]
pub struct PollSet(Vec<libc::pollfd>);

impl PollSet {
    /// Removes all descriptors.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a descriptor.
    pub fn add(&mut self, descriptor: i32) {
        self.0.push(libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 });
    }

    /// Waits until a descriptor is readable or has failed, a signal comes, or `at_most` is over. `false`: the time is over.
    pub fn wait(&mut self, at_most: Option<Duration>) -> bool {
        let at_most = at_most.map(|span| {
            let timespec = timespec(span);
            libc::timespec { tv_sec: timespec.tv_sec, tv_nsec: timespec.tv_nsec }
        });
        let at_most = at_most.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        let descriptors = self.0.as_mut_ptr();
        // SAFETY: the array has that many elements, which the kernel may write, and this thread does not use them meanwhile; a time that
        // outlives the call, or null; no signal mask. A number that is no descriptor is reported by POLLNVAL.
        let found =
            unsafe { libc::ppoll(descriptors, self.0.len() as libc::nfds_t, at_most, core::ptr::null()) };
        if found < 0 {
            self.0.iter_mut().for_each(|polled| polled.revents = 0);
        }
        found != 0
    }

    /// Whether the last wait found the descriptor that was added as number `index`, from 0.
    pub fn is_readable(&self, index: usize) -> bool {
        self.0.get(index).is_some_and(|polled| polled.revents != 0)
    }

    /// Whether the last wait found one of the descriptors from number `first` on.
    pub fn is_any_readable_from(&self, first: usize) -> bool {
        self.0.iter().skip(first).any(|polled| polled.revents != 0)
    }
}

impl core::fmt::Debug for PollSet {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_list().entries(self.0.iter().map(|polled| polled.fd)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::PollSet;
    use mend_base::Duration;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_wait_ends_at_the_first_readable_descriptor_or_in_time() {
        let pipes = [(); 2].map(|()| rustix::pipe::pipe().unwrap());
        let mut poll_set = PollSet::default();
        pipes.iter().for_each(|(read, _)| poll_set.add(read.as_raw_fd()));
        assert!(!poll_set.wait(Some(Duration::from_millis(1))));
        rustix::io::write(&pipes[1].1, b"x").unwrap();
        assert!(poll_set.wait(None));
        assert!(!poll_set.is_readable(0) && poll_set.is_readable(1) && poll_set.is_any_readable_from(1));
        poll_set.clear();
        assert!(!poll_set.wait(Some(Duration(0))) && !poll_set.is_any_readable_from(0));
    }

    #[test]
    fn a_number_that_is_no_descriptor_ends_the_wait() {
        let mut poll_set = PollSet::default();
        poll_set.add(i32::MAX);
        assert!(poll_set.wait(None) && poll_set.is_readable(0));
    }
}
