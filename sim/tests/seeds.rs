// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random jobs without deaths, one for each seed. `MEND_SIM_SEEDS=n` runs n seeds, from `MEND_SIM_FIRST=n` on;
//! `MEND_SIM_SEED=n` runs one seed and prints its steps; `MEND_SIM_COUNT=1` goes on after a failure and prints how many fail.

use mend_sim::environment;
use mend_sim::runner::{run_seed, run_seeds};
use std::fs;
use std::path::Path;

const SEEDS: u64 = 10_000;

/// Every branch that the code names: the table shows 0 for a branch that no seed has reached.
fn named_branches() -> Vec<String> {
    let mut branches = Vec::new();
    for package in ["mpi", "pml", "proto", "coll"] {
        collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(package).join("src"), &mut branches);
    }
    branches
}

fn collect(folder: &Path, branches: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("the sources are here") {
        let path = entry.expect("the sources can be read").path();
        if path.is_dir() {
            collect(&path, branches);
        } else {
            let text = fs::read_to_string(&path).expect("sources are text");
            let named = text.split("reach!(\"").skip(1).filter_map(|rest| rest.split('"').next());
            branches.extend(named.map(str::to_owned));
        }
    }
}

#[test]
fn ten_thousand_seeds() {
    if environment::replay_one(run_seed) || environment::count_failing(SEEDS, run_seed) {
        return;
    }
    let (first, count) = environment::seeds(SEEDS);
    match run_seeds(run_seed, first..first + count) {
        Ok(mut tally) => {
            assert!(tally.total.requests > 0, "this build does not check the lifecycle of requests");
            let branches = named_branches();
            assert!(branches.len() >= 20, "the sources name {} branches", branches.len());
            for branch in branches {
                tally.branches.entry(branch.leak()).or_default();
            }
            println!("{count} seeds from {first}\n{}", tally.table());
        }
        Err(failed) => panic!(
            "replay with MEND_SIM_SEED={}: {}, {} ranks: {}",
            failed.seed, failed.program, failed.size, failed.what
        ),
    }
}
