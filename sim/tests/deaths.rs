// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random jobs in which ranks die, one for each seed. `MEND_SIM_SEEDS=n` runs seeds from `MEND_SIM_FIRST=n` on until a rank has
//! died in n of them; `MEND_SIM_SEED=n` runs one seed and prints its steps; `MEND_SIM_COUNT=1` runs n seeds, goes on after
//! a failure, and prints how many fail.

use mend_sim::environment;
use mend_sim::runner::{Tally, run_deaths, run_until_deaths};

const SEEDS: u64 = 10_000;

/// The branches that 10,000 jobs with deaths must reach.
const MUST: [&str; 48] = [
    "sim.killer: before MPI_Init",
    "sim.killer: before its card is published",
    "sim.killer: before all are ready",
    "sim.killer: when all are ready",
    "sim.killer: in MPI_Finalize",
    "sim.killer: between two steps",
    "sim.killer: between two calls of its engine",
    "sim.killer: a call while dying",
    "sim.network: true evidence",
    "sim.cluster: stopped, and not dead",
    "sim.cluster: asleep",
    "sim.cluster: woken",
    "mpi.peer_reports: evidence",
    "mpi.peer_reports: evidence again",
    "mpi.peer_reports: resumed",
    "mpi.peer_reports: severing takes longer",
    "mpi.peer_reports: declaration again",
    "mpi.peer_reports: declaration, unconnected",
    "mpi.peer_reports: declaration, severing",
    "mpi.collective: a member had failed",
    "mpi.collective: interrupted",
    "mpi.collective: goes on without the dead",
    "mpi.collective: poison names a failed member",
    "coll.schedule: a later step needs the dead",
    "coll.schedule: goes on after an error",
    "pml.operations: poison",
    "pml.operations: poison that nobody needs",
    "pml.operations: never begins",
    "pml.operations: inquiry",
    "pml.operations: an inquiry waits",
    "pml.operations: an inquiry about what has begun",
    "pml.operations: an inquiry about what never begins",
    "mpi.creation: a member of the group has ended",
    "mpi.creation: refused by the group",
    "mpi.member_protocols: asked about a creation that failed here",
    "pml.receive: from an ended peer",
    "pml.receive: the RTS of an ended peer",
    "pml.send: to an ended peer",
    "pml.probe: the RTS of an ended peer",
    "pml.end: a queued send",
    "pml.end: a send without an answer",
    "pml.end: a streaming send",
    "pml.end: a posted receive",
    "pml.end: a matched receive",
    "pml.end: all others have ended, but our own message is under way",
    "pml.operations: an unread message is dropped",
    "pml.abandon: a streaming send",
    "pml.abandon: a matched receive",
];

fn assert_all_reached(tally: &Tally) {
    let missed: Vec<_> = MUST.iter().filter(|branch| !tally.branches.contains_key(*branch)).collect();
    assert!(missed.is_empty(), "no seed reached {missed:?}");
}

#[test]
fn ten_thousand_seeds_with_deaths() {
    if environment::replay_one(run_deaths) || environment::count_failing(SEEDS, run_deaths) {
        return;
    }
    let (first, count) = environment::seeds(SEEDS);
    match run_until_deaths(first, count) {
        Ok(tally) => {
            assert!(tally.total.requests > 0, "this build does not check the lifecycle of requests");
            println!("{count} seeds with deaths from {first}\n{}", tally.table());
            if count >= SEEDS {
                assert_all_reached(&tally);
            }
        }
        Err(failed) => panic!(
            "replay with MEND_SIM_SEED={} cargo test -p mend-sim --test deaths: {}, {} ranks: {}",
            failed.seed, failed.program, failed.size, failed.what
        ),
    }
}

/// Seeds that failed once, each with its cause.
const REGRESSIONS: [(u64, &str); 2] = [
    (13_909, "a rank that had exited was declared dead, so the node daemon never saw the end of its process"),
    (
        20_003_570,
        "a dying rank, which the agreement did not ask, refused messages on a communicator that it lacked",
    ),
];

#[test]
fn seeds_that_failed_once_pass() {
    for (seed, cause) in REGRESSIONS {
        if let Err(failed) = run_deaths(seed, false) {
            panic!("seed {seed} fails again ({cause}): {}", failed.what);
        }
    }
}
