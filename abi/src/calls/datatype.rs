// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What predefined datatypes are (MPI-5.0 §5.1.5-5.1.9). Making others comes later.

use crate::failure::Failure;
use crate::generated::constants::{MAX_OBJECT_NAME, UNDEFINED};
use crate::handle::Handle;
use crate::pointer::{Out, OutCount, OutText};
use core::ffi::c_int;
use mend_datatype::Datatype;
use mend_world::World;

pub(crate) fn size(_world: &World, datatype: Datatype, size: OutCount) -> Result<(), Failure> {
    size.set(datatype.size() as i64, UNDEFINED);
    Ok(())
}

pub(crate) fn size_x(_world: &World, datatype: Datatype, size: Out<i64>) -> Result<(), Failure> {
    size.set(datatype.size() as i64);
    Ok(())
}

/// MPI_Aint and MPI_Count are alike here: one function for the small, large and `_x` forms.
pub(crate) fn get_extent(
    _world: &World,
    datatype: Datatype,
    lower_bound: Out<i64>,
    extent: Out<i64>,
) -> Result<(), Failure> {
    lower_bound.set(0);
    extent.set(datatype.extent() as i64);
    Ok(())
}

/// From the first byte of an element to its last: less than the extent where padding ends it.
pub(crate) fn get_true_extent(
    _world: &World,
    datatype: Datatype,
    lower_bound: Out<i64>,
    extent: Out<i64>,
) -> Result<(), Failure> {
    lower_bound.set(0);
    extent.set(datatype.span(1).unwrap_or(datatype.extent()) as i64);
    Ok(())
}

pub(crate) fn get_name(
    _world: &World,
    datatype: Datatype,
    name: OutText,
    length: Out<c_int>,
) -> Result<(), Failure> {
    length.set(name.set(datatype.name(), MAX_OBJECT_NAME));
    Ok(())
}

/// Predefined datatypes are committed already.
pub(crate) fn commit(_world: &World, datatype: Out<Handle>) -> Result<(), Failure> {
    crate::check::datatype(datatype.get()).map(|_| ())
}
