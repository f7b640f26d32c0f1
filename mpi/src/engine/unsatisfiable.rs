// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unsatisfiable receives and probes: they are from any source, on a communicator whose other members have all ended. Only this
//! process could still send a message that matches (Rule 7: every wait ends).
//!
//! Progress does not end an unsatisfiable receive, since a program that only tests it may still send to itself. A call that *waits*
//! for it ends it, if no other thread of the program could start that send.

use super::Engine;
use crate::{CommKey, Error, Request};
use mend_base::Source;
use mend_runtime::Runtime;
use mend_transport::Rdma;

/// Whether a call that waits for an unsatisfiable receive ends it. `threads`: how many threads of the program may start
/// operations, with the waiting one and without others in such a wait; `None`: the number is not known.
///
/// No other result of MPI depends on the number of threads.
pub(crate) fn ends_the_wait(threads: Option<u32>) -> bool {
    threads == Some(1)
}

impl<N: Rdma, R: Runtime> Engine<N, R> {
    /// Whether there is a communicator whose other members have all ended. Only on such a communicator is a receive unsatisfiable.
    #[inline]
    pub(crate) fn some_may_be_unsatisfiable(&self) -> bool {
        self.layers.pml.some_may_be_unsatisfiable()
    }

    /// Whether `request` is an unsatisfiable receive.
    #[inline]
    pub(crate) fn is_unsatisfiable(&self, request: Request) -> bool {
        let Request::PointToPoint(key) = request else { return false };
        self.layers.pml.is_unsatisfiable(mend_pml::Request(key), &self.ends)
    }

    /// Ends `request` if it is an unsatisfiable receive. Returns whether it was one.
    pub(crate) fn end_unsatisfiable(&mut self, request: Request) -> bool {
        let Request::PointToPoint(key) = request else { return false };
        self.layers.pml.end_unsatisfiable(mend_pml::Request(key), &self.ends)
    }

    /// The error of a probe that has found no message, if it is unsatisfiable.
    pub(crate) fn unsatisfiable_probe(&self, comm: CommKey, from: Source) -> Option<Error> {
        let user = self.communicators.valid(comm).ok()?.point_to_point();
        let error = if from == Source::Any { self.layers.pml.unsatisfiable(user, &self.ends) } else { None };
        error.map(Error::from)
    }
}

#[cfg(test)]
mod tests {
    use super::ends_the_wait;

    #[test]
    fn a_wait_ends_only_where_no_other_thread_could_send() {
        assert!(ends_the_wait(Some(1)));
        assert!(!ends_the_wait(Some(2)));
        assert!(!ends_the_wait(None));
    }
}
