// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask docs`: writes the pages that are made from tables. A test in `tests` fails if one is out of date.

use crate::place::Place;
use crate::{CommandError, Outcome, command_error};

/// Runs the program that prints the page, and writes the page.
pub fn command(place: &Place) -> Outcome {
    let mut cargo = place.cargo();
    cargo.args(["run", "--quiet", "--package", "mend-tests", "--bin", "parameters-page"]);
    let output = cargo.output().map_err(|error| command_error("cannot start cargo", error))?;
    if !output.status.success() {
        return Err(CommandError(format!(
            "parameters-page failed: {}",
            String::from_utf8_lossy(&output.stderr)
        )));
    }
    let page = place.root.join("docs/parameters.md");
    std::fs::write(&page, output.stdout)
        .map_err(|error| command_error(format!("cannot write {}", page.display()), error))?;
    println!("wrote {}", page.display());
    Ok(())
}
