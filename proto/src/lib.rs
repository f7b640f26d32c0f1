// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Protocol state machines without I/O: they take events and return what to do. [`protocol`] says what those among the members of one
//! communicator have in common: [`agreement`] on a value, the [`vote`] on the creation of a communicator, and the [`spread`] of news.
//! [`identity`] is about identities and context ids of communicators, [`detector`] about beats.
//!
//! Nothing here reads a clock, uses random numbers, communicates or waits (Rule 2).
#![forbid(unsafe_code)]

pub mod agreement;
pub mod crossing;
pub mod detector;
pub mod identity;
pub mod protocol;
pub mod ranks;
pub mod spread;
pub mod tree;
pub mod vote;
