// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Communicators are made while members die. Making one may succeed here and fail there: programs ask all others before
//! they rely on it, and those that do not find out at the latest when the others leave.

use super::Survivor;
use super::named::Started;
use crate::oracle::{content, holds, poisoned, recycle, says};
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_mpi::{CommKey, Detail, Error};
use mend_transport::Buffer;
use std::sync::Arc;

const TAG: Tag = Tag(4);

/// What was begun on a communicator that perhaps not all members have.
pub(super) struct Unfinished {
    comm: CommKey,
    id: u64,
    /// The members, in WORLD.
    members: Vec<Rank>,
    next: Rank,
    sent: Started,
    data: Arc<Buffer>,
    received: Started,
    room: Arc<Buffer>,
}

impl Survivor {
    /// The communicator of those who will not die.
    pub(super) async fn make_safe(&mut self) {
        self.process.at("deaths: make the safe half", 0);
        let color = u32::from(self.is_mortal(self.me()));
        let made = self.process.mpi.split(self.world, Some(color), 0).await;
        let made = self.made(made);
        if self.process.agree(0, made.is_ok()).await {
            self.safe = made.expect("all have agreed that it stands");
            return self.drop_half_of_mortals();
        }
        self.free_half_born(made);
    }

    /// Its members may free it whoever of it is dead (Trap 11).
    fn drop_half_of_mortals(&mut self) {
        if self.is_mortal(self.me())
            && let Some(half) = self.safe.take()
        {
            self.process.mpi.free(half).expect("it stands");
        }
    }

    /// One that is used if everybody has it.
    pub(super) async fn make(&mut self, phase: u64) {
        self.process.at("deaths: make", phase);
        let made = self.create().await;
        if !self.process.agree(phase, made.is_ok()).await {
            return self.free_half_born(made);
        }
        let Some(comm) = made.expect("all have agreed that it stands") else { return };
        let number = phase * 100 + 99;
        let _either = self.barrier(number, comm).await;
        let begun = self.begin(comm, phase);
        self.finish(begun, false).await;
        if self.chance(2) {
            self.acknowledge(comm);
        }
        self.process.mpi.free(comm).expect("it stands");
    }

    /// One that is used by whoever has it: what is begun on it ends when the others leave.
    pub(super) async fn make_alone(&mut self, phase: u64) {
        self.process.at("deaths: make alone", phase);
        if let Ok(Some(comm)) = self.create().await {
            let begun = self.begin(comm, phase);
            self.unfinished.push(begun);
        }
    }

    pub(super) async fn end_unfinished(&mut self) {
        for begun in std::mem::take(&mut self.unfinished) {
            let comm = begun.comm;
            self.finish(begun, true).await;
            if self.chance(2) {
                self.process.mpi.free(comm).expect("it stands");
            }
        }
    }

    async fn create(&mut self) -> Result<Option<CommKey>, Error> {
        let doomed = !self.failed(self.world).is_empty();
        let which = self.process.together.borrow_mut().below(3);
        let mpi = self.process.mpi.clone();
        let made = match which {
            0 => mpi.dup(self.world).await,
            1 => mpi.split(self.world, Some(self.me().0 % 2), -(self.me().0 as i32)).await,
            _ => {
                let group = mpi.engine().communicator(self.world).expect("it stands").group.clone();
                let ranks: Vec<Rank> = (0..self.process.size).step_by(2).map(Rank).collect();
                mpi.create(self.world, &group.include(&ranks).expect("ranks of WORLD")).await
            }
        };
        assert!(!doomed || made.is_err(), "Row CO4: it began with a known failure");
        self.made(made)
    }

    fn made(&mut self, made: Result<Option<CommKey>, Error>) -> Result<Option<CommKey>, Error> {
        if let Err(error) = made {
            self.explained(self.world, error);
        }
        made
    }

    fn free_half_born(&mut self, made: Result<Option<CommKey>, Error>) {
        if let Ok(Some(comm)) = made {
            self.process.mpi.free(comm).expect("it stands");
        }
    }

    /// A message around the communicator; the one before may be on its way for ever.
    fn begin(&mut self, comm: CommKey, phase: u64) -> Unfinished {
        let mpi = self.process.mpi.clone();
        let (rank, size) = (mpi.rank(comm).expect("a member").0, mpi.size(comm).expect("a member"));
        let (next, before) = (Rank((rank + 1) % size), Rank((rank + size - 1) % size));
        let bytes = length(phase);
        let data = Buffer::from_bytes(&content(phase, bytes));
        let room = poisoned(bytes);
        let sent =
            if self.chance(2) { mpi.ssend(comm, next, TAG, &data) } else { mpi.send(comm, next, TAG, &data) };
        let received = mpi.receive(comm, Source::Rank(before), TagSelector::Tag(TAG), &room);
        Unfinished { comm, id: phase, members: self.members(comm), next, sent, data, received, room }
    }

    async fn finish(&mut self, begun: Unfinished, may_have_left: bool) {
        let Unfinished { comm, id, members, next, sent, data, received, room } = begun;
        self.process.at("deaths: receive on what was made", 0);
        let size = members.len() as u32;
        let before = Rank((next.0 + 2 * size - 2) % size);
        match received.await {
            Ok(status) => {
                says(status, before, TAG, room.len());
                holds(&room, id, room.len());
            }
            Err(error) => self.ended(comm, before, error, may_have_left),
        }
        self.process.silence.borrow_mut().watch(&room);
        self.process.at("deaths: send on what was made", 0);
        if let Err(error) = sent.await {
            self.ended(comm, next, error, may_have_left);
        }
        recycle(&data);
    }

    fn ended(&mut self, comm: CommKey, rank: Rank, error: Error, may_have_left: bool) {
        match error.detail {
            Detail::PeerLeft(left) | Detail::PeerFreed(left) if may_have_left => assert_eq!(left, rank),
            _ => assert_eq!(self.explained(comm, error), rank),
        }
    }
}

fn length(phase: u64) -> usize {
    [0, 10, 5_000][phase as usize % 3]
}
