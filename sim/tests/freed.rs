// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Jobs that free a communicator while agreements, shrinks and duplications of it run, and while ranks die and one may revoke it; one for
//! each seed. `MEND_SIM_SEEDS=n` runs n seeds from `MEND_SIM_FIRST=n` on.

use mend_base::{Random, Rank, Tag};
use mend_daemon::Rules;
use mend_mpi::{CommKey, Error, ErrorClass, Hints};
use mend_sim::killer::Killer;
use mend_sim::programs::program;
use mend_sim::{Cluster, Process, SimCreation, SimOperation, environment};
use mend_transport::Buffer;
use std::sync::Arc;

const TAG: Tag = Tag(3);
const SEEDS: u64 = 3_000;

/// What a rank has begun on the communicator: each has a number, which is the same at all ranks.
enum Begun {
    Agreement(SimOperation, Arc<Buffer>),
    Duplicate(SimCreation),
    Shrink(SimCreation),
}

/// The use of one communicator.
struct Job {
    process: Process,
    parent: CommKey,
    /// Of an intercommunicator, the group of this rank.
    side: u64,
    may_be_revoked: bool,
}

// Row CC1, Row CC3, Row SH1, Row AG1, Row RV5
#[test]
fn operations_that_run_on_a_freed_communicator_end_alike_whoever_dies_or_revokes_it() {
    let script = program(run);
    let (first, count) = environment::seeds(SEEDS);
    for seed in first..first + count {
        let mut random = Random(seed ^ 0x1234_5678);
        let most = if random.once_in(4) { 12 } else { 4 };
        let size = 2 + random.below(most) as u32;
        let dies = !random.once_in(3);
        let killer = if dies { Killer::draw(&mut random, size) } else { Killer::new(size, vec![]) };
        let mut cluster = Cluster::new(seed, size, script.clone());
        cluster.plan_deaths(killer, Rules::default());
        if let Err(report) = cluster.run() {
            panic!("MEND_SIM_FIRST={seed} MEND_SIM_SEEDS=1, {size} ranks: {report}");
        }
    }
}

/// One rank. The simulator tells whether all have what follows needs.
async fn run(process: Process) {
    let (mpi, world) = (process.mpi.clone(), process.mpi.engine().comm_world());
    let base = mpi.shrink(world).await.expect("Row SH1: a shrink succeeds").expect("this rank lives");
    let key = if process.shared_random.borrow_mut().once_in(2) { -(process.rank.0 as i32) } else { 0 };
    let parent = mpi.split(base, Some(0), key).await;
    if !process.agree(1, parent.is_ok()).await {
        return;
    }
    let parent = parent.expect("so all say").expect("a member");
    let variant = process.shared_random.borrow_mut().below(8);
    let (hints, may_be_revoked) = match variant {
        0 | 1 => return with_inter(&process, parent).await,
        2 => (Some(("mpix_agree_uniform", "true")), false),
        3 => (Some(("mpi_error_range", "group")), true),
        4 => (Some(("mpi_error_range", "universe")), true),
        _ => (None, false),
    };
    if let Some((key, value)) = hints {
        let hints = Hints::from_pairs([(key.as_bytes(), value.as_bytes())]);
        mpi.set_hints(parent, hints).expect("it exists");
    }
    process.ready();
    Job { process, parent, side: 0, may_be_revoked }.run().await;
}

/// The same with an intercommunicator of the even and the odd ranks.
async fn with_inter(process: &Process, between: CommKey) {
    let mpi = &process.mpi;
    let (me, size) = (mpi.rank(between).expect("a member").0, mpi.size(between).expect("a member"));
    let side = me % 2;
    let local = mpi.split(between, Some(side), 0).await;
    if !process.agree(2, local.is_ok()).await || size < 2 {
        return;
    }
    let local = local.expect("so all say").expect("a member");
    let other = (me < 2).then_some((between, Rank(1 - side)));
    let inter = mpi.create_inter(local, Rank(0), other, TAG).await;
    if !process.agree(3, inter.is_ok()).await {
        return;
    }
    process.ready();
    let parent = inter.expect("so all say").expect("a member");
    Job { process: process.clone(), parent, side: side.into(), may_be_revoked: false }.run().await;
}

impl Job {
    async fn run(mut self) {
        let mpi = self.process.mpi.clone();
        let shared = |below| self.process.shared_random.borrow_mut().below(below);
        let count = 1 + shared(4);
        let revoker = shared(2 * u64::from(self.process.size)) as u32;
        let frees_at_once = shared(3) > 0;
        let kinds: Vec<u64> = (0..count).map(|_| shared(3)).collect();
        self.may_be_revoked |= revoker < self.process.size;
        let mut begun = Vec::new();
        for kind in kinds {
            begun.push(self.begin(kind));
            self.pause().await;
            if revoker == self.process.rank.0 && self.process.below(2) == 0 {
                mpi.revoke(self.parent).expect("it exists");
            }
        }
        if frees_at_once {
            mpi.free(self.parent).expect("it exists");
        }
        self.pause().await;
        let made = self.end_all(begun).await;
        for (number, comm) in made {
            self.use_and_free(number, comm).await;
        }
        if !frees_at_once {
            mpi.free(self.parent).expect("it exists");
        }
    }

    async fn pause(&self) {
        for _ in 0..self.process.below(4) {
            self.process.pause().await;
        }
    }

    fn begin(&self, kind: u64) -> Begun {
        let Job { process, parent, .. } = self;
        match kind {
            0 => {
                if process.below(2) == 0 {
                    process.mpi.acknowledge(*parent, None).expect("it exists");
                }
                let flag = Buffer::from_bytes(&(!(1u32 << (process.rank.0 % 30))).to_le_bytes());
                Begun::Agreement(process.mpi.agree(*parent, &flag), flag)
            }
            1 => Begun::Duplicate(process.mpi.dup(*parent)),
            _ => Begun::Shrink(process.mpi.shrink(*parent)),
        }
    }

    /// Waits for agreements first, or for creations. Returns the communicators that were made.
    async fn end_all(&self, begun: Vec<Begun>) -> Vec<(u64, CommKey)> {
        let is_agreement = |begun: &Begun| matches!(begun, Begun::Agreement(..));
        let (agreements, creations): (Vec<_>, Vec<_>) =
            (0..).zip(begun).partition(|(_, begun)| is_agreement(begun));
        let in_order =
            if self.process.below(2) == 0 { [agreements, creations] } else { [creations, agreements] };
        let mut made = Vec::new();
        for (number, begun) in in_order.into_iter().flatten() {
            made.extend(self.end(number, begun).await.map(|comm| (number, comm)));
        }
        made
    }

    async fn end(&self, number: u64, begun: Begun) -> Option<CommKey> {
        match begun {
            Begun::Agreement(agreement, flag) => {
                let result = agreement.await;
                assert!(matches!(class(&result), ErrorClass::Success | ErrorClass::ProcFailed), "{result:?}");
                self.assert_alike(number, &result, &flag);
                None
            }
            Begun::Duplicate(duplicate) => {
                let result = duplicate.await;
                self.process.assert_creation_is_uniform(
                    self.process.mpi.engine().comm_world(),
                    number,
                    result.is_ok(),
                );
                match class(&result) {
                    ErrorClass::Success | ErrorClass::ProcFailed => {}
                    ErrorClass::Revoked => assert!(self.may_be_revoked, "nobody revokes: {result:?}"),
                    _ => panic!("no member has left: {result:?}"),
                }
                result.ok().flatten()
            }
            Begun::Shrink(shrink) => shrink.await.expect("Row SH1: a shrink succeeds"),
        }
    }

    async fn use_and_free(&self, number: u64, comm: CommKey) {
        let mpi = &self.process.mpi;
        let flag = Buffer::from_bytes(&mpi.size(comm).expect("it exists").to_le_bytes());
        let result = mpi.agree(comm, &flag).await;
        self.assert_alike(100 + number, &result, &flag);
        mpi.free(comm).expect("it exists");
    }

    /// All members have the same class; the flag is that of the other group.
    fn assert_alike<T>(&self, call: u64, result: &Result<T, Error>, flag: &Buffer) {
        let is_error = u64::from(result.is_err());
        self.process.assert_answers_agree(1_000 + call, is_error);
        let bytes = flag.to_vec();
        let value = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        self.process.assert_answers_agree(call + 10 * self.side, u64::from(value));
    }
}

fn class<T>(result: &Result<T, Error>) -> ErrorClass {
    result.as_ref().err().map_or(ErrorClass::Success, |error| error.class)
}
