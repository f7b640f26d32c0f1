// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Error handlers: which communicator has which, and what happens after a failed call.

use crate::argument_error::ArgumentError;
use crate::books;
use crate::error_class::{class_of, is_fault};
use crate::failure::{Failure, On, Raised, Why};
use crate::generated::constants::{
    COMM_NULL, COMM_SELF, COMM_WORLD, ERRORS_ABORT, ERRORS_ARE_FATAL, ERRORS_RETURN,
};
use crate::handle::{self, Comm, Handle};
use crate::report::{self, Argument};
use core::ffi::c_int;
use mend_base::Slab;
use mend_runtime::environment::{INITIAL_ERROR_HANDLER, InitialErrorHandler};
use mend_world::AbortScope;
use std::collections::HashMap;
use std::sync::OnceLock;

/// A user's error handler: variadic in C; arguments after the second are never passed.
pub(crate) type Function = unsafe extern "C-unwind" fn(*mut Handle, *mut c_int, ...);

/// An error handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Handler {
    /// Ends the job; after a failure of another process, ends this process only.
    Fatal,
    /// Ends the processes of the communicator.
    Abort,
    /// The call returns the error class.
    Return,
    /// The user's function is called.
    User(Handle),
}

impl Handler {
    /// The initial error handler: that of predefined communicators, and of errors outside Init and Finalize
    /// (`mpiexec --initial-errhandler`, MPI-5.0 §11.2.4). Init has refused unknown names.
    pub(crate) fn initial() -> Handler {
        static INITIAL: OnceLock<Handler> = OnceLock::new();
        *INITIAL.get_or_init(|| {
            let name = std::env::var(INITIAL_ERROR_HANDLER).ok();
            match name.and_then(|name| InitialErrorHandler::from_name(&name)).unwrap_or_default() {
                InitialErrorHandler::AreFatal => Handler::Fatal,
                InitialErrorHandler::Abort => Handler::Abort,
                InitialErrorHandler::Return => Handler::Return,
            }
        })
    }

    /// The predefined one with this handle.
    fn predefined(handle: Handle) -> Option<Handler> {
        match handle {
            ERRORS_ARE_FATAL => Some(Handler::Fatal),
            ERRORS_ABORT => Some(Handler::Abort),
            ERRORS_RETURN => Some(Handler::Return),
            _ => None,
        }
    }

    /// The handle of this error handler.
    pub(crate) fn handle(self) -> Handle {
        match self {
            Handler::Fatal => ERRORS_ARE_FATAL,
            Handler::Abort => ERRORS_ABORT,
            Handler::Return => ERRORS_RETURN,
            Handler::User(handle) => handle,
        }
    }
}

/// A user's handler exists while the user or a communicator has a reference (MPI-5.0 §9.3.4).
#[derive(Debug)]
struct UserHandler {
    function: Function,
    references: u32,
    /// The user has freed it: the handle is invalid; communicators that have the handler keep it.
    freed: bool,
}

/// Handlers of the user, and the handler of each communicator.
#[derive(Debug, Default)]
pub(crate) struct Handlers {
    entries: Slab<UserHandler>,
    attached: HashMap<Handle, Handler>,
}

impl Handlers {
    /// A new handler, with one reference of the user.
    pub(crate) fn create(&mut self, function: Function) -> Handle {
        handle::of_key(self.entries.insert(UserHandler { function, references: 1, freed: false }))
    }

    /// The handler that the user names.
    pub(crate) fn named(&self, named: Handle) -> Result<Handler, Failure> {
        if let Some(predefined) = Handler::predefined(named) {
            return Ok(predefined);
        }
        match handle::key(named).and_then(|key| self.entries.get(key)) {
            Some(entry) if !entry.freed => Ok(Handler::User(named)),
            _ => Err(ArgumentError::Errhandler.into()),
        }
    }

    /// The handler of a communicator.
    pub(crate) fn of_comm(&self, comm: Handle) -> Handler {
        self.attached.get(&comm).copied().unwrap_or_default()
    }

    /// A communicator gets another handler; the reference to the old one is released.
    pub(crate) fn attach(&mut self, comm: Handle, handler: Handler) {
        self.add_reference(handler);
        if let Some(old) = self.attached.insert(comm, handler) {
            self.release(old);
        }
    }

    /// The communicator does not exist any more.
    pub(crate) fn detach(&mut self, comm: Handle) {
        if let Some(old) = self.attached.remove(&comm) {
            self.release(old);
        }
    }

    /// MPI_Comm_get_errhandler: the user gets another reference, and frees it later (MPI-5.0 §9.3.4); the handle is valid again.
    pub(crate) fn get(&mut self, handler: Handler) -> Handle {
        self.add_reference(handler);
        if let Handler::User(named) = handler
            && let Some(entry) = handle::key(named).and_then(|key| self.entries.get_mut(key))
        {
            entry.freed = false;
        }
        handler.handle()
    }

    /// MPI_Errhandler_free. Freeing a predefined handler, which `get` may have returned, succeeds and has no effect (§9.3.4).
    pub(crate) fn free(&mut self, named: Handle) -> Result<(), Failure> {
        let handler = self.named(named)?;
        let users = self.attached.values().filter(|attached| **attached == handler).count();
        if let Some(entry) = handle::key(named).and_then(|key| self.entries.get_mut(key)) {
            // The user's last reference: from now on the handle is invalid.
            entry.freed = entry.references as usize <= users + 1;
        }
        self.release(handler);
        Ok(())
    }

    fn add_reference(&mut self, handler: Handler) {
        if let Handler::User(named) = handler
            && let Some(entry) = handle::key(named).and_then(|key| self.entries.get_mut(key))
        {
            entry.references += 1;
        }
    }

    fn release(&mut self, handler: Handler) {
        let Handler::User(named) = handler else { return };
        let Some(key) = handle::key(named) else { return };
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.references -= 1;
        if entry.references == 0 {
            self.entries.remove(key);
        }
    }

    fn function(&self, handler: Handler) -> Option<Function> {
        let Handler::User(named) = handler else { return None };
        handle::key(named).and_then(|key| self.entries.get(key)).map(|entry| entry.function)
    }
}

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
pub(crate) fn disposition(call: &'static str, raised: Raised, said: &[Argument]) -> Disposition {
    // A forked child must not end the job of its parent.
    if raised.failure.why == Why::Forked {
        return Disposition::Return;
    }
    let (handler, object) = handler_of(raised.on);
    let function = books::with(|books| books.handlers.function(handler));
    match (handler, function) {
        (Handler::Return, _) => Disposition::Return,
        (Handler::User(_), Some(function)) => Disposition::Call { function, object },
        (handler, _) => end(call, raised, said, abort_scope(handler, object, raised.failure.code)),
    }
}

/// The handler for errors of an object, and the communicator that is passed to it.
fn handler_of(on: On) -> (Handler, Handle) {
    match on {
        // Errors on files go to the null file's handler, which returns (MPI-5.0 §14.7).
        On::File(_) => (Handler::Return, COMM_NULL),
        On::Errhandler(named) => {
            let handler = books::with(|books| books.handlers.named(named));
            (handler.unwrap_or(Handler::initial()), COMM_NULL)
        }
        On::Comm(comm) if exists(comm) || books::with(|books| books.retired.contains(&comm)) => {
            (books::with(|books| books.handlers.of_comm(comm)), comm)
        }
        // No such communicator, no object, or an object of a kind that this version does not have.
        On::Comm(_) | On::Process | On::Win(_) | On::Session(_) => match mend_world::get() {
            Some(_) => (books::with(|books| books.handlers.of_comm(COMM_SELF)), COMM_SELF),
            None => (Handler::initial(), COMM_NULL),
        },
    }
}

fn exists(comm: Handle) -> bool {
    let Some(world) = mend_world::get() else { return false };
    matches!(comm, COMM_WORLD | COMM_SELF) || world.look(|engine| Comm(comm).existing(engine).is_ok())
}

/// Which processes a fatal error ends. After a failure of another process it is this process only: other ranks go on until an operation
/// of their own involves the dead (Row EH1). MPI_ERRORS_ABORT is as MPI_Abort on the communicator (MPI-5.0 §9.3, Row EH5).
fn abort_scope(handler: Handler, object: Handle, code: c_int) -> AbortScope {
    match handler {
        Handler::Abort => Comm(object).members(),
        _ if is_fault(class_of(code)) => AbortScope::Myself,
        _ => AbortScope::Everybody,
    }
}

/// Reports the error, and ends the processes of the scope.
fn end(call: &'static str, raised: Raised, said: &[Argument], scope: AbortScope) -> ! {
    report::print(call, raised, said);
    let code = raised.failure.code;
    match mend_world::get() {
        Some(world) => world.abort(scope, code),
        None => std::process::exit(i32::from(mend_world::exit_code(code))),
    }
}

#[cfg(test)]
mod tests {
    use super::{Function, Handler, Handlers, abort_scope};
    use crate::generated::constants::{
        COMM_SELF, COMM_WORLD, ERR_PROC_FAILED, ERR_PROC_FAILED_PENDING, ERR_TRUNCATE, ERRORS_RETURN,
    };
    use crate::handle::Handle;
    use core::ffi::c_int;
    use mend_world::AbortScope;

    unsafe extern "C" {
        fn abort(object: *mut Handle, code: *mut c_int, ...);
    }

    fn some_function() -> Function {
        // SAFETY: never called; both are variadic C functions, of one calling convention.
        unsafe { core::mem::transmute::<unsafe extern "C" fn(*mut Handle, *mut c_int, ...), Function>(abort) }
    }

    #[test]
    fn a_freed_handler_serves_the_communicators_that_have_it() {
        let mut handlers = Handlers::default();
        let mine = handlers.create(some_function());
        let handler = handlers.named(mine).unwrap();
        handlers.attach(COMM_WORLD, handler);
        handlers.free(mine).unwrap();
        assert!(handlers.named(mine).is_err());
        assert!(handlers.function(handlers.of_comm(COMM_WORLD)).is_some());
        assert_eq!(handlers.get(handler), mine);
        assert!(handlers.named(mine).is_ok());
        handlers.free(mine).unwrap();
        handlers.attach(COMM_WORLD, Handler::Return);
        assert!(handlers.function(handler).is_none());
        assert!(handlers.entries.is_empty());
    }

    #[test]
    fn predefined_handlers_survive_being_freed() {
        let mut handlers = Handlers::default();
        let handler = handlers.named(ERRORS_RETURN).unwrap();
        handlers.attach(COMM_SELF, handler);
        assert_eq!(handlers.of_comm(COMM_SELF).handle(), ERRORS_RETURN);
        assert!(handlers.free(ERRORS_RETURN).is_ok());
        assert_eq!(handlers.of_comm(COMM_SELF).handle(), ERRORS_RETURN);
        assert!(handlers.named(0).is_err() && handlers.free(0).is_err());
    }

    // Rows EH1, EH5
    #[test]
    fn a_failure_of_another_process_ends_this_one_and_other_errors_end_the_job() {
        for code in [ERR_PROC_FAILED, ERR_PROC_FAILED_PENDING] {
            assert_eq!(abort_scope(Handler::Fatal, COMM_WORLD, code), AbortScope::Myself);
            assert_eq!(abort_scope(Handler::Abort, COMM_WORLD, code), AbortScope::Everybody);
        }
        assert_eq!(abort_scope(Handler::Fatal, COMM_SELF, ERR_TRUNCATE), AbortScope::Everybody);
        assert_eq!(abort_scope(Handler::Abort, COMM_SELF, ERR_TRUNCATE), AbortScope::Myself);
        assert!(matches!(abort_scope(Handler::Abort, 5 << 32, ERR_TRUNCATE), AbortScope::Members(_)));
    }
}
