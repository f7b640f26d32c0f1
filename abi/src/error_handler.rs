// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Error handlers: which object has which, and what becomes of a failed call.

use crate::array_calls::is_fault;
use crate::books;
use crate::check::ArgumentError;
use crate::entry::{Failure, On, Raised, Why};
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

/// A user's error handler: variadic in C, where nobody reads beyond the second argument.
pub(crate) type Function = unsafe extern "C-unwind" fn(*mut Handle, *mut c_int, ...);

/// What is done about an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Handler {
    /// The job ends; where others have failed, only the process that needed them.
    Fatal,
    /// The processes of the communicator end.
    Abort,
    /// The call returns the class.
    Return,
    /// The user's function is called.
    User(Handle),
}

impl Handler {
    /// What predefined communicators have at first, and errors that belong to none outside Init and Finalize: what the
    /// launcher said (`mpiexec --initial-errhandler`, MPI-5.0 §11.2.4). A name that is none was refused by Init.
    pub(crate) fn initial() -> Handler {
        static INITIAL: OnceLock<Handler> = OnceLock::new();
        *INITIAL.get_or_init(|| {
            let said = std::env::var(INITIAL_ERROR_HANDLER).ok();
            match said.and_then(|name| InitialErrorHandler::from_name(&name)).unwrap_or_default() {
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

    /// Its handle.
    pub(crate) fn handle(self) -> Handle {
        match self {
            Handler::Fatal => ERRORS_ARE_FATAL,
            Handler::Abort => ERRORS_ABORT,
            Handler::Return => ERRORS_RETURN,
            Handler::User(handle) => handle,
        }
    }
}

/// A user's handler lives while the user or an object holds it (MPI-5.0 §9.3.4).
#[derive(Debug)]
struct Entry {
    function: Function,
    holders: u32,
    /// The user has freed it: the handle is void, what it is attached to keeps it.
    freed: bool,
}

/// Users' handlers, and who has which.
#[derive(Debug, Default)]
pub(crate) struct Handlers {
    entries: Slab<Entry>,
    attached: HashMap<Handle, Handler>,
}

impl Handlers {
    /// A new one, held by the user.
    pub(crate) fn create(&mut self, function: Function) -> Handle {
        handle::of_key(self.entries.insert(Entry { function, holders: 1, freed: false }))
    }

    /// The one that the user names.
    pub(crate) fn named(&self, named: Handle) -> Result<Handler, Failure> {
        if let Some(predefined) = Handler::predefined(named) {
            return Ok(predefined);
        }
        match handle::key(named).and_then(|key| self.entries.get(key)) {
            Some(entry) if !entry.freed => Ok(Handler::User(named)),
            _ => Err(ArgumentError::Errhandler.into()),
        }
    }

    /// What a communicator has.
    pub(crate) fn of_comm(&self, comm: Handle) -> Handler {
        self.attached.get(&comm).copied().unwrap_or_default()
    }

    /// A communicator gets another handler; the old one is let go.
    pub(crate) fn attach(&mut self, comm: Handle, handler: Handler) {
        self.hold(handler);
        if let Some(old) = self.attached.insert(comm, handler) {
            self.let_go(old);
        }
    }

    /// The communicator is gone.
    pub(crate) fn detach(&mut self, comm: Handle) {
        if let Some(old) = self.attached.remove(&comm) {
            self.let_go(old);
        }
    }

    /// MPI_Comm_get_errhandler: the user holds it once more, and frees it (MPI-5.0 §9.3.4); it is the user's again.
    pub(crate) fn give(&mut self, handler: Handler) -> Handle {
        self.hold(handler);
        if let Handler::User(named) = handler
            && let Some(entry) = handle::key(named).and_then(|key| self.entries.get_mut(key))
        {
            entry.freed = false;
        }
        handler.handle()
    }

    /// MPI_Errhandler_free. A predefined one that `give` gave is freed as any other (§9.3.4), and stays.
    pub(crate) fn free(&mut self, named: Handle) -> Result<(), Failure> {
        let handler = self.named(named)?;
        let users = self.attached.values().filter(|attached| **attached == handler).count();
        if let Some(entry) = handle::key(named).and_then(|key| self.entries.get_mut(key)) {
            // The last hold of the user itself: from now on the handle is void.
            entry.freed = entry.holders as usize <= users + 1;
        }
        self.let_go(handler);
        Ok(())
    }

    fn hold(&mut self, handler: Handler) {
        if let Handler::User(named) = handler
            && let Some(entry) = handle::key(named).and_then(|key| self.entries.get_mut(key))
        {
            entry.holders += 1;
        }
    }

    fn let_go(&mut self, handler: Handler) {
        let Handler::User(named) = handler else { return };
        let Some(key) = handle::key(named) else { return };
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.holders -= 1;
        if entry.holders == 0 {
            self.entries.remove(key);
        }
    }

    fn function(&self, handler: Handler) -> Option<Function> {
        let Handler::User(named) = handler else { return None };
        handle::key(named).and_then(|key| self.entries.get(key)).map(|entry| entry.function)
    }
}

/// What is left to do about a failed call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Disposition {
    /// Return the class.
    Return,
    /// Call the user's handler first.
    Call { function: Function, object: Handle },
}

/// Decides; reports and ends whom it concerns where the handler is a fatal one. Leaves nothing behind to drop.
pub(crate) fn disposition(call: &'static str, raised: Raised, said: &[Argument]) -> Disposition {
    // A forked child is a process of its own: the parent's job is not its to end.
    if raised.failure.why == Why::Forked {
        return Disposition::Return;
    }
    let (handler, object) = handler_of(raised.on);
    let function = books::with(|books| books.handlers.function(handler));
    match (handler, function) {
        (Handler::Return, _) => Disposition::Return,
        (Handler::User(_), Some(function)) => Disposition::Call { function, object },
        (handler, _) => end(call, raised, said, who_ends(handler, object, raised.failure.code)),
    }
}

/// The handler of an object, and the communicator that it is told.
fn handler_of(on: On) -> (Handler, Handle) {
    match on {
        // Errors on files go to the null file's handler, which returns (MPI-5.0 §14.7).
        On::File(_) => (Handler::Return, COMM_NULL),
        On::Errhandler(named) => {
            let handler = books::with(|books| books.handlers.named(named));
            (handler.unwrap_or(Handler::initial()), COMM_NULL)
        }
        On::Comm(comm) if is_standing(comm) || books::with(|books| books.retired.contains(&comm)) => {
            (books::with(|books| books.handlers.of_comm(comm)), comm)
        }
        // No such communicator, no object, or one of which there are none in this version.
        On::Comm(_) | On::Process | On::Win(_) | On::Session(_) => match mend_world::get() {
            Some(_) => (books::with(|books| books.handlers.of_comm(COMM_SELF)), COMM_SELF),
            None => (Handler::initial(), COMM_NULL),
        },
    }
}

fn is_standing(comm: Handle) -> bool {
    let Some(world) = mend_world::get() else { return false };
    matches!(comm, COMM_WORLD | COMM_SELF) || world.with(|engine| Comm(comm).standing(engine).is_ok())
}

/// AbortScope an error ends that nobody handles. Of another's failure, this process alone: the others go on as long as they do
/// not need the dead themselves (Row EH1). MPI_ERRORS_ABORT is as MPI_Abort on the communicator (MPI-5.0 §9.3, Row EH5).
fn who_ends(handler: Handler, object: Handle, code: c_int) -> AbortScope {
    match handler {
        Handler::Abort => Comm(object).members(),
        _ if is_fault(crate::calls::errors::class_of(code)) => AbortScope::Myself,
        _ => AbortScope::Everybody,
    }
}

/// Reports, and ends those who end with it.
fn end(call: &'static str, raised: Raised, said: &[Argument], whom: AbortScope) -> ! {
    report::print(call, raised, said);
    let code = raised.failure.code;
    match mend_world::get() {
        Some(world) => world.abort(whom, code),
        None => std::process::exit(i32::from(mend_world::exit_code(code))),
    }
}

#[cfg(test)]
mod tests {
    use super::{Function, Handler, Handlers, who_ends};
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
    fn a_freed_handler_serves_those_who_have_it_and_nobody_else() {
        let mut handlers = Handlers::default();
        let mine = handlers.create(some_function());
        let handler = handlers.named(mine).unwrap();
        handlers.attach(COMM_WORLD, handler);
        handlers.free(mine).unwrap();
        assert!(handlers.named(mine).is_err());
        assert!(handlers.function(handlers.of_comm(COMM_WORLD)).is_some());
        assert_eq!(handlers.give(handler), mine);
        assert!(handlers.named(mine).is_ok());
        handlers.free(mine).unwrap();
        handlers.attach(COMM_WORLD, Handler::Return);
        assert!(handlers.function(handler).is_none());
        assert!(handlers.entries.is_empty());
    }

    #[test]
    fn predefined_handlers_are_found_and_stay_when_they_are_freed() {
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
    fn a_failure_of_others_ends_who_raises_it_and_a_mistake_the_job() {
        for code in [ERR_PROC_FAILED, ERR_PROC_FAILED_PENDING] {
            assert_eq!(who_ends(Handler::Fatal, COMM_WORLD, code), AbortScope::Myself);
            assert_eq!(who_ends(Handler::Abort, COMM_WORLD, code), AbortScope::Everybody);
        }
        assert_eq!(who_ends(Handler::Fatal, COMM_SELF, ERR_TRUNCATE), AbortScope::Everybody);
        assert_eq!(who_ends(Handler::Abort, COMM_SELF, ERR_TRUNCATE), AbortScope::Myself);
        assert!(matches!(who_ends(Handler::Abort, 5 << 32, ERR_TRUNCATE), AbortScope::Members(_)));
    }
}
