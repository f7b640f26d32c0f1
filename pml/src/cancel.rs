// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Taking back, letting go, asking.

use crate::matcher::unlink_posted;
use crate::request::Phase;
use crate::{Channel, Error, Ob1, Request, State, Status, Waiter};
use mend_base::{Key, Source};

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// Takes back a receive that has not matched (MPI-5.0 §3.8.4). One that has, and sends, go on: nothing is cancelled.
    pub fn cancel(&mut self, request: Request) {
        if self.unpost(request.0) {
            mend_base::reach!("pml.cancel: a posted receive");
            self.finish(request.0, Ok(Status { cancelled: true, ..Status::EMPTY }));
        }
    }

    /// How far a request is.
    pub fn poll(&self, request: Request) -> State {
        let Some(entry) = self.entries.get(request.0) else { return State::Done(Err(Error::NoSuchRequest)) };
        match entry.phase {
            Phase::Done(result) => State::Done(result),
            // Row PP10.
            Phase::Posted { from: Source::Any, .. } if self.stalls(entry.channel) => State::Stalled,
            _ => State::Running,
        }
    }

    /// The channel of a request that stands.
    pub fn channel_of(&self, request: Request) -> Option<Channel> {
        self.entries.get(request.0).map(|entry| Channel(entry.channel))
    }

    /// The caller has seen that it is over. One that is not is let go.
    pub fn release(&mut self, request: Request) {
        self.detach(request);
    }

    /// Nobody asks for it any more: it goes on to its end, and vanishes (Row PP22).
    pub fn detach(&mut self, request: Request) {
        let Some(entry) = self.entries.get_mut(request.0) else { return };
        if let Phase::Done(_) = entry.phase {
            self.forget(request.0);
        } else {
            mend_base::reach!("pml.cancel: detached");
            entry.detached = true;
        }
    }

    /// As [`detach`](Ob1::detach), of a send whose buffer is the caller's again at once: what is left of it goes from a copy.
    /// `false`: there is no memory for one, and nothing was done.
    pub fn continue_from_copy(&mut self, request: Request) -> bool {
        let Some(entry) = self.entries.get_mut(request.0) else { return true };
        if entry.phase.is_send() {
            let Some(copy) = entry.data.copied() else { return false };
            mend_base::reach!("pml.cancel: disowned");
            entry.data = copy;
        }
        self.detach(request);
        true
    }

    /// Takes a receive that has not matched out of its queue.
    pub(crate) fn unpost(&mut self, key: Key) -> bool {
        let Some(entry) = self.entries.get(key) else { return false };
        let Phase::Posted { from, .. } = entry.phase else { return false };
        if let Some(open) = self.channels.get_mut(entry.channel) {
            unlink_posted(open, &mut self.entries, from, key);
        }
        true
    }

    /// The end of every request. Its buffer is silent from here on (I7): whoever calls has seen to it that no byte of
    /// it is under way.
    pub(crate) fn finish(&mut self, key: Key, result: Result<Status, Error>) {
        self.lifecycle_check.end(key);
        let Some(entry) = self.entries.get_mut(key) else {
            return debug_assert!(false, "a request ends while it stands");
        };
        debug_assert!(!matches!(entry.phase, Phase::Done(_)), "a request ends once");
        self.sends -= usize::from(entry.phase.is_send());
        entry.phase = Phase::Done(result);
        entry.data = mend_datatype::Typed::empty();
        let channel = entry.channel;
        if let Some(waiter) = entry.waiter.take() {
            self.ended_waiters.push(waiter);
        }
        if entry.detached {
            self.forget(key);
        }
        if let Some(open) = self.channels.get_mut(channel) {
            open.active -= 1;
            if open.closing && open.active == 0 {
                self.shut(channel);
            }
        }
    }

    /// `waiter` sleeps until `request` is over. Nothing for one that is over already.
    pub fn wake_at_end(&mut self, request: Request, waiter: Waiter) {
        if let Some(entry) = self.entries.get_mut(request.0)
            && !matches!(entry.phase, Phase::Done(_))
        {
            entry.waiter = Some(waiter);
        }
    }

    /// A waiter whose request has ended, each once.
    #[inline]
    pub fn next_ended_waiter(&mut self) -> Option<Waiter> {
        self.ended_waiters.pop()
    }

    /// A request that is over leaves the table.
    #[inline]
    pub(crate) fn forget(&mut self, key: Key) {
        self.lifecycle_check.forget(key);
        self.entries.remove(key);
    }
}
