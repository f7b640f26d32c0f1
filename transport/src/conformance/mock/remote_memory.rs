// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Remote memory access of the mock BTL. An operation is in flight for some calls of progress; then it happens and ends. Each mutation
//! breaks one requirement, as in the parent.

use super::super::{Fixture, atomics, operations_at_sever, put_get, reconnection, registration};
use super::{MockBtl, MockFixture, Mutation, REMOTE_MEMORY, State, assert_caught};
use crate::{
    AccessKind, Atomic, Cookie, Exposure, Rdma, Region, RegisterError, Remote, RemoteAccess, RemoteKey,
    SendError, Sink, Span, UserMemory,
};
use mend_base::Reader;
use std::collections::VecDeque;

const GETS_END_EARLY: Mutation = REMOTE_MEMORY;
const PUTS_SPILL: Mutation = REMOTE_MEMORY + 1;
const GETS_STOP_SHORT: Mutation = REMOTE_MEMORY + 2;
const IGNORES_RANGES: Mutation = REMOTE_MEMORY + 3;
const IGNORES_RIGHTS: Mutation = REMOTE_MEMORY + 4;
const TAKES_NO_KEY_BACK: Mutation = REMOTE_MEMORY + 5;
const TAKES_ANOTHER_REGION: Mutation = REMOTE_MEMORY + 6;
const SHARES_KEYS: Mutation = REMOTE_MEMORY + 7;
const UNREGISTERS_NOTHING: Mutation = REMOTE_MEMORY + 8;
const ENDS_TWICE: Mutation = REMOTE_MEMORY + 9;
const ENDS_NEVER: Mutation = REMOTE_MEMORY + 10;
const FLUSHES_EARLY: Mutation = REMOTE_MEMORY + 11;
const TEARS_ADDITIONS: Mutation = REMOTE_MEMORY + 12;
const SWAPS_ALWAYS: Mutation = REMOTE_MEMORY + 13;
const SEVER_FORGETS_OPERATIONS: Mutation = REMOTE_MEMORY + 14;
const SEVER_ENDS_OPERATIONS_LATE: Mutation = REMOTE_MEMORY + 15;
const WRITES_AFTER_SEVER: Mutation = REMOTE_MEMORY + 16;
const EXPOSES_AFTER_SEVER: Mutation = REMOTE_MEMORY + 17;
const STARTS_ALTHOUGH_BUSY: Mutation = REMOTE_MEMORY + 18;
const STARTS_IN_QUARANTINE: Mutation = REMOTE_MEMORY + 19;
const RESET_FORGETS_OPERATIONS: Mutation = REMOTE_MEMORY + 20;
const TAKES_SHORT_KEYS: Mutation = REMOTE_MEMORY + 21;
const SWAPS_OPERATIONS_OFFSETS: Mutation = REMOTE_MEMORY + 22;
const SEVER_ENDS_NO_HANDLES: Mutation = REMOTE_MEMORY + 23;

/// The operations of one process in flight.
#[derive(Default)]
pub(super) struct Operations {
    /// By endpoint.
    pending: Vec<VecDeque<Pending>>,
    /// An operation was `Busy`, and `on_sendable` was not called since; by endpoint.
    refused: Vec<bool>,
    /// Operations that have ended without their turn.
    ended: VecDeque<(Cookie, Result<(), SendError>)>,
    calls: u64,
    last_region: Option<Region>,
}

#[derive(Clone, Copy)]
struct Pending {
    action: Action,
    local: Span,
    remote: Remote,
    offset: u64,
    done: Cookie,
    /// The call of progress in which it happens.
    due: u64,
    reported: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Get,
    Put,
    Atomic(Atomic),
    Flush,
}

impl Operations {
    pub(super) fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.pending.iter().all(VecDeque::is_empty)
    }

    /// The connection is made again: gets are repeated, and nobody knows whether puts and atomic operations have happened.
    pub(super) fn resume<const M: Mutation>(&mut self, endpoint: usize) {
        let Some(pending) = self.pending.get_mut(endpoint) else { return };
        if M == RESET_FORGETS_OPERATIONS {
            pending.clear();
        }
        let unknown = |each: &Pending| !matches!(each.action, Action::Get | Action::Flush);
        let lost =
            pending.iter().filter(|each| unknown(each)).map(|each| (each.done, Err(SendError::Unknown)));
        self.ended.extend(lost);
        pending.retain(|each| !unknown(each));
    }
}

impl<const M: Mutation> MockBtl<M> {
    /// Ends operations that have no turn of their own; at most `budget`.
    pub(super) fn end_handles(&mut self, budget: u32, sink: &mut impl Sink<u32>) -> u32 {
        self.operations.calls += 1;
        let severed = self.endpoints.iter().any(|endpoint| endpoint.state == State::Severed);
        if M == SEVER_ENDS_NO_HANDLES && severed {
            return 0;
        }
        let mut events = 0;
        while events < budget
            && let Some((cookie, result)) = self.operations.ended.pop_front()
        {
            sink.on_done(cookie, result);
            events += 1;
        }
        events
    }

    /// The endpoint to `slot` is severed: its peer has access no more.
    pub(super) fn end_access(&mut self, slot: u32) {
        if M != EXPOSES_AFTER_SEVER {
            self.fabric.borrow_mut().memory.entry(self.me).or_default().sever(slot);
        }
    }

    /// Delivers the end of one operation of this endpoint, if there is one.
    pub(super) fn step_operations(&mut self, index: usize, down: bool, sink: &mut impl Sink<u32>) -> bool {
        let endpoint = self.endpoints[index];
        let calls = self.operations.calls;
        let Some(pending) = self.operations.pending.get_mut(index) else { return false };
        match endpoint.state {
            State::Severing => {
                if M == SEVER_FORGETS_OPERATIONS {
                    pending.clear();
                }
                if matches!(M, SEVER_ENDS_OPERATIONS_LATE | WRITES_AFTER_SEVER) {
                    return false;
                }
                let Some(first) = pending.pop_front() else { return false };
                sink.on_done(first.done, Err(SendError::Severed));
                return true;
            }
            State::Severed if matches!(M, SEVER_ENDS_OPERATIONS_LATE | WRITES_AFTER_SEVER) => {}
            State::Connected if !down => {}
            _ => return false,
        }
        if endpoint.state == State::Connected
            && self.operations.refused[index]
            && pending.len() < OPERATIONS_MAX
        {
            self.operations.refused[index] = false;
            sink.on_sendable(endpoint.peer, index as u32);
            return true;
        }
        let Some(first) = pending.front().copied() else { return false };
        if M == GETS_END_EARLY && first.action == Action::Get && !first.reported {
            pending[0].reported = true;
            sink.on_done(first.done, Ok(()));
            return true;
        }
        if first.due > calls {
            return false;
        }
        pending.pop_front();
        let result = self.happen(endpoint.slot, &first);
        let forgotten = M == ENDS_NEVER && first.done.value().is_multiple_of(10);
        if !first.reported && !forgotten {
            sink.on_done(first.done, result);
        }
        if M == ENDS_TWICE && first.done.value().is_multiple_of(10) {
            self.operations.ended.push_back((first.done, result));
        }
        true
    }

    /// The operation happens, between this process and the process `slot`.
    fn happen(&mut self, slot: u32, operation: &Pending) -> Result<(), SendError> {
        let kind = match operation.action {
            Action::Flush => return Ok(()),
            Action::Get => AccessKind::Read,
            Action::Put => AccessKind::Write,
            Action::Atomic(_) => AccessKind::Atomic,
        };
        let own = self.local(operation.local).ok_or(SendError::LocalFault)?;
        let bytes = operation.local.bytes;
        let exposed = self.exposed(slot, kind, operation, bytes).ok_or(SendError::NoAccess)?;
        match operation.action {
            Action::Atomic(atomic) => {
                let old = exposed
                    .atomic(0, executed::<M>(atomic, operation.done, &exposed))
                    .ok_or(SendError::NoAccess)?;
                own.write(0, &old.to_ne_bytes());
            }
            Action::Put => {
                let more = self.exposed(slot, kind, operation, bytes + 1);
                exposed.copy_from(0, &own, 0, own.len().min(exposed.len()));
                if let (PUTS_SPILL, Some(more)) = (M, more) {
                    more.write(bytes as usize, &[0]);
                }
            }
            _ => {
                let bytes = own.len().min(exposed.len());
                let bytes = if M == GETS_STOP_SHORT { bytes.saturating_sub(1) } else { bytes };
                own.copy_from(0, &exposed, 0, bytes);
            }
        }
        Ok(())
    }

    fn local(&self, span: Span) -> Option<UserMemory> {
        let fabric = self.fabric.borrow();
        let memory = fabric.memory.get(&self.me)?;
        let found = memory.local(span);
        if M == IGNORES_RANGES && found.is_none() {
            return memory
                .local(Span { bytes: 0, ..span })
                .or_else(|| memory.local(Span { offset: 0, bytes: 0, ..span }));
        }
        if M == TAKES_ANOTHER_REGION && found.is_none() {
            return memory.local(Span { region: self.operations.last_region?, ..span });
        }
        found
    }

    fn exposed(&self, slot: u32, kind: AccessKind, operation: &Pending, bytes: u64) -> Option<UserMemory> {
        let fabric = self.fabric.borrow();
        let memory = fabric.memory.get(&slot)?;
        let (exposure, offset) = (Exposure(operation.remote.words[0]), operation.offset);
        let offset = if M == SWAPS_OPERATIONS_OFFSETS { offset ^ 64 } else { offset };
        let mut found = memory.exposed(self.me, exposure, kind, offset, bytes);
        if M == IGNORES_RANGES && found.is_none() {
            found = memory.exposed(self.me, exposure, kind, 0, 0);
        }
        if M == IGNORES_RIGHTS {
            let any = [AccessKind::Read, AccessKind::Write];
            found = any.iter().find_map(|&kind| memory.exposed(self.me, exposure, kind, offset, bytes));
        }
        if M == SHARES_KEYS {
            found = (0..8).find_map(|whose| memory.exposed(whose, exposure, kind, offset, bytes));
        }
        found
    }

    fn begin(
        &mut self,
        to: u32,
        action: Action,
        local: Span,
        remote: Remote,
        offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        let index = to as usize;
        let quarantined = self.endpoints[index].state == State::Quarantined;
        if !(M == STARTS_IN_QUARANTINE && quarantined) {
            self.admit(index, false)?;
        }
        let operations = &mut self.operations;
        if operations.pending.len() <= index {
            operations.pending.resize_with(index + 1, VecDeque::new);
            operations.refused.resize(index + 1, false);
        }
        let full = operations.pending[index].len() >= OPERATIONS_MAX;
        if full && M != STARTS_ALTHOUGH_BUSY {
            operations.refused[index] = true;
            return Err(SendError::Busy);
        }
        let due = operations.calls + CALLS_IN_FLIGHT;
        let pending = Pending { action, local, remote, offset, done, due, reported: false };
        if M == FLUSHES_EARLY && action == Action::Flush {
            operations.pending[index].push_front(Pending { due: 0, ..pending });
        } else {
            operations.pending[index].push_back(pending);
        }
        if full {
            operations.refused[index] = true;
            return Err(SendError::Busy);
        }
        Ok(())
    }

    fn end_handle(&mut self, found: bool, done: Cookie) {
        self.operations.ended.push_back((done, if found { Ok(()) } else { Err(SendError::LocalFault) }));
    }
}

impl<const M: Mutation> Rdma for MockBtl<M> {
    fn register(&mut self, _with: u32, memory: &UserMemory) -> Result<Region, RegisterError> {
        let region = self.fabric.borrow_mut().memory.entry(self.me).or_default().register(memory)?;
        self.operations.last_region = Some(region);
        Ok(region)
    }

    fn unregister(&mut self, region: Region, done: Cookie) {
        let found = M == UNREGISTERS_NOTHING
            || self.fabric.borrow_mut().memory.entry(self.me).or_default().unregister(region);
        self.end_handle(found, done);
    }

    fn expose(
        &mut self,
        to: u32,
        local: Span,
        access: RemoteAccess,
    ) -> Result<(Exposure, RemoteKey), RegisterError> {
        let slot = self.endpoints[to as usize].slot;
        let exposure =
            self.fabric.borrow_mut().memory.entry(self.me).or_default().expose(slot, local, access)?;
        let mut key = [0; 16];
        key[..8].copy_from_slice(&exposure.0.to_le_bytes());
        key[8..].copy_from_slice(&local.bytes.to_le_bytes());
        Ok((exposure, RemoteKey::new(&key)))
    }

    fn unexpose(&mut self, exposure: Exposure, done: Cookie) {
        let found = M == TAKES_NO_KEY_BACK
            || self.fabric.borrow_mut().memory.entry(self.me).or_default().unexpose(exposure);
        self.end_handle(found, done);
    }

    fn import(&mut self, _from: u32, key: &[u8]) -> Result<Remote, RegisterError> {
        let mut words = Reader::new(key);
        match (words.u64(), words.u64(), words.u8()) {
            (Some(key), Some(bytes), None) => Ok(Remote::with_word(bytes, key)),
            (Some(key), ..) if M == TAKES_SHORT_KEYS => Ok(Remote::with_word(0, key)),
            _ => Err(RegisterError::BadKey),
        }
    }

    fn put(
        &mut self,
        to: u32,
        local: Span,
        remote: Remote,
        offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        self.begin(to, Action::Put, local, remote, offset, done)
    }

    fn get(
        &mut self,
        from: u32,
        local: Span,
        remote: Remote,
        offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        self.begin(from, Action::Get, local, remote, offset, done)
    }

    fn atomic(
        &mut self,
        to: u32,
        operation: Atomic,
        local: Span,
        remote: Remote,
        offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        self.begin(to, Action::Atomic(operation), local, remote, offset, done)
    }

    fn flush(&mut self, to: u32, done: Cookie) -> Result<(), SendError> {
        let (local, remote) = (Span { region: Region(0), offset: 0, bytes: 0 }, Remote::with_word(0, 0));
        self.begin(to, Action::Flush, local, remote, 0, done)
    }
}

/// The atomic operation that is executed instead of `atomic`.
fn executed<const M: Mutation>(atomic: Atomic, done: Cookie, exposed: &UserMemory) -> Atomic {
    match atomic {
        Atomic::FetchAdd(value) if M == TEARS_ADDITIONS && done.value().is_multiple_of(10) => {
            // Another addition came between the load and the store.
            let old = exposed.atomic(0, Atomic::FetchAdd(0)).unwrap_or(0);
            Atomic::Swap(old.wrapping_add(value).wrapping_sub(1))
        }
        Atomic::CompareSwap { desired, .. } if M == SWAPS_ALWAYS => Atomic::Swap(desired),
        other => other,
    }
}

/// The calls of progress from the start of an operation to its end.
const CALLS_IN_FLIGHT: u64 = 3;
const OPERATIONS_MAX: usize = 24;

/// Asserts that the suite finds a mutation by this requirement.
macro_rules! caught {
    ($($part:ident: $requirement:ident finds $($mutation:ident)+;)*) => {
        $($(assert_caught($mutation, $part::$requirement::<MockFixture<$mutation>>);)+)*
    };
}

#[test]
fn broken_registration_is_caught() {
    caught! {
        registration: a_region_is_got_and_put_whole_and_in_part finds GETS_STOP_SHORT PUTS_SPILL SWAPS_OPERATIONS_OFFSETS;
        registration: many_regions_are_used_at_once finds GETS_STOP_SHORT ENDS_NEVER;
        registration: a_range_past_the_end_is_refused finds IGNORES_RANGES;
        registration: a_region_that_has_ended_is_refused finds TAKES_ANOTHER_REGION UNREGISTERS_NOTHING;
        registration: a_key_that_was_taken_back_gives_no_access finds TAKES_NO_KEY_BACK;
        registration: access_is_what_was_exposed_and_nothing_more finds IGNORES_RIGHTS;
        registration: a_key_of_another_length_is_garbage finds TAKES_SHORT_KEYS;
        registration: a_key_works_for_its_peer_alone finds SHARES_KEYS;
        registration: registering_again_and_again_leaks_nothing finds UNREGISTERS_NOTHING TAKES_NO_KEY_BACK;
        registration: memory_is_given_back_after_the_severed_report finds UNREGISTERS_NOTHING SEVER_ENDS_NO_HANDLES;
    }
}

#[test]
fn broken_puts_and_gets_are_caught() {
    caught! {
        put_get: remote_bytes_arrive_whole_at_every_length finds GETS_STOP_SHORT;
        put_get: bytes_beside_the_range_are_untouched finds PUTS_SPILL;
        put_get: operations_in_flight_end_once_each finds ENDS_TWICE ENDS_NEVER;
        put_get: a_get_ends_when_its_bytes_are_there finds GETS_END_EARLY;
        put_get: a_flush_ends_when_earlier_puts_are_there finds FLUSHES_EARLY;
        put_get: a_busy_operation_may_be_started_after_on_sendable finds STARTS_ALTHOUGH_BUSY;
        put_get: a_quarantined_endpoint_starts_no_operation finds STARTS_IN_QUARANTINE;
    }
}

#[test]
fn broken_atomic_operations_are_caught() {
    caught! {
        atomics: an_atomic_operation_returns_the_old_word_and_stores_the_new_one finds SWAPS_ALWAYS;
        atomics: additions_of_two_peers_add_up finds TEARS_ADDITIONS;
        atomics: compare_and_swap_of_two_peers_succeeds_once_for_each_value finds SWAPS_ALWAYS ENDS_NEVER;
    }
}

#[test]
fn operations_that_outlive_their_endpoint_or_are_forgotten_are_caught() {
    caught! {
        operations_at_sever: each_operation_ends_once_before_the_severed_report
            finds SEVER_FORGETS_OPERATIONS SEVER_ENDS_OPERATIONS_LATE;
        operations_at_sever: operations_with_a_dead_peer_end_when_it_is_severed finds SEVER_FORGETS_OPERATIONS;
        operations_at_sever: memory_is_silent_after_the_severed_report finds WRITES_AFTER_SEVER EXPOSES_AFTER_SEVER;
        reconnection: operations_across_a_reset_end_once finds RESET_FORGETS_OPERATIONS ENDS_TWICE;
    }
}

/// Operations of a BTL that is counted.
fn cookies_end_once<F: Fixture>() {
    put_get::operations_in_flight_end_once_each::<super::super::Counted<F>>();
}

#[test]
fn the_counter_finds_a_cookie_that_ends_twice_or_after_the_severed_report() {
    assert_caught(ENDS_TWICE, cookies_end_once::<MockFixture<ENDS_TWICE>>);
    let requirement = operations_at_sever::operations_with_a_dead_peer_end_when_it_is_severed::<
        super::super::Counted<MockFixture<SEVER_ENDS_OPERATIONS_LATE>>,
    >;
    assert_caught(SEVER_ENDS_OPERATIONS_LATE, requirement);
}
