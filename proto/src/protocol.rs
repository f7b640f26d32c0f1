// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What every protocol among the members of one communicator has in common, so that one simulator and one model checker drive all
//! of them.
//!
//! A member is named by its rank. Messages from one member to another arrive in the order in which they were sent. A member that
//! has failed sends nothing more; its failure is published at each other member at its own time, after the last message that
//! arrives from it.

use mend_base::Rank;

/// One member's part of a protocol: it takes events, and adds what is to be done to an [`Output`].
pub trait Protocol {
    /// What members tell each other.
    type Message;
    /// What the owner of this part is told.
    type Outcome;

    /// A message has arrived from another member. What no correct member sends is ignored.
    fn on_message(
        &mut self,
        from: Rank,
        message: Self::Message,
        out: &mut Output<Self::Message, Self::Outcome>,
    );

    /// The failure of a member is published at this one: no message of it will arrive any more. A second call changes nothing.
    fn on_failure(&mut self, failed: Rank, out: &mut Output<Self::Message, Self::Outcome>);
}

/// What a protocol wants done. Its owner empties both lists after each event and keeps their memory.
#[derive(Clone, Debug)]
pub struct Output<M, O> {
    /// Messages to other members, to be sent in this order. The member may fail between two of them.
    pub sends: Vec<(Rank, M)>,
    /// Results, in order.
    pub outcomes: Vec<O>,
}

impl<M, O> Output<M, O> {
    /// Nothing to do yet.
    pub const fn new() -> Self {
        Output { sends: Vec::new(), outcomes: Vec::new() }
    }

    /// A message for another member.
    pub fn send(&mut self, to: Rank, message: M) {
        self.sends.push((to, message));
    }
}

impl<M, O> Default for Output<M, O> {
    fn default() -> Self {
        Self::new()
    }
}
