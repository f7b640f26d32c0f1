// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The steps of a round. A step that succeeds has right results (Row CO3); after one that fails the member revokes.

use super::Survivor;
use crate::history::{Creation, Step, Use, WaitMode};
use crate::oracle::{assert_content, assert_status, content, overwrite, poisoned};
use crate::process::SimOperation;
use crate::programs::collectives;
use mend_base::{Random, Rank, Source, Tag, TagSelector};
use mend_mpi::{CommKey, Detail, Error, ErrorRange, Uniform};
use mend_transport::Buffer;

/// The last 16 bits of the number of a step.
const STEPS_MAX: u64 = 1 << 16;

impl Survivor {
    /// The steps, until one fails. Returns whether all went well.
    pub(super) async fn work(&mut self, steps: &[Step]) -> bool {
        for (at, &step) in (0u64..).zip(steps) {
            let number = self.round * STEPS_MAX + at;
            let result = self.step(step, number).await;
            if self.process.below(4) == 0 {
                self.process.pause().await;
            }
            if let Err(failure) = result {
                self.give_up(failure);
                return false;
            }
        }
        true
    }

    /// A step has failed: revokes all that this member uses.
    fn give_up(&mut self, failure: Failure) {
        if let Failure::Of(comm, error) = failure {
            self.assert_explained(comm, error);
        }
        for child in std::mem::take(&mut self.children) {
            self.revoke(child);
            self.free(child);
        }
        self.revoke(self.comm);
    }

    async fn step(&mut self, step: Step, number: u64) -> Result<(), Failure> {
        let comm = self.comm;
        let result = match step {
            Step::Allreduce(elements) => self.allreduce(comm, number, elements).await,
            Step::Collective(seed) => self.collective(comm, number, seed).await,
            Step::Exactly(which) => self.exactly(comm, number, which).await,
            Step::Chain(bytes) => self.chain(comm, number, bytes).await,
            Step::Wait(mode) => self.wait_for_neighbours(comm, number, mode).await,
            Step::Ring(bytes) => self.ring(comm, number, bytes).await,
            Step::Ssend(bytes) => self.ssend(comm, number, bytes).await,
            Step::AnySource(root) => self.any_source(comm, number, root, false).await,
            Step::Probe(root) => self.any_source(comm, number, root, true).await,
            Step::Create(creation, used) => return self.create_and_use(number, creation, used).await,
        };
        result.map_err(|error| Failure::Of(comm, error))
    }

    async fn allreduce(&mut self, comm: CommKey, number: u64, elements: u32) -> Result<(), Error> {
        let view = self.view(comm, number);
        let started = collectives::start_allreduce(&view, comm, (number % 1_000) as i32, elements as usize);
        self.finish_collective(started).await
    }

    async fn collective(&mut self, comm: CommKey, number: u64, seed: u64) -> Result<(), Error> {
        let view = self.view(comm, number ^ seed);
        let started = collectives::start(&view, comm, (number % 1_000) as i32);
        self.finish_collective(started).await
    }

    async fn exactly(&mut self, comm: CommKey, number: u64, which: u32) -> Result<(), Error> {
        let view = self.view(comm, number);
        let started = collectives::start_one(&view, comm, (number % 1_000) as i32, which.into());
        self.finish_collective(started).await
    }

    /// The first rank sends to the next, and so on.
    async fn chain(&mut self, comm: CommKey, number: u64, bytes: u32) -> Result<(), Error> {
        let (rank, size) = (self.rank(comm).0, self.size(comm));
        let (tag, bytes) = (tag(number), bytes as usize);
        let mpi = self.process.mpi.clone();
        let buffer = poisoned(bytes);
        if rank > 0 {
            let before = Rank(rank - 1);
            self.call("MPI_Recv");
            let (source, tags) = (Source::Rank(before), TagSelector::Tag(tag));
            let received = mpi.blocking_receive(comm, source, tags, &buffer).await;
            self.process.ended_buffers.borrow_mut().add(&buffer);
            assert_status(received?, before, tag, bytes);
            assert_content(&buffer, id(number, 0), bytes);
        }
        if rank + 1 < size {
            let data = if rank == 0 { Buffer::from_bytes(&content(id(number, 0), bytes)) } else { buffer };
            self.call("MPI_Send");
            mpi.send(comm, Rank(rank + 1), tag, &data).await?;
        }
        Ok(())
    }

    async fn wait_for_neighbours(&mut self, comm: CommKey, number: u64, mode: WaitMode) -> Result<(), Error> {
        let (rank, size) = (self.rank(comm).0, self.size(comm));
        let (next, before) = (Rank((rank + 1) % size), Rank((rank + size - 1) % size));
        let (tag, mpi) = (tag(number), self.process.mpi.clone());
        let data = Buffer::from_bytes(&content(id(number, rank), 900));
        let buffers = [poisoned(900), poisoned(900)];
        self.call("MPI_Irecv");
        let receive = |from, buffer| mpi.receive(comm, Source::Rank(from), TagSelector::Tag(tag), buffer);
        let mut all = vec![receive(before, &buffers[0]), receive(next, &buffers[1])];
        self.call("MPI_Isend");
        all.extend([mpi.send(comm, next, tag, &data), mpi.send(comm, before, tag, &data)]);
        let result = self.wait_for_all(&mut all, mode).await;
        if result.is_err() {
            self.revoke(comm);
            for each in all.into_iter().filter(|each| !each.is_null()) {
                self.call("MPI_Wait");
                _ = each.await;
            }
        }
        buffers.iter().for_each(|buffer| self.process.ended_buffers.borrow_mut().add(buffer));
        result?;
        // With two ranks, both messages are from the same one.
        assert_content(&buffers[0], id(number, before.0), 900);
        assert_content(&buffers[1], id(number, next.0), 900);
        Ok(())
    }

    /// Ends when all have succeeded or one has failed.
    async fn wait_for_all(&mut self, all: &mut [SimOperation], mode: WaitMode) -> Result<(), Error> {
        let (name, engine_mode) = match mode {
            WaitMode::All => ("MPI_Waitall", mend_mpi::WaitMode::All),
            WaitMode::Any => ("MPI_Waitany", mend_mpi::WaitMode::Any),
            WaitMode::Some => ("MPI_Waitsome", mend_mpi::WaitMode::Some),
        };
        while all.iter().any(|each| !each.is_null()) {
            self.call(name);
            let report = self.process.mpi.wait_for(engine_mode, all).await;
            let completed = report.result?;
            if let Some((_, error)) = completed.first_error {
                return Err(error);
            }
        }
        Ok(())
    }

    async fn finish_collective(&mut self, started: collectives::CheckedOperation) -> Result<(), Error> {
        let collectives::CheckedOperation { operation, expected, name, .. } = started;
        self.call(name);
        let result = operation.await;
        if result.is_ok() {
            expected.iter().for_each(collectives::assert_result);
        }
        if let Some((buffer, _)) = expected {
            self.process.ended_buffers.borrow_mut().add(&buffer);
        }
        result.map(|_| ())
    }

    /// This process as a member of `comm`, with random numbers that all members share.
    fn view(&self, comm: CommKey, number: u64) -> crate::Process {
        let seed = self.history.schedule ^ number.wrapping_mul(0x9E37_79B9);
        self.process.as_member(self.rank(comm), self.size(comm), Random(seed))
    }

    async fn ring(&mut self, comm: CommKey, number: u64, bytes: u32) -> Result<(), Error> {
        let (rank, size) = (self.rank(comm).0, self.size(comm));
        let (next, before) = (Rank((rank + 1) % size), Rank((rank + size - 1) % size));
        let (tag, bytes) = (tag(number), bytes as usize);
        let data = Buffer::from_bytes(&content(id(number, rank), bytes));
        let buffer = poisoned(bytes);
        self.call("MPI_Sendrecv");
        let send = Some((next, tag, &data));
        let receive = Some((Source::Rank(before), TagSelector::Tag(tag), &buffer));
        let exchanged = self.process.mpi.sendrecv(comm, send, receive).await?;
        self.process.ended_buffers.borrow_mut().add(&buffer);
        // Row PP16: after a failed receive the send goes on without the call.
        let status = exchanged.received.expect("it has a receive")?;
        exchanged.sent.expect("the receive has succeeded")?;
        assert_status(status, before, tag, bytes);
        assert_content(&buffer, id(number, before.0), bytes);
        Ok(())
    }

    async fn ssend(&mut self, comm: CommKey, number: u64, bytes: u32) -> Result<(), Error> {
        let (rank, size) = (self.rank(comm).0, self.size(comm));
        let (next, before) = (Rank((rank + 1) % size), Rank((rank + size - 1) % size));
        let (tag, bytes) = (tag(number), bytes as usize);
        let data = Buffer::from_bytes(&content(id(number, rank), bytes));
        let buffer = poisoned(bytes);
        self.call("MPI_Irecv");
        let received = self.process.mpi.receive(comm, Source::Rank(before), TagSelector::Tag(tag), &buffer);
        self.call("MPI_Ssend");
        let sent = self.process.mpi.ssend(comm, next, tag, &data).await;
        overwrite(&data);
        if let Err(error) = sent {
            self.revoke(comm);
            _ = self.receive_all(vec![received]).await;
            return Err(error);
        }
        self.call("MPI_Wait");
        let status = received.await;
        self.process.ended_buffers.borrow_mut().add(&buffer);
        assert_status(status?, before, tag, bytes);
        assert_content(&buffer, id(number, before.0), bytes);
        Ok(())
    }

    /// Every member sends to the root, which receives from any source.
    async fn any_source(&mut self, comm: CommKey, number: u64, root: u32, probes: bool) -> Result<(), Error> {
        let (rank, size) = (self.rank(comm).0, self.size(comm));
        let (root, tag) = (root % size, tag(number));
        let bytes = (number % 3 * 40) as usize;
        if rank != root {
            let data = Buffer::from_bytes(&content(id(number, rank), bytes));
            self.call("MPI_Send");
            return self.process.mpi.send(comm, Rank(root), tag, &data).await.map(|_| ());
        }
        let mut from_each = vec![false; size as usize];
        for _ in 1..size {
            if probes {
                self.call("MPI_Probe");
                let found = self.process.mpi.probe(comm, Source::Any, TagSelector::Tag(tag)).await?;
                assert_eq!(found.bytes, bytes as u64);
            }
            let buffer = poisoned(bytes);
            self.call("MPI_Recv");
            let received =
                self.process.mpi.blocking_receive(comm, Source::Any, TagSelector::Tag(tag), &buffer).await?;
            let source = received.source.expect("a message has a source");
            assert_content(&buffer, id(number, source.0), bytes);
            assert!(!std::mem::replace(&mut from_each[source.index()], true), "two messages of {source:?}");
        }
        Ok(())
    }

    /// Waits for receives that a revocation ends.
    async fn receive_all(&mut self, receives: Vec<SimOperation>) -> Result<(), Error> {
        for receive in receives {
            self.call("MPI_Wait");
            receive.await?;
        }
        Ok(())
    }

    async fn create_and_use(&mut self, number: u64, creation: Creation, used: Use) -> Result<(), Failure> {
        let parent = self.comm;
        let made = self.create(parent, number, creation).await.map_err(|error| Failure::Of(parent, error))?;
        let Some(child) = made else { return Ok(()) };
        self.children.push(child);
        if self.creates_locally(parent) {
            return self.use_alone(child, creation, used).await;
        }
        match used {
            Use::None => {}
            Use::Barrier => {
                self.call("MPI_Barrier");
                self.process.mpi.barrier(child).await.map_err(|error| Failure::Of(child, error))?;
            }
            // A member that failed in the ring during MPI_Comm_idup has the communicator, but revokes it instead: so it is not freed before.
            Use::RingFreed | Use::Disconnect if creation == Creation::Idup => {
                self.ring(child, number, 100).await.map_err(|error| Failure::Of(child, error))?;
            }
            Use::RingFreed => return self.ring_on_freed(child, number, false).await,
            Use::Disconnect => return self.ring_on_freed(child, number, true).await,
            Use::DupAndRing => {
                let made = self
                    .create(child, number, Creation::Dup)
                    .await
                    .map_err(|error| Failure::Of(child, error))?;
                let grandchild = made.expect("a member");
                self.children.push(grandchild);
                self.ring(grandchild, number, 100).await.map_err(|error| Failure::Of(grandchild, error))?;
                self.free_child(grandchild);
            }
        }
        self.free_child(child);
        Ok(())
    }

    /// Whether a creation over `parent` may succeed at some members only.
    fn creates_locally(&self, parent: CommKey) -> bool {
        let hints = self.process.mpi.engine().hints(parent).expect("the communicator exists");
        hints.uniform == Uniform::Local
    }

    /// Uses a communicator that other members may never have. Only an agreement may wait for those.
    async fn use_alone(&mut self, child: CommKey, creation: Creation, used: Use) -> Result<(), Failure> {
        match used {
            Use::None | Use::Barrier => {}
            Use::RingFreed | Use::Disconnect => self.revoke(child),
            // A member that failed in the ring during MPI_Comm_idup frees it without an agreement.
            Use::DupAndRing if creation == Creation::Idup => {}
            Use::DupAndRing => {
                let flag = Buffer::from_bytes(&u32::MAX.to_le_bytes());
                self.call("MPIX_Comm_agree");
                if let Err(error) = self.process.mpi.agree(child, &flag).await {
                    assert_ne!(error.detail, Detail::Revoked, "an agreement is not revoked");
                }
            }
        }
        self.free_child(child);
        Ok(())
    }

    fn free_child(&mut self, child: CommKey) {
        self.children.retain(|each| *each != child);
        self.free(child);
    }

    /// A ring of messages on a communicator that is freed while they run. Nobody revokes it, and all its members do the same: so only a
    /// death can be why a message fails.
    async fn ring_on_freed(&mut self, child: CommKey, number: u64, disconnects: bool) -> Result<(), Failure> {
        let (rank, size) = (self.rank(child).0, self.size(child));
        let (next, before) = (Rank((rank + 1) % size), Rank((rank + size - 1) % size));
        let tag = tag(number);
        let data = Buffer::from_bytes(&content(id(number, rank), 50));
        let buffer = poisoned(50);
        self.call("MPI_Irecv");
        let received = self.process.mpi.receive(child, Source::Rank(before), TagSelector::Tag(tag), &buffer);
        self.call("MPI_Isend");
        let sent = self.process.mpi.send(child, next, tag, &data);
        let (members, identity) = (self.members(child), self.identity(child));
        if disconnects {
            self.call("MPI_Comm_disconnect");
            let mpi = self.process.mpi.clone();
            let is_pending = || mpi.engine().has_pending_operations(child).expect("the communicator exists");
            mpi.wait_until(|| !is_pending()).await;
        }
        self.free_child(child);
        self.call("MPI_Wait");
        let results = [received.await, sent.await];
        self.process.ended_buffers.borrow_mut().add(&buffer);
        if let Some(error) = results.into_iter().find_map(Result::err) {
            let world = self.process.mpi.engine().comm_world();
            let failed = self.get_failed(world);
            let is_explained = match error.detail {
                Detail::ProcFailed(partner) => failed.contains(&Rank(members[partner.index()])),
                // By a failure, which another member may have learned first.
                Detail::Revoked => self.process.record.borrow().repairs.is_revoked(identity),
                _ => false,
            };
            assert!(
                is_explained,
                "a message on a freed communicator ended with {error}, and {failed:?} failed"
            );
            return Err(Failure::Explained);
        }
        assert_content(&buffer, id(number, before.0), 50);
        Ok(())
    }

    /// Creates a communicator over `parent`.
    async fn create(
        &mut self,
        parent: CommKey,
        number: u64,
        creation: Creation,
    ) -> Result<Option<CommKey>, Error> {
        let mpi = self.process.mpi.clone();
        let call = (self.identity(parent), number);
        let (rank, size) = (self.rank(parent), self.size(parent));
        let half: Vec<Rank> = (0..size).step_by(2).map(Rank).collect();
        let group = mpi.engine().communicator(parent).expect("the communicator exists").group.clone();
        let half_group = group.include(&half).expect("ranks of the parent");
        let made = match creation {
            Creation::Dup => {
                self.call("MPI_Comm_dup");
                mpi.dup(parent).await
            }
            Creation::DupWithInfo => {
                let hints = mpi.engine().hints(parent).expect("the communicator exists");
                self.call("MPI_Comm_dup_with_info");
                mpi.dup_with_hints(parent, hints).await
            }
            Creation::Idup => {
                self.call("MPI_Comm_idup");
                let begun = mpi.dup(parent);
                let result = self.ring(parent, number, 700).await;
                if result.is_err() {
                    self.revoke(parent);
                }
                self.call("MPI_Wait");
                let made = begun.await;
                if let Err(error) = result {
                    self.assert_creation(call, made);
                    self.children.extend(made.ok().flatten());
                    return Err(error);
                }
                made
            }
            Creation::Split => {
                self.call("MPI_Comm_split");
                mpi.split(parent, Some(rank.0 % 2), -(rank.0 as i32)).await
            }
            Creation::Create => {
                self.call("MPI_Comm_create");
                mpi.create(parent, &half_group).await
            }
            Creation::CreateGroup if !half.contains(&rank) => return Ok(None),
            Creation::CreateGroup => {
                self.call("MPI_Comm_create_group");
                mpi.create_group(parent, &half_group, tag(number)).await
            }
        };
        self.assert_creation(call, made);
        if let Ok(Some(child)) = made {
            let hints = self.process.mpi.engine().hints(child).expect("it was just created");
            if hints.error_range != ErrorRange::Local {
                // A failure revokes it.
                self.process.record.borrow_mut().repairs.revoke(self.identity(child));
            }
        }
        made
    }

    /// Asserts that the result of a creation agrees with those of others (Row CC1), where it must (Row IK3).
    pub(super) fn assert_creation(
        &self,
        call: crate::record::repairs::Call,
        made: Result<Option<CommKey>, Error>,
    ) {
        if self.creates_locally(self.comm) {
            return;
        }
        let made = made.ok().map(|made| match made {
            Some(made) => (self.identity(made), self.members(made)),
            None => (call.0, vec![]),
        });
        let mut record = self.process.record.borrow_mut();
        let lives = |rank| !self.process.death_has_begun(Rank(rank));
        let agrees = record.repairs.created(call, self.process.number, made, lives);
        agrees.unwrap_or_else(|what| panic!("Row CC1, creation {call:?}: {what}"));
    }
}

/// Why a step has failed.
enum Failure {
    /// An operation on this communicator has.
    Of(CommKey, Error),
    /// An operation on a communicator that was freed meanwhile; the error is explained.
    Explained,
}

/// Messages of different steps have different tags, so that those of a failed step match no later receive.
fn tag(number: u64) -> Tag {
    Tag((number % (1 << 20)) as i32)
}

fn id(number: u64, from: u32) -> u64 {
    number << 16 | u64::from(from)
}
