// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control messages that wait to go out: one bounded queue for each peer, which every protocol uses, and which is served
//! before data.
//!
//! A protocol opens the queues before it uses them, and states how many of its messages may wait for one peer: its places.
//! *Reserved* places have their memory set aside in the queue of each connected peer, so a message that finds a place free is
//! queued whatever other protocols do and however little memory is left. Places *on demand* are a bound alone, for protocols that
//! may owe a peer more messages than memory can be set aside for. The queue of a peer is never longer than the sum of all
//! places.

use crate::paged::Paged;
use mend_base::PeerIndex;
use mend_transport::{AmId, Limits};
use std::collections::VecDeque;

/// How many messages of a protocol may wait to go to one peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Places {
    /// So many, with their memory set aside.
    Reserved(u32),
    /// At most so many, as far as there is memory.
    OnDemand(u32),
}

/// A protocol that has opened the control queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protocol(u8);

/// A control message was not queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlError {
    /// There is no memory; never the answer to a message that has a reserved place at a connected peer.
    NoMemory,
    /// All places of the protocol are taken.
    TooMany,
}

/// So many protocols can open the queues.
const PROTOCOLS_MAX: usize = 8;

/// The control queues of all peers.
#[derive(Default, Debug)]
pub(crate) struct ControlQueues {
    /// By [`Protocol`]; those that have opened come first.
    protocols: [Option<Opened>; PROTOCOLS_MAX],
    peers: Paged<Option<Box<Queue>>>,
    /// Messages in all queues.
    waiting: usize,
}

#[derive(Clone, Copy, Debug)]
struct Opened {
    id: AmId,
    places: Places,
}

#[derive(Default, Debug)]
struct Queue {
    messages: VecDeque<ControlMessage>,
    /// How many of `messages` are of each protocol.
    taken: [u32; PROTOCOLS_MAX],
}

/// A control message is a header alone.
#[derive(Clone, Copy, Debug)]
struct ControlMessage {
    protocol: Protocol,
    header: [u8; Limits::HEADER_BYTES_MAX],
    header_bytes: u8,
}

impl ControlQueues {
    /// A protocol begins to use the queues. `None`: no memory for its reserved places, and nothing has changed for others.
    pub(crate) fn open(&mut self, id: AmId, places: Places) -> Option<Protocol> {
        assert!(self.protocols.iter().flatten().all(|opened| opened.id != id), "a protocol opens once");
        let free =
            self.protocols.iter().position(Option::is_none).expect("PROTOCOLS_MAX covers every protocol");
        let reserved = self.reserved_places() + places.reserved();
        for queue in self.peers.iter_mut().flatten() {
            let unused = reserved - queue.taken_reserved(&self.protocols);
            if !mend_base::reserve_queue(&mut queue.messages, unused as usize) {
                return None;
            }
        }
        self.protocols[free] = Some(Opened { id, places });
        Some(Protocol(free as u8))
    }

    /// A peer is connected: reserved places are set aside for it. False without memory: its messages find places on demand.
    pub(crate) fn add_peer(&mut self, peer: PeerIndex) -> bool {
        let reserved = self.reserved_places();
        let queue = self.peers.at(peer.index()).get_or_insert_default();
        let unused = reserved - queue.taken_reserved(&self.protocols);
        mend_base::reserve_queue(&mut queue.messages, unused as usize)
    }

    /// Queues a message. Its header is no longer than [`Limits::HEADER_BYTES_MAX`].
    pub(crate) fn push(
        &mut self,
        peer: PeerIndex,
        protocol: Protocol,
        header: &[u8],
    ) -> Result<(), ControlError> {
        let Opened { places, .. } = self.opened(protocol);
        let reserved = self.reserved_places();
        let queue = self.peers.at(peer.index()).get_or_insert_default();
        let taken = queue.taken[usize::from(protocol.0)];
        if taken >= places.most() {
            return Err(ControlError::TooMany);
        }
        // What is set aside for others stays so: this message needs memory beyond that, unless its own place is reserved.
        let set_aside = reserved - queue.taken_reserved(&self.protocols);
        let needed = if places.reserved() > 0 { set_aside } else { set_aside + 1 };
        if !mend_base::reserve_queue(&mut queue.messages, needed as usize) {
            return Err(ControlError::NoMemory);
        }
        queue.taken[usize::from(protocol.0)] += 1;
        queue.messages.push_back(ControlMessage::new(protocol, header));
        self.waiting += 1;
        Ok(())
    }

    /// The id of the messages of a protocol.
    pub(crate) fn id(&self, protocol: Protocol) -> AmId {
        self.opened(protocol).id
    }

    /// The first message for `peer`: the id of its protocol, and its header.
    pub(crate) fn first(&self, peer: PeerIndex) -> Option<(AmId, &[u8])> {
        let message = self.queue(peer)?.messages.front()?;
        let Opened { id, .. } = self.opened(message.protocol);
        Some((id, &message.header[..usize::from(message.header_bytes)]))
    }

    /// The first message was sent.
    pub(crate) fn pop(&mut self, peer: PeerIndex) {
        let Some(queue) = self.peers.get_mut(peer.index()).and_then(Option::as_mut) else { return };
        if let Some(message) = queue.messages.pop_front() {
            queue.taken[usize::from(message.protocol.0)] -= 1;
            self.waiting -= 1;
        }
    }

    /// Whether nothing waits to go to `peer`.
    #[inline]
    pub(crate) fn is_empty(&self, peer: PeerIndex) -> bool {
        self.queue(peer).is_none_or(|queue| queue.messages.is_empty())
    }

    /// The peer has ended: forgets what waits to go to it.
    pub(crate) fn end_peer(&mut self, peer: PeerIndex) {
        if let Some(queue) = self.peers.at(peer.index()).take() {
            self.waiting -= queue.messages.len();
        }
    }

    /// How many messages wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    fn queue(&self, peer: PeerIndex) -> Option<&Queue> {
        self.peers.get(peer.index())?.as_deref()
    }

    /// The places set aside at each peer.
    fn reserved_places(&self) -> u32 {
        self.protocols.iter().flatten().map(|opened| opened.places.reserved()).sum()
    }

    fn opened(&self, protocol: Protocol) -> Opened {
        self.protocols[usize::from(protocol.0)].expect("only `open` makes a `Protocol`")
    }
}

impl Queue {
    /// How many reserved places are taken.
    fn taken_reserved(&self, protocols: &[Option<Opened>]) -> u32 {
        let reserved = |opened: Option<Opened>| opened.is_some_and(|opened| opened.places.reserved() > 0);
        let taken = protocols.iter().zip(self.taken).filter(|(opened, _)| reserved(**opened));
        taken.map(|(_, taken)| taken).sum()
    }
}

impl Places {
    fn reserved(self) -> u32 {
        match self {
            Places::Reserved(places) => places,
            Places::OnDemand(_) => 0,
        }
    }

    fn most(self) -> u32 {
        match self {
            Places::Reserved(places) | Places::OnDemand(places) => places,
        }
    }
}

impl ControlMessage {
    fn new(protocol: Protocol, header: &[u8]) -> Self {
        let mut copy = [0; Limits::HEADER_BYTES_MAX];
        copy[..header.len()].copy_from_slice(header);
        ControlMessage { protocol, header: copy, header_bytes: header.len() as u8 }
    }
}

#[cfg(test)]
mod tests {
    use super::{ControlError, ControlQueues, Places};
    use mend_base::PeerIndex;
    use mend_transport::AmId;

    const PEER: PeerIndex = PeerIndex(3);

    #[test]
    fn messages_of_all_protocols_go_in_one_order_under_their_own_ids() {
        let mut queues = ControlQueues::default();
        let one = queues.open(AmId(1), Places::OnDemand(8)).unwrap();
        let two = queues.open(AmId(2), Places::Reserved(2)).unwrap();
        queues.push(PEER, two, b"a").unwrap();
        queues.push(PEER, one, b"bc").unwrap();
        assert_eq!((queues.first(PEER), queues.waiting()), (Some((AmId(2), &b"a"[..])), 2));
        queues.pop(PEER);
        assert_eq!(queues.first(PEER), Some((AmId(1), &b"bc"[..])));
        queues.pop(PEER);
        assert!(queues.is_empty(PEER) && queues.waiting() == 0);
    }

    #[test]
    fn a_protocol_fills_its_own_places_alone() {
        let mut queues = ControlQueues::default();
        let many = queues.open(AmId(1), Places::OnDemand(1_000)).unwrap();
        let reserved = queues.open(AmId(2), Places::Reserved(2)).unwrap();
        assert!(queues.add_peer(PEER));
        (0..1_000).for_each(|_| queues.push(PEER, many, b"").unwrap());
        assert_eq!(queues.push(PEER, many, b""), Err(ControlError::TooMany));
        (0..2).for_each(|_| queues.push(PEER, reserved, b"").unwrap());
        assert_eq!(queues.push(PEER, reserved, b""), Err(ControlError::TooMany));
        queues.pop(PEER);
        queues.push(PEER, many, b"").unwrap();
        queues.end_peer(PEER);
        assert_eq!(queues.waiting(), 0);
    }

    /// The capacity of the queue is the memory that is set aside: no other protocol uses it.
    #[test]
    fn reserved_places_keep_their_memory_while_others_fill_the_queue() {
        let mut queues = ControlQueues::default();
        let many = queues.open(AmId(1), Places::OnDemand(1_000)).unwrap();
        assert!(queues.add_peer(PEER));
        queues.push(PEER, many, b"").unwrap();
        let reserved = queues.open(AmId(2), Places::Reserved(5)).unwrap();
        for _ in 0..200 {
            queues.push(PEER, many, b"").unwrap();
            let queue = queues.queue(PEER).unwrap();
            assert!(queue.messages.capacity() - queue.messages.len() >= 5);
        }
        let before = queues.queue(PEER).unwrap().messages.capacity();
        (0..5).for_each(|_| queues.push(PEER, reserved, b"").unwrap());
        assert_eq!(queues.queue(PEER).unwrap().messages.capacity(), before, "nothing was allocated");
    }
}
