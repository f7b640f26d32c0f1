// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shared memory of one connection: what this process writes for the peer, and what the peer writes for it, from which
//! messages are delivered to the layer above.

use mend_base::PeerIndex;
use mend_segment::{BellRequest, Block, Garbage, PayloadRef, PeerBlock, Ring, RingMessage};
use mend_transport::{AmId, Payload, Sink, Stream};

/// An endpoint of shared memory: its index in the transport's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShmEndpoint(pub(crate) u32);

/// The rings of a block, in the order in which they are polled.
pub(crate) const RINGS: [Ring; 3] = [Ring::Control, Ring::Messages, Ring::Chunks];

/// The memory of both ends.
#[derive(Debug)]
pub(crate) struct BlockPair {
    /// The block that this process writes for the peer.
    pub(crate) mine: Block,
    /// The block that the peer writes for this process.
    pub(crate) theirs: PeerBlock,
    /// Successive polls that ended because of the budget, modulo 4. They decide where the next one begins, see
    /// [`BlockPair::hand_up`].
    budget_cuts: u8,
}

/// How many messages may still be taken from each ring, and how many mailbox values. While a dead peer is drained that is one
/// ring's length each, because threads of the dead process may still run for a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Quota {
    pub(crate) rings: [u32; 3],
    pub(crate) mailboxes: u32,
}

/// What is left of a quota if every ring was found empty: for giving all credit that is owed.
pub(crate) const ALL_FOUND_EMPTY: Quota = Quota { rings: [1; 3], mailboxes: 1 };

/// Messages of one kind that one poll takes, so that an endpoint that always has some leaves time for the others.
pub(crate) const PER_KIND: u32 = 16;

impl BlockPair {
    pub(crate) fn new(mine: Block, theirs: PeerBlock) -> Self {
        BlockPair { mine, theirs, budget_cuts: 0 }
    }

    // Hot: per poll.
    pub(crate) fn is_ready(&self) -> bool {
        self.theirs.block_may_exist()
            && (self.theirs.messages.is_ready()
                || self.theirs.control.is_ready()
                || self.theirs.mailbox_changed()
                || self.theirs.chunks.as_ref().is_some_and(|chunks| chunks.is_ready()))
    }

    // Hot: per poll.
    /// Delivers what is there, as far as `budget` and `quota` allow, and reduces `quota`. Mailbox values and control messages
    /// come first, so that they do not wait behind data. But if the budget ends several polls in succession, the rings come
    /// first round robin, as the last one would otherwise never be reached.
    pub(crate) fn hand_up(
        &mut self,
        peer: PeerIndex,
        budget: u32,
        quota: &mut Quota,
        sink: &mut impl Sink<ShmEndpoint>,
    ) -> Result<u32, Garbage> {
        let mut events = 0;
        if let Some(ring) = self.budget_cuts.checked_sub(1) {
            events = self.hand_up_ring(usize::from(ring), peer, budget, quota, sink)?;
        }
        if self.theirs.mailbox_changed() && quota.mailboxes > 0 {
            events += self.hand_up_mailboxes(peer, budget - events, quota, sink)?;
        }
        for ring in 0..RINGS.len() {
            events += self.hand_up_ring(ring, peer, budget - events, quota, sink)?;
        }
        self.budget_cuts = if events == budget { (self.budget_cuts + 1) % 4 } else { 0 };
        Ok(events)
    }

    /// The same for mailbox values and control messages alone.
    #[cold]
    pub(crate) fn hand_up_control(
        &mut self,
        peer: PeerIndex,
        budget: u32,
        quota: &mut Quota,
        sink: &mut impl Sink<ShmEndpoint>,
    ) -> Result<u32, Garbage> {
        let mut events = 0;
        if self.theirs.mailbox_changed() {
            events = self.hand_up_mailboxes(peer, budget, quota, sink)?;
        }
        Ok(events + self.hand_up_ring(0, peer, budget - events, quota, sink)?)
    }

    #[inline]
    fn hand_up_mailboxes(
        &mut self,
        peer: PeerIndex,
        budget: u32,
        quota: &mut Quota,
        sink: &mut impl Sink<ShmEndpoint>,
    ) -> Result<u32, Garbage> {
        let most = quota.mailboxes.min(budget);
        let taken = self.theirs.take_mailboxes(most, |value| deliver_message(peer, value, sink))?;
        quota.mailboxes -= taken;
        Ok(taken)
    }

    // Hot: per poll.
    #[inline]
    fn hand_up_ring(
        &mut self,
        ring: usize,
        peer: PeerIndex,
        budget: u32,
        quota: &mut Quota,
        sink: &mut impl Sink<ShmEndpoint>,
    ) -> Result<u32, Garbage> {
        let (theirs, left) = (&mut self.theirs, &mut quota.rings[ring]);
        let most = budget.min(*left);
        let (mut events, mut fine) = (0, Ok(()));
        while events < most {
            let taken = match ring {
                0 => theirs.control.take(|message| fine = fine.and(deliver_control(peer, message, sink)))?,
                1 => theirs.messages.take(|message| fine = fine.and(deliver(peer, message, sink)))?,
                _ => {
                    let Some(chunks) = &mut theirs.chunks else { break };
                    chunks.take(|message| fine = fine.and(deliver_chunk(peer, message, sink)))?
                }
            };
            if !taken {
                break;
            }
            events += 1;
        }
        *left -= events;
        fine.map(|()| events)
    }

    /// Gives credit where enough is owed: less is enough for a ring that was found empty. `unused` is what a poll has left of its
    /// quota: a ring with some of its quota left was found empty, or the budget of the poll ended first, and then credit is given
    /// a little earlier than necessary. Returns whether the peer has to be rung for it.
    #[inline(always)]
    pub(crate) fn give_credit(&mut self, unused: Quota) -> bool {
        let (mine, theirs) = (&self.mine, &mut self.theirs);
        let mut given = false;
        // The credit also tells the peer that its control messages were consumed: see `control_watch`.
        if theirs.control.owed(unused.rings[0] > 0) || unused.rings[0] > 0 && theirs.control.owes_any() {
            mine.set_credit(Ring::Control, theirs.control.give_credit());
            given = true;
        }
        if theirs.messages.owed(unused.rings[1] > 0) {
            mine.set_credit(Ring::Messages, theirs.messages.give_credit());
            given = true;
        }
        if let Some(chunks) = &mut theirs.chunks
            && chunks.owed(unused.rings[2] > 0)
        {
            mine.set_credit(Ring::Chunks, chunks.give_credit());
            given = true;
        }
        given && theirs.bell_request().has(BellRequest::CREDIT)
    }
}

// Hot: per control message.
fn deliver_control(
    peer: PeerIndex,
    message: RingMessage<'_>,
    sink: &mut impl Sink<ShmEndpoint>,
) -> Result<(), Garbage> {
    // Chunks have no place among control messages.
    if message.slot_header.chunk {
        return Err(Garbage);
    }
    deliver_message(peer, message, sink);
    Ok(())
}

// Hot: per message.
#[inline(always)]
pub(crate) fn deliver(
    peer: PeerIndex,
    message: RingMessage<'_>,
    sink: &mut impl Sink<ShmEndpoint>,
) -> Result<(), Garbage> {
    if message.slot_header.chunk {
        return deliver_chunk(peer, message, sink);
    }
    deliver_message(peer, message, sink);
    Ok(())
}

// Hot: per message.
#[inline(always)]
fn deliver_message(peer: PeerIndex, message: RingMessage<'_>, sink: &mut impl Sink<ShmEndpoint>) {
    sink.on_message(peer, AmId(message.slot_header.id), message.slot_header.header, payload(message.payload));
}

// Hot: per chunk.
fn deliver_chunk(
    peer: PeerIndex,
    message: RingMessage<'_>,
    sink: &mut impl Sink<ShmEndpoint>,
) -> Result<(), Garbage> {
    let header: [u8; 4] = message.slot_header.header.try_into().map_err(|_| Garbage)?;
    if !message.slot_header.chunk {
        return Err(Garbage);
    }
    sink.on_chunk(peer, Stream(u32::from_le_bytes(header)), payload(message.payload));
    Ok(())
}

// Hot: per message.
fn payload(lent: PayloadRef<'_>) -> Payload<'_> {
    match lent {
        PayloadRef::Private(bytes) => Payload::from(bytes),
        PayloadRef::Shared(bytes) => Payload::from(bytes),
    }
}
