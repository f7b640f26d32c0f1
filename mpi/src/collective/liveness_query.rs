// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a member has finalized without its part of a collective operation, or has given the operation up. Perhaps the program is
//! wrong, or the member has no memory or no connection to a third one. Or the member had been notified of a failure before this
//! process is: then the error must be that failure (Row CO1, I2). So `PeerLeft` and `PeerFreed` are not reported before each other
//! member is declared failed, or the runtime has answered that it lives.

use super::Context;
use crate::CommKey;
use crate::funnel::{EndState, Funnel};
use mend_base::PeerIndex;
use mend_runtime::Runtime;
use mend_transport::{Btl, Cause};
use std::collections::BTreeMap;

/// Members that may have failed, and how many times the runtime has yet to say that each lives.
#[derive(Debug)]
pub(super) struct LivenessQuery {
    unanswered: BTreeMap<PeerIndex, u32>,
}

impl LivenessQuery {
    /// Asks about every other member of the communicator.
    #[cold]
    pub fn begin<N: Btl, R: Runtime>(comm: CommKey, context: &mut Context<'_, N, R>) -> Self {
        mend_base::reach!("mpi.collective: a member left or gave up");
        let mut unanswered = BTreeMap::new();
        let members = context.communicators.get(comm).map(|entry| entry.members().clone());
        for &member in members.iter().flat_map(|members| members.iter()) {
            if context.funnel.peer(member) == context.layers.runtime.membership().peer {
                continue;
            }
            match context.funnel.end_state(member) {
                EndState::Published => {}
                EndState::Declared => _ = unanswered.insert(member, 1),
                // The answer to what was asked before may be older than the death: behind it we ask again.
                EndState::NotDeclared { query_open: true } => _ = unanswered.insert(member, 2),
                EndState::NotDeclared { query_open: false } => {
                    unanswered.insert(member, 1);
                    context.funnel.ask(member, Cause::Silent, &mut context.layers.runtime);
                }
            }
        }
        LivenessQuery { unanswered }
    }

    /// Whether every member has been heard of.
    pub fn is_answered<E: Copy + Eq + core::fmt::Debug>(&self, funnel: &Funnel<E>) -> bool {
        let published = |member| funnel.end_state(member) == EndState::Published;
        self.unanswered.iter().all(|(&member, &answers)| answers == 0 || published(member))
    }

    /// The runtime says that this one lives. Whether it must be asked again, behind an older question.
    pub fn on_alive(&mut self, member: PeerIndex) -> bool {
        let Some(answers) = self.unanswered.get_mut(&member) else { return false };
        *answers = answers.saturating_sub(1);
        *answers > 0
    }
}

/// The answer was to an older question.
#[cold]
pub(super) fn ask_again<N: Btl, R: Runtime>(member: PeerIndex, context: &mut Context<'_, N, R>) {
    mend_base::reach!("mpi.collective: asked again, behind an older question");
    context.funnel.ask(member, Cause::Silent, &mut context.layers.runtime);
}

#[cfg(test)]
mod tests {
    use super::LivenessQuery;
    use crate::funnel::Funnel;
    use mend_base::{Job, PeerIndex};

    #[test]
    fn a_query_behind_an_older_question_needs_two_answers() {
        let funnel: Funnel<u32> = Funnel::new(Job(1), 3, 0);
        let mut query = LivenessQuery { unanswered: [(PeerIndex(1), 2), (PeerIndex(2), 1)].into() };
        assert!(!query.is_answered(&funnel));
        assert!(query.on_alive(PeerIndex(1)));
        assert!(!query.on_alive(PeerIndex(2)));
        assert!(!query.is_answered(&funnel));
        assert!(!query.on_alive(PeerIndex(1)));
        assert!(query.is_answered(&funnel));
    }
}
