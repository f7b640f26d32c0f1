// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processors: how many this process may use, on which one the running thread is, and how often the kernel preempted this
//! process.

use mend_segment::cgroup::{self, Level, Version};
use rustix::process::getppid;
use rustix::thread::sched_getaffinity;

/// How many processors the ranks of this node may use together, as far as one rank can tell. The larger of two affinity masks: that of this
/// process, and that of the node daemon, which counts if each rank is bound to its own processors. At most the quota of the control
/// group, and at least 1.
pub fn usable() -> u32 {
    let count = |process| sched_getaffinity(process).map_or(1, |set| set.count());
    let mask = count(None).max(count(getppid()));
    let quota = cgroup::levels("cpu").iter().filter_map(quota).min();
    mask.min(quota.unwrap_or(mask)).max(1)
}

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

#[cfg(test)]
mod tests {
    use super::{current, parse_max, preemptions, ratio, usable};

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
    fn a_quota_is_rounded_up_to_whole_processors() {
        assert_eq!(parse_max("max 100000\n"), None);
        assert_eq!(parse_max("150000 100000\n"), Some(2));
        assert_eq!(parse_max("50000 100000"), Some(1));
        assert_eq!(ratio(-1, 100_000), None);
        assert!(usable() >= 1);
    }
}
