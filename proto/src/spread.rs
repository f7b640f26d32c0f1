// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reliable broadcast of two facts about one communicator: that it is revoked, and which members have failed.
//!
//! Both are sets that only grow; an [`Item`] is an element. Each member floods what is new to it over the circulant graph of the
//! members: its *neighbours* are the members at distances of ±2^i. An *absent* member, which has failed or has freed the
//! communicator, is skipped: the neighbour in that direction is the next member that is present.
//!
//! ```text
//!             add, on_message, on_failure                      flush
//!   no part ───────────────────────────────▶ items unsent  ──────────────▶  all items sent
//!                                                  ▲                            │   │ close, and flush when every
//!                                                  └────────────────────────────┘   │ neighbour has told the same set
//!                                                    add, on_message, on_failure    ▼
//!                                                                                 over: Gone to all neighbours, and
//!                                                                                 for ever to whoever sends items
//! ```
//!
//! # What a member sends
//!
//! * What is new here goes to all neighbours at the next [`flush`](Spread::flush), also to the one that it came from: this tells
//!   that one that it is here. So a batch of items costs a member at most 2 ⌊log2 n⌋ messages, if it fits one message; a
//!   message holds a revoke and three ranks, or runs of ranks (BAR-2.1).
//! * A member that becomes a neighbour, because one before it is absent, gets all items, or if it is known to have them a message
//!   without items.
//! * Every message has the *digest* of the sender's set: its hash and size. Messages from one member to another arrive in order,
//!   and add to each other; if a digest is not that of what has come, and not that of the receiver's own set, then
//!   a message was lost, and the receiver asks for all items. This can be when the communicator did not exist yet at the receiver.
//!
//! # Every member gets every item (BAR-2.2)
//!
//! Let S be the members that neither fail nor free the communicator, and c a member of S with an item. *Each current neighbour of
//! c was sent a message by c, and either was sent the item or has told that it has it*: at a flush c sends to all neighbours, and when
//! a member becomes a neighbour it is owed a message, which the next flush sends. Failures are published at each member in the
//! end, so c's next neighbour up the ring is finally some z that has not failed, and no member of S is between them, since members
//! of S are never absent. Suppose z has freed the communicator. It got a message from c. If its part was over before, it answered
//! `Gone`; if not, c was among those to which its last message, `Gone`, went. In both cases c knows that z is absent: a
//! contradiction. So z is the next member of S up the ring, and has the item, or gets it since neither end of the channel fails.
//! By induction around the ring, all of S get it. Crashes between two sends and lost suffixes of channels do not matter, as only what
//! members of S have sent is counted.
//!
//! The ring alone would take n/2 hops; with the other neighbours it is ⌊log2 n⌋ from one member to any other, whoever is absent
//! (`neighbours.rs`), when failures are published, and each failure on the way costs at most one hop more.
//!
//! # Nothing is lost when a member goes
//!
//! Let x have an item, free the communicator, and live on. The item must reach S although no member of S may have it yet. `Gone` of x
//! goes out when each neighbour of x has told the same set. Suppose S lacks the item; let c be the next member of S up the ring, and take
//! the members from x up to c. The neighbour of x up the ring has the item. So it is not c; it fails or frees the communicator, and
//! in the second case *its* next neighbour has the item when it goes, and so on. Since c lacks the item, one of these members
//! failed. So a failure is published at c, which gives c something to spread, and c sends to its neighbour down the ring.
//! Going down from c, members are absent, and c learns so by the argument above, until c sends to one that has the item, which is x at the
//! latest. If its part is over, it answers `GoneRevoked`; if not, c is among those to which its `GoneRevoked` will go. So c learns that the communicator is
//! revoked. Failures need no such message: they are published at all members.
//!
//! For this answer a process keeps one bit for each identity that it has retired: whether the communicator was revoked. Without
//! this bit, the revoke is lost if all neighbours of x, about 2 log2 n, fail right after they have told x that they have it, with
//! all that they sent to others. Without the wait for the neighbours, it is lost if the neighbours have freed the communicator.
//!
//! # It ends, in bounded memory
//!
//! Everything that is sent has a cause: an item that is new here (once for each neighbour), a neighbour that is new here (once), a
//! request, or, after `close`, a neighbour whose set differs (asked once for each set of ours). Sets and absent members only grow, to n
//! at most. The answer to a request is itself no request, unless it shows that a message was lost or, after `close`, that the sets
//! differ, which is the case just counted. What was lost is asked for once, and comes as an enumeration that is consistent by
//! itself, so it shows no loss. So every chain of messages ends. `Gone` is not answered.
//!
//! A part is O(items + absent members + members that have sent something). After `close` it waits only for its neighbours: each
//! answers at its next turn of progress, or fails, or answers `Gone`; whether it frees the communicator does not matter. So the
//! parts that wait are those of communicators whose last messages are in flight, however many communicators are created, revoked
//! and freed. If all members have the items when they free, each sends `Gone` to each neighbour, and nothing else.
//!
//! # What the owner does
//!
//! * It makes a part when the first item is added, a failure of a member is published (but where
//!   [all are neighbours](Spread::are_all_neighbours)), or a message other than `Gone` comes; it tells the new part of all failures that are
//!   published. It calls `flush` in each turn of progress in which [`is_due`](Spread::is_due).
//! * It frees the communicator for this protocol when no operation on it needs news any more: the operations that run when the program frees
//!   it must hear of a revocation.
//! * When it has freed the communicator and there is no part, or the part is over, it answers each `Items` with `Gone`, or with
//!   `GoneRevoked` if the communicator was revoked when it was freed, and ignores the other messages.
//! * It stores messages for communicators that are not created yet, or at least answers them when the identity is retired: a sender that has
//!   freed the communicator waits for this.

mod message;
mod neighbours;
#[cfg(test)]
mod tests;

pub use message::{Batch, Message};

use crate::protocol::{Output, Protocol};
use crate::ranks::Ranks;
use mend_base::{Rank, reach};
use message::{Digest, Items, Want};
use neighbours::Neighbours;

/// One member's part in the broadcast about one communicator.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Spread {
    me: Rank,
    size: u32,
    /// What is known here.
    items: Items,
    digest: Digest,
    /// Those of the items that neighbours have not been sent.
    unsent: Items,
    /// The digest of the others.
    sent: Digest,
    /// Members that failed, as far as this is published here, or freed the communicator, as far as this is known here. A failed
    /// member of which others have told is not absent until its failure is published: it may be alive.
    absent: Ranks,
    /// Sorted by rank. Members of which nothing is known have no entry.
    peers: Vec<Peer>,
    phase: Phase,
}

/// A fact about the communicator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Item {
    /// The communicator is revoked.
    Revoked,
    /// The member failed. From another member this is evidence, not a publication.
    Failed(Rank),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    Open,
    /// Freed here; neighbours may lack items.
    Closing,
    /// Freed here, and nothing is owed.
    Over,
}

/// What is known of another member that is not absent, and what goes to it at the next flush.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Peer {
    rank: Rank,
    /// The set that it has, as far as it has told: it has all items if this is our digest.
    told: Digest,
    /// What it wants.
    owed: Want,
    /// Some message from it was lost: if its set is not ours, it has items that did not come here.
    was_lost: bool,
    /// It was asked, since our set has changed, whether it has the same.
    is_asked: bool,
}

impl Spread {
    /// The part of member `me`, which knows nothing yet. Allocates nothing.
    pub fn new(me: Rank, size: u32) -> Self {
        assert!(me.0 < size && size <= 1 << 31, "a rank is below the size, which fits an int");
        Spread {
            me,
            size,
            items: Items::default(),
            digest: Digest::default(),
            unsent: Items::default(),
            sent: Digest::default(),
            absent: Ranks::new(),
            peers: Vec::new(),
            phase: Phase::Open,
        }
    }

    /// Whether each of so many members is a neighbour of each other one. Then news that a member has learned is with all members when it
    /// goes, and no part needs to be made for a failure alone.
    pub fn are_all_neighbours(size: u32) -> bool {
        // More members have neighbours at 2 ⌊log2 n⌋ places, and more places.
        size <= 8 && Neighbours::new(Rank(0), size, &Ranks::new()).as_slice().len() as u32 + 1 >= size
    }

    /// This member learned of it here: from the program, which called `MPI_Comm_revoke`, or from the runtime. The outcome is the
    /// item, if it is new here.
    pub fn add(&mut self, item: Item, out: &mut Output<Message, Item>) {
        if let Item::Failed(rank) = item {
            assert!(rank.0 < self.size, "{rank:?} is a member");
        }
        if self.learn(item) {
            out.outcomes.push(item);
        }
    }

    /// A member has freed the communicator and forgotten it, or has finalized: it is skipped, as if it had failed.
    pub fn on_departure(&mut self, rank: Rank, _: &mut Output<Message, Item>) {
        match self.phase {
            Phase::Open => reach!("proto.spread: a departure meets an open part"),
            Phase::Closing => reach!("proto.spread: a departure meets a freed part"),
            Phase::Over => reach!("proto.spread: a departure meets a part that is over"),
        }
        self.skip(rank);
    }

    /// What became new since the last call leaves now: to be called once in a turn of progress.
    pub fn flush(&mut self, out: &mut Output<Message, Item>) {
        if !self.is_due() {
            return;
        }
        let neighbours = Neighbours::new(self.me, self.size, &self.absent);
        if self.phase == Phase::Closing && self.is_settled(&neighbours) {
            reach!("proto.spread: a freed part ends at once");
            return self.leave(&neighbours, out);
        }
        for &rank in neighbours.as_slice() {
            self.send(rank, true, out);
        }
        for at in 0..self.peers.len() {
            let rank = self.peers[at].rank;
            if !neighbours.contains(rank) {
                reach!("proto.spread: a member that is no neighbour has sent something");
                self.send(rank, false, out);
            }
        }
        self.peers.retain_mut(|peer| {
            (peer.owed, peer.was_lost) = (Want::Nothing, false);
            *peer != Peer::new(peer.rank)
        });
        self.unsent.clear();
        self.sent = self.digest;
        if self.phase == Phase::Closing && self.is_settled(&neighbours) {
            self.leave(&neighbours, out);
        }
    }

    /// Whether `flush` may have something to send.
    pub fn is_due(&self) -> bool {
        match self.phase {
            Phase::Open => !self.unsent.is_empty() || self.peers.iter().any(Peer::is_due),
            Phase::Closing => true,
            Phase::Over => false,
        }
    }

    /// Whether the communicator is revoked, as far as this member knows.
    pub fn is_revoked(&self) -> bool {
        self.items.revoked
    }

    /// The communicator was freed here. The part goes on until its neighbours have all items.
    pub fn close(&mut self, out: &mut Output<Message, Item>) {
        if self.phase == Phase::Open {
            self.phase = Phase::Closing;
        }
        self.flush(out);
    }

    /// Whether nothing is owed any more after `close`, so that the owner may drop the part.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Adds an item, to be sent at the next flush. Returns whether it is new.
    fn learn(&mut self, item: Item) -> bool {
        let is_new = self.items.insert(item);
        if is_new {
            self.unsent.insert(item);
            self.digest = self.digest.with(item);
            self.peers.iter_mut().for_each(|peer| peer.is_asked = false);
        }
        is_new
    }

    /// Skips a member from now on.
    fn skip(&mut self, rank: Rank) {
        assert!(rank != self.me && rank.0 < self.size, "{rank:?} is another member");
        if self.absent.contains(rank) {
            return reach!("proto.spread: an absent member ends");
        }
        let before = Neighbours::new(self.me, self.size, &self.absent);
        self.absent.insert(rank);
        self.peers.retain(|peer| peer.rank != rank);
        // If nothing was sent yet, then the next flush sends everything to all neighbours.
        if before.contains(rank) && self.sent != Digest::default() {
            let after = Neighbours::new(self.me, self.size, &self.absent);
            for &new in after.as_slice().iter().filter(|&&rank| !before.contains(rank)) {
                reach!("proto.spread: a member becomes a neighbour");
                self.peer(new).owed = Want::All;
            }
        }
    }

    fn on_batch(&mut self, from: Rank, batch: &Batch, out: &mut Output<Message, Item>) {
        if !batch.fits(self.size) {
            return;
        }
        for item in batch.items() {
            if self.learn(item) {
                out.outcomes.push(item);
            }
        }
        // X-2.7: what a member sent before it failed counts, and is not answered.
        if self.absent.contains(from) {
            return reach!("proto.spread: items of an absent member come");
        }
        let peer = self.peer(from);
        let base = if batch.all { Digest::default() } else { peer.told };
        peer.told = batch.digest;
        if batch.items().fold(base, Digest::with) != batch.digest {
            reach!("proto.spread: an earlier message of the member was lost");
            peer.was_lost = true;
        }
        peer.owed = peer.owed.max(batch.want);
        if batch.want == Want::Answer {
            reach!("proto.spread: a member asks whether the sets are equal");
        }
        if batch.want == Want::All {
            reach!("proto.spread: a member asks for all items");
            // Something that was sent to it was lost, perhaps a request.
            peer.is_asked = false;
        }
    }

    /// Sends what is due to one member.
    fn send(&mut self, to: Rank, is_neighbour: bool, out: &mut Output<Message, Item>) {
        let Peer { told, owed, was_lost, is_asked, .. } =
            self.find(to).map_or(Peer::new(to), |at| self.peers[at]);
        let has_all = told == self.digest;
        let asks = self.phase == Phase::Closing && is_neighbour && !has_all && !is_asked;
        let want = match (was_lost && !has_all, asks) {
            (true, _) => Want::All,
            (false, true) => Want::Answer,
            (false, false) => Want::Nothing,
        };
        let push = |batch| out.send(to, Message::Items(batch));
        if owed == Want::All && !has_all {
            reach!("proto.spread: all items are sent");
            self.items.batches(Digest::default(), true, want, push);
        } else if is_neighbour && !self.unsent.is_empty() {
            reach!("proto.spread: new items are sent");
            self.unsent.batches(self.sent, false, want, push);
        } else if owed.max(want) > Want::Nothing {
            reach!("proto.spread: a message without items is sent");
            Items::default().batches(self.digest, false, want, push);
        } else {
            return;
        }
        if asks {
            reach!("proto.spread: a freed part asks a neighbour whether the sets are equal");
            self.peer(to).is_asked = true;
        }
    }

    /// Whether every neighbour has all items, and nobody waits for them here.
    fn is_settled(&self, neighbours: &Neighbours) -> bool {
        let has_all = |rank| self.told(rank) == self.digest;
        let is_waiting = |peer: &Peer| peer.owed == Want::All && peer.told != self.digest;
        self.unsent.is_empty()
            && neighbours.as_slice().iter().all(|&rank| has_all(rank))
            && !self.peers.iter().any(is_waiting)
    }

    /// The last messages: to the neighbours, and to those that may have this member as a neighbour.
    fn leave(&mut self, neighbours: &Neighbours, out: &mut Output<Message, Item>) {
        self.phase = Phase::Over;
        // Without an item here, no neighbour has a part of which this member knows.
        let neighbours = if self.items.is_empty() { &[] } else { neighbours.as_slice() };
        neighbours.iter().for_each(|&rank| out.send(rank, self.farewell()));
        let others = self.peers.iter().map(|peer| peer.rank).filter(|rank| !neighbours.contains(rank));
        others.for_each(|rank| out.send(rank, self.farewell()));
        self.peers.clear();
    }

    fn farewell(&self) -> Message {
        if self.is_revoked() { Message::GoneRevoked } else { Message::Gone }
    }

    fn told(&self, rank: Rank) -> Digest {
        self.find(rank).map_or(Digest::default(), |at| self.peers[at].told)
    }

    fn find(&self, rank: Rank) -> Option<usize> {
        self.peers.binary_search_by_key(&rank, |peer| peer.rank).ok()
    }

    /// The entry of a member, made if there is none.
    fn peer(&mut self, rank: Rank) -> &mut Peer {
        let at = self.peers.binary_search_by_key(&rank, |peer| peer.rank);
        let at = at.unwrap_or_else(|at| {
            self.peers.insert(at, Peer::new(rank));
            at
        });
        &mut self.peers[at]
    }
}

impl Protocol for Spread {
    type Message = Message;
    type Outcome = Item;

    fn on_message(&mut self, from: Rank, message: Message, out: &mut Output<Message, Item>) {
        if from == self.me || from.0 >= self.size {
            return;
        }
        match (self.phase, message) {
            (Phase::Over, Message::Items(_)) => {
                reach!("proto.spread: items meet a part that is over");
                out.send(from, self.farewell());
            }
            (Phase::Over, _) => reach!("proto.spread: a last message meets a part that is over"),
            (Phase::Open, Message::Items(batch)) => {
                reach!("proto.spread: items meet an open part");
                self.on_batch(from, &batch, out);
            }
            (Phase::Closing, Message::Items(batch)) => {
                reach!("proto.spread: items meet a freed part");
                self.on_batch(from, &batch, out);
            }
            (_, Message::Gone) => {
                self.phase.name_gone();
                self.skip(from);
            }
            (_, Message::GoneRevoked) => {
                self.phase.name_gone();
                if !self.is_revoked() {
                    reach!("proto.spread: a last message brings the revoke");
                }
                self.add(Item::Revoked, out);
                self.skip(from);
            }
        }
    }

    /// The member is skipped, and its failure is an item; without an outcome, as it is known here.
    fn on_failure(&mut self, failed: Rank, _: &mut Output<Message, Item>) {
        match self.phase {
            Phase::Open => reach!("proto.spread: a failure meets an open part"),
            Phase::Closing => reach!("proto.spread: a failure meets a freed part"),
            Phase::Over => reach!("proto.spread: a failure meets a part that is over"),
        }
        self.skip(failed);
        self.learn(Item::Failed(failed));
    }
}

impl Phase {
    fn name_gone(self) {
        match self {
            Phase::Open => reach!("proto.spread: a last message meets an open part"),
            Phase::Closing => reach!("proto.spread: a last message meets a freed part"),
            Phase::Over => {}
        }
    }
}

impl Peer {
    /// A member of which nothing is known.
    fn new(rank: Rank) -> Self {
        Peer { rank, told: Digest::default(), owed: Want::Nothing, was_lost: false, is_asked: false }
    }

    fn is_due(&self) -> bool {
        self.owed != Want::Nothing || self.was_lost
    }
}
