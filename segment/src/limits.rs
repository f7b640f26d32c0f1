// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much memory the limits of control groups leave to this process.

use crate::cgroup::{self, Level, Version};
use std::sync::OnceLock;

/// How many bytes may still be used under the tightest limit; `None` where there is none, or none that can be read.
pub fn bytes_left() -> Option<u64> {
    // The places of the files do not change while the process lives (a move to another group leaves its limits in force).
    // Not state of an engine: a fact about the process.
    static LEVELS: OnceLock<Vec<Level>> = OnceLock::new();
    let with_limits = || cgroup::levels("memory").into_iter().filter(is_limited).collect();
    LEVELS.get_or_init(with_limits).iter().filter_map(bytes_left_under).min()
}

#[derive(Debug, PartialEq, Eq)]
struct Names {
    limit: &'static str,
    usage: &'static str,
    /// Entries of memory.stat for memory that the kernel reclaims under pressure: page cache of files.
    reclaimable: [&'static str; 2],
}

static VERSION_1: Names = Names {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    reclaimable: ["total_inactive_file", "total_active_file"],
};
static VERSION_2: Names =
    Names { limit: "memory.max", usage: "memory.current", reclaimable: ["inactive_file", "active_file"] };

/// Version 1 expresses "no limit" by a number near 2^63.
const NO_LIMIT: u64 = 1 << 60;

fn names(level: &Level) -> &'static Names {
    match level.version {
        Version::One => &VERSION_1,
        Version::Two => &VERSION_2,
    }
}

/// Whether a level has the file of a limit: the root of version 2 has none.
fn is_limited(level: &Level) -> bool {
    level.directory.join(names(level).limit).exists()
}

/// The number in a file; `None` for "max", which means no limit.
fn number(level: &Level, file: &str) -> Option<u64> {
    level.read(file)?.parse().ok()
}

fn bytes_left_under(level: &Level) -> Option<u64> {
    let names = names(level);
    let limit = number(level, names.limit).filter(|&limit| limit < NO_LIMIT)?;
    let usage = number(level, names.usage)?;
    let stat = level.read("memory.stat").unwrap_or_default();
    let reclaimable: u64 = stat.lines().filter_map(|line| reclaimable(names, line)).sum();
    Some(limit.saturating_sub(usage.saturating_sub(reclaimable)))
}

fn reclaimable(names: &Names, line: &str) -> Option<u64> {
    let (name, value) = line.split_once(' ')?;
    if names.reclaimable.contains(&name) { value.trim().parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::bytes_left_under;
    use crate::cgroup::{Level, Version};
    use mend_testing::Scratch;
    use std::fs;

    /// A level that is a folder of its own.
    struct Group {
        folder: Scratch,
        level: Level,
    }

    impl Group {
        fn new(version: Version) -> Self {
            let folder = Scratch::new("limits");
            let level = Level { directory: folder.path().to_owned(), version };
            Group { folder, level }
        }

        fn write(&self, file: &str, text: &str) {
            fs::write(self.folder.join(file), text).unwrap();
        }
    }

    #[test]
    fn version_2_counts_what_is_used_and_not_given_back() {
        let group = Group::new(Version::Two);
        group.write("memory.max", "1000000\n");
        group.write("memory.current", "700000\n");
        group.write("memory.stat", "anon 5\ninactive_file 100000\nactive_file 50000\n");
        assert_eq!(bytes_left_under(&group.level), Some(450_000));
        group.write("memory.max", "max\n");
        assert_eq!(bytes_left_under(&group.level), None);
    }

    #[test]
    fn version_1_says_no_limit_by_a_huge_number() {
        let group = Group::new(Version::One);
        group.write("memory.limit_in_bytes", "9223372036854771712\n");
        group.write("memory.usage_in_bytes", "10\n");
        assert_eq!(bytes_left_under(&group.level), None);
        group.write("memory.limit_in_bytes", "4096\n");
        assert_eq!(bytes_left_under(&group.level), Some(4086));
    }
}
