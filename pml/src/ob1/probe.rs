// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finding a message without taking it (MPI-5.0 §3.8.1), and questions about a request.

use super::Ob1;
use super::peer_end::is_orphaned_rts;
use crate::request::{Channel, Error, Owner, Request, State, Status};
use crate::request_table::{Phase, Posted};
use mend_base::{Source, TagSelector};
use mend_transport::Btl;

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// The message that such a receive would take, if one has come. `Err`: it never will, since the peer that the receive
    /// names has ended, or a failure is pending, since a member failed and is not acknowledged (Row PP9): what is here comes
    /// first. Searches what `progress` has brought, and moves nothing itself.
    pub fn probe<N: Btl<Endpoint = E>>(
        &mut self,
        _net: &mut N,
        on: Channel,
        from: Source,
        tag: TagSelector,
    ) -> Result<Option<Status>, Error> {
        let channel = self.channels.get(on.0).ok_or(Error::NoSuchChannel)?;
        if let Source::Rank(rank) = from
            && channel.members.peer(rank).is_none()
        {
            return Err(Error::NoSuchRank(rank));
        }
        if let Some((_, message)) = self.find_unexpected(channel, from, tag) {
            if is_orphaned_rts(&self.peers, &channel.members, message)
                && let Some(error) = self.why_never(on.0, from)
            {
                mend_base::reach!("pml.probe: the RTS of an ended peer");
                return Err(error);
            }
            mend_base::reach!("pml.probe: found");
            let (source, tag, bytes) = (Some(message.source), message.tag, message.bytes());
            return Ok(Some(Status { source, tag, bytes, cancelled: false }));
        }
        let never = match from {
            Source::Rank(_) => self.why_never(on.0, from),
            Source::Any => self.pending_failure(on.0),
        };
        if never.is_none() {
            self.search.on_probe(on.0, from);
        }
        never.map_or(Ok(None), Err)
    }

    /// How far a request is.
    pub fn poll(&self, request: Request) -> State {
        let Some(entry) = self.requests.get(request.0) else { return State::Done(Err(Error::NoSuchRequest)) };
        match *entry.phase() {
            Phase::Done(result) => State::Done(result),
            // Row PP10.
            Phase::Posted(Posted { from: Source::Any, .. })
                if self.pending_failure(entry.channel()).is_some() =>
            {
                State::Stalled
            }
            _ => State::Running,
        }
    }

    /// To whom a request belongs; `None`: its handle was given back, or never existed.
    #[inline]
    pub fn owner(&self, request: Request) -> Option<Owner> {
        self.requests.owner(request.0)
    }

    /// How many operations are active on a channel: counted, so the question costs nothing.
    pub fn active(&self, on: Channel) -> u32 {
        if self.channels.get(on.0).is_some() { self.requests.active(on.0) } else { 0 }
    }

    /// How a rank is reached, if it is connected: for polls of its ring between calls of progress.
    pub fn endpoint(&self, on: Channel, rank: mend_base::Rank) -> Option<E> {
        let peer = self.channels.get(on.0)?.members.peer(rank)?;
        Some(self.peers.link(peer)?.endpoint)
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
