// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The semantics of MPI: the engine of one process, requests, error classes, creation of communicators, reports about
//! peers, the calls that wait, and futures over requests. Read [`Engine`] first.
//!
//! Nothing here blocks, reads a clock or the environment, or calls the user's code (Rules 5, 6, 10): an engine is a value, and
//! its owner calls [`progress`](Engine::progress). Not here: the choice of transports and runtime (`world` or `sim` makes it),
//! and the C interface.
//!
//! The engine only composes its parts. Each part is a type whose fields are private to its file:
//!
//! | part (file)                     | owns                                                     | may call                         |
//! |---------------------------------|----------------------------------------------------------|----------------------------------|
//! | `PeerReports` (peer_reports)               | the contact with each peer; evidence; ends that are declared and not published; notices about the job | transports, PML, runtime |
//! | `Ends` (`mend_pml`)             | the published ends of peers; the order of the failures | nothing                   |
//! | `Communicators` (communicator)  | the table of communicators: their properties (name, error handler, hints), counts of requests; identities | PML                |
//! | `PublishedGroups` (published_groups) | the groups of the communicators, for signal handlers that cannot use the engine | nothing |
//! | `Collectives` (collective)      | collective operations that run, liveness queries | transports, PML, `Communicators`, `PeerReports` |
//! | `Agreements` (agreements)              | operations that are decided by an agreement: agree, shrink                 | nothing                       |
//! | `Creations` (creations, announcement, leader_exchange, inter_creation) | creations of communicators that run, and their order                    | transports, PML               |
//! | `MemberProtocols` (member_protocols)   | agreements, votes and news of each communicator, and their messages    | PML                            |
//! | `RequestsEndedAtStart` (request)   | requests of operations that had ended at their start, with their communicator | nothing       |
//! | `ExpectedSenders` (expected_senders)             | the endpoints from which the waiting call expects a message | nothing                          |
//! | `Heartbeats` (heartbeats)        | the heartbeat ring of the ranks, in jobs that find failures by it          | PML                            |
//! | `WakeUps` (wake_ups)             | the requests that a thread waits for, noted just before it sleeps: their ends wake it; the count of events that wake all threads | nothing |
//! | `UnconnectedQuery` (unconnected_query)             | the time at which a waiting call asks about an unconnected peer | nothing                          |
//! | `CallReports` (call_reports)      | for how long the program has been blocked in one call, and whether the node daemon asks | nothing |
//! | `ProgramWaits` (program_wait)  | in which agreements the program is blocked, for the search for cycles of recoveries | nothing |
//! | `Dispatch` (dispatch)           | the protocol of each active message and of each cookie that comes back | `PeerReports`, and each protocol         |
//! | `Layers` (layers)               | transports, PML, runtime: borrowed by the parts during a call              |                                  |
//!
//! The engine finds datatypes and reduction operations by their handles (datatypes); the predefined ones need no table.
//!
//! A waiter or a future polls values that are above the engine: [`CompletionCall`] (the eight wait and test calls),
//! [`BlockingOperation`], [`Probe`], [`CommunicatorCreation`], [`Sendrecv`]. These values call the engine; the engine does not
//! call them.
#![forbid(unsafe_code)]

mod agreements;
mod announcement;
mod blocking;
mod call_reports;
mod collective;
mod communicator;
mod completion;
mod creations;
mod datatypes;
mod dispatch;
mod engine;
mod error;
mod error_class;
mod error_handler;
mod expected_senders;
mod future;
mod heartbeats;
mod hints;
mod inter_creation;
mod layers;
mod leader_exchange;
mod member_protocols;
mod operation_table;
mod origin;
mod parameters;
mod peer_reports;
mod program_wait;
mod published_groups;
mod request;
#[cfg(test)]
mod scripted;
mod sendrecv;
mod unconnected_query;
mod wake_ups;

pub use agreements::AgreedGroup;
pub use blocking::{BlockingOperation, CommunicatorCreation, Probe};
pub use completion::{CompletionCall, CompletionResult, Found, OutArguments, WaitMode, test};
pub use datatypes::{DatatypeHandle, OpHandle};
pub use engine::{Engine, EngineStartError, OpenCounts, Shared};
pub use error::{Code, CrossedWith, Detail, Error, cause_words};
pub use error_class::ErrorClass;
pub use error_handler::ErrorHandler;
pub use future::{BlockingCall, CompletionReport, Creation, Mpi, Operation, Wait, WrittenStatus};
pub use hints::{ErrorRange, Hints, Uniform};
pub use mend_coll::{Collective, Framework, SelectionError};
pub use mend_pml::{Config, End, Ends, PollingReceive, SendMode, SleeperId, Status};
pub use parameters::{PARAMETERS, detector_config};
pub use peer_reports::JobNotice;
pub use published_groups::PublishedGroups;
pub use request::{CommKey, Request, RequestHandle, Started, State};
pub use sendrecv::{Exchanged, Sendrecv};
