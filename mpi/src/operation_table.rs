// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A table of operations that have a request: each runs, ends with a result, and is released. An operation whose request is
//! released first goes on, and is removed when it ends.

use crate::request::no_such_request;
use crate::{CommKey, Detail, Error, State};
use mend_base::{Key, LifecycleCheck, LifecycleCounts, Slab};
use mend_pml::{SleeperId, Status};

/// The result of an operation, and the communicator that it created.
pub(crate) type Ended = (Result<Status, Error>, Option<CommKey>);

/// Operations that are not released; `T` is what belongs to one that runs.
#[derive(Debug)]
pub(crate) struct OperationTable<T> {
    table: Slab<Operation<T>>,
    running: usize,
    /// Checks that each entry of `table` ends once.
    lifecycle_check: LifecycleCheck,
    /// Sleepers of operations that have ended.
    to_wake: Vec<SleeperId>,
    /// An operation has ended with an error since this was asked.
    has_failed: bool,
}

#[derive(Debug)]
struct Operation<T> {
    comm: CommKey,
    stage: Stage<T>,
    /// The request was freed.
    detached: bool,
    /// The thread that sleeps until the operation is over.
    sleeper: Option<SleeperId>,
}

#[derive(Debug)]
enum Stage<T> {
    Running(T),
    Done(Ended),
}

impl<T> Default for OperationTable<T> {
    fn default() -> Self {
        OperationTable {
            table: Slab::new(),
            running: 0,
            lifecycle_check: LifecycleCheck::default(),
            to_wake: Vec::new(),
            has_failed: false,
        }
    }
}

impl<T> OperationTable<T> {
    /// Begins an operation on `comm`. Its end needs no memory.
    pub fn begin(&mut self, comm: CommKey, running: T) -> Result<Key, Error> {
        let no_memory = || Error::of(Detail::NoMemory);
        // One sleeper for each operation of the table at most.
        if !mend_base::reserve(&mut self.to_wake, self.table.len() + 1) {
            return Err(no_memory());
        }
        let operation = Operation { comm, stage: Stage::Running(running), detached: false, sleeper: None };
        let key = self.table.try_insert(operation).ok_or_else(no_memory)?;
        self.lifecycle_check.begin(key);
        self.running += 1;
        Ok(key)
    }

    /// Reserves memory for so many more operations. `false`: there is none.
    pub fn try_reserve(&mut self, count: usize) -> bool {
        // Sleepers of operations that have ended may still wait to be woken.
        self.table.try_reserve(count) && mend_base::reserve(&mut self.to_wake, 2 * (self.table.len() + count))
    }

    /// Whether an operation on this communicator is not released.
    pub fn has_on(&self, comm: CommKey) -> bool {
        self.table.iter().any(|(_, operation)| operation.comm == comm)
    }

    /// Whether an operation on this communicator runs.
    pub fn runs_on(&self, comm: CommKey) -> bool {
        self.table.iter().any(|(key, operation)| operation.comm == comm && self.running(key).is_some())
    }

    /// What belongs to an operation that runs.
    pub fn running(&self, key: Key) -> Option<&T> {
        match &self.table.get(key)?.stage {
            Stage::Running(running) => Some(running),
            Stage::Done(_) => None,
        }
    }

    /// What belongs to an operation that runs, to be changed.
    pub fn running_mut(&mut self, key: Key) -> Option<&mut T> {
        match &mut self.table.get_mut(key)?.stage {
            Stage::Running(running) => Some(running),
            Stage::Done(_) => None,
        }
    }

    /// Ends an operation that runs.
    pub fn end(&mut self, key: Key, ended: Ended) {
        let Some(operation) = self.table.get_mut(key) else { return };
        debug_assert!(matches!(operation.stage, Stage::Running(_)), "an operation ends once");
        self.has_failed |= ended.0.is_err();
        operation.stage = Stage::Done(ended);
        let detached = operation.detached;
        self.to_wake.extend(operation.sleeper.take());
        self.running -= 1;
        self.lifecycle_check.end(key);
        if detached {
            self.remove(key);
        }
    }

    /// Whether an operation has ended with an error since the last call. Then calls that wait for many look at all.
    pub fn take_failed(&mut self) -> bool {
        core::mem::take(&mut self.has_failed)
    }

    /// Whether no operation runs.
    pub fn is_idle(&self) -> bool {
        self.running == 0
    }

    /// The number of operations that are not released.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    // Hot: per poll.
    /// The state of an operation.
    pub fn poll(&self, key: Key) -> State {
        match self.table.get(key).map(|operation| &operation.stage) {
            None => State::Done(Err(no_such_request())),
            Some(Stage::Running(_)) => State::Running,
            Some(Stage::Done((result, _))) => State::Done(*result),
        }
    }

    /// The communicator that the operation created, once it is done.
    pub fn take_created(&mut self, key: Key) -> Option<CommKey> {
        match &mut self.table.get_mut(key)?.stage {
            Stage::Running(_) => None,
            Stage::Done((_, created)) => created.take(),
        }
    }

    /// The communicator of an operation that is not released.
    pub fn communicator_of(&self, key: Key) -> Option<CommKey> {
        self.table.get(key).filter(|operation| !operation.detached).map(|operation| operation.comm)
    }

    /// The communicator of an operation, released or not.
    pub fn comm_of(&self, key: Key) -> Option<CommKey> {
        self.table.get(key).map(|operation| operation.comm)
    }

    /// The end of a running operation will wake `sleeper`. Does nothing for an operation that is over.
    pub fn wake_at_end(&mut self, key: Key, sleeper: SleeperId) {
        if let Some(operation) = self.table.get_mut(key)
            && matches!(operation.stage, Stage::Running(_))
        {
            operation.sleeper = Some(sleeper);
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
            Some(operation) if matches!(operation.stage, Stage::Running(_)) => operation.detached = true,
            _ => self.remove(key),
        }
        Some(comm)
    }

    fn remove(&mut self, key: Key) {
        self.lifecycle_check.release(key);
        self.table.remove(key);
    }

    /// Asserts that each operation ends once and is released once. Returns the counts so far.
    pub fn lifecycle_counts(&self) -> LifecycleCounts {
        let is_over = |operation: &Operation<T>| matches!(operation.stage, Stage::Done(_));
        self.lifecycle_check
            .assert_agrees(self.table.iter().map(|(key, operation)| (key, is_over(operation))));
        self.lifecycle_check.counts()
    }
}

#[cfg(test)]
mod tests {
    use super::OperationTable;
    use crate::{CommKey, State};
    use mend_base::Key;
    use mend_pml::{SleeperId, Status};

    const SLEEPER: SleeperId = SleeperId(core::num::NonZero::new(4).unwrap());
    const COMM: CommKey = CommKey(Key { index: 3, generation: 1 });

    #[test]
    fn an_operation_ends_once_and_wakes_its_sleeper() {
        let mut table: OperationTable<u32> = OperationTable::default();
        let key = table.begin(COMM, 7).unwrap();
        assert_eq!((table.poll(key), table.running(key), table.is_idle()), (State::Running, Some(&7), false));
        table.wake_at_end(key, SLEEPER);
        table.end(key, (Ok(Status::EMPTY), Some(COMM)));
        assert_eq!((table.next_to_wake(), table.next_to_wake()), (Some(SLEEPER), None));
        assert_eq!((table.take_created(key), table.take_created(key)), (Some(COMM), None));
        assert_eq!(table.release(key), Some(COMM));
        assert!(table.is_idle() && table.len() == 0 && table.release(key).is_none());
    }

    #[test]
    fn a_released_operation_goes_on_to_its_end() {
        let mut table: OperationTable<()> = OperationTable::default();
        let key = table.begin(COMM, ()).unwrap();
        assert_eq!(table.release(key), Some(COMM));
        assert_eq!((table.release(key), table.len()), (None, 1));
        table.end(key, (Ok(Status::EMPTY), None));
        assert_eq!(table.len(), 0);
    }
}
