// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A [`Btl`] behind a pointer, for transports whose messages take much longer than a call through a pointer.

use crate::{
    AmId, Atomic, Btl, Card, ConnectError, Cookie, EventPending, Exposure, Limits, MessageClass,
    PayloadWriter, Rdma, Region, RegisterError, Remote, RemoteAccess, RemoteKey, SendError, Sink, Span,
    Stream, UserMemory, WakeSet,
};
use mend_base::{Instant, PeerIndex};

/// [`Btl`] and [`Rdma`] in an object-safe form, with `u32` as endpoint. Each method has the contract of their method with the same
/// name, also where a peer dies; one line below says what it is for.
///
/// Do not implement this trait: implement [`Btl`] with a `u32` endpoint and [`Rdma`], and the BTL is a `Network`. There is no counterpart of
/// `has_message` and `take_message`: a [`Bml`](crate::Bml) answers that a network has no message to take, and the message comes with
/// `progress`.
pub trait Network {
    /// Adds this network's entry to the card: [`Btl::advertise`].
    fn advertise(&self, card: &mut Card);
    /// Starts a connection: [`Btl::connect`].
    fn connect(&mut self, peer: PeerIndex, card: &Card) -> Result<u32, ConnectError>;
    /// The constant sizes and abilities of an endpoint: [`Btl::limits`].
    fn limits(&self, to: u32) -> &Limits;
    /// Suspends the endpoint of a suspected peer: [`Btl::quarantine`].
    fn quarantine(&mut self, endpoint: u32);
    /// Continues with a peer that lives: [`Btl::resume`].
    fn resume(&mut self, endpoint: u32);
    /// The silent peer has answered through the runtime: [`Btl::on_running`].
    fn on_running(&mut self, endpoint: u32);
    /// The peer hears nothing of this process: [`Btl::on_unheard`].
    fn on_unheard(&mut self, endpoint: u32);
    /// Delivers what is complete and closes the endpoint for good: [`Btl::sever`].
    fn sever(&mut self, endpoint: u32);
    /// Closes an endpoint to a process that has ended: [`Btl::sever_dead`].
    fn sever_dead(&mut self, endpoint: u32);
    /// Sends a message: [`Btl::send`]. `fill` is called at most once.
    fn send(
        &mut self,
        to: u32,
        class: MessageClass,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: &mut dyn FnMut(PayloadWriter<'_>),
    ) -> Result<(), SendError>;
    /// Sends a chunk of a stream: [`Btl::send_chunk`]. `fill` is called at most once.
    fn send_chunk(
        &mut self,
        to: u32,
        stream: Stream,
        len: usize,
        fill: &mut dyn FnMut(PayloadWriter<'_>),
    ) -> Result<(), SendError>;
    /// Whether `progress` could deliver something of this peer: [`Btl::ready`].
    fn ready(&self, from: u32) -> bool;
    /// Polls and makes at most `budget` callbacks: [`Btl::progress`].
    fn progress(&mut self, now: Instant, budget: u32, sink: &mut dyn Sink<u32>) -> u32;
    /// Reads whether peers are alive: [`Btl::check_peers`].
    fn check_peers(&mut self);
    /// Whether everything has been received by the peers: [`Btl::is_flushed`].
    fn is_flushed(&mut self, needs: &mut dyn FnMut(PeerIndex) -> bool) -> bool;
    /// Prepares a sleep: [`Btl::arm`].
    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), EventPending>;
    /// Ends what `arm` began: [`Btl::disarm`].
    fn disarm(&mut self);

    /// Registers memory: [`Rdma::register`].
    fn register(&mut self, with: u32, memory: &UserMemory) -> Result<Region, RegisterError>;
    /// Ends the use of a region: [`Rdma::unregister`].
    fn unregister(&mut self, region: Region, done: Cookie);
    /// Gives a peer access: [`Rdma::expose`].
    fn expose(
        &mut self,
        to: u32,
        local: Span,
        access: RemoteAccess,
    ) -> Result<(Exposure, RemoteKey), RegisterError>;
    /// Takes a key back: [`Rdma::unexpose`].
    fn unexpose(&mut self, exposure: Exposure, done: Cookie);
    /// Takes a key back that the peer does not use any more: [`Rdma::unexpose_unused`].
    fn unexpose_unused(&mut self, exposure: Exposure, done: Cookie);
    /// Checks a key: [`Rdma::import`].
    fn import(&mut self, from: u32, key: &[u8]) -> Result<Remote, RegisterError>;
    /// Copies to the peer: [`Rdma::put`].
    fn put(
        &mut self,
        to: u32,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError>;
    /// Copies from the peer: [`Rdma::get`].
    fn get(
        &mut self,
        from: u32,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError>;
    /// An atomic operation: [`Rdma::atomic`].
    fn atomic(
        &mut self,
        to: u32,
        operation: Atomic,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError>;
    /// Ends when earlier operations are in the peer's memory: [`Rdma::flush`].
    fn flush(&mut self, to: u32, done: Cookie) -> Result<(), SendError>;
}

impl<B: Btl<Endpoint = u32> + Rdma> Network for B {
    fn advertise(&self, card: &mut Card) {
        Btl::advertise(self, card);
    }

    fn connect(&mut self, peer: PeerIndex, card: &Card) -> Result<u32, ConnectError> {
        Btl::connect(self, peer, card)
    }

    fn limits(&self, to: u32) -> &Limits {
        Btl::limits(self, to)
    }

    fn quarantine(&mut self, endpoint: u32) {
        Btl::quarantine(self, endpoint);
    }

    fn resume(&mut self, endpoint: u32) {
        Btl::resume(self, endpoint);
    }

    fn on_running(&mut self, endpoint: u32) {
        Btl::on_running(self, endpoint);
    }

    fn on_unheard(&mut self, endpoint: u32) {
        Btl::on_unheard(self, endpoint);
    }

    fn sever(&mut self, endpoint: u32) {
        Btl::sever(self, endpoint);
    }

    fn sever_dead(&mut self, endpoint: u32) {
        Btl::sever_dead(self, endpoint);
    }

    fn send(
        &mut self,
        to: u32,
        class: MessageClass,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: &mut dyn FnMut(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        Btl::send(self, to, class, id, header, len, fill)
    }

    fn send_chunk(
        &mut self,
        to: u32,
        stream: Stream,
        len: usize,
        fill: &mut dyn FnMut(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        Btl::send_chunk(self, to, stream, len, fill)
    }

    fn ready(&self, from: u32) -> bool {
        Btl::ready(self, from)
    }

    fn progress(&mut self, now: Instant, budget: u32, mut sink: &mut dyn Sink<u32>) -> u32 {
        Btl::progress(self, now, budget, &mut sink)
    }

    fn check_peers(&mut self) {
        Btl::check_peers(self);
    }

    fn is_flushed(&mut self, needs: &mut dyn FnMut(PeerIndex) -> bool) -> bool {
        Btl::is_flushed(self, needs)
    }

    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), EventPending> {
        Btl::arm(self, wake)
    }

    fn disarm(&mut self) {
        Btl::disarm(self);
    }

    fn register(&mut self, with: u32, memory: &UserMemory) -> Result<Region, RegisterError> {
        Rdma::register(self, with, memory)
    }

    fn unregister(&mut self, region: Region, done: Cookie) {
        Rdma::unregister(self, region, done);
    }

    fn expose(
        &mut self,
        to: u32,
        local: Span,
        access: RemoteAccess,
    ) -> Result<(Exposure, RemoteKey), RegisterError> {
        Rdma::expose(self, to, local, access)
    }

    fn unexpose(&mut self, exposure: Exposure, done: Cookie) {
        Rdma::unexpose(self, exposure, done);
    }

    fn unexpose_unused(&mut self, exposure: Exposure, done: Cookie) {
        Rdma::unexpose_unused(self, exposure, done);
    }

    fn import(&mut self, from: u32, key: &[u8]) -> Result<Remote, RegisterError> {
        Rdma::import(self, from, key)
    }

    fn put(
        &mut self,
        to: u32,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        Rdma::put(self, to, local, remote, remote_offset, done)
    }

    fn get(
        &mut self,
        from: u32,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        Rdma::get(self, from, local, remote, remote_offset, done)
    }

    fn atomic(
        &mut self,
        to: u32,
        operation: Atomic,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        Rdma::atomic(self, to, operation, local, remote, remote_offset, done)
    }

    fn flush(&mut self, to: u32, done: Cookie) -> Result<(), SendError> {
        Rdma::flush(self, to, done)
    }
}

/// Makes a `FnMut` of a `FnOnce`; the second call does nothing. A transport fills a slot at most once.
pub(crate) fn once(fill: impl FnOnce(PayloadWriter<'_>)) -> impl FnMut(PayloadWriter<'_>) {
    let mut fill = Some(fill);
    move |slot| {
        if let Some(fill) = fill.take() {
            fill(slot);
        }
    }
}
