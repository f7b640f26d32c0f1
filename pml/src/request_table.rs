// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The operations that are not over, or whose end has not been asked for yet: each begins once, ends once and is
//! released once. For each channel it counts those that are active, so that a channel that was closed is removed with its last
//! operation, without a search.
//!
//! ```text
//!   sends      Queued ──room──▶ Done (eager)            receives   Posted ──eager──▶ Done
//!                └──room──▶ RtsSent ──MATCHED──▶ Done                │ ▲  └──RTS──▶ Matched ──last chunk──▶ Done
//!                              ├──CTS──▶ Streaming ──last chunk──▶ Done  └──RTS cancelled──┘
//!                              └──REFUSED──▶ Done (PeerFreed, NotCreated, Revoked, Poisoned)
//! ```
//! A send whose memory is exposed is `Releasing` before it is `Streaming` or `Done`: until no peer can read its memory any more, and it
//! is not registered. A receive that takes its bytes by gets is `Matched` until its last get has ended.
//!
//! Progress moves the states. The end of the peer, and giving up ([`abandon`](crate::Ob1::abandon)), end every state. A revocation
//! ends `Queued` and `Posted` alone. A cancellation ends every state, except that a receive in `Matched` goes on unless its RTS is cancelled too, and that a stream goes on from a
//! copy.

use crate::envelope::Note;
use crate::list::{Linked, Links, NONE};
use crate::matcher::{POSTED, PostedReceive};
use crate::request::{CommIndex, Error, SendMode, SleeperId, Status};
use mend_base::{Key, LifecycleCheck, LifecycleCounts, Rank, Slab, Source, Tag, TagSelector};
use mend_datatype::TypedBuffer;
use mend_transport::Stream;

/// All operations of this process.
#[derive(Default, Debug)]
pub(crate) struct RequestTable {
    entries: Slab<RequestEntry>,
    lifecycle_check: LifecycleCheck,
    /// By the index of the channel's key.
    channels: Vec<ChannelCount>,
    /// Sends that are not over.
    sends: usize,
    /// Sleepers of requests that have ended, which were not woken yet.
    to_wake: Vec<SleeperId>,
    #[cfg(test)]
    refuses: bool,
}

/// The operations of one channel.
#[derive(Clone, Copy, Default, Debug)]
struct ChannelCount {
    /// Those that are not over.
    active: u32,
    /// It is closed, and is removed when none is left.
    closing: bool,
    /// What each of its operations gets.
    comm: Option<CommIndex>,
}

/// An operation.
#[derive(Debug)]
pub(crate) struct RequestEntry {
    /// Empty once it is over: its buffer is not touched any more (I7).
    data: TypedBuffer,
    /// Where it is counted as active.
    channel: Key,
    phase: Phase,
    links: Links,
    /// `None`: the handle was released.
    comm: Option<CommIndex>,
    /// Its handle was released while it ran: it is forgotten when it is over.
    detached: bool,
    /// A receive that was cancelled after it had matched: it is not matched a second time.
    cancelled: bool,
    /// Its data are a copy of the program's.
    is_copy: bool,
    /// It is woken by the end.
    sleeper: Option<SleeperId>,
}

const _: () = assert!(size_of::<RequestEntry>() <= 256);

/// How far an operation is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Phase {
    /// A send that waits for a connection, for room, or behind another send.
    /// `held`: its memory, if it is exposed already.
    Queued { to: Rank, tag: Tag, mode: SendMode, held: Option<Key> },
    /// A send that waits for its match.
    RtsSent { to: Rank, offer: Offer },
    /// A send whose memory is being released, and what comes then. It has its answer, or waits for none.
    Releasing { to: Rank, then: Then },
    /// A send whose bytes go as the receiver asked for them.
    Streaming { to: Rank, stream: Stream, sent: u64, bytes_wanted: u64, chunk: u32 },
    /// The cancellation of the RTS `rts`, which is sent behind it: an operation of its own, without a handle, so that the
    /// channel exists until it is sent.
    CancelQueued { to: Rank, rts: Key },
    /// A message about a collective operation, to be sent: an operation of its own, without a handle, so that the channel exists until
    /// it is sent.
    AboutOperation { to: Rank, tag: Tag, note: Note },
    /// A receive without a match.
    Posted(Posted),
    /// A receive that has matched the RTS `key` of `total` bytes; its CTS may still have to wait for a stream. The status holds
    /// how many of the bytes it receives. `transfer`: it takes them by gets.
    Matched { from: Rank, key: Key, status: Status, total: u64, posted: Posted, transfer: Option<Key> },
    /// Over.
    Done(Result<Status, Error>),
}

/// What a send that waits for its match has sent. `Some`: memory that it holds, exposed or being released (`exposures`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Offer {
    /// Its payload: it is synchronous and eager.
    Payload,
    /// An RTS.
    Stream(Option<Key>),
    /// An RTS with a remote key, which may have been taken back.
    RemoteKey(Option<Key>),
}

impl Offer {
    /// The memory that it holds.
    pub(crate) fn held(self) -> Option<Key> {
        match self {
            Offer::Payload => None,
            Offer::Stream(held) | Offer::RemoteKey(held) => held,
        }
    }
}

/// What comes when the memory of a send is released.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    /// It ends.
    End(Result<Status, Error>),
    /// It is streamed as its receiver asked for it.
    Stream { stream: Stream, bytes_wanted: u64 },
}

/// What a receive admits, and when it was posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    pub(crate) from: Source,
    pub(crate) tag: TagSelector,
    pub(crate) stamp: u64,
}

impl Phase {
    /// Whether it is a send that is not over, or the cancellation of one.
    #[inline]
    pub(crate) fn is_send(&self) -> bool {
        matches!(
            self,
            Phase::Queued { .. }
                | Phase::RtsSent { .. }
                | Phase::Releasing { .. }
                | Phase::Streaming { .. }
                | Phase::CancelQueued { .. }
                | Phase::AboutOperation { .. }
        )
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Phase::Done(_))
    }
}

impl RequestEntry {
    #[inline]
    pub(crate) fn phase(&self) -> &Phase {
        &self.phase
    }

    #[inline]
    pub(crate) fn data(&self) -> &TypedBuffer {
        &self.data
    }

    #[inline]
    pub(crate) fn channel(&self) -> Key {
        self.channel
    }

    /// Whether its data are a copy of the program's.
    pub(crate) fn is_copy(&self) -> bool {
        self.is_copy
    }

    /// The memory that a send holds.
    pub(crate) fn held(&self) -> Option<Key> {
        match self.phase {
            Phase::Queued { held, .. } => held,
            Phase::RtsSent { offer, .. } => offer.held(),
            _ => None,
        }
    }

    /// Whether it was cancelled after it had matched.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled
    }

    pub(crate) fn set_cancelled(&mut self) {
        self.cancelled = true;
    }

    /// What a send that streams has left: its data, and how far it is.
    #[inline]
    pub(crate) fn stream_mut(&mut self) -> Option<StreamingSend<'_>> {
        let Phase::Streaming { stream, sent, bytes_wanted, chunk, .. } = &mut self.phase else { return None };
        Some(StreamingSend { data: &self.data, stream: *stream, sent, bytes_wanted: *bytes_wanted, chunk })
    }
}

/// A send whose bytes go.
pub(crate) struct StreamingSend<'a> {
    pub(crate) data: &'a TypedBuffer,
    pub(crate) stream: Stream,
    pub(crate) sent: &'a mut u64,
    pub(crate) bytes_wanted: u64,
    /// The longest next piece.
    pub(crate) chunk: &'a mut u32,
}

impl RequestTable {
    /// A new operation on a channel. `None`: there is no memory for it.
    #[inline]
    pub(crate) fn begin(&mut self, channel: Key, data: TypedBuffer, phase: Phase) -> Option<Key> {
        #[cfg(test)]
        if self.refuses {
            return None;
        }
        let is_send = phase.is_send();
        let count = self.channels.get_mut(channel.index as usize);
        let comm = count.as_ref().and_then(|count| count.comm);
        let links = Links::ALONE;
        let (detached, cancelled, is_copy, sleeper) = (false, false, false, None);
        let entry = RequestEntry { data, channel, phase, links, comm, detached, cancelled, is_copy, sleeper };
        let key = self.entries.try_insert(entry)?;
        self.lifecycle_check.begin(key);
        self.sends += usize::from(is_send);
        if let Some(count) = count {
            count.active += 1;
        }
        Some(key)
    }

    /// An operation on a channel that is over before it began: its error belongs to the wait. It is active on no channel.
    /// `None`: there is no memory for it.
    pub(crate) fn begin_ended(&mut self, channel: Key, result: Result<Status, Error>) -> Option<Key> {
        let key = self.begin(NONE, TypedBuffer::empty(), Phase::Done(result))?;
        self.lifecycle_check.end(key);
        let comm = self.comm_of_channel(channel);
        self.entries.get_mut(key)?.comm = comm;
        Some(key)
    }

    #[inline]
    pub(crate) fn comm_of_channel(&self, channel: Key) -> Option<CommIndex> {
        self.channels.get(channel.index as usize)?.comm
    }

    /// To whom an operation belongs; `None`: its handle was given back, or it is not in the table.
    #[inline]
    pub(crate) fn comm(&self, key: Key) -> Option<CommIndex> {
        self.entries.get(key)?.comm
    }

    /// Sees to it that the next operation finds memory. `false`: there is none.
    #[inline]
    pub(crate) fn reserve(&mut self) -> bool {
        #[cfg(test)]
        if self.refuses {
            return false;
        }
        self.entries.has_empty_slot() || self.entries.try_reserve(1)
    }

    // Hot: per message.
    /// The operation `key`.
    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&RequestEntry> {
        self.entries.get(key)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut RequestEntry> {
        self.entries.get_mut(key)
    }

    /// The operation goes on as `phase`.
    pub(crate) fn set_phase(&mut self, key: Key, phase: Phase) {
        debug_assert!(!phase.is_over(), "`end` ends an operation");
        let Some(entry) = self.entries.get_mut(key) else { return };
        self.sends -= usize::from(entry.phase.is_send());
        self.sends += usize::from(phase.is_send());
        entry.phase = phase;
    }

    /// The rest of a send is sent from a copy.
    pub(crate) fn replace_data(&mut self, key: Key, data: TypedBuffer) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.data = data;
            entry.is_copy = true;
        }
    }

    /// The memory that a send without an answer holds.
    pub(crate) fn set_held(&mut self, key: Key, memory: Option<Key>) {
        match self.entries.get_mut(key).map(|entry| &mut entry.phase) {
            Some(Phase::Queued { held, .. }) => *held = memory,
            Some(Phase::RtsSent { offer: Offer::Stream(held) | Offer::RemoteKey(held), .. }) => {
                *held = memory
            }
            _ => debug_assert!(false, "a send without an answer"),
        }
    }

    /// How a receive that has matched an RTS takes the bytes.
    pub(crate) fn set_transfer(&mut self, key: Key, by: Option<Key>) {
        match self.entries.get_mut(key).map(|entry| &mut entry.phase) {
            Some(Phase::Matched { transfer, .. }) => *transfer = by,
            _ => debug_assert!(false, "a receive that has matched"),
        }
    }

    /// The slab in which the matcher finds the receives.
    #[inline]
    pub(crate) fn receives(&mut self) -> &mut Slab<RequestEntry> {
        &mut self.entries
    }

    // Hot: per message.
    /// The end of every operation. Its buffer is not touched any more (I7): the caller has seen to it that no byte of it is
    /// under way. The channel, if it is closed and this was its last operation.
    #[inline]
    pub(crate) fn end(&mut self, key: Key, result: Result<Status, Error>) -> Option<Key> {
        self.lifecycle_check.end(key);
        let Some(entry) = self.entries.get_mut(key) else {
            debug_assert!(false, "an operation ends while it is in the table");
            return None;
        };
        debug_assert!(!entry.phase.is_over(), "an operation ends once");
        self.sends -= usize::from(entry.phase.is_send());
        entry.phase = Phase::Done(result);
        entry.data = TypedBuffer::empty();
        let channel = entry.channel;
        if let Some(sleeper) = entry.sleeper.take() {
            self.to_wake.push(sleeper);
        }
        if entry.detached {
            self.forget(key);
        }
        let count = self.channels.get_mut(channel.index as usize)?;
        count.active -= 1;
        (count.closing && count.active == 0).then_some(channel)
    }

    /// Releases the handle: the caller will not ask for the operation any more. If it is over, it is forgotten; else it goes on
    /// to its end, and is forgotten then (Row PP22). Returns its communicator, if the handle was not released before.
    #[inline]
    pub(crate) fn release(&mut self, key: Key) -> Option<CommIndex> {
        let entry = self.entries.get_mut(key)?;
        let comm = entry.comm.take();
        if entry.phase.is_over() {
            self.forget(key);
        } else {
            entry.detached = true;
        }
        comm
    }

    /// The end of the operation will wake `sleeper`. Nothing happens for one that is over already.
    pub(crate) fn wake_at_end(&mut self, key: Key, sleeper: SleeperId) {
        if let Some(entry) = self.entries.get_mut(key)
            && !entry.phase.is_over()
        {
            entry.sleeper = Some(sleeper);
        }
    }

    /// The sleeper of an operation that has ended, to be woken; each once.
    #[inline]
    pub(crate) fn next_to_wake(&mut self) -> Option<SleeperId> {
        self.to_wake.pop()
    }

    /// An operation that is over leaves the table.
    #[inline]
    pub(crate) fn forget(&mut self, key: Key) {
        self.lifecycle_check.release(key);
        self.entries.remove(key);
    }

    /// A channel was opened under this key.
    pub(crate) fn open_channel(&mut self, channel: Key, comm: CommIndex) {
        let at = channel.index as usize;
        if at >= self.channels.len() {
            self.channels.resize(at + 1, ChannelCount::default());
        }
        self.channels[at] = ChannelCount { comm: Some(comm), ..ChannelCount::default() };
    }

    /// The channel is closed. Whether no operation is active there: then it is removed now, else with the last operation.
    pub(crate) fn close_channel(&mut self, channel: Key) -> bool {
        let count = &mut self.channels[channel.index as usize];
        count.closing = true;
        count.active == 0
    }

    /// Whether the channel was closed, and is removed with its last operation.
    pub(crate) fn is_closing(&self, channel: Key) -> bool {
        self.channels.get(channel.index as usize).is_some_and(|count| count.closing)
    }

    /// How many operations are active on a channel that is open.
    pub(crate) fn active(&self, channel: Key) -> u32 {
        self.channels.get(channel.index as usize).map_or(0, |count| count.active)
    }

    /// Whether an operation had this key and is over.
    pub(crate) fn is_over(&self, key: Key) -> bool {
        match self.entries.get(key) {
            Some(entry) => entry.phase.is_over(),
            None => self.entries.is_stale(key),
        }
    }

    /// Sends that are not over.
    pub(crate) fn sends(&self) -> usize {
        self.sends
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many slots there are: indices are below.
    pub(crate) fn slots(&self) -> u32 {
        self.entries.slots()
    }

    /// The operation in a slot.
    pub(crate) fn at(&self, slot: u32) -> Option<&RequestEntry> {
        self.entries.get(self.entries.key_at(slot)?)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &RequestEntry)> {
        self.entries.iter()
    }

    /// Asserts that every operation that has begun is in the table until it has ended, once, and is released once, and that
    /// what is counted agrees with what is in the table. How many so far, in a build with `mend_base::LifecycleCheck`.
    pub(crate) fn lifecycle_check(&self) -> LifecycleCounts {
        let standing = self.entries.iter().map(|(key, entry)| (key, entry.phase.is_over()));
        self.lifecycle_check.assert_agrees(standing);
        let sends = self.entries.iter().filter(|(_, entry)| entry.phase.is_send()).count();
        assert_eq!(self.sends, sends, "sends that are not over");
        let mut active = vec![0; self.channels.len()];
        for (_, entry) in self.entries.iter().filter(|(_, entry)| !entry.phase.is_over()) {
            active[entry.channel.index as usize] += 1;
        }
        let counted: Vec<u32> = self.channels.iter().map(|count| count.active).collect();
        assert_eq!(counted, active, "operations of each channel that are not over");
        self.lifecycle_check.counts()
    }

    /// From now on there is no memory for an operation.
    #[cfg(test)]
    pub(crate) fn refuse(&mut self, refuses: bool) {
        self.refuses = refuses;
    }
}

impl Linked<POSTED> for RequestEntry {
    fn links(&self) -> &Links {
        &self.links
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl PostedReceive for RequestEntry {
    #[inline(always)]
    fn admits(&self, wanted: Tag) -> Option<u64> {
        match self.phase {
            Phase::Posted(Posted { tag, stamp, .. }) if tag.admits(wanted) => Some(stamp),
            _ => None,
        }
    }

    fn stamp(&self) -> u64 {
        match self.phase {
            Phase::Posted(Posted { stamp, .. }) => stamp,
            _ => u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Offer, Phase, Posted, RequestTable};
    use crate::request::{CommIndex, Error, SendMode, SleeperId, Status};
    use mend_base::{Key, LifecycleCounts, Rank, Source, Tag, TagSelector};
    use mend_datatype::TypedBuffer;

    const CHANNEL: Key = Key { index: 2, generation: 1 };
    const POSTED: Phase = Phase::Posted(Posted { from: Source::Any, tag: TagSelector::Any, stamp: 1 });
    const QUEUED: Phase = Phase::Queued { to: Rank(0), tag: Tag(0), mode: SendMode::Standard, held: None };

    fn table() -> RequestTable {
        let mut table = RequestTable::default();
        table.open_channel(CHANNEL, CommIndex(7));
        table
    }

    #[test]
    fn a_request_begins_ends_and_is_forgotten_once() {
        let mut table = table();
        let key = table.begin(CHANNEL, TypedBuffer::empty(), POSTED).unwrap();
        assert_eq!(table.lifecycle_check(), LifecycleCounts { begun: 1, ended: 0, released: 0 });
        assert_eq!(table.end(key, Ok(Status::CANCELLED)), None);
        assert_eq!(table.lifecycle_check(), LifecycleCounts { begun: 1, ended: 1, released: 0 });
        assert!(table.is_over(key));
        table.release(key);
        assert_eq!(table.lifecycle_check(), LifecycleCounts { begun: 1, ended: 1, released: 1 });
        assert!(table.is_over(key) && table.len() == 0);
    }

    #[test]
    fn a_detached_request_is_forgotten_with_its_end_and_a_closed_channel_goes_with_its_last() {
        let mut table = table();
        let [first, last] =
            [POSTED, QUEUED].map(|phase| table.begin(CHANNEL, TypedBuffer::empty(), phase).unwrap());
        assert_eq!((table.active(CHANNEL), table.sends()), (2, 1));
        table.release(first);
        assert!(!table.close_channel(CHANNEL) && table.is_closing(CHANNEL));
        assert_eq!(table.end(first, Ok(Status::EMPTY)), None);
        assert_eq!(table.len(), 1);
        assert_eq!(table.end(last, Ok(Status::EMPTY)), Some(CHANNEL));
        assert_eq!((table.active(CHANNEL), table.sends()), (0, 0));
    }

    #[test]
    fn a_send_that_changes_its_phase_is_counted_as_long_as_something_is_to_be_sent() {
        let mut table = table();
        let key = table.begin(CHANNEL, TypedBuffer::empty(), QUEUED).unwrap();
        table.set_phase(key, Phase::RtsSent { to: Rank(0), offer: Offer::Stream(None) });
        assert_eq!(table.sends(), 1);
        table.end(key, Ok(Status::EMPTY));
        assert_eq!(table.sends(), 0);
        table.lifecycle_check();
    }

    #[test]
    fn an_operation_belongs_to_the_communicator_of_its_channel_until_its_handle_is_given_back() {
        let mut table = table();
        let attached = table.begin(CHANNEL, TypedBuffer::empty(), POSTED).unwrap();
        let failed = table.begin_ended(CHANNEL, Err(Error::NoMemory)).unwrap();
        // The channel's place goes to another channel, and that changes nothing for them.
        table.end(attached, Ok(Status::EMPTY));
        table.open_channel(CHANNEL, CommIndex(8));
        assert_eq!((table.comm(attached), table.comm(failed)), (Some(CommIndex(7)), Some(CommIndex(7))));
        let detached = table.begin(CHANNEL, TypedBuffer::empty(), POSTED).unwrap();
        assert_eq!(table.comm(detached), Some(CommIndex(8)));
        [attached, failed, detached].into_iter().for_each(|key| assert!(table.release(key).is_some()));
        assert_eq!([attached, failed, detached].map(|key| table.comm(key)), [None; 3]);
        assert!(table.get(detached).is_some());
    }

    #[test]
    fn the_end_of_an_operation_names_its_sleeper_once() {
        let mut table = table();
        let sleeper = SleeperId(core::num::NonZero::new(7).unwrap());
        let [awaited, other] =
            [POSTED, QUEUED].map(|phase| table.begin(CHANNEL, TypedBuffer::empty(), phase).unwrap());
        table.wake_at_end(awaited, sleeper);
        table.end(other, Ok(Status::EMPTY));
        table.wake_at_end(other, sleeper);
        assert_eq!(table.next_to_wake(), None);
        table.end(awaited, Ok(Status::EMPTY));
        assert_eq!((table.next_to_wake(), table.next_to_wake()), (Some(sleeper), None));
    }

    #[test]
    fn without_memory_nothing_begins_and_nothing_is_counted() {
        let mut table = table();
        table.refuse(true);
        assert_eq!(table.begin(CHANNEL, TypedBuffer::empty(), QUEUED), None);
        assert!(table.begin_ended(CHANNEL, Ok(Status::EMPTY)).is_none() && !table.reserve());
        assert_eq!((table.active(CHANNEL), table.sends(), table.len()), (0, 0, 0));
    }

    #[test]
    #[should_panic(expected = "ends twice")]
    fn a_second_end_is_caught() {
        let mut table = table();
        let key = table.begin(CHANNEL, TypedBuffer::empty(), POSTED).unwrap();
        table.end(key, Ok(Status::EMPTY));
        table.end(key, Ok(Status::EMPTY));
    }

    #[test]
    #[should_panic(expected = "but is not in the table")]
    fn an_end_of_what_was_forgotten_is_caught() {
        let mut table = table();
        let key = table.begin(CHANNEL, TypedBuffer::empty(), POSTED).unwrap();
        table.release(key);
        table.end(key, Ok(Status::EMPTY));
        table.end(key, Ok(Status::EMPTY));
    }

    #[test]
    #[should_panic(expected = "released before it ended")]
    fn a_request_that_is_forgotten_before_its_end_is_caught() {
        let mut table = table();
        let key = table.begin(CHANNEL, TypedBuffer::empty(), POSTED).unwrap();
        table.forget(key);
    }

    #[test]
    #[should_panic(expected = "what was reported")]
    fn a_request_that_leaves_the_table_past_the_check_is_caught() {
        let mut table = table();
        let key = table.begin(CHANNEL, TypedBuffer::empty(), POSTED).unwrap();
        table.entries.remove(key);
        table.lifecycle_check();
    }

    #[test]
    #[should_panic(expected = "that are not over")]
    fn an_operation_that_its_channel_does_not_count_is_caught() {
        let mut table = table();
        table.begin(CHANNEL, TypedBuffer::empty(), POSTED).unwrap();
        table.channels[CHANNEL.index as usize].active -= 1;
        table.lifecycle_check();
    }
}
