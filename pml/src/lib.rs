// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Point-to-point in MPI order: matching, eager, rendezvous, requests. Read `Ob1` first.
//!
//! It owns no transport: the engine lends one for the length of a call, and is told by [`Upcalls`] what is not ours.
//! Not here: what communicators mean, error classes, waiting, `MPI_PROC_NULL`.
#![forbid(unsafe_code)]

mod request;

pub use request::{Error, Gone, Request, SendMode, Started, State, Status};

use mend_base::{Key, PeerIndex};
use mend_transport::{AmId, Cause, Payload};

/// A communicator's plane, opened: what sends and receives name. Stale ones are refused (I4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Channel(pub Key);

/// What `Ob1::progress` tells the layer above.
pub trait Upcalls<E> {
    /// A message of another layer.
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>);
    /// Evidence: the transport's, or ours ([`Cause::Garbage`]).
    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause);
    /// Nothing of this endpoint can reach our memory any more.
    fn on_severed(&mut self, peer: PeerIndex, endpoint: E);
}
