// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collective operations under way: each a schedule (`mend-coll`) that the crank turns over the communicator's own
//! context kind, so that the user's tags never meet it. The making of communicators is one whose result is looked at.
//!
//! ```text
//!            start: turned once
//!        ┌──────────────────────▶ over (no request); refused where a member has failed
//! start ─┤
//!        └─▶ active ──── turn ──▶ done ── release ──▶ gone
//!              ├─── a member has left: done, when all are heard of
//!              ├─── a member's death is published ──▶ done, in error
//!              └─── detach: gone as soon as it is done
//! ```
//!
//! A death ends every operation of its communicators at whoever hears of it (design "Interrupted collectives"), because a member that lives may
//! wait for one that has given up. So members differ: who was through already has succeeded (Row CO3), and a
//! communicator that was being made may be created comm at some of them alone. It holds the dead, so only messages between two
//! go through it, those to whom it was not created comm refuse them as soon as they know its name (else when they leave), and
//! freeing it is local. That all come to know whether all have it, is for agreement.

mod liveness_query;

use crate::communicator::create::{Contribution, PendingCreation};
use crate::engine::no_such_request;
use crate::{CommKey, Detail, Engine, Error, Request, Started, State};
use liveness_query::LivenessQuery;
use mend_base::{Key, PeerIndex, Rank, Slab, Tag};
use mend_coll::{Collective, Schedule};
use mend_comm::Group;
use mend_pml::{Status, Waiter};
use mend_runtime::Runtime;
use mend_transport::Btl;

/// A collective operation that has a request.
#[derive(Debug)]
pub(crate) struct Running {
    comm: CommKey,
    stage: Stage,
    /// Nobody will look at it any more.
    detached: bool,
    /// Who sleeps until it is over.
    pub(crate) waiter: Option<Waiter>,
}

impl Running {
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Done(..))
    }
}

#[derive(Debug)]
enum Stage {
    Active(Active),
    Done(Result<Status, Error>, Option<CommKey>),
}

#[derive(Debug)]
struct Active {
    schedule: Schedule,
    /// Which operation of its communicator: what keeps its messages from those of the next one.
    tag: Tag,
    creation: Option<PendingCreation>,
    /// The schedule is over: a member has left, and why is not known yet.
    doubt: Option<LivenessQuery>,
}

impl<N: Btl, R: Runtime> Engine<N, R> {
    /// Starts a collective operation. All members start the same ones in the same order (MPI-5.0 §6.1).
    pub fn collective(&mut self, comm: CommKey, call: Collective) -> Result<Started, Error> {
        let (started, _) = self.start(comm, call, None)?;
        Ok(started)
    }

    /// Starts to make a communicator with the same members (MPI_COMM_DUP).
    pub fn dup(&mut self, comm: CommKey) -> Result<Started, Error> {
        self.entry(comm)?;
        let number = self.number()?;
        let (creation, call) = PendingCreation::dup(&self.entry(comm)?.communicator, number);
        self.start_creation(comm, creation, call)
    }

    /// Starts to make a communicator of those who name the same color, ordered by key; `None`: of none (MPI_COMM_SPLIT).
    pub fn split(&mut self, comm: CommKey, color: Option<u32>, key: i32) -> Result<Started, Error> {
        self.entry(comm)?;
        let mine = Contribution { color, key, number: self.number()? };
        let (creation, call) = PendingCreation::split(&self.entry(comm)?.communicator, mine);
        self.start_creation(comm, creation, call)
    }

    /// Starts to make a communicator of `group`, which is of `comm` (MPI_COMM_CREATE).
    pub fn create(&mut self, comm: CommKey, group: &Group) -> Result<Started, Error> {
        let parent = &self.entry(comm)?.communicator;
        PendingCreation::contribution_of_member(parent, group, 0)?;
        let number = self.number()?;
        let parent = &self.entry(comm)?.communicator;
        let (creation, call) =
            PendingCreation::split(parent, PendingCreation::contribution_of_member(parent, group, number)?);
        self.start_creation(comm, creation, call)
    }

    /// The communicator that the operation made, once it is done. `None`: we are no member of it.
    pub fn created(&mut self, request: Request) -> Option<CommKey> {
        let Request::Collective(key) = request else { return None };
        match &mut self.collectives.get_mut(key)?.stage {
            Stage::Active(_) => None,
            Stage::Done(_, created) => created.take(),
        }
    }

    /// A communicator's making always has a request, since somebody must ask what was made.
    fn start_creation(
        &mut self,
        comm: CommKey,
        creation: PendingCreation,
        call: Collective,
    ) -> Result<Started, Error> {
        let (started, created) = self.start(comm, call, Some(creation))?;
        let Started::Done(status) = started else { return Ok(started) };
        let stage = Stage::Done(Ok(status), created);
        let key = self.collectives.insert(Running { comm, stage, detached: false, waiter: None });
        self.lifecycle_check.begin(key);
        self.lifecycle_check.end(key);
        Ok(Started::Running(Request::Collective(key)))
    }

    fn start(
        &mut self,
        comm: CommKey,
        call: Collective,
        creation: Option<PendingCreation>,
    ) -> Result<(Started, Option<CommKey>), Error> {
        let entry = self.entry(comm)?;
        if let Some(&failed) = entry.failures.known().first() {
            // Row CO4
            mend_base::reach!("mpi.collective: a member had failed");
            return Err(Error::of(Detail::ProcFailed(failed)));
        }
        let schedule = mend_coll::schedule(entry.communicator.rank, entry.communicator.size(), call);
        let tag = Tag((entry.operations % (1 << 31)) as i32);
        if let Some(entry) = self.communicators.get_mut(comm.0)
            && matches!(schedule, Ok(_) | Err(mend_coll::Error::NoMemory))
        {
            // Where memory fails here alone, the others have this operation too: the next one must not meet it.
            entry.operations = entry.operations.wrapping_add(1);
        }
        let mut active = Active { schedule: schedule?, tag, creation, doubt: None };
        if let Some(entry) = self.communicators.get_mut(comm.0) {
            entry.running += 1;
        }
        if let Some((result, created)) = self.progress_one(comm, &mut active) {
            return result.map(|status| (Started::Done(status), created));
        }
        let key = self.collectives.insert(Running {
            comm,
            stage: Stage::Active(active),
            detached: false,
            waiter: None,
        });
        self.lifecycle_check.begin(key);
        self.active.push(key);
        self.checks_of_wait = 0;
        Ok((Started::Running(Request::Collective(key)), None))
    }

    /// Turns every operation that is not over; how many ended.
    pub(crate) fn progress_collectives(&mut self) -> u32 {
        let mut ended = 0;
        // Taken out for the time: ending an operation may, in later issues, start one.
        let mut active = core::mem::take(&mut self.active);
        active.retain(|&key| {
            let over = self.progress_by_key(key);
            ended += u32::from(over);
            !over
        });
        active.append(&mut self.active);
        self.active = active;
        ended
    }

    /// Whether this one is over now.
    fn progress_by_key(&mut self, key: Key) -> bool {
        let Some(running) = self.collectives.get_mut(key) else { return true };
        let (comm, nothing) = (running.comm, Stage::Done(Ok(Status::EMPTY), None));
        let Stage::Active(mut active) = core::mem::replace(&mut running.stage, nothing) else { return true };
        if let Some((result, created)) = self.progress_one(comm, &mut active) {
            self.settle(key, result, created);
            return true;
        }
        if let Some(running) = self.collectives.get_mut(key) {
            running.stage = Stage::Active(active);
        }
        false
    }

    /// Turns one schedule; what came of it, if it is over.
    fn progress_one(
        &mut self,
        comm: CommKey,
        active: &mut Active,
    ) -> Option<(Result<Status, Error>, Option<CommKey>)> {
        let channel = self.communicators.get(comm.0)?.collective;
        let mut context_kind = crate::collective_channel::CollectiveChannel {
            net: &mut self.net,
            pml: &mut self.pml,
            channel,
            tag: active.tag,
        };
        let result = active.schedule.progress(&mut context_kind)?;
        if let Err(mend_pml::Error::PeerLeft(_)) = result {
            let doubt = active.doubt.take().unwrap_or_else(|| self.query_liveness(comm));
            if !self.is_answered(&doubt) {
                active.doubt = Some(doubt);
                return None;
            }
        }
        Some(self.conclude(comm, active.creation.as_ref(), result))
    }

    /// The end of every operation: what came of it.
    fn conclude(
        &mut self,
        comm: CommKey,
        creation: Option<&PendingCreation>,
        result: Result<(), mend_pml::Error>,
    ) -> (Result<Status, Error>, Option<CommKey>) {
        let made = match (result, creation) {
            (Ok(()), None) => Ok(None),
            (Ok(()), Some(creation)) => self.commit_creation(comm, creation),
            (Err(error), creation) => {
                creation.into_iter().for_each(|creation| self.roll_back(comm, creation));
                Err(Error::from(error))
            }
        };
        if let Some(entry) = self.communicators.get_mut(comm.0) {
            entry.running -= 1;
        }
        self.release_if_unused(comm);
        match made {
            Ok(created) => (Ok(Status::EMPTY), created),
            Err(error) => (Err(error), None),
        }
    }

    /// A step of publishing a death, after the requests: ends every operation on a communicator that holds the dead. Its
    /// point-to-point messages go on (Row CO12), and so does every other communicator (Row CO5).
    pub(crate) fn interrupt_collectives(&mut self, dead: PeerIndex) {
        // None starts or is turned meanwhile: nothing here calls back.
        let mut active = core::mem::take(&mut self.active);
        active.retain(|&key| !self.interrupt(key, dead));
        self.active = active;
    }

    /// Whether this one is over now.
    fn interrupt(&mut self, key: Key, dead: PeerIndex) -> bool {
        let Some(running) = self.collectives.get_mut(key) else { return true };
        let comm = running.comm;
        let Some(entry) = self.communicators.get(comm.0) else { return true };
        let Some(rank) = entry.members.iter().position(|member| *member == dead) else { return false };
        mend_base::reach!("mpi.collective: interrupted");
        let (channel, nothing) = (entry.collective, Stage::Done(Ok(Status::EMPTY), None));
        let Stage::Active(mut active) = core::mem::replace(&mut running.stage, nothing) else { return true };
        let error = mend_pml::Error::ProcFailed(Rank(rank as u32));
        let mut context_kind = crate::collective_channel::CollectiveChannel {
            net: &mut self.net,
            pml: &mut self.pml,
            channel,
            tag: active.tag,
        };
        active.schedule.interrupt(&mut context_kind, error);
        let (result, created) = self.conclude(comm, active.creation.as_ref(), Err(error));
        self.settle(key, result, created);
        true
    }

    /// An operation with a request is over.
    fn settle(&mut self, key: Key, result: Result<Status, Error>, created: Option<CommKey>) {
        let Some(running) = self.collectives.get_mut(key) else { return };
        running.stage = Stage::Done(result, created);
        let detached = running.detached;
        let waiter = running.waiter.take();
        self.waiters.ended(waiter);
        self.lifecycle_check.end(key);
        if detached {
            self.forget_collective(key);
        }
    }

    /// The making of a communicator has failed here. Where its name had come already, others may have it, and what they
    /// send on it is refused.
    fn roll_back(&mut self, parent: CommKey, creation: &PendingCreation) {
        let Some(entry) = self.communicators.get(parent.0) else { return };
        if let Some(identity) = creation.identity(&entry.communicator)
            && !self.pml.is_used(identity)
        {
            mend_base::reach!("mpi.collective: created elsewhere, perhaps, and not here");
            self.pml.never(identity);
        }
    }

    fn commit_creation(
        &mut self,
        parent: CommKey,
        creation: &PendingCreation,
    ) -> Result<Option<CommKey>, Error> {
        let Some(entry) = self.communicators.get(parent.0) else { return Ok(None) };
        match creation.finish(&entry.communicator)? {
            None => Ok(None),
            Some(created) => self.commit(parent, created).map(Some),
        }
    }

    pub(crate) fn poll_collective(&self, key: Key) -> State {
        match self.collectives.get(key).map(|running| &running.stage) {
            None => State::Done(Err(no_such_request())),
            Some(Stage::Active(_)) => State::Running,
            Some(Stage::Done(result, _)) => State::Done(*result),
        }
    }

    /// Nothing for one that is over.
    pub(crate) fn set_collective_waiter(&mut self, key: Key, waiter: Waiter) {
        if let Some(running) = self.collectives.get_mut(key)
            && matches!(running.stage, Stage::Active(_))
        {
            running.waiter = Some(waiter);
        }
    }

    pub(crate) fn release_collective(&mut self, key: Key) {
        if matches!(self.collectives.get(key), Some(Running { stage: Stage::Done(..), .. })) {
            self.forget_collective(key);
        }
    }

    pub(crate) fn detach_collective(&mut self, key: Key) {
        match self.collectives.get_mut(key) {
            None => {}
            Some(running) if matches!(running.stage, Stage::Active(_)) => running.detached = true,
            Some(_) => self.forget_collective(key),
        }
    }

    fn forget_collective(&mut self, key: Key) {
        self.lifecycle_check.forget(key);
        self.collectives.remove(key);
    }
}

/// What an operation that is not over waits for.
pub(crate) fn awaited_by(collectives: &Slab<Running>, key: Key) -> &[mend_pml::Request] {
    match collectives.get(key).map(|running| &running.stage) {
        Some(Stage::Active(active)) => active.schedule.awaited(),
        _ => &[],
    }
}

#[cfg(test)]
mod tests;
