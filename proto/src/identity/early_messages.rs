// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages with the full identity of a communicator that is not open here. If it is not created yet, the message is early and is stored. If
//! it is retired, the caller refuses the message, and names the reason: the communicator was closed, it was revoked before that, or it
//! was never opened here.

use super::ContextName;
use super::retired::RetiredNames;
use mend_base::{ContextKind, PeerIndex};

/// Why a name is retired.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Retirement {
    /// It was open, and was closed.
    Closed,
    /// It was revoked while it was open, and closed afterwards.
    Revoked,
    /// It was never open, and will never be: the creation of its communicator has failed here.
    NeverOpened,
}

/// The early messages, and the names that are retired.
///
/// The caller bounds the number of early messages: it counts them with the unexpected messages of the same sender. So a linear search is
/// sufficient here.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct EarlyMessages<M> {
    /// The early messages, in the order of arrival.
    waiting: Vec<EarlyMessage<M>>,
    retired: RetiredNames,
    /// The retired names that were revoked.
    revoked: RetiredNames,
    /// The retired names that were never open.
    never_opened: RetiredNames,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct EarlyMessage<M> {
    name: ContextName,
    from: PeerIndex,
    message: M,
}

impl<M> Default for EarlyMessages<M> {
    fn default() -> Self {
        EarlyMessages {
            waiting: Vec::new(),
            retired: RetiredNames::default(),
            revoked: RetiredNames::default(),
            never_opened: RetiredNames::default(),
        }
    }
}

impl<M> EarlyMessages<M> {
    /// No early message, and no retired name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether `name` is retired. The caller refuses a message for such a name.
    pub fn is_retired(&self, name: ContextName) -> bool {
        self.retired.contains(name)
    }

    /// Why `name` is retired, if it is. A context for creations or agreements is never revoked: it is closed with a communicator that was.
    pub fn retirement(&self, name: ContextName) -> Option<Retirement> {
        if !self.retired.contains(name) {
            return None;
        }
        Some(if self.never_opened.contains(name) {
            Retirement::NeverOpened
        } else if self.revoked.contains(name) && is_revocable(name.context_kind) {
            Retirement::Revoked
        } else {
            Retirement::Closed
        })
    }

    /// Stores a message until `name` is opened. `Err`: there is no memory for it.
    pub fn store(&mut self, name: ContextName, from: PeerIndex, message: M) -> Result<(), M> {
        debug_assert!(!self.is_retired(name), "a message for a retired name would wait for ever");
        if self.waiting.try_reserve(1).is_err() {
            return Err(message);
        }
        self.waiting.push(EarlyMessage { name, from, message });
        Ok(())
    }

    /// Removes and returns the early messages for `name`, which is open now, in the order of arrival.
    pub fn take(&mut self, name: ContextName) -> Vec<(PeerIndex, M)> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let early = self.waiting.extract_if(.., |early| early.name == name);
        early.map(|early| (early.from, early.message)).collect()
    }

    /// Retires `name`. Returns its early messages, which the caller refuses. The contexts for creations and agreements of a communicator
    /// are retired with its point-to-point context, whether they were opened or not.
    pub fn retire(&mut self, name: ContextName, why: Retirement) -> Vec<(PeerIndex, M)> {
        self.retired.add(name);
        match why {
            Retirement::Closed => {}
            Retirement::Revoked => self.revoked.add(name),
            Retirement::NeverOpened => self.never_opened.add(name),
        }
        self.take(name)
    }

    /// Removes and returns all early messages, at MPI_Finalize: the caller refuses them.
    pub fn drain(&mut self) -> Vec<(PeerIndex, M)> {
        core::mem::take(&mut self.waiting).into_iter().map(|early| (early.from, early.message)).collect()
    }

    /// The number of early messages.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether there is no early message.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The memory of the retired names, in words up to a constant factor.
    pub fn retired_words(&self) -> usize {
        self.retired.words() + self.revoked.words() + self.never_opened.words()
    }
}

/// Whether a revocation of the communicator revokes its contexts of this kind.
fn is_revocable(context_kind: ContextKind) -> bool {
    match context_kind {
        ContextKind::PointToPoint | ContextKind::Collective => true,
        ContextKind::Creation | ContextKind::Agreement | ContextKind::Leaders => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{EarlyMessages, Retirement};
    use crate::identity::ContextName;
    use mend_base::{ContextKind, Identity, Peer, PeerIndex};

    fn name(number: u32, context_kind: ContextKind) -> ContextName {
        ContextName { identity: Identity { creator: Peer(5), number }, context_kind }
    }

    #[test]
    fn early_messages_are_taken_in_order_and_only_for_their_context_kind() {
        let mut early_messages = EarlyMessages::new();
        let (early, other) = (name(1, ContextKind::PointToPoint), name(1, ContextKind::Collective));
        for (name, from, message) in [(early, 1, 'a'), (other, 1, 'b'), (early, 2, 'c')] {
            assert_eq!(early_messages.store(name, PeerIndex(from), message), Ok(()));
        }
        assert_eq!(early_messages.take(early), [(PeerIndex(1), 'a'), (PeerIndex(2), 'c')]);
        assert_eq!(early_messages.len(), 1);
        assert_eq!(early_messages.retire(other, Retirement::Closed), [(PeerIndex(1), 'b')]);
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
            early_messages.retire(name(number, ContextKind::PointToPoint), Retirement::Closed);
            early_messages.retire(name(number, ContextKind::Collective), Retirement::Closed);
        }
        assert!(early_messages.retired_words() <= 2);
        assert!(early_messages.is_retired(name(77, ContextKind::PointToPoint)));
        assert!(!early_messages.is_retired(name(10_000, ContextKind::PointToPoint)));
    }

    #[test]
    fn a_retired_name_has_its_reason_and_contexts_that_open_late_are_retired_with_their_communicator() {
        use ContextKind::{Agreement, Collective, Creation, Leaders, PointToPoint};
        let mut early_messages = EarlyMessages::<()>::new();
        for (number, why) in [(1, Retirement::Closed), (2, Retirement::Revoked), (3, Retirement::NeverOpened)]
        {
            for context_kind in [PointToPoint, Collective] {
                assert_eq!(early_messages.retirement(name(number, context_kind)), None);
                early_messages.retire(name(number, context_kind), why);
                assert_eq!(early_messages.retirement(name(number, context_kind)), Some(why));
            }
            let unrevoked = if why == Retirement::Revoked { Retirement::Closed } else { why };
            for context_kind in [Creation, Agreement, Leaders] {
                assert_eq!(early_messages.retirement(name(number, context_kind)), Some(unrevoked));
            }
        }
        assert_eq!(early_messages.retirement(name(4, Creation)), None);
    }

    // A recovery revokes, creates one communicator with all survivors, and frees the revoked one.
    #[test]
    fn ten_thousand_communicators_that_were_revoked_before_they_were_freed_cost_as_much_as_a_hundred() {
        let mut early_messages = EarlyMessages::<()>::new();
        let mut after_a_hundred = 0;
        for number in 0..10_000 {
            for context_kind in [ContextKind::PointToPoint, ContextKind::Collective] {
                early_messages.retire(name(number, context_kind), Retirement::Revoked);
            }
            if number == 100 {
                after_a_hundred = early_messages.retired_words();
            }
        }
        assert!(early_messages.retired_words() <= after_a_hundred);
    }
}
