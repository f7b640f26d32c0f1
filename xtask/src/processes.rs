// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the descendants of a process in /proc, and ends them with the shell's `kill`.
//!
//! The children stay in our process group, so that Ctrl-C at the terminal reaches them; so a group cannot be killed and the
//! tree is walked instead.

use std::collections::BTreeMap;
use std::process::Command;

/// The processes that descend from `ancestor`, itself left out.
pub fn descendants(ancestor: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for pid in all() {
        if let Some(parent) = parent(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut to_visit = vec![ancestor];
    while let Some(pid) = to_visit.pop() {
        let below = children.remove(&pid).unwrap_or_default();
        found.extend(&below);
        to_visit.extend(below);
    }
    found
}

/// The processes whose environment holds `NAME=VALUE`: those started below a program with that mark, also if they have another
/// parent by now. Zombies have no environment and are not found.
pub fn marked(name: &str, value: &str) -> Vec<u32> {
    let wanted = format!("{name}={value}").into_bytes();
    all()
        .filter(|pid| match std::fs::read(format!("/proc/{pid}/environ")) {
            Ok(environment) => environment.split(|&byte| byte == 0).any(|entry| entry == wanted),
            Err(_) => false,
        })
        .collect()
}

/// Sends SIGKILL to each of `pids`; one that is gone already is no error.
pub fn kill(pids: &[u32]) {
    if pids.is_empty() {
        return;
    }
    let list: Vec<String> = pids.iter().map(u32::to_string).collect();
    let script = format!("kill -KILL {} 2>/dev/null", list.join(" "));
    // A failed kill means that no process is left to end.
    let _ = Command::new("sh").args(["-c", &script]).status();
}

/// Every process that /proc shows.
pub fn all() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The parent of a process: the second word after the name, which is in parentheses and may hold any character.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{descendants, kill, marked};
    use std::process::{Command, Stdio};

    #[test]
    fn a_grandchild_is_found_by_descent_and_by_mark_and_can_be_ended() {
        let mark = mend_testing::unique();
        let mut child = Command::new("sh")
            .args(["-c", "sleep 100 & echo started; wait"])
            .env("MEND_XTASK_MARK", &mark)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut started = [0; 8];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut started).unwrap();
        assert_eq!(descendants(child.id()).len(), 1);
        assert!(marked("MEND_XTASK_MARK", &mark).contains(&child.id()));
        kill(&descendants(child.id()));
        child.wait().unwrap();
        assert!(descendants(child.id()).is_empty());
    }
}
