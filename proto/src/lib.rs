// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Protocol state machines without I/O: they take events and return what to do. So far there is [`identity`]: identities and context ids
//! of communicators.
//!
//! Nothing here reads a clock, uses random numbers, communicates or waits (Rule 2).
#![forbid(unsafe_code)]

pub mod identity;
