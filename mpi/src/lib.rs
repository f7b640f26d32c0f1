// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What MPI means: the engine, requests, error classes, the making of communicators, the funnel through which every death
//! goes, the calls that wait, and futures over requests. Read [`Engine`] first.
//!
//! Nothing here blocks, reads a clock or the environment, or calls the user's code (Rules 5, 6, 10): an engine is a value whose
//! [`progress`](Engine::progress) somebody above calls. Not here: which transports and which runtime (`world` names them, or
//! `sim`), C.
//!
//! The engine only composes its parts, each a type whose fields are private to its file:
//!
//! | part (file)                     | owns                                                     | may call                         |
//! |---------------------------------|----------------------------------------------------------|----------------------------------|
//! | `Funnel` (funnel)               | the contact with each peer; evidence; ends that are declared and not published; notices of the job | transports, PML, runtime |
//! | `Ends` (`mend_pml`)             | the ends of peers that are published; the order of the failures | nothing                   |
//! | `Communicators` (communicator)  | the table of communicators: attributes, counts of requests; identities | PML                |
//! | `Collectives` (collective)      | collective operations and creations under way, liveness queries | transports, PML, `Communicators`, `Funnel` |
//! | `CompletedRequests` (request)   | requests that were complete when they were started, with their communicator | nothing       |
//! | `Watched` (watched)             | from whom the waiting call expects something             | nothing                          |
//! | `Waiters` (waiters)             | what sleeping threads wait for, and what concerns them all | nothing                        |
//! | `UnconnectedQuery` (unconnected_query)             | when a waiter asks about unconnected peers               | nothing                          |
//! | `Dispatch` (dispatch)           | the owners of active messages and completions            | `Funnel`, and each owner         |
//! | `Layers` (layers)               | transports, PML, runtime: lent to the parts              |                                  |
//!
//! Datatypes and reduction operations are found by their handles in the engine (datatypes); the predefined ones need no table.
//!
//! Above the engine stand values that a waiter or a future polls: [`Completion`] (the eight wait and test calls), [`Blocking`],
//! [`Probe`], [`CommunicatorCreation`], [`Sendrecv`]. They call the engine; it knows none of them.
#![forbid(unsafe_code)]

mod blocking;
mod collective;
mod communicator;
mod completion;
mod datatypes;
mod dispatch;
mod engine;
mod error;
mod error_class;
mod error_handler;
mod funnel;
mod future;
mod layers;
mod request;
#[cfg(test)]
mod scripted;
mod sendrecv;
mod unconnected_query;
mod waiters;
mod watched;

pub use blocking::{Blocking, CommunicatorCreation, Probe};
pub use completion::{Answered, Answers, Completion, Found, Want, test};
pub use datatypes::{DatatypeHandle, OpHandle};
pub use engine::{Engine, OpenCounts, StartError};
pub use error::{Code, Detail, Error, cause_words};
pub use error_class::ErrorClass;
pub use error_handler::ErrorHandler;
pub use funnel::JobNotice;
pub use future::{Answer, Blocked, Completed, Creation, Mpi, Operation, Wait};
pub use mend_coll::Collective;
pub use mend_pml::{Config, End, Ends, Polling, SendMode, Status, Waiter};
pub use request::{CommKey, Request, RequestHandle, Started, State};
pub use sendrecv::{Exchanged, Sendrecv};
