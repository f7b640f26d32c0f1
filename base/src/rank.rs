// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ranks and tags, and the selectors of receives.

/// The number of a process within a communicator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Rank(pub u32);

impl Rank {
    /// The rank as an index of a table with one entry a rank.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A tag, 0 to 2^31-1, for users and for collective operations alike (MPI-5.0 §3.2.3): each context kind has its own context
/// ids, so that no tag is reserved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Tag(pub i32);

impl Tag {
    /// `MPI_TAG_UB`.
    pub const MAX: Tag = Tag(i32::MAX);
}

/// The source that a receive selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// This rank.
    Rank(Rank),
    /// `MPI_ANY_SOURCE`.
    Any,
}

impl Source {
    /// Whether a message from `rank` is selected.
    pub fn admits(self, rank: Rank) -> bool {
        match self {
            Source::Rank(named) => named == rank,
            Source::Any => true,
        }
    }
}

/// The tags that a receive selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TagSelector {
    /// This tag.
    Tag(Tag),
    /// `MPI_ANY_TAG`.
    Any,
}

impl TagSelector {
    /// Whether a message with `tag` is selected.
    pub fn admits(self, tag: Tag) -> bool {
        match self {
            TagSelector::Tag(named) => named == tag,
            TagSelector::Any => true,
        }
    }
}
