// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What MPI means: the engine with its one crank, requests, error classes, the making of communicators, the funnel that
//! every death enters, and futures over requests. Read [`Engine`] first.
//!
//! Nothing here blocks, reads a clock or the environment, or calls the user's code (Rules 5, 6, 10): an engine is
//! a value that somebody above turns. Not here: which transports and which runtime (`world` names them, or `sim`), C.
#![forbid(unsafe_code)]

mod blocking;
mod class;
mod collective;
mod collective_channel;
mod communicator;
mod completion;
mod contact;
mod engine;
mod error;
mod funnel;
mod future;
mod registry;
mod request;
#[cfg(test)]
mod scripted;
mod sendrecv;
mod unsatisfiable;
mod waiters;
mod watched;

pub use blocking::{Blocking, CommunicatorCreation, Probe};
pub use class::Class;
pub use completion::{Answered, Answers, Completion, Found, RequestHandle, Want, test};
pub use engine::{Census, Engine, JobNotice, StartError};
pub use error::{Code, Detail, Error, cause_words};
pub use future::{Answer, Blocked, Completed, Creation, Mpi, Operation, Wait};
pub use mend_coll::Collective;
pub use mend_pml::{Config, SendMode, Status, Waiter};
pub use registry::Registry;
pub use request::{CommKey, Request, Started, State};
pub use sendrecv::{Exchanged, Sendrecv};
