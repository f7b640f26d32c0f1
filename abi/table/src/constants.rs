// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The constants as the library's Rust sees them.

use crate::model::{Constant, Table};

/// The text of `abi/src/generated/constants.rs`.
pub fn constants(table: &Table) -> String {
    let mut text = String::from(BEGIN);
    // Fault tolerance has two spellings of one value; Rust needs one.
    for each in table.constants.iter().filter(|each| !each.name.starts_with("MPIX_")) {
        text.push_str(&line(each));
    }
    text
}

fn line(each: &Constant) -> String {
    let rust_type = match each.c_type.as_str() {
        "int" => "c_int",
        "MPI_Offset" => "i64",
        _ => "Handle",
    };
    let name = each.name.trim_start_matches("MPI_");
    let name = if name.starts_with(|first: char| first.is_ascii_digit()) {
        format!("TYPE_{name}")
    } else {
        name.to_owned()
    };
    format!("pub const {name}: {rust_type} = {};\n", each.written)
}

const BEGIN: &str = "// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The constants of the standard ABI. Made from abi/table by mend-abi-generate.
#![allow(dead_code, reason = \"the table is whole; what of it is used grows\")]

use crate::handle::Handle;
use core::ffi::c_int;

";
