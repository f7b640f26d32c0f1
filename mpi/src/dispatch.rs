// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The protocols, by the active-message id of their messages and by the owner in their cookies: one table for both.
//!
//! The PML takes its own messages, and the ends of its own operations, before they are dispatched here. A message with a reserved id is garbage, as one with an unknown
//! id: no correct peer of this version sends it. A new protocol adds its arm to [`Dispatch`], and sends its control messages through
//! the queue that all protocols share (`Ob1::open_control`, `Ob1::send_control`).

use crate::heartbeats::{self, Heartbeats};
use crate::member_protocols::{self, MemberProtocols};
use crate::peer_reports::PeerReports;
use mend_base::{Identity, PeerIndex};
use mend_pml::Upcalls;
use mend_transport::{AmId, Cause, Cookie, Payload, SendError};

/// The protocol of a message, or of a transfer that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    /// The PML.
    PointToPoint,
    /// Agreements, votes, and news about communicators.
    Members,
    /// The heartbeat ring.
    Heartbeats,
    /// A protocol of a later version.
    Reserved,
    /// No protocol has this id.
    Unknown,
}

/// The protocols with an id.
static PROTOCOLS: [(AmId, Protocol); 4] = [
    (mend_pml::AM_ID, Protocol::PointToPoint),
    (member_protocols::AM_ID, Protocol::Members),
    // One-sided communication.
    (AmId(3), Protocol::Reserved),
    (heartbeats::AM_ID, Protocol::Heartbeats),
];

/// The protocol with this id.
pub(crate) fn protocol_of(id: AmId) -> Protocol {
    PROTOCOLS.iter().find(|(given, _)| *given == id).map_or(Protocol::Unknown, |(_, protocol)| *protocol)
}

/// The receiver of the events that the PML does not handle itself.
pub(crate) struct Dispatch<'a, E> {
    pub peer_reports: &'a mut PeerReports<E>,
    pub member_protocols: &'a mut MemberProtocols,
    pub heartbeats: &'a mut Heartbeats,
}

impl<E: Copy + Eq + core::fmt::Debug> Upcalls<E> for Dispatch<'_, E> {
    #[cold]
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>) {
        match protocol_of(id) {
            Protocol::Members if payload.is_empty() && self.member_protocols.on_message(from, header) => {}
            Protocol::Heartbeats if payload.is_empty() && self.heartbeats.on_message(from, header) => {}
            Protocol::PointToPoint => debug_assert!(false, "the PML takes its own messages"),
            Protocol::Members | Protocol::Heartbeats | Protocol::Reserved | Protocol::Unknown => {
                self.peer_reports.on_evidence(from, Cause::Garbage)
            }
        }
    }

    /// Of the protocols of this version the PML alone passes cookies to transports, and takes their ends itself: the end of another
    /// operation is a bug of a transport.
    #[cold]
    fn on_done(&mut self, done: Cookie, _result: Result<(), SendError>) {
        let protocol = protocol_of(done.owner());
        debug_assert!(false, "an operation of {protocol:?} that was never started has completed: {done:?}");
    }

    fn on_error(&mut self, peer: PeerIndex, _endpoint: E, cause: Cause) {
        self.peer_reports.on_evidence(peer, cause);
    }

    fn on_revoked(&mut self, _from: PeerIndex, identity: Identity) {
        self.member_protocols.on_refused_as_revoked(identity);
    }

    fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        self.peer_reports.on_severed(peer, endpoint);
    }
}

#[cfg(test)]
mod tests {
    use super::{Dispatch, PROTOCOLS, Protocol, protocol_of};
    use crate::heartbeats::Heartbeats;
    use crate::member_protocols::MemberProtocols;
    use crate::peer_reports::PeerReports;
    use mend_base::{Job, PeerIndex};
    use mend_pml::Upcalls;
    use mend_transport::AmId;

    #[test]
    fn every_id_has_one_protocol() {
        for (at, (id, _)) in PROTOCOLS.iter().enumerate() {
            assert!(PROTOCOLS[..at].iter().all(|(before, _)| before != id), "{id:?} has two protocols");
        }
        assert_eq!(protocol_of(mend_pml::AM_ID), Protocol::PointToPoint);
        assert_eq!((protocol_of(AmId(3)), protocol_of(AmId(99))), (Protocol::Reserved, Protocol::Unknown));
    }

    #[test]
    fn a_message_of_no_protocol_is_evidence_against_its_sender() {
        for id in [AmId(3), AmId(99)] {
            let mut peer_reports: PeerReports<u32> = PeerReports::new(Job(1), 2, 0);
            let nothing: &[u8] = &[];
            let mut member_protocols = MemberProtocols::default();
            let mut heartbeats = Heartbeats::default();
            let mut up = Dispatch {
                peer_reports: &mut peer_reports,
                member_protocols: &mut member_protocols,
                heartbeats: &mut heartbeats,
            };
            up.on_message(PeerIndex(1), id, &[], nothing.into());
            assert!(!peer_reports.is_empty());
        }
    }
}
