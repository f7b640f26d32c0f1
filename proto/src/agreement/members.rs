// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What one member knows of the others, and its place in the tree by this knowledge.

use crate::ranks::{Ranks, SetHash};
use crate::tree::{Shape, Tree};
use mend_base::Rank;

/// The members, as one of them sees them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Members {
    me: Rank,
    /// Excludes the failed members of the last decision.
    tree: Tree,
    /// The hash of the excluded members.
    excluded: SetHash,
    /// The members that have failed or left MPI, as published here, and are not excluded: no message of them will arrive. The
    /// tree is mended for these alone.
    gone: Ranks,
    /// The members that are known to have failed, also by what others said, and are not excluded.
    failed: Ranks,
    /// Whether a member is known to have left MPI.
    departed: bool,
}

impl Members {
    pub(super) fn new(me: Rank, size: u32, shape: Shape) -> Self {
        assert!(me.0 < size, "{me:?} of {size}");
        let (gone, failed) = (Ranks::new(), Ranks::new());
        Members {
            me,
            tree: Tree::new(size, shape),
            excluded: SetHash::default(),
            gone,
            failed,
            departed: false,
        }
    }

    pub(super) fn me(&self) -> Rank {
        self.me
    }

    /// Whether messages of this rank are looked at. One of an excluded member was sent for a past agreement.
    pub(super) fn is_listened_to(&self, rank: Rank) -> bool {
        self.can_fail(rank) && !self.gone.contains(rank)
    }

    /// Whether this rank may be added to the excluded ones. A member that is itself said to have failed is about to be killed.
    pub(super) fn can_fail(&self, rank: Rank) -> bool {
        rank != self.me && rank.0 < self.tree.size() && !self.tree.excluded().contains(rank)
    }

    /// A member is said to have failed. It is part of what this member sends up and decides, and the tree is as before:
    /// messages of that member may still arrive here.
    pub(super) fn hear_of_failure(&mut self, rank: Rank) {
        if self.can_fail(rank) {
            self.failed.insert(rank);
        }
    }

    /// The end of a member is published here. Returns who was gone before, or `None` if this is no news.
    pub(super) fn end(&mut self, rank: Rank, is_failure: bool) -> Option<Ranks> {
        if !self.is_listened_to(rank) {
            return None;
        }
        let before = self.gone.clone();
        self.gone.insert(rank);
        if is_failure {
            self.failed.insert(rank);
        } else {
            self.departed = true;
        }
        Some(before)
    }

    /// Leaves these members out of the tree from now on.
    pub(super) fn exclude(&mut self, failed: &Ranks) {
        self.excluded = self.hash_with(failed);
        failed.iter().for_each(|rank| self.tree.exclude(rank));
        self.gone.retain(|rank| !failed.contains(rank));
        self.failed.retain(|rank| !failed.contains(rank));
    }

    /// The failed members that are not excluded.
    pub(super) fn failed(&self) -> &Ranks {
        &self.failed
    }

    /// The excluded members.
    pub(super) fn excluded(&self) -> &Ranks {
        self.tree.excluded()
    }

    /// Whether a member is known to have left MPI.
    pub(super) fn has_departed(&self) -> bool {
        self.departed
    }

    /// The hash of the excluded members and of these, which are not excluded.
    pub(super) fn hash_with(&self, more: &Ranks) -> SetHash {
        more.iter().fold(self.excluded, |hash, rank| hash.with(u64::from(rank.0)))
    }

    /// The parent of this member; `None` for the root.
    pub(super) fn parent(&self) -> Option<Rank> {
        self.tree.parent(self.me, &self.gone)
    }

    /// The children of this member.
    pub(super) fn children(&self, visit: &mut impl FnMut(Rank)) {
        self.tree.children(self.me, &self.gone, visit);
    }

    /// The children that this member, a root by succession, has taken over: those that are not below it.
    pub(super) fn taken_over(&self, visit: &mut impl FnMut(Rank)) {
        self.tree.without_ancestors(self.me, &self.gone, visit);
    }

    /// Whether `rank` was a child of this member when only these were gone.
    pub(super) fn was_child(&self, rank: Rank, gone: &Ranks) -> bool {
        self.tree.parent(rank, gone) == Some(self.me)
    }
}
