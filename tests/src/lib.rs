// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs run as real processes: MPI programs in C under the installed `mpiexec`, and checks of their surroundings.
//!
//! Read [`watched_command::WatchedCommand`] first: one command, watched, with everything that it printed and left behind.
//! [`prefix`] installs the library once; [`program`] compiles C sources against it; [`sandbox`] runs a job with less memory,
//! without /dev/shm, or in other namespaces; [`live`] measures ranks while they run. Where the machine does not permit a sandbox,
//! the test reports that through [`skip`].
//!
//! Deaths: the programs of `tests/deaths` report through a [`board`], a file that every rank maps; [`trace`] stops a rank and
//! steps it; [`single_step`] and [`lifecycle`] kill a rank between any two instructions, or system calls.
//!
//! `MENDTEST_PREFIX=DIR` tests what is installed there instead; `MENDTEST_CFLAGS` adds flags to every compilation;
//! `MENDTEST_ONLY=NAME` runs the C programs whose name holds NAME. (Variables that begin with `MEND_` are parameters of the
//! library, and it reports those it does not know.)
#![deny(unsafe_code)]

pub mod board;
pub mod chance;
pub mod elf;
pub mod fabric;
pub mod lifecycle;
pub mod live;
pub mod page;
pub mod prefix;
pub mod program;
pub mod sandbox;
pub mod signal;
pub mod single_step;
pub mod trace;
pub mod tried;
pub mod watchdog;
pub mod watched_command;
pub mod wires;

pub use mend_testing::{Scratch, say, skip};
