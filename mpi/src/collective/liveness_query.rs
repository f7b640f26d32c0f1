// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which members may have failed, before an operation ends with an error that names another cause (Row CO1, I2).
//!
//! A member has finalized without its part of a collective operation, or has freed the communicator. Either the program is wrong, or
//! another member has failed and this member was notified of the failure before this process: then the error must name the failed
//! member. So the operation ends with `PeerLeft` or `PeerFreed` only after each other member is known to live, or its end is published.
//!
//! Poison names the failed member that is its cause, so the query is about that member alone.

use super::Parts;
use crate::CommKey;
use crate::peer_reports::{EndState, PeerReports};
use mend_base::PeerIndex;
use mend_runtime::Runtime;
use mend_transport::{Cause, Rdma};
use std::collections::BTreeMap;

/// The members that may have failed, each with the number of answers of the runtime that this query needs.
#[derive(Debug)]
pub(crate) struct LivenessQuery {
    unanswered: BTreeMap<PeerIndex, u32>,
}

impl LivenessQuery {
    /// Asks the runtime about every other member of the communicator.
    #[cold]
    pub fn begin<N: Rdma, R: Runtime>(comm: CommKey, parts: &mut Parts<'_, N, R>) -> Self {
        mend_base::reach!("mpi.collective: a member left or freed the communicator");
        let mut query = LivenessQuery { unanswered: BTreeMap::new() };
        let members = parts.communicators.get(comm).map(|entry| entry.members().clone());
        for &member in members.iter().flat_map(|members| members.iter()) {
            if parts.peer_reports.peer(member) != parts.layers.runtime.membership().peer {
                query.add(member, parts);
            }
        }
        query
    }

    /// Asks the runtime about every other process of these.
    #[cold]
    pub fn about_all<N: Rdma, R: Runtime>(members: &[PeerIndex], parts: &mut Parts<'_, N, R>) -> Self {
        mend_base::reach!("mpi.collective: about both groups");
        let mut query = LivenessQuery { unanswered: BTreeMap::new() };
        let me = parts.layers.runtime.membership().peer;
        for &member in members {
            if parts.peer_reports.peer(member) != me {
                query.add(member, parts);
            }
        }
        query
    }

    /// Asks the runtime about one member, which has failed as another member says.
    #[cold]
    pub fn about<N: Rdma, R: Runtime>(member: PeerIndex, parts: &mut Parts<'_, N, R>) -> Self {
        mend_base::reach!("mpi.collective: poison names a failed member");
        let mut query = LivenessQuery { unanswered: BTreeMap::new() };
        query.add(member, parts);
        query
    }

    fn add<N: Rdma, R: Runtime>(&mut self, member: PeerIndex, parts: &mut Parts<'_, N, R>) {
        match parts.peer_reports.end_state(member) {
            EndState::Published => {}
            EndState::Declared => _ = self.unanswered.insert(member, 1),
            // The answer to the earlier query may be older than a failure: this query is sent after that answer.
            EndState::NotDeclared { query_open: true } => _ = self.unanswered.insert(member, 2),
            EndState::NotDeclared { query_open: false } => {
                self.unanswered.insert(member, 1);
                parts.peer_reports.ask(member, Cause::NoEvidence, &mut parts.layers.runtime);
            }
        }
    }

    /// Whether each member is known to live, or its end is published.
    pub fn is_answered<E: Copy + Eq + core::fmt::Debug>(&self, peer_reports: &PeerReports<E>) -> bool {
        let published = |member| peer_reports.end_state(member) == EndState::Published;
        self.unanswered.iter().all(|(&member, &answers)| answers == 0 || published(member))
    }

    /// The runtime has answered that `member` lives. Returns whether it must be asked again, since the answer was to an earlier query.
    pub fn on_alive(&mut self, member: PeerIndex) -> bool {
        let Some(answers) = self.unanswered.get_mut(&member) else { return false };
        *answers = answers.saturating_sub(1);
        *answers > 0
    }
}

/// Asks about a member again, after the answer to an earlier query.
#[cold]
pub(crate) fn ask_again<N: Rdma, R: Runtime>(member: PeerIndex, parts: &mut Parts<'_, N, R>) {
    mend_base::reach!("mpi.collective: asked again, after an earlier query");
    parts.peer_reports.ask(member, Cause::NoEvidence, &mut parts.layers.runtime);
}

#[cfg(test)]
mod tests {
    use super::LivenessQuery;
    use crate::peer_reports::PeerReports;
    use mend_base::{Job, PeerIndex};

    #[test]
    fn a_query_after_an_unanswered_one_needs_two_answers() {
        let peer_reports: PeerReports<u32> = PeerReports::new(Job(1), 3, 0);
        let mut query = LivenessQuery { unanswered: [(PeerIndex(1), 2), (PeerIndex(2), 1)].into() };
        assert!(!query.is_answered(&peer_reports));
        assert!(query.on_alive(PeerIndex(1)));
        assert!(!query.on_alive(PeerIndex(2)));
        assert!(!query.is_answered(&peer_reports));
        assert!(!query.on_alive(PeerIndex(1)));
        assert!(query.is_answered(&peer_reports));
    }
}
