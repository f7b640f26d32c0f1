// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One way to move bytes between processes.

use crate::{Card, Sink, WriteSlot};
use mend_base::{Instant, PeerIndex};

/// One way to move bytes between processes: shared memory, verbs, OFI. Owned by one engine, so it holds no locks. Never
/// blocks, and calls back only from [`progress`](Btl::progress).
///
/// Nothing here assumes that a peer lives, answers or tells the truth: what it wrote is copied once, checked in the
/// copy, and where no correct peer writes it, reported as [`Cause::Garbage`](crate::Cause::Garbage).
pub trait Btl {
    /// One way to one peer (a ring, a queue pair, an `fi_addr_t`); a peer may have several. An index into the
    /// transport's own table, where its credits and queues live.
    type Endpoint: Copy + Eq + core::fmt::Debug;

    /// Adds what a peer needs to reach us, and the sizes it must obey, under this transport's id.
    fn advertise(&self, card: &mut Card);
    /// Starts a connection; `on_room` says that it stands, `on_error` that it does not. Until then `send` is `Busy`.
    fn connect(&mut self, peer: PeerIndex, card: &Card) -> Result<Self::Endpoint, ConnectError>;
    /// Sizes and abilities of this way, fixed once connected.
    fn limits(&self, to: Self::Endpoint) -> &Limits;

    /// Suspected: nothing goes out (`Busy`), arrivals are kept, nothing is judged. Until `resume` or `sever`.
    fn quarantine(&mut self, endpoint: Self::Endpoint);
    /// It lives: reconnect if need be and go on. Messages: nothing lost, nothing twice, in order. Puts and atomics
    /// whose fate is open end as [`SendError::Unknown`].
    fn resume(&mut self, endpoint: Self::Endpoint);
    /// Starts to cut the peer off. What it had sent whole is handed up by the next `progress`; what it still owed us
    /// ends, as `PeerFailed`; `on_severed` certifies the end.
    fn sever(&mut self, endpoint: Self::Endpoint);

    /// Sends `header` and then the `len` bytes that `fill` writes, as one message; both have gone out of the caller's
    /// memory when this returns. `Busy`: nothing was sent and `fill` not called; `on_room` tells when to try again.
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
    /// The next piece of a large message: in order within its stream, no matching, no header. At most `chunk_bytes`.
    /// Needs [`Ability::Streams`].
    fn send_chunk(
        &mut self,
        to: Self::Endpoint,
        stream: Stream,
        len: usize,
        fill: impl FnOnce(WriteSlot<'_>),
    ) -> Result<(), SendError>;

    /// Does the next message of this peer lie ready? Cheaper than `progress`: for spinning.
    fn ready(&self, from: Self::Endpoint) -> bool;
    /// Does a message lie at the head of this peer's data? One load: for a blocking receive that looks at its sender's ring
    /// alone. A transport that has no such ring says no.
    fn has_message(&self, _from: Self::Endpoint) -> bool {
        false
    }
    /// Hands up that one message, as `progress` would, and nothing else; what is not data may wait behind it. Gives how
    /// many events that were. `now` may be stale.
    fn take_message(
        &mut self,
        _now: Instant,
        _from: Self::Endpoint,
        _sink: &mut impl Sink<Self::Endpoint>,
    ) -> u32 {
        0
    }
    /// Polls; hands at most `budget` events to `sink`. Returns how many. `now` may be stale. No endpoint starves: the
    /// next call goes on where the budget ended this one. Nothing handed up means that the caller may give way to other
    /// processes, not that there is nothing: [`arm`](Btl::arm) says that.
    fn progress(&mut self, now: Instant, budget: u32, sink: &mut impl Sink<Self::Endpoint>) -> u32;
    /// A timed look at every peer's life, where this transport can see it without asking anybody; in turns, where they are
    /// many. Who is found dead is said by the next `progress`, as evidence: once, and once more after each `resume`.
    fn check_peers(&mut self) {}
    /// Before sleeping: adds what to sleep on. From then on whatever would make `progress` report or a `Busy` send
    /// succeed wakes us, at the latest at the next timed look. `Pending`: something is there already, do not sleep.
    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), Pending>;
    /// After sleeping, or instead of it: nobody needs to wake us any more.
    fn disarm(&mut self);
}

/// In which queue a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Class {
    /// Flow-controlled.
    Data,
    /// Never waits behind data: has slots of its own.
    Control,
    /// A state that replaces the last one of the same [`AmId`] not yet read: credits, set hashes, heartbeats.
    Mailbox,
}

/// What a way can do besides messages, bit by bit.
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
    /// [`WakeSet::descriptors`]: there is something for epoll to sleep on.
    SleepDescriptor = 128,
}

/// Sizes and abilities of one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// [`Ability`] bits.
    pub abilities: u32,
    /// The longest payload, in bytes, that travels with a header of [`Limits::HEADER_BYTES_MAX`] in one piece.
    pub inline_bytes_max: u32,
    /// The longest payload of one message, in bytes: the receiver's word (its card).
    pub packed_bytes_max: u32,
    /// The longest chunk, in bytes: the receiver's word; 0 without [`Ability::Streams`].
    pub chunk_bytes: u32,
    /// The longest put or get, in bytes; 0 without them.
    pub transfer_bytes_max: u64,
}

impl Limits {
    /// The longest header of a message, in bytes, on any transport.
    pub const HEADER_BYTES_MAX: usize = 40;

    /// Whether this way can do that.
    pub fn can(&self, ability: Ability) -> bool {
        self.abilities & ability as u32 != 0
    }
}

/// Which layer above a message belongs to (an active-message id): drawn from one list, in `mpi`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct AmId(pub u8);

/// A large message in flight between two processes: a number its receiver chose, validated when it comes back.
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

/// Why nothing was sent, or what became of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// No room now; not a failure.
    Busy,
    /// The endpoint is severed.
    PeerFailed,
    /// Taken back by [`Rdma::withdraw`](crate::Rdma::withdraw).
    Withdrawn,
    /// The way broke in between: it may have happened, or not.
    Unknown,
}

/// Why there is no way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectError {
    /// This transport does not lead there.
    Unreachable,
    /// Space for it could not be reserved.
    NoMemory,
    /// The peer's layout, or what its card says, is not one that this version understands.
    LayoutDiffers,
}

/// What to sleep on: the process's futex word, and, for the helper thread's epoll, descriptors.
#[derive(Default, Debug)]
pub struct WakeSet {
    /// Somebody will wake the sleep word of this process.
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
