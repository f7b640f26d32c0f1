// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface of a byte transfer layer.

use crate::{Card, PayloadWriter, Sink};
use mend_base::{Instant, PeerIndex};

/// A byte transfer layer (BTL): shared memory, verbs, OFI. It moves messages between this process and its peers.
///
/// **Caller.** One engine owns the BTL and calls it from one thread at a time, so the BTL needs no lock. No method blocks.
///
/// **Callbacks.** The BTL calls a [`Sink`] only from inside [`progress`](Btl::progress) and
/// [`take_message`](Btl::take_message). A sink never calls the BTL: it has no reference to it.
///
/// **Endpoint.** An endpoint has one of six states:
///
/// ```text
///   connect          on_sendable            quarantine
///   ───────▶ connecting ─────▶ connected ◀────────────▶ quarantined
///                │                 │         resume          │
///                │                 ├─ wrote garbage ▶ garbage│
///                │                 │                    │    │
///                └─────────────────┴───────── sever ────┴────┘
///                                               ▼      on_severed
///                                            severing ───────────▶ severed
/// ```
///
/// **Death.** A peer may die between any two instructions. The BTL never decides that a peer is dead. It reports what it notices as
/// evidence (`on_error`), and goes on with the endpoint as before. The engine answers evidence with `quarantine`, and then with `resume`,
/// or with `sever` when the failure is declared. `sever` may also come without evidence, and for a peer that lives.
///
/// **Garbage.** A peer may write anything. The BTL copies what a peer wrote once, checks the copy, and only then uses it. What no correct
/// peer writes, it reports as [`Cause::Garbage`](crate::Cause::Garbage), once. From then on it reads nothing more of this peer, and sends to
/// the peer are `Busy`, until `sever`.
///
/// **Conformance.** The suite in `transport/src/conformance.rs` tests this contract.
pub trait Btl {
    /// A connection to a peer: a ring, a queue pair, an `fi_addr_t`. It is an index into the BTL's own table, where the
    /// credits and queues of the connection are. A peer may have several endpoints, and no endpoint is reused for another peer.
    type Endpoint: Copy + Eq + core::fmt::Debug;

    /// Adds one entry to the card, under the [`TransportId`](crate::TransportId) of this BTL: what a peer needs to connect, and
    /// the sizes that a peer must obey. Called before the first `connect`. A BTL that can be used by no peer adds nothing.
    fn advertise(&self, card: &mut Card);
    /// Starts a connection to `peer`, whose card this is, and returns its endpoint. Both ends call `connect`, in any order.
    ///
    /// A later `progress` calls `on_sendable` when this end may send, or `on_error` when the connection failed. Until
    /// `on_sendable`, `send` answers `Busy`. The BTL passes `peer` to the sink with each callback. If the peer dies meanwhile, the
    /// endpoint stays connecting until it is severed. An error means that there is no endpoint, and may be followed by another
    /// attempt.
    fn connect(&mut self, peer: PeerIndex, card: &Card) -> Result<Self::Endpoint, ConnectError>;
    /// The sizes and abilities of an endpoint: constant from the return of `connect` on, also after the peer's death.
    fn limits(&self, to: Self::Endpoint) -> &Limits;

    /// Suspends the endpoint of a suspected peer until `resume` or `sever`: sends are `Busy`, messages that arrive stay in the
    /// transport, and no error is reported for this endpoint. Other endpoints are not affected. No effect on an endpoint that is
    /// severing or severed.
    fn quarantine(&mut self, endpoint: Self::Endpoint);
    /// Ends the quarantine of a peer that lives, and reconnects if necessary. No message is lost, duplicated or reordered. A send
    /// that was `Busy` gets `on_sendable`. Puts and atomics whose outcome is not known end as [`SendError::Unknown`]. No effect on
    /// an endpoint that is not quarantined, or whose peer wrote garbage.
    fn resume(&mut self, endpoint: Self::Endpoint);
    /// The peer of an endpoint that was reported as [`Cause::Silent`](crate::Cause::Silent) has answered through the runtime: its process runs.
    /// A BTL that goes on hearing nothing of a peer that runs may report [`Cause::Unreachable`](crate::Cause::Unreachable) in the end; of one
    /// that is stopped it must not.
    fn on_running(&mut self, _endpoint: Self::Endpoint) {}
    /// The peer has reported this process as [`Cause::Silent`](crate::Cause::Silent): it hears nothing, perhaps since a connection is broken at its
    /// end alone, which shows here once something is sent.
    fn on_unheard(&mut self, _endpoint: Self::Endpoint) {}
    /// Closes the endpoint for good. Called in any state, also more than once; the second call has no effect. Each send from
    /// now on fails with `Severed`.
    ///
    /// The next calls of `progress`, as many as the budget requires, deliver the messages that the peer had sent completely, end
    /// each outstanding operation with `Severed`, and then call `on_severed`. They need no help of the peer, which may be dead.
    /// An incomplete message is dropped.
    fn sever(&mut self, endpoint: Self::Endpoint);
    /// As [`sever`](Btl::sever), for a peer whose process has ended, or must end before its results count: accesses to the memory of this process
    /// that it had begun need not be waited for if they only read.
    fn sever_dead(&mut self, endpoint: Self::Endpoint) {
        self.sever(endpoint);
    }

    /// Sends `header` and then the `len` bytes that `fill` writes, as one message. The caller may reuse its memory when this
    /// returns. `Ok` means that the message is sent, not that it was received. The peer receives the message if both ends live.
    ///
    /// `Busy`: no send resources are free, the endpoint is not connected yet, or it is quarantined. Nothing was sent, and `fill`
    /// was not called; `on_sendable` follows when the caller can try again, unless `sever` comes first. `Severed`: the endpoint
    /// was severed. There is no other error. The death of the peer changes no answer: sends succeed until the queue is full.
    ///
    /// `header` is at most [`HEADER_BYTES_MAX`](Limits::HEADER_BYTES_MAX) bytes. `len` is at most `message_bytes_max`, and for
    /// [`MessageClass::Control`] and [`MessageClass::Mailbox`] at most `control_bytes_max`. More is a mistake of the caller, and may panic.
    fn send(
        &mut self,
        to: Self::Endpoint,
        class: MessageClass,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError>;
    /// Sends the next chunk of a stream: at most `chunk_bytes` bytes, without a header. Chunks of one stream arrive in order; chunks
    /// and messages are not ordered with each other. Answers as [`send`](Btl::send) does. Called only on endpoints with
    /// [`Ability::Streams`].
    fn send_chunk(
        &mut self,
        to: Self::Endpoint,
        stream: Stream,
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError>;

    /// Whether `progress` could deliver something of this peer. Cheaper than `progress`, and without effect: a waiting thread
    /// polls it. False if the endpoint is quarantined or severed. A BTL without [`Ability::Polling`] must ask a device, and answers what
    /// it knows since the last `progress`.
    fn ready(&self, from: Self::Endpoint) -> bool;
    /// Whether a message of [`MessageClass::Data`] is the next thing to be delivered of this peer. One load: a blocking receive
    /// polls it. A BTL that cannot tell so cheaply answers `false`.
    fn has_message(&self, _from: Self::Endpoint) -> bool {
        false
    }
    /// Delivers the message that [`has_message`](Btl::has_message) found, as `progress` would, and nothing else; control messages and
    /// chunks stay for `progress`. Returns the number of callbacks: 0 or 1. `now` may be stale.
    fn take_message(
        &mut self,
        _now: Instant,
        _from: Self::Endpoint,
        _sink: &mut impl Sink<Self::Endpoint>,
    ) -> u32 {
        0
    }
    /// Polls, makes at most `budget` callbacks, and returns their number. `budget` may be 0. `now` may be stale.
    ///
    /// No endpoint starves: the next call continues where the budget ended this one. A return of 0 means that the caller may
    /// yield its processor. It does not mean that nothing is pending: [`arm`](Btl::arm) tells that.
    fn progress(&mut self, now: Instant, budget: u32, sink: &mut impl Sink<Self::Endpoint>) -> u32;
    /// Reads whether peers are alive, if the BTL can do that without communication; of many peers it reads some, round-robin. Called
    /// periodically by a thread that waits. The next `progress` reports a dead peer with `on_error`: once, and once more after each
    /// `resume`. Endpoints that are quarantined or severed are not checked.
    fn check_peers(&mut self) {}
    /// Wakes the helper threads of peers that have not consumed a control message of this process: they may compute outside MPI.
    /// Called by the helper thread of this process while its program is outside MPI. In MPI, `progress` wakes them if a message is
    /// not consumed for 100 us.
    fn call_helpers(&mut self) {}
    /// Whether every peer that is not severed or quarantined, and for which `needs` answers `true`, has received what was sent to it, so
    /// that this process may end without losing a message. If not, `progress` asks the peers for an acknowledgement. `needs` answers
    /// `false` for a peer that is leaving, too: it may be gone by now, and nobody will say so. Called in MPI_Finalize until it answers `true`;
    /// nothing is sent after that. Shared memory outlives the process, so there it is always true.
    fn is_flushed(&mut self, _needs: &mut dyn FnMut(PeerIndex) -> bool) -> bool {
        true
    }
    /// Prepares a sleep, and adds to `wake` what the process can sleep on. From now until `disarm`, everything that `progress`
    /// would report wakes this process, and so does the release of send resources for a `Busy` send. A wake-up may be lost; then
    /// the sleeper finds the event when its sleep times out.
    ///
    /// `EventPending`: `progress` has something to report now, so the process must not sleep. The caller calls `disarm` in both
    /// cases. The death of a peer need not wake the process: the node daemon does that.
    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), EventPending>;
    /// Ends what `arm` began: peers need not wake this process any more. Called after the sleep, or instead of it; without effect
    /// if nothing is armed.
    fn disarm(&mut self);
    /// As [`arm`](Btl::arm), for descriptors alone: for the helper thread, which watches them while the program computes. A BTL that
    /// adds no descriptor does nothing here, as its peers call the helper thread. `disarm` need not follow: the program goes on as if
    /// nothing were armed, so `arm`, also again, `progress` and sends may come next.
    fn arm_descriptors(&mut self, _wake: &mut WakeSet) -> Result<(), EventPending> {
        Ok(())
    }
}

/// The class of a message: through which queue it goes. Messages of one class from one peer arrive in order; classes are not
/// ordered with each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum MessageClass {
    /// Data: the queue is bounded, and a full queue answers `Busy`.
    Data,
    /// Control messages: they have separate slots, and never wait behind data.
    Control,
    /// The newest value of something, such as a counter: it replaces an unread older value of the same [`AmId`], and is never `Busy`
    /// on a connected endpoint.
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
    /// The device copies the next message with a given label into posted memory. No transport offers it so far.
    PostedReceive = 32,
    /// The transport can access user memory of an accelerator.
    DeviceMemory = 64,
    /// [`Btl::arm`] adds a descriptor for epoll to [`WakeSet::descriptors`].
    SleepDescriptor = 128,
    /// [`Btl::ready`] and [`Btl::has_message`] read memory that the peer writes, so it is worth to poll them between two calls of `progress`.
    Polling = 256,
}

/// Sizes and abilities of one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// [`Ability`] bits.
    pub abilities: u32,
    /// Those of the abilities that the BTL emulates by messages, so that they need progress of the peer and cost copies.
    pub emulated: u32,
    /// The longest payload of a [`MessageClass::Control`] or [`MessageClass::Mailbox`] message, in bytes.
    pub control_bytes_max: u32,
    /// The longest payload of a [`MessageClass::Data`] message, in bytes, as the receiver advertises it.
    pub message_bytes_max: u32,
    /// The eager limit: the longest message of a program that is sent before a receive has matched it, in bytes. For longer ones this
    /// transport is faster, or needs less memory, by rendezvous. At most `message_bytes_max`.
    pub eager_bytes: u32,
    /// The longest chunk, in bytes, as the receiver advertises it; 0 without [`Ability::Streams`].
    pub chunk_bytes: u32,
    /// The longest put or get, in bytes; 0 without [`Ability::Put`] and [`Ability::Get`].
    pub transfer_bytes_max: u64,
}

impl Limits {
    /// The longest header of a message, in bytes, on any transport.
    pub const HEADER_BYTES_MAX: usize = 40;

    /// Whether the endpoint has this ability.
    pub fn can(&self, ability: Ability) -> bool {
        self.abilities & ability as u32 != 0
    }

    /// Whether the device of the endpoint does this by itself.
    pub fn can_natively(&self, ability: Ability) -> bool {
        (self.abilities & !self.emulated) & ability as u32 != 0
    }
}

/// An active-message id: which layer above the transport a message belongs to. `mpi` lists all ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct AmId(pub u8);

/// The number of a stream, that is of one large message. Its receiver chose the number, and checks it in each chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Stream(pub u32);

/// Identifies an operation: the layer that started it, and a value of that layer, which validates the value when the operation
/// ends (I4).
///
/// The highest 8 bits are the active-message id of the layer. The other 56 are its value: an index, and as many bits of a
/// generation as fit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Cookie(pub u64);

impl Cookie {
    /// Bits of the value.
    pub const VALUE_BITS: u32 = 56;

    /// The cookie of an operation; `None`: the value has more bits than [`VALUE_BITS`](Cookie::VALUE_BITS).
    pub const fn new(owner: AmId, value: u64) -> Option<Cookie> {
        if value >> Cookie::VALUE_BITS != 0 {
            return None;
        }
        Some(Cookie((owner.0 as u64) << Cookie::VALUE_BITS | value))
    }

    /// The layer that started the operation.
    pub const fn owner(self) -> AmId {
        AmId((self.0 >> Cookie::VALUE_BITS) as u8)
    }

    /// The value that the layer gave.
    pub const fn value(self) -> u64 {
        self.0 & ((1 << Cookie::VALUE_BITS) - 1)
    }
}

/// Why nothing was sent, or how an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// Nothing can be sent now. Not a failure: `on_sendable` follows.
    Busy,
    /// The endpoint is severed.
    Severed,
    /// The connection broke during the operation, which may have happened or not.
    Unknown,
    /// The device of this process could not do it, for a reason that is not the peer's: a registration or its memory is gone.
    LocalFault,
    /// The peer does not give this access: its key was taken back, gives another access, or the range reaches past the end of what is
    /// exposed. Nothing was copied.
    NoAccess,
    /// The endpoint lacks the ability.
    Unsupported,
}

/// Why an endpoint could not be connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectError {
    /// This transport does not reach the peer.
    Unreachable,
    /// Memory for the connection could not be reserved.
    NoMemory,
    /// This version of Mend cannot read the peer's card or memory layout.
    LayoutDiffers,
}

/// What a process sleeps on: its sleep word, descriptors, or both.
#[derive(Default, Debug)]
pub struct WakeSet {
    /// Peers wake this process at its sleep word in the bell page.
    pub futex: bool,
    /// Descriptors that become readable when there is an event. They are polled from the next sleep on, so a transport may close one
    /// and open another between two sleeps.
    pub descriptors: Vec<i32>,
    /// An event of some transport wakes nobody, as its device has no descriptor: the process sleeps for a millisecond at most.
    pub must_poll: bool,
}

impl WakeSet {
    /// Empties the set, and keeps its memory.
    pub fn clear(&mut self) {
        (self.futex, self.must_poll) = (false, false);
        self.descriptors.clear();
    }
}

/// There is an event already, so the process must not sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventPending;

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
