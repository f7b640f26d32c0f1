// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a process gets from its launcher: which rank it is, how to connect to the others, which of them have left or failed.
//!
//! Read [`Runtime`] first, then [`connect_from_environment`]. This crate neither moves messages nor handles failures.
#![forbid(unsafe_code)]

pub mod carried;
mod client;
pub mod daemon_protocol;
mod emergency_channel;
pub mod entropy;
pub mod environment;
mod exit;
pub mod packet;
mod parameters;
mod peer_lives;
mod process;
pub mod rank_ranges;
mod runtime;
pub mod settings;
mod singleton;
mod start;
mod start_error;
pub mod transport_matrix;
pub mod transport_view;

pub use client::{Client, NodePages, namespace};
pub use emergency_channel::EmergencyChannel;
pub use exit::exit_code;
pub use parameters::PARAMETERS;
pub use process::Stat;
pub use runtime::{
    Membership, Notice, RECALLS_MAX, RESULT_BYTES_MAX, RESULTS_BYTES_MAX, RESULTS_MAX, ResultKey, Runtime,
    RuntimeError,
};
pub use singleton::Singleton;
pub use start::{AnyRuntime, LaunchData, Launched, connect_from_environment};
pub use start_error::StartError;
