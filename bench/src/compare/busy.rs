// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes that have nothing to do with the benchmark and use a processor all the time. They are this program again, and
//! end with the one that started them, however it ends.

use super::Outcome;
use std::io::Read;
use std::process::{Child, Command, Stdio};

/// Busy processes, until it is dropped.
#[derive(Debug)]
pub struct Busy(Vec<Child>);

impl Busy {
    /// Starts so many.
    pub fn start(count: u32) -> Outcome<Busy> {
        let program =
            std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let mut busy = Busy(Vec::new());
        for _ in 0..count {
            let child = Command::new(&program).arg(WORD).stdin(Stdio::piped()).spawn();
            busy.0.push(child.map_err(|error| format!("cannot start a busy process: {error}"))?);
        }
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Both fail only for a child that is gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `mend-bench busy`: what such a process does. The other end of its standard input closes when its parent is gone.
pub fn be_busy() -> Outcome {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let mut turns = 0u64;
    loop {
        turns = std::hint::black_box(turns.wrapping_add(1));
    }
}

/// The word of the command line that says so.
pub const WORD: &str = "busy";
