// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `mpirun`, the other name of `mpiexec`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    mend_launch::main()
}
