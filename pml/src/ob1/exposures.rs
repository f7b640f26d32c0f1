// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sender of an RTS with a remote key: its memory is exposed before the RTS is sent (`ob1/gets.rs` draws it), and released before
//! the request ends or its bytes go another way.

use super::Ob1;
use crate::exposures::Release;
use crate::peer_table::PeerLink;
use crate::request::{Error, Status};
use crate::request_table::{Offer, Phase, Then};
use mend_base::{Key, PeerIndex};
use mend_transport::{Cookie, Rdma, RemoteAccess, SendError, Span};

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// How an RTS offers the bytes of the queued send `key`: with a remote key where the peer can use one and the memory can be
    /// registered, else as a stream. `Busy`: the memory is being released.
    pub(super) fn offer<N: Rdma<Endpoint = E>>(
        &mut self,
        net: &mut N,
        link: PeerLink<E>,
        key: Key,
    ) -> Result<Offer, SendError> {
        let Some(entry) = self.requests.get(key) else { return Ok(Offer::Stream(None)) };
        let Phase::Queued { held, .. } = *entry.phase() else { return Ok(Offer::Stream(None)) };
        if let Some(held) = held {
            let is_exposed = self.exposures.remote_key(held).is_some();
            return if is_exposed { Ok(Offer::RemoteKey(Some(held))) } else { Err(SendError::Busy) };
        }
        // Messages that are short, and RTSes only because of an XOFF, are not worth it.
        let is_long = entry.data().packed_bytes() > link.eager_bytes as usize;
        let memory = if link.get_bytes > 0 && is_long { entry.data().contiguous() } else { None };
        let Some(memory) = memory.filter(|_| self.exposures.reserve()) else {
            return Ok(Offer::Stream(None));
        };
        let Ok(region) = net.register(link.endpoint, &memory) else {
            mend_base::reach!("pml.exposures: memory is not registered");
            return Ok(Offer::Stream(None));
        };
        let local = Span { region, offset: 0, bytes: memory.len() as u64 };
        let access = RemoteAccess { read: true, write: false, atomic: false };
        let exposure = net.expose(link.endpoint, local, access).ok();
        let held = self.exposures.add(key, region, exposure);
        self.requests.set_held(key, Some(held));
        if exposure.is_none() {
            mend_base::reach!("pml.exposures: memory is not exposed");
            self.queues.want_flush();
            return Ok(Offer::Stream(Some(held)));
        }
        Ok(Offer::RemoteKey(Some(held)))
    }

    /// Starts what is due of releases.
    pub(super) fn advance_releases<N: Rdma<Endpoint = E>>(&mut self, net: &mut N) {
        while let Some(release) = self.exposures.next_due() {
            match release {
                Release::Unexpose(exposure, done) => net.unexpose(exposure, done),
                Release::UnexposeUnused(exposure, done) => net.unexpose_unused(exposure, done),
                Release::Unregister(region, done) => net.unregister(region, done),
            }
        }
    }

    /// A step of a release has ended.
    pub(super) fn on_release_done(&mut self, done: Cookie) {
        match self.exposures.on_done(done) {
            Some(request) => self.on_released(request),
            None => self.queues.want_flush(),
        }
    }

    /// The memory of a send is released.
    fn on_released(&mut self, key: Key) {
        let Some(entry) = self.requests.get(key) else { return };
        let channel = entry.channel();
        match *entry.phase() {
            Phase::Releasing { then: Then::End(result), .. } => self.end(key, result),
            Phase::Releasing { to, then: Then::Stream { stream, bytes_wanted } } => {
                if let Some(peer) = self.member(channel, to) {
                    self.begin_streaming(peer, key, to, stream, bytes_wanted);
                }
            }
            Phase::Queued { to, .. } => {
                self.requests.set_held(key, None);
                if let Some(peer) = self.member(channel, to) {
                    self.schedule_flush(peer);
                }
            }
            _ => self.requests.set_held(key, None),
        }
    }

    /// Ends a send with this result when its memory is released: at once if none is held.
    pub(super) fn end_when_released(&mut self, key: Key, result: Result<Status, Error>) {
        self.rendezvous.forget_moved(key);
        match self.release_for(key, Then::End(result)) {
            true => mend_base::reach!("pml.exposures: a send ends when its memory is released"),
            false => self.end(key, result),
        }
    }

    /// The receiver has answered the RTS of a send: its gets, if there were some, have ended.
    pub(super) fn set_answered(&mut self, key: Key) {
        if let Some(held) = self.requests.get(key).and_then(|entry| entry.held()) {
            self.exposures.set_unused(held);
        }
    }

    /// Releases the memory of a send, which then goes on. `false`: it holds none, and nothing was done.
    pub(super) fn release_for(&mut self, key: Key, then: Then) -> bool {
        let Some(entry) = self.requests.get(key) else { return false };
        let (to, held, is_sent) = match *entry.phase() {
            Phase::Queued { to, held, .. } => (to, held, false),
            Phase::RtsSent { to, offer } => (to, offer.held(), true),
            _ => return false,
        };
        let Some(held) = held else { return false };
        if !is_sent {
            self.exposures.set_unused(held);
        }
        self.exposures.close(held);
        self.queues.want_flush();
        self.requests.set_phase(key, Phase::Releasing { to, then });
        true
    }

    /// The receiver has taken the bytes of an RTS.
    pub(super) fn on_fin(&mut self, from: PeerIndex, key: Key, bytes: u64) {
        let key = self.rendezvous.waits_for(key);
        let length = self.requests.get(key).map_or(0, |entry| entry.data().packed_bytes() as u64);
        match self.unanswered_send(from, key) {
            Some((_, Offer::RemoteKey(_))) if (1..=length).contains(&bytes) => {
                mend_base::reach!("pml.exposures: taken");
                self.rendezvous.on_answered(from);
                self.set_answered(key);
                self.end_when_released(key, Ok(Status::EMPTY));
            }
            None if bytes > 0 => self.on_unasked(from, key),
            Some(_) | None => self.garbage(from),
        }
    }
}
