// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The code of every exported function before and after the code of the call itself.
//!
//! ```text
//!   C ──▶ MPI_X ──▶ outcome: checks, the call's own code, under catch_unwind ──▶ Ok ─────────────────────▶ MPI_SUCCESS
//!                      (enters and leaves world's guard)               └──▶ Err: all handles final, guard left
//!                                                                             └──▶ raise: disposition, report ──▶ class
//!                                                                                    └──▶ the user's handler, last
//! ```
//!
//! The handler is called from a frame that has nothing to drop and holds no lock: it may longjmp or throw past this frame (rows EH2,
//! WT12; design "C frames"). So [`CallError`], and every other value that is in the frame of [`raise`] while the handler runs, is
//! `Copy`.

pub(crate) use crate::call_error::{CallError, ErrorObject, Raised, Why};
use crate::disposition::{Disposition, disposition};
use crate::generated::constants::{ERR_INTERN, ERR_OTHER, ERR_UNSUPPORTED_OPERATION};
use crate::report::{self, Argument};
use core::cell::Cell;
use core::ffi::c_int;
use mend_world::{Stage, World};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

// Hot: per message.
/// The world, in a call that is legal between Init and Finalize only.
#[inline]
pub(crate) fn world() -> Result<&'static World, CallError> {
    mend_world::get().ok_or_else(outside)
}

#[cold]
fn outside() -> CallError {
    let why = match mend_world::stage() {
        Stage::Before => Why::TooEarly,
        Stage::Forked => Why::Forked,
        Stage::Running | Stage::After => Why::TooLate,
    };
    CallError::new(ERR_OTHER, why)
}

// Hot: per message.
/// Runs the code of a call. A panic in it is a bug of Mend, and becomes an error of class MPI_ERR_INTERN.
#[inline(always)]
pub(crate) fn outcome(body: impl FnOnce(&Cell<ErrorObject>) -> Result<(), CallError>) -> Result<(), Raised> {
    let object = Cell::new(ErrorObject::Process);
    let result = catch_unwind(AssertUnwindSafe(|| body(&object)));
    match result {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Raised { error, object: error.object.unwrap_or(object.get()) }),
        Err(panic) => Err(Raised { error: internal(panic), object: object.get() }),
    }
}

#[cold]
fn internal(panic: Box<dyn Any + Send>) -> CallError {
    let words = match (panic.downcast_ref::<&'static str>(), panic.downcast_ref::<String>()) {
        (Some(words), _) => *words,
        // Leaked: the error is `Copy`, so that nothing is left to drop when the handler longjmps; and it is a rare bug.
        (None, Some(words)) => Box::leak(words.clone().into_boxed_str()),
        (None, None) => "a panic without a message",
    };
    CallError::new(ERR_INTERN, Why::Panic(words))
}

/// Passes a failed call to the error handler of its object, which is called last and may not return.
#[cold]
#[inline(never)]
pub(crate) fn raise(call: &'static str, raised: Raised, arguments: &[Argument]) -> c_int {
    match disposition(call, raised, arguments) {
        Disposition::Return => {}
        Disposition::Call { function, mut object } => {
            let mut code = raised.error.code;
            // SAFETY: the user gave it to MPI_Comm_create_errhandler as a function of this type. It may longjmp or throw:
            // this frame and those above it within the library own nothing.
            unsafe { function(&raw mut object, &raw mut code) }
        }
    }
    raised.error.returned
}

/// A call that this version does not support.
#[cold]
#[inline(never)]
pub(crate) fn unsupported(call: &'static str, object: ErrorObject) -> c_int {
    if matches!(object, ErrorObject::File) {
        report::note_unsupported(call);
    }
    raise(call, Raised { error: CallError::new(ERR_UNSUPPORTED_OPERATION, Why::Unsupported), object }, &[])
}

/// A call of the tools interface, which has no error handlers (MPI-5.0 §15.3.9).
#[cold]
#[inline(never)]
pub(crate) fn unsupported_tool(call: &'static str) -> c_int {
    report::note_unsupported(call);
    ERR_UNSUPPORTED_OPERATION
}

/// Defines each function twice, `MPI_X` and `PMPI_X`, with one body. The library calls neither: a tool that overrides one must see
/// the program's calls only.
macro_rules! export {
    ($(fn $name:ident $twin:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block)*) => { $(
        #[unsafe(no_mangle)]
        #[allow(
            non_snake_case,
            unused_variables,
            clippy::missing_safety_doc,
            reason = "MPI defines names and contract; an unsupported call reads no argument"
        )]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result $body

        #[unsafe(no_mangle)]
        #[allow(
            non_snake_case,
            unused_variables,
            clippy::missing_safety_doc,
            reason = "MPI defines names and contract; an unsupported call reads no argument"
        )]
        pub unsafe extern "C-unwind" fn $twin($($argument: $type),*) -> $result $body
    )* };
}
pub(crate) use export;

#[cfg(test)]
mod tests {
    use super::{CallError, ErrorObject, Why, outcome};
    use crate::argument_error::ArgumentError;
    use crate::generated::constants::{ERR_COUNT, ERR_INTERN};

    #[test]
    fn a_panic_is_an_internal_error_with_its_words() {
        let raised = outcome(|_| panic!("{} is odd", 3)).unwrap_err();
        assert_eq!((raised.error.code, raised.error.why), (ERR_INTERN, Why::Panic("3 is odd")));
    }

    #[test]
    fn an_error_goes_to_the_object_that_the_call_named_unless_it_names_another() {
        let raised = outcome(|object| {
            object.set(ErrorObject::Comm(0x101));
            Err(ArgumentError::NegativeCount.into())
        });
        let raised = raised.unwrap_err();
        assert!(matches!(raised.object, ErrorObject::Comm(0x101)));
        assert_eq!(raised.error.code, ERR_COUNT);
        let raised = outcome(|object| {
            object.set(ErrorObject::Comm(0x101));
            Err(CallError::from(ArgumentError::Request).on(ErrorObject::Comm(0x102)))
        });
        assert!(matches!(raised.unwrap_err().object, ErrorObject::Comm(0x102)));
    }
}
