// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulator: whole jobs of the production engine in one thread. One seed decides each delivery of the network, each
//! notice of the launcher, each death and each step of the clock. Read [`Cluster`] first, then [`programs`].
//!
//! The engine is the production code. Simulated are the transports ([`network`]), the runtime ([`launcher`]) and the
//! scheduler that replaces waiting threads ([`cluster`]).
//!
//! | part | owns |
//! |---|---|
//! | [`cluster`] | the scheduler of a job: which rank makes progress, which program runs, how a hang is reported |
//! | [`process`] | what a rank program is given |
//! | [`network`] | messages between processes, and injected faults |
//! | [`launcher`] | the production node daemon with simulated processes, sockets and life words |
//! | [`killer`] | planned deaths: which rank dies, when and how |
//! | [`record`] | what the processes of a job did, for oracles |
//! | [`oracle`] | what must hold in every job |
//! | [`programs`] | rank programs, each of which checks its own results |
//! | [`runner`] | the job of one seed, and many seeds in a row |
//! | [`environment`] | environment variables of the tests |
#![forbid(unsafe_code)]

pub mod clock;
pub mod cluster;
pub mod environment;
pub mod explore;
pub mod killer;
pub mod launcher;
pub mod network;
pub mod oracle;
pub mod process;
pub mod programs;
pub mod record;
pub mod runner;

pub use cluster::{Cluster, Program, Summary};
pub use process::{Process, SimMpi, Transports};
