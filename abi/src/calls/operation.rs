// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What predefined operations are (MPI-5.0 §6.9). Making others comes later.

use crate::argument_error::ArgumentError;
use crate::calls::point_to_point::typed;
use crate::failure::Failure;
use crate::pointer::Out;
use core::ffi::{c_int, c_void};
use mend_datatype::{Datatype, Op};
use mend_world::World;

pub(crate) fn commutative(_world: &World, op: Op, flag: Out<c_int>) -> Result<(), Failure> {
    // REPLACE keeps the later of two; all others commute.
    flag.set(c_int::from(op.reduces() || op == Op::NoOp));
    Ok(())
}

pub(crate) fn reduce_local(
    _world: &World,
    from: *const c_void,
    into: *mut c_void,
    count: u64,
    datatype: Datatype,
    op: Op,
) -> Result<(), Failure> {
    if !(op.reduces() && op.takes(datatype)) {
        return Err(ArgumentError::OpType.into());
    }
    mend_datatype::reduce(op, &typed(from, count, datatype)?, &typed(into, count, datatype)?);
    Ok(())
}
