// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The callbacks of a transport to the layer above.

use crate::{AmId, Cookie, Payload, SendError, Stream};
use mend_base::PeerIndex;

/// The callbacks of a transport to the layer above. `E` is the type of the transport's endpoints.
///
/// A transport calls them only from inside [`Btl::progress`](crate::Btl::progress) and
/// [`Btl::take_message`](crate::Btl::take_message). The peer is named by the index that `connect` was given. Where a callback names
/// an endpoint as well, it concerns this endpoint only: a peer may have several.
///
/// A callback may panic. The transport counts the event as delivered before it calls, so the event is not delivered again if the
/// caller catches the panic and goes on.
pub trait Sink<E> {
    /// A complete message arrived. `header` is a private copy; `payload` is valid during this call only, and a peer may change
    /// its bytes meanwhile. Comes while the endpoint is connected or severing: also after the death of the peer, for what the peer
    /// had sent completely.
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>);
    /// The next chunk of a stream arrived, at the same times as messages. The transport does not know which streams exist: the
    /// layer above checks the number.
    fn on_chunk(&mut self, from: PeerIndex, stream: Stream, payload: Payload<'_>);
    /// The operation of this cookie ended. Called exactly once for each operation that was started with a cookie. An operation that
    /// the death of the peer cut off ends with `Severed`, before `on_severed`; its outcome is not known. From now on the
    /// transport does not access the memory of the operation.
    fn on_done(&mut self, done: Cookie, result: Result<(), SendError>);
    /// The endpoint became sendable: it is connected now, or send resources are free again after a `Busy`. A hint: the next
    /// send may still be `Busy`, and then another `on_sendable` follows. Never called after `sever`.
    fn on_sendable(&mut self, to: PeerIndex, endpoint: E);
    /// The transport has evidence that the peer failed. Evidence may be wrong, may repeat, and changes no state of the endpoint:
    /// the layer above decides whether to call `quarantine` and `sever`. A quarantined endpoint gives no new evidence; what was
    /// found before may still come. Never called after `sever`.
    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause);
    /// The endpoint is severed: all complete messages were delivered, every cookie ended, and no byte of the peer can reach the
    /// memory of this process through this endpoint any more. Called exactly once after `sever`, and as the last callback of the
    /// endpoint.
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

    fn on_sendable(&mut self, to: PeerIndex, endpoint: E) {
        (**self).on_sendable(to, endpoint);
    }

    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause) {
        (**self).on_error(peer, endpoint, cause);
    }

    fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        (**self).on_severed(peer, endpoint);
    }
}

/// Evidence: what the transport noticed of a peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Cause {
    /// The process has ended.
    Exited,
    /// The link is down; the process may live.
    LinkDown,
    /// Nothing arrived for longer than the transport expects. The peer itself is asked whether it runs, and its answer comes to
    /// [`Btl::on_running`](crate::Btl::on_running).
    Silent,
    /// The peer, or the kernel, refused the connection.
    Refused,
    /// The peer wrote what no correct peer writes. The node daemon kills this peer, and its endpoint is never resumed.
    Garbage,
    /// The memory layout of the peer has another version.
    LayoutDiffers,
    /// Memory for the connection could not be reserved, at this end or at the other.
    NoMemory,
    /// The way to the peer has been broken for longer than the transport waits, although the process lives and runs.
    Unreachable,
    /// No evidence: no transport reports this. A process that waits only asks whether the peer lives.
    NoEvidence,
}
