// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two groups connect by an intercommunicator, use it, merge, shrink and part, again and again, while ranks die at any step and one
//! of them sometimes revokes a communicator of the creation.
//!
//! A creation has the same result at all survivors (Row CC1), so all survivors draw the same steps and take them together; the
//! communicator of the next round is a shrink of that of the last one, which always succeeds.

use crate::Process;
use crate::oracle::{assert_content, content, poisoned};
use mend_base::{Peer, Rank, Source, Tag, TagSelector};
use mend_mpi::{CommKey, Detail, Error, ErrorClass};
use mend_transport::{Buffer, UserMemory};

const TAG: Tag = Tag(6);

/// One job.
pub async fn run(process: Process) {
    process.ready();
    let world = process.mpi.engine().comm_world();
    let rounds = 1 + process.shared_random.borrow_mut().below(4);
    let mut all = world;
    for number in 0..rounds {
        process.at("inter: shrink", number);
        let next = process.mpi.shrink(all).await.expect("Row SH1: a shrink succeeds");
        free(&process, (all != world).then_some(all));
        all = next.expect("this rank lives");
        Round::draw(&process, all, number).run().await;
    }
    free(&process, (all != world).then_some(all));
}

fn free(process: &Process, comm: Option<CommKey>) {
    if let Some(comm) = comm {
        process.mpi.free(comm).expect("the communicator exists");
    }
}

/// What a rank revokes while the groups connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Revokes {
    Nothing,
    Local,
    Between,
}

/// One round, as all ranks have drawn it.
struct Round<'a> {
    process: &'a Process,
    number: u64,
    /// The communicator of all who take part, and the peer communicator of the leaders.
    all: CommKey,
    /// Of the group of this rank.
    side: u32,
    /// The leaders, by rank in `all`.
    leaders: [Rank; 2],
    revokes: Revokes,
    /// Who revokes, by rank in `all`.
    revoker: Rank,
    /// The groups say so in a merge.
    high: [bool; 2],
}

/// The flags that the members of each group contribute to an agreement.
const FLAGS: [u32; 2] = [0b110, 0b011];

impl<'a> Round<'a> {
    /// Both groups have members where there are two ranks.
    fn draw(process: &'a Process, all: CommKey, number: u64) -> Self {
        let (me, size) =
            (process.mpi.rank(all).expect("a member").0, process.mpi.size(all).expect("a member"));
        let mut random = process.shared_random.borrow_mut();
        let mut sides: Vec<u32> = (0..size).map(|_| random.below(2) as u32).collect();
        sides[0] = 0;
        sides[size as usize - 1] = u32::from(size > 1);
        let mut leader = |side| {
            let group: Vec<u32> = (0..size).filter(|&rank| sides[rank as usize] == side).collect();
            let at = random.below(group.len().max(1) as u64) as usize;
            Rank(group.get(at).copied().unwrap_or(0))
        };
        let leaders = [leader(0), leader(1)];
        let revokes = match random.below(8) {
            0 => Revokes::Local,
            1 => Revokes::Between,
            _ => Revokes::Nothing,
        };
        let revoker = Rank(random.below(size.into()) as u32);
        let high = [random.once_in(2), random.once_in(2)];
        Round { process, number, all, side: sides[me as usize], leaders, revokes, revoker, high }
    }

    async fn run(self) {
        let mpi = self.process.mpi.clone();
        self.process.at("inter: split", self.number);
        let split = mpi.split(self.all, Some(self.side), 0).await;
        let Ok(Some(local)) = self.checked(1, self.all, split) else { return };
        if mpi.size(self.all) == Some(1) {
            return free(self.process, Some(local));
        }
        let made = self.connect(local).await;
        if let Ok(Some(inter)) = made {
            self.use_it(inter).await;
            free(self.process, Some(inter));
        }
        if made.is_ok() {
            free(self.process, Some(local));
        }
    }

    /// MPI_Intercomm_create. Whoever gets an error frees its local communicator at once, while others still vote.
    async fn connect(&self, local: CommKey) -> Result<Option<CommKey>, Error> {
        let mpi = &self.process.mpi;
        let leader_in_all = self.leaders[self.side as usize];
        let leader = {
            let engine = mpi.engine();
            let (all, group) = (engine.communicator(self.all), engine.communicator(local));
            let leader = all.and_then(|all| all.peer(leader_in_all)).expect("a member");
            group.and_then(|group| group.group.rank_of(leader)).expect("the leader is of this group")
        };
        let is_leader = mpi.rank(local) == Some(leader);
        if mpi.rank(self.all) == Some(self.revoker) {
            match self.revokes {
                Revokes::Local => mpi.revoke(local).expect("the communicator exists"),
                Revokes::Between => mpi.revoke(self.all).expect("the communicator exists"),
                Revokes::Nothing => {}
            }
        }
        self.process.pause().await;
        let left =
            !is_leader && !mpi.failed(local).expect("it exists").is_empty() && self.process.below(2) == 0;
        self.process.at("inter: create", self.number);
        let made = match left {
            // this member has left for recovery, and nobody waits for it.
            true => Err(Error::of(Detail::ProcFailed(mpi.failed(local).expect("it exists")[0]))),
            false => {
                let other = is_leader.then_some((self.all, self.leaders[1 - self.side as usize]));
                mpi.create_inter(local, leader, other, TAG).await
            }
        };
        let made = self.checked(2, local, made);
        let is_revoked = mpi.engine().is_revoked(local).expect("it exists");
        assert!(!is_revoked || self.revokes == Revokes::Local, "nobody has revoked the local communicator");
        if made.is_err() {
            free(self.process, Some(local));
        }
        made
    }

    async fn use_it(&self, inter: CommKey) {
        self.process.at("inter: messages", self.number);
        self.messages(inter).await;
        self.process.at("inter: agree", self.number);
        self.agree(inter).await;
        self.process.at("inter: merge", self.number);
        let merged = self.process.mpi.merge(inter, self.high[self.side as usize]).await;
        if let Ok(Some(merged)) = self.checked(3, inter, merged) {
            self.assert_merged(inter, merged);
            if let Err(error) = self.process.mpi.barrier(merged).await {
                self.assert_explained(merged, error);
            }
            free(self.process, Some(merged));
        }
        self.process.at("inter: shrink it", self.number);
        let shrunk = self.process.mpi.shrink(inter).await.expect("Row SH1: a shrink succeeds");
        if let Some(shrunk) = shrunk {
            self.assert_shrunk(inter, shrunk);
            self.messages(shrunk).await;
        }
        free(self.process, shrunk);
    }

    /// Each process sends to each of the other group.
    async fn messages(&self, inter: CommKey) {
        let mpi = &self.process.mpi;
        let partners = mpi.engine().communicator(inter).expect("it exists").partners().size();
        let id = |from: u32, to: u32| self.number * 10_000 + u64::from(from * 100 + to);
        let me = mpi.rank(inter).expect("a member").0;
        let length = [4, 3_000][self.number as usize % 2];
        let mut begun = Vec::new();
        for other in 0..partners {
            let buffer = poisoned(length);
            let tag = TagSelector::Tag(TAG);
            let received = mpi.receive(inter, Source::Rank(Rank(other)), tag, &buffer);
            // The low group's first rank in WORLD tells the directions apart.
            let data = Buffer::from_bytes(&content(id(me, other) + u64::from(self.side) * 1_000_000, length));
            begun.push((other, buffer, received, mpi.send(inter, Rank(other), TAG, &data)));
        }
        for (other, buffer, received, sent) in begun {
            match received.await {
                Ok(status) => {
                    assert_eq!(status.source, Some(Rank(other)));
                    assert_content(&buffer, id(other, me) + u64::from(1 - self.side) * 1_000_000, length);
                }
                Err(error) => self.assert_partner_failed(inter, Rank(other), error),
            }
            if let Err(error) = sent.await {
                self.assert_partner_failed(inter, Rank(other), error);
            }
        }
    }

    /// Row AG9
    async fn agree(&self, inter: CommKey) {
        let flag = Buffer::from_bytes(&FLAGS[self.side as usize].to_le_bytes());
        let agreed = self.process.mpi.agree(inter, &flag).await;
        let mut bytes = [0; 4];
        UserMemory::of_buffer(&flag).read(0, &mut bytes);
        let (got, theirs) = (u32::from_le_bytes(bytes), FLAGS[1 - self.side as usize]);
        assert!(got == theirs || got == u32::MAX, "Row AG9: {got:#b}");
        if !self.process.death_has_begun(self.process.rank) {
            let all_agree = self.process.agree(self.number, agreed.is_ok()).await;
            assert_eq!(all_agree, agreed.is_ok(), "Row AG9: the error is the same in both groups");
        }
        if let Err(error) = agreed {
            self.assert_explained(inter, error);
        }
    }

    fn assert_merged(&self, inter: CommKey, merged: CommKey) {
        let engine = self.process.mpi.engine();
        let (inter, merged) = (engine.communicator(inter), engine.communicator(merged));
        let (inter, merged) = (inter.expect("it exists"), merged.expect("it exists"));
        assert!(!merged.is_inter() && merged.size() == inter.everyone().size());
        let [mine, theirs] = [self.side, 1 - self.side].map(|side| self.high[side as usize]);
        let is_before = if mine == theirs { inter.rank_in_union() == inter.rank } else { theirs };
        let before = if is_before { 0 } else { inter.partners().size() };
        assert_eq!(merged.rank, Rank(before + inter.rank.0), "MPI-5.0 §7.6.2");
    }

    /// Row SH10
    fn assert_shrunk(&self, inter: CommKey, shrunk: CommKey) {
        let engine = self.process.mpi.engine();
        let (inter, shrunk) = (engine.communicator(inter), engine.communicator(shrunk));
        let (inter, shrunk) = (inter.expect("it exists"), shrunk.expect("it exists"));
        for (before, after) in [(&inter.group, &shrunk.group), (inter.partners(), shrunk.partners())] {
            let kept: Vec<Peer> = before.iter().filter(|&peer| after.rank_of(peer).is_some()).collect();
            assert!(after.iter().eq(kept), "the order of both groups");
            let lost = before.iter().filter(|&peer| after.rank_of(peer).is_none());
            lost.for_each(|peer| assert!(self.process.death_has_begun(Rank(peer.number()))));
        }
    }

    /// Asserts that the result of a creation is the same at all survivors, and that its error is explained.
    fn checked(
        &self,
        step: u64,
        over: CommKey,
        made: Result<Option<CommKey>, Error>,
    ) -> Result<Option<CommKey>, Error> {
        let world = self.process.mpi.engine().comm_world();
        self.process.assert_creation_is_uniform(world, self.number * 10 + step, made.is_ok());
        if let Err(error) = made {
            self.assert_explained(over, error);
        }
        made
    }

    fn assert_explained(&self, over: CommKey, error: Error) {
        // Whoever has heard of the revocation may have left before the others hear of it.
        let refused = matches!(
            error.detail,
            Detail::CreationRefused | Detail::MemberLeft(_) | Detail::PeerLeft(_) | Detail::PeerFreed(_)
        );
        if self.revokes != Revokes::Nothing && (error.class == ErrorClass::Revoked || refused) {
            return;
        }
        let engine = self.process.mpi.engine();
        let communicator = engine.communicator(over).expect("the communicator exists");
        let failed = match error.detail {
            Detail::ProcFailed(rank) => communicator.partners().peer(rank).expect("a member"),
            Detail::MemberFailed(peer) => peer,
            _ => panic!("{error}, where only a failure may end the operation"),
        };
        assert!(self.process.death_has_begun(Rank(failed.number())), "{error}, and it lives");
        let is_published = engine.ends().failed().iter().any(|peer| peer.0 == failed.number());
        assert!(is_published, "Row AK3: {error}, before it is in the list of failures");
    }

    /// The ranks of an intercommunicator are those of the remote group.
    fn assert_partner_failed(&self, inter: CommKey, partner: Rank, error: Error) {
        let world = {
            let engine = self.process.mpi.engine();
            let peer = engine.communicator(inter).and_then(|inter| inter.partners().peer(partner));
            Rank(peer.expect("a member").number())
        };
        // A dying process may have given the communicator up before others learn of its death.
        let gave_up = [Detail::NotCreated(partner), Detail::PeerFreed(partner)].contains(&error.detail);
        if gave_up && self.process.death_has_begun(world) {
            return;
        }
        assert_eq!(error.detail, Detail::ProcFailed(partner));
        self.assert_explained(inter, error);
        let failed = self.process.mpi.failed(inter).expect("it exists");
        let engine = self.process.mpi.engine();
        let communicator = engine.communicator(inter).expect("it exists");
        let peer = communicator.partners().peer(partner);
        let listed = failed.iter().any(|&rank| communicator.everyone().peer(rank) == peer);
        assert!(listed, "Row AK9: {error}, and not in the list of failures");
    }
}
