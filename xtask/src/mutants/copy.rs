// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A copy of the sources under the target folder, with a target folder of its own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::Place;
use crate::{Outcome, command_error};

/// The copied sources.
pub struct Sources {
    place: Place,
}

impl Sources {
    /// Makes it, or brings it up to date: files that are the same are not written, so that cargo does not build them again.
    pub fn make(place: &Place) -> Outcome<Sources> {
        let (root, target) = (place.folder("mutants/source")?, place.folder("mutants/build")?);
        mirror(&place.root, &root, &place.target)?;
        Ok(Sources { place: Place { root, target } })
    }

    /// Reads a file of it.
    pub fn read(&self, file: &str) -> Outcome<String> {
        read(&self.place.root.join(file))
    }

    /// Writes a file of it.
    pub fn write(&self, file: &str, text: &str) -> Outcome {
        let path = self.place.root.join(file);
        std::fs::write(&path, text).map_err(|error| command_error(cannot("write", &path), error))
    }

    /// `cargo test` in it, with these words: first variables of the environment, then arguments.
    pub fn cargo_test(&self, words: &str, only_builds: bool) -> Command {
        let mut cargo = self.place.cargo();
        cargo.arg("test").args(only_builds.then_some("--no-run"));
        for word in words.split_whitespace() {
            match word.split_once('=') {
                Some((name, value)) if !word.starts_with('-') => cargo.env(name, value),
                _ => cargo.arg(word),
            };
        }
        cargo
    }
}

/// Reads a file.
pub fn read(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|error| command_error(cannot("read", path), error))
}

/// Makes `to` the same as `from`, without build results and the history.
fn mirror(from: &Path, to: &Path, target: &Path) -> Outcome {
    let names = names_in(from)?;
    for extra in names_in(to)?.iter().filter(|name| !names.contains(name)) {
        let path = to.join(extra);
        let removed =
            if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.map_err(|error| command_error(cannot("remove", &path), error))?;
    }
    for name in &names {
        let (from, to) = (from.join(name), to.join(name));
        if from == target || name == ".git" || name == "target" {
            continue;
        }
        if from.is_dir() {
            std::fs::create_dir_all(&to).map_err(|error| command_error(cannot("make", &to), error))?;
            mirror(&from, &to, target)?;
            continue;
        }
        let new = std::fs::read(&from).map_err(|error| command_error(cannot("read", &from), error))?;
        if std::fs::read(&to).ok().as_ref() != Some(&new) {
            std::fs::write(&to, &new).map_err(|error| command_error(cannot("write", &to), error))?;
        }
    }
    Ok(())
}

fn names_in(folder: &Path) -> Outcome<Vec<OsString>> {
    let entries = std::fs::read_dir(folder).map_err(|error| command_error(cannot("list", folder), error))?;
    Ok(entries.flatten().map(|entry| entry.file_name()).collect())
}

fn cannot(what: &str, path: &Path) -> String {
    format!("cannot {what} {}", PathBuf::from(path).display())
}
