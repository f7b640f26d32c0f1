// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The start and progress of collective operations.

use super::Engine;
use crate::collective::Begun;
use crate::{CommKey, Error, Request, Started};
use mend_coll::Collective;
use mend_runtime::Runtime;
use mend_transport::Btl;

impl<N: Btl, R: Runtime> Engine<N, R> {
    /// Starts a collective operation. All members start the same ones in the same order (MPI-5.0 §6.1).
    pub fn collective(&mut self, comm: CommKey, call: Collective) -> Result<Started, Error> {
        let (collectives, mut parts) = self.collectives_and_parts();
        let begun = collectives.start(comm, call, &mut parts)?;
        self.unconnected_query.begin_wait();
        Ok(match begun {
            Begun::Done(status) => Started::Done(status),
            Begun::Running(key) => {
                self.communicators.add_request(comm);
                Started::Running(Request::Collective(key))
            }
        })
    }

    /// Makes progress on collective operations. Returns how many ended.
    pub(super) fn progress_collectives(&mut self) -> u32 {
        let (collectives, mut parts) = self.collectives_and_parts();
        let ended = collectives.progress(&mut parts);
        if let Some(collective) = self.expected_senders.collective() {
            self.expected_senders.clear();
            self.expect_rounds(collective);
        }
        ended
    }
}
