// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collective operations under way: each a schedule (`mend-coll`) that progress moves on over the communicator's own
//! context kind, so that the user's tags never meet it. The making of communicators is one whose result is looked at.
//!
//! ```text
//!            start: progress once
//!        ┌──────────────────────▶ over (no request); refused where a member has failed
//! start ─┤
//!        └─▶ active ── progress ─▶ done ── release ──▶ released
//!              ├─── a member has left, or gave it up: done, in error, when the reason is known (`liveness_query`)
//!              ├─── a member's death is published ──▶ done, in error
//!              └─── release: forgotten as soon as it is done
//! ```
//!
//! A death ends every operation of its communicators at each process that hears of it (design "Interrupted collectives"), because a
//! member that lives may wait for one that has given up. So members differ: one that was through already has succeeded (Row CO3),
//! and a communicator that was being made may exist at some of them alone. It holds the dead, so only messages between two go
//! through it; members where it was not created refuse them as soon as they know its name (else when they leave), and freeing it
//! is local. To let all know whether all have it is for agreement.
//!
//! A part of the engine: it owns the operations; each call is lent the [`Context`], of which it changes the communicator's
//! count of operations, and what the schedule starts at the PML.

mod channel;
mod liveness_query;

use crate::communicator::{Communicators, PendingCreation};
use crate::funnel::Funnel;
use crate::layers::Layers;
use crate::request::no_such_request;
use crate::{CommKey, Detail, Error, State};
use channel::CollectiveChannel;
use liveness_query::LivenessQuery;
use mend_base::{Key, LifecycleCheck, LifecycleCounts, PeerIndex, Slab, Tag};
use mend_coll::{Collective, Schedule};
use mend_pml::{Ends, Status, Waiter};
use mend_runtime::Runtime;
use mend_transport::Btl;

/// What an operation works with, lent for the length of a call.
pub(crate) struct Context<'a, N: Btl, R> {
    pub layers: &'a mut Layers<N, R>,
    pub communicators: &'a mut Communicators,
    pub funnel: &'a mut Funnel<N::Endpoint>,
    pub ends: &'a Ends,
}

/// What became of an operation: its result, and the communicator that it made.
type Ended = (Result<Status, Error>, Option<CommKey>);

/// What starting one gave.
pub(crate) enum Begun {
    /// It is over; no request was made.
    Done(Status),
    /// It goes on, or is a creation, of which somebody must ask what was made.
    Running(Key),
}

/// A collective operation that has a request.
#[derive(Debug)]
struct Running {
    comm: CommKey,
    stage: Stage,
    /// The request was freed.
    detached: bool,
    /// The thread that sleeps until it is over.
    waiter: Option<Waiter>,
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
    /// The schedule is over: a member has left, or gave the operation up, and the reason is not known yet.
    query: Option<LivenessQuery>,
}

/// Collective operations under way, and those whose result was not looked at.
#[derive(Debug, Default)]
pub(crate) struct Collectives {
    table: Slab<Running>,
    /// Those that are not over: what progress polls.
    active: Vec<Key>,
    /// Each of `table` ends once.
    lifecycle_check: LifecycleCheck,
    /// Waiters of operations that have ended.
    ended_waiters: Vec<Waiter>,
}

impl Collectives {
    // Hot: per progress.
    /// Whether none is active.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Asserts that each ends once and is released once; how many so far.
    pub fn lifecycle_counts(&self) -> LifecycleCounts {
        let is_over = |running: &Running| matches!(running.stage, Stage::Done(..));
        self.lifecycle_check.assert_agrees(self.table.iter().map(|(key, running)| (key, is_over(running))));
        self.lifecycle_check.counts()
    }

    /// The requests that an operation waits for.
    pub fn awaited_by(&self, key: Key) -> &[mend_pml::Request] {
        match self.table.get(key).map(|running| &running.stage) {
            Some(Stage::Active(active)) => active.schedule.awaited(),
            _ => &[],
        }
    }

    /// The communicator that the operation made, once it is done. `None`: this process is no member of it.
    pub fn take_created(&mut self, key: Key) -> Option<CommKey> {
        match &mut self.table.get_mut(key)?.stage {
            Stage::Active(_) => None,
            Stage::Done(_, created) => created.take(),
        }
    }

    /// The communicator of an operation whose handle was not given back.
    pub fn communicator_of(&self, key: Key) -> Option<CommKey> {
        self.table.get(key).filter(|running| !running.detached).map(|running| running.comm)
    }

    /// Starts an operation. All members start the same ones in the same order (MPI-5.0 §6.1).
    pub fn start<N: Btl, R: Runtime>(
        &mut self,
        comm: CommKey,
        call: Collective,
        creation: Option<PendingCreation>,
        context: &mut Context<'_, N, R>,
    ) -> Result<Begun, Error> {
        let entry = context.communicators.valid(comm)?;
        if let Some(failed) = context.layers.pml.broken_by(entry.collective(), context.ends) {
            // Row CO4
            mend_base::reach!("mpi.collective: a member had failed");
            return Err(Error::of(Detail::ProcFailed(failed)));
        }
        let schedule = mend_coll::schedule(entry.communicator().rank, entry.communicator().size(), call);
        let tag = entry.tag();
        if let Some(entry) = context.communicators.get_mut(comm) {
            // Where memory fails here alone, the others have this operation too: the next one must not meet it.
            if matches!(schedule, Ok(_) | Err(mend_coll::Error::NoMemory)) {
                entry.count_operation();
            }
            if schedule.is_ok() {
                entry.begin_operation();
            }
        }
        let is_creation = creation.is_some();
        let mut active = Active { schedule: schedule?, tag, creation, query: None };
        // Its place is there before anything is sent: what has begun can go on.
        let Some(key) = self.reserve(comm) else {
            context.communicators.end_operation(comm, context.layers);
            return Err(Error::of(Detail::NoMemory));
        };
        match progress(comm, &mut active, context) {
            Some((Err(error), _)) => {
                self.table.remove(key);
                Err(error)
            }
            Some((Ok(status), _)) if !is_creation => {
                self.table.remove(key);
                Ok(Begun::Done(status))
            }
            Some((result, created)) => Ok(Begun::Running(self.begin(key, Stage::Done(result, created)))),
            None => Ok(Begun::Running(self.begin(key, Stage::Active(active)))),
        }
    }

    /// A place in both tables, of an operation that has not begun; `None`: there is no memory for one.
    fn reserve(&mut self, comm: CommKey) -> Option<Key> {
        self.active.try_reserve(1).ok()?;
        // One waiter for each operation of the table at most.
        self.ended_waiters.try_reserve(self.table.len() + 1).ok()?;
        let stage = Stage::Done(Ok(Status::EMPTY), None);
        self.table.try_insert(Running { comm, stage, detached: false, waiter: None })
    }

    fn begin(&mut self, key: Key, stage: Stage) -> Key {
        let is_active = matches!(stage, Stage::Active(_));
        if let Some(running) = self.table.get_mut(key) {
            running.stage = stage;
        }
        self.lifecycle_check.begin(key);
        if is_active {
            self.active.push(key);
        } else {
            self.lifecycle_check.end(key);
        }
        key
    }

    /// Makes progress on every operation that is not over; how many ended.
    pub fn progress<N: Btl, R: Runtime>(&mut self, context: &mut Context<'_, N, R>) -> u32 {
        self.end_some(|comm, active| progress(comm, active, context))
    }

    /// A step of publishing a death, after the requests: ends every operation on a communicator that holds the dead. Its
    /// point-to-point messages go on (Row CO12), and so does every other communicator (Row CO5).
    pub fn interrupt<N: Btl, R: Runtime>(&mut self, dead: PeerIndex, context: &mut Context<'_, N, R>) {
        self.end_some(|comm, active| {
            let entry = context.communicators.get(comm)?;
            let (rank, channel) = (entry.rank_of(dead)?, entry.collective());
            mend_base::reach!("mpi.collective: interrupted");
            let error = mend_pml::Error::ProcFailed(rank);
            let mut channel = CollectiveChannel::new(context.layers, context.ends, channel, active.tag);
            active.schedule.interrupt(&mut channel, error);
            Some(conclude(comm, active.creation.as_ref(), Err(error), context))
        });
    }

    /// Ends those active ones of which `step` says how; how many.
    fn end_some(&mut self, mut step: impl FnMut(CommKey, &mut Active) -> Option<Ended>) -> u32 {
        let before = self.active.len();
        let mut active = core::mem::take(&mut self.active);
        active.retain(|&key| {
            let Some(Running { comm, stage: Stage::Active(active), .. }) = self.table.get_mut(key) else {
                return false;
            };
            let Some((result, created)) = step(*comm, active) else { return true };
            self.settle(key, result, created);
            false
        });
        self.active = active;
        (before - self.active.len()) as u32
    }

    /// An operation is over.
    fn settle(&mut self, key: Key, result: Result<Status, Error>, created: Option<CommKey>) {
        let Some(running) = self.table.get_mut(key) else { return };
        running.stage = Stage::Done(result, created);
        let detached = running.detached;
        self.ended_waiters.extend(running.waiter.take());
        self.lifecycle_check.end(key);
        if detached {
            self.forget(key);
        }
    }

    /// The runtime says that a peer lives: queries that wait for that are answered, or ask again.
    pub fn on_alive<N: Btl, R: Runtime>(&mut self, member: PeerIndex, context: &mut Context<'_, N, R>) {
        let mut again = false;
        for key in &self.active {
            if let Some(Running { stage: Stage::Active(Active { query: Some(query), .. }), .. }) =
                self.table.get_mut(*key)
            {
                again |= query.on_alive(member);
            }
        }
        if again {
            liveness_query::ask_again(member, context);
        }
    }

    // Hot: per poll.
    /// Where an operation stands.
    pub fn poll(&self, key: Key) -> State {
        match self.table.get(key).map(|running| &running.stage) {
            None => State::Done(Err(no_such_request())),
            Some(Stage::Active(_)) => State::Running,
            Some(Stage::Done(result, _)) => State::Done(*result),
        }
    }

    /// The end of an operation wakes `waiter`; nothing for one that is over.
    pub fn wake_at_end(&mut self, key: Key, waiter: Waiter) {
        if let Some(running) = self.table.get_mut(key)
            && matches!(running.stage, Stage::Active(_))
        {
            running.waiter = Some(waiter);
        }
    }

    /// The waiter of an operation that has ended; each comes once.
    pub fn next_ended_waiter(&mut self) -> Option<Waiter> {
        self.ended_waiters.pop()
    }

    /// The caller will not ask for it any more: if it is over, it is forgotten; else it goes on to its end. Its communicator, where
    /// the handle was not given back before.
    pub fn release(&mut self, key: Key) -> Option<CommKey> {
        let comm = self.communicator_of(key)?;
        match self.table.get_mut(key) {
            Some(running) if matches!(running.stage, Stage::Active(_)) => running.detached = true,
            _ => self.forget(key),
        }
        Some(comm)
    }

    fn forget(&mut self, key: Key) {
        self.lifecycle_check.release(key);
        self.table.remove(key);
    }
}

/// Makes progress on one schedule; what came of it, if it is over.
fn progress<N: Btl, R: Runtime>(
    comm: CommKey,
    active: &mut Active,
    context: &mut Context<'_, N, R>,
) -> Option<Ended> {
    let channel = context.communicators.get(comm)?.collective();
    let mut channel = CollectiveChannel::new(context.layers, context.ends, channel, active.tag);
    let result = active.schedule.progress(&mut channel)?;
    if let Err(mend_pml::Error::PeerLeft(_) | mend_pml::Error::PeerFreed(_)) = result {
        let query = active.query.get_or_insert_with(|| LivenessQuery::begin(comm, context));
        if !query.is_answered(context.funnel) {
            return None;
        }
    }
    Some(conclude(comm, active.creation.as_ref(), result, context))
}

/// The end of every operation: what came of it.
fn conclude<N: Btl, R: Runtime>(
    comm: CommKey,
    creation: Option<&PendingCreation>,
    result: Result<(), mend_pml::Error>,
    context: &mut Context<'_, N, R>,
) -> Ended {
    let Context { layers, communicators, ends, .. } = context;
    let made = match (result, creation) {
        (Ok(()), None) => Ok(None),
        (Ok(()), Some(creation)) => communicators.commit(comm, creation, ends, layers),
        (Err(error), creation) => {
            creation.into_iter().for_each(|creation| communicators.roll_back(comm, creation, layers));
            Err(Error::from(error))
        }
    };
    communicators.end_operation(comm, layers);
    match made {
        Ok(created) => (Ok(Status::EMPTY), created),
        Err(error) => (Err(error), None),
    }
}
