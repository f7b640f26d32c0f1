// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages by name for communicators that are not open here: those not created yet, whose messages wait, and the
//! retired ones, whose messages the caller refuses.

use super::Name;
use super::retired::RetiredNames;
use mend_base::PeerIndex;

/// Messages that came before the communicator that they are for, and the names that will not be used again.
///
/// How much may wait is not decided here: an early message costs memory like any unexpected one, and the caller counts
/// both against the same bound for each sender. So what is searched is short.
#[derive(Debug)]
pub struct EarlyMessages<M> {
    /// In the order in which they came.
    waiting: Vec<EarlyMessage<M>>,
    retired: RetiredNames,
}

#[derive(Debug)]
struct EarlyMessage<M> {
    name: Name,
    from: PeerIndex,
    message: M,
}

impl<M> Default for EarlyMessages<M> {
    fn default() -> Self {
        EarlyMessages { waiting: Vec::new(), retired: RetiredNames::default() }
    }
}

impl<M> EarlyMessages<M> {
    /// No message waits, no name is retired.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether `name` was open here, or failed to be created: what comes for it is refused.
    pub fn is_retired(&self, name: Name) -> bool {
        self.retired.holds(name)
    }

    /// Keeps a message until `name` is created. `Err`: there is no memory for it.
    pub fn store(&mut self, name: Name, from: PeerIndex, message: M) -> Result<(), M> {
        debug_assert!(!self.is_retired(name), "a message for a retired name would wait for ever");
        if self.waiting.try_reserve(1).is_err() {
            return Err(message);
        }
        self.waiting.push(EarlyMessage { name, from, message });
        Ok(())
    }

    /// `name` is open now: what came too early for it, in the order in which it came.
    pub fn take(&mut self, name: Name) -> Vec<(PeerIndex, M)> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let early = self.waiting.extract_if(.., |early| early.name == name);
        early.map(|early| (early.from, early.message)).collect()
    }

    /// `name` is closed, or will never be opened here: what waits for it, to be refused.
    pub fn retire(&mut self, name: Name) -> Vec<(PeerIndex, M)> {
        self.retired.add(name);
        self.take(name)
    }

    /// Nothing will be opened any more: all that waits, to be refused.
    pub fn drain(&mut self) -> Vec<(PeerIndex, M)> {
        core::mem::take(&mut self.waiting).into_iter().map(|early| (early.from, early.message)).collect()
    }

    /// How many messages wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many words the retired names take: what grows, if anything does.
    pub fn retired_words(&self) -> usize {
        self.retired.cost()
    }
}

#[cfg(test)]
mod tests {
    use super::EarlyMessages;
    use crate::identity::Name;
    use mend_base::{ContextKind, Identity, Peer, PeerIndex};

    fn name(number: u32, context_kind: ContextKind) -> Name {
        Name { identity: Identity { creator: Peer(5), number }, context_kind }
    }

    #[test]
    fn early_messages_are_handed_over_in_order_and_only_to_their_own_context_kind() {
        let mut early_messages = EarlyMessages::new();
        let (early, other) = (name(1, ContextKind::PointToPoint), name(1, ContextKind::Collective));
        for (name, from, message) in [(early, 1, 'a'), (other, 1, 'b'), (early, 2, 'c')] {
            assert_eq!(early_messages.store(name, PeerIndex(from), message), Ok(()));
        }
        assert_eq!(early_messages.take(early), [(PeerIndex(1), 'a'), (PeerIndex(2), 'c')]);
        assert_eq!(early_messages.len(), 1);
        assert_eq!(early_messages.retire(other), [(PeerIndex(1), 'b')]);
        assert!(early_messages.is_retired(other) && !early_messages.is_retired(early));
        assert!(early_messages.is_empty());
        assert_eq!(early_messages.store(early, PeerIndex(3), 'd'), Ok(()));
        assert_eq!(early_messages.drain(), [(PeerIndex(3), 'd')]);
        assert!(early_messages.is_empty() && !early_messages.is_retired(early));
    }

    #[test]
    fn ten_thousand_names_that_are_retired_in_order_cost_two_words() {
        let mut early_messages = EarlyMessages::<()>::new();
        for number in 0..10_000 {
            early_messages.retire(name(number, ContextKind::PointToPoint));
            early_messages.retire(name(number, ContextKind::Collective));
        }
        assert!(early_messages.retired_words() <= 2);
        assert!(early_messages.is_retired(name(77, ContextKind::PointToPoint)));
        assert!(!early_messages.is_retired(name(10_000, ContextKind::PointToPoint)));
    }
}
