// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transfer time of a cache line from one processor to another: two pinned threads alternately write one word. In a virtual
//! machine the host moves processors, so that two of them are near in one minute and far apart in the next; every figure of two
//! ranks depends on that.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Microseconds one way between two processors: the median over batches, so that interruptions of a few batches (by another
/// process or the host) do not count.
pub fn one_way_us(processors: [usize; 2]) -> Result<f64, String> {
    let line = Line(AtomicU64::new(0));
    let start = Start { barrier: Barrier::new(2), refused: AtomicBool::new(false) };
    let asked = std::thread::scope(|scope| {
        scope.spawn(|| start.pinned(processors[1]).then(|| line.answer()));
        scope.spawn(|| start.pinned(processors[0]).then(|| line.ask())).join()
    });
    let Ok(Some(mut batches)) = asked else {
        return Err(format!("no two threads can be pinned to the processors {processors:?}"));
    };
    batches.sort_by(f64::total_cmp);
    Ok(batches[batches.len() / 2])
}

/// Restricts the calling thread, and processes that it starts, to these processors.
pub fn confine(processors: &[usize]) -> Result<(), String> {
    let mut only = CpuSet::new();
    processors.iter().for_each(|&processor| only.set(processor));
    sched_setaffinity(None, &only)
        .map_err(|error| format!("the processors {processors:?} cannot be used: {error}"))
}

/// A barrier of the two sides before the first word: neither begins if the other could not be pinned.
struct Start {
    barrier: Barrier,
    refused: AtomicBool,
}

impl Start {
    /// Whether both sides are pinned.
    fn pinned(&self, processor: usize) -> bool {
        // The barrier orders the accesses to `refused`.
        self.refused.fetch_or(confine(&[processor]).is_err(), Ordering::Relaxed);
        self.barrier.wait();
        !self.refused.load(Ordering::Relaxed)
    }
}

/// One word in a separate cache line (two lines, as processors fetch them in pairs). Odd: the answer is awaited; even: it has come.
#[repr(align(128))]
struct Line(AtomicU64);

impl Line {
    /// One figure for each batch, in microseconds one way.
    fn ask(&self) -> Vec<f64> {
        let batch = |number: u64| {
            let began = Instant::now();
            for trip in number * ROUND_TRIPS..(number + 1) * ROUND_TRIPS {
                self.0.store(2 * trip + 1, Ordering::Relaxed);
                self.wait_for(2 * trip + 2);
            }
            began.elapsed().as_secs_f64() * 1e6 / (2 * ROUND_TRIPS) as f64
        };
        (0..BATCHES).map(batch).collect()
    }

    fn answer(&self) {
        for trip in 0..BATCHES * ROUND_TRIPS {
            self.wait_for(2 * trip + 1);
            self.0.store(2 * trip + 2, Ordering::Relaxed);
        }
    }

    /// Polls without a pause, whose length would be measured too.
    fn wait_for(&self, word: u64) {
        while self.0.load(Ordering::Relaxed) != word {}
    }
}

const BATCHES: u64 = 200;
const ROUND_TRIPS: u64 = 100;

#[cfg(test)]
mod tests {
    use super::one_way_us;

    #[test]
    fn a_processor_that_does_not_exist_is_refused_and_not_waited_for() {
        assert!(one_way_us([0, 1023]).is_err());
        assert!(one_way_us([1023, 0]).is_err());
    }
}
