// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sizes, extents and names of predefined datatypes (MPI-5.0 §5.1.5-5.1.9). This version has no other datatypes.

use crate::call_error::CallError;
use crate::generated::constants::{MAX_OBJECT_NAME, UNDEFINED};
use crate::handle::Handle;
use crate::pointer::{Out, OutCount, OutText};
use core::ffi::c_int;
use mend_datatype::Datatype;
use mend_mpi::DatatypeHandle;
use mend_world::World;

/// The datatype with this handle, also before Init and after Finalize. A predefined datatype is found without entering the engine, in
/// which another thread may be.
pub(crate) fn find(handle: DatatypeHandle) -> Result<Datatype, CallError> {
    let predefined = handle.predefined();
    match mend_world::get() {
        Some(world) if predefined.is_err() => Ok(world.inspect(|engine| engine.datatype(handle))?),
        _ => Ok(predefined?),
    }
}

pub(crate) fn size(_world: &World, datatype: DatatypeHandle, size: OutCount) -> Result<(), CallError> {
    size.set(find(datatype)?.size() as i64, UNDEFINED);
    Ok(())
}

pub(crate) fn size_x(_world: &World, datatype: DatatypeHandle, size: Out<i64>) -> Result<(), CallError> {
    size.set(find(datatype)?.size() as i64);
    Ok(())
}

/// MPI_Aint and MPI_Count have the same size here: one function for the small, large and `_x` forms.
pub(crate) fn get_extent(
    _world: &World,
    datatype: DatatypeHandle,
    lower_bound: Out<i64>,
    extent: Out<i64>,
) -> Result<(), CallError> {
    let datatype = find(datatype)?;
    lower_bound.set(0);
    extent.set(datatype.extent() as i64);
    Ok(())
}

/// The bytes from the first to the last of an element: less than the extent if padding follows the last.
pub(crate) fn get_true_extent(
    _world: &World,
    datatype: DatatypeHandle,
    lower_bound: Out<i64>,
    extent: Out<i64>,
) -> Result<(), CallError> {
    let datatype = find(datatype)?;
    lower_bound.set(0);
    extent.set(datatype.span(1).unwrap_or(datatype.extent()) as i64);
    Ok(())
}

pub(crate) fn get_name(
    _world: &World,
    datatype: DatatypeHandle,
    name: OutText,
    length: Out<c_int>,
) -> Result<(), CallError> {
    length.set(name.set(find(datatype)?.name(), MAX_OBJECT_NAME));
    Ok(())
}

/// Predefined datatypes are committed already.
pub(crate) fn commit(_world: &World, datatype: Out<Handle>) -> Result<(), CallError> {
    find(DatatypeHandle(datatype.get())).map(|_| ())
}
