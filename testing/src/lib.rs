// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Helpers for the tests of every crate: unique names, separate folders, and the line that reports a skip.
//!
//! Tests run at the same time as threads of one program, as several programs, and as several suites. Whatever a test names
//! outside its process (a file, a folder, a control group, a mark in an environment) gets its name from [`unique`] or lies
//! in a [`Scratch`]. A test that finds that it cannot run on this machine calls [`skip`] and returns.
//!
//! Not for production code: crates name this one under `[dev-dependencies]`.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// A name that no other call returns, in this process or another: process id, time of the first call, and a counter. The time
/// distinguishes processes with the same id, one after the other or in different PID namespaces.
pub fn unique() -> String {
    static FIRST: OnceLock<u128> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let first = FIRST.get_or_init(|| {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos())
    });
    format!("{}-{first:x}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A name next to `path` for writing a new version of it, which is renamed to `path` once it is complete.
pub fn second_name(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}", unique()))
}

/// The target folder that this program was built in: cargo marks it with CACHEDIR.TAG.
pub fn target_folder() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let found = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file())?;
    Some(found.to_owned())
}

/// A folder of one test, removed with everything in it when dropped. It lies under the target folder and not in /tmp, because
/// other tests look there for what jobs leave behind.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes an empty folder; its name begins with `name`, so that a listing shows whose it is.
    pub fn new(name: &str) -> Scratch {
        let parent = target_folder().unwrap_or_else(std::env::temp_dir).join("scratch");
        let path = parent.join(format!("{name}-{}", unique()));
        if let Err(error) = std::fs::create_dir_all(&path) {
            panic!("cannot make {}: {error}", path.display());
        }
        Scratch(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file or folder in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that cannot be removed stays in the target folder, and no other test uses its name.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Reports that a test cannot run on this machine, and why. `test` is the name of the test function; `cargo suite` counts the test
/// as skipped and not as passed, and as failed when no test of this name ran. A test reports one skip at most, and asserts
/// nothing then: what can be tested without the missing part is a test of its own.
pub fn skip(test: &str, why: &str) {
    say(&format!("{SKIPPED}{test}: {why}"));
}

/// How the line of [`skip`] begins.
pub const SKIPPED: &str = "skipped: ";

/// Prints a line past libtest's capture. It starts on a line of its own, because libtest leaves its own line open.
pub fn say(line: &str) {
    // If stderr is closed, the line cannot be shown.
    let _ = std::io::stderr().write_all(format!("\n{line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::{Scratch, unique};
    use std::collections::BTreeSet;

    #[test]
    fn names_asked_for_by_many_threads_differ() {
        let threads: Vec<_> =
            (0..8).map(|_| std::thread::spawn(|| (0..100).map(|_| unique()).collect::<Vec<_>>())).collect();
        let names: BTreeSet<String> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert_eq!(names.len(), 800);
    }

    #[test]
    fn two_folders_of_one_name_are_apart_and_are_removed_with_their_files() {
        let (one, other) = (Scratch::new("same"), Scratch::new("same"));
        assert_ne!(one.path(), other.path());
        std::fs::write(one.join("file"), "text").unwrap();
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists() && other.path().is_dir());
    }
}
