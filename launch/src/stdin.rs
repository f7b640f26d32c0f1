// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Passes our standard input on to rank 0 in a separate thread, its end included.

use rustix::io::Errno;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Passes everything on until our input ends or rank 0 reads no more. The thread ends with the process.
pub fn pass_on(to: OwnedFd) -> io::Result<()> {
    let copy = move || {
        let mut to = File::from(to);
        let mut bytes = vec![0; 64 << 10];
        loop {
            wait_for_foreground();
            match rustix::io::read(io::stdin().as_fd(), &mut bytes) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                Ok(0) | Err(_) => return,
                Ok(count) if to.write_all(&bytes[..count]).is_err() => return,
                Ok(_) => {}
            }
        }
    };
    std::thread::Builder::new().name("stdin".to_owned()).spawn(copy)?;
    Ok(())
}

/// A job in the background must not read from its terminal: SIGTTIN would stop `mpiexec`, and most ranks never read.
fn wait_for_foreground() {
    let input = io::stdin();
    while input.is_terminal() {
        match rustix::termios::tcgetpgrp(input.as_fd()) {
            Ok(group) if group != rustix::process::getpgrp() => {
                std::thread::sleep(Duration::from_millis(200))
            }
            _ => return,
        }
    }
}
