// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the project lies, where it is built, and how `cargo` is called from inside a program that `cargo` started.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Failure, Outcome};

/// The checkout and its target folder.
#[derive(Clone, Debug)]
pub struct Place {
    /// The folder of the workspace's Cargo.toml.
    pub root: PathBuf,
    /// The target folder in force.
    pub target: PathBuf,
}

impl Place {
    /// Finds both from where this program lies and was compiled.
    pub fn find() -> Outcome<Place> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .filter(|root| root.join("Cargo.toml").is_file())
            .ok_or_else(|| Failure("the checkout that this program was built from is gone".to_owned()))?;
        Ok(Place {
            root: root.to_owned(),
            target: target_of_this_program().unwrap_or_else(|| root.join("target")),
        })
    }

    /// A `cargo` command in the checkout. Inside `cargo run` the environment names the toolchain and the package that is
    /// running; the toolchain is kept, the package's variables would rebuild whatever looks at them.
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
            .map_err(|error| crate::failure(format!("cannot make {}", path.display()), error))?;
        Ok(path)
    }
}

/// Cargo marks its target folder with CACHEDIR.TAG; programs lie below it, wherever CARGO_TARGET_DIR put it.
fn target_of_this_program() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let found = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file())?;
    Some(found.to_owned())
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn the_checkout_and_the_target_folder_are_found() {
        let place = Place::find().unwrap();
        assert!(place.root.join("xtask/Cargo.toml").is_file());
        assert!(std::env::current_exe().unwrap().starts_with(&place.target));
    }
}
