// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places in a communicator, and the labels of messages.

/// A place in a communicator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Rank(pub u32);

impl Rank {
    /// The rank as an index of a table with one entry a rank.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The label of a message, 0 to 2^31-1 for users and for each internal context kind alike (MPI-5.0 §3.2.3): context kinds have
/// contexts of their own, so that no tag is reserved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Tag(pub i32);

impl Tag {
    /// `MPI_TAG_UB`.
    pub const MAX: Tag = Tag(i32::MAX);
}

/// From whom a receive takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// This rank alone.
    Rank(Rank),
    /// `MPI_ANY_SOURCE`.
    Any,
}

impl Source {
    /// Whether a message of `rank` is meant.
    pub fn admits(self, rank: Rank) -> bool {
        match self {
            Source::Rank(named) => named == rank,
            Source::Any => true,
        }
    }
}

/// Which tags a receive takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TagSelector {
    /// This tag alone.
    Tag(Tag),
    /// `MPI_ANY_TAG`.
    Any,
}

impl TagSelector {
    /// Whether a message with `tag` is meant.
    pub fn admits(self, tag: Tag) -> bool {
        match self {
            TagSelector::Tag(named) => named == tag,
            TagSelector::Any => true,
        }
    }
}
