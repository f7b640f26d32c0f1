// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tree over the members of a communicator along which agreements and votes collect and spread.
//!
//! The tree is built over the members that are not in the *excluded* set, which all members know alike, and mended for the members
//! that have failed since, which each member learns at its own time:
//!
//! * the parent of a member is its nearest ancestor that lives;
//! * if no ancestor lives, the parent is the *root*: the lowest member that lives and is not excluded;
//! * the children of a member are those of which it is the parent.
//!
//! In every shape a parent has a lower rank than its children. So all ancestors of the lowest living member have failed, and that
//! member is the root in the view of all who know of these failures.
//!
//! No table of members is needed: everything is computed from the two sets, in time proportional to the failures and the children.

use crate::ranks::Ranks;
use mend_base::Rank;

/// The shape of the tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Shape {
    /// Each member has one child.
    Chain,
    /// Each member has two children: those of position p are 2p + 1 and 2p + 2.
    Binary,
    /// The k-nomial tree: the parent of a position is the position without its last nonzero digit in base k. With radix k the root
    /// has (k - 1) children for each digit.
    Nomial(u32),
}

impl Shape {
    /// The tree of every communicator. On one node, seven messages one after the other take about as long as three rounds of one
    /// message (`mend_coll`'s barrier uses the same).
    pub const USUAL: Shape = Shape::Nomial(8);
}

/// The tree of a communicator of `size` members.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Tree {
    size: u32,
    shape: Shape,
    /// The members that are left out, which all members know alike.
    excluded: Ranks,
}

impl Tree {
    /// The tree of all members.
    pub fn new(size: u32, shape: Shape) -> Self {
        assert!(!matches!(shape, Shape::Nomial(0 | 1)), "a digit has at least two values");
        Tree { size, shape, excluded: Ranks::new() }
    }

    /// The number of members, with the excluded ones.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The members that are left out.
    pub fn excluded(&self) -> &Ranks {
        &self.excluded
    }

    /// Leaves a member out from now on. All members must do so at the same place of the protocol.
    pub fn exclude(&mut self, rank: Rank) {
        debug_assert!(rank.0 < self.size);
        self.excluded.insert(rank);
    }

    /// The parent of `rank`, if these members have failed. `None`: `rank` is the root. `rank` itself lives and is not excluded.
    pub fn parent(&self, rank: Rank, failed: &Ranks) -> Option<Rank> {
        let mut position = self.position(rank);
        while position > 0 {
            position = self.parent_position(position);
            let ancestor = self.rank_at(position);
            if !failed.contains(ancestor) {
                return Some(ancestor);
            }
        }
        self.root(failed).filter(|&root| root != rank)
    }

    /// The lowest member that lives and is not excluded. `None`: there is none.
    pub fn root(&self, failed: &Ranks) -> Option<Rank> {
        (0..self.living_positions())
            .map(|position| self.rank_at(position))
            .find(|&rank| !failed.contains(rank))
    }

    /// Calls `visit` for each child of `rank`, if these members have failed. A root by succession also has the children of the
    /// failed members above it.
    pub fn children(&self, rank: Rank, failed: &Ranks, visit: &mut impl FnMut(Rank)) {
        self.descend(self.position(rank), failed, visit);
        if !failed.is_empty() && rank.0 > 0 && self.root(failed) == Some(rank) {
            self.without_ancestors(rank, failed, visit);
        }
    }

    /// Calls `visit` for each member but `root` whose ancestors have all failed: the children that a root gets by succession,
    /// which were not below it.
    pub fn without_ancestors(&self, root: Rank, failed: &Ranks, visit: &mut impl FnMut(Rank)) {
        let first = self.rank_at(0);
        if failed.contains(first) {
            self.descend(0, failed, &mut |child| {
                if child != root {
                    visit(child);
                }
            });
        }
    }

    /// Visits the nearest living members below a position.
    fn descend(&self, position: u32, failed: &Ranks, visit: &mut impl FnMut(Rank)) {
        self.child_positions(position, &mut |child| {
            let rank = self.rank_at(child);
            if failed.contains(rank) {
                self.descend(child, failed, visit);
            } else {
                visit(rank);
            }
        });
    }

    fn living_positions(&self) -> u32 {
        self.size - self.excluded.len() as u32
    }

    /// The position of a member among those that are not excluded.
    fn position(&self, rank: Rank) -> u32 {
        debug_assert!(rank.0 < self.size && !self.excluded.contains(rank));
        rank.0 - self.excluded.below(rank)
    }

    /// The member at a position: the rank that has as many unexcluded ranks below it.
    fn rank_at(&self, position: u32) -> Rank {
        let mut rank = position;
        for excluded in self.excluded.iter() {
            if excluded.0 > rank {
                break;
            }
            rank += 1;
        }
        Rank(rank)
    }

    fn parent_position(&self, position: u32) -> u32 {
        match self.shape {
            Shape::Chain => position - 1,
            Shape::Binary => (position - 1) / 2,
            Shape::Nomial(radix) => {
                let mut weight = 1;
                while (position / weight).is_multiple_of(radix) {
                    weight *= radix;
                }
                position - position / weight % radix * weight
            }
        }
    }

    fn child_positions(&self, position: u32, visit: &mut impl FnMut(u32)) {
        let all = self.living_positions();
        let mut visit = |child: u64| {
            if child < u64::from(all) {
                visit(child as u32);
            }
        };
        let at = u64::from(position);
        match self.shape {
            Shape::Chain => visit(at + 1),
            Shape::Binary => {
                visit(2 * at + 1);
                visit(2 * at + 2);
            }
            Shape::Nomial(radix) => {
                let radix = u64::from(radix);
                let mut weight = 1;
                while weight < u64::from(all) && (at / weight).is_multiple_of(radix) {
                    let children = (1..radix).map(|digit| at + digit * weight);
                    children.take_while(|&child| child < u64::from(all)).for_each(&mut visit);
                    weight *= radix;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Shape, Tree};
    use crate::ranks::Ranks;
    use mend_base::{Random, Rank};

    const SHAPES: [Shape; 5] =
        [Shape::Chain, Shape::Binary, Shape::Nomial(2), Shape::Nomial(4), Shape::Nomial(8)];

    fn children(tree: &Tree, rank: Rank, failed: &Ranks) -> Vec<Rank> {
        let mut children = Vec::new();
        tree.children(rank, failed, &mut |child| children.push(child));
        children
    }

    #[test]
    fn every_living_member_is_the_child_of_its_parent_alone() {
        let mut random = Random(1);
        for round in 0..2_000 {
            let size = 1 + random.below(40) as u32;
            let shape = SHAPES[round % SHAPES.len()];
            let mut tree = Tree::new(size, shape);
            let mut failed = Ranks::new();
            for rank in 0..size {
                match random.below(4) {
                    0 => tree.exclude(Rank(rank)),
                    1 => _ = failed.insert(Rank(rank)),
                    _ => {}
                }
            }
            let living = || {
                (0..size).map(Rank).filter(|&rank| !tree.excluded().contains(rank) && !failed.contains(rank))
            };
            let mut parents = vec![None; size as usize];
            for rank in living() {
                for child in children(&tree, rank, &failed) {
                    assert_eq!(parents[child.index()].replace(rank), None, "{child:?} has two parents");
                }
            }
            for rank in living() {
                assert_eq!(
                    tree.parent(rank, &failed),
                    parents[rank.index()],
                    "{rank:?} of {tree:?}, {failed:?}"
                );
                assert_eq!(parents[rank.index()].is_none(), tree.root(&failed) == Some(rank));
            }
        }
    }

    #[test]
    fn the_shapes_are_what_their_names_say() {
        let none = Ranks::new();
        let of = |shape, size, rank| {
            let tree = Tree::new(size, shape);
            children(&tree, Rank(rank), &none).iter().map(|rank| rank.0).collect::<Vec<_>>()
        };
        assert_eq!(of(Shape::Chain, 3, 1), [2]);
        assert_eq!(of(Shape::Binary, 6, 1), [3, 4]);
        assert_eq!(of(Shape::Nomial(4), 20, 0), [1, 2, 3, 4, 8, 12, 16]);
        assert_eq!(of(Shape::Nomial(4), 20, 4), [5, 6, 7]);
        assert_eq!(of(Shape::Nomial(8), 8, 0), [1, 2, 3, 4, 5, 6, 7]);
        assert!(of(Shape::Nomial(8), 1, 0).is_empty());
    }
}
