// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a revocation changes. The engine revokes both channels of a communicator, point-to-point and collective, when the program
//! calls for it or when the news comes from another process; a creation channel is never revoked.
//!
//! Only the receiver of a message knows whether a receive has matched it, so the receiver decides:
//!
//! | operation, or message | when the channel is revoked here, and later |
//! |---|---|
//! | receive without a match, probe | ends with `Revoked` |
//! | receive with a match, stream at either end, gets | goes on to its end |
//! | send that is queued | leaves the queue and ends with `Revoked`: it has no sequence number yet (I6) |
//! | send without an answer | goes on: the receiver answers that it is matched or refused, or the receiver ends |
//! | message without a receive: unexpected, early, or one that arrives later | is dropped; a sender that waits is refused with `Reason::Revoked` |
//! | send that is refused with `Reason::Revoked` | ends with `Revoked`, whether the channel is revoked here or not (Row RV8) |
//!
//! So a synchronous or large send that succeeds has its receive, whichever of refusal and notice of the revocation comes first. An
//! operation on a revoked channel that another process prevents from its end, by its failure for example, ends with `Revoked` too
//! (Row RV10).
//!
//! The path of a short message has no check for this. A send finds its route without an endpoint, as that to a peer that is not
//! connected; a message finds its match list in the state in which an id that is not announced leaves it (`matcher`).

use super::Ob1;
use crate::request::{Channel, Error};
use crate::request_table::Phase;

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// The communicator of this channel is revoked: for ever, and again without effect. What is done with each operation and message
    /// is stated in `ob1/revoke.rs`. The sleepers of requests that end are reported by [`next_to_wake`](Ob1::next_to_wake).
    pub fn revoke(&mut self, on: Channel) {
        let Some(channel) = self.channels.get_mut(on.0) else { return };
        let revocable = channel.is_point_to_point() || channel.is_collective();
        if !revocable || !channel.revoke() {
            return debug_assert!(revocable, "a creation channel is never revoked");
        }
        self.drop_unread(on.0);
        self.forget_operations(on.0);
        let of_channel = self.requests.iter().filter(|(_, entry)| entry.channel() == on.0);
        let ended: Vec<_> = of_channel
            .filter_map(|(key, entry)| match *entry.phase() {
                Phase::Queued { to, .. } => Some((key, Some(to))),
                Phase::Posted(_) => Some((key, None)),
                Phase::RtsSent { .. }
                | Phase::Releasing { .. }
                | Phase::Streaming { .. }
                | Phase::CancelQueued { .. }
                | Phase::AboutOperation { .. }
                | Phase::Matched { .. }
                | Phase::Done(_) => None,
            })
            .collect();
        for (key, queued_to) in ended {
            if let Some(to) = queued_to {
                self.dequeue(on.0, to, key);
            }
            self.end_request(key, Error::Revoked);
        }
    }

    /// Whether the communicator of this channel is revoked here.
    pub fn is_revoked(&self, on: Channel) -> bool {
        self.channels.get(on.0).is_some_and(|channel| channel.is_revoked())
    }
}
