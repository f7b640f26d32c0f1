// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which receive takes which message (MPI-5.0 §3.5): of the receives that admit a message, the one posted first; of the
//! messages that a receive admits, the one that arrived first. Messages of one sender arrive in the order sent.
//!
//! Receives from a named rank are in that rank's match list, wildcard receives in one queue of the channel; a stamp, the
//! order of posting, decides between the two. Messages without a receive are in two queues at once: their sender's, for
//! receives that name it, and the channel's, for wildcard receives. So no sender starves: the message that came first is
//! taken first.
//!
//! [`MatchLists`] is the part of a channel; [`Matcher`] holds the unexpected messages of all channels. The receives
//! themselves are the caller's: it lends the slab in which they are.

use crate::envelope::Form;
use crate::list::{Linked, Links, List};
use mend_base::{Key, Rank, Slab, Source, Tag, TagSelector};

/// Posted receives: a rank's, or the channel's.
pub(crate) const POSTED: u8 = 0;
/// Unexpected messages of one rank.
const BY_SENDER: u8 = 1;
/// Unexpected messages of a channel.
const BY_CHANNEL: u8 = 2;

/// A receive in the caller's slab.
pub(crate) trait PostedReceive: Linked<POSTED> {
    /// When it was posted, if it is posted and admits this tag.
    fn admits(&self, tag: Tag) -> Option<u64>;
    /// When it was posted.
    fn stamp(&self) -> u64;
}

/// The queues of one channel. They grow from empty to the highest rank that was talked to, so that a
/// duplicated communicator that is never used costs nothing.
#[derive(Default, Debug)]
pub(crate) struct MatchLists {
    by_rank: Vec<MatchList>,
    /// Wildcard receives, not matched yet.
    any: List<POSTED>,
    /// All unexpected messages, in the order of arrival.
    unexpected: List<BY_CHANNEL>,
    /// The stamp of the last receive that was posted.
    stamp: u64,
    /// The channel is revoked: the match lists that are made from now on refuse messages, as those that exist do.
    revoked: bool,
}

/// What comes from one rank.
#[derive(Clone, Copy, Default, Debug)]
struct MatchList {
    /// Receives that name this rank, not matched yet.
    posted: List<POSTED>,
    unexpected: List<BY_SENDER>,
    /// The sequence number of its next message: every arrival consumes one (I6).
    sequence: u16,
    admission: Admission,
}

/// How messages of a rank are admitted. A message by context id of a rank to which the id was announced is the one case of the
/// hot path, so a revocation costs that path nothing: it changes the value.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Admission {
    /// Our context id is not announced to it.
    #[default]
    Unannounced,
    /// Our context id was announced to it.
    Announced,
    /// As `Unannounced`, and the channel is revoked: no message is matched any more.
    RevokedUnannounced,
    /// As `Announced`, and the channel is revoked.
    RevokedAnnounced,
}

const _: () = assert!(size_of::<MatchList>() <= 40);

/// What the sequence check found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// The next message of its sender.
    InOrder,
    /// The next message, by context name: our context id is to be announced.
    Unannounced,
    /// The next message, on a channel that is revoked: no receive takes it.
    Revoked,
    /// Out of sequence, or by a context id that was never announced to its sender.
    Garbage,
    /// The first message of this rank, and there is no memory for its match list.
    NoMemory,
}

impl MatchLists {
    // Hot: per message.
    /// The one check of a message's order, and of its right to use our context id. A message in order consumes its number.
    #[inline(always)]
    pub(crate) fn arrive(&mut self, source: Rank, sequence: u16, by_name: bool) -> Arrival {
        if source.index() >= self.by_rank.len() && !self.grow(source) {
            return Arrival::NoMemory;
        }
        let list = &mut self.by_rank[source.index()];
        if sequence != list.sequence || list.admission != Admission::Announced {
            return list.arrive_unusual(sequence, by_name);
        }
        list.sequence = sequence.wrapping_add(1);
        Arrival::InOrder
    }

    /// Makes the match list of a rank that exists.
    #[cold]
    fn grow(&mut self, rank: Rank) -> bool {
        let missing = (rank.index() + 1).saturating_sub(self.by_rank.len());
        let found = mend_base::reserve(&mut self.by_rank, missing);
        if found {
            let mut list = MatchList::default();
            if self.revoked {
                list.revoke();
            }
            self.by_rank.resize(self.by_rank.len() + missing, list);
        }
        found
    }

    /// The channel is revoked: no receive is posted any more, and arrivals are [`Arrival::Revoked`]. The caller takes the receives
    /// and messages out that are here.
    pub(crate) fn revoke(&mut self) {
        self.revoked = true;
        self.by_rank.iter_mut().for_each(MatchList::revoke);
    }

    // Hot: per message.
    /// The one decision which receive takes a message: of those that admit it the one posted first, which leaves its queue.
    #[inline(always)]
    pub(crate) fn take_match<R: PostedReceive>(
        &mut self,
        receives: &mut Slab<R>,
        source: Rank,
        tag: Tag,
    ) -> Option<Key> {
        let list = &mut self.by_rank[source.index()];
        let named = first_admitting(list.posted.iter(receives), tag);
        let any = if self.any.is_empty() { None } else { first_admitting(self.any.iter(receives), tag) };
        let (key, from_any) = match (named, any) {
            (None, None) => return None,
            (Some((key, _)), None) => (key, false),
            (None, Some((key, _))) => (key, true),
            (Some((named, first)), Some((any, second))) => {
                if first < second {
                    (named, false)
                } else {
                    (any, true)
                }
            }
        };
        if from_any {
            self.any.remove(receives, key)
        } else {
            list.posted.remove(receives, key)
        }
        Some(key)
    }

    // Hot: per message.
    /// Whether a receive from `rank` that is not posted may take this rank's next message: no message is here unread, and no
    /// receive was posted that could admit it.
    #[inline(always)]
    pub(crate) fn may_poll(&self, rank: Rank) -> bool {
        self.unexpected.is_empty()
            && self.any.is_empty()
            && self.by_rank.get(rank.index()).is_some_and(|list| list.posted.is_empty())
    }

    // Hot: per message.
    /// Whether an unexpected message is here.
    #[inline]
    pub(crate) fn has_unexpected(&self) -> bool {
        !self.unexpected.is_empty()
    }

    /// The stamp of one more receive.
    #[inline]
    pub(crate) fn next_stamp(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    /// Sees to it that a receive from here can be posted. `false`: there is no memory.
    #[inline]
    pub(crate) fn reserve(&mut self, from: Source) -> bool {
        match from {
            Source::Rank(rank) => rank.index() < self.by_rank.len() || self.grow(rank),
            Source::Any => true,
        }
    }

    /// Posts a receive that has the last stamp.
    #[inline]
    pub(crate) fn post<R: PostedReceive>(&mut self, receives: &mut Slab<R>, from: Source, key: Key) {
        match from {
            Source::Rank(rank) => self.by_rank[rank.index()].posted.push(receives, key),
            Source::Any => self.any.push(receives, key),
        }
    }

    /// Posts a receive again whose RTS was cancelled, at its old place in the order of posting.
    pub(crate) fn post_again<R: PostedReceive>(
        &mut self,
        receives: &mut Slab<R>,
        from: Source,
        stamp: u64,
        key: Key,
    ) {
        let is_behind = |other: &R| other.stamp() > stamp;
        match from {
            Source::Rank(rank) => {
                self.by_rank[rank.index()].posted.insert_before(receives, key, is_behind);
            }
            Source::Any => self.any.insert_before(receives, key, is_behind),
        }
    }

    /// Takes a posted receive out.
    pub(crate) fn unpost<R: PostedReceive>(&mut self, receives: &mut Slab<R>, from: Source, key: Key) {
        match from {
            Source::Rank(rank) => self.by_rank[rank.index()].posted.remove(receives, key),
            Source::Any => self.any.remove(receives, key),
        }
    }

    /// Our context id has been announced to a rank that has sent something.
    pub(crate) fn announce(&mut self, rank: Rank) {
        self.by_rank[rank.index()].admission = Admission::Announced;
    }

    /// How many messages of a rank have arrived, modulo 2^16.
    pub(crate) fn arrived(&self, rank: Rank) -> u16 {
        self.by_rank.get(rank.index()).map_or(0, |list| list.sequence)
    }
}

impl MatchList {
    /// A message that is out of sequence, or of a rank that is not admitted by context id.
    // Not inlined: the hot path would load the admission into a register for it.
    #[cold]
    #[inline(never)]
    fn arrive_unusual(&mut self, sequence: u16, by_name: bool) -> Arrival {
        let arrival = match self.admission {
            Admission::Unannounced if by_name => Arrival::Unannounced,
            Admission::RevokedUnannounced if by_name => Arrival::Revoked,
            Admission::RevokedAnnounced => Arrival::Revoked,
            Admission::Unannounced | Admission::RevokedUnannounced | Admission::Announced => Arrival::Garbage,
        };
        if sequence != self.sequence || arrival == Arrival::Garbage {
            return Arrival::Garbage;
        }
        self.sequence = sequence.wrapping_add(1);
        arrival
    }

    fn revoke(&mut self) {
        self.admission = match self.admission {
            Admission::Unannounced | Admission::RevokedUnannounced => Admission::RevokedUnannounced,
            Admission::Announced | Admission::RevokedAnnounced => Admission::RevokedAnnounced,
        };
    }
}

// Hot: per message.
#[inline(always)]
fn first_admitting<'a, R: PostedReceive + 'a>(
    mut queue: impl Iterator<Item = (Key, &'a R)>,
    tag: Tag,
) -> Option<(Key, u64)> {
    queue.find_map(|(key, receive)| Some((key, receive.admits(tag)?)))
}

/// The unexpected messages: those that no receive has taken yet.
#[derive(Default, Debug)]
pub(crate) struct Matcher {
    messages: Slab<Unexpected>,
    /// How many of them are lost.
    lost: usize,
}

/// Memory counts as short if there is no room for this many further messages.
const MESSAGES_RESERVED: usize = 64;

/// A message that no receive has taken yet.
#[derive(Debug)]
pub(crate) struct Unexpected {
    pub(crate) source: Rank,
    pub(crate) tag: Tag,
    pub(crate) form: Form,
    /// The bytes behind the header.
    pub(crate) payload: Vec<u8>,
    loss: Loss,
    by_sender: Links,
    by_channel: Links,
}

/// Whether an unexpected message is lost: it is the RTS of a sender that has ended, so that its payload will never come. It stays in
/// the queues, since a receive that names its sender takes it, and ends in error. A wildcard receive does not take it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Loss {
    /// It is not lost.
    #[default]
    None,
    /// It is, and wildcard receives that admit it take no later message of its sender either.
    Hides,
    /// It is, and wildcard receives pass over it.
    Passed,
}

impl Unexpected {
    #[inline]
    pub(crate) fn new(source: Rank, tag: Tag, form: Form, payload: Vec<u8>) -> Self {
        let (by_sender, by_channel) = (Links::ALONE, Links::ALONE);
        Unexpected { source, tag, form, payload, loss: Loss::None, by_sender, by_channel }
    }

    /// Whether its payload will never come.
    pub(crate) fn is_lost(&self) -> bool {
        self.loss != Loss::None
    }

    /// How many bytes its sender sends.
    pub(crate) fn bytes(&self) -> u64 {
        match self.form {
            Form::Eager | Form::Synchronous { .. } => self.payload.len() as u64,
            Form::Rts { bytes, .. } => bytes,
        }
    }
}

impl Matcher {
    /// Whether memory for more messages is short: then an XOFF is due, while some messages still find room.
    #[inline]
    pub(crate) fn is_short(&mut self) -> bool {
        !self.messages.has_empty_slot() && !self.reserve()
    }

    #[cold]
    fn reserve(&mut self) -> bool {
        self.messages.try_reserve(MESSAGES_RESERVED)
    }

    /// Adds a message that arrived on this channel. `false`: there is no memory for it.
    #[inline]
    pub(crate) fn add(&mut self, lists: &mut MatchLists, message: Unexpected) -> bool {
        let source = message.source;
        let Some(key) = self.messages.try_insert(message) else { return false };
        lists.by_rank[source.index()].unexpected.push(&mut self.messages, key);
        lists.unexpected.push(&mut self.messages, key);
        true
    }

    /// The first message that a receive would take.
    #[inline]
    pub(crate) fn find(
        &self,
        lists: &MatchLists,
        from: Source,
        tag: TagSelector,
    ) -> Option<(Key, &Unexpected)> {
        let admits = |(_, message): &(Key, &Unexpected)| tag.admits(message.tag);
        match from {
            Source::Rank(rank) => {
                lists.by_rank.get(rank.index())?.unexpected.iter(&self.messages).find(admits)
            }
            Source::Any if self.lost == 0 => lists.unexpected.iter(&self.messages).find(admits),
            Source::Any => self.find_among_lost(lists, tag),
        }
    }

    /// The first message that a wildcard receive would take: none that is lost, and none behind a message that hides it.
    #[cold]
    fn find_among_lost(&self, lists: &MatchLists, tag: TagSelector) -> Option<(Key, &Unexpected)> {
        let mut hidden = Vec::new();
        for (key, message) in lists.unexpected.iter(&self.messages) {
            match message.loss {
                _ if !tag.admits(message.tag) => {}
                Loss::None if hidden.contains(&message.source) => {}
                Loss::None => return Some((key, message)),
                Loss::Hides => hidden.push(message.source),
                Loss::Passed => {}
            }
        }
        None
    }

    /// Determines the loss of each RTS of a channel anew. Whether a message that was hidden is not any more.
    pub(crate) fn update_losses(&mut self, lists: &MatchLists, loss_of: impl Fn(Rank) -> Loss) -> bool {
        let rtses = lists.unexpected.iter(&self.messages);
        let rtses = rtses.filter(|(_, message)| matches!(message.form, Form::Rts { .. }));
        let rtses: Vec<_> = rtses.map(|(key, message)| (key, message.source)).collect();
        let mut uncovers = false;
        for (key, source) in rtses {
            let Some(message) = self.messages.get_mut(key) else { continue };
            let before = core::mem::replace(&mut message.loss, loss_of(source));
            uncovers |= before == Loss::Hides && message.loss != Loss::Hides;
            self.lost += usize::from(message.is_lost());
            self.lost -= usize::from(before != Loss::None);
        }
        uncovers
    }

    /// The oldest message of a channel.
    pub(crate) fn oldest(&self, lists: &MatchLists) -> Option<Key> {
        lists.unexpected.iter(&self.messages).next().map(|(key, _)| key)
    }

    /// A message of a channel whose tag is refused, the oldest first.
    pub(crate) fn find_tag(&self, lists: &MatchLists, is_refused: impl Fn(Tag) -> bool) -> Option<Key> {
        let mut messages = lists.unexpected.iter(&self.messages);
        messages.find(|(_, message)| is_refused(message.tag)).map(|(key, _)| key)
    }

    /// How many messages of this rank and tag are here whole, and before the first RTS of them.
    pub(crate) fn whole(&self, lists: &MatchLists, source: Rank, tag: Tag) -> usize {
        let Some(list) = lists.by_rank.get(source.index()) else { return 0 };
        let messages = list.unexpected.iter(&self.messages).filter(|(_, message)| message.tag == tag);
        messages.take_while(|(_, message)| !matches!(message.form, Form::Rts { .. })).count()
    }

    /// The RTS of this rank for its request `sender`.
    pub(crate) fn find_rts(&self, lists: &MatchLists, source: Rank, sender: Key) -> Option<Key> {
        let mut messages = lists.by_rank.get(source.index())?.unexpected.iter(&self.messages);
        let is_it = |form| matches!(form, Form::Rts { key, .. } if key == sender);
        messages.find(|(_, message)| is_it(message.form)).map(|(key, _)| key)
    }

    /// Takes a message out of both its queues.
    #[inline]
    pub(crate) fn take(&mut self, lists: &mut MatchLists, key: Key) -> Option<Unexpected> {
        let source = self.messages.get(key)?.source;
        lists.by_rank[source.index()].unexpected.remove(&mut self.messages, key);
        lists.unexpected.remove(&mut self.messages, key);
        let message = self.messages.remove(key)?;
        self.lost -= usize::from(message.is_lost());
        Some(message)
    }

    /// How many messages there are.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }
}

impl Linked<BY_SENDER> for Unexpected {
    fn links(&self) -> &Links {
        &self.by_sender
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.by_sender
    }
}

impl Linked<BY_CHANNEL> for Unexpected {
    fn links(&self) -> &Links {
        &self.by_channel
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.by_channel
    }
}

#[cfg(test)]
mod tests {
    use super::{Arrival, Loss, MatchLists, Matcher, POSTED, PostedReceive, Unexpected};
    use crate::envelope::Form;
    use crate::list::{Linked, Links};
    use mend_base::{Key, Random, Rank, Slab, Source, Tag, TagSelector};

    struct Receive {
        tag: TagSelector,
        stamp: u64,
        links: Links,
    }

    impl Linked<POSTED> for Receive {
        fn links(&self) -> &Links {
            &self.links
        }
        fn links_mut(&mut self) -> &mut Links {
            &mut self.links
        }
    }

    impl PostedReceive for Receive {
        fn admits(&self, tag: Tag) -> Option<u64> {
            self.tag.admits(tag).then_some(self.stamp)
        }
        fn stamp(&self) -> u64 {
            self.stamp
        }
    }

    fn post(lists: &mut MatchLists, slab: &mut Slab<Receive>, from: Source, tag: TagSelector) -> Key {
        assert!(lists.reserve(from));
        let key = slab.insert(Receive { tag, stamp: lists.next_stamp(), links: Links::ALONE });
        lists.post(slab, from, key);
        key
    }

    const ANY: TagSelector = TagSelector::Any;

    #[test]
    fn messages_of_one_rank_must_come_in_order_and_by_an_announced_id() {
        let mut lists = MatchLists::default();
        let rank = Rank(3);
        assert_eq!(lists.arrive(rank, 1, true), Arrival::Garbage, "number 0 comes first");
        assert_eq!(lists.arrive(rank, 0, false), Arrival::Garbage, "never announced");
        assert_eq!(lists.arrive(rank, 0, true), Arrival::Unannounced);
        lists.announce(rank);
        assert_eq!(lists.arrive(rank, 1, false), Arrival::InOrder);
        assert_eq!(lists.arrive(rank, 1, false), Arrival::Garbage, "twice");
        assert_eq!(lists.arrived(rank), 2);
    }

    // Row RV5
    #[test]
    fn on_a_revoked_channel_every_message_in_order_consumes_its_number_and_none_is_admitted() {
        let mut lists = MatchLists::default();
        let [known, unknown, later] = [0, 1, 2].map(Rank);
        for rank in [known, unknown] {
            assert_eq!(lists.arrive(rank, 0, true), Arrival::Unannounced);
        }
        lists.announce(known);
        (0..2).for_each(|_| lists.revoke());
        assert_eq!(lists.arrive(known, 1, false), Arrival::Revoked);
        assert_eq!(lists.arrive(known, 2, true), Arrival::Revoked);
        assert_eq!(lists.arrive(known, 2, false), Arrival::Garbage, "twice");
        for (rank, next) in [(unknown, 1), (later, 0)] {
            assert_eq!(lists.arrive(rank, next, false), Arrival::Garbage, "never announced");
            assert_eq!(lists.arrive(rank, next, true), Arrival::Revoked);
            assert_eq!(lists.arrived(rank), next + 1);
        }
        assert_eq!(lists.arrived(known), 3);
    }

    #[test]
    fn of_two_receives_that_admit_a_message_the_one_posted_first_takes_it() {
        let (mut lists, mut slab) = (MatchLists::default(), Slab::new());
        let rank = Source::Rank(Rank(1));
        let first = post(&mut lists, &mut slab, Source::Any, TagSelector::Tag(Tag(2)));
        let second = post(&mut lists, &mut slab, rank, ANY);
        let third = post(&mut lists, &mut slab, Source::Any, ANY);
        assert_eq!(lists.take_match(&mut slab, Rank(1), Tag(9)), Some(second), "the first has another tag");
        assert_eq!(lists.take_match(&mut slab, Rank(1), Tag(2)), Some(first));
        assert_eq!(lists.take_match(&mut slab, Rank(1), Tag(2)), Some(third));
        assert_eq!(lists.take_match(&mut slab, Rank(1), Tag(2)), None);
    }

    #[test]
    fn a_receive_that_is_posted_again_has_its_old_place() {
        for from in [Source::Any, Source::Rank(Rank(0))] {
            let (mut lists, mut slab) = (MatchLists::default(), Slab::new());
            let keys = [0; 3].map(|_| post(&mut lists, &mut slab, from, ANY));
            lists.unpost(&mut slab, from, keys[1]);
            lists.post_again(&mut slab, from, 2, keys[1]);
            assert!(lists.reserve(Source::Rank(Rank(0))));
            for key in keys {
                assert_eq!(lists.take_match(&mut slab, Rank(0), Tag(0)), Some(key));
            }
        }
    }

    #[test]
    fn a_polling_receive_is_allowed_only_where_nothing_else_comes_first() {
        let (mut lists, mut slab, mut matcher) = (MatchLists::default(), Slab::new(), Matcher::default());
        let rank = Rank(0);
        assert!(!lists.may_poll(rank), "the rank has sent nothing yet");
        assert_eq!(lists.arrive(rank, 0, true), Arrival::Unannounced);
        lists.announce(rank);
        assert!(lists.may_poll(rank));
        for from in [Source::Any, Source::Rank(rank)] {
            let key = post(&mut lists, &mut slab, from, ANY);
            assert!(!lists.may_poll(rank), "{from:?}");
            lists.unpost(&mut slab, from, key);
        }
        assert!(matcher.add(&mut lists, Unexpected::new(rank, Tag(1), Form::Eager, vec![])));
        assert!(!lists.may_poll(rank) && lists.has_unexpected());
    }

    #[test]
    fn a_receive_takes_the_message_that_came_first_of_those_it_admits() {
        for seed in 0..200 {
            let mut random = Random(seed);
            let (mut lists, mut matcher, mut model) = (MatchLists::default(), Matcher::default(), vec![]);
            for number in 0..100u8 {
                let (rank, tag) = (Rank(random.below(3) as u32), Tag(random.below(3) as i32));
                if random.once_in(2) {
                    assert!(lists.reserve(Source::Rank(rank)));
                    let message = Unexpected::new(rank, tag, Form::Eager, vec![number]);
                    assert!(matcher.add(&mut lists, message));
                    model.push((rank, tag, number));
                } else {
                    let from = if random.once_in(2) { Source::Any } else { Source::Rank(rank) };
                    let wanted = if random.once_in(2) { ANY } else { TagSelector::Tag(tag) };
                    let found = matcher.find(&lists, from, wanted);
                    let found = found.map(|(key, _)| key);
                    let taken = found.and_then(|key| matcher.take(&mut lists, key));
                    let admitted =
                        |(rank, tag, _): &(Rank, Tag, u8)| from.admits(*rank) && wanted.admits(*tag);
                    let expected = model.iter().position(admitted).map(|at| model.remove(at).2);
                    assert_eq!(taken.map(|message| message.payload[0]), expected, "seed {seed}");
                }
                assert_eq!(matcher.len(), model.len(), "seed {seed}");
            }
        }
    }

    #[test]
    fn a_lost_message_hides_what_its_sender_sent_behind_it_from_the_wildcards_that_admit_it() {
        let (mut lists, mut matcher) = (MatchLists::default(), Matcher::default());
        let [dead, living] = [0, 1].map(Rank);
        let rts = Form::Rts { key: Key { index: 4, generation: 1 }, bytes: 9 };
        for rank in [dead, living] {
            assert!(lists.reserve(Source::Rank(rank)));
        }
        for (source, tag, form) in
            [(dead, 1, rts), (dead, 2, Form::Eager), (dead, 1, Form::Eager), (living, 1, rts)]
        {
            assert!(matcher.add(&mut lists, Unexpected::new(source, Tag(tag), form, vec![])));
        }
        let found = |matcher: &Matcher, tag| {
            let found = matcher.find(&lists, Source::Any, tag);
            found.map(|(_, message)| (message.source, message.tag.0, message.form == Form::Eager))
        };
        let (one, two) = (TagSelector::Tag(Tag(1)), TagSelector::Tag(Tag(2)));
        let loss = |loss| move |rank| if rank == dead { loss } else { Loss::None };
        assert_eq!(found(&matcher, one), Some((dead, 1, false)));
        assert!(!matcher.update_losses(&lists, loss(Loss::Hides)));
        assert_eq!(found(&matcher, one), Some((living, 1, false)));
        assert_eq!(found(&matcher, ANY), Some((living, 1, false)));
        assert_eq!(found(&matcher, two), Some((dead, 2, true)), "the receive does not admit the lost one");
        assert!(matcher.update_losses(&lists, loss(Loss::Passed)));
        assert!(!matcher.update_losses(&lists, loss(Loss::Passed)));
        assert_eq!(found(&matcher, one), Some((dead, 1, true)));
        assert_eq!(found(&matcher, ANY), Some((dead, 2, true)));
        let (lost, message) = matcher.find(&lists, Source::Rank(dead), one).unwrap();
        assert!(message.is_lost());
        assert!(matcher.take(&mut lists, lost).is_some() && matcher.lost == 0);
    }

    #[test]
    fn a_cancelled_rts_is_found_by_its_key_among_others() {
        let (mut lists, mut matcher) = (MatchLists::default(), Matcher::default());
        let keys = [1, 3].map(|generation| Key { index: 4, generation });
        assert!(lists.reserve(Source::Rank(Rank(0))));
        for key in keys {
            let message = Unexpected::new(Rank(0), Tag(1), Form::Rts { key, bytes: 9 }, vec![]);
            assert!(matcher.add(&mut lists, message));
        }
        let found = matcher.find_rts(&lists, Rank(0), keys[1]).unwrap();
        assert_eq!(matcher.take(&mut lists, found).unwrap().bytes(), 9);
        assert_eq!(matcher.find_rts(&lists, Rank(0), keys[1]), None);
        assert!(matcher.find_rts(&lists, Rank(0), keys[0]).is_some());
        assert_eq!(matcher.find_rts(&lists, Rank(2), keys[0]), None);
    }
}
