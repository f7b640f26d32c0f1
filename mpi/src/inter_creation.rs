// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What belongs to the creation of an intercommunicator that runs: its steps, the leader's exchange, and what is created.

use crate::leader_exchange::{LeaderExchange, Note};
use crate::{CommKey, Detail, Error};
use mend_base::{PeerIndex, Rank};
use mend_comm::Communicator;
use mend_transport::Buffer;
use std::sync::Arc;

/// The part of one member.
#[derive(Debug)]
pub(crate) struct InterCreation {
    /// The leader of the local communicator.
    pub leader: Rank,
    /// At a leader that can tell the other one something.
    pub side: Option<LeaderSide>,
    pub step: InterStep,
    /// The bytes of a note: what the leader broadcasts first, and then the result of the other group.
    pub header: Arc<Buffer>,
    /// The processes of the other group.
    pub list: Option<Arc<Buffer>>,
    pub plan: Option<Plan>,
    /// The communicator, hidden, once this member has made it.
    pub made: Option<CommKey>,
    /// Why this member gives up, if it has a reason of its own.
    pub error: Option<Error>,
}

/// What the leader has in addition.
#[derive(Debug)]
pub(crate) struct LeaderSide {
    pub exchange: LeaderExchange,
    pub peer_comm: CommKey,
    /// The number that the leader has drawn for the identity, if it has.
    pub number: Option<u32>,
}

/// What is created, with the peer indices of its members.
#[derive(Debug)]
pub(crate) struct Plan {
    pub communicator: Communicator,
    pub members: Arc<[PeerIndex]>,
}

/// How far a creation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InterStep {
    /// The leader broadcasts its note.
    Header,
    /// The leader broadcasts the other group.
    List,
    /// The first vote in the local communicator.
    First,
    /// The leader waits for the result of the other group, and broadcasts it.
    OtherGroup,
    /// The second vote in the local communicator.
    Second,
    /// The vote of both groups.
    Both,
}

impl InterCreation {
    /// The part of a member.
    pub fn new(leader: Rank) -> Result<InterCreation, Error> {
        let header = Buffer::try_zeroed(Note::BYTES).ok_or(Error::of(Detail::NoMemory))?;
        let step = InterStep::Header;
        Ok(InterCreation {
            leader,
            side: None,
            step,
            header,
            list: None,
            plan: None,
            made: None,
            error: None,
        })
    }
}
