// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collective operations that run: each is a schedule (`mend-coll`) on the collective context of its communicator, so
//! that its messages never match receives of the program. The exchange of a creation ([`crate::creations`]) is one of them.
//!
//! ```text
//!            start: progress once
//!        ┌──────────────────────▶ over (no request); an error if a member has failed
//! start ─┤
//!        └─▶ active ── progress ─▶ done ── release ──▶ released
//!              ├─── a member has left, or gave the operation up ──▶ done, in error, after a liveness query
//!              ├─── a member's death is published ──▶ done, in error
//!              └─── release ──▶ removed as soon as it is done
//! ```
//!
//! When a failure is published at a process, all operations on communicators with the failed member end there (design "Interrupted
//! collectives"), because a living member may wait for one that has ended its operation with an error. So results differ between
//! members: an operation that has ended before has succeeded (Row CO3).
//!
//! A part of the engine: it owns the operations. Each call borrows the [`Parts`], in which it changes the communicator's count of
//! operations, and starts sends and receives at the PML.

mod channel;
mod liveness_query;

use crate::communicator::{CommEntry, Communicators};
use crate::layers::Layers;
use crate::peer_reports::PeerReports;
use crate::request::no_such_request;
use crate::{CommKey, Detail, Error, State};
use channel::CollectiveChannel;
pub(crate) use liveness_query::{LivenessQuery, ask_again};
use mend_base::{Key, LifecycleCheck, LifecycleCounts, PeerIndex, Slab, Tag};
use mend_coll::{Collective, Schedule};
use mend_pml::{Ends, SleeperId, Status};
use mend_runtime::Runtime;
use mend_transport::Btl;

/// The other parts of the engine that operations use, borrowed during a call.
pub(crate) struct Parts<'a, N: Btl, R> {
    pub layers: &'a mut Layers<N, R>,
    pub communicators: &'a mut Communicators,
    pub peer_reports: &'a mut PeerReports<N::Endpoint>,
    pub ends: &'a Ends,
}

/// The result of the start of an operation.
pub(crate) enum Begun {
    /// The operation is over; it has no request.
    Done(Status),
    /// The operation runs, and has a request.
    Running(Key),
}

/// A collective operation that has a request.
#[derive(Debug)]
struct Running {
    comm: CommKey,
    stage: Stage,
    /// The request was freed.
    detached: bool,
    /// The thread that sleeps until the operation is over.
    sleeper: Option<SleeperId>,
}

#[derive(Debug)]
enum Stage {
    Active(Active),
    Done(Result<Status, Error>),
}

#[derive(Debug)]
struct Active {
    schedule: Schedule,
    /// The number of the operation on its communicator, which distinguishes its messages from those of other operations.
    tag: Tag,
    /// The schedule has ended because a member has left, or gave the operation up; the operation ends when the query is answered.
    query: Option<LivenessQuery>,
}

/// Collective operations that are not released.
#[derive(Debug, Default)]
pub(crate) struct Collectives {
    table: Slab<Running>,
    /// The operations that run, which progress polls.
    active: Vec<Key>,
    /// Checks that each entry of `table` ends once.
    lifecycle_check: LifecycleCheck,
    /// Sleepers of operations that have ended.
    to_wake: Vec<SleeperId>,
}

impl Collectives {
    // Hot: per progress.
    /// Whether no operation runs.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// The number of operations that are not released.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Asserts that each operation ends once and is released once. Returns the counts so far.
    pub fn lifecycle_counts(&self) -> LifecycleCounts {
        let is_over = |running: &Running| matches!(running.stage, Stage::Done(_));
        self.lifecycle_check.assert_agrees(self.table.iter().map(|(key, running)| (key, is_over(running))));
        self.lifecycle_check.counts()
    }

    /// The requests for which the operation waits in its present round.
    pub fn awaited_by(&self, key: Key) -> &[mend_pml::Request] {
        match self.table.get(key).map(|running| &running.stage) {
            Some(Stage::Active(active)) => active.schedule.awaited(),
            _ => &[],
        }
    }

    /// The communicator of an operation that is not released.
    pub fn communicator_of(&self, key: Key) -> Option<CommKey> {
        self.table.get(key).filter(|running| !running.detached).map(|running| running.comm)
    }

    /// Starts an operation. All members start the same ones in the same order (MPI-5.0 §6.1).
    pub fn start<N: Btl, R: Runtime>(
        &mut self,
        comm: CommKey,
        call: Collective,
        parts: &mut Parts<'_, N, R>,
    ) -> Result<Begun, Error> {
        let entry = parts.communicators.valid(comm)?;
        if entry.is_revoked() {
            return Err(Error::of(Detail::Revoked));
        }
        if let Some(failed) = parts.layers.pml.broken_by(entry.collective(), parts.ends) {
            // Row CO4
            mend_base::reach!("mpi.collective: a member had failed");
            return Err(Error::of(Detail::ProcFailed(failed)));
        }
        let schedule = mend_coll::schedule(entry.communicator().rank, entry.communicator().size(), call);
        let tag = entry.tag();
        if let Some(entry) = parts.communicators.get_mut(comm) {
            // If there is no memory here, the other members start this operation all the same, so the operation uses up its tag here too.
            if matches!(schedule, Ok(_) | Err(mend_coll::Error::NoMemory)) {
                entry.count_operation();
            }
            if schedule.is_ok() {
                entry.begin_operation();
            }
        }
        let mut active = Active { schedule: schedule?, tag, query: None };
        // The entries are reserved before anything is sent: after that the operation must not fail for lack of memory.
        let Some(key) = self.reserve(comm) else {
            parts.communicators.end_operation(comm, parts.layers);
            return Err(Error::of(Detail::NoMemory));
        };
        match progress(comm, &mut active, parts) {
            Some(result) => {
                self.table.remove(key);
                result.map(Begun::Done)
            }
            None => Ok(Begun::Running(self.begin(key, active))),
        }
    }

    /// Reserves the entries of an operation that has not begun. `None`: there is no memory.
    fn reserve(&mut self, comm: CommKey) -> Option<Key> {
        self.active.try_reserve(1).ok()?;
        // One sleeper for each operation of the table at most.
        self.to_wake.try_reserve(self.table.len() + 1).ok()?;
        let stage = Stage::Done(Ok(Status::EMPTY));
        self.table.try_insert(Running { comm, stage, detached: false, sleeper: None })
    }

    fn begin(&mut self, key: Key, active: Active) -> Key {
        if let Some(running) = self.table.get_mut(key) {
            running.stage = Stage::Active(active);
        }
        self.lifecycle_check.begin(key);
        self.active.push(key);
        key
    }

    /// Makes progress on all operations that run. Returns how many ended.
    pub fn progress<N: Btl, R: Runtime>(&mut self, parts: &mut Parts<'_, N, R>) -> u32 {
        self.end_some(|comm, active| progress(comm, active, parts))
    }

    /// A step of publishing a failure, after the requests: ends all operations on communicators with the failed member. Point-to-point
    /// messages on these communicators go on (Row CO12), and so do operations on others (Row CO5).
    pub fn interrupt<N: Btl, R: Runtime>(&mut self, dead: PeerIndex, parts: &mut Parts<'_, N, R>) {
        self.end_some(|comm, active| {
            let entry = parts.communicators.get(comm)?;
            let (rank, channel) = (entry.rank_of(dead)?, entry.collective());
            mend_base::reach!("mpi.collective: interrupted");
            let error = mend_pml::Error::ProcFailed(rank);
            let mut channel = CollectiveChannel::new(parts.layers, parts.ends, channel, active.tag);
            active.schedule.interrupt(&mut channel, error);
            Some(conclude(comm, Err(error), parts))
        });
    }

    /// The communicator is revoked: ends all operations on it (Row CO6).
    pub fn revoke<N: Btl, R: Runtime>(&mut self, revoked: CommKey, parts: &mut Parts<'_, N, R>) {
        self.end_some(|comm, active| {
            let channel = parts.communicators.get(comm).filter(|_| comm == revoked)?.collective();
            mend_base::reach!("mpi.collective: revoked");
            let error = mend_pml::Error::Revoked;
            let mut channel = CollectiveChannel::new(parts.layers, parts.ends, channel, active.tag);
            active.schedule.interrupt(&mut channel, error);
            Some(conclude(comm, Err(error), parts))
        });
    }

    /// Ends an operation that has no request of the program, before it is over, and releases it.
    pub fn give_up<N: Btl, R: Runtime>(&mut self, key: Key, parts: &mut Parts<'_, N, R>) {
        let Some(Running { comm, stage: Stage::Active(active), .. }) = self.table.get_mut(key) else {
            return;
        };
        if let Some(channel) = parts.communicators.get(*comm).map(CommEntry::collective) {
            let mut channel = CollectiveChannel::new(parts.layers, parts.ends, channel, active.tag);
            active.schedule.interrupt(&mut channel, mend_pml::Error::Revoked);
        }
        parts.communicators.end_operation(*comm, parts.layers);
        self.active.retain(|active| *active != key);
        self.end(key, Ok(Status::EMPTY));
        self.remove(key);
    }

    /// Ends the running operations for which `step` returns a result. Returns how many.
    fn end_some(
        &mut self,
        mut step: impl FnMut(CommKey, &mut Active) -> Option<Result<Status, Error>>,
    ) -> u32 {
        let before = self.active.len();
        let mut active = core::mem::take(&mut self.active);
        active.retain(|&key| {
            let Some(Running { comm, stage: Stage::Active(active), .. }) = self.table.get_mut(key) else {
                return false;
            };
            let Some(result) = step(*comm, active) else { return true };
            self.end(key, result);
            false
        });
        self.active = active;
        (before - self.active.len()) as u32
    }

    /// Ends an operation with this result.
    fn end(&mut self, key: Key, result: Result<Status, Error>) {
        let Some(running) = self.table.get_mut(key) else { return };
        running.stage = Stage::Done(result);
        let detached = running.detached;
        self.to_wake.extend(running.sleeper.take());
        self.lifecycle_check.end(key);
        if detached {
            self.remove(key);
        }
    }

    /// The runtime has answered that a peer lives: this answers queries, or makes them ask again.
    pub fn on_alive<N: Btl, R: Runtime>(&mut self, member: PeerIndex, parts: &mut Parts<'_, N, R>) {
        let mut again = false;
        for key in &self.active {
            if let Some(Running { stage: Stage::Active(Active { query: Some(query), .. }), .. }) =
                self.table.get_mut(*key)
            {
                again |= query.on_alive(member);
            }
        }
        if again {
            ask_again(member, parts);
        }
    }

    // Hot: per poll.
    /// The state of an operation.
    pub fn poll(&self, key: Key) -> State {
        match self.table.get(key).map(|running| &running.stage) {
            None => State::Done(Err(no_such_request())),
            Some(Stage::Active(_)) => State::Running,
            Some(Stage::Done(result)) => State::Done(*result),
        }
    }

    /// The end of a running operation will wake `sleeper`. Does nothing for an operation that is over.
    pub fn wake_at_end(&mut self, key: Key, sleeper: SleeperId) {
        if let Some(running) = self.table.get_mut(key)
            && matches!(running.stage, Stage::Active(_))
        {
            running.sleeper = Some(sleeper);
        }
    }

    /// The sleeper of an operation that has ended, to be woken. Each is returned once.
    pub fn next_to_wake(&mut self) -> Option<SleeperId> {
        self.to_wake.pop()
    }

    /// Releases an operation. One that is over is removed; one that runs goes on, and is removed when it ends. Returns its communicator,
    /// unless it was released before.
    pub fn release(&mut self, key: Key) -> Option<CommKey> {
        let comm = self.communicator_of(key)?;
        match self.table.get_mut(key) {
            Some(running) if matches!(running.stage, Stage::Active(_)) => running.detached = true,
            _ => self.remove(key),
        }
        Some(comm)
    }

    fn remove(&mut self, key: Key) {
        self.lifecycle_check.release(key);
        self.table.remove(key);
    }
}

/// Makes progress on one operation. Returns its result if it is over.
fn progress<N: Btl, R: Runtime>(
    comm: CommKey,
    active: &mut Active,
    parts: &mut Parts<'_, N, R>,
) -> Option<Result<Status, Error>> {
    let channel = parts.communicators.get(comm)?.collective();
    let mut channel = CollectiveChannel::new(parts.layers, parts.ends, channel, active.tag);
    let result = active.schedule.progress(&mut channel)?;
    if let Err(mend_pml::Error::PeerLeft(_) | mend_pml::Error::PeerFreed(_)) = result {
        let query = active.query.get_or_insert_with(|| LivenessQuery::begin(comm, parts));
        if !query.is_answered(parts.peer_reports) {
            return None;
        }
    }
    Some(conclude(comm, result, parts))
}

/// Ends an operation on `comm`, and returns its result.
fn conclude<N: Btl, R: Runtime>(
    comm: CommKey,
    result: Result<(), mend_pml::Error>,
    parts: &mut Parts<'_, N, R>,
) -> Result<Status, Error> {
    parts.communicators.end_operation(comm, parts.layers);
    result.map(|()| Status::EMPTY).map_err(Error::from)
}
