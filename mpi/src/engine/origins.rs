// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Communicators that exist at other members only (`mpi_error_uniform` = `local`; [`crate::origin`]): this process finds out that it will
//! never have one, and answers as if it had freed it. Otherwise the protocols of the others would wait for it until it leaves MPI.
//!
//! The creations over a parent are in the same order at all members, so the number of the exchange says which call of this process would
//! have made the communicator. It never will if that call is over, or if no call on the parent begins any more.

use super::Engine;
use crate::communicator::CommEntry;
use crate::member_protocols::Gone;
use crate::origin::{Exchange, Origin};
use mend_base::Peer;
use mend_pml::{Ends, Lookup};
use mend_runtime::Runtime;
use mend_transport::Rdma;

impl<N: Rdma, R: Runtime> Engine<N, R> {
    /// Looks at the communicators of early messages, if something has changed on which it depends whether this process will have them.
    pub(super) fn refuse_lost_communicators(&mut self) {
        for (identity, origin) in self.member_protocols.take_origins_to_recheck() {
            if self.is_lost(origin)
                && let Some(identity) = self.communicators.never_create(identity, &mut self.layers)
            {
                mend_base::reach!("mpi.origins: a communicator that this member will never have");
                self.member_protocols.deliver_early(identity);
                // It may be the parent of others.
                self.member_protocols.recheck_early();
            }
        }
    }

    /// Whether no call of this process makes a communicator of this origin any more.
    fn is_lost(&self, origin: Origin) -> bool {
        let comm = match self.layers.pml.find_communicator(origin.parent) {
            Lookup::NotCreated => return false,
            Lookup::Retired { .. } => return true,
            Lookup::Open(index) => self.communicators.with_identity(index, origin.parent),
        };
        let Some((comm, entry)) = comm.and_then(|comm| Some((comm, self.communicators.get(comm)?))) else {
            return true;
        };
        if self.creations.may_make(origin) {
            return false;
        }
        let begins_none = entry.is_freed() || entry.is_revoked();
        let (pml, channel) = (&self.layers.pml, entry.collective());
        match origin.exchange {
            Exchange::Collective(tag) => {
                begins_none || pml.broken_by(channel).is_some() || pml.has_begun(channel, tag)
            }
            // A shrink of this process may still run on the freed communicator, and may begin on one that is not freed, revoked or not.
            Exchange::Shrink => entry.is_freed() && !self.agreements.operations().runs_on(comm),
            Exchange::Group { gone } => begins_none || gone.is_some_and(|gone| self.is_gone(gone)),
        }
    }

    /// Whether it is published here that this process has failed or left MPI.
    fn is_gone(&self, peer: Peer) -> bool {
        let end = self.peer_reports.find(peer).and_then(|index| self.ends.of(index));
        end.and_then(Gone::of).is_some()
    }
}

/// The origin of a communicator that may exist at some members only, with what is known here of its members.
pub(super) fn known_origin(entry: &CommEntry, ends: &Ends) -> Option<Origin> {
    let origin = entry.origin()?;
    let Exchange::Group { .. } = origin.exchange else { return Some(origin) };
    let is_gone = |end| Gone::of(end).is_some();
    let first = entry.members().iter().position(|&member| ends.of(member).is_some_and(is_gone));
    let gone = first.and_then(|at| entry.communicator().everyone().iter().nth(at));
    Some(Origin { exchange: Exchange::Group { gone }, ..origin })
}
