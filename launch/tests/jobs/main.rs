// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `mpiexec` with real processes.

mod deaths;
mod descendants;
mod ends;
mod output;
mod protocol;
mod run;
mod soak;
