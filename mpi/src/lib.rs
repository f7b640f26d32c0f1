// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What MPI means: the engine with its one crank, requests, error classes, the making of communicators, the funnel that
//! every death enters, and futures over requests. Read [`Engine`] first.
//!
//! Nothing here blocks, reads a clock or the environment, or calls the user's code (Rules 5, 6, 10): an engine is
//! a value that somebody above turns. Not here: which transports and which runtime (`world` names them, or `sim`), C.
#![forbid(unsafe_code)]

mod class;
mod collective;
mod collective_channel;
mod communicator;
mod contact;
mod engine;
mod error;
mod funnel;
mod future;
mod registry;
mod request;
#[cfg(test)]
mod scripted;
mod waiters;

pub use class::Class;
pub use engine::{Census, Engine, JobNotice, StartError};
pub use error::{Code, Detail, Error, cause_words};
pub use future::{Creation, Mpi, Operation};
pub use mend_coll::Collective;
pub use mend_pml::{Config, SendMode, Status, Waiter};
pub use registry::Registry;
pub use request::{CommKey, Request, Started, State};
