// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The groups of the communicators, published for readers outside the engine: a signal handler that calls MPI_Abort may have interrupted
//! its own thread inside the engine, at any instruction, and must still know whom to end (Row EH6).

use crate::CommKey;
use mend_comm::Group;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// The groups of the communicators whose handles are valid, in two copies. The engine changes one after the other, so at any instruction
/// at least one of them is whole and not locked.
#[derive(Default, Debug)]
pub struct PublishedGroups {
    copies: [Mutex<Groups>; 2],
}

/// By the index of the key.
type Groups = Vec<Option<(CommKey, Arc<Group>)>>;

impl PublishedGroups {
    /// The group of a communicator. Waits for nothing and allocates nothing, so a signal handler may call it, and must not drop the
    /// result.
    pub fn find(&self, comm: CommKey) -> Option<Arc<Group>> {
        let mut copies = self.copies.iter();
        let groups = copies.find_map(|copy| match copy.try_lock() {
            Ok(groups) => Some(groups),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        })?;
        let (found, group) = groups.get(index(comm))?.as_ref()?;
        (*found == comm).then(|| Arc::clone(group))
    }

    /// Reserves memory for communicators whose keys have indices below `indices`. `false`: there is none.
    pub(crate) fn reserve(&self, indices: usize) -> bool {
        self.copies.iter().all(|copy| {
            let mut groups = lock(copy);
            let missing = indices.saturating_sub(groups.len());
            mend_base::reserve(&mut groups, missing)
        })
    }

    /// The communicator was created; the memory for its index is reserved.
    pub(crate) fn publish(&self, comm: CommKey, group: &Arc<Group>) {
        for copy in &self.copies {
            let mut groups = lock(copy);
            if groups.len() <= index(comm) {
                groups.resize(index(comm) + 1, None);
            }
            groups[index(comm)] = Some((comm, Arc::clone(group)));
        }
    }

    /// The handle of the communicator was freed.
    pub(crate) fn remove(&self, comm: CommKey) {
        for copy in &self.copies {
            if let Some(place) = lock(copy).get_mut(index(comm)) {
                *place = None;
            }
        }
    }
}

fn index(comm: CommKey) -> usize {
    comm.0.index as usize
}

fn lock(copy: &Mutex<Groups>) -> MutexGuard<'_, Groups> {
    copy.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{PublishedGroups, lock};
    use crate::CommKey;
    use mend_base::{Job, Key, Peer};
    use mend_comm::Group;
    use std::sync::Arc;

    fn comm(index: u32, generation: u32) -> CommKey {
        CommKey(Key { index, generation })
    }

    fn group(size: u32) -> Arc<Group> {
        Arc::new(Group::consecutive(Peer::new(Job(1), 0), size))
    }

    #[test]
    fn a_group_is_found_from_its_publication_to_its_removal_under_its_own_key_alone() {
        let published = PublishedGroups::default();
        published.publish(comm(3, 1), &group(4));
        assert_eq!(published.find(comm(3, 1)).map(|group| group.size()), Some(4));
        assert!(published.find(comm(3, 2)).is_none() && published.find(comm(9, 1)).is_none());
        published.remove(comm(3, 1));
        assert!(published.find(comm(3, 1)).is_none());
    }

    // Row EH6
    #[test]
    fn a_group_is_found_while_either_copy_is_being_changed() {
        let published = PublishedGroups::default();
        published.publish(comm(0, 1), &group(2));
        for copy in &published.copies {
            let _changing = lock(copy);
            assert!(published.find(comm(0, 1)).is_some());
        }
    }
}
