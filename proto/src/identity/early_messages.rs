// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Communicators that are not open here: those not yet take, whose messages wait, and the dead, whose messages are
//! refused.

use super::Name;
use mend_base::{ContextKind, Peer, PeerIndex};
use std::collections::BTreeMap;

/// Messages that came before the communicator they are for, and the names that will not be take again.
///
/// How much may wait is not decided here: what is parked costs memory like any message that nobody has received yet, and
/// the caller counts both against the same bound for each sender.
#[derive(Debug)]
pub struct EarlyMessages<M> {
    waiting: BTreeMap<Name, Vec<(PeerIndex, M)>>,
    dead: BTreeMap<Peer, Numbers>,
}

impl<M> Default for EarlyMessages<M> {
    fn default() -> Self {
        EarlyMessages { waiting: BTreeMap::new(), dead: BTreeMap::new() }
    }
}

impl<M> EarlyMessages<M> {
    /// Nothing waits, nothing has retire.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether `name` was open here once, and is no more: what comes for it is refused.
    pub fn is_retired(&self, name: Name) -> bool {
        self.dead.get(&name.identity.creator).is_some_and(|numbers| numbers.holds(number(name)))
    }

    /// Keeps a message until `name` is take.
    pub fn store(&mut self, name: Name, from: PeerIndex, message: M) {
        debug_assert!(!self.is_retired(name), "a message for the dead waits for ever");
        self.waiting.entry(name).or_default().push((from, message));
    }

    /// `name` is open now: what came too early for it, in the order it came.
    pub fn take(&mut self, name: Name) -> Vec<(PeerIndex, M)> {
        self.waiting.remove(&name).unwrap_or_default()
    }

    /// `name` is closed, or will never be opened here: what waits for it, to be refused.
    pub fn retire(&mut self, name: Name) -> Vec<(PeerIndex, M)> {
        self.dead.entry(name.identity.creator).or_default().add(number(name));
        self.take(name)
    }

    /// Nothing will be take any more: all that waits, to be refused.
    pub fn drain(&mut self) -> Vec<(PeerIndex, M)> {
        core::mem::take(&mut self.waiting).into_values().flatten().collect()
    }

    /// How many messages wait.
    pub fn len(&self) -> usize {
        self.waiting.values().map(Vec::len).sum()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Both context kinds of a communicator die together, so they are neighbours here.
fn number(name: Name) -> u64 {
    u64::from(name.identity.number) << 1 | u64::from(name.context_kind == ContextKind::Collective)
}

/// A set of numbers as intervals: one creator's communicators die roughly in the order in which they were made, so a few
/// intervals hold them all.
#[derive(Debug, Default)]
struct Numbers(Vec<(u64, u64)>);

impl Numbers {
    fn holds(&self, number: u64) -> bool {
        let after = self.0.partition_point(|&(first, _)| first <= number);
        after > 0 && number <= self.0[after - 1].1
    }

    fn add(&mut self, number: u64) {
        if self.holds(number) {
            return;
        }
        let after = self.0.partition_point(|&(first, _)| first <= number);
        let joins_left = after > 0 && self.0[after - 1].1 + 1 == number;
        let joins_right = after < self.0.len() && number + 1 == self.0[after].0;
        match (joins_left, joins_right) {
            (true, true) => self.0[after - 1].1 = self.0.remove(after).1,
            (true, false) => self.0[after - 1].1 = number,
            (false, true) => self.0[after].0 = number,
            (false, false) => self.0.insert(after, (number, number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EarlyMessages, Numbers};
    use crate::identity::Name;
    use mend_base::{ContextKind, Identity, Peer, PeerIndex, Random};
    use std::collections::BTreeSet;

    fn name(number: u32, context_kind: ContextKind) -> Name {
        Name { identity: Identity { creator: Peer(5), number }, context_kind }
    }

    #[test]
    fn what_came_early_is_handed_over_in_order_and_only_to_its_own_plane() {
        let mut early_messages = EarlyMessages::new();
        let (early, other) = (name(1, ContextKind::PointToPoint), name(1, ContextKind::Collective));
        early_messages.store(early, PeerIndex(1), 'a');
        early_messages.store(other, PeerIndex(1), 'b');
        early_messages.store(early, PeerIndex(2), 'c');
        assert_eq!(early_messages.take(early), [(PeerIndex(1), 'a'), (PeerIndex(2), 'c')]);
        assert_eq!(early_messages.len(), 1);
        assert_eq!(early_messages.retire(other), [(PeerIndex(1), 'b')]);
        assert!(
            early_messages.is_retired(other)
                && !early_messages.is_retired(early)
                && early_messages.is_empty()
        );
        early_messages.store(early, PeerIndex(3), 'd');
        assert_eq!(early_messages.drain(), [(PeerIndex(3), 'd')]);
        assert!(early_messages.is_empty() && !early_messages.is_retired(early));
    }

    #[test]
    fn ten_thousand_deaths_in_order_are_remembered_in_one_interval() {
        let mut early_messages = EarlyMessages::<()>::new();
        for number in 0..10_000 {
            early_messages.retire(name(number, ContextKind::PointToPoint));
            early_messages.retire(name(number, ContextKind::Collective));
        }
        assert_eq!(early_messages.dead[&Peer(5)].0, [(0, 19_999)]);
        assert!(
            early_messages.is_retired(name(77, ContextKind::PointToPoint))
                && !early_messages.is_retired(name(10_000, ContextKind::PointToPoint))
        );
    }

    #[test]
    fn intervals_hold_what_a_set_holds() {
        for seed in 0..100 {
            let mut random = Random(seed);
            let (mut numbers, mut set) = (Numbers::default(), BTreeSet::new());
            for _ in 0..200 {
                let number = random.below(150);
                numbers.add(number);
                set.insert(number);
            }
            for number in 0..150 {
                assert_eq!(numbers.holds(number), set.contains(&number), "seed {seed}");
            }
            assert!(numbers.0.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "seed {seed}");
        }
    }
}
