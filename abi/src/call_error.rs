// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A failed call: why it failed, what it returns, and the object whose error handler is called. All of it is `Copy`, because an
//! error handler may longjmp past the frame that has it (design "C frames").

use crate::argument_error::ArgumentError;
use crate::error_handlers::Action;
use crate::handle::Handle;
use core::ffi::c_int;

/// The object on which an error occurred: its error handler is called (MPI-5.0 §9.3).
#[derive(Clone, Copy, Debug)]
pub(crate) enum ErrorObject {
    /// No object: the error handler of MPI_COMM_SELF is called; before Init and after Finalize, the initial error handler.
    Process,
    Comm(Handle),
    File,
    Win,
    Session,
    /// No object yet: the error handler that the call names is called.
    Errhandler(Handle),
    /// A request on this communicator, and the action of the communicator's error handler at the end of the request.
    Request(Handle, Action),
}

/// Why a call failed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Why {
    Argument(ArgumentError),
    Engine(mend_mpi::Error),
    Unsupported,
    /// Before MPI_Init.
    TooEarly,
    /// After MPI_Finalize.
    TooLate,
    /// In a child that a rank forked.
    Forked,
    /// MPI_Init failed: the whole message, with its own code.
    Start(&'static str),
    /// A bug of Mend.
    Panic(&'static str),
    /// The program called the error handler.
    User,
}

/// A failed call, without the object that its arguments name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallError {
    /// The code that is passed to the error handler.
    pub(crate) code: c_int,
    /// The code that the call returns: the same, except in calls on several requests.
    pub(crate) returned: c_int,
    pub(crate) why: Why,
    /// The object, if it is not the one that the call names.
    pub(crate) object: Option<ErrorObject>,
}

impl CallError {
    pub(crate) const fn new(code: c_int, why: Why) -> Self {
        CallError { code, returned: code, why, object: None }
    }

    /// The error with another object.
    pub(crate) fn on(mut self, object: ErrorObject) -> Self {
        self.object = Some(object);
        self
    }
}

impl From<ArgumentError> for CallError {
    #[cold]
    fn from(wrong: ArgumentError) -> Self {
        CallError::new(wrong.row().0, Why::Argument(wrong))
    }
}

impl From<mend_mpi::Error> for CallError {
    #[cold]
    fn from(error: mend_mpi::Error) -> Self {
        CallError::new(error.class.number(), Why::Engine(error))
    }
}

/// A failed call with its object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raised {
    pub(crate) error: CallError,
    pub(crate) object: ErrorObject,
}
