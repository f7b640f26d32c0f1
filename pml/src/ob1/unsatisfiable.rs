// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wildcard receives and probes that nothing can satisfy: all other members have ended, and no message of this process to
//! itself is under way. A call that waits ends with an error if no other thread of this process can send. A test does not, since
//! the process may still send to itself the message that it tests for (Row PP17).

use super::Ob1;
use crate::ends::{End, Ends};
use crate::request::{Channel, Error, Request};
use crate::request_table::{Phase, Posted, RequestEntry};
use mend_base::{Key, Rank, Source};

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// The error of a wildcard receive or probe on this channel, if no member can send any more.
    pub fn unsatisfiable(&self, on: Channel, ends: &Ends) -> Option<Error> {
        let channel = self.channels.get(on.0).filter(|channel| channel.members.all_others_ended())?;
        let queues_one = channel.members.own().is_some_and(|own| self.queues_one_to_itself(on.0, own));
        if channel.has_own_message_under_way() || queues_one {
            mend_base::reach!("pml.end: all others have ended, but our own message is under way");
            return None;
        }
        self.last_end(on.0, ends)
    }

    /// Whether any receive may be unsatisfiable: on some channel all other members have ended.
    #[inline]
    pub fn some_may_be_unsatisfiable(&self) -> bool {
        self.some_unsatisfiable
    }

    /// Whether this is an unsatisfiable receive: posted, a wildcard, without a pending failure.
    #[inline]
    pub fn is_unsatisfiable(&self, request: Request, ends: &Ends) -> bool {
        self.some_unsatisfiable && self.why_unsatisfiable(request, ends).is_some()
    }

    #[cold]
    fn why_unsatisfiable(&self, request: Request, ends: &Ends) -> Option<Error> {
        let entry = self.requests.get(request.0)?;
        let Phase::Posted(Posted { from: Source::Any, .. }) = *entry.phase() else { return None };
        if self.has_pending_failure(entry.channel(), ends) {
            mend_base::reach!("pml.end: all others have ended, but a failure is pending");
            return None;
        }
        self.unsatisfiable(Channel(entry.channel()), ends)
    }

    /// Ends a receive if it is unsatisfiable. Returns whether it was. The caller waits for it, and no other thread of this
    /// process can send.
    pub fn end_unsatisfiable(&mut self, request: Request, ends: &Ends) -> bool {
        let error = if self.some_unsatisfiable { self.why_unsatisfiable(request, ends) } else { None };
        if let Some(error) = error {
            mend_base::reach!("pml.end: an unsatisfiable receive");
            self.end_request(request.0, error);
        }
        error.is_some()
    }

    /// Whether a message to this process itself waits to be sent.
    fn queues_one_to_itself(&self, channel: Key, me: Rank) -> bool {
        let queued = |entry: &RequestEntry| matches!(*entry.phase(), Phase::Queued { to, .. } if to == me);
        self.requests.active(channel) > 0
            && self.requests.iter().any(|(_, entry)| entry.channel() == channel && queued(entry))
    }

    /// The error for the highest rank that failed, or, where none failed, for the highest rank that ended.
    fn last_end(&self, channel: Key, ends: &Ends) -> Option<Error> {
        let members = &self.channels.get(channel)?.members;
        let ended = members.iter().filter_map(|(rank, peer)| {
            let end = ends.of(peer)?;
            Some((end == End::Failed, end.error(rank)))
        });
        ended.reduce(|best, next| if best.0 && !next.0 { best } else { next }).map(|(_, error)| error)
    }
}
