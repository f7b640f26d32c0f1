// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program's buffers: address, count and datatype, checked.

use crate::argument_error::ArgumentError;
use crate::call_error::CallError;
use crate::generated::constants::IN_PLACE;
use core::ffi::c_void;
use mend_datatype::{Datatype, TypedBuffer};
use mend_mpi::DatatypeHandle;
use mend_transport::UserMemory;
use mend_world::Engine;

/// A buffer as the program passed it; only the count is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferArgument {
    pub(crate) address: *const c_void,
    pub(crate) count: u64,
    pub(crate) datatype: DatatypeHandle,
}

impl BufferArgument {
    // Hot: per message.
    /// The buffer, checked. Null is a valid address if the buffer has no bytes.
    #[inline(always)]
    pub(crate) fn typed(self, engine: &Engine) -> Result<TypedBuffer, CallError> {
        typed(self.address, self.count, engine.datatype(self.datatype)?)
    }
}

// Hot: per message.
/// `count` elements at `address`.
#[inline(always)]
pub(crate) fn typed(
    address: *const c_void,
    count: u64,
    datatype: Datatype,
) -> Result<TypedBuffer, CallError> {
    let bytes = datatype.span(count).ok_or(ArgumentError::Overlong)?;
    if address as usize <= IN_PLACE && bytes > 0 {
        return Err(if address.is_null() { ArgumentError::NullBuffer } else { ArgumentError::InPlace }.into());
    }
    // SAFETY: the user names a buffer of `count` elements and keeps it until the request completes (MPI-5.0 §3.7.2);
    // `span` gives no more than isize::MAX.
    let memory = unsafe { UserMemory::from_user(address.cast::<u8>().cast_mut(), bytes) };
    Ok(TypedBuffer::new(memory, datatype, count))
}
