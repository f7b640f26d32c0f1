// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptors of a process that was started without stdin, stdout and stderr. Alone in its program: it closes stdin.

use mend_segment::{BellPage, Outbox, above_standard_streams};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

#[test]
fn no_memory_file_takes_the_place_of_a_standard_stream() {
    // SAFETY: nothing else in this process uses stdin; the harness neither reads nor closes it.
    drop(unsafe { OwnedFd::from_raw_fd(0) });
    let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    assert_eq!(null.as_raw_fd(), 0, "the lowest number that is free");
    let moved = above_standard_streams(null).unwrap();
    let number = moved.as_raw_fd();
    assert!(number >= 3);
    assert_eq!(
        above_standard_streams(moved).unwrap().as_raw_fd(),
        number,
        "a descriptor above the standard streams keeps its number"
    );
    assert!(Outbox::create(0, 2, 0).unwrap().descriptor().as_raw_fd() >= 3);
    assert!(BellPage::create(2).unwrap().1.as_raw_fd() >= 3);
}
