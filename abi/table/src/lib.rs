// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one table of the C interface (`*.table` beside this crate) and what is made from it: `mpi.h`, the exported
//! functions with their checks, the constants as Rust sees them. `cargo run -p mend-abi-table` writes them; a test compares.
//!
//! Read [`Table`] first, then [`header`] and [`exports`].
#![forbid(unsafe_code)]

mod constants;
mod exports;
mod header;
mod model;
mod parse;

pub use constants::constants;
pub use exports::exports;
pub use header::{extensions, header};
pub use model::{Argument, ArgumentKind, Call, Constant, Direction, Legal, Table, Type};
pub use parse::ParseError;

/// Every generated file: its path from the folder `abi`, and what stands in it.
pub fn generated(table: &Table) -> Vec<(&'static str, String)> {
    vec![
        ("include/mpi.h", header(table)),
        ("include/mpi-ext.h", extensions(table)),
        ("src/generated/constants.rs", constants(table)),
        ("src/generated/exports.rs", exports(table)),
    ]
}

#[cfg(test)]
mod tests {
    use super::{Table, extensions, generated};
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::{Path, PathBuf};

    fn abi() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
    }

    #[test]
    fn what_is_checked_in_is_what_the_table_makes() {
        for (path, text) in generated(&Table::ours().unwrap()) {
            let standing = std::fs::read_to_string(abi().join(path)).unwrap();
            assert!(standing == text, "{path} is stale: run cargo run -p mend-abi-table");
        }
    }

    #[test]
    fn the_table_has_every_call_of_the_standard_once() {
        let table = Table::ours().unwrap();
        let of_the_standard = table.calls.iter().filter(|call| !call.is_extension);
        let names: Vec<String> =
            of_the_standard.flat_map(|call| call.forms()).map(|(name, _)| name).collect();
        let distinct: BTreeSet<&String> = names.iter().collect();
        assert_eq!((names.len(), distinct.len()), (664, 664));
    }

    #[test]
    fn an_extension_has_two_names_and_a_macro_for_each_family() {
        let table = Table::ours().unwrap();
        let named = table.calls.iter().find(|call| call.stem == "Comm_get_failed").unwrap();
        let names: Vec<String> = named.forms().map(|(name, _)| name).collect();
        assert_eq!(names, ["MPI_Comm_get_failed", "MPIX_Comm_get_failed"]);
        let text = extensions(&table);
        for family in ["MEND", "OMPI"] {
            for call in ["COMM_GET_FAILED", "COMM_ACK_FAILED", "COMM_ISHRINK"] {
                assert!(text.contains(&format!("#define {family}_HAVE_MPIX_{call} 1\n")), "{text}");
            }
        }
        assert!(!text.contains("COMM_SPAWN"), "{text}");
    }

    /// One line of a list `name,...` with quoted fields.
    fn fields(line: &str) -> Vec<String> {
        let (mut fields, mut quoted) = (vec![String::new()], false);
        for character in line.chars() {
            match character {
                '"' => quoted = !quoted,
                ',' if !quoted => fields.push(String::new()),
                other => fields.last_mut().unwrap().push(other),
            }
        }
        fields
    }

    /// Compares with lists of the standard's interface where `MEND_ABI_FACTS` names a folder that holds them:
    /// prototypes.csv (function, result, parameters) and constants.csv (name, type, value).
    #[test]
    fn the_table_agrees_with_lists_of_the_standard_where_there_are_some() {
        let Some(folder) = std::env::var_os("MEND_ABI_FACTS") else { return };
        let read = |name| std::fs::read_to_string(Path::new(&folder).join(name)).unwrap();
        let table = Table::ours().unwrap();
        let mut ours = BTreeMap::new();
        for call in table.calls.iter().filter(|call| !call.is_extension) {
            for (name, large) in call.forms() {
                ours.insert(name, (call.result.clone(), table.argument_list(call, large)));
            }
        }
        let counts_differ = ["MPI_Psend_init", "MPI_Precv_init"];
        let prototypes = read("prototypes.csv");
        for row in prototypes.lines().skip(1).map(fields) {
            let (result, parameters) =
                ours.remove(&row[0]).unwrap_or_else(|| panic!("{} is missing", row[0]));
            let same = parameters == row[2].replace("int count", "MPI_Count count");
            let expected = if counts_differ.contains(&row[0].as_str()) { same } else { parameters == row[2] };
            assert!(expected && result == row[1], "{}: {parameters} is not {}", row[0], row[2]);
        }
        assert!(ours.is_empty(), "too many: {:?}", ours.keys());
        let mut values: BTreeMap<&str, i64> =
            table.constants.iter().map(|constant| (constant.name.as_str(), constant.value)).collect();
        let constants = read("constants.csv");
        for row in constants.lines().skip(1).map(fields) {
            assert_eq!(values.remove(row[0].as_str()), row[2].parse().ok(), "{}", row[0]);
        }
        let added: Vec<&str> = values.into_keys().collect();
        assert!(added.iter().all(|name| name.contains("_FT") || name.contains("_ERR_")), "{added:?}");
        assert_eq!(added.len(), 8);
    }
}
