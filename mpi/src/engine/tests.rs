// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parts together, in jobs of which each step is the test's.

mod attributes;
mod collectives;
mod deaths;
mod waiters;
