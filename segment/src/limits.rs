// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much memory the cgroup limits leave to this process: version 1 and 2, every level up the tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// How many bytes may still be used under the tightest limit; `None` where there is none, or none that can be read.
pub fn bytes_left() -> Option<u64> {
    // Where the files are does not change while a process lives (it may be moved, but not out of its limits).
    // Not state of an engine: a fact about the process.
    static LEVELS: OnceLock<Vec<Level>> = OnceLock::new();
    LEVELS.get_or_init(|| levels(Path::new("/proc/self"))).iter().filter_map(Level::bytes_left).min()
}

/// One directory of a cgroup hierarchy that has a memory limit file.
#[derive(Debug, PartialEq, Eq)]
struct Level {
    directory: PathBuf,
    names: &'static Names,
}

#[derive(Debug, PartialEq, Eq)]
struct Names {
    limit: &'static str,
    usage: &'static str,
    /// Entries of memory.stat that the kernel gives back under pressure: page cache of files.
    reclaimable: [&'static str; 2],
}

static VERSION_1: Names = Names {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    reclaimable: ["total_inactive_file", "total_active_file"],
};
static VERSION_2: Names =
    Names { limit: "memory.max", usage: "memory.current", reclaimable: ["inactive_file", "active_file"] };

/// Version 1 says "no limit" by a number near 2^63.
const NO_LIMIT: u64 = 1 << 60;

impl Level {
    fn bytes_left(&self) -> Option<u64> {
        let limit = number(&self.directory.join(self.names.limit))?;
        if limit >= NO_LIMIT {
            return None;
        }
        let usage = number(&self.directory.join(self.names.usage))?;
        let reclaimable = fs::read_to_string(self.directory.join("memory.stat"))
            .map(|stat| stat.lines().filter_map(|line| self.reclaimable(line)).sum())
            .unwrap_or(0);
        Some(limit.saturating_sub(usage.saturating_sub(reclaimable)))
    }

    fn reclaimable(&self, line: &str) -> Option<u64> {
        let (name, value) = line.split_once(' ')?;
        if self.names.reclaimable.contains(&name) { value.trim().parse().ok() } else { None }
    }
}

/// "max" is no number, and no limit.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Every level above this process: its own cgroups are in `proc`/cgroup, where they are mounted in `proc`/mountinfo.
fn levels(proc: &Path) -> Vec<Level> {
    let groups = fs::read_to_string(proc.join("cgroup")).unwrap_or_default();
    let mounts = fs::read_to_string(proc.join("mountinfo")).unwrap_or_default();
    let mut found = Vec::new();
    for mount in mounts.lines().filter_map(Mount::parse) {
        let group = groups.lines().find_map(|line| group_of(line, mount.names));
        let Some(group) = group else { continue };
        // A group outside the mounted part (another namespace): the mount's own root is the nearest that we see.
        let below = Path::new(group).strip_prefix(mount.root).unwrap_or(Path::new(""));
        let leaf = Path::new(mount.point).join(below);
        let above = leaf.ancestors().take_while(|directory| directory.starts_with(mount.point));
        found.extend(
            above
                .filter(|directory| directory.join(mount.names.limit).exists())
                .map(|directory| Level { directory: directory.to_owned(), names: mount.names }),
        );
    }
    found
}

struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    names: &'static Names,
}

impl<'a> Mount<'a> {
    /// A line of mountinfo: id, parent, device, root, mount point, options, ..., "-", type, source, super options.
    fn parse(line: &'a str) -> Option<Self> {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        let (root, point) = (front.next()?, front.next()?);
        let mut back = back.split(' ');
        let names = match (back.next()?, back.nth(1)) {
            ("cgroup2", _) => &VERSION_2,
            ("cgroup", Some(options)) if options.split(',').any(|word| word == "memory") => &VERSION_1,
            _ => return None,
        };
        Some(Mount { root, point, names })
    }
}

/// A line of /proc/self/cgroup: number, controllers, path; the unified hierarchy has number 0 and no controllers.
fn group_of<'a>(line: &'a str, names: &'static Names) -> Option<&'a str> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let ours = if names == &VERSION_2 {
        number == "0" && controllers.is_empty()
    } else {
        controllers.split(',').any(|word| word == "memory")
    };
    ours.then_some(path)
}

#[cfg(test)]
mod tests {
    use super::{Level, VERSION_1, VERSION_2, levels};
    use std::fs;
    use std::path::{Path, PathBuf};

    /// A directory of its own under the build's, removed at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("mend-limits-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Scratch(path)
        }

        fn write(&self, file: &str, text: &str) {
            let path = self.0.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn version_2_counts_what_is_used_and_not_given_back() {
        let scratch = Scratch::new("v2");
        scratch.write("memory.max", "1000000\n");
        scratch.write("memory.current", "700000\n");
        scratch.write("memory.stat", "anon 5\ninactive_file 100000\nactive_file 50000\n");
        let level = Level { directory: scratch.0.clone(), names: &VERSION_2 };
        assert_eq!(level.bytes_left(), Some(450_000));
        scratch.write("memory.max", "max\n");
        assert_eq!(level.bytes_left(), None);
    }

    #[test]
    fn version_1_says_no_limit_by_a_huge_number() {
        let scratch = Scratch::new("v1");
        scratch.write("memory.limit_in_bytes", "9223372036854771712\n");
        scratch.write("memory.usage_in_bytes", "10\n");
        let level = Level { directory: scratch.0.clone(), names: &VERSION_1 };
        assert_eq!(level.bytes_left(), None);
        scratch.write("memory.limit_in_bytes", "4096\n");
        assert_eq!(level.bytes_left(), Some(4086));
    }

    #[test]
    fn every_level_up_to_the_mount_counts() {
        let scratch = Scratch::new("tree");
        let mount = scratch.0.join("memory");
        scratch.write("memory/memory.limit_in_bytes", "1");
        scratch.write("memory/job/memory.limit_in_bytes", "1");
        scratch.write("memory/job/step/memory.limit_in_bytes", "1");
        scratch.write("proc/cgroup", "5:cpu:/\n4:memory:/outer/job/step\n0::/\n");
        let point = mount.display();
        scratch.write(
            "proc/mountinfo",
            &format!("31 23 0:28 / / rw - tmpfs tmpfs rw\n35 31 0:32 /outer {point} rw,relatime - cgroup cgroup rw,memory\n"),
        );
        let found: Vec<_> =
            levels(&scratch.0.join("proc")).into_iter().map(|level| level.directory).collect();
        assert_eq!(found, [mount.join("job/step"), mount.join("job"), mount.clone()]);
    }

    #[test]
    fn no_cgroups_no_limits() {
        assert_eq!(levels(Path::new("/nonexistent")), []);
    }
}
