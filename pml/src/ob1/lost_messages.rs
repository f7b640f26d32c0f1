// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Large messages that the death of their sender cut short: the RTS has come and is unexpected, and the payload never will.
//!
//! A receive that names the sender and would match the RTS takes it and ends with the error of the sender's end. A wildcard receive
//! waits for other members too, so the RTS does not end it. Does the receive match a later, complete message of the same sender?
//!
//! - *Before the failure is acknowledged it does not.* The program would get the second of two messages, which it may take for the
//!   first, with success and without any sign of the loss: large data lost, the short message that announces its end received. So
//!   the later message is hidden, the receive has a pending failure, as if that message were not here, and the program learns of the
//!   failure first (Rows PP9, PP10, PP13).
//! - *After the acknowledgement it does.* The program knows then that messages of the sender may be lost, a complete message must be
//!   delivered (Row PP7), and the failure must not stop wildcard receives any more (Row AK7): neither may the RTS end them, nor may
//!   they wait for ever. Wildcard receives that are posted then match what was hidden, in the order of posting.
//! - The end of a peer that finalized or cannot be reached is never acknowledged: its RTSes are passed over at once.
//!
//! Since there is revocation, no process depends on a wildcard receive to learn that another one gave up. So an error of the
//! receive for each lost RTS, also after the acknowledgement, would gain nothing, and break Row AK7. A receive that names the sender and
//! takes the RTS uncovers what is behind it too: its error has told the program of the loss.

use super::Ob1;
use crate::ends::{End, Ends};
use crate::matcher::Loss;
use crate::request_table::{Phase, Posted};
use mend_base::{Key, Source};

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// A peer has ended: on all channels.
    pub(super) fn find_lost_messages(&mut self, ends: &Ends) {
        let channels = self.channels.iter().filter(|(_, channel)| channel.matching.has_unexpected());
        let channels: Vec<_> = channels.map(|(key, _)| key).collect();
        for key in channels {
            self.update_losses(key, ends);
        }
    }

    /// Determines which unexpected messages of a channel are lost and which of these hide others. Whether a message that was hidden
    /// is not any more.
    pub(super) fn update_losses(&mut self, channel: Key, ends: &Ends) -> bool {
        let Some(channel) = self.channels.get(channel) else { return false };
        if ends.none() || !channel.matching.has_unexpected() {
            return false;
        }
        let members = &channel.members;
        self.matcher.update_losses(&channel.matching, |source| {
            let end = members.peer(source).and_then(|peer| Some((peer, ends.of(peer)?)));
            match end {
                None => Loss::None,
                Some((peer, End::Failed)) if members.is_pending(peer, ends) => Loss::Hides,
                Some((_, End::Failed | End::Finalized | End::Unreachable(_))) => Loss::Passed,
            }
        })
    }

    /// Messages that were hidden are not any more: the posted wildcard receives match them.
    pub(super) fn match_uncovered(&mut self, channel: Key) {
        let mut waiting: Vec<(u64, Key, Posted)> = self
            .requests
            .iter()
            .filter(|(_, entry)| entry.channel() == channel)
            .filter_map(|(key, entry)| match *entry.phase() {
                Phase::Posted(posted) if posted.from == Source::Any => Some((posted.stamp, key, posted)),
                _ => None,
            })
            .collect();
        waiting.sort_unstable_by_key(|&(stamp, ..)| stamp);
        for (_, request, posted) in waiting {
            if let Some(message) = self.take_unexpected(channel, posted.from, posted.tag) {
                mend_base::reach!("pml.end: a posted wildcard receive takes what a lost message had hidden");
                self.unpost(channel, posted, request);
                self.deliver_unexpected(request, channel, message);
            }
        }
    }
}
