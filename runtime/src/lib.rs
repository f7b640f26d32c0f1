// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a process needs from whoever started it: who it is, how to reach the others, who has left.
//!
//! Read [`Runtime`] first. It neither moves messages nor decides what a death means.
#![forbid(unsafe_code)]

mod client;

pub use client::{Membership, Notice, Runtime, RuntimeError};
