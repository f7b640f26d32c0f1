// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers that cannot be guessed, from the kernel: names of sockets, secrets, jobs.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// `N` random bytes.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            // Only kernels before 3.17 lack getrandom(2), and Mend needs a later one anyway.
            Err(errno) => panic!("the kernel gives no random numbers: {errno}"),
        }
    }
    bytes
}

/// 32 random bits.
pub fn random_u32() -> u32 {
    u32::from_le_bytes(random_bytes())
}
