// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ordered sets of processes (MPI-5.0 §7.3).

use core::fmt;
use mend_base::{Peer, Rank};

/// An ordered set of peers: rank `r` of the group is its `r`-th peer (MPI-5.0 §7.2.1). Immutable.
///
/// Stored as runs of peers with a constant stride, so the memory of WORLD, or of every second rank of it, does not depend on its size.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Group {
    runs: Vec<Run>,
    size: u32,
}

/// The peers `first`, `first + stride`, ..., which have the ranks from `start` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    first: Peer,
    stride: i64,
    start: u32,
    count: u32,
}

/// How two groups compare (MPI-5.0 §7.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// The same peers in the same order.
    Identical,
    /// The same peers in another order.
    Similar,
    /// Other peers.
    Unequal,
}

/// Why a group could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupError {
    /// The group has no such rank.
    NoSuchRank(Rank),
    /// This rank was named twice.
    Twice(Rank),
    /// This peer was named twice.
    PeerTwice(Peer),
}

impl fmt::Display for GroupError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupError::NoSuchRank(rank) => write!(out, "the group has no rank {}", rank.0),
            GroupError::Twice(rank) => write!(out, "rank {} was named twice", rank.0),
            GroupError::PeerTwice(peer) => write!(out, "peer {:#x} was named twice", peer.0),
        }
    }
}

impl std::error::Error for GroupError {}

impl Group {
    /// `count` peers with consecutive numbers, such as the processes that the launcher starts.
    pub fn consecutive(first: Peer, count: u32) -> Self {
        if count == 0 {
            return Group::default();
        }
        Group { runs: vec![Run { first, stride: 1, start: 0, count }], size: count }
    }

    /// A group of these peers in this order.
    pub fn new(peers: impl IntoIterator<Item = Peer>) -> Result<Self, GroupError> {
        let group = Self::in_order(peers);
        let sorted = group.sorted();
        match sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(GroupError::PeerTwice(pair[0].0)),
            None => Ok(group),
        }
    }

    /// A group of these peers in this order. The caller ensures that they differ.
    fn in_order(peers: impl IntoIterator<Item = Peer>) -> Self {
        let mut group = Group::default();
        for peer in peers {
            group.append(peer);
        }
        group
    }

    fn append(&mut self, peer: Peer) {
        let start = self.size;
        self.size = start.checked_add(1).expect("a group of 2^32 processes");
        if let Some(last) = self.runs.last_mut() {
            let distance = peer.0.wrapping_sub(last.last().0) as i64;
            if last.count == 1 || distance == last.stride {
                last.stride = distance;
                last.count += 1;
                return;
            }
        }
        self.runs.push(Run { first: peer, stride: 1, start, count: 1 });
    }

    /// The number of processes.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Whether the group has no processes (`MPI_GROUP_EMPTY`).
    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// The process with this rank; `None`: there is no such rank.
    pub fn peer(&self, rank: Rank) -> Option<Peer> {
        if rank.0 >= self.size {
            return None;
        }
        let run = self.runs[self.runs.partition_point(|run| run.start <= rank.0) - 1];
        Some(run.at(rank.0 - run.start))
    }

    /// The rank of `peer`, if it is a member. Linear in the number of runs: for many peers, use [`translate`](Group::translate).
    pub fn rank_of(&self, peer: Peer) -> Option<Rank> {
        self.runs.iter().find_map(|run| run.rank_of(peer))
    }

    /// All processes in order.
    pub fn iter(&self) -> impl Iterator<Item = Peer> {
        self.runs.iter().flat_map(|run| (0..run.count).map(|step| run.at(step)))
    }

    /// Translates `ranks` of this group to ranks of `other`; `None` for a process that is not in `other` (MPI-5.0 §7.3.1,
    /// MPI_GROUP_TRANSLATE_RANKS).
    pub fn translate(&self, ranks: &[Rank], other: &Group) -> Result<Vec<Option<Rank>>, GroupError> {
        let find = Finder::new(other, ranks.len());
        ranks
            .iter()
            .map(|&rank| {
                let peer = self.peer(rank).ok_or(GroupError::NoSuchRank(rank))?;
                Ok(find.rank_of(peer))
            })
            .collect()
    }

    /// The processes with these ranks, in the order of `ranks` (MPI_GROUP_INCL).
    pub fn include(&self, ranks: &[Rank]) -> Result<Self, GroupError> {
        self.check(ranks)?;
        Ok(Self::in_order(ranks.iter().filter_map(|&rank| self.peer(rank))))
    }

    /// All processes but those with these ranks, in the order of this group (MPI_GROUP_EXCL).
    pub fn exclude(&self, ranks: &[Rank]) -> Result<Self, GroupError> {
        let sorted = self.check(ranks)?;
        let remaining =
            (0u32..).zip(self.iter()).filter(|(rank, _)| sorted.binary_search(&Rank(*rank)).is_err());
        Ok(Self::in_order(remaining.map(|(_, peer)| peer)))
    }

    /// Checks that each rank exists and is named once. Returns the ranks sorted.
    fn check(&self, ranks: &[Rank]) -> Result<Vec<Rank>, GroupError> {
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        if let Some(&last) = sorted.last()
            && last.0 >= self.size
        {
            return Err(GroupError::NoSuchRank(last));
        }
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(GroupError::Twice(pair[0])),
            None => Ok(sorted),
        }
    }

    /// The processes of this group, then those of `other` that are not in this group, in the order of `other` (MPI_GROUP_UNION).
    pub fn union(&self, other: &Group) -> Self {
        let ours = Finder::new(self, other.size as usize);
        Self::in_order(self.iter().chain(other.iter().filter(|&peer| ours.rank_of(peer).is_none())))
    }

    /// The processes of this group that `other` has too, in the order of this group (MPI_GROUP_INTERSECTION).
    pub fn intersection(&self, other: &Group) -> Self {
        let theirs = Finder::new(other, self.size as usize);
        Self::in_order(self.iter().filter(|&peer| theirs.rank_of(peer).is_some()))
    }

    /// The processes of this group that are not in `other`, in the order of this group (MPI_GROUP_DIFFERENCE).
    pub fn difference(&self, other: &Group) -> Self {
        let theirs = Finder::new(other, self.size as usize);
        Self::in_order(self.iter().filter(|&peer| theirs.rank_of(peer).is_none()))
    }

    /// Compares the groups (MPI_GROUP_COMPARE).
    pub fn compare(&self, other: &Group) -> Comparison {
        if self.size != other.size {
            return Comparison::Unequal;
        }
        // Equal runs mean equal sequences. Sequences with different runs are compared peer by peer.
        if self.runs == other.runs || self.iter().eq(other.iter()) {
            return Comparison::Identical;
        }
        let theirs = Finder::new(other, self.size as usize);
        match self.iter().all(|peer| theirs.rank_of(peer).is_some()) {
            true => Comparison::Similar,
            false => Comparison::Unequal,
        }
    }

    fn sorted(&self) -> Vec<(Peer, Rank)> {
        let mut sorted: Vec<_> = self.iter().zip((0u32..).map(Rank)).collect();
        sorted.sort_unstable();
        sorted
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Group of {}: ", self.size)?;
        out.debug_list().entries(&self.runs).finish()
    }
}

impl Run {
    fn at(&self, step: u32) -> Peer {
        Peer(self.first.0.wrapping_add((i64::from(step).wrapping_mul(self.stride)) as u64))
    }

    fn last(&self) -> Peer {
        self.at(self.count - 1)
    }

    fn rank_of(&self, peer: Peer) -> Option<Rank> {
        let distance = peer.0.wrapping_sub(self.first.0) as i64;
        if distance.wrapping_rem(self.stride) != 0 {
            return None;
        }
        let step = u32::try_from(distance.wrapping_div(self.stride)).ok()?;
        (step < self.count).then(|| Rank(self.start + step))
    }
}

/// Finds the ranks of many peers in one group: run by run if there are few runs or few peers, else in a sorted copy.
enum Finder<'a> {
    Runs(&'a Group),
    Sorted(Vec<(Peer, Rank)>),
}

impl<'a> Finder<'a> {
    fn new(group: &'a Group, lookups: usize) -> Self {
        if group.runs.len() <= 8 || lookups <= 8 {
            return Finder::Runs(group);
        }
        Finder::Sorted(group.sorted())
    }

    fn rank_of(&self, peer: Peer) -> Option<Rank> {
        match self {
            Finder::Runs(group) => group.rank_of(peer),
            Finder::Sorted(sorted) => {
                let at = sorted.binary_search_by_key(&peer, |&(member, _)| member).ok()?;
                Some(sorted[at].1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Comparison, Group, GroupError};
    use mend_base::{Job, Peer, Random, Rank};

    fn peer(number: u32) -> Peer {
        Peer::new(Job(7), number)
    }

    fn group(numbers: &[u32]) -> Group {
        Group::new(numbers.iter().map(|&number| peer(number))).unwrap()
    }

    fn numbers(group: &Group) -> Vec<u32> {
        group.iter().map(Peer::number).collect()
    }

    fn ranks(ranks: &[u32]) -> Vec<Rank> {
        ranks.iter().copied().map(Rank).collect()
    }

    #[test]
    fn a_regular_group_is_one_run_at_any_size() {
        let world = Group::consecutive(peer(0), 1 << 20);
        assert_eq!(world.runs.len(), 1);
        assert_eq!(world.peer(Rank(77_777)), Some(peer(77_777)));
        assert_eq!(world.rank_of(peer(1 << 20)), None);
        let odd = Group::new((0..1000).map(|step| peer(2 * step + 1))).unwrap();
        assert_eq!(odd.runs.len(), 1);
        assert_eq!(odd.rank_of(peer(2)), None);
        assert_eq!(odd.rank_of(peer(5)), Some(Rank(2)));
        let down = Group::new((0..1000).rev().map(peer)).unwrap();
        assert_eq!(down.runs.len(), 1);
        assert_eq!(down.rank_of(peer(999)), Some(Rank(0)));
    }

    #[test]
    fn ranks_and_peers_are_each_others_inverse_in_random_groups() {
        for seed in 0..200 {
            let mut random = Random(seed);
            let mut members: Vec<u32> = (0..60).filter(|_| random.once_in(2)).collect();
            for at in (1..members.len()).rev() {
                if random.once_in(3) {
                    members.swap(at, random.below(at as u64 + 1) as usize);
                }
            }
            let group = group(&members);
            assert_eq!(numbers(&group), members, "seed {seed}");
            for (rank, &number) in (0u32..).zip(&members) {
                assert_eq!(group.peer(Rank(rank)), Some(peer(number)), "seed {seed}");
                assert_eq!(group.rank_of(peer(number)), Some(Rank(rank)), "seed {seed}");
            }
            assert_eq!(group.peer(Rank(group.size())), None);
            assert_eq!(group.rank_of(peer(60)), None);
        }
    }

    #[test]
    fn include_has_the_order_of_the_ranks_and_exclude_that_of_the_group() {
        let world = Group::consecutive(peer(0), 6);
        assert_eq!(numbers(&world.include(&ranks(&[4, 0, 5])).unwrap()), [4, 0, 5]);
        assert_eq!(numbers(&world.exclude(&ranks(&[4, 0])).unwrap()), [1, 2, 3, 5]);
        assert!(world.include(&[]).unwrap().is_empty());
        assert_eq!(world.include(&ranks(&[1, 6])), Err(GroupError::NoSuchRank(Rank(6))));
        assert_eq!(world.exclude(&ranks(&[1, 2, 1])), Err(GroupError::Twice(Rank(1))));
        assert_eq!(Group::new([peer(1), peer(2), peer(1)]), Err(GroupError::PeerTwice(peer(1))));
    }

    #[test]
    fn set_operations_have_the_order_that_the_standard_defines() {
        let (left, right) = (group(&[5, 1, 3, 9]), group(&[3, 4, 5]));
        assert_eq!(numbers(&left.union(&right)), [5, 1, 3, 9, 4]);
        assert_eq!(numbers(&left.intersection(&right)), [5, 3]);
        assert_eq!(numbers(&left.difference(&right)), [1, 9]);
        assert!(left.difference(&left).is_empty());
    }

    #[test]
    fn set_operations_on_irregular_groups_agree_with_lists() {
        for seed in 0..100 {
            let mut random = Random(seed);
            let mut draw = || -> Vec<u32> {
                let mut members: Vec<u32> = (0..80).filter(|_| random.once_in(3)).collect();
                members.sort_by_key(|member| member.wrapping_mul(2_654_435_761) ^ seed as u32);
                members
            };
            let (a, b) = (draw(), draw());
            let (left, right) = (group(&a), group(&b));
            let filtered =
                |common: bool| a.iter().copied().filter(|x| b.contains(x) == common).collect::<Vec<_>>();
            assert_eq!(numbers(&left.intersection(&right)), filtered(true), "seed {seed}");
            assert_eq!(numbers(&left.difference(&right)), filtered(false), "seed {seed}");
            let all: Vec<Rank> = (0..left.size()).map(Rank).collect();
            let there: Vec<_> =
                a.iter().map(|x| b.iter().position(|y| x == y).map(|at| Rank(at as u32))).collect();
            assert_eq!(left.translate(&all, &right).unwrap(), there, "seed {seed}");
        }
    }

    #[test]
    fn groups_compare_by_members_and_order() {
        let world = Group::consecutive(peer(0), 3);
        assert_eq!(world.compare(&group(&[0, 1, 2])), Comparison::Identical);
        assert_eq!(world.compare(&group(&[2, 1, 0])), Comparison::Similar);
        assert_eq!(world.compare(&group(&[0, 1, 3])), Comparison::Unequal);
        assert_eq!(world.compare(&group(&[0, 1])), Comparison::Unequal);
        assert_eq!(Group::default().compare(&Group::consecutive(peer(4), 0)), Comparison::Identical);
    }

    #[test]
    fn a_rank_that_does_not_exist_is_not_translated() {
        let world = Group::consecutive(peer(0), 3);
        assert_eq!(world.translate(&ranks(&[3]), &world), Err(GroupError::NoSuchRank(Rank(3))));
        assert_eq!(world.translate(&ranks(&[1]), &group(&[2])), Ok(vec![None]));
    }
}
