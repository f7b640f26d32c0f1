// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finding a message without taking it (MPI-5.0 §3.8.1), and questions about a request.

use super::Ob1;
use crate::ends::Ends;
use crate::request::{Channel, CommIndex, Error, Request, State, Status};
use crate::request_table::{Phase, Posted};
use mend_base::{Key, Source, TagSelector};

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// Finds the message that such a receive would take, among those that `progress` has brought. `Err` where there is none and
    /// the peer that the receive names has ended, or, for a wildcard, a failure is pending (Row PP9); and where the communicator is
    /// revoked (Row RV15).
    pub fn probe(
        &mut self,
        on: Channel,
        from: Source,
        tag: TagSelector,
        ends: &Ends,
    ) -> Result<Option<Status>, Error> {
        let channel = self.channels.get(on.0).ok_or(Error::NoSuchChannel)?;
        if let Source::Rank(rank) = from
            && channel.members.peer(rank).is_none()
        {
            return Err(Error::NoSuchRank(rank));
        }
        if let Some((_, message)) = self.find_unexpected(channel, from, tag) {
            if message.is_lost()
                && let Some(error) = self.why_never(on.0, from, ends)
            {
                mend_base::reach!("pml.probe: the RTS of an ended peer");
                return Err(error);
            }
            mend_base::reach!("pml.probe: found");
            let (source, tag, bytes) = (Some(message.source), message.tag, message.bytes());
            return Ok(Some(Status { source, tag, bytes, cancelled: false }));
        }
        let never = match from {
            Source::Rank(_) => self.why_never(on.0, from, ends),
            Source::Any if channel.is_revoked() => Some(Error::Revoked),
            Source::Any => self.pending_failure(on, ends).map(Error::ProcFailed),
        };
        if never.is_none() {
            self.search.on_probe(on.0, from);
        }
        never.map_or(Ok(None), Err)
    }

    /// How far a request is.
    pub fn poll(&self, request: Request, ends: &Ends) -> State {
        let Some(entry) = self.requests.get(request.0) else { return State::Done(Err(Error::NoSuchRequest)) };
        match *entry.phase() {
            Phase::Done(result) => State::Done(result),
            // Row PP10.
            Phase::Posted(Posted { from: Source::Any, .. })
                if self.has_pending_failure(entry.channel(), ends) =>
            {
                State::PendingFailure
            }
            _ => State::Running,
        }
    }

    /// Whether a failure is pending for the wildcard receives of a channel.
    pub(super) fn has_pending_failure(&self, channel: Key, ends: &Ends) -> bool {
        self.channels.get(channel).is_some_and(|channel| channel.members.has_pending_failure(ends))
    }

    /// To whom a request belongs; `None`: its handle was given back, or never existed.
    #[inline]
    pub fn comm(&self, request: Request) -> Option<CommIndex> {
        self.requests.comm(request.0)
    }

    /// How many operations are active on a channel.
    pub fn active(&self, on: Channel) -> u32 {
        if self.channels.get(on.0).is_some() { self.requests.active(on.0) } else { 0 }
    }

    /// Whether an operation on a channel is active that does not wait for the program: a receive from any source may have a pending
    /// failure, or be unsatisfiable, until the program acknowledges, cancels or sends. Takes time for each request of the process.
    #[cold]
    pub fn has_running(&self, on: Channel, ends: &Ends) -> bool {
        let runs = |key| {
            self.poll(Request(key), ends) == State::Running && !self.is_unsatisfiable(Request(key), ends)
        };
        self.active(on) > 0 && self.requests.iter().any(|(key, entry)| entry.channel() == on.0 && runs(key))
    }

    /// How a rank is reached, if it is connected: for polls of its ring between calls of progress.
    pub fn endpoint(&self, on: Channel, rank: mend_base::Rank) -> Option<E> {
        let peer = self.channels.get(on.0)?.members.peer(rank)?;
        Some(self.peers.link(peer)?.endpoint)
    }

    /// What a posted receive admits, for reports. `None`: the request is no posted receive.
    pub fn admits(&self, request: Request) -> Option<(Source, TagSelector)> {
        match *self.requests.get(request.0)?.phase() {
            Phase::Posted(Posted { from, tag, .. }) => Some((from, tag)),
            _ => None,
        }
    }

    /// Where the message of a posted receive that names its sender will come.
    pub fn awaited_from(&self, request: Request) -> Option<E> {
        let entry = self.requests.get(request.0)?;
        match *entry.phase() {
            Phase::Posted(Posted { from: Source::Rank(rank), .. }) => {
                self.endpoint(Channel(entry.channel()), rank)
            }
            _ => None,
        }
    }
}
