// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface of a byte transfer layer.

use crate::{Card, Sink, WriteSlot};
use mend_base::{Instant, PeerIndex};

/// A byte transfer layer: shared memory, verbs, OFI. One engine owns it, so it holds no locks. It never blocks, and
/// calls back only from [`progress`](Btl::progress) and [`take_message`](Btl::take_message).
///
/// It does not rely on a peer being alive or correct: what a peer wrote is copied once and checked in the copy; what
/// no correct peer writes is reported as [`Cause::Garbage`](crate::Cause::Garbage).
pub trait Btl {
    /// A connection to a peer (a ring, a queue pair, an `fi_addr_t`); a peer may have several. An index into the
    /// transport's own table, where its credits and queues are.
    type Endpoint: Copy + Eq + core::fmt::Debug;

    /// Adds to the card, under this transport's id, what a peer needs to connect, and the sizes that it must obey.
    fn advertise(&self, card: &mut Card);
    /// Starts a connection. `on_room` reports that it is connected, `on_error` that it failed. Until then `send` is
    /// `Busy`.
    fn connect(&mut self, peer: PeerIndex, card: &Card) -> Result<Self::Endpoint, ConnectError>;
    /// Sizes and abilities of this endpoint, fixed once it is connected.
    fn limits(&self, to: Self::Endpoint) -> &Limits;

    /// Suspends the endpoint of a suspected peer until `resume` or `sever`: sends are `Busy`, arrivals stay where
    /// they are, no error is reported.
    fn quarantine(&mut self, endpoint: Self::Endpoint);
    /// The peer lives: continues, after a reconnection if need be. No message is lost, duplicated or reordered. Puts
    /// and atomics whose outcome is not known end as [`SendError::Unknown`].
    fn resume(&mut self, endpoint: Self::Endpoint);
    /// Starts to disconnect. The next calls of `progress` deliver the peer's complete messages, end outstanding
    /// operations with `PeerFailed`, and report the end with `on_severed`.
    fn sever(&mut self, endpoint: Self::Endpoint);

    /// Sends `header` and then the `len` bytes that `fill` writes, as one message; the caller's memory may be reused
    /// when this returns. `Busy`: nothing was sent and `fill` was not called; `on_room` reports when to try again.
    ///
    /// `header` is at most [`HEADER_BYTES_MAX`](Limits::HEADER_BYTES_MAX); `len` at most `packed_bytes_max` (for
    /// [`Class::Control`] and [`Class::Mailbox`] `inline_bytes_max`): longer is the caller's mistake, and asserted.
    fn send(
        &mut self,
        to: Self::Endpoint,
        class: Class,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(WriteSlot<'_>),
    ) -> Result<(), SendError>;
    /// Sends the next chunk of a large message: in order within its stream, without matching and without a header. At
    /// most `chunk_bytes`. Needs [`Ability::Streams`].
    fn send_chunk(
        &mut self,
        to: Self::Endpoint,
        stream: Stream,
        len: usize,
        fill: impl FnOnce(WriteSlot<'_>),
    ) -> Result<(), SendError>;

    /// Whether something of this peer can be delivered. Cheaper than `progress`: for spinning.
    fn ready(&self, from: Self::Endpoint) -> bool;
    /// Whether a message is at the head of this peer's data. One load, for a blocking receive that polls its sender's
    /// ring alone. A transport without such a ring answers no.
    fn has_message(&self, _from: Self::Endpoint) -> bool {
        false
    }
    /// Delivers that one message as `progress` would, and nothing else; control messages and chunks may wait behind
    /// it. Returns how many events that were. `now` may be stale.
    fn take_message(
        &mut self,
        _now: Instant,
        _from: Self::Endpoint,
        _sink: &mut impl Sink<Self::Endpoint>,
    ) -> u32 {
        0
    }
    /// Polls, and delivers at most `budget` events to `sink`. Returns how many. `now` may be stale. No endpoint
    /// starves: the next call continues where the budget ended this one. A return of 0 means that the caller may
    /// yield to other processes, not that nothing is pending: [`arm`](Btl::arm) tells that.
    fn progress(&mut self, now: Instant, budget: u32, sink: &mut impl Sink<Self::Endpoint>) -> u32;
    /// Reads the liveness of peers, where this transport can do so without communication, round-robin where there are
    /// many; called periodically. The next `progress` reports a dead peer with `on_error`: once, and once more after
    /// each `resume`.
    fn check_peers(&mut self) {}
    /// Before sleep: adds to `wake` what to wait for. From then on everything that `progress` would report, or that
    /// would let a `Busy` send succeed, wakes this process, at the latest at the next timed check. `Pending`: there
    /// is something already; do not sleep.
    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), Pending>;
    /// After sleep, or instead of it: no peer needs to wake this process.
    fn disarm(&mut self);
}

/// The queue of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Class {
    /// Flow-controlled data.
    Data,
    /// Control messages: they have slots of their own and never wait behind data.
    Control,
    /// A state, which replaces the last unread one of the same [`AmId`], such as credit or a heartbeat.
    Mailbox,
}

/// What an endpoint can do besides messages: one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Ability {
    /// [`Btl::send_chunk`].
    Streams = 1,
    /// [`Rdma::put`](crate::Rdma::put).
    Put = 2,
    /// [`Rdma::get`](crate::Rdma::get).
    Get = 4,
    /// [`Rdma::atomic`](crate::Rdma::atomic).
    Atomics = 8,
    /// [`Rdma::flush`](crate::Rdma::flush).
    Flush = 16,
    /// [`Rdma::post`](crate::Rdma::post).
    PostedReceive = 32,
    /// User memory may lie on an accelerator.
    DeviceMemory = 64,
    /// [`WakeSet::descriptors`]: there is a descriptor for epoll to wait on.
    SleepDescriptor = 128,
}

/// Sizes and abilities of one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// [`Ability`] bits.
    pub abilities: u32,
    /// The longest payload, in bytes, that travels with a header of [`Limits::HEADER_BYTES_MAX`] in one piece.
    pub inline_bytes_max: u32,
    /// The longest payload of one message, in bytes, as the receiver advertises it.
    pub packed_bytes_max: u32,
    /// The longest chunk, in bytes, as the receiver advertises it; 0 without [`Ability::Streams`].
    pub chunk_bytes: u32,
    /// The longest put or get, in bytes; 0 without them.
    pub transfer_bytes_max: u64,
}

impl Limits {
    /// The longest header of a message, in bytes, on any transport.
    pub const HEADER_BYTES_MAX: usize = 40;

    /// Whether the endpoint has this ability.
    pub fn can(&self, ability: Ability) -> bool {
        self.abilities & ability as u32 != 0
    }
}

/// The layer above to which a message belongs (an active-message id). All are listed in `mpi`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct AmId(pub u8);

/// A large message between two processes: a number that its receiver chose, and checks when a chunk brings it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Stream(pub u32);

/// Whose operation it is, and which of its operations: validated when it comes back (I4).
///
/// The highest 8 bits are the owner's active-message id, the other 56 the owner's own (an index, and as much of a generation as
/// fits).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Cookie(pub u64);

impl Cookie {
    /// Bits below the owner's.
    pub const VALUE_BITS: u32 = 56;

    /// The cookie of an operation; `None`: the value has more bits than [`VALUE_BITS`](Cookie::VALUE_BITS).
    pub const fn new(owner: AmId, value: u64) -> Option<Cookie> {
        if value >> Cookie::VALUE_BITS != 0 {
            return None;
        }
        Some(Cookie((owner.0 as u64) << Cookie::VALUE_BITS | value))
    }

    /// Whose operation it is.
    pub const fn owner(self) -> AmId {
        AmId((self.0 >> Cookie::VALUE_BITS) as u8)
    }

    /// Which of the owner's.
    pub const fn value(self) -> u64 {
        self.0 & ((1 << Cookie::VALUE_BITS) - 1)
    }
}

/// Why nothing was sent, or how an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// There is no room now; not a failure.
    Busy,
    /// The endpoint is severed.
    PeerFailed,
    /// Cancelled by [`Rdma::withdraw`](crate::Rdma::withdraw).
    Withdrawn,
    /// The connection broke meanwhile: the operation may have happened or not.
    Unknown,
}

/// Why an endpoint could not be connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectError {
    /// This transport does not reach the peer.
    Unreachable,
    /// Memory for the connection could not be reserved.
    NoMemory,
    /// This version does not know the peer's layout, or its card.
    LayoutDiffers,
}

/// What a process waits for while it sleeps: its futex word, and, for the helper thread's epoll, descriptors.
#[derive(Default, Debug)]
pub struct WakeSet {
    /// Peers wake the sleep word of this process.
    pub futex: bool,
    /// Descriptors that become readable.
    pub descriptors: Vec<i32>,
}

/// Something is there already: do not sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pending;

#[cfg(test)]
mod tests {
    use super::{AmId, Cookie};

    #[test]
    fn a_cookie_gives_back_its_owner_and_value() {
        let most = (1 << Cookie::VALUE_BITS) - 1;
        for (owner, value) in [(0, 0), (1, 77), (255, most)] {
            let cookie = Cookie::new(AmId(owner), value).unwrap();
            assert_eq!((cookie.owner(), cookie.value()), (AmId(owner), value));
        }
        assert_eq!(Cookie::new(AmId(1), most + 1), None);
    }
}
