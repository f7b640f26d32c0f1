// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Restrictions for a job: less memory (a control group), another /dev/shm (a mount namespace), other namespaces.
//!
//! Each is tried with an empty job first; if the machine does not permit it, the reason is returned in words.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A control group with a memory limit; removed when dropped.
#[derive(Debug)]
pub struct MemoryLimit {
    folder: PathBuf,
    second_version: bool,
}

impl MemoryLimit {
    /// A group below our own, or below the root where ours may not have children.
    pub fn new(bytes: u64) -> Result<MemoryLimit, String> {
        let name = format!("mend-tests-{}", mend_testing::unique());
        let mut refusals = Vec::new();
        for (parent, second_version) in parents() {
            let group = MemoryLimit { folder: parent.join(&name), second_version };
            match group.make(bytes) {
                Ok(()) => return Ok(group),
                Err(why) => refusals.push(format!("{}: {why}", parent.display())),
            }
        }
        Err(format!("no control group with a memory limit can be made ({})", refusals.join("; ")))
    }

    fn make(&self, bytes: u64) -> std::io::Result<()> {
        std::fs::create_dir(&self.folder)?;
        std::fs::write(
            self.folder.join(if self.second_version { "memory.max" } else { "memory.limit_in_bytes" }),
            bytes.to_string(),
        )?;
        // Swap would make the limit ineffective; machines without swap have no such file.
        let _ = std::fs::write(
            self.folder.join(if self.second_version { "memory.swap.max" } else { "memory.swappiness" }),
            "0",
        );
        Ok(())
    }

    /// `command` inside the group: the shell enters it, then becomes the command.
    pub fn hold(&self, command: &Command) -> Command {
        let procs = self.folder.join("cgroup.procs");
        shell(&[], &format!("echo $$ > '{}' && exec \"$@\"", procs.display()), command)
    }

    /// How many processes the kernel killed here for want of memory.
    pub fn killed(&self) -> u64 {
        let file = if self.second_version { "memory.events" } else { "memory.oom_control" };
        let text = std::fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // A group that still has processes cannot be removed; the test that left them has failed already.
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Groups below which a group may be made: version 1, then version 2; our own, then the root.
fn parents() -> Vec<(PathBuf, bool)> {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let ours = |prefix: &str| {
        let line = text.lines().find(|line| line.split(':').nth(1) == Some(prefix));
        line.and_then(|line| line.splitn(3, ':').nth(2)).unwrap_or("/").trim_start_matches('/').to_owned()
    };
    let mut found = Vec::new();
    for (mount, controller, second_version) in
        [("/sys/fs/cgroup/memory", "memory", false), ("/sys/fs/cgroup", "", true)]
    {
        let mount = Path::new(mount);
        let marker = if second_version { "cgroup.controllers" } else { "memory.limit_in_bytes" };
        if mount.join(marker).is_file() {
            found.push((mount.join(ours(controller)), second_version));
            found.push((mount.to_owned(), second_version));
        }
    }
    found
}

/// `command` in new namespaces after `script` has prepared them (mounts, for instance). `Err`: not permitted here.
pub fn unshare(flags: &[&str], script: &str, command: &Command) -> Result<Command, String> {
    let trial = shell(flags, &format!("{script}\nexec \"$@\""), &Command::new("true")).output();
    match trial {
        Ok(output) if output.status.success() => Ok(shell(flags, &format!("{script}\nexec \"$@\""), command)),
        Ok(output) => {
            Err(format!("unshare {}: {}", flags.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
        }
        Err(error) => Err(format!("there is no unshare: {error}")),
    }
}

/// `sh -c SCRIPT sh COMMAND...`, under `unshare FLAGS` if there are flags; the command's own environment goes along.
fn shell(flags: &[&str], script: &str, command: &Command) -> Command {
    let mut outer = if flags.is_empty() { Command::new("sh") } else { Command::new("unshare") };
    if !flags.is_empty() {
        outer.args(flags).arg("sh");
    }
    outer.args(["-ec", script, "sh"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

#[cfg(test)]
mod tests {
    use super::MemoryLimit;
    use std::collections::BTreeSet;

    #[test]
    fn groups_with_one_limit_stand_side_by_side() {
        match MemoryLimit::new(64 << 20) {
            Err(why) => mend_testing::skip("groups_with_one_limit_stand_side_by_side", &why),
            // More than there are parents to make one below.
            Ok(first) => {
                let another = |_| MemoryLimit::new(64 << 20).expect("groups can be made here");
                let groups: Vec<_> = (0..4).map(another).chain([first]).collect();
                let folders: BTreeSet<_> = groups.iter().map(|group| &group.folder).collect();
                assert_eq!(folders.len(), 5, "{folders:?}");
            }
        }
    }
}
