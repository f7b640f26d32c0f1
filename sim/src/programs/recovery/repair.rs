// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A round: the members work, agree whether all went well, and shrink their communicator if not. The oracle compares the results of
//! all living members.

use super::{ROUNDS_MAX, Survivor};
use crate::history::{Repair, Round};
use crate::process::SimOperation;
use crate::rank_set::RankSet;
use mend_base::Rank;
use mend_mpi::{CommKey, Error, Hints, Status};
use mend_transport::Buffer;
use std::sync::{Arc, OnceLock};

/// Of a flag: the steps of this member have succeeded.
const WENT_WELL: u32 = 1;
/// Of a flag: for this member the job may end.
const MAY_END: u32 = 2;

/// An agreement that runs.
struct Agreeing {
    call: crate::record::repairs::Call,
    flag: Arc<Buffer>,
    operation: SimOperation,
    /// This member knew of a failure that it had not acknowledged: the result must be an error.
    must_fail: bool,
}

/// The hints of the communicator in a round.
pub(super) fn hints(repair: Repair) -> Hints {
    let range: &[u8] = if repair.range_group { b"group" } else { b"local" };
    let uniform: &[u8] = if repair.uniform { b"true" } else { b"false" };
    let creation: &[u8] = if repair.local_creation { b"local" } else { b"create" };
    Hints::from_pairs([
        (&b"mpi_error_range"[..], range),
        (&b"mpix_agree_uniform"[..], uniform),
        (&b"mpi_error_uniform"[..], creation),
    ])
}

impl Survivor {
    /// MPI_Comm_set_info.
    pub(super) fn set_hints(&mut self, hints: Hints) {
        if hints.error_range != mend_mpi::ErrorRange::Local {
            // From now on a failure revokes it.
            self.process.record.borrow_mut().repairs.revoke(self.identity(self.comm));
        }
        self.call("MPI_Comm_set_info");
        self.process.mpi.set_hints(self.comm, hints).expect("the communicator exists");
    }

    /// One round. Returns whether it was the last one.
    pub(super) async fn round(&mut self, round: &Round) -> bool {
        let repair = round.repair;
        let meanwhile = repair.agrees_meanwhile.then(|| self.begin_agreement(u32::MAX));
        let went_well = self.work(&round.steps).await;
        if let Some(meanwhile) = meanwhile {
            self.call("MPI_Wait");
            _ = self.end_agreement(meanwhile, repair.uniform).await;
        }
        let mut acknowledged = 0;
        if repair.acknowledges {
            self.call("MPI_Comm_ack_failed");
            acknowledged = self.process.mpi.acknowledge(self.comm, None).expect("the communicator exists");
        }
        // After an acknowledgement the agreement may succeed, and a receive from any source would wait for the living alone.
        let begun = self.begin_agreement(self.contribution(went_well && acknowledged == 0));
        self.call("MPIX_Comm_agree");
        let (flag, agreed) = self.end_agreement(begun, repair.uniform).await;
        if repair.agrees_on_failed {
            self.agree_on_failed().await;
        }
        let is_last = flag & MAY_END != 0;
        if flag & WENT_WELL == 0 || agreed.is_err() || repair.shrinks_always {
            self.shrink(repair).await;
        }
        let is_overdue = self.history.waits_for_deaths && self.round >= ROUNDS_MAX;
        if !is_last && is_overdue && self.process.victims_before_finalize().contains(&self.process.rank) {
            self.process.die().await;
        }
        is_last
    }

    /// The flag of this member. A random bit shows that the contribution counts.
    fn contribution(&self, went_well: bool) -> u32 {
        let victims = self.process.victims_before_finalize();
        let all_deaths = victims.iter().all(|rank| self.process.death_has_begun(*rank));
        let enough = self.process.calls() >= self.history.calls_min;
        let may_end = (all_deaths || !self.history.waits_for_deaths) && enough;
        let bit = 2 + self.process.below(30);
        let mut flag = !(1 << bit);
        if !went_well {
            flag &= !WENT_WELL;
        }
        if !may_end {
            flag &= !MAY_END;
        }
        flag
    }

    /// MPIX_Comm_iagree.
    fn begin_agreement(&mut self, flag: u32) -> Agreeing {
        let call = self.next_number(self.comm);
        self.process.record.borrow_mut().repairs.contribute(call, self.process.number, flag);
        let flag = Buffer::from_bytes(&flag.to_le_bytes());
        let known = self.failed.get(&self.identity(self.comm)).map_or(0, Vec::len);
        let acknowledged =
            self.process.mpi.engine().acknowledged(self.comm).expect("the communicator exists");
        let must_fail = acknowledged.len() < known;
        self.call("MPIX_Comm_iagree");
        let operation = self.process.mpi.agree(self.comm, &flag);
        Agreeing { call, flag, operation, must_fail }
    }

    async fn end_agreement(&mut self, agreeing: Agreeing, uniform: bool) -> (u32, Result<Status, Error>) {
        let Agreeing { call, flag, operation, must_fail } = agreeing;
        let comm = self.comm;
        let result = operation.await;
        assert!(!must_fail || result.is_err(), "Row AG2: a known failure was not acknowledged");
        if let Err(error) = result {
            // Row AG5. An agreement is never interrupted by a revocation (Row AG6).
            assert_ne!(error.detail, mend_mpi::Detail::Revoked, "an agreement is not revoked");
            self.assert_explained(comm, error);
        }
        let bytes = flag.to_vec();
        let value = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let lives = |rank| !self.process.death_has_begun(Rank(rank));
        let returned = (value, result.is_ok());
        let mut record = self.process.record.borrow_mut();
        let agrees = record.repairs.agreed(call, self.process.number, returned, lives, uniform);
        agrees.unwrap_or_else(|what| panic!("Rows AG1 to AG4, agreement {call:?}: {what}"));
        (value, result)
    }

    /// MPIX_Comm_agree_failed.
    async fn agree_on_failed(&mut self) {
        let call = self.next_number(self.comm);
        let known = self.get_failed(self.comm);
        let into = Arc::new(OnceLock::new());
        self.call("MPIX_Comm_agree_failed");
        let result = self.process.mpi.agree_failed(self.comm, &into).await;
        result.expect("no failure is an error of this call");
        let group: Vec<u32> = into.get().expect("it has ended").iter().map(|peer| peer.number()).collect();
        let members = self.members(self.comm);
        let agreed_on: RankSet = group.iter().copied().collect();
        for rank in known {
            assert!(agreed_on.contains(members[rank.index()]), "rank {} was known to have failed", rank.0);
        }
        let lives = |rank| !self.process.death_has_begun(Rank(rank));
        assert!(
            !group.iter().any(|rank| lives(*rank)),
            "the members agree that a living one failed: {group:?}"
        );
        let mut record = self.process.record.borrow_mut();
        let agrees = record.repairs.agreed_on_failed(call, self.process.number, group, lives);
        agrees.unwrap_or_else(|what| panic!("Row AG15, agreement {call:?}: {what}"));
    }

    /// The survivors get a communicator of their own, and go on with that.
    async fn shrink(&mut self, repair: Repair) {
        let (broken, mpi) = (self.comm, self.process.mpi.clone());
        let is_world = broken == mpi.engine().comm_world();
        let frees_meanwhile = repair.frees_parent_meanwhile && !is_world;
        let known = self.get_failed(broken);
        let members = self.members(broken);
        self.call(if repair.shrinks_twice { "MPIX_Comm_ishrink" } else { "MPIX_Comm_shrink" });
        let (first_call, first) = (self.next_number(broken), mpi.shrink(broken));
        let second_call = self.next_number(broken);
        let second = repair.shrinks_twice.then(|| mpi.shrink(broken));
        if frees_meanwhile {
            self.free(broken);
        }
        let made = self.end_shrink(first_call, first.await, &members, &known);
        if let Some(second) = second {
            self.call("MPI_Wait");
            let unused = self.end_shrink(second_call, second.await, &members, &known);
            self.free(unused);
        }
        if !frees_meanwhile && !is_world {
            if repair.frees_late {
                self.old.push(broken);
            } else {
                self.free(broken);
            }
        }
        self.comm = made;
        self.call("MPI_Barrier");
        if let Err(error) = mpi.barrier(made).await {
            // Another member has failed; the next round shows that all members know what to do.
            self.assert_explained(made, error);
        }
    }

    /// Asserts what holds of every shrink: all living members, and no known failed one, are in it in their old order, and its identity and
    /// members are the same everywhere (rows SH1 to SH4).
    fn end_shrink(
        &mut self,
        call: crate::record::repairs::Call,
        made: Result<Option<CommKey>, Error>,
        members: &[u32],
        known: &[Rank],
    ) -> CommKey {
        let made = made.unwrap_or_else(|error| panic!("Row SH1: a shrink failed: {error}"));
        let made = made.expect("each caller is a member");
        let group = self.members(made);
        let is_in: RankSet = group.iter().copied().collect();
        let lives = |rank: u32| !self.process.death_has_begun(Rank(rank));
        for &rank in members.iter().filter(|rank| lives(**rank)) {
            assert!(is_in.contains(rank), "rank {rank} lives, and the members after a shrink are {group:?}");
        }
        for rank in known {
            let failed = members[rank.index()];
            assert!(!is_in.contains(failed), "rank {failed} was known to have failed: {group:?}");
        }
        let in_order: Vec<u32> = members.iter().copied().filter(|rank| is_in.contains(*rank)).collect();
        assert_eq!(in_order, group, "Row SH3: the order of ranks");
        let result = (self.identity(made), group);
        let mut record = self.process.record.borrow_mut();
        let agrees = record.repairs.shrunk(call, self.process.number, result, lives);
        agrees.unwrap_or_else(|what| panic!("Rows SH1 to SH4, shrink {call:?}: {what}"));
        drop(record);
        made
    }
}
