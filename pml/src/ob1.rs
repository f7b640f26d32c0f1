// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Point-to-point of one process: the parts, and what is routed between them when the transport is polled. The other events
//! are in the files of `ob1/`.

mod abandon;
mod arrival;
mod cancel;
mod channels;
mod exposures;
mod flush;
mod gets;
mod lost_messages;
pub(crate) mod open_counts;
mod operations;
mod peer_end;
pub(crate) mod polling_receive;
mod probe;
mod receive;
mod revoke;
mod search;
mod send;
mod streams;
mod unsatisfiable;

#[cfg(test)]
mod tests;

use crate::channel::ChannelState;
use crate::config::Config;
use crate::context_table::ContextTable;
use crate::cookies::{Step, step_of};
use crate::envelope::{AM_ID, Packet, Reason};
use crate::exposures::Exposures;
use crate::gets::Gets;
use crate::matcher::Matcher;
use crate::peer_table::PeerTable;
use crate::receive_budget::ReceiveBudget;
use crate::rendezvous::Rendezvous;
use crate::request_table::RequestTable;
use crate::send_queues::SendQueues;
use crate::unconnected::UnconnectedSearch;
use crate::upcalls::Upcalls;
use mend_base::{Instant, PeerIndex, Slab};
use mend_transport::{AmId, Cause, Cookie, Payload, Rdma, SendError, Sink, Stream};

/// Point-to-point of one process. `E` is the transport's endpoint.
///
/// `send` and `receive` start an operation, `progress` moves all of them, `poll` says how far one is, and `release`,
/// `free_request` or `continue_from_copy` gives its handle back. `on_end` ends those that need a peer which has ended. If
/// [`must_progress`](Ob1::must_progress) is true after a start, a cancellation or `free_request`, the caller makes progress
/// before it returns to the program.
#[derive(Debug)]
pub struct Ob1<E> {
    config: Config,
    channels: Slab<ChannelState<E>>,
    requests: RequestTable,
    matcher: Matcher,
    queues: SendQueues,
    budget: ReceiveBudget,
    rendezvous: Rendezvous,
    exposures: Exposures,
    gets: Gets,
    contexts: ContextTable,
    peers: PeerTable<E>,
    search: UnconnectedSearch,
    /// On some channel all other members had ended: a wildcard receive there may be unsatisfiable.
    some_unsatisfiable: bool,
}

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// No channel, no peer; allocates nothing.
    pub fn new(config: Config) -> Self {
        Ob1 {
            config,
            channels: Slab::new(),
            requests: RequestTable::default(),
            matcher: Matcher::default(),
            queues: SendQueues::default(),
            budget: ReceiveBudget::new(config.held_bytes_max, config.eager_bytes),
            rendezvous: Rendezvous::new(config.streams_max),
            exposures: Exposures::default(),
            gets: Gets::default(),
            contexts: ContextTable::default(),
            peers: PeerTable::default(),
            search: UnconnectedSearch::default(),
            some_unsatisfiable: false,
        }
    }

    // Hot: per progress.
    /// Polls the transport, then flushes the send queues. Returns the number of events.
    pub fn progress<N: Rdma<Endpoint = E>>(
        &mut self,
        net: &mut N,
        now: Instant,
        up: &mut impl Upcalls<E>,
    ) -> u32 {
        self.queues.on_progress();
        let budget = self.config.events_per_progress;
        let mut events = net.progress(now, budget, &mut Inlet { ob1: self, up });
        if self.queues.has_flush_pending() {
            events += self.flush_all(net);
        }
        if self.peers.has_evidence() {
            self.peers.report(|peer, endpoint, cause| up.on_error(peer, endpoint, cause));
        }
        events
    }

    /// Whether so many operations were started since the last call of progress that one is due: without it a program that
    /// only starts operations would neither send them nor receive anything. It holds until progress is made.
    #[inline]
    pub fn must_progress(&self) -> bool {
        self.queues.must_progress()
    }

    // Hot: per message.
    #[inline]
    fn on_packet(&mut self, from: PeerIndex, header: &[u8], payload: Payload<'_>, up: &mut impl Upcalls<E>) {
        if self.peers.is_discarding(from) {
            return;
        }
        match Packet::read(header) {
            Some(Packet::Message(envelope)) => self.on_message(from, envelope, payload),
            Some(Packet::Fragment { stream }) => self.on_piece(from, stream, payload),
            Some(packet) if payload.is_empty() => self.on_control(from, packet, up),
            _ => self.garbage(from),
        }
    }

    fn on_control(&mut self, from: PeerIndex, packet: Packet, up: &mut impl Upcalls<E>) {
        match packet {
            Packet::Cts { key, stream, bytes_wanted } => self.on_cts(from, key, stream, bytes_wanted),
            Packet::Cancel { stream, sent } => self.on_cancel_stream(from, stream, sent),
            Packet::Matched { key } => self.on_matched(from, key),
            Packet::Fin { key, bytes } => self.on_fin(from, key, bytes),
            Packet::Refused { key, reason: Reason::NeverBegins { failed } } => {
                self.on_never_begins(from, key, failed)
            }
            Packet::Refused { key, reason } => {
                if let Some(revoked) = self.on_refused(from, key, reason) {
                    up.on_revoked(from, revoked);
                }
            }
            Packet::AnnounceContext { name, context, rank, eager_bytes } => {
                self.on_announce_context(from, name, context, rank, eager_bytes)
            }
            Packet::RetireContext { name, context, rank } => {
                self.on_retire_context(from, name, context, rank)
            }
            Packet::ContextRetired { context } => self.on_context_retired(from, context),
            Packet::Xoff => self.queues.set_xoff(from, true),
            Packet::Xon => self.queues.set_xoff(from, false),
            Packet::CancelRts(envelope) => self.on_cancel_rts(from, envelope),
            Packet::AboutOperation(envelope, note) => self.on_about_operation(from, envelope, note),
            Packet::Message(_) | Packet::Fragment { .. } => unreachable!("they are no control messages"),
        }
    }

    /// An operation on remote memory has ended.
    fn on_done(&mut self, done: Cookie, result: Result<(), SendError>) {
        match step_of(done) {
            Step::Get(number) => self.on_get_done(done, number, result),
            // Whatever the result: the memory is accessed no more.
            Step::ReleaseGet => self.on_get_released(done),
            Step::ReleaseExposure => self.on_release_done(done),
        }
    }

    /// The peer wrote garbage: its messages are discarded from now on.
    #[cold]
    fn garbage(&mut self, peer: PeerIndex) {
        mend_base::reach!("pml.peers: garbage");
        self.peers.discard(peer, Cause::Garbage);
    }

    /// There is no memory for a message of the peer, or for one that it waits for: its messages are discarded from now on. A peer that
    /// is not connected is connected first, since only then can both ends be notified.
    #[cold]
    fn out_of_memory(&mut self, peer: PeerIndex) {
        mend_base::reach!("pml.peers: no memory for what it wrote");
        self.peers.discard(peer, Cause::NoMemory);
        self.peers.want(peer);
    }
}

/// What the transport calls while it is polled.
struct Inlet<'a, E, U> {
    ob1: &'a mut Ob1<E>,
    up: &'a mut U,
}

impl<E: Copy + Eq + core::fmt::Debug, U: Upcalls<E>> Sink<E> for Inlet<'_, E, U> {
    // Hot: per message.
    #[inline]
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>) {
        if id == AM_ID {
            self.ob1.on_packet(from, header, payload, self.up);
        } else {
            self.up.on_message(from, id, header, payload);
        }
    }

    fn on_chunk(&mut self, from: PeerIndex, stream: Stream, payload: Payload<'_>) {
        if !self.ob1.peers.is_discarding(from) {
            self.ob1.on_piece(from, stream, payload);
        }
    }

    fn on_done(&mut self, done: Cookie, result: Result<(), SendError>) {
        if done.owner() == AM_ID {
            self.ob1.on_done(done, result);
        } else {
            self.up.on_done(done, result);
        }
    }

    fn on_sendable(&mut self, to: PeerIndex, _endpoint: E) {
        self.ob1.schedule_flush(to);
        if self.ob1.gets.unblock(to) {
            self.ob1.queues.want_flush();
        }
    }

    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause) {
        self.up.on_error(peer, endpoint, cause);
    }

    fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        self.up.on_severed(peer, endpoint);
    }
}
