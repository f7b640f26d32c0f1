// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The folders of the project and of its build, and calls of `cargo` from a program that `cargo` started.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{CommandError, Outcome, command_error};

/// The checkout and its target folder.
#[derive(Clone, Debug)]
pub struct Place {
    /// The folder of the workspace's Cargo.toml.
    pub root: PathBuf,
    /// The target folder.
    pub target: PathBuf,
}

impl Place {
    /// Finds both from the path of this program and the folder in which it was compiled.
    pub fn find() -> Outcome<Place> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .filter(|root| root.join("Cargo.toml").is_file())
            .ok_or_else(|| {
                CommandError("the checkout that this program was built from is gone".to_owned())
            })?;
        Ok(Place {
            root: root.to_owned(),
            target: mend_testing::target_folder().unwrap_or_else(|| root.join("target")),
        })
    }

    /// A `cargo` command in the checkout. Inside `cargo run` the environment names the toolchain and the running package. The
    /// toolchain's variables are passed on; the package's are removed, as crates that read them would be rebuilt.
    pub fn cargo(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR" {
                command.env_remove(name);
            }
        }
        command.env_remove("LD_LIBRARY_PATH");
        command
    }

    /// A folder under the target folder for one of our commands, made if it is missing.
    pub fn folder(&self, name: &str) -> Outcome<PathBuf> {
        let path = self.target.join(name);
        std::fs::create_dir_all(&path)
            .map_err(|error| command_error(format!("cannot make {}", path.display()), error))?;
        Ok(path)
    }
}

/// A folder of logs that no other run writes at the same time: `NAME` under the target folder, or `NAME-2`, `NAME-3`, ... while
/// runs that began earlier have the ones before.
#[derive(Debug)]
pub struct Logs {
    path: PathBuf,
    /// The folder itself, locked until this is dropped.
    _lock: File,
}

impl Logs {
    /// The first folder that is free.
    pub fn open(place: &Place, name: &str) -> Outcome<Logs> {
        let mut number = 1;
        loop {
            let path =
                place.folder(&if number == 1 { name.to_owned() } else { format!("{name}-{number}") })?;
            let cannot = |error| command_error(format!("cannot lock {}", path.display()), error);
            let folder = File::open(&path).map_err(cannot)?;
            match folder.try_lock() {
                Ok(()) => return Ok(Logs { path, _lock: folder }),
                Err(TryLockError::WouldBlock) => number += 1,
                Err(TryLockError::Error(error)) => return Err(cannot(error)),
            }
        }
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::{Logs, Place};
    use mend_testing::Scratch;

    #[test]
    fn the_checkout_and_the_target_folder_are_found() {
        let place = Place::find().unwrap();
        assert!(place.root.join("xtask/Cargo.toml").is_file());
        assert!(std::env::current_exe().unwrap().starts_with(&place.target));
    }

    #[test]
    fn two_runs_at_the_same_time_have_logs_of_their_own() {
        let target = Scratch::new("logs");
        let place = Place { root: Place::find().unwrap().root, target: target.path().to_owned() };
        let first = Logs::open(&place, "suite").unwrap();
        let second = Logs::open(&place, "suite").unwrap();
        assert_eq!(
            (first.path(), second.path()),
            (target.join("suite").as_path(), target.join("suite-2").as_path())
        );
        drop(first);
        // A process that another test has forked holds the lock until it calls exec.
        while Logs::open(&place, "suite").unwrap().path() != target.join("suite") {
            std::thread::yield_now();
        }
    }
}
