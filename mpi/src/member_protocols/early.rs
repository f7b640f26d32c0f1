// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages about communicators that are not created here yet: they are stored until the communicator is created, or never will be.
//!
//! What is stored is bounded for each sender, over all communicators: by [`EARLY_MAX`] messages, and so by as many identities. A correct
//! member sends few about one communicator before this process has created it: its part of one agreement and of one vote, since each
//! waits for all members before the next one begins, and news, each with the failures that it has not sent yet. It has created the
//! communicator, so this process has begun that creation too, or the member waits in a creation by a group that this process is to enter.
//! How many creations a program begins at once has no bound of its own. So a member with more messages is not accused of garbage: there
//! is no memory for it here, and the two cannot reach each other.

use super::Arrival;
use crate::origin::Origin;
use mend_base::{Identity, Peer, PeerIndex};
use mend_transport::Cause;
use std::collections::BTreeMap;

/// So many early messages of one peer are stored.
pub(super) const EARLY_MAX: usize = 1 << 16;

/// The early messages of all communicators.
#[derive(Default, Debug)]
pub(super) struct EarlyMessages {
    /// In the order of their arrival.
    by_identity: BTreeMap<Identity, Vec<Arrival>>,
    /// How many of them each peer has sent.
    counts: BTreeMap<PeerIndex, usize>,
    /// How many of them name the origin of their communicator.
    origins: usize,
}

impl EarlyMessages {
    /// Stores a message. `Err`: there is no memory for another one of its sender.
    pub fn store(&mut self, arrival: Arrival) -> Result<(), Cause> {
        mend_base::reach!("mpi.member_protocols: an early message");
        let count = self.counts.entry(arrival.peer).or_default();
        if *count == EARLY_MAX {
            return Err(Cause::NoMemory);
        }
        let early = self.by_identity.entry(arrival.about.identity).or_default();
        if !mend_base::reserve(early, 1) {
            return Err(Cause::NoMemory);
        }
        self.origins += usize::from(arrival.origin().is_some());
        early.push(arrival);
        *count += 1;
        Ok(())
    }

    /// Removes the messages about a communicator.
    pub fn take(&mut self, identity: Identity) -> Vec<Arrival> {
        if self.by_identity.is_empty() {
            return Vec::new();
        }
        let arrivals = self.by_identity.remove(&identity).unwrap_or_default();
        for arrival in &arrivals {
            self.origins -= usize::from(arrival.origin().is_some());
            if let Some(count) = self.counts.get_mut(&arrival.peer) {
                *count -= 1;
            }
        }
        self.counts.retain(|_, count| *count > 0);
        arrivals
    }

    /// The number of communicators of which messages are stored.
    pub fn len(&self) -> usize {
        self.by_identity.len()
    }

    /// Whether some message names the origin of its communicator.
    pub fn have_origins(&self) -> bool {
        self.origins > 0
    }

    /// The origins that messages name, each with its communicator.
    pub fn origins(&self) -> impl Iterator<Item = (Identity, Origin)> {
        self.by_identity.values().flatten().filter_map(Arrival::origin)
    }

    /// Removes the messages about communicators that this process creates.
    pub fn take_of(&mut self, creator: Peer) -> Vec<Arrival> {
        let is_of = |identity: &&Identity| identity.creator == creator;
        let identities: Vec<Identity> = self.by_identity.keys().filter(is_of).copied().collect();
        identities.into_iter().flat_map(|identity| self.take(identity)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{EARLY_MAX, EarlyMessages};
    use crate::member_protocols::packet::{About, Arrival, Message};
    use mend_base::{Identity, Job, Peer, PeerIndex, Rank};
    use mend_transport::Cause;

    fn identity(creator: u32, number: u32) -> Identity {
        Identity { creator: Peer::new(Job(1), creator), number }
    }

    #[test]
    fn the_messages_of_each_peer_are_bounded_over_all_communicators_until_they_are_taken() {
        let arrival = |identity, peer| {
            let about = About { identity, source: Rank(0) };
            Arrival { peer: PeerIndex(peer), about, message: Message::Gone }
        };
        let mut early = EarlyMessages::default();
        for number in 0..EARLY_MAX as u32 {
            assert_eq!(early.store(arrival(identity(number % 2, number), 1)), Ok(()));
        }
        assert_eq!(early.store(arrival(identity(3, 0), 1)), Err(Cause::NoMemory));
        assert_eq!(early.store(arrival(identity(0, 0), 1)), Err(Cause::NoMemory));
        assert_eq!(early.store(arrival(identity(0, 0), 2)), Ok(()));
        assert_eq!(early.take(identity(0, 0)).len(), 2);
        assert_eq!(early.store(arrival(identity(3, 0), 1)), Ok(()));
        assert_eq!(early.take_of(Peer::new(Job(1), 0)).len(), EARLY_MAX / 2 - 1);
        assert_eq!(early.take_of(Peer::new(Job(1), 1)).len(), EARLY_MAX / 2);
        assert_eq!(early.take(identity(3, 0)).len(), 1);
        assert!(early.counts.is_empty() && early.by_identity.is_empty());
    }
}
