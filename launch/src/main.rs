// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `mpiexec`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    mend_launch::main()
}
