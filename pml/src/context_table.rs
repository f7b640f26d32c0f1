// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which channel a message is for: the channels by name and by our context ids, and the messages that arrived before their
//! channel was opened. `mend_proto::identity` has the rules.

use crate::envelope::{Envelope, Note, Reason};
use mend_base::{ContextId, ContextKind, Identity, Key, PeerIndex};
use mend_proto::identity::{ContextName, Contexts, EarlyMessages, Resolved, Retirement};
use std::collections::{BTreeMap, BTreeSet};

/// The channels of this process by what is written on the wire.
#[derive(Debug)]
pub(crate) struct ContextTable {
    contexts: Contexts<Key>,
    names: BTreeMap<ContextName, Key>,
    early: EarlyMessages<EarlyMessage>,
    /// Our ids that are retiring and stood for channels that were revoked.
    revoked: BTreeSet<ContextId>,
    /// MPI_Finalize has begun: nothing is opened any more.
    leaving: bool,
}

/// A message for a communicator that is not created here yet.
#[derive(Debug)]
pub(crate) struct EarlyMessage {
    pub(crate) envelope: Envelope,
    pub(crate) payload: Vec<u8>,
    pub(crate) subject: Subject,
}

/// What the envelope of an early message says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    /// It takes part in matching.
    Message,
    /// An RTS is cancelled.
    CancelRts,
    /// It is about a collective operation.
    Operation(Note),
}

impl EarlyMessage {
    /// Whether its sender waits for an answer.
    pub(crate) fn is_unanswered(&self) -> bool {
        match self.subject {
            Subject::Message => self.envelope.form.request_awaiting_answer().is_some(),
            Subject::CancelRts => false,
            Subject::Operation(note) => note.request_awaiting_answer().is_some(),
        }
    }
}

/// What a name denotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Named {
    Open(Key),
    /// It was open, or will never be: messages are refused for this reason.
    Retired(Reason),
    NotCreated,
}

impl Default for ContextTable {
    fn default() -> Self {
        ContextTable {
            contexts: Contexts::new(),
            names: BTreeMap::new(),
            early: EarlyMessages::new(),
            revoked: BTreeSet::new(),
            leaving: false,
        }
    }
}

impl ContextTable {
    // Hot: per message.
    /// What one of our ids means in a message of `from`.
    #[inline]
    pub(crate) fn resolve(&self, context: ContextId, from: PeerIndex) -> Resolved<Key> {
        self.contexts.resolve(context, from)
    }

    /// What a name means.
    pub(crate) fn find(&self, name: ContextName) -> Named {
        if let Some(&key) = self.names.get(&name) {
            return Named::Open(key);
        }
        match self.early.retirement(name) {
            Some(why) => Named::Retired(reason(why)),
            None if self.leaving => Named::Retired(Reason::Freed),
            None => Named::NotCreated,
        }
    }

    /// Why messages with one of our ids that is retiring are refused.
    pub(crate) fn refusal(&self, context: ContextId) -> Reason {
        if self.revoked.contains(&context) { Reason::Revoked } else { Reason::Freed }
    }

    /// Whether this name is open, or was.
    pub(crate) fn is_used(&self, name: ContextName) -> bool {
        self.names.contains_key(&name) || self.early.is_retired(name)
    }

    /// The channel `key` has this name. Its context id, if one is left.
    pub(crate) fn open(&mut self, name: ContextName, key: Key) -> Option<ContextId> {
        assert!(!self.leaving, "nothing is opened while MPI is finalized");
        // The point-to-point context tells: it is opened first, and retired first.
        let is_first = name.context_kind == ContextKind::PointToPoint;
        assert!(!is_first || !self.early.is_retired(name), "an identity is used once");
        let before = self.names.insert(name, key);
        assert!(before.is_none(), "an identity is used once");
        let context = self.contexts.open(key)?;
        self.revoked.remove(&context);
        Some(context)
    }

    /// The messages that arrived for a channel before it was opened, in order.
    pub(crate) fn take_early(&mut self, name: ContextName) -> Vec<(PeerIndex, EarlyMessage)> {
        self.early.take(name)
    }

    /// Stores a message until its channel is opened. `Err`: there is no memory.
    pub(crate) fn store_early(
        &mut self,
        name: ContextName,
        from: PeerIndex,
        message: EarlyMessage,
    ) -> Result<(), EarlyMessage> {
        self.early.store(name, from, message)
    }

    /// The channel is closed, and nothing is active there.
    pub(crate) fn close(&mut self, name: ContextName, context: Option<ContextId>, revoked: bool) -> Closed {
        self.names.remove(&name);
        let why = if revoked { Retirement::Revoked } else { Retirement::Closed };
        let waiting = self.early.retire(name, why);
        debug_assert!(waiting.is_empty(), "no message waits for an open channel");
        if revoked && let Some(context) = context {
            self.revoked.insert(context);
        }
        let announced = context.map_or_else(Vec::new, |context| self.contexts.close(context));
        let early = if name.context_kind == ContextKind::PointToPoint && !self.early.is_empty() {
            let opened_late = [ContextKind::Creation, ContextKind::Leaders];
            let names = opened_late.map(|context_kind| ContextName { context_kind, ..name });
            names.into_iter().flat_map(|name| self.early.take(name)).collect()
        } else {
            Vec::new()
        };
        Closed { announced, early }
    }

    /// The name will never be opened: what waits for it.
    pub(crate) fn never_open(&mut self, name: ContextName) -> Vec<(PeerIndex, EarlyMessage)> {
        assert!(!self.names.contains_key(&name), "the channel is open");
        self.early.retire(name, Retirement::NeverOpened)
    }

    /// Nothing will be opened any more: all that waits.
    pub(crate) fn begin_finalize(&mut self) -> Vec<(PeerIndex, EarlyMessage)> {
        self.leaving = true;
        self.early.drain()
    }

    /// Our id is announced to `peer`.
    pub(crate) fn announce(&mut self, context: ContextId, peer: PeerIndex) {
        self.contexts.announce(context, peer);
    }

    /// `peer` uses our id no more. `false`: it was not asked.
    pub(crate) fn on_retired(&mut self, context: ContextId, peer: PeerIndex) -> bool {
        self.contexts.retirement_confirmed(context, peer)
    }

    /// The peer has ended.
    pub(crate) fn end_peer(&mut self, peer: PeerIndex) {
        self.contexts.ended(peer);
    }

    /// How many messages wait for their channel.
    pub(crate) fn early(&self) -> usize {
        self.early.len()
    }

    /// Which of our ids are open or retiring.
    #[cfg(test)]
    pub(crate) fn ids_in_use(&self) -> usize {
        self.contexts.in_use()
    }

    /// How many names are open.
    #[cfg(test)]
    pub(crate) fn open_names(&self) -> usize {
        self.names.len()
    }

    /// With only so many ids.
    #[cfg(test)]
    pub(crate) fn with_ids(ids: usize) -> Self {
        ContextTable { contexts: Contexts::with_ids(ids), ..ContextTable::default() }
    }
}

/// What a channel leaves when it is closed.
#[derive(Debug)]
pub(crate) struct Closed {
    /// The peers that must be asked to forget its id.
    pub(crate) announced: Vec<PeerIndex>,
    /// What waits for the contexts of creations and leaders of its communicator, which are retired with the point-to-point context.
    pub(crate) early: Vec<(PeerIndex, EarlyMessage)>,
}

/// All names of a communicator.
pub(crate) fn names_of(identity: Identity) -> [ContextName; 5] {
    use ContextKind::{Agreement, Collective, Creation, Leaders, PointToPoint};
    let all = [PointToPoint, Collective, Creation, Agreement, Leaders];
    all.map(|context_kind| ContextName { identity, context_kind })
}

fn reason(why: Retirement) -> Reason {
    match why {
        Retirement::Closed => Reason::Freed,
        Retirement::Revoked => Reason::Revoked,
        Retirement::NeverOpened => Reason::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::{ContextTable, EarlyMessage, Named, Subject, names_of};
    use crate::envelope::{ChannelName, Envelope, Form, Reason};
    use mend_base::{Identity, Key, Peer, PeerIndex, Rank, Tag};
    use mend_proto::identity::{ContextName, Resolved};

    const KEY: Key = Key { index: 0, generation: 1 };
    const PEER: PeerIndex = PeerIndex(4);

    fn name(number: u32) -> ContextName {
        names_of(Identity { creator: Peer(1), number })[0]
    }

    fn early(name: ContextName) -> EarlyMessage {
        let envelope = Envelope {
            channel: ChannelName::Named(name),
            sequence: 0,
            tag: Tag(0),
            source: Rank(0),
            form: Form::Eager,
        };
        EarlyMessage { envelope, payload: vec![], subject: Subject::Message }
    }

    #[test]
    fn a_name_is_not_created_then_open_then_retired() {
        let mut table = ContextTable::default();
        assert_eq!(table.find(name(1)), Named::NotCreated);
        assert!(table.store_early(name(1), PEER, early(name(1))).is_ok());
        let context = table.open(name(1), KEY).unwrap();
        assert_eq!(
            (table.find(name(1)), table.resolve(context, PEER)),
            (Named::Open(KEY), Resolved::Assigned(KEY))
        );
        assert_eq!(table.take_early(name(1)).len(), 1);
        table.announce(context, PEER);
        assert_eq!(table.close(name(1), Some(context), false).announced, [PEER]);
        let retired = Named::Retired(Reason::Freed);
        assert_eq!((table.find(name(1)), table.resolve(context, PEER)), (retired, Resolved::Retiring));
        assert_eq!(table.refusal(context), Reason::Freed);
        assert!(table.on_retired(context, PEER) && !table.on_retired(context, PEER));
        assert_eq!(table.ids_in_use(), 0);
    }

    #[test]
    fn what_waits_for_a_name_that_will_never_be_opened_is_given_back() {
        let mut table = ContextTable::default();
        for number in [1, 2] {
            assert!(table.store_early(name(number), PEER, early(name(number))).is_ok());
        }
        assert_eq!(table.never_open(name(1)).len(), 1);
        assert!(table.is_used(name(1)) && !table.is_used(name(2)));
        assert_eq!(table.begin_finalize().len(), 1);
        assert_eq!(table.find(name(1)), Named::Retired(Reason::Unknown));
        assert_eq!(table.find(name(2)), Named::Retired(Reason::Freed), "nothing is opened any more");
    }

    // Row RV8, Row RV13
    #[test]
    fn a_revoked_channel_is_remembered_as_revoked_by_name_and_by_id_until_the_id_is_reused() {
        let mut table = ContextTable::with_ids(1);
        let context = table.open(name(1), KEY).unwrap();
        table.announce(context, PEER);
        table.close(name(1), Some(context), true);
        assert_eq!(
            (table.find(name(1)), table.refusal(context)),
            (Named::Retired(Reason::Revoked), Reason::Revoked)
        );
        assert!(table.on_retired(context, PEER));
        assert_eq!(table.open(name(2), KEY), Some(context), "the one id");
        table.announce(context, PEER);
        table.close(name(2), Some(context), false);
        assert_eq!(
            (table.find(name(2)), table.refusal(context)),
            (Named::Retired(Reason::Freed), Reason::Freed)
        );
    }

    #[test]
    fn what_waits_for_a_creation_context_is_given_back_when_its_communicator_is_closed() {
        let mut table = ContextTable::default();
        let [user, _, creation, ..] = names_of(Identity { creator: Peer(1), number: 1 });
        table.open(user, KEY);
        assert_eq!(table.find(creation), Named::NotCreated);
        assert!(table.store_early(creation, PEER, early(creation)).is_ok());
        assert_eq!(table.close(user, None, true).early.len(), 1);
        assert_eq!(table.find(creation), Named::Retired(Reason::Freed), "it was not revoked");
    }
}
