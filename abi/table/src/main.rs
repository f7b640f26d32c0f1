// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes what the table makes into the folder `abi`.
#![forbid(unsafe_code)]

use mend_abi_table::{Table, generated};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let abi = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let table = match Table::ours() {
        Ok(table) => table,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    for (path, text) in generated(&table) {
        if let Err(error) = std::fs::write(abi.join(path), text) {
            eprintln!("{path}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
