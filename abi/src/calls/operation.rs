// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Predefined reduction operations (MPI-5.0 §6.9). This version has no other operations.

use crate::buffer::typed;
use crate::call_error::CallError;
use crate::calls::collective::reduction;
use crate::pointer::Out;
use core::ffi::{c_int, c_void};
use mend_datatype::Op;
use mend_mpi::{DatatypeHandle, OpHandle};
use mend_world::World;

pub(crate) fn commutative(world: &World, op: OpHandle, flag: Out<c_int>) -> Result<(), CallError> {
    let op = world.inspect(|engine| engine.op(op))?;
    // The result of MPI_REPLACE is its second operand; all other operations commute.
    flag.set(c_int::from(op.reduces() || op == Op::NoOp));
    Ok(())
}

pub(crate) fn reduce_local(
    world: &World,
    from: *const c_void,
    into: *mut c_void,
    count: u64,
    datatype: DatatypeHandle,
    op: OpHandle,
) -> Result<(), CallError> {
    let (op, datatype) = world.inspect(|engine| reduction(engine, op, datatype))?;
    mend_datatype::reduce(op, &typed(from, count, datatype)?, &typed(into, count, datatype)?);
    Ok(())
}
