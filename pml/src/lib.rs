// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Point-to-point in MPI order: matching, eager, rendezvous, requests. Read [`Ob1`] first.
//!
//! It owns no transport and no list of ended peers: the engine lends both for the length of a call ([`Lent`], [`Ends`]).
//! [`Upcalls`] report to the engine, and hand it the messages of other layers.
//! Not here: what communicators mean, error classes, waiting, `MPI_PROC_NULL`.
//!
//! Every header of a peer is checked: ranks against the group and against the peer that wrote it, tags, sequence numbers,
//! handles by generation, lengths. Garbage is reported as evidence ([`Upcalls::on_error`] with
//! [`Cause::Garbage`](mend_transport::Cause::Garbage)), and all later messages of that peer are discarded.
//!
//! # Parts
//!
//! [`Ob1`] owns the parts. Each of its files (`ob1/`) handles one kind of event, from a call or from the transport, and passes the
//! results of one part to the next. A part uses plain values only (`envelope`, `request`, `ends`, `list`, `paged`, `cookies`) and calls no other
//! part; state of another part is lent to it for the length of a call.
//!
//! | part | owns | is lent |
//! |---|---|---|
//! | `matcher`: `MatchLists` of a channel, `Matcher` | posted receives and unexpected messages in order; the one sequence check, the one decision which receive takes a message | the slab of receives |
//! | `request_table`: `RequestTable` | all operations, each with its communicator, the lifecycle check, the number of active operations on each channel | |
//! | `send_queues`: `SendQueues` | messages and streams that wait for each peer; congestion, XOFF received; the number of operations started since the last progress | |
//! | `control_queue`: `ControlQueues` of the send queues | control messages of all protocols that wait for each peer, and the capacity that each protocol has reserved | |
//! | `receive_budget`: `ReceiveBudget` | bytes of unmatched messages of each peer; when XOFF and XON are sent; spare buffers | |
//! | `rendezvous`: `Rendezvous` | streams that come in and their numbers, CTSes that wait for one, RTSes without an answer, and to which request an answer goes after a cancellation | |
//! | `exposures`: `Exposures` | the memory of sends that their receivers may read, until it is released | |
//! | `gets`: `Gets` | messages that receives take from the memory of their senders; how each goes on when its gets have ended | |
//! | `context_table`: `ContextTable` | context names and context ids of channels, early messages, retired context names and why each is retired | |
//! | `peer_table`: `PeerTable` | links, which peers are discarding or closed, evidence, the peers that the engine is to connect | |
//! | `operations`: `Operations` of a channel | which collective operations run or were given up, poison and inquiries about them | |
//! | `members`: `Members` of a channel | which peer is which rank; how far failures are acknowledged and members have ended, as positions | `Ends` |
//! | `routes`: `Routes` of a channel | endpoint, context id and next sequence number for each rank | a peer's link |
//! | `unconnected`: `UnconnectedSearch` | the positions of the round-robin search for unconnected peers | |
//!
//! | event | file | goes through |
//! |---|---|---|
//! | a send starts | `ob1/send.rs` | routes → transport; else request table → send queues |
//! | a receive starts | `ob1/receive.rs`, `ob1/polling_receive.rs` | matcher; else request table → matcher |
//! | a message arrives | `ob1/arrival.rs` | peer table → context table → matcher → request table, or → receive budget |
//! | a stream's CTS, piece, end | `ob1/streams.rs` | rendezvous → request table → send queues |
//! | an RTS with a remote key, its FIN, the end of an operation on remote memory | `ob1/exposures.rs`, `ob1/gets.rs` | exposures, gets → transport → request table |
//! | progress sends what waits | `ob1/flush.rs` | send queues → transport |
//! | a request is cancelled by the program, abandoned after an error, or freed (its program no longer waits for it) | `ob1/cancel.rs`, `ob1/abandon.rs` | request table → send queues, rendezvous, matcher |
//! | the end of a peer is published | `ob1/peer_end.rs`, `ob1/lost_messages.rs` | peer table → members → all |
//! | a collective operation begins, is given up, or ends; poison and inquiries | `ob1/operations.rs` | operations → request table → send queues |
//! | a channel opens or closes | `ob1/channels.rs` | context table → request table → matcher |
//! | a channel is revoked | `ob1/revoke.rs` | routes, matcher → request table → send queues |
//!
//! # Memory
//!
//! What peers fill is bounded, and no message of a peer makes this process abort: `receive_budget` and `send_queues` state the
//! bounds. An operation for which there is no memory is not started ([`Error::NoMemory`]).
#![forbid(unsafe_code)]

mod channel;
mod config;
mod context_table;
mod control_queue;
mod cookies;
mod ends;
mod envelope;
mod exposures;
mod gets;
mod lent;
mod list;
mod matcher;
mod members;
mod ob1;
mod operations;
mod paged;
mod parameters;
mod peer_table;
mod receive_budget;
mod rendezvous;
mod request;
mod request_table;
mod routes;
mod send_queues;
mod unconnected;
mod upcalls;

pub use config::Config;
pub use control_queue::{ControlError, Places, Protocol};
pub use ends::{End, Ends};
pub use envelope::AM_ID;
pub use lent::Lent;
pub use ob1::Ob1;
pub use ob1::open_counts::OpenCounts;
pub use ob1::polling_receive::PollingReceive;
pub use parameters::PARAMETERS;
pub use request::{Channel, CommIndex, Error, Lookup, Request, SendMode, SleeperId, Started, State, Status};
pub use upcalls::Upcalls;
