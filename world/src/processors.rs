// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processors: how many this process may use, on which one the running thread is, and how often the kernel preempted this
//! process.

use mend_base::Duration;
use mend_segment::cgroup::{self, Level, Version};
use rustix::io::Errno;
use rustix::process::getppid;

/// How many processors the ranks of this node may use together, as far as one rank can tell. The larger of two affinity masks: that of this
/// process, and that of the node daemon, which counts if each rank is bound to its own processors. At most the quota of the control
/// group, and at least 1.
pub fn usable() -> u32 {
    let parent = getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
    let mask = in_affinity_mask(0).max(in_affinity_mask(parent));
    let quota = cgroup::levels("cpu").iter().filter_map(quota).min();
    mask.min(quota.unwrap_or(mask)).max(1)
}

/// How many processors the affinity mask of a process has; 0: of this one. 1 if the mask cannot be read.
fn in_affinity_mask(process: libc::pid_t) -> u32 {
    count_growing(|words| {
        let bytes = size_of_val(words);
        // SAFETY: `words` is writable for `bytes` bytes, and any bits are valid in it.
        let result = unsafe { libc::sched_getaffinity(process, bytes, words.as_mut_ptr().cast()) };
        if result == 0 { Ok(()) } else { Err(last_error()) }
    })
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// The number of bits that `read` sets. The kernel refuses a mask that is shorter than its own with EINVAL; its own has a bit for each
/// possible processor, and `cpu_set_t` only 1024 bits.
fn count_growing(mut read: impl FnMut(&mut [u64]) -> Result<(), Errno>) -> u32 {
    let mut words = vec![0; 16];
    while words.len() <= MASK_WORDS_MAX {
        match read(&mut words) {
            Ok(()) => return words.iter().map(|word| word.count_ones()).sum(),
            Err(Errno::INVAL) => words = vec![0; 2 * words.len()],
            Err(_) => break,
        }
    }
    1
}

/// More than any kernel has.
const MASK_WORDS_MAX: usize = 1 << 14;

/// The quota in processors, rounded up; `None`: no limit.
fn quota(level: &Level) -> Option<u32> {
    match level.version {
        Version::Two => parse_max(&level.read("cpu.max")?),
        Version::One => {
            let number = |file| level.read(file)?.parse().ok();
            ratio(number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
        }
    }
}

/// Parses `"max 100000"` (no limit) or `"150000 100000"` (two processors).
fn parse_max(text: &str) -> Option<u32> {
    let (quota, period) = text.trim().split_once(' ')?;
    ratio(quota.parse().ok()?, period.parse().ok()?)
}

fn ratio(quota: i64, period: i64) -> Option<u32> {
    if quota <= 0 || period <= 0 {
        return None;
    }
    u32::try_from((quota + period - 1) / period).ok()
}

/// The processor of the running thread. Costs a load or two if the kernel publishes it to the C library (rseq).
pub fn current() -> Option<u32> {
    // SAFETY: returns a number.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// How often the kernel preempted a thread of this process. A system call.
pub fn preemptions() -> u64 {
    let mut usage = core::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is writable.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: a record of numbers, zeroed before the call.
    let usage = unsafe { usage.assume_init() };
    usage.ru_nivcsw.unsigned_abs()
}

/// For how long the calling thread has run since it began. A system call.
pub fn time_run() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    Duration(seconds * 1_000_000_000 + nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::{count_growing, current, in_affinity_mask, parse_max, preemptions, ratio, time_run, usable};
    use rustix::io::Errno;

    #[test]
    fn a_thread_that_yields_to_another_on_its_processor_is_counted_as_preempted() {
        use rustix::thread::{CpuSet, sched_setaffinity};
        let before = preemptions();
        let here = current().unwrap();
        let yields = || {
            let mut only = CpuSet::new();
            only.set(here as usize);
            sched_setaffinity(None, &only).unwrap();
            while preemptions() == before {
                std::thread::yield_now();
            }
            assert_eq!(current(), Some(here));
        };
        std::thread::scope(|scope| {
            scope.spawn(yields);
            scope.spawn(yields);
        });
    }

    #[test]
    fn a_thread_that_waits_for_another_does_not_run() {
        let runs_for_20_ms = || {
            let before = time_run();
            while time_run().0 - before.0 < 20_000_000 {}
        };
        let before = time_run();
        std::thread::scope(|scope| _ = scope.spawn(runs_for_20_ms));
        assert!(time_run().0 - before.0 < 20_000_000);
    }

    #[test]
    fn a_mask_with_more_than_1024_processors_is_counted() {
        let kernel = |words: &mut [u64]| {
            if words.len() < 64 {
                return Err(Errno::INVAL);
            }
            words[..40].fill(u64::MAX);
            Ok(())
        };
        assert_eq!(count_growing(kernel), 2_560);
        assert_eq!(count_growing(|_| Err(Errno::INVAL)), 1);
        assert_eq!(count_growing(|_| Err(Errno::SRCH)), 1);
        if let Ok(short) = rustix::thread::sched_getaffinity(None) {
            assert_eq!(in_affinity_mask(0), short.count());
        }
    }

    #[test]
    fn a_quota_is_rounded_up_to_whole_processors() {
        assert_eq!(parse_max("max 100000\n"), None);
        assert_eq!(parse_max("150000 100000\n"), Some(2));
        assert_eq!(parse_max("50000 100000"), Some(1));
        assert_eq!(ratio(-1, 100_000), None);
        assert!(usable() >= 1);
    }
}
