// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The BTL over libfabric: reliable messages, remote memory access, and evidence, over whatever provider the host has. Read [`Ofi`] first.
//!
//! Not here: matching and protocols above messages, who has failed, several transports for one peer.
//!
//! # Parts
//!
//! | part | owns |
//! |---|---|
//! | `rail`: `Rail` | a device, its endpoints, receive buffers and outstanding operations |
//! | `send_buffers`, `receive_buffers`, `memory` | memory that devices access |
//! | `receive_blocks`: `Blocks` | when memory that was received into may receive again |
//! | `connection`: `Connection` | what is known of one peer: addresses, state, probes, trouble |
//! | `sequence`: `Outgoing`, `Incoming` | sequences of frames: what is not acknowledged, what is expected |
//! | `frame`, `card` | formats |
//! | `transfers`: `Transfers` | gets, puts, atomic operations, and the memory that is registered for them |
//! | `exposures`: `DeviceKeys` | keys of exposed memory |
//! | `keys_taken_back`: `KeysTakenBack` | keys that were taken back while the peer may be reading |
//! | `classify` | what an error says about the peer |
//! | `family` | what a provider moves bytes through |
//! | `sizes` | how long messages are, by provider |
//! | `choice` | which providers and interfaces are used, and why others are not |
//!
//! | event | file |
//! |---|---|
//! | calls of the layer above | `btl.rs`, `rdma.rs` |
//! | progress: completions, frames of peers | `arrival.rs` |
//! | frames, probes and transfers go out | `posting.rs` |
//! | errors, trouble, probes that are due, broken devices | `recovery.rs` |
//! | reads that stand still | `stalls.rs` |
//! | sever | `disconnect.rs` |
//!
//! # Reliability
//!
//! Providers report that a message was taken, not that it arrived, and a connection that breaks loses what was under way. So each frame has a
//! number, and stays here until the peer's BTL has acknowledged it (`sequence`). When the way to a peer breaks between two living processes, both
//! ask each other how far frames have arrived, and send again what is missing (`connection`). Nothing is lost and nothing comes twice, as
//! long as both live.

mod arrival;
mod btl;
mod card;
mod choice;
mod classify;
mod connection;
mod disconnect;
mod exposures;
mod family;
mod frame;
mod keys_taken_back;
mod memory;
mod ofi;
mod operations;
mod parameters;
mod posting;
mod rail;
mod rdma;
mod receive_blocks;
mod receive_buffers;
mod recovery;
mod send_buffers;
mod sequence;
mod sizes;
mod stalls;
#[cfg(test)]
mod tests;
mod transfers;

pub use choice::{Candidate, Choice, NotChosen, candidates, choose};
pub use classify::{Class, classify};
pub use ofi::{Ofi, OpenError, Options, Report, Statistics};
pub use parameters::PARAMETERS;
