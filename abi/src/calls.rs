// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The code of the calls, one file for each chapter. Arguments are checked before, by their kinds in `abi/table`. The error handler is
//! called for an `Err`.

pub(crate) mod collective;
pub(crate) mod communicator;
pub(crate) mod completion;
pub(crate) mod datatype;
pub(crate) mod environment;
pub(crate) mod errors;
pub(crate) mod failures;
pub(crate) mod group;
pub(crate) mod info;
pub(crate) mod integer;
pub(crate) mod memory;
pub(crate) mod operation;
pub(crate) mod point_to_point;
pub(crate) mod repair;
pub(crate) mod status;
