// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Busy processes: they use a processor all the time, and are not part of the benchmark. They are this program again, and end
//! with the process that started them, however it ends.

use super::Outcome;
use std::io::Read;
use std::process::{Child, Command, Stdio};

/// Busy processes, until it is dropped.
#[derive(Debug)]
pub struct Busy(Vec<Child>);

impl Busy {
    /// Starts `count` busy processes.
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
            // Both fail only for a child that has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `mend-bench busy`: the code of a busy process. The other end of its standard input closes when its parent ends.
pub fn be_busy() -> Outcome {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let mut iterations = 0u64;
    loop {
        iterations = std::hint::black_box(iterations.wrapping_add(1));
    }
}

/// The word of the command line for a busy process.
pub const WORD: &str = "busy";
