// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Communicators are created in every way while allocations fail at random and ranks die. Each creation has one result at all survivors
//! (Row CC1). After each the members agree whether it succeeded: an agreement never lacks memory to begin, so nobody waits for ever. If it
//! did not, they shrink. A member that has no memory for the communicator of the survivors kills itself.

use crate::Process;
use mend_base::{Rank, Tag};
use mend_mpi::{CommKey, Detail, Error};
use mend_transport::{Buffer, Cause};
use std::sync::Arc;

const TAG: Tag = Tag(8);

/// So many creations are numbered in a round.
const CREATIONS_MAX: u64 = 4;

/// One rank of a job.
struct Member {
    process: Process,
    comm: CommKey,
    /// Communicators that stay, so that tables grow.
    kept: Vec<CommKey>,
}

/// All survivors draw the same rounds.
pub async fn run(process: Process) {
    process.ready();
    let comm = process.mpi.engine().comm_world();
    let rounds = 2 + process.shared_random.borrow_mut().below(8);
    let mut member = Member { process, comm, kept: Vec::new() };
    for round in 0..rounds {
        let (kind, keeps, agrees_on_failed) = {
            let mut shared_random = member.process.shared_random.borrow_mut();
            (shared_random.below(5), shared_random.once_in(2), shared_random.once_in(2))
        };
        let made = match kind {
            4 => member.connect(round * CREATIONS_MAX).await,
            kind => member.create(round * CREATIONS_MAX, kind).await,
        };
        let went_well = made.is_ok();
        match made {
            Ok(Some(made)) if keeps => member.kept.push(made),
            Ok(Some(made)) => member.free(made),
            Ok(None) => {}
            Err(error) => member.assert_explained(error),
        }
        if agrees_on_failed {
            member.agree_on_failed(round).await;
        }
        if !member.agree(round, went_well).await {
            member.shrink(round).await;
        }
    }
}

impl Member {
    /// Creates a communicator of some members, or of all.
    async fn create(&self, number: u64, kind: u64) -> Result<Option<CommKey>, Error> {
        let (mpi, comm) = (&self.process.mpi, self.comm);
        let (me, size) = (mpi.rank(comm).expect("a member"), mpi.size(comm).expect("a member"));
        let half: Vec<Rank> = (0..size).step_by(2).map(Rank).collect();
        let group = mpi.engine().communicator(comm).expect("it exists").group.include(&half).expect("ranks");
        let made = match kind {
            0 => {
                self.process.at("no memory: dup", number);
                mpi.dup(comm).await
            }
            1 => {
                self.process.at("no memory: split", number);
                mpi.split(comm, (me.0 % 3 > 0).then_some(me.0 % 2), 0).await
            }
            2 => {
                self.process.at("no memory: create", number);
                mpi.create(comm, &group).await
            }
            _ if !half.contains(&me) => return Ok(None),
            _ => {
                self.process.at("no memory: create_group", number);
                let begun = mpi.engine().lifecycle_check().begun;
                let made = mpi.create_group(comm, &group, TAG).await;
                if made.is_err() && mpi.engine().lifecycle_check().begun == begun {
                    // It has not begun here: the others are not to wait for another call.
                    mpi.revoke(comm).expect("the communicator exists");
                }
                made
            }
        };
        self.process.assert_creation_is_uniform(comm, number, made.is_ok());
        made
    }

    /// Both halves of the members connect by an intercommunicator, and merge.
    async fn connect(&self, number: u64) -> Result<Option<CommKey>, Error> {
        let (mpi, comm) = (&self.process.mpi, self.comm);
        let (me, size) = (mpi.rank(comm).expect("a member"), mpi.size(comm).expect("a member"));
        let side = me.0 % 2;
        self.process.at("no memory: split for groups", number);
        let local = mpi.split(comm, Some(side), 0).await;
        self.process.assert_creation_is_uniform(comm, number, local.is_ok());
        let Some(local) = local? else { return Ok(None) };
        if size == 1 {
            return Ok(Some(local));
        }
        self.process.at("no memory: intercomm_create", number);
        let other = (me.0 < 2).then_some((comm, Rank(1 - side)));
        let inter = mpi.create_inter(local, Rank(0), other, TAG).await;
        self.process.assert_creation_is_uniform(comm, number + 1, inter.is_ok());
        self.free(local);
        let Some(inter) = inter? else { return Ok(None) };
        self.process.at("no memory: merge", number);
        let merged = mpi.merge(inter, side == 0).await;
        self.process.assert_creation_is_uniform(comm, number + 2, merged.is_ok());
        self.free(inter);
        merged
    }

    /// Whether all members went well. It begins without memory.
    async fn agree(&self, round: u64, went_well: bool) -> bool {
        let flag = Buffer::from_bytes(&u32::from(went_well).to_le_bytes());
        self.process.at("no memory: agree", round);
        let operation = self.process.mpi.agree(self.comm, &flag);
        assert_eq!(operation.start_error(), None, "the memory of an agreement is reserved");
        let agreed = operation.await;
        if let Err(error) = agreed {
            self.assert_explained(error);
        }
        agreed.is_ok() && flag.to_vec() == 1u32.to_le_bytes()
    }

    /// The members agree on who has failed. It begins without memory.
    async fn agree_on_failed(&self, round: u64) {
        let into = Arc::default();
        self.process.at("no memory: agree_failed", round);
        let operation = self.process.mpi.agree_failed(self.comm, &into);
        assert_eq!(operation.start_error(), None, "the memory of an agreement is reserved");
        if let Err(error) = operation.await {
            self.assert_explained(error);
        }
    }

    /// The survivors go on with a communicator of their own.
    async fn shrink(&mut self, round: u64) {
        self.process.at("no memory: shrink", round);
        match self.process.mpi.shrink(self.comm).await {
            Ok(made) => {
                let broken = std::mem::replace(&mut self.comm, made.expect("this rank lives"));
                if broken != self.process.mpi.engine().comm_world() {
                    self.free(broken);
                }
            }
            Err(error) => {
                assert_eq!(error.detail, Detail::NoMemory, "Row SH1: a shrink succeeds");
                self.process.die().await;
            }
        }
    }

    fn free(&self, comm: CommKey) {
        self.process.mpi.free(comm).expect("the communicator exists");
    }

    /// Asserts that a death, or lack of memory, explains an error: here, or at another rank, which has given up or left.
    fn assert_explained(&self, error: Error) {
        let explained = match error.detail {
            Detail::NoMemory | Detail::CreationRefused | Detail::ProcFailed(_) | Detail::MemberFailed(_) => {
                true
            }
            Detail::Revoked | Detail::PeerFreed(_) | Detail::PeerLeft(_) | Detail::MemberLeft(_) => true,
            Detail::SomeMemberLeft => true,
            Detail::Unreachable(_, cause) => cause == Cause::NoMemory,
            _ => false,
        };
        assert!(explained, "rank {}: {error} ({:?})", self.process.rank.0, error.detail);
    }
}
