// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The prefix in which the library under test is installed: once for each build, by whichever test asks first.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use mend_xtask::install::{Build, install};
use mend_xtask::place::Place;

/// The prefix, installed and current.
pub fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| match std::env::var_os("MENDTEST_PREFIX") {
        Some(given) => PathBuf::from(given),
        None => install_once(),
    })
}

/// The checkout and its target folder.
pub fn place() -> &'static Place {
    static PLACE: OnceLock<Place> = OnceLock::new();
    PLACE.get_or_init(|| Place::find().unwrap_or_else(|why| panic!("{why}")))
}

/// A folder of our own under the target folder, which all tests share.
pub fn folder(name: &str) -> PathBuf {
    place().folder(&format!("mend-tests/{name}")).unwrap_or_else(|why| panic!("{why}"))
}

/// A command of the prefix, without the library path that `cargo test` sets.
pub fn command(name: &str) -> Command {
    let mut command = Command::new(prefix().join("bin").join(name));
    command.env_remove("LD_LIBRARY_PATH");
    command
}

/// Several test programs may run at once; one installs, the others wait for it (`install` locks the prefix) and find everything
/// current.
fn install_once() -> PathBuf {
    let prefix = folder("prefix");
    install(place(), &Build::release(place()), &prefix).unwrap_or_else(|why| panic!("cannot install: {why}"));
    prefix
}
