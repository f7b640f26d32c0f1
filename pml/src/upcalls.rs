// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What point-to-point tells the layer above.

use mend_base::PeerIndex;
use mend_transport::{AmId, Cause, Cookie, Payload, SendError};

/// What [`Ob1::progress`](crate::Ob1::progress) tells the layer above.
pub trait Upcalls<E> {
    /// A message of another layer.
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>);
    /// An operation that bears a cookie ended: of another layer, since nothing of the PML's bears one. A layer above that starts
    /// none has nothing to do.
    fn on_done(&mut self, _done: Cookie, _result: Result<(), SendError>) {}
    /// Evidence: the transport's, or ours: [`Cause::Garbage`] where a peer wrote what no correct peer writes,
    /// [`Cause::NoMemory`] where there was none for what it wrote.
    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause);
    /// Nothing of this endpoint can reach our memory any more.
    fn on_severed(&mut self, peer: PeerIndex, endpoint: E);
}
