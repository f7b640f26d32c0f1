// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many processors this process may use: what decides between spinning and yielding.

use rustix::process::getppid;
use rustix::thread::sched_getaffinity;
use std::fs;

/// Processors that the ranks of this node may use together, as far as one of them can tell: those in the affinity mask of
/// this process or, where each rank is bound to its own, of the keeper that started it; and no more whole processors than
/// the cgroup's quota lets run at once. At least 1.
pub fn usable() -> u32 {
    let count = |process| sched_getaffinity(process).map_or(1, |set| set.count());
    let mask = count(None).max(count(getppid()));
    mask.min(quota().unwrap_or(mask)).max(1)
}

/// `cpu.max` of cgroup v2, or quota and period of v1, rounded up; `None` where there is no limit.
fn quota() -> Option<u32> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().filter_map(quota_of_line).min()
}

/// One line of /proc/self/cgroup: `0::/path` for v2, `N:controllers:/path` for v1.
fn quota_of_line(line: &str) -> Option<u32> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    if controllers.is_empty() {
        return from_root(path, &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], |folder| {
            parse_max(&fs::read_to_string(format!("{folder}/cpu.max")).ok()?)
        });
    }
    if !controllers.split(',').any(|controller| controller == "cpu") {
        return None;
    }
    from_root(path, &["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"], |folder| {
        let read = |name: &str| fs::read_to_string(format!("{folder}/{name}")).ok();
        ratio(read("cpu.cfs_quota_us")?.trim().parse().ok()?, read("cpu.cfs_period_us")?.trim().parse().ok()?)
    })
}

/// The least limit of `path` and the folders above it, under whichever root it is mounted.
fn from_root(path: &str, roots: &[&str], limit: impl Fn(&str) -> Option<u32>) -> Option<u32> {
    let mut folders = vec![path.trim_end_matches('/')];
    while let Some((above, _)) = folders[folders.len() - 1].rsplit_once('/') {
        folders.push(above);
    }
    let limit = &limit;
    roots
        .iter()
        .flat_map(|root| folders.iter().filter_map(move |folder| limit(&format!("{root}{folder}"))))
        .min()
}

/// `"max 100000"` or `"150000 100000"`: the second is two processors.
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

#[cfg(test)]
mod tests {
    use super::{parse_max, ratio, usable};

    #[test]
    fn a_quota_is_rounded_up_to_whole_processors() {
        assert_eq!(parse_max("max 100000\n"), None);
        assert_eq!(parse_max("150000 100000\n"), Some(2));
        assert_eq!(parse_max("50000 100000"), Some(1));
        assert_eq!(ratio(-1, 100_000), None);
        assert!(usable() >= 1);
    }
}
