// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collective operations that run: each is a schedule (`mend-coll`) on the collective context of its communicator, so
//! that its messages never match receives of the program. The exchange of a creation ([`crate::creations`]) is one of them.
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
//! So results differ between members (Row CO3); whether all have succeeded can be found out by an agreement (MPIX_Comm_agree).
//!
//! A part of the engine: it owns the operations. Each call borrows the [`Parts`], and starts sends and receives at the PML, which
//! counts the operations of each channel.

mod channel;
mod liveness_query;

use crate::communicator::{CommEntry, Communicators};
use crate::layers::Layers;
use crate::operation_table::OperationTable;
use crate::peer_reports::PeerReports;
use crate::{CommKey, Detail, Error};
use channel::CollectiveChannel;
pub(crate) use liveness_query::{LivenessQuery, ask_again};
use mend_base::{Key, PeerIndex, Rank, Tag};
use mend_coll::Schedule;
use mend_pml::{Channel, End, Ends, Lent, Status};
use mend_runtime::Runtime;
use mend_transport::Rdma;

/// The other parts of the engine that operations use, borrowed during a call.
pub(crate) struct Parts<'a, N: Rdma, R> {
    pub layers: &'a mut Layers<N, R>,
    pub communicators: &'a mut Communicators,
    pub peer_reports: &'a mut PeerReports<N::Endpoint>,
    pub ends: &'a Ends,
}

/// The result of the start of an operation.
pub(crate) enum Begun {
    /// The operation is over; it has no request.
    Done(Status),
    /// The operation has a request.
    Running(Key),
}

/// An operation that runs.
#[derive(Debug)]
pub(crate) struct Active {
    schedule: Schedule,
    /// That of the context on which it runs.
    channel: Channel,
    /// The number of the operation on its context, which distinguishes its messages from those of other operations.
    tag: Tag,
    /// The schedule has ended with an error whose cause may be a failure that is not published here: the operation ends when the query is
    /// answered.
    query: Option<LivenessQuery>,
    /// The members that still expect messages were poisoned.
    given_up: bool,
    /// Its communicator was revoked while it ran: it ends with that.
    revoked: bool,
}

/// Collective operations that are not released.
#[derive(Debug, Default)]
pub(crate) struct Collectives {
    operations: OperationTable<Active>,
    /// The operations that run, which progress polls.
    active: Vec<Key>,
}

impl Collectives {
    // Hot: per progress.
    /// Whether no operation runs.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// The operations.
    pub fn operations(&self) -> &OperationTable<Active> {
        &self.operations
    }

    /// The operations, to be changed.
    pub fn operations_mut(&mut self) -> &mut OperationTable<Active> {
        &mut self.operations
    }

    /// The requests for which the operation waits in its present round.
    pub fn awaited_by(&self, key: Key) -> impl Iterator<Item = mend_pml::Request> {
        self.operations.running(key).into_iter().flat_map(|active| active.schedule.awaited())
    }

    /// Starts an operation of `comm` on one of its contexts. All members start the same ones on a context in the same order (MPI-5.0
    /// §6.1).
    pub fn start<N: Rdma, R: Runtime>(
        &mut self,
        comm: CommKey,
        channel: Channel,
        schedule: Result<Schedule, mend_coll::Error>,
        parts: &mut Parts<'_, N, R>,
    ) -> Result<Begun, Error> {
        let entry = parts.communicators.valid(comm)?;
        if entry.is_revoked() && channel == entry.collective() {
            return Err(Error::of(Detail::Revoked));
        }
        let size = entry.members().len() as u32;
        if let Some(failed) = parts.layers.pml.broken_by(channel) {
            refuse(channel, size, schedule, parts);
            return Err(Error::of(Detail::ProcFailed(failed)));
        }
        let schedule = match schedule {
            // The other members start this operation all the same.
            Err(mend_coll::Error::NoMemory) => return Err(not_started(channel, size, parts)),
            schedule => schedule?,
        };
        // The entries are reserved before anything is sent: after that the operation must not fail for lack of memory.
        if !mend_base::reserve(&mut self.active, 1) {
            return Err(not_started(channel, size, parts));
        }
        let Some(tag) = parts.layers.pml.begin_operation(channel) else {
            return Err(not_started(channel, size, parts));
        };
        let active = Active { schedule, channel, tag, query: None, given_up: false, revoked: false };
        let Ok(key) = self.operations.begin(comm, active) else {
            parts.layers.pml.end_operation(channel, tag);
            return Err(poison_all(channel, tag, size, parts));
        };
        parts.communicators.get_mut(comm).into_iter().for_each(CommEntry::begin_operation);
        let active = self.operations.running_mut(key).expect("it has just begun");
        match progress(comm, active, parts) {
            Some(result) => {
                self.operations.end(key, (result, None));
                self.operations.release(key);
                result.map(Begun::Done)
            }
            None => {
                self.active.push(key);
                Ok(Begun::Running(key))
            }
        }
    }

    /// This member cannot start an operation that the others start: they are poisoned. Returns the error.
    pub fn skip<N: Rdma, R: Runtime>(comm: CommKey, parts: &mut Parts<'_, N, R>) -> Error {
        let entry = parts.communicators.get(comm).map(|entry| (entry.collective(), entry.members().len()));
        match entry {
            Some((channel, size)) => not_started(channel, size as u32, parts),
            None => Error::of(Detail::NoSuchCommunicator),
        }
    }

    /// Makes progress on all operations that run. Returns how many ended.
    pub fn progress<N: Rdma, R: Runtime>(&mut self, parts: &mut Parts<'_, N, R>) -> u32 {
        self.end_some(|comm, active| progress(comm, active, parts))
    }

    /// A step of publishing a failure, after the requests: ends the operations that need the failed member. Those that do not go on.
    /// Point-to-point messages on these communicators go on (Row CO12), and so do operations on others (Row CO5).
    pub fn on_death<N: Rdma, R: Runtime>(&mut self, dead: PeerIndex, parts: &mut Parts<'_, N, R>) {
        self.end_some(|comm, active| {
            let entry = parts.communicators.get(comm)?;
            let rank = entry.rank_of(dead)?;
            let mut channel = CollectiveChannel::new(parts.layers, parts.ends, active.channel, active.tag);
            active.schedule.on_death(&mut channel, rank, mend_pml::Error::ProcFailed(rank));
            let ended = progress(comm, active, parts);
            match ended {
                Some(Err(_)) => mend_base::reach!("mpi.collective: interrupted"),
                _ => mend_base::reach!("mpi.collective: goes on without the dead"),
            }
            ended
        });
    }

    /// The communicator is revoked: ends all operations on its collective context (Row CO6).
    pub fn revoke<N: Rdma, R: Runtime>(&mut self, revoked: CommKey, parts: &mut Parts<'_, N, R>) {
        self.end_some(|comm, active| {
            let entry = parts.communicators.get(comm).filter(|_| comm == revoked)?;
            let channel = active.channel;
            if channel != entry.collective() {
                return None;
            }
            mend_base::reach!("mpi.collective: revoked");
            let error = mend_pml::Error::Revoked;
            let mut channel = CollectiveChannel::new(parts.layers, parts.ends, channel, active.tag);
            active.schedule.interrupt(&mut channel, error);
            // The revocation reaches the others: they need no poison.
            give_up(active, None, false, parts);
            active.revoked = true;
            progress(comm, active, parts)
        });
    }

    /// Ends an operation that has no request of the program, before it is over, and releases it. `poisons`: members that expect messages
    /// of it are told; otherwise they learn it in another way.
    pub fn give_up<N: Rdma, R: Runtime>(&mut self, key: Key, poisons: bool, parts: &mut Parts<'_, N, R>) {
        let Some(comm) = self.operations.comm_of(key) else { return };
        let Some(active) = self.operations.running_mut(key) else { return };
        let mut channel = CollectiveChannel::new(parts.layers, parts.ends, active.channel, active.tag);
        active.schedule.interrupt(&mut channel, mend_pml::Error::Revoked);
        give_up(active, None, poisons, parts);
        end_at_pml(active, parts);
        parts.communicators.end_operation(comm, parts.layers);
        self.active.retain(|active| *active != key);
        self.operations.end(key, (Ok(Status::EMPTY), None));
        self.operations.release(key);
    }

    /// Ends the running operations for which `step` returns a result. Returns how many.
    fn end_some(
        &mut self,
        mut step: impl FnMut(CommKey, &mut Active) -> Option<Result<Status, Error>>,
    ) -> u32 {
        let before = self.active.len();
        let mut active = core::mem::take(&mut self.active);
        active.retain(|&key| {
            let Some(comm) = self.operations.comm_of(key) else { return false };
            let Some(running) = self.operations.running_mut(key) else { return false };
            let Some(result) = step(comm, running) else { return true };
            self.operations.end(key, (result, None));
            false
        });
        self.active = active;
        (before - self.active.len()) as u32
    }

    /// The runtime has answered that a peer lives: this answers queries, or makes them ask again.
    pub fn on_alive<N: Rdma, R: Runtime>(&mut self, member: PeerIndex, parts: &mut Parts<'_, N, R>) {
        let mut again = false;
        for key in &self.active {
            if let Some(Active { query: Some(query), .. }) = self.operations.running_mut(*key) {
                again |= query.on_alive(member);
            }
        }
        if again {
            ask_again(member, parts);
        }
    }
}

/// Makes progress on one operation. Returns its result if it is over.
fn progress<N: Rdma, R: Runtime>(
    comm: CommKey,
    active: &mut Active,
    parts: &mut Parts<'_, N, R>,
) -> Option<Result<Status, Error>> {
    let mut messages = CollectiveChannel::new(parts.layers, parts.ends, active.channel, active.tag);
    let result = match active.schedule.progress(&mut messages)? {
        _ if active.revoked => Err(mend_pml::Error::Revoked),
        Ok(()) => Ok(()),
        Err(error @ mend_pml::Error::Truncated(_)) => Err(error),
        Err(error) => Err(settle(comm, active, error, parts)?),
    };
    end_at_pml(active, parts);
    Some(conclude(comm, result, parts))
}

/// Gives an operation up whose schedule has ended with `error`. Returns the error of the operation; `None` while it may have a cause that
/// is not published here (I2).
#[cold]
fn settle<N: Rdma, R: Runtime>(
    comm: CommKey,
    active: &mut Active,
    error: mend_pml::Error,
    parts: &mut Parts<'_, N, R>,
) -> Option<mend_pml::Error> {
    use mend_pml::Error::{PeerFreed, PeerLeft, Poisoned, ProcFailed};
    let (channel, me) = (active.channel, parts.communicators.get(comm)?.communicator().rank_in_union());
    let is_answered = |active: &Active, parts: &Parts<'_, N, R>| match &active.query {
        Some(query) => query.is_answered(parts.peer_reports),
        None => true,
    };
    let published = parts.layers.pml.broken_by(channel);
    match (error, published) {
        (ProcFailed(_), _) => {}
        (Poisoned { failed: Some(failed), .. }, _) if failed != me => {
            // The others need not wait for the answer.
            give_up(active, Some(failed), true, parts);
            let member = *parts.communicators.get(comm)?.members().get(failed.index())?;
            if parts.ends.of(member) == Some(End::Failed) {
                return Some(ProcFailed(failed));
            }
            if published.is_none() && active.query.is_none() {
                active.query = Some(LivenessQuery::about(member, parts));
            }
        }
        // A member that gave up a receive before it knew why names no cause.
        (PeerLeft(_) | PeerFreed(_) | Poisoned { failed: None, .. }, None) if active.query.is_none() => {
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
    give_up(active, failed, error != mend_pml::Error::Revoked, parts);
    Some(error)
}

/// The PML takes no message of the operation any more. The members that still expect messages of it are poisoned, once, if `poisons`.
fn give_up<N: Rdma, R>(
    active: &mut Active,
    failed: Option<Rank>,
    poisons: bool,
    parts: &mut Parts<'_, N, R>,
) {
    if core::mem::replace(&mut active.given_up, true) {
        return;
    }
    let Layers { net, pml, .. } = &mut *parts.layers;
    let owed = active.schedule.owed().filter(|_| poisons);
    pml.give_up_operation(Lent { net, ends: parts.ends }, active.channel, active.tag, failed, owed);
}

/// The operation is over for the PML.
fn end_at_pml<N: Rdma, R>(active: &Active, parts: &mut Parts<'_, N, R>) {
    parts.layers.pml.end_operation(active.channel, active.tag);
}

/// A member has failed, so an operation is not started, and no later one will be: the members that expect messages of it are poisoned.
#[cold]
fn refuse<N: Rdma, R>(
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
fn not_started<N: Rdma, R>(channel: Channel, size: u32, parts: &mut Parts<'_, N, R>) -> Error {
    mend_base::reach!("mpi.collective: no memory");
    let tag = parts.layers.pml.skip_operation(channel);
    poison_all(channel, tag, size, parts)
}

fn poison_all<N: Rdma, R>(channel: Channel, tag: Tag, size: u32, parts: &mut Parts<'_, N, R>) -> Error {
    let Layers { net, pml, .. } = &mut *parts.layers;
    pml.give_up_operation(Lent { net, ends: parts.ends }, channel, tag, None, (0..size).map(Rank));
    Error::of(Detail::NoMemory)
}

/// Ends an operation, and returns its result.
fn conclude<N: Rdma, R: Runtime>(
    comm: CommKey,
    result: Result<(), mend_pml::Error>,
    parts: &mut Parts<'_, N, R>,
) -> Result<Status, Error> {
    parts.communicators.end_operation(comm, parts.layers);
    result.map(|()| Status::EMPTY).map_err(Error::from)
}
