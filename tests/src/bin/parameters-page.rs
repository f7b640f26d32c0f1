// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prints docs/parameters.md; `cargo xtask docs` puts it in its place.
#![forbid(unsafe_code)]

fn main() {
    print!("{}", mend_tests::page::parameters());
}
