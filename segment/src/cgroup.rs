// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the control groups of this process, of version 1 and 2, at every level up the tree: the limits of all levels apply.

use std::fs;
use std::path::{Path, PathBuf};

/// The cgroup version of a hierarchy; names and formats of its files differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// A hierarchy for each controller or few controllers.
    One,
    /// The unified hierarchy.
    Two,
}

/// One directory of a hierarchy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Level {
    /// The directory of its files.
    pub directory: PathBuf,
    /// The version of its hierarchy.
    pub version: Version,
}

impl Level {
    /// The trimmed content of one of its files; `None` if the file cannot be read.
    pub fn read(&self, file: &str) -> Option<String> {
        Some(fs::read_to_string(self.directory.join(file)).ok()?.trim().to_owned())
    }
}

/// Every level above this process in the hierarchies that may hold `controller`, the nearest of each first. A level need
/// not have the files of that controller.
pub fn levels(controller: &str) -> Vec<Level> {
    levels_of(Path::new("/proc/self"), controller)
}

/// The process's own groups are in `proc`/cgroup, where they are mounted in `proc`/mountinfo.
fn levels_of(proc: &Path, controller: &str) -> Vec<Level> {
    let groups = fs::read_to_string(proc.join("cgroup")).unwrap_or_default();
    let mounts = fs::read_to_string(proc.join("mountinfo")).unwrap_or_default();
    let mut found = Vec::new();
    for mount in mounts.lines().filter_map(|line| Mount::parse(line, controller)) {
        let group = groups.lines().find_map(|line| group_of(line, mount.version, controller));
        let Some(group) = group else { continue };
        // The group lies outside the mounted part (another namespace): the root of the mount is the nearest visible level.
        let below = Path::new(group).strip_prefix(mount.root).unwrap_or(Path::new(""));
        let leaf = Path::new(mount.point).join(below);
        let above = leaf.ancestors().take_while(|directory| directory.starts_with(mount.point));
        let version = mount.version;
        found.extend(above.map(|directory| Level { directory: directory.to_owned(), version }));
    }
    found
}

struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    version: Version,
}

impl<'a> Mount<'a> {
    /// A line of mountinfo: id, parent, device, root, mount point, options, ..., "-", type, source, super options.
    fn parse(line: &'a str, controller: &str) -> Option<Self> {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        let (root, point) = (front.next()?, front.next()?);
        let mut back = back.split(' ');
        let version = match (back.next()?, back.nth(1)) {
            ("cgroup2", _) => Version::Two,
            ("cgroup", Some(options)) if options.split(',').any(|word| word == controller) => Version::One,
            _ => return None,
        };
        Some(Mount { root, point, version })
    }
}

/// A line of /proc/self/cgroup: number, controllers, path; the unified hierarchy has number 0 and no controllers.
fn group_of<'a>(line: &'a str, version: Version, controller: &str) -> Option<&'a str> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let ours = match version {
        Version::Two => number == "0" && controllers.is_empty(),
        Version::One => controllers.split(',').any(|word| word == controller),
    };
    ours.then_some(path)
}

#[cfg(test)]
mod tests {
    use super::{Version, levels_of};
    use std::fs;
    use std::path::Path;

    #[test]
    fn every_level_up_to_the_mount_counts() {
        let proc = mend_testing::Scratch::new("cgroup");
        fs::write(proc.join("cgroup"), "5:cpu,cpuacct:/a\n4:memory:/outer/job/step\n0::/b\n").unwrap();
        let mounts = "31 23 0:28 / / rw - tmpfs tmpfs rw\n\
            35 31 0:32 /outer /m rw,relatime - cgroup cgroup rw,memory\n\
            36 31 0:33 / /c rw - cgroup cgroup rw,cpu,cpuacct\n\
            37 31 0:34 / /u rw shared:4 - cgroup2 cgroup2 rw\n";
        fs::write(proc.join("mountinfo"), mounts).unwrap();
        let found = |controller| {
            let levels = levels_of(proc.path(), controller).into_iter();
            levels.map(|level| (level.directory.display().to_string(), level.version)).collect::<Vec<_>>()
        };
        let unified = [("/u/b".to_owned(), Version::Two), ("/u".to_owned(), Version::Two)];
        let memory = ["/m/job/step", "/m/job", "/m"].map(|path| (path.to_owned(), Version::One));
        assert_eq!(found("memory"), [&memory[..], &unified[..]].concat());
        let cpu = ["/c/a", "/c"].map(|path| (path.to_owned(), Version::One));
        assert_eq!(found("cpu"), [&cpu[..], &unified[..]].concat());
    }

    #[test]
    fn without_control_groups_there_is_no_level() {
        assert_eq!(levels_of(Path::new("/nonexistent"), "memory"), []);
    }
}
