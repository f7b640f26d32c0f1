// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The polling receive: a message that arrives within some 2 us is copied from the ring of its sender to the user's buffer, and the receive
//! never enters a match list.

use crate::world::Engine;
use mend_base::{Source, TagSelector};
use mend_datatype::TypedBuffer;
use mend_mpi::{CommKey, Error, Started};

// Hot: per message.
/// Starts a receive: polls the ring of a named sender `polls` times, and posts the receive if no message came.
#[inline(always)]
pub fn poll_then_post(
    engine: &mut Engine,
    comm: CommKey,
    from: Source,
    tag: TagSelector,
    data: TypedBuffer,
    polls: u32,
) -> Result<Started, Error> {
    let mut polling = engine.begin_polling(comm, from, tag, data)?;
    if polling.has_ring() {
        for poll in 0..polls {
            if let Some(started) = engine.poll_once(&mut polling) {
                return started;
            }
            if poll == 0 && !engine.can_poll(&polling) {
                break;
            }
        }
    }
    engine.post(polling)
}
