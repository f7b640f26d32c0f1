// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How communicators are created without an agreement on a number (design "Context ids"): one member allocates the identity, and the
//! exchange that the call needs in any case carries it. A member that has created the communicator may send on it at once; at a
//! member that has not created it yet, the message is an early message of that identity.
//!
//! Values only: the engine runs the exchange, as a collective operation on the parent.

use crate::{Detail, Hints};
use mend_base::{Identity, Rank, Reader, Writer};
use mend_coll::Collective;
use mend_comm::{Communicator, Group};
use mend_datatype::TypedBuffer;
use mend_proto::identity::IdentityAllocator;
use mend_transport::{Buffer, UserMemory};
use std::sync::Arc;

/// A creation of a communicator that runs: the contributions that its members exchange.
#[derive(Clone, Debug)]
pub(crate) enum PendingCreation {
    /// [`DUP_NAMER`] broadcasts its number (MPI-5.0 §7.4.2, MPI_COMM_DUP).
    Dup { contributions: Arc<Buffer>, hints: Hints },
    /// Each member sends color, key and number to all (MPI_COMM_SPLIT, MPI_COMM_SPLIT_TYPE, MPI_COMM_CREATE).
    Split { contributions: Arc<Buffer>, mine: Contribution, hints: Hints },
    /// The first process of the group announces its number to the others (MPI_COMM_CREATE_GROUP): `ranks` are the ranks in the parent, in
    /// the order of the group. `number`: `None` until it is known here.
    Group { ranks: Arc<[Rank]>, number: Option<u32> },
    /// The leaders of two groups exchange the groups (MPI_INTERCOMM_CREATE). `identity`: `None` until it is known here.
    Inter { identity: Option<Identity> },
    /// This member has no contribution, for lack of memory or of a number: it votes no.
    NoContribution(Detail),
}

/// The contribution of one member to the exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Contribution {
    /// The new communicator that it joins; `None`: none of them (`MPI_UNDEFINED`).
    pub color: Option<u32>,
    /// The order of the members; among equal keys that of the ranks in the parent.
    pub key: i32,
    /// The number of the identity, if this member turns out to be the creator; [`NO_NUMBER`](Contribution::NO_NUMBER) without a color.
    pub number: u32,
}

/// A communicator that was created, with the rank of this process in it.
#[derive(Debug)]
pub(crate) struct Created {
    /// Identity, rank and group.
    pub communicator: Communicator,
    /// The ranks of the members in the parent, in the new order; `None`: the members and their order are those of the parent.
    pub ranks: Option<Vec<Rank>>,
}

impl PendingCreation {
    /// A duplicate of the parent, with `hints`. `number`: allocated by [`DUP_NAMER`], and `None` at the other ranks.
    pub fn dup(number: Option<u32>, hints: Hints) -> Result<(PendingCreation, Collective), Detail> {
        let contributions = Buffer::try_zeroed(Contribution::BYTES).ok_or(Detail::NoMemory)?;
        if let Some(number) = number {
            Contribution { color: Some(0), key: 0, number }.write(&contributions, Rank(0));
        }
        let data = TypedBuffer::bytes(UserMemory::of_buffer(&contributions));
        Ok((PendingCreation::Dup { contributions, hints }, Collective::Bcast { data, root: DUP_NAMER }))
    }

    /// A split of `parent`, with the contribution of this process. The new communicator has `hints`.
    pub fn split(
        parent: &Communicator,
        mine: Contribution,
        hints: Hints,
    ) -> Result<(PendingCreation, Collective), Detail> {
        let contributions = Buffer::try_zeroed(Contribution::BYTES * parent.size() as usize);
        let contributions = contributions.ok_or(Detail::NoMemory)?;
        mine.write(&contributions, parent.rank);
        let receive = TypedBuffer::bytes(UserMemory::of_buffer(&contributions));
        let exchange = Collective::Allgather { send: None, receive };
        Ok((PendingCreation::Split { contributions, mine, hints }, exchange))
    }

    /// The contribution of this process to MPI_COMM_CREATE: a split whose color is the parent rank of the first process of `group`, and
    /// whose key is the rank in `group`. The caller sets the number. Members may pass different groups if these have no process in
    /// common.
    pub fn contribution_of_member(parent: &Communicator, group: &Group) -> Result<Contribution, Detail> {
        let rank_in_parent = |peer| parent.group.rank_of(peer).ok_or(Detail::NotInCommunicator);
        let no_member = Contribution { color: None, key: 0, number: Contribution::NO_NUMBER };
        let Some(first) = group.peer(Rank(0)) else { return Ok(no_member) };
        let color = rank_in_parent(first)?.0;
        for peer in group.iter() {
            rank_in_parent(peer)?;
        }
        let me = parent.peer(parent.rank).and_then(|me| group.rank_of(me));
        Ok(me.map_or(no_member, |rank| Contribution { color: Some(color), key: rank.0 as i32, ..no_member }))
    }

    /// The identity of the communicator, if the contributions that determine it have arrived: the exchange may have failed.
    pub fn identity(&self, parent: &Communicator) -> Option<Identity> {
        let complete = match self {
            PendingCreation::Inter { identity } => return *identity,
            // No number is 0, so a contribution with the number 0 has not arrived.
            PendingCreation::Dup { contributions, .. } | PendingCreation::Split { contributions, .. } => {
                Contribution::all(contributions)
                    .all(|contribution| contribution.is_some_and(|contribution| contribution.number != 0))
            }
            PendingCreation::Group { number, .. } => number.is_some(),
            PendingCreation::NoContribution(_) => false,
        };
        let created = if complete { self.finish(parent).ok()? } else { None };
        created.map(|created| created.communicator.identity)
    }

    /// The hints of the new communicator. Only a duplicate inherits hints (Row IK4).
    pub fn hints(&self) -> Hints {
        match self {
            PendingCreation::Dup { hints, .. } | PendingCreation::Split { hints, .. } => *hints,
            PendingCreation::Group { .. }
            | PendingCreation::Inter { .. }
            | PendingCreation::NoContribution(_) => Hints::default(),
        }
    }

    /// Whether the new communicator has the groups of its parent, also if that is an intercommunicator.
    pub fn keeps_groups(&self) -> bool {
        matches!(self, PendingCreation::Dup { .. })
    }

    /// The ranks in the parent of the members that take part, if these are not all members of the parent.
    pub fn group(&self) -> Option<&Arc<[Rank]>> {
        match self {
            PendingCreation::Group { ranks, .. } => Some(ranks),
            PendingCreation::Dup { .. }
            | PendingCreation::Split { .. }
            | PendingCreation::Inter { .. }
            | PendingCreation::NoContribution(_) => None,
        }
    }

    /// The number that this process allocated, unless `created`, the result of the exchange, has got it.
    pub fn unused_number(&self, parent: &Communicator, created: Option<&Created>) -> Option<u32> {
        let PendingCreation::Split { mine: Contribution { color: Some(_), number, .. }, .. } = self else {
            return None;
        };
        let mine = parent.peer(parent.rank).map(|creator| Identity { creator, number: *number });
        let named = created.map(|created| created.communicator.identity);
        (mine.is_some() && named != mine).then_some(*number)
    }

    /// The result after the exchange. `None`: this process is not a member of a new communicator.
    pub fn finish(&self, parent: &Communicator) -> Result<Option<Created>, Detail> {
        match self {
            PendingCreation::Dup { contributions, .. } => {
                let contribution =
                    Contribution::all(contributions).next().flatten().ok_or(Detail::BadCreation)?;
                Ok(Some(same_members(parent, DUP_NAMER, contribution.number)))
            }
            PendingCreation::Split { contributions, mine, .. } => split_group(parent, contributions, *mine),
            PendingCreation::Group { ranks, number } => {
                let &namer = ranks.first().ok_or(Detail::BadCreation)?;
                members_at(parent, ranks.to_vec(), namer, number.ok_or(Detail::BadCreation)?).map(Some)
            }
            // Its members are not those of one parent.
            PendingCreation::Inter { .. } => Err(Detail::BadCreation),
            PendingCreation::NoContribution(why) => Err(*why),
        }
    }
}

/// The rank that allocates the identity of a duplicate.
pub(crate) const DUP_NAMER: Rank = Rank(0);

fn same_members(parent: &Communicator, namer: Rank, number: u32) -> Created {
    let creator = parent.peer(namer).expect("a communicator has the ranks below its size");
    let communicator = Communicator { identity: Identity { creator, number }, ..parent.clone() };
    Created { communicator, ranks: None }
}

/// The communicator of the members with the color of `mine`, ordered by key and then by rank in the parent. Its creator is the member
/// with the lowest rank in the parent, which all members find in the contributions.
fn split_group(
    parent: &Communicator,
    contributions: &Arc<Buffer>,
    mine: Contribution,
) -> Result<Option<Created>, Detail> {
    let Some(color) = mine.color else { return Ok(None) };
    let mut members = Vec::new();
    members.try_reserve_exact(parent.size() as usize).map_err(|_| Detail::NoMemory)?;
    for (rank, contribution) in (0u32..).zip(Contribution::all(contributions)) {
        let contribution = contribution.ok_or(Detail::BadCreation)?;
        if contribution.color == Some(color) {
            members.push((contribution.key, Rank(rank), contribution.number));
        }
    }
    let &(_, namer, number) = members.first().ok_or(Detail::BadCreation)?;
    members.sort_unstable();
    let ranks: Vec<Rank> = members.iter().map(|&(_, rank, _)| rank).collect();
    members_at(parent, ranks, namer, number).map(Some)
}

/// The communicator of the members of `parent` with these ranks, in this order; this process is one of them.
fn members_at(parent: &Communicator, ranks: Vec<Rank>, namer: Rank, number: u32) -> Result<Created, Detail> {
    if ranks.len() == parent.size() as usize && ranks.is_sorted() {
        return Ok(same_members(parent, namer, number));
    }
    let creator = parent.peer(namer).ok_or(Detail::BadCreation)?;
    let group = Arc::new(parent.group.include(&ranks).map_err(|_| Detail::BadCreation)?);
    let rank = ranks.iter().position(|rank| *rank == parent.rank).ok_or(Detail::BadCreation)?;
    let communicator =
        Communicator { identity: Identity { creator, number }, rank: Rank(rank as u32), group, remote: None };
    Ok(Created { communicator, ranks: Some(ranks) })
}

impl Contribution {
    const BYTES: usize = 16;

    /// The number of a member without a color. It is not 0, since 0 means that no contribution has arrived; no identity of a created
    /// communicator has this number.
    pub const NO_NUMBER: u32 = IdentityAllocator::FIRST - 1;

    /// Writes the contribution of `rank`.
    fn write(self, into: &Arc<Buffer>, rank: Rank) {
        let mut out = [0; Contribution::BYTES];
        let mut writer = Writer::new(&mut out);
        writer.u32(u32::from(self.color.is_some()));
        writer.u32(self.color.unwrap_or(0));
        writer.u32(self.key as u32);
        writer.u32(self.number);
        UserMemory::of_buffer(into).write(rank.index() * Contribution::BYTES, &out);
    }

    /// The contribution of each member; `None`: no correct member writes such bytes.
    fn all(contributions: &Arc<Buffer>) -> impl Iterator<Item = Option<Contribution>> + use<> {
        let memory = UserMemory::of_buffer(contributions);
        (0..contributions.len() / Contribution::BYTES).map(move |at| {
            let mut bytes = [0; Contribution::BYTES];
            memory.read(at * Contribution::BYTES, &mut bytes);
            Contribution::read(&mut Reader::new(&bytes))
        })
    }

    fn read(from: &mut Reader<'_>) -> Option<Contribution> {
        let (has_color, color) = (from.u32()?, from.u32()?);
        let (key, number) = (from.u32()? as i32, from.u32()?);
        let color = match has_color {
            0 => None,
            1 => Some(color),
            _ => return None,
        };
        Some(Contribution { color, key, number })
    }
}

#[cfg(test)]
mod tests {
    use super::{Contribution, PendingCreation};
    use crate::{Detail, Hints};
    use mend_base::{Identity, Job, Peer, Rank};
    use mend_comm::{Communicator, Group};
    use mend_transport::UserMemory;

    use std::sync::Arc;

    fn peer(number: u32) -> Peer {
        Peer::new(Job(1), number)
    }

    fn parent(rank: u32, size: u32) -> Communicator {
        let group = Arc::new(Group::consecutive(peer(0), size));
        Communicator {
            identity: Identity { creator: peer(0), number: 0 },
            rank: Rank(rank),
            group,
            remote: None,
        }
    }

    /// The result of a split with these contributions at `rank`.
    fn split(contributions: &[Contribution], rank: usize) -> Result<Option<super::Created>, Detail> {
        let parent = parent(rank as u32, contributions.len() as u32);
        let (creation, _) = PendingCreation::split(&parent, contributions[rank], Hints::default()).unwrap();
        let PendingCreation::Split { contributions: all, .. } = &creation else { unreachable!() };
        for (rank, contribution) in (0..).map(Rank).zip(contributions) {
            contribution.write(all, rank);
        }
        creation.finish(&parent)
    }

    fn contribution(color: Option<u32>, key: i32, number: u32) -> Contribution {
        Contribution { color, key, number }
    }

    #[test]
    fn members_are_ordered_by_key_and_named_by_the_lowest_parent_rank() {
        let contributions = [
            contribution(Some(5), 9, 10),
            contribution(None, 0, 11),
            contribution(Some(5), -1, 12),
            contribution(Some(6), 0, 13),
            contribution(Some(5), 9, 14),
        ];
        for (rank, new_rank) in [(0, 1), (2, 0), (4, 2)] {
            let created = split(&contributions, rank).unwrap().unwrap();
            assert_eq!(created.communicator.rank, Rank(new_rank));
            assert_eq!(created.communicator.identity, Identity { creator: peer(0), number: 10 });
            assert_eq!(created.communicator.group.iter().collect::<Vec<_>>(), [peer(2), peer(0), peer(4)]);
        }
        assert!(split(&contributions, 1).unwrap().is_none());
        assert_eq!(split(&contributions, 3).unwrap().unwrap().communicator.size(), 1);
    }

    #[test]
    fn a_split_that_keeps_everybody_in_order_shares_the_parents_tables() {
        let created = split(&[contribution(Some(1), 0, 3), contribution(Some(1), 0, 4)], 1).unwrap().unwrap();
        assert!(created.ranks.is_none());
        assert_eq!(created.communicator.identity.number, 3);
    }

    #[test]
    fn a_member_of_a_group_contributes_its_rank_and_others_no_color() {
        let parent = parent(2, 4);
        let group = Group::new([peer(3), peer(2)]).unwrap();
        assert_eq!(
            PendingCreation::contribution_of_member(&parent, &group),
            Ok(contribution(Some(3), 1, Contribution::NO_NUMBER))
        );
        let others = Group::new([peer(3)]).unwrap();
        assert_eq!(
            PendingCreation::contribution_of_member(&parent, &others),
            Ok(contribution(None, 0, Contribution::NO_NUMBER))
        );
        let outsider = Group::new([peer(9)]).unwrap();
        assert_eq!(
            PendingCreation::contribution_of_member(&parent, &outsider),
            Err(Detail::NotInCommunicator)
        );
    }

    #[test]
    fn bytes_that_no_correct_member_writes_end_the_creation() {
        let parent = parent(0, 2);
        let (creation, _) =
            PendingCreation::split(&parent, contribution(Some(0), 0, 0), Hints::default()).unwrap();
        let PendingCreation::Split { contributions, .. } = &creation else { unreachable!() };
        UserMemory::of_buffer(contributions).write(0, &[7]);
        assert_eq!(creation.finish(&parent).unwrap_err(), Detail::BadCreation);
    }
}
