// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the program is, for the report about a job that may hang.

use super::Engine;
use crate::agreements::Purpose;
use crate::{CommKey, Request};
use core::fmt::Write as _;
use mend_base::{Duration, Instant, Source, TagSelector};
use mend_coll::Collective;
use mend_runtime::Runtime;
use mend_runtime::daemon_protocol::Place;
use mend_transport::Rdma;

impl<N: Rdma, R: Runtime> Engine<N, R> {
    /// A call that takes longer than this is reported to the node daemon, once; `None`: none is.
    pub fn report_calls_after(&mut self, limit: Option<Duration>) {
        self.call_reports.set_limit(limit);
    }

    /// If the node daemon has asked where the program is: in no call that waits, but in this place.
    pub fn answer_where(&mut self, place: &'static str) {
        if self.call_reports.take_asked() {
            self.layers.runtime.sits(Place { is_blocked: false, seconds: 0, what: place.to_owned() });
        }
    }

    /// A look has found that the program waits for these requests.
    pub(super) fn report_call(&mut self, awaited: &[Request], now: Instant) {
        let is_new = awaited.is_empty() && self.unconnected_query.is_first_check();
        if let Some(due) = self.call_reports.on_look(awaited, is_new, now) {
            let what = self.words_for(awaited);
            self.layers.runtime.sits(Place { is_blocked: due.is_blocked, seconds: due.seconds, what });
        }
    }

    /// For what a call waits, in words.
    fn words_for(&self, awaited: &[Request]) -> String {
        let Some(&first) = awaited.first() else {
            return "MPI_Probe, MPI_Comm_disconnect or MPI_Finalize".to_owned();
        };
        let mut words = match first {
            Request::PointToPoint(key) => match self.layers.pml.admits(mend_pml::Request(key)) {
                Some((from, tag)) => receive(from, tag),
                None => "a send, or the transfer of a message".to_owned(),
            },
            Request::Collective(_) => {
                self.call_reports.name_of_collective(first).unwrap_or("a collective operation").to_owned()
            }
            Request::Agreement(key) => match self.agreements.operations().running(key) {
                Some(Purpose::Failed(_)) => "MPI_Comm_agree_failed".to_owned(),
                Some(Purpose::Shrink { .. }) => "MPI_Comm_shrink".to_owned(),
                Some(Purpose::Flag(_)) | None => "MPI_Comm_agree".to_owned(),
            },
            Request::Creation(_) => "the creation of a communicator".to_owned(),
            Request::EndedAtStart(_) => "a request that has ended".to_owned(),
        };
        if let Some(comm) = self.communicator_of(first) {
            let _ = write!(words, " on {}", self.name_of(comm));
        }
        if awaited.len() > 1 {
            let _ = write!(words, ", and {} other request(s)", awaited.len() - 1);
        }
        words
    }

    /// The name of a communicator, or its handle.
    fn name_of(&self, comm: CommKey) -> String {
        let name = self.communicators.get(comm).map(|entry| entry.properties().name());
        match name.filter(|name| !name.is_empty()) {
            Some(name) => String::from_utf8_lossy(name).into_owned(),
            None => format!("communicator {:#x}", comm.to_bits()),
        }
    }
}

fn receive(from: Source, tag: TagSelector) -> String {
    let from = match from {
        Source::Rank(rank) => format!("rank {}", rank.0),
        Source::Any => "MPI_ANY_SOURCE".to_owned(),
    };
    match tag {
        TagSelector::Tag(tag) => format!("a receive from {from}, tag {}", tag.0),
        TagSelector::Any => format!("a receive from {from}, MPI_ANY_TAG"),
    }
}

/// The blocking call of a collective operation.
pub(super) fn name_of(call: &Collective) -> &'static str {
    match call {
        Collective::Barrier => "MPI_Barrier",
        Collective::Bcast { .. } => "MPI_Bcast",
        Collective::Reduce { .. } => "MPI_Reduce",
        Collective::Allreduce { .. } => "MPI_Allreduce",
        Collective::Gather { .. } => "MPI_Gather",
        Collective::Scatter { .. } => "MPI_Scatter",
        _ => "a collective operation",
    }
}
