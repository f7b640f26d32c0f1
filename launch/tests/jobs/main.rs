// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `mpiexec` with real processes.

mod deaths;
mod ends;
mod orphans;
mod output;
mod protocol;
mod run;
mod soak;
