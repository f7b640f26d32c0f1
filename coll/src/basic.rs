// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The component `basic`: one textbook algorithm for each operation, for any number of ranks and any length.

pub(crate) mod allgather;
pub(crate) mod allreduce;
pub(crate) mod alltoall;
pub(crate) mod barrier;
pub(crate) mod broadcast;
pub(crate) mod gather;
pub(crate) mod reduce;
pub(crate) mod scatter;
