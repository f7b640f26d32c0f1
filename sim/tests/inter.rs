// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Jobs whose ranks connect by intercommunicators while some die, one for each seed. `MEND_SIM_SEEDS=n` runs n seeds from
//! `MEND_SIM_FIRST=n` on; `MEND_SIM_SEED=n` runs one seed and prints its steps; `MEND_SIM_COUNT=1` runs n seeds, goes on after a
//! failure, and prints how many fail.

use mend_base::{Rank, Tag};
use mend_mpi::{CommKey, Error, ErrorClass};
use mend_sim::programs::program;
use mend_sim::runner::{run_inter, run_seeds};
use mend_sim::{Cluster, Process, environment};
use std::future::Future;

const TAG: Tag = Tag(5);
const SEEDS: u64 = 2_000;

/// The branches that so many jobs must reach.
const MUST: [&str; 4] = [
    "mpi.creation: refused by the group",
    "mpi.intercomm: refused after it was made",
    "mpi.intercomm: revoked while the leader waits",
    "mpi.repair: one group of an intercommunicator has failed",
];

// Row CC1, Row AK9, Row RV4, Row AG9, Row SH10, Row DY6
#[test]
fn both_groups_connect_and_merge_at_all_survivors_or_at_none() {
    if environment::replay_one(run_inter) || environment::count_failing(SEEDS, run_inter) {
        return;
    }
    let (first, count) = environment::seeds(SEEDS);
    match run_seeds(run_inter, first..first + count) {
        Ok(tally) => {
            println!("{count} seeds from {first}\n{}", tally.table());
            let missed: Vec<_> = MUST.iter().filter(|branch| !tally.branches.contains_key(*branch)).collect();
            assert!(count < SEEDS || missed.is_empty(), "no seed reached {missed:?}");
        }
        Err(failed) => panic!(
            "replay with MEND_SIM_SEED={} cargo test -p mend-sim --test inter: {}, {} ranks: {}",
            failed.seed, failed.program, failed.size, failed.what
        ),
    }
}

/// Two pairs of ranks, and what connects their leaders.
struct Pairs {
    process: Process,
    pair: CommKey,
    bridge: CommKey,
    is_leader: bool,
    /// The other leader, by its rank in `bridge`.
    other: Rank,
}

impl Pairs {
    async fn new(process: Process) -> Self {
        let world = process.mpi.engine().comm_world();
        let rank = process.rank.0;
        let pair = process.mpi.split(world, Some(rank / 2), 0).await.expect("nobody dies");
        let bridge = process.mpi.dup(world).await.expect("nobody dies");
        let (pair, bridge) = (pair.expect("a member"), bridge.expect("a member"));
        Pairs { process, pair, bridge, is_leader: rank.is_multiple_of(2), other: Rank(2 - rank / 2 * 2) }
    }

    fn is_revoked(&self, comm: CommKey) -> bool {
        self.process.mpi.engine().is_revoked(comm).expect("the communicator exists")
    }

    async fn connect(&self) -> Result<Option<CommKey>, Error> {
        self.connect_by(Some((self.bridge, self.other))).await
    }

    async fn connect_by(&self, other: Option<(CommKey, Rank)>) -> Result<Option<CommKey>, Error> {
        self.process.mpi.create_inter(self.pair, Rank(0), other.filter(|_| self.is_leader), TAG).await
    }

    /// Each pair still works. Nobody leaves MPI before all are here.
    async fn assert_pair_works(&self) {
        assert!(!self.is_revoked(self.pair), "nobody has revoked the pair");
        self.process.mpi.barrier(self.pair).await.expect("nobody has revoked the pair");
        let dup = self.process.mpi.dup(self.pair).await.expect("nobody has revoked the pair");
        self.process.mpi.free(dup.expect("a member")).expect("it exists");
        assert!(!self.is_revoked(self.pair), "nobody has revoked the pair");
        let world = self.process.mpi.engine().comm_world();
        self.process.mpi.barrier(world).await.expect("nobody has revoked WORLD");
    }
}

/// Runs `script` on two pairs of ranks under 300 schedules.
fn passes_always<F: Future<Output = ()> + 'static>(script: impl Fn(Process) -> F + 'static) {
    let script = program(script);
    for seed in 0..300 {
        if let Err(report) = Cluster::new(seed, 4, script.clone()).run() {
            panic!("{report}");
        }
    }
}

// Row CC1, Row RV1
#[test]
fn a_revoked_peer_communicator_refuses_the_creation_and_revokes_no_local_communicator() {
    passes_always(|process| async move {
        let pairs = Pairs::new(process).await;
        if pairs.process.rank == Rank(3) {
            pairs.process.mpi.revoke(pairs.bridge).expect("it exists");
        }
        if pairs.is_leader {
            pairs.process.mpi.wait_until(|| pairs.is_revoked(pairs.bridge)).await;
        }
        let refused = pairs.connect().await.expect_err("the leaders cannot connect");
        assert_eq!(refused.class, ErrorClass::Revoked, "{refused}");
        pairs.assert_pair_works().await;
    });
}

// Row CC1, Row RV1
#[test]
fn a_peer_communicator_that_is_revoked_at_any_moment_revokes_no_local_communicator() {
    passes_always(|process| async move {
        let pairs = Pairs::new(process).await;
        let (rank, is_early) = (pairs.process.rank, pairs.process.shared_random.borrow_mut().below(2) == 0);
        if rank == Rank(2) && is_early {
            // The other leader waits for this one.
            pairs.process.mpi.wait_until(|| pairs.is_revoked(pairs.bridge)).await;
        }
        let connecting = pairs.connect();
        if rank == Rank(3) {
            pairs.process.mpi.revoke(pairs.bridge).expect("it exists");
        }
        match connecting.await {
            Ok(made) => pairs.process.mpi.free(made.expect("a member")).expect("it exists"),
            Err(refused) => assert_eq!(refused.class, ErrorClass::Revoked, "{refused}"),
        }
        pairs.assert_pair_works().await;
    });
}

// Row CC1
#[test]
fn what_only_a_leader_can_refuse_ends_the_calls_of_its_group_and_the_next_call_connects() {
    passes_always(|process| async move {
        let pairs = Pairs::new(process).await;
        let freed = pairs.process.mpi.dup(pairs.bridge).await.expect("nobody dies").expect("a member");
        pairs.process.mpi.free(freed).expect("it exists");
        let itself = Rank(2 - pairs.other.0);
        let others = [(pairs.bridge, itself), (pairs.bridge, Rank(4)), (freed, pairs.other)];
        for other in others.map(Some).into_iter().chain([None]) {
            pairs.connect_by(other).await.expect_err("the leader is given no other leader");
        }
        let made = pairs.connect().await.expect("nobody dies").expect("a member");
        pairs.process.mpi.free(made).expect("it exists");
        pairs.assert_pair_works().await;
    });
}

// Otherwise other processes would store the gaps in the numbers for ever.
#[test]
fn a_leader_that_gives_up_at_once_takes_its_number_back_and_so_does_the_one_that_is_told() {
    passes_always(|process| async move {
        let pairs = Pairs::new(process).await;
        let next_number = async || {
            let dup = pairs.process.mpi.dup(pairs.pair).await.expect("nobody dies").expect("a member");
            let number = pairs.process.mpi.engine().communicator(dup).expect("it exists").identity.number;
            pairs.process.mpi.free(dup).expect("it exists");
            number
        };
        let before = next_number().await;
        // Only rank 0 knows at once that its group is revoked.
        let group = pairs.process.mpi.dup(pairs.pair).await.expect("nobody dies").expect("a member");
        if pairs.process.rank == Rank(0) {
            pairs.process.mpi.revoke(group).expect("it exists");
        }
        for _ in 0..9 {
            let other = pairs.is_leader.then_some((pairs.bridge, pairs.other));
            let refused = pairs.process.mpi.create_inter(group, Rank(0), other, TAG).await;
            refused.expect_err("one group is revoked");
        }
        assert_eq!(next_number().await, before + 2, "one for each duplicate");
        pairs.process.mpi.free(group).expect("it exists");
        pairs.assert_pair_works().await;
    });
}

/// As two threads that call with one tag: which call comes first differs between the ranks.
#[test]
fn leaders_and_members_of_a_group_that_use_one_tag_at_a_time_take_no_messages_of_each_other() {
    let script = program(|process: Process| async move {
        let world = process.mpi.engine().comm_world();
        let alone = process.mpi.split(world, Some(process.rank.0), 0).await.expect("nobody dies");
        let alone = alone.expect("a member");
        let group = process.mpi.engine().communicator(world).expect("it exists").group.clone();
        let other = (world, Rank(1 - process.rank.0));
        for _ in 0..3 {
            let (among, between);
            if process.own_random.borrow_mut().below(2) == 0 {
                among = process.mpi.create_group(world, &group, TAG);
                process.pause().await;
                between = process.mpi.create_inter(alone, Rank(0), Some(other), TAG);
            } else {
                between = process.mpi.create_inter(alone, Rank(0), Some(other), TAG);
                process.pause().await;
                among = process.mpi.create_group(world, &group, TAG);
            }
            for made in [among.await, between.await] {
                process.mpi.free(made.expect("nobody dies").expect("a member")).expect("it exists");
            }
        }
    });
    for seed in 0..300 {
        if let Err(report) = Cluster::new(seed, 2, script.clone()).run() {
            panic!("{report}");
        }
    }
}

/// Seed 706885: a leader that knew of a failure and of a departure told the other group of the departure, which it could not explain.
#[test]
fn a_seed_that_found_a_defect_passes() {
    if let Err(failed) = run_seeds(run_inter, 706_885..706_886) {
        panic!("{}: {}", failed.seed, failed.what);
    }
}
