// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a transport tells the layer above.

use crate::{AmId, Cookie, Payload, SendError, Stream};
use mend_base::PeerIndex;

/// What a transport tells the layer above, and only from inside [`Btl::progress`](crate::Btl::progress). Whoever it
/// concerns is named as the layer above named it in `connect`; the endpoint says which of several ways it was.
///
/// A callback that panics has had its event: where the caller goes on, that event does not come again.
pub trait Sink<E> {
    /// One whole message. `header` is a private copy; `payload` is valid for this call only.
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>);
    /// One piece of a large message.
    fn on_chunk(&mut self, from: PeerIndex, stream: Stream, payload: Payload<'_>);
    /// An operation ended. Every cookie ends exactly once, those cut short by a failure too.
    fn on_done(&mut self, done: Cookie, result: Result<(), SendError>);
    /// The connection stands, or there is room again after `Busy`.
    fn on_room(&mut self, to: PeerIndex, endpoint: E);
    /// Something is wrong with this way. Evidence: may be mistaken, may repeat, decides nothing.
    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause);
    /// After `sever`: all that was whole has been handed up, the last cookie has ended, no byte of this endpoint can
    /// reach our memory. Once; the endpoint is gone.
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

/// What is wrong with a way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Cause {
    /// The process has ended.
    Exited,
    /// The link is down; the process may live.
    LinkDown,
    /// Nothing was heard for too long.
    Silent,
    /// The peer, or the kernel, would not have the connection.
    Refused,
    /// It wrote what no correct peer writes (Rule 11): fenced, never resumed.
    Garbage,
    /// It speaks another layout version.
    LayoutDiffers,
    /// Memory for the connection could not be reserved, here or there.
    NoMemory,
}
