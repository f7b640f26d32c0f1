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
//! | [`history`] | what a seed decides about a job of recoveries, as a value that can be made shorter |
//! | [`recoveries`] | jobs of recoveries: run, counted, and a failing one made shorter |
//! | [`coverage`] | what jobs of recoveries do not reach, and why |
//! | [`sweep`] | a death at every point of every blocking call |
//! | [`runner`] | the job of one seed, and many seeds in a row |
//! | [`explore`] | the explorer: all states of a protocol's model |
//! | [`scale`] | the protocols of recovery alone, to 131,072 ranks, with a cost model |
//! | [`environment`] | environment variables of the tests |
#![forbid(unsafe_code)]

pub mod clock;
pub mod cluster;
pub mod coverage;
pub mod environment;
pub mod explore;
pub mod history;
pub mod killer;
pub mod launcher;
pub mod network;
pub mod oracle;
pub mod process;
pub mod programs;
mod rank_set;
pub mod record;
pub mod recoveries;
pub mod runner;
pub mod scale;
pub mod sweep;

pub use cluster::{Cluster, Program, Summary};
pub use process::{Process, SimCreation, SimMpi, SimOperation, Transports};
