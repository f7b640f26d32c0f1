// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulator: whole jobs of the production engine in one thread, over a network, a launcher and a clock that one
//! seed drives. Read [`Cluster`] first, then [`programs`].
//!
//! Nothing of the engine is replaced: only the transports ([`network`]), the runtime ([`launcher`]) and who waits.
#![forbid(unsafe_code)]

pub mod asked;
pub mod board;
pub mod clock;
pub mod cluster;
pub mod killer;
pub mod launcher;
pub mod network;
pub mod oracle;
pub mod programs;
pub mod runner;

pub use cluster::{Cluster, Process, Program, SimMpi, Summary};
