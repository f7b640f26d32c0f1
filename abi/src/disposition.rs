// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The disposition of a failed call: which error handler is called, and which processes a fatal handler ends.

use crate::call_error::{ErrorObject, Raised, Why};
use crate::comm::Comm;
use crate::error_class::{class_of, is_fault_tolerance_error};
use crate::error_handlers::{self, Action, Function};
use crate::generated::constants::{COMM_NULL, COMM_SELF};
use crate::handle::Handle;
use crate::report::{self, Argument};
use core::ffi::c_int;
use mend_world::AbortScope;

/// What happens after a failed call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Disposition {
    /// The call returns.
    Return,
    /// The user's handler is called before the call returns.
    Call { function: Function, object: Handle },
}

/// The disposition of a failed call. A fatal handler is executed here: it reports the error and ends processes. No value that needs
/// to be dropped outlives this call.
pub(crate) fn disposition(call: &'static str, raised: Raised, arguments: &[Argument]) -> Disposition {
    // A forked child must not end the job of its parent.
    if raised.error.why == Why::Forked {
        return Disposition::Return;
    }
    let (action, object) = action_of(raised.object);
    match action {
        Action::Return => Disposition::Return,
        Action::Call(function) => Disposition::Call { function, object },
        Action::Fatal | Action::Abort => {
            end(call, raised, arguments, abort_scope(action, object, raised.error.code))
        }
    }
}

/// The action of the error handler of an object, and the communicator that is passed to it.
fn action_of(object: ErrorObject) -> (Action, Handle) {
    match object {
        // Errors on files go to the null file's handler, which returns (MPI-5.0 §14.7).
        ErrorObject::File => (Action::Return, COMM_NULL),
        ErrorObject::Errhandler(named) => {
            let handler = error_handlers::find(named).unwrap_or_else(error_handlers::initial);
            (Action::from(&handler), COMM_NULL)
        }
        ErrorObject::Request(comm, action) => (action, comm),
        ErrorObject::Comm(comm) => of_comm(comm).unwrap_or_else(of_process),
        // No object, or an object of a kind that this version does not have.
        ErrorObject::Process | ErrorObject::Win | ErrorObject::Session => of_process(),
    }
}

/// The action of a communicator's error handler. The handle is valid, or was freed while a request on it was not released.
fn of_comm(comm: Handle) -> Option<(Action, Handle)> {
    mend_world::get()?.inspect(|engine| {
        let key = Comm(comm).key(engine).ok()?;
        engine.error_handler(key).map(|handler| (Action::from(handler), comm))
    })
}

/// The action for errors without an object (MPI-5.0 §9.3).
fn of_process() -> (Action, Handle) {
    of_comm(COMM_SELF).unwrap_or_else(|| (Action::from(&error_handlers::initial()), COMM_NULL))
}

/// The processes that a fatal error ends. After a failure of another process it is this process only: other ranks go on until an
/// operation of their own involves the failed process (Row EH1). MPI_ERRORS_ABORT ends the processes that MPI_Abort on the
/// communicator ends (MPI-5.0 §9.3, Row EH5).
fn abort_scope(action: Action, object: Handle, code: c_int) -> AbortScope {
    match action {
        Action::Abort => Comm(object).members(),
        _ if is_fault_tolerance_error(class_of(code)) => AbortScope::ThisProcess,
        _ => AbortScope::Job,
    }
}

/// Reports the error, and ends the processes of the scope.
fn end(call: &'static str, raised: Raised, arguments: &[Argument], scope: AbortScope) -> ! {
    report::print(call, raised, arguments);
    let code = raised.error.code;
    match mend_world::get() {
        Some(world) => world.abort(scope, code),
        None => std::process::exit(i32::from(mend_world::exit_code(code))),
    }
}

#[cfg(test)]
mod tests {
    use super::{Action, abort_scope};
    use crate::generated::constants::{
        COMM_SELF, COMM_WORLD, ERR_PROC_FAILED, ERR_PROC_FAILED_PENDING, ERR_TRUNCATE,
    };
    use mend_world::AbortScope;

    // Rows EH1, EH5
    #[test]
    fn a_failure_of_another_process_ends_this_one_and_other_errors_end_the_job() {
        for code in [ERR_PROC_FAILED, ERR_PROC_FAILED_PENDING] {
            assert_eq!(abort_scope(Action::Fatal, COMM_WORLD, code), AbortScope::ThisProcess);
            assert_eq!(abort_scope(Action::Abort, COMM_WORLD, code), AbortScope::Job);
        }
        assert_eq!(abort_scope(Action::Fatal, COMM_SELF, ERR_TRUNCATE), AbortScope::Job);
        assert_eq!(abort_scope(Action::Abort, COMM_SELF, ERR_TRUNCATE), AbortScope::ThisProcess);
        assert!(matches!(abort_scope(Action::Abort, 5 << 32, ERR_TRUNCATE), AbortScope::Members(_)));
    }
}
