// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Error handlers: the predefined ones, and those that the program created, with the handles that the program has (MPI-5.0 §9.3.4).
//! The engine stores the error handler of each communicator ([`mend_mpi::ErrorHandler`]).
//!
//! The table exists before Init and after Finalize too, where error handlers may be created and freed. One lock protects it. While
//! it is held, no other lock is taken, the engine is not entered, and no code of the program runs.

use crate::generated::constants::{ERRHANDLER_NULL, ERRORS_ABORT, ERRORS_ARE_FATAL, ERRORS_RETURN};
use crate::handle::{self, Handle};
use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering};
use mend_base::Slab;
use mend_mpi::ErrorHandler;
use mend_runtime::environment::{INITIAL_ERROR_HANDLER, InitialErrorHandler};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

/// A user's error handler: variadic in C; arguments after the second are never passed.
pub(crate) type Function = unsafe extern "C-unwind" fn(*mut Handle, *mut c_int, ...);

/// The action of an error handler. `Copy`, because a user's function may longjmp past the frame that has it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// Ends the job; after a failure of another process, ends this process only.
    Fatal,
    /// Ends the processes of the communicator.
    Abort,
    /// The call returns the error class.
    Return,
    /// The user's function is called.
    Call(Function),
}

impl From<&ErrorHandler> for Action {
    fn from(handler: &ErrorHandler) -> Action {
        match handler {
            ErrorHandler::Fatal => Action::Fatal,
            ErrorHandler::Abort => Action::Abort,
            ErrorHandler::Return => Action::Return,
            ErrorHandler::User(object) => match object.downcast_ref::<UserHandler>() {
                Some(user) => Action::Call(user.function),
                None => unreachable!("the engine has no other kind of handler"),
            },
        }
    }
}

/// The initial error handler: for predefined communicators, and for errors before Init and after Finalize
/// (`mpiexec --initial-errhandler`, MPI-5.0 §11.2.4). Init has refused unknown names.
pub(crate) fn initial() -> ErrorHandler {
    static INITIAL: OnceLock<InitialErrorHandler> = OnceLock::new();
    let initial = INITIAL.get_or_init(|| {
        let name = std::env::var(INITIAL_ERROR_HANDLER).ok();
        name.and_then(|name| InitialErrorHandler::from_name(&name)).unwrap_or_default()
    });
    match initial {
        InitialErrorHandler::AreFatal => ErrorHandler::Fatal,
        InitialErrorHandler::Abort => ErrorHandler::Abort,
        InitialErrorHandler::Return => ErrorHandler::Return,
    }
}

/// An error handler that the program created. It exists as long as the program has a handle of it, or a communicator has it.
#[derive(Debug)]
struct UserHandler {
    function: Function,
    /// The handle that the program got last. Changed only under the lock of the table.
    handle: AtomicUsize,
}

/// A handle of the program.
#[derive(Debug)]
struct Entry {
    handler: Arc<UserHandler>,
    /// The number of times that the program got this handle, less the number of times that it freed it.
    references: u32,
}

/// The handles of the program.
#[derive(Default, Debug)]
struct Table(Slab<Entry>);

static TABLE: LazyLock<Mutex<Table>> = LazyLock::new(Mutex::default);

fn with_table<R>(work: impl FnOnce(&mut Table) -> R) -> R {
    // A panic under the lock was a bug that was reported; the table is consistent, since every change of it is one step.
    work(&mut TABLE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// MPI_Comm_create_errhandler.
pub(crate) fn create(function: Function) -> Handle {
    let handler = Arc::new(UserHandler { function, handle: AtomicUsize::new(ERRHANDLER_NULL) });
    with_table(|table| table.add(handler))
}

/// The error handler with this handle.
pub(crate) fn find(handle: Handle) -> Option<ErrorHandler> {
    match handle {
        ERRORS_ARE_FATAL => Some(ErrorHandler::Fatal),
        ERRORS_ABORT => Some(ErrorHandler::Abort),
        ERRORS_RETURN => Some(ErrorHandler::Return),
        handle => with_table(|table| table.find(handle)).map(|user| ErrorHandler::User(user)),
    }
}

/// MPI_Comm_get_errhandler: a handle that the program frees later, also of a predefined handler (MPI-5.0 §9.3.4).
pub(crate) fn handle_of(handler: ErrorHandler) -> Handle {
    match handler {
        ErrorHandler::Fatal => ERRORS_ARE_FATAL,
        ErrorHandler::Abort => ERRORS_ABORT,
        ErrorHandler::Return => ERRORS_RETURN,
        ErrorHandler::User(object) => match object.downcast::<UserHandler>() {
            Ok(user) => with_table(|table| table.handle_of(user)),
            Err(_) => unreachable!("the engine has no other kind of handler"),
        },
    }
}

/// MPI_Errhandler_free. `None`: there is no such handle. Freeing a predefined handler, which `handle_of` may have returned, succeeds
/// and has no effect (MPI-5.0 §9.3.4).
pub(crate) fn free(handle: Handle) -> Option<()> {
    match handle {
        ERRORS_ARE_FATAL | ERRORS_ABORT | ERRORS_RETURN => Some(()),
        handle => with_table(|table| table.free(handle)),
    }
}

impl Table {
    fn add(&mut self, handler: Arc<UserHandler>) -> Handle {
        let key = self.0.insert(Entry { handler: Arc::clone(&handler), references: 1 });
        handler.handle.store(handle::of_key(key), Ordering::Relaxed);
        handle::of_key(key)
    }

    fn find(&self, handle: Handle) -> Option<Arc<UserHandler>> {
        Some(Arc::clone(&self.0.get(handle::key(handle)?)?.handler))
    }

    /// The handle that the program has already, or a new one: the program may have freed the handle of a handler that a
    /// communicator has.
    fn handle_of(&mut self, handler: Arc<UserHandler>) -> Handle {
        let handle = handler.handle.load(Ordering::Relaxed);
        match handle::key(handle).and_then(|key| self.0.get_mut(key)) {
            Some(entry) => {
                entry.references += 1;
                handle
            }
            None => self.add(handler),
        }
    }

    fn free(&mut self, handle: Handle) -> Option<()> {
        let key = handle::key(handle)?;
        let entry = self.0.get_mut(key)?;
        entry.references -= 1;
        if entry.references == 0 {
            self.0.remove(key);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Action, Function, create, find, free, handle_of};
    use crate::generated::constants::ERRORS_RETURN;
    use crate::handle::Handle;
    use core::ffi::c_int;
    use mend_mpi::ErrorHandler;

    unsafe extern "C" {
        fn abort(object: *mut Handle, code: *mut c_int, ...);
    }

    fn some_function() -> Function {
        // SAFETY: never called; both are variadic C functions, of one calling convention.
        unsafe { core::mem::transmute::<unsafe extern "C" fn(*mut Handle, *mut c_int, ...), Function>(abort) }
    }

    #[test]
    fn a_freed_handler_exists_as_long_as_a_communicator_has_it() {
        let mine = create(some_function());
        let attached = find(mine).unwrap();
        let ErrorHandler::User(object) = &attached else { panic!("the program created it") };
        let object = std::sync::Arc::downgrade(object);
        free(mine).unwrap();
        assert!(find(mine).is_none() && free(mine).is_none());
        assert!(matches!(Action::from(&attached), Action::Call(_)));
        // The program gets a handle again by MPI_Comm_get_errhandler.
        let again = handle_of(attached.clone());
        assert!(find(again).is_some());
        assert_eq!(handle_of(attached.clone()), again);
        assert!(free(again).is_some() && find(again).is_some() && free(again).is_some());
        assert!(find(again).is_none());
        drop(attached);
        assert!(object.upgrade().is_none());
    }

    #[test]
    fn predefined_handlers_survive_being_freed() {
        let handler = find(ERRORS_RETURN).unwrap();
        assert!(matches!(handler, ErrorHandler::Return));
        assert_eq!(handle_of(handler), ERRORS_RETURN);
        assert!(free(ERRORS_RETURN).is_some() && find(ERRORS_RETURN).is_some());
        assert!(find(0).is_none() && free(0).is_none());
    }
}
