// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Communicators are created while members die. Creation may succeed at some members and fail at others. A program either
//! agrees with all members before it uses the communicator, or uses it without agreement; then its operations end at the
//! latest when the other members finalize.

use super::Participant;
use crate::oracle::{assert_content, assert_status, content, overwrite, poisoned};
use crate::process::SimOperation;
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_mpi::{CommKey, Detail, Error};
use mend_transport::Buffer;
use std::sync::Arc;

const TAG: Tag = Tag(4);

/// A send and a receive on a communicator that some members may not have.
pub(super) struct Unfinished {
    comm: CommKey,
    id: u64,
    /// The members of the communicator, as ranks of WORLD.
    members: Vec<Rank>,
    next: Rank,
    sent: SimOperation,
    data: Arc<Buffer>,
    received: SimOperation,
    buffer: Arc<Buffer>,
}

impl Participant {
    /// Creates the communicator of the survivors; the victims get one of their own, which they free.
    pub(super) async fn create_survivors_comm(&mut self) {
        self.process.at("deaths: create the communicator of the survivors", 0);
        let color = u32::from(self.is_victim(self.me()));
        let made = self.process.mpi.split(self.world, Some(color), 0).await;
        let made = self.check_creation(0, made);
        if self.process.agree(0, made.is_ok()).await {
            self.survivors = made.expect("all members have agreed that it exists");
            return self.free_victims_half();
        }
        self.free_if_created(made);
    }

    /// A communicator can be freed whichever of its members are dead (Trap 11).
    fn free_victims_half(&mut self) {
        if self.is_victim(self.me())
            && let Some(half) = self.survivors.take()
        {
            self.process.mpi.free(half).expect("the communicator exists");
        }
    }

    /// Creates a communicator, and uses it if every member has it.
    pub(super) async fn create_agreed(&mut self, phase: u64) {
        self.process.at("deaths: create with agreement", phase);
        let made = self.create(phase).await;
        if !self.process.agree(phase, made.is_ok()).await {
            return self.free_if_created(made);
        }
        let Some(comm) = made.expect("all members have agreed that it exists") else { return };
        let number = phase * 100 + 99;
        let _either = self.barrier(number, comm).await;
        let begun = self.begin(comm, phase);
        self.finish(begun, false).await;
        if self.chance(2) {
            self.acknowledge(comm);
        }
        self.process.mpi.free(comm).expect("the communicator exists");
    }

    /// Creates a communicator, and uses it even if other members do not have it: operations on it end when those finalize.
    pub(super) async fn create_unagreed(&mut self, phase: u64) {
        self.process.at("deaths: create without agreement", phase);
        if let Ok(Some(comm)) = self.create(phase).await {
            let begun = self.begin(comm, phase);
            self.unfinished.push(begun);
        }
    }

    pub(super) async fn end_unfinished(&mut self) {
        for begun in std::mem::take(&mut self.unfinished) {
            let comm = begun.comm;
            self.finish(begun, true).await;
            if self.chance(2) {
                self.process.mpi.free(comm).expect("the communicator exists");
            }
        }
    }

    async fn create(&mut self, phase: u64) -> Result<Option<CommKey>, Error> {
        let size = self.process.size;
        let (which, step) = {
            let mut shared_random = self.process.shared_random.borrow_mut();
            (shared_random.below(5), 1 + shared_random.below(3) as u32)
        };
        let mpi = self.process.mpi.clone();
        let parts = (0..size).rev().step_by(step as usize).map(Rank).collect();
        let concerned: Vec<Rank> = if which < 3 { (0..size).map(Rank).collect() } else { parts };
        let failed = self.failed(self.world);
        let known = concerned.iter().copied().find(|rank| failed.contains(rank));
        if !concerned.contains(&self.me()) {
            return Ok(None);
        }
        if let Some(known) = known
            && self.chance(2)
        {
            // this member has left for recovery, and nobody waits for it.
            return Err(Error::of(Detail::ProcFailed(known)));
        }
        let group = mpi.engine().communicator(self.world).expect("the communicator exists").group.clone();
        let made = match which {
            0 => mpi.dup(self.world).await,
            1 => mpi.split(self.world, Some(self.me().0 % 2), -(self.me().0 as i32)).await,
            2 => {
                let ranks: Vec<Rank> = (0..size).step_by(2).map(Rank).collect();
                mpi.create(self.world, &group.include(&ranks).expect("ranks of WORLD")).await
            }
            _ => mpi.create_group(self.world, &group.include(&concerned).expect("ranks of WORLD"), TAG).await,
        };
        assert!(
            known.is_none() || made.is_err(),
            "Row CO4: the creation began after a failure was known, and succeeded"
        );
        self.check_creation(phase, made)
    }

    /// Asserts that an error of a creation is explained by a failure, and that its result is the same at all members.
    fn check_creation(
        &mut self,
        number: u64,
        made: Result<Option<CommKey>, Error>,
    ) -> Result<Option<CommKey>, Error> {
        self.process.assert_creation_is_uniform(self.world, number, made.is_ok());
        if let Err(error) = made {
            self.assert_explained(self.world, error);
        }
        made
    }

    fn free_if_created(&mut self, made: Result<Option<CommKey>, Error>) {
        if let Ok(Some(comm)) = made {
            self.process.mpi.free(comm).expect("the communicator exists");
        }
    }

    /// Starts a send to the next member and a receive from the previous one, which may not have the communicator.
    fn begin(&mut self, comm: CommKey, phase: u64) -> Unfinished {
        let mpi = self.process.mpi.clone();
        let (rank, size) = (mpi.rank(comm).expect("a member").0, mpi.size(comm).expect("a member"));
        let (next, before) = (Rank((rank + 1) % size), Rank((rank + size - 1) % size));
        let bytes = length(phase);
        let data = Buffer::from_bytes(&content(phase, bytes));
        let buffer = poisoned(bytes);
        let sent =
            if self.chance(2) { mpi.ssend(comm, next, TAG, &data) } else { mpi.send(comm, next, TAG, &data) };
        let received = mpi.receive(comm, Source::Rank(before), TagSelector::Tag(TAG), &buffer);
        Unfinished { comm, id: phase, members: self.members(comm), next, sent, data, received, buffer }
    }

    async fn finish(&mut self, begun: Unfinished, may_have_left: bool) {
        let Unfinished { comm, id, members, next, sent, data, received, buffer } = begun;
        self.process.at("deaths: receive on a new communicator", 0);
        let size = members.len() as u32;
        let before = Rank((next.0 + 2 * size - 2) % size);
        match received.await {
            Ok(status) => {
                assert_status(status, before, TAG, buffer.len());
                assert_content(&buffer, id, buffer.len());
            }
            Err(error) => self.check_error(comm, before, error, may_have_left),
        }
        self.process.ended_buffers.borrow_mut().add(&buffer);
        self.process.at("deaths: send on a new communicator", 0);
        if let Err(error) = sent.await {
            self.check_error(comm, next, error, may_have_left);
        }
        overwrite(&data);
    }

    /// Asserts that the error of an operation with `rank` is explained. The agreement does not ask a process whose death has begun:
    /// this one may lack the communicator, and says so while its engine still runs.
    fn check_error(&mut self, comm: CommKey, rank: Rank, error: Error, may_have_left: bool) {
        let dies = self.process.death_has_begun(self.members(comm)[rank.index()]);
        match error.detail {
            Detail::PeerLeft(left) | Detail::PeerFreed(left) if may_have_left => assert_eq!(left, rank),
            Detail::NotCreated(left) if may_have_left || dies => assert_eq!(left, rank),
            Detail::PeerFreed(left) if dies => assert_eq!(left, rank),
            _ => assert_eq!(self.assert_explained(comm, error), rank),
        }
    }
}

fn length(phase: u64) -> usize {
    [0, 10, 5_000][phase as usize % 3]
}
