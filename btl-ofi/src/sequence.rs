// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two ends of a sequence of frames: which are sent and not acknowledged, and which is expected next. Values only, no I/O.
//!
//! A frame stays with its sender until the receiver has acknowledged it, since a connection that breaks loses frames that the provider had
//! taken. After a break, and when the receiver finds a frame missing, everything from the first unacknowledged frame on is sent
//! again; the receiver drops what it has (go-back-N).

use crate::send_buffers::BufferKey;
use std::collections::VecDeque;

/// The sender's end.
#[derive(Debug)]
pub struct Outgoing {
    /// Unacknowledged frames; the first one has the number `first`.
    frames: VecDeque<Frame>,
    first: u32,
    /// How many of `frames`, from the front, were posted since the last rewind.
    posted: usize,
    /// How many frames may be posted and unacknowledged.
    window: usize,
    /// How many frames may be unacknowledged, posted or not.
    capacity: usize,
}

/// A frame that is kept until it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Where it is.
    pub buffer: BufferKey,
    /// Its length, with its header.
    pub bytes: u32,
}

/// The peer acknowledged what was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeverSent;

impl Outgoing {
    /// An empty sequence.
    pub fn new(window: usize, capacity: usize) -> Self {
        Outgoing { frames: VecDeque::new(), first: 0, posted: 0, window, capacity }
    }

    // Hot: per message.
    /// Whether another frame may be added.
    pub fn has_room(&self) -> bool {
        self.frames.len() < self.capacity
    }

    /// Whether everything is acknowledged.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The number of the first unacknowledged frame, or of the next one.
    pub fn first(&self) -> u32 {
        self.first
    }

    // Hot: per message.
    /// The number of the next frame that is added.
    pub fn next_sequence(&self) -> u32 {
        self.first.wrapping_add(self.frames.len() as u32)
    }

    /// The number of the first frame that was not posted since the last rewind.
    pub fn posted_to(&self) -> u32 {
        self.first.wrapping_add(self.posted as u32)
    }

    // Hot: per message.
    /// Adds a frame.
    pub fn push(&mut self, frame: Frame) {
        self.frames.push_back(frame);
    }

    // Hot: per message.
    /// The next frame to post, if the window allows it.
    pub fn next_to_post(&self) -> Option<Frame> {
        if self.posted < self.window { self.frames.get(self.posted).copied() } else { None }
    }

    // Hot: per message.
    /// The frame of [`next_to_post`](Outgoing::next_to_post) was posted.
    pub fn on_posted(&mut self) {
        self.posted += 1;
    }

    // Hot: per message.
    /// The peer expects frame `next`: it has all before. Calls `release` for each of them that it had not acknowledged, and returns how many.
    /// Acknowledgements may come late and out of order.
    pub fn acknowledge(&mut self, next: u32, mut release: impl FnMut(Frame)) -> Result<usize, NeverSent> {
        let count = next.wrapping_sub(self.first);
        if count > u32::MAX / 2 {
            return Ok(0);
        }
        let count = count as usize;
        if count > self.frames.len() {
            return Err(NeverSent);
        }
        self.frames.drain(..count).for_each(&mut release);
        self.first = next;
        self.posted = self.posted.saturating_sub(count);
        Ok(count)
    }

    /// Everything that is not acknowledged is to be posted again.
    pub fn rewind(&mut self) {
        self.posted = 0;
    }

    /// Drops everything, and calls `release` for each frame.
    pub fn clear(&mut self, release: impl FnMut(Frame)) {
        self.first = self.next_sequence();
        self.posted = 0;
        self.frames.drain(..).for_each(release);
    }
}

/// The receiver's end.
#[derive(Default, Debug)]
pub struct Incoming {
    /// The number of the next frame.
    next: u32,
    /// What the peer was told last.
    told: u32,
    /// A gap before this frame was reported.
    gap: Option<u32>,
}

/// What the receiver does with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// It is the next one.
    Next,
    /// It came before.
    Duplicate,
    /// One before it is missing, and the sender must be asked to send again; `false`: it was asked.
    Gap(bool),
}

impl Incoming {
    // Hot: per message.
    /// A frame has come. If it is the next one, it counts as arrived from now on.
    pub fn on_arrival(&mut self, sequence: u32) -> Arrival {
        if sequence == self.next {
            self.next = self.next.wrapping_add(1);
            self.gap = None;
            return Arrival::Next;
        }
        if sequence.wrapping_sub(self.next) > u32::MAX / 2 {
            return Arrival::Duplicate;
        }
        let is_new = self.gap.replace(self.next) != Some(self.next);
        Arrival::Gap(is_new)
    }

    /// The sender may not have got the report of a gap: it is reported once more if there is one.
    pub fn forget_gap(&mut self) {
        self.gap = None;
    }

    // Hot: per message.
    /// The number of the next frame.
    pub fn next(&self) -> u32 {
        self.next
    }

    // Hot: per message.
    /// The peer is told now that frames before `next` have arrived.
    pub fn on_told(&mut self, next: u32) {
        self.told = next;
    }

    // Hot: per message.
    /// How many frames before `next` the peer does not know to have arrived.
    pub fn untold(&self, next: u32) -> u32 {
        next.wrapping_sub(self.told)
    }
}

#[cfg(test)]
mod tests {
    use super::{Arrival, Frame, Incoming, NeverSent, Outgoing};
    use crate::send_buffers::BufferKey;

    fn frame(number: u32) -> Frame {
        Frame { buffer: BufferKey(number), bytes: 40 }
    }

    fn filled(count: u32) -> Outgoing {
        let mut class = Outgoing::new(2, 4);
        (0..count).for_each(|number| class.push(frame(number)));
        class
    }

    #[test]
    fn the_window_bounds_what_is_posted_and_the_capacity_what_is_kept() {
        let mut class = filled(4);
        assert!(!class.has_room());
        while class.next_to_post().is_some() {
            class.on_posted();
        }
        assert_eq!(class.posted_to(), 2);
        let mut released = Vec::new();
        assert_eq!(class.acknowledge(1, |frame| released.push(frame)), Ok(1));
        assert_eq!(released, [frame(0)]);
        assert_eq!(class.next_to_post(), Some(frame(2)));
        assert!(class.has_room());
    }

    #[test]
    fn after_a_rewind_the_unacknowledged_frames_are_posted_again() {
        let mut class = filled(3);
        class.on_posted();
        class.on_posted();
        class.acknowledge(1, |_| {}).unwrap();
        class.rewind();
        assert_eq!(class.next_to_post(), Some(frame(1)));
        // The receiver had got it before the break: it is not posted after all.
        class.acknowledge(2, |_| {}).unwrap();
        assert_eq!(class.next_to_post(), Some(frame(2)));
    }

    #[test]
    fn late_acknowledgements_have_no_effect_and_impossible_ones_are_refused() {
        let mut class = filled(3);
        assert_eq!(class.acknowledge(2, |_| {}), Ok(2));
        assert_eq!(class.acknowledge(1, |_| panic!("released twice")), Ok(0));
        assert_eq!(class.acknowledge(4, |_| {}), Err(NeverSent));
        assert_eq!(class.acknowledge(3, |_| {}), Ok(1));
    }

    #[test]
    fn numbers_that_wrap_stay_in_order() {
        let mut class = Outgoing { first: u32::MAX, ..filled(2) };
        assert_eq!(class.next_sequence(), 1);
        assert_eq!(class.acknowledge(0, |_| {}), Ok(1));
        assert_eq!(class.acknowledge(u32::MAX, |_| {}), Ok(0));
        let mut incoming = Incoming { next: u32::MAX, ..Incoming::default() };
        assert_eq!(incoming.on_arrival(0), Arrival::Gap(true));
        assert_eq!(incoming.on_arrival(u32::MAX), Arrival::Next);
        assert_eq!(incoming.on_arrival(0), Arrival::Next);
        assert_eq!(incoming.on_arrival(u32::MAX), Arrival::Duplicate);
    }

    #[test]
    fn a_gap_is_reported_once_until_it_is_closed() {
        let mut incoming = Incoming::default();
        assert_eq!(incoming.on_arrival(0), Arrival::Next);
        assert_eq!(incoming.on_arrival(2), Arrival::Gap(true));
        assert_eq!(incoming.on_arrival(3), Arrival::Gap(false));
        incoming.forget_gap();
        assert_eq!(incoming.on_arrival(3), Arrival::Gap(true));
        assert_eq!(incoming.on_arrival(1), Arrival::Next);
        assert_eq!(incoming.on_arrival(3), Arrival::Gap(true));
        incoming.on_told(1);
        assert_eq!(incoming.untold(incoming.next()), 1);
    }
}
