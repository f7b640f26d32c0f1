// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collective operations that run: each is a schedule (`mend-coll`) on the collective context of its communicator, so
//! that its messages never match receives of the program. The creation of a communicator is a collective operation too.
//!
//! ```text
//!            start: progress once
//!        ┌──────────────────────▶ over (no request); an error if a member has failed
//! start ─┤
//!        └─▶ active ── progress ─▶ done ── release ──▶ released
//!              ├─── a message of the dead is needed, or poison comes ──▶ given up: others are poisoned ──▶ done, in error
//!              ├─── a member has left, or freed the communicator ──▶ query about all ──▶ given up, the same
//!              └─── release ──▶ removed as soon as it is done
//! ```
//!
//! An operation ends in error only if it needs what does not come (design "Interrupted collectives"): a message of a failed member, or of
//! one that gave the operation up. It then poisons the members that still expect its messages, so these end in turn; the others succeed.
//! So results differ between members (Row CO3), and a communicator may be created at some members only. Such a communicator has a
//! failed member, so it is of use for point-to-point messages only. A member that has not created it refuses these messages as soon
//! as it knows the identity, or else when it finalizes. Freeing the communicator is local. Whether all members have created it can be
//! found out only by an agreement (MPIX_Comm_agree, not implemented yet).
//!
//! A part of the engine: it owns the operations. Each call borrows the [`Parts`], and starts sends and receives at the PML, which
//! counts the operations of each channel.

mod channel;
mod liveness_query;

use crate::communicator::{CommEntry, Communicators, PendingCreation};
use crate::layers::Layers;
use crate::peer_reports::PeerReports;
use crate::request::no_such_request;
use crate::{CommKey, Detail, Error, State};
use channel::CollectiveChannel;
use liveness_query::LivenessQuery;
use mend_base::{Key, LifecycleCheck, LifecycleCounts, PeerIndex, Rank, Slab, Tag};
use mend_coll::{Collective, Schedule};
use mend_pml::{Channel, End, Ends, Lent, SleeperId, Status};
use mend_runtime::Runtime;
use mend_transport::Btl;

/// The other parts of the engine that operations use, borrowed during a call.
pub(crate) struct Parts<'a, N: Btl, R> {
    pub layers: &'a mut Layers<N, R>,
    pub communicators: &'a mut Communicators,
    pub peer_reports: &'a mut PeerReports<N::Endpoint>,
    pub ends: &'a Ends,
}

/// The result of an operation, and the communicator that it created.
type Ended = (Result<Status, Error>, Option<CommKey>);

/// The result of the start of an operation.
pub(crate) enum Begun {
    /// The operation is over; it has no request.
    Done(Status),
    /// The operation has a request: it runs, or it is a creation, whose communicator the caller must take.
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
    Done(Result<Status, Error>, Option<CommKey>),
}

#[derive(Debug)]
struct Active {
    schedule: Schedule,
    /// The number of the operation on its communicator, which distinguishes its messages from those of other operations.
    tag: Tag,
    creation: Option<PendingCreation>,
    /// The schedule has ended with an error whose cause may be a failure that is not published here: the operation ends when the query is
    /// answered.
    query: Option<LivenessQuery>,
    /// The members that still expect messages were poisoned.
    given_up: bool,
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
        let is_over = |running: &Running| matches!(running.stage, Stage::Done(..));
        self.lifecycle_check.assert_agrees(self.table.iter().map(|(key, running)| (key, is_over(running))));
        self.lifecycle_check.counts()
    }

    /// The requests for which the operation waits in its present round.
    pub fn awaited_by(&self, key: Key) -> impl Iterator<Item = mend_pml::Request> {
        let active = match self.table.get(key).map(|running| &running.stage) {
            Some(Stage::Active(active)) => Some(active),
            _ => None,
        };
        active.into_iter().flat_map(|active| active.schedule.awaited())
    }

    /// The communicator that the operation made, once it is done. `None`: this process is no member of it.
    pub fn take_created(&mut self, key: Key) -> Option<CommKey> {
        match &mut self.table.get_mut(key)?.stage {
            Stage::Active(_) => None,
            Stage::Done(_, created) => created.take(),
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
        creation: Option<PendingCreation>,
        parts: &mut Parts<'_, N, R>,
    ) -> Result<Begun, Error> {
        let entry = parts.communicators.valid(comm)?;
        if entry.is_revoked() {
            return Err(Error::of(Detail::Revoked));
        }
        let (channel, me, size) =
            (entry.collective(), entry.communicator().rank, entry.communicator().size());
        let schedule = mend_coll::schedule(me, size, call);
        if let Some(failed) = parts.layers.pml.broken_by(channel) {
            refuse(channel, size, schedule, parts);
            return Err(Error::of(Detail::ProcFailed(failed)));
        }
        let schedule = match schedule {
            // The other members start this operation all the same.
            Err(mend_coll::Error::NoMemory) => return Err(not_started(channel, size, parts)),
            schedule => schedule?,
        };
        let is_creation = creation.is_some();
        // The entries are reserved before anything is sent: after that the operation must not fail for lack of memory.
        let Some(key) = self.reserve(comm) else { return Err(not_started(channel, size, parts)) };
        let Some(tag) = parts.layers.pml.begin_operation(channel) else {
            self.table.remove(key);
            return Err(not_started(channel, size, parts));
        };
        parts.communicators.get_mut(comm).into_iter().for_each(CommEntry::begin_operation);
        let mut active = Active { schedule, tag, creation, query: None, given_up: false };
        match progress(comm, &mut active, parts) {
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

    /// Reserves the entries of an operation that has not begun. `None`: there is no memory.
    fn reserve(&mut self, comm: CommKey) -> Option<Key> {
        self.active.try_reserve(1).ok()?;
        // One sleeper for each operation of the table at most.
        self.to_wake.try_reserve(self.table.len() + 1).ok()?;
        let stage = Stage::Done(Ok(Status::EMPTY), None);
        self.table.try_insert(Running { comm, stage, detached: false, sleeper: None })
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

    /// Makes progress on all operations that run. Returns how many ended.
    pub fn progress<N: Btl, R: Runtime>(&mut self, parts: &mut Parts<'_, N, R>) -> u32 {
        self.end_some(|comm, active| progress(comm, active, parts))
    }

    /// A step of publishing a failure, after the requests: ends the operations that need the failed member. Those that do not go on.
    /// Point-to-point messages on these communicators go on (Row CO12), and so do operations on others (Row CO5).
    pub fn on_death<N: Btl, R: Runtime>(&mut self, dead: PeerIndex, parts: &mut Parts<'_, N, R>) {
        self.end_some(|comm, active| {
            let entry = parts.communicators.get(comm)?;
            let (rank, channel) = (entry.rank_of(dead)?, entry.collective());
            let mut channel = CollectiveChannel::new(parts.layers, parts.ends, channel, active.tag);
            active.schedule.on_death(&mut channel, rank, mend_pml::Error::ProcFailed(rank));
            let ended = progress(comm, active, parts);
            match ended {
                Some((Err(_), _)) => mend_base::reach!("mpi.collective: interrupted"),
                _ => mend_base::reach!("mpi.collective: goes on without the dead"),
            }
            ended
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
            // The revocation reaches the others: they need no poison.
            give_up(comm, active, None, false, parts);
            end_at_pml(comm, active, parts);
            Some(conclude(comm, active.creation.as_ref(), Err(error), parts))
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
            give_up(*comm, active, None, false, parts);
            end_at_pml(*comm, active, parts);
        }
        parts.communicators.end_operation(*comm, parts.layers);
        self.active.retain(|active| *active != key);
        self.end(key, Ok(Status::EMPTY), None);
        self.remove(key);
    }

    /// Ends the running operations for which `step` returns a result. Returns how many.
    fn end_some(&mut self, mut step: impl FnMut(CommKey, &mut Active) -> Option<Ended>) -> u32 {
        let before = self.active.len();
        let mut active = core::mem::take(&mut self.active);
        active.retain(|&key| {
            let Some(Running { comm, stage: Stage::Active(active), .. }) = self.table.get_mut(key) else {
                return false;
            };
            let Some((result, created)) = step(*comm, active) else { return true };
            self.end(key, result, created);
            false
        });
        self.active = active;
        (before - self.active.len()) as u32
    }

    /// Ends an operation with this result.
    fn end(&mut self, key: Key, result: Result<Status, Error>, created: Option<CommKey>) {
        let Some(running) = self.table.get_mut(key) else { return };
        running.stage = Stage::Done(result, created);
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
            liveness_query::ask_again(member, parts);
        }
    }

    // Hot: per poll.
    /// The state of an operation.
    pub fn poll(&self, key: Key) -> State {
        match self.table.get(key).map(|running| &running.stage) {
            None => State::Done(Err(no_such_request())),
            Some(Stage::Active(_)) => State::Running,
            Some(Stage::Done(result, _)) => State::Done(*result),
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
) -> Option<Ended> {
    let channel = parts.communicators.get(comm)?.collective();
    let mut messages = CollectiveChannel::new(parts.layers, parts.ends, channel, active.tag);
    let result = match active.schedule.progress(&mut messages)? {
        Ok(()) => Ok(()),
        Err(error @ mend_pml::Error::Truncated(_)) => Err(error),
        Err(error) => Err(settle(comm, active, error, parts)?),
    };
    end_at_pml(comm, active, parts);
    Some(conclude(comm, active.creation.as_ref(), result, parts))
}

/// Gives an operation up whose schedule has ended with `error`. Returns the error of the operation; `None` while it may have a cause that
/// is not published here (I2).
#[cold]
fn settle<N: Btl, R: Runtime>(
    comm: CommKey,
    active: &mut Active,
    error: mend_pml::Error,
    parts: &mut Parts<'_, N, R>,
) -> Option<mend_pml::Error> {
    use mend_pml::Error::{PeerFreed, PeerLeft, Poisoned, ProcFailed};
    let entry = parts.communicators.get(comm)?;
    let (channel, me) = (entry.collective(), entry.communicator().rank);
    let is_answered = |active: &Active, parts: &Parts<'_, N, R>| match &active.query {
        Some(query) => query.is_answered(parts.peer_reports),
        None => true,
    };
    let published = parts.layers.pml.broken_by(channel);
    match (error, published) {
        (ProcFailed(_), _) => {}
        (Poisoned { failed: Some(failed), .. }, _) if failed != me => {
            // The others need not wait for the answer.
            give_up(comm, active, Some(failed), true, parts);
            let member = *parts.communicators.get(comm)?.members().get(failed.index())?;
            if parts.ends.of(member) == Some(End::Failed) {
                return Some(ProcFailed(failed));
            }
            if published.is_none() && active.query.is_none() {
                active.query = Some(LivenessQuery::about(member, parts));
            }
        }
        (PeerLeft(_) | PeerFreed(_), None) if active.query.is_none() => {
            active.query = Some(LivenessQuery::begin(comm, parts));
        }
        _ => {}
    }
    // A failure that is published explains the error, whatever the transports or the other member said.
    let error = match (error, parts.layers.pml.broken_by(channel)) {
        (ProcFailed(failed), _) => ProcFailed(failed),
        (PeerLeft(_) | PeerFreed(_) | Poisoned { .. }, Some(failed)) => ProcFailed(failed),
        _ if !is_answered(active, parts) => return None,
        (Poisoned { by, .. }, None) => PeerFreed(by),
        (error, _) => error,
    };
    let failed = if let ProcFailed(failed) = error { Some(failed) } else { None };
    give_up(comm, active, failed, error != mend_pml::Error::Revoked, parts);
    Some(error)
}

/// The PML takes no message of the operation any more. The members that still expect messages of it are poisoned, once, if `poisons`.
fn give_up<N: Btl, R>(
    comm: CommKey,
    active: &mut Active,
    failed: Option<Rank>,
    poisons: bool,
    parts: &mut Parts<'_, N, R>,
) {
    let Some(entry) = parts.communicators.get(comm).filter(|_| !active.given_up) else { return };
    active.given_up = true;
    let channel = entry.collective();
    let Layers { net, pml, .. } = &mut *parts.layers;
    let owed = active.schedule.owed().filter(|_| poisons);
    pml.give_up_operation(Lent { net, ends: parts.ends }, channel, active.tag, failed, owed);
}

/// The operation is over for the PML.
fn end_at_pml<N: Btl, R>(comm: CommKey, active: &Active, parts: &mut Parts<'_, N, R>) {
    if let Some(entry) = parts.communicators.get(comm) {
        parts.layers.pml.end_operation(entry.collective(), active.tag);
    }
}

/// A member has failed, so an operation is not started, and no later one will be: the members that expect messages of it are poisoned.
#[cold]
fn refuse<N: Btl, R>(
    channel: Channel,
    size: u32,
    schedule: Result<Schedule, mend_coll::Error>,
    parts: &mut Parts<'_, N, R>,
) {
    mend_base::reach!("mpi.collective: a member had failed");
    let Layers { net, pml, .. } = &mut *parts.layers;
    let lent = Lent { net, ends: parts.ends };
    match schedule {
        Ok(schedule) => pml.refuse_operation_and_later(lent, channel, schedule.owed()),
        Err(mend_coll::Error::NoMemory) => {
            pml.refuse_operation_and_later(lent, channel, (0..size).map(Rank));
        }
        // The arguments are wrong, so the other members may start nothing.
        Err(_) => {}
    }
}

/// There is no memory for an operation: it uses up its tag, and all members are poisoned, since its schedule may not be known.
#[cold]
fn not_started<N: Btl, R>(channel: Channel, size: u32, parts: &mut Parts<'_, N, R>) -> Error {
    mend_base::reach!("mpi.collective: no memory");
    let Layers { net, pml, .. } = &mut *parts.layers;
    let tag = pml.skip_operation(channel);
    pml.give_up_operation(Lent { net, ends: parts.ends }, channel, tag, None, (0..size).map(Rank));
    Error::of(Detail::NoMemory)
}

/// Ends an operation: commits or rolls back a creation, and returns the result.
fn conclude<N: Btl, R: Runtime>(
    comm: CommKey,
    creation: Option<&PendingCreation>,
    result: Result<(), mend_pml::Error>,
    parts: &mut Parts<'_, N, R>,
) -> Ended {
    let Parts { layers, communicators, ends, .. } = parts;
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
