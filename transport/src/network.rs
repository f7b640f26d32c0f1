// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A [`Btl`] behind a pointer, for transports whose messages take longer than a call through one.

use crate::{
    AmId, Btl, Card, Class, ConnectError, Limits, Pending, SendError, Sink, Stream, WakeSet, WriteSlot,
};
use mend_base::{Instant, PeerIndex};

/// [`Btl`] in an object-safe form, for transports whose messages take longer than a call through a pointer: call by
/// call the same contract. Every [`Btl`] whose endpoint is a `u32` is a `Network`.
pub trait Network {
    /// [`Btl::advertise`].
    fn advertise(&self, card: &mut Card);
    /// [`Btl::connect`].
    fn connect(&mut self, peer: PeerIndex, card: &Card) -> Result<u32, ConnectError>;
    /// [`Btl::limits`].
    fn limits(&self, to: u32) -> &Limits;
    /// [`Btl::quarantine`].
    fn quarantine(&mut self, endpoint: u32);
    /// [`Btl::resume`].
    fn resume(&mut self, endpoint: u32);
    /// [`Btl::sever`].
    fn sever(&mut self, endpoint: u32);
    /// [`Btl::send`].
    fn send(
        &mut self,
        to: u32,
        class: Class,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: &mut dyn FnMut(WriteSlot<'_>),
    ) -> Result<(), SendError>;
    /// [`Btl::send_chunk`].
    fn send_chunk(
        &mut self,
        to: u32,
        stream: Stream,
        len: usize,
        fill: &mut dyn FnMut(WriteSlot<'_>),
    ) -> Result<(), SendError>;
    /// [`Btl::ready`].
    fn ready(&self, from: u32) -> bool;
    /// [`Btl::progress`].
    fn progress(&mut self, now: Instant, budget: u32, sink: &mut dyn Sink<u32>) -> u32;
    /// [`Btl::check_peers`].
    fn check_peers(&mut self);
    /// [`Btl::arm`].
    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), Pending>;
    /// [`Btl::disarm`].
    fn disarm(&mut self);
}

impl<B: Btl<Endpoint = u32>> Network for B {
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

    fn sever(&mut self, endpoint: u32) {
        Btl::sever(self, endpoint);
    }

    fn send(
        &mut self,
        to: u32,
        class: Class,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: &mut dyn FnMut(WriteSlot<'_>),
    ) -> Result<(), SendError> {
        Btl::send(self, to, class, id, header, len, fill)
    }

    fn send_chunk(
        &mut self,
        to: u32,
        stream: Stream,
        len: usize,
        fill: &mut dyn FnMut(WriteSlot<'_>),
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

    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), Pending> {
        Btl::arm(self, wake)
    }

    fn disarm(&mut self) {
        Btl::disarm(self);
    }
}

/// A `FnOnce` behind a `&mut dyn FnMut`: a transport fills a slot at most once.
pub(crate) fn once(fill: impl FnOnce(WriteSlot<'_>)) -> impl FnMut(WriteSlot<'_>) {
    let mut fill = Some(fill);
    move |slot| {
        if let Some(fill) = fill.take() {
            fill(slot);
        }
    }
}
