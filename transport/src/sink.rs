// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The callbacks of a transport to the layer above.

use crate::{AmId, Cookie, Payload, SendError, Stream};
use mend_base::PeerIndex;

/// The callbacks of a transport to the layer above, made only from inside [`Btl::progress`](crate::Btl::progress) and
/// [`Btl::take_message`](crate::Btl::take_message). The peer has the index that `connect` was given; the endpoint
/// tells which of its endpoints it was.
///
/// A callback that panics has had its event: where the caller goes on, that event does not come again.
pub trait Sink<E> {
    /// A complete message. `header` is a private copy; `payload` is valid during this call.
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>);
    /// A chunk of a large message.
    fn on_chunk(&mut self, from: PeerIndex, stream: Stream, payload: Payload<'_>);
    /// An operation ended. Every cookie ends exactly once, also where the peer failed.
    fn on_done(&mut self, done: Cookie, result: Result<(), SendError>);
    /// The endpoint is connected, or a send that was `Busy` would find room now.
    fn on_room(&mut self, to: PeerIndex, endpoint: E);
    /// Something is wrong with this endpoint. Only evidence: it may be mistaken, may repeat, and changes no state.
    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause);
    /// After `sever`: all complete messages were delivered, the last cookie has ended, no byte of this endpoint can
    /// reach our memory. Called exactly once, as the last callback of this endpoint.
    fn on_severed(&mut self, peer: PeerIndex, endpoint: E);
}

impl<E, S: Sink<E> + ?Sized> Sink<E> for &mut S {
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>) {
        (**self).on_message(from, id, header, payload);
    }

    fn on_chunk(&mut self, from: PeerIndex, stream: Stream, payload: Payload<'_>) {
        (**self).on_chunk(from, stream, payload);
    }

    fn on_done(&mut self, done: Cookie, result: Result<(), SendError>) {
        (**self).on_done(done, result);
    }

    fn on_room(&mut self, to: PeerIndex, endpoint: E) {
        (**self).on_room(to, endpoint);
    }

    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause) {
        (**self).on_error(peer, endpoint, cause);
    }

    fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        (**self).on_severed(peer, endpoint);
    }
}

/// Why an endpoint failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Cause {
    /// The process has ended.
    Exited,
    /// The link is down; the process may live.
    LinkDown,
    /// Nothing arrived for too long.
    Silent,
    /// The peer, or the kernel, refused the connection.
    Refused,
    /// The peer wrote what no correct peer writes. The daemon kills it, and it is never resumed.
    Garbage,
    /// The peer has another layout version.
    LayoutDiffers,
    /// Memory for the connection could not be reserved, here or there.
    NoMemory,
}
