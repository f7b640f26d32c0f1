// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The results that ranks leave with the node daemon when they leave MPI. A member that has returned from an agreement must
//! answer members that ask for the decision, since the one that informed it may have failed (Trap 14). A process that has left
//! MPI answers nobody; the node daemon answers for it.
//!
//! ```text
//!   LeaveResult ──▶ staged ── Finalize ──▶ stored, until the job ends; RecallResult is answered
//!                      └── the rank fails before: dropped
//! ```
//!
//! Only the results of ranks that have left MPI count. A decision that only a failed rank knew does not bind the others: they may
//! have decided otherwise, and they count that rank as failed.
//!
//! *A rank that was notified that a peer has left MPI finds everything that this peer has left*, within the bounds:
//! * The rank sends its results before its Finalize through the same socket, so the node daemon reads them first. If its end is
//!   seen by other means, its messages are read before its failure is declared
//!   ([`Effect::ReadMessages`](crate::Effect::ReadMessages)): either the Finalize is among them, and then so are all results, or
//!   the rank has failed.
//! * The results are stored before the end of the rank is in the notifier's list, in one call, so no rank is notified before.
//! * A question that a rank asks after it was notified, or heard from another that was, is read after that.
//! * A stored result is replaced only by one with a higher number, which nobody leaves while a member needs the lower one
//!   ([`Runtime::leave_result`](mend_runtime::Runtime::leave_result)).
//!
//! Several node daemons will have to exchange results before they notify their ranks of the end.
//!
//! All of this comes from ranks. One rank takes no more memory than [`RESULTS_MAX`] results of together [`RESULTS_BYTES_MAX`]
//! bytes need: what exceeds that is not stored, and the rank goes on. Ranks that leave the same result share one.

use mend_base::Identity;
use mend_runtime::{RESULTS_BYTES_MAX, RESULTS_MAX, ResultKey};
use std::collections::HashMap;
use std::sync::Arc;

/// The results that ranks have left.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// Of ranks that have left MPI.
    stored: HashMap<Topic, Entry>,
    /// Of ranks that are still in MPI.
    staged: HashMap<u32, Staged>,
}

/// A result of ranks without its number.
type Topic = (Identity, u8);

#[derive(Clone, Debug)]
struct Entry {
    sequence: u32,
    result: Arc<[u8]>,
}

/// What one rank has left so far.
#[derive(Debug, Default)]
struct Staged {
    results: Vec<(Topic, Entry)>,
    bytes: usize,
}

impl Results {
    /// `rank`, which is in MPI, leaves a result.
    pub(crate) fn leave(&mut self, rank: u32, key: ResultKey, result: &[u8]) {
        let ResultKey { identity, protocol, sequence } = key;
        let topic = (identity, protocol);
        if self.stored.get(&topic).is_some_and(|stored| !is_higher(sequence, stored.sequence)) {
            return;
        }
        let staged = self.staged.entry(rank).or_default();
        let has_room = staged.results.len() < RESULTS_MAX && result.len() <= RESULTS_BYTES_MAX - staged.bytes;
        if has_room {
            staged.bytes += result.len();
            staged.results.push((topic, Entry { sequence, result: result.into() }));
        }
    }

    /// `rank` has left MPI: what it has left is stored. To be called before any rank can be notified of that.
    pub(crate) fn finalized(&mut self, rank: u32) {
        let staged = self.staged.remove(&rank).unwrap_or_default();
        for (topic, entry) in staged.results {
            let stored = self.stored.entry(topic).or_insert_with(|| entry.clone());
            if is_higher(entry.sequence, stored.sequence) {
                *stored = entry;
            }
        }
    }

    /// `rank` has failed: what it has left does not count.
    pub(crate) fn failed(&mut self, rank: u32) {
        self.staged.remove(&rank);
    }

    /// The result with exactly this key of a rank that has left MPI.
    pub(crate) fn recall(&self, key: ResultKey) -> Option<Arc<[u8]>> {
        let stored = self.stored.get(&(key.identity, key.protocol))?;
        (stored.sequence == key.sequence).then(|| Arc::clone(&stored.result))
    }
}

/// Whether a number is higher than another one. Numbers wrap.
fn is_higher(number: u32, than: u32) -> bool {
    number.wrapping_sub(than) as i32 > 0
}

#[cfg(test)]
mod tests {
    use super::Results;
    use mend_base::{Identity, Job, Peer};
    use mend_runtime::{RESULT_BYTES_MAX, RESULTS_BYTES_MAX, RESULTS_MAX, ResultKey};

    fn key(number: u32, protocol: u8, sequence: u32) -> ResultKey {
        ResultKey { identity: Identity { creator: Peer::new(Job(1), 0), number }, protocol, sequence }
    }

    fn recall(results: &Results, key: ResultKey) -> Option<Vec<u8>> {
        results.recall(key).map(|result| result.to_vec())
    }

    // Trap 14
    #[test]
    fn what_a_rank_has_left_is_there_once_the_rank_has_left_mpi_and_never_if_it_fails_before() {
        let mut results = Results::default();
        results.leave(0, key(16, 1, 5), b"failed");
        results.leave(1, key(16, 1, 5), b"left");
        assert_eq!(recall(&results, key(16, 1, 5)), None);
        results.failed(0);
        results.finalized(1);
        assert_eq!(recall(&results, key(16, 1, 5)), Some(b"left".to_vec()));
        for other in [key(17, 1, 5), key(16, 2, 5), key(16, 1, 4), key(16, 1, 6)] {
            assert_eq!(recall(&results, other), None, "{other:?}");
        }
        // A rank that has left nothing adds nothing.
        results.finalized(2);
        assert!(results.staged.is_empty() && results.stored.len() == 1);
    }

    // X-6.12
    #[test]
    fn a_result_is_stored_once_and_a_higher_number_replaces_it_also_when_numbers_wrap() {
        let mut results = Results::default();
        let leave = |results: &mut Results, rank, sequence, result: &[u8]| {
            results.leave(rank, key(0, 0, sequence), result);
            results.finalized(rank);
        };
        leave(&mut results, 0, u32::MAX, b"first");
        leave(&mut results, 1, u32::MAX, b"again");
        assert_eq!(recall(&results, key(0, 0, u32::MAX)), Some(b"first".to_vec()));
        leave(&mut results, 2, 1, b"later");
        leave(&mut results, 3, 0, b"earlier");
        assert_eq!(recall(&results, key(0, 0, 1)), Some(b"later".to_vec()));
        assert_eq!(recall(&results, key(0, 0, 0)), None);
        assert_eq!(recall(&results, key(0, 0, u32::MAX)), None);
    }

    #[test]
    fn ranks_that_leave_at_the_same_time_store_the_highest_number_in_any_order() {
        for order in [[0, 1], [1, 0]] {
            let mut results = Results::default();
            results.leave(0, key(0, 0, 7), b"7");
            results.leave(1, key(0, 0, 8), b"8");
            order.into_iter().for_each(|rank| results.finalized(rank));
            assert_eq!(recall(&results, key(0, 0, 8)), Some(b"8".to_vec()));
        }
    }

    #[test]
    fn a_rank_that_leaves_too_much_takes_no_more_memory_and_harms_no_other() {
        let mut results = Results::default();
        for number in 0..RESULTS_MAX as u32 + 10 {
            results.leave(0, key(number, 0, 0), b"");
        }
        let full = (RESULTS_BYTES_MAX / RESULT_BYTES_MAX) as u32;
        for number in 0..full + 10 {
            results.leave(1, key(number, 1, 0), &[1; RESULT_BYTES_MAX]);
        }
        results.leave(2, key(u32::MAX, 2, 0), b"another");
        (0..3).for_each(|rank| results.finalized(rank));
        let last = RESULTS_MAX as u32 - 1;
        assert!(results.recall(key(last, 0, 0)).is_some() && results.recall(key(last + 1, 0, 0)).is_none());
        assert!(results.recall(key(full - 1, 1, 0)).is_some() && results.recall(key(full, 1, 0)).is_none());
        assert!(results.recall(key(u32::MAX, 2, 0)).is_some());
    }
}
