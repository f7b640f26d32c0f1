// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Error handlers, classes, codes and strings (MPI-5.0 §9.3-9.5). Each code of Mend is equal to its class (Trap 3); programs may add
//! their own codes.

use crate::argument_error::ArgumentError;
use crate::call_error::{CallError, Why};
use crate::comm::Comm;
use crate::error_class::{class_of, with_codes};
use crate::error_handlers::{self, Function};
use crate::generated::constants::{ERRHANDLER_NULL, MAX_ERROR_STRING};
use crate::handle::Handle;
use crate::pointer::{Out, OutText, Text};
use core::ffi::{c_int, c_void};
use mend_world::World;

pub(crate) fn error_class(code: c_int, class: Out<c_int>) -> Result<(), CallError> {
    class.set(class_of(code));
    Ok(())
}

pub(crate) fn error_string(code: c_int, string: OutText, length: Out<c_int>) -> Result<(), CallError> {
    let text = with_codes(|codes| codes.string(code));
    let text = text.unwrap_or_else(|| format!("there is no error code {code}"));
    length.set(string.set(&text, MAX_ERROR_STRING));
    Ok(())
}

pub(crate) fn add_error_class(class: Out<c_int>) -> Result<(), CallError> {
    class.set(with_codes(|codes| codes.add(None)));
    Ok(())
}

pub(crate) fn add_error_code(class: c_int, code: Out<c_int>) -> Result<(), CallError> {
    let added = with_codes(|codes| (codes.class(class) == Some(class)).then(|| codes.add(Some(class))));
    code.set(added.ok_or(ArgumentError::ErrorCode)?);
    Ok(())
}

pub(crate) fn add_error_string(code: c_int, string: Text) -> Result<(), CallError> {
    let string = string.copy(MAX_ERROR_STRING as usize - 1);
    set_string(code, Some(string))
}

pub(crate) fn remove_error_string(code: c_int) -> Result<(), CallError> {
    set_string(code, None)
}

fn set_string(code: c_int, string: Option<String>) -> Result<(), CallError> {
    found(with_codes(|codes| codes.set_string(code, string)))
}

pub(crate) fn remove_error_class(class: c_int) -> Result<(), CallError> {
    found(with_codes(|codes| codes.remove(class, true)))
}

pub(crate) fn remove_error_code(code: c_int) -> Result<(), CallError> {
    found(with_codes(|codes| codes.remove(code, false)))
}

fn found(found: bool) -> Result<(), CallError> {
    if found { Ok(()) } else { Err(ArgumentError::ErrorCode.into()) }
}

pub(crate) fn comm_create_errhandler(function: *const c_void, handler: Out<Handle>) -> Result<(), CallError> {
    if function.is_null() {
        return Err(ArgumentError::NullPointer.into());
    }
    // SAFETY: not null; the user passed a function of this type, as the prototype in mpi.h has it.
    let function = unsafe { core::mem::transmute::<*const c_void, Function>(function) };
    handler.set(error_handlers::create(function));
    Ok(())
}

pub(crate) fn errhandler_free(handler: Out<Handle>) -> Result<(), CallError> {
    error_handlers::free(handler.get()).ok_or(ArgumentError::Errhandler)?;
    handler.set(ERRHANDLER_NULL);
    Ok(())
}

pub(crate) fn comm_set_errhandler(world: &World, comm: Comm, handler: Handle) -> Result<(), CallError> {
    comm.check(world)?;
    let handler = error_handlers::find(handler).ok_or(ArgumentError::Errhandler)?;
    world.with(|engine| Ok(engine.set_error_handler(comm.key(engine)?, handler)?))
}

pub(crate) fn comm_get_errhandler(world: &World, comm: Comm, out: Out<Handle>) -> Result<(), CallError> {
    let handler = world.inspect(|engine| {
        let handler = engine.error_handler(comm.existing(engine)?).cloned();
        handler.ok_or(CallError::from(ArgumentError::Communicator))
    })?;
    out.set(error_handlers::handle_of(handler));
    Ok(())
}

/// Returns success if the handler returns (MPI-5.0 §9.3.4).
pub(crate) fn comm_call_errhandler(world: &World, comm: Comm, code: c_int) -> Result<(), CallError> {
    comm.check(world)?;
    Err(CallError { returned: crate::generated::constants::SUCCESS, ..CallError::new(code, Why::User) })
}
