// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The collective operations of one channel, as far as messages depend on them: which run, which were given up, and what other
//! members sent about them (design "Interrupted collectives").
//!
//! ```text
//!              begin              give_up                end
//!   Future ───────────▶ Running ───────────▶ GivenUp ───────────▶ Ended
//!                          │                   end                  ▲
//!                          └────────────────────────────────────────┘
//! ```
//!
//! Operations are numbered in the order in which they begin; the number is the tag of their messages. Tags wrap at 2^31, and no two
//! operations of different members are 2^30 operations apart.

use mend_base::{Key, Rank, Tag};

/// The operations of one channel of collective operations or agreements. Empty for a channel of another context kind.
#[derive(Default, Debug)]
pub(crate) struct Operations {
    /// The tag of the operation that begins next.
    next: u32,
    /// Those that have begun and are not over.
    running: Vec<Operation>,
    poison: Vec<Poison>,
    inquiries: Vec<Inquiry>,
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    tag: Tag,
    given_up: Option<GivenUp>,
}

/// Why an operation was given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GivenUp {
    /// The failed member that is the cause; `None`: another cause.
    pub(crate) failed: Option<Rank>,
}

/// How far an operation is here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// It has not begun.
    Future,
    Running,
    /// It waits until its cause is published, and takes no message any more.
    GivenUp(GivenUp),
    Ended,
}

/// A member sends nothing more for an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Poison {
    pub(crate) source: Rank,
    pub(crate) tag: Tag,
    /// The same holds for all later operations.
    pub(crate) and_later: bool,
    pub(crate) failed: Option<Rank>,
}

/// A member waits for a message of an operation that has not begun here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Inquiry {
    pub(crate) source: Rank,
    pub(crate) tag: Tag,
    /// The receive of that member.
    pub(crate) key: Key,
}

/// Tags go up to here, and then from 0 on.
const TAGS: u32 = 1 << 31;

impl Poison {
    /// Whether it is about this operation of this rank.
    pub(crate) fn is_about(&self, source: Rank, tag: Tag) -> bool {
        self.source == source && (self.tag == tag || self.and_later && !is_before(tag, self.tag))
    }
}

impl Operations {
    /// The tag of the operation that begins next.
    pub(crate) fn next(&self) -> Tag {
        Tag(self.next as i32)
    }

    /// Begins the next operation. `None`: there is no memory for it.
    pub(crate) fn begin(&mut self) -> Option<Tag> {
        if !mend_base::reserve(&mut self.running, 1) {
            return None;
        }
        let tag = self.skip();
        self.running.push(Operation { tag, given_up: None });
        Some(tag)
    }

    /// The next operation is over before it begins.
    pub(crate) fn skip(&mut self) -> Tag {
        let tag = self.next();
        self.next = (self.next + 1) % TAGS;
        tag
    }

    /// An operation is over.
    pub(crate) fn end(&mut self, tag: Tag) {
        if let Some(at) = self.running.iter().position(|operation| operation.tag == tag) {
            self.running.swap_remove(at);
        }
    }

    /// An operation that runs takes no messages any more.
    pub(crate) fn give_up(&mut self, tag: Tag, cause: GivenUp) {
        let running = self.running.iter_mut().find(|operation| operation.tag == tag);
        running.into_iter().for_each(|operation| operation.given_up = Some(cause));
    }

    /// How far an operation is.
    #[inline]
    pub(crate) fn stage(&self, tag: Tag) -> Stage {
        match self.running.iter().find(|operation| operation.tag == tag) {
            Some(Operation { given_up: None, .. }) => Stage::Running,
            Some(Operation { given_up: Some(cause), .. }) => Stage::GivenUp(*cause),
            None if is_before(tag, self.next()) => Stage::Ended,
            None => Stage::Future,
        }
    }

    /// Sees to it that one more message of another member can be stored. `false`: there is no memory.
    pub(crate) fn reserve(&mut self) -> bool {
        mend_base::reserve(&mut self.poison, 1) && mend_base::reserve(&mut self.inquiries, 1)
    }

    /// Whether there is poison.
    #[inline]
    pub(crate) fn has_poison(&self) -> bool {
        !self.poison.is_empty()
    }

    /// The poison that ends a receive of this operation from `source`.
    pub(crate) fn poison(&self, source: Rank, tag: Tag) -> Option<Poison> {
        self.poison.iter().find(|poison| poison.is_about(source, tag)).copied()
    }

    /// Stores poison. The caller has [`reserve`](Operations::reserve)d.
    pub(crate) fn add_poison(&mut self, poison: Poison) {
        self.poison.push(poison);
    }

    /// Stores an inquiry. The caller has [`reserve`](Operations::reserve)d.
    pub(crate) fn add_inquiry(&mut self, inquiry: Inquiry) {
        self.inquiries.push(inquiry);
    }

    /// Removes a poison about one operation alone for which this holds.
    pub(crate) fn take_poison(&mut self, is_taken: impl Fn(Stage, Tag) -> bool) -> Option<Poison> {
        let is_taken = |poison: &Poison| !poison.and_later && is_taken(self.stage(poison.tag), poison.tag);
        let at = self.poison.iter().position(is_taken)?;
        Some(self.poison.swap_remove(at))
    }

    /// Removes poison of any kind.
    pub(crate) fn take_any_poison(&mut self) -> Option<Poison> {
        self.poison.pop()
    }

    /// Removes an inquiry for which this holds.
    pub(crate) fn take_inquiry(&mut self, is_taken: impl Fn(&Inquiry) -> bool) -> Option<Inquiry> {
        let at = self.inquiries.iter().position(is_taken)?;
        Some(self.inquiries.swap_remove(at))
    }

    /// How many messages of other members about operations are stored.
    pub(crate) fn stored(&self) -> usize {
        self.poison.len() + self.inquiries.len()
    }
}

/// Whether the operation `tag` comes before the operation `other`.
fn is_before(tag: Tag, other: Tag) -> bool {
    let distance = (other.0 as u32).wrapping_sub(tag.0 as u32) % TAGS;
    distance != 0 && distance < TAGS / 2
}

#[cfg(test)]
mod tests {
    use super::{GivenUp, Operations, Poison, Stage, TAGS};
    use mend_base::{Rank, Tag};

    #[test]
    fn an_operation_is_future_then_runs_then_is_over() {
        let mut operations = Operations { next: TAGS - 2, ..Operations::default() };
        let tags = [(); 3].map(|()| operations.begin().unwrap());
        assert_eq!(tags, [Tag(i32::MAX - 1), Tag(i32::MAX), Tag(0)], "tags wrap");
        assert_eq!(operations.stage(Tag(1)), Stage::Future);
        operations.end(tags[1]);
        let cause = GivenUp { failed: Some(Rank(3)) };
        operations.give_up(tags[0], cause);
        assert_eq!(
            tags.map(|tag| operations.stage(tag)),
            [Stage::GivenUp(cause), Stage::Ended, Stage::Running]
        );
        assert_eq!(operations.skip(), Tag(1));
        assert_eq!(operations.stage(Tag(1)), Stage::Ended);
        operations.end(tags[0]);
        assert_eq!(operations.stage(tags[0]), Stage::Ended);
    }

    #[test]
    fn poison_is_about_one_operation_or_about_all_later_ones_too() {
        let mut operations = Operations::default();
        let poison = |source, tag, and_later| Poison {
            source: Rank(source),
            tag: Tag(tag),
            and_later,
            failed: Some(Rank(9)),
        };
        for each in [poison(1, 4, false), poison(2, i32::MAX, true)] {
            assert!(operations.reserve());
            operations.add_poison(each);
        }
        let about = |source, tag| operations.poison(Rank(source), Tag(tag)).is_some();
        assert!(about(1, 4) && !about(1, 3) && !about(1, 5) && !about(3, 4));
        assert!(about(2, i32::MAX) && about(2, 0) && about(2, 7) && !about(2, i32::MAX - 1));
        assert_eq!(operations.take_poison(|stage, _| stage == Stage::Future), Some(poison(1, 4, false)));
        assert_eq!(operations.take_poison(|_, _| true), None, "the other is kept for later operations");
        assert_eq!(operations.take_any_poison(), Some(poison(2, i32::MAX, true)));
        assert!(!operations.has_poison());
    }
}
