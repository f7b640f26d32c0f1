// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The events that point-to-point reports to the layer above.

use mend_base::{Identity, PeerIndex};
use mend_transport::{AmId, Cause, Cookie, Payload, SendError};

/// The events that [`Ob1::progress`](crate::Ob1::progress) reports to the layer above.
pub trait Upcalls<E> {
    /// A message of another layer.
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>);
    /// An operation of another layer ended: its cookie has another owner than [`AM_ID`](crate::AM_ID). A layer above that starts
    /// none has nothing to do.
    fn on_done(&mut self, _done: Cookie, _result: Result<(), SendError>) {}
    /// Evidence, of the transport or of the PML: [`Cause::Garbage`] where a peer wrote garbage, [`Cause::NoMemory`] where there was
    /// no memory for its messages.
    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause);
    /// Nothing of this endpoint can reach our memory any more.
    fn on_severed(&mut self, peer: PeerIndex, endpoint: E);
    /// `from` has refused a send, which has ended with [`Error::Revoked`](crate::Error::Revoked), because this communicator is revoked
    /// there, and it is not revoked here yet: as good as the notice of the revocation itself, which may come later. The layer above revokes
    /// the communicator here ([`Ob1::revoke`](crate::Ob1::revoke)) before it returns to the program, and passes the news on.
    /// The communicator is given by identity, since an index may stand for another communicator when the report is read.
    fn on_revoked(&mut self, _from: PeerIndex, _identity: Identity) {}
}
