// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Protocols with their I/O taken out: values that take events and return what to do. So far [`identity`]: what
//! communicators are called.
//!
//! Nothing here reads a clock, draws a random number, sends or waits (Rule 2).
#![forbid(unsafe_code)]

pub mod identity;
