// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A member has finalized without its part of a collective operation. Perhaps the program is wrong. Or the member had
//! heard of a death, gave the operation up and left, all before the news came here: then the error must be the death's
//! (Row CO1). So nobody is blamed for leaving before each other member has been heard of: by a declaration, or by the
//! runtime's contribution that it lives.

use super::Stage;
use crate::contact::Contact;
use crate::{CommKey, Engine};
use mend_base::PeerIndex;
use mend_runtime::Runtime;
use mend_transport::{Btl, Cause};
use std::collections::BTreeMap;

/// An operation that is over but for the reason.
#[derive(Debug)]
pub(super) struct LivenessQuery {
    /// Members that may have failed, and how many times the runtime has yet to say that each lives.
    unanswered: BTreeMap<PeerIndex, u32>,
}

impl<N: Btl, R: Runtime> Engine<N, R> {
    /// Asks about everybody of the communicator.
    #[cold]
    pub(super) fn query_liveness(&mut self, comm: CommKey) -> LivenessQuery {
        mend_base::reach!("mpi.collective: a member left without its part");
        let mut unanswered = BTreeMap::new();
        let members = self.communicators.get(comm.0).map(|entry| entry.members.clone());
        for &member in members.iter().flat_map(|members| members.iter()) {
            if self.contacts.peer(member) == self.runtime.membership().peer {
                continue;
            }
            match self.contacts.state(member) {
                Some(Contact::Gone(_)) => continue,
                // Judged, and published soon.
                Some(Contact::Severing { .. } | Contact::Drained { .. }) => _ = unanswered.insert(member, 1),
                None | Some(Contact::Asked | Contact::Connected { .. }) => {
                    // The answer to what was asked before may be older than the death: behind it we ask again.
                    let asked = self.contacts.is_questioned(member);
                    unanswered.insert(member, if asked { 2 } else { 1 });
                    if !asked {
                        self.ask(member, Cause::Silent);
                    }
                }
            }
        }
        LivenessQuery { unanswered }
    }

    /// Whether everybody has been heard of.
    pub(super) fn is_answered(&self, doubt: &LivenessQuery) -> bool {
        let declared = |member| matches!(self.contacts.state(member), Some(Contact::Gone(_)));
        doubt.unanswered.iter().all(|(&member, &answers)| answers == 0 || declared(member))
    }

    /// The runtime says that this one lives.
    pub(crate) fn declared_alive(&mut self, member: PeerIndex) {
        let mut again = false;
        for key in &self.active {
            if let Some(running) = self.collectives.get_mut(*key)
                && let Stage::Active(active) = &mut running.stage
                && let Some(answers) =
                    active.doubt.as_mut().and_then(|doubt| doubt.unanswered.get_mut(&member))
            {
                *answers = answers.saturating_sub(1);
                again |= *answers > 0;
            }
        }
        if again {
            mend_base::reach!("mpi.collective: asked again, behind an older question");
            self.ask(member, Cause::Silent);
        }
    }
}
