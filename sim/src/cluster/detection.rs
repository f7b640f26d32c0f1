// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Jobs whose ranks find failures by themselves, since the launcher gives no notice of any. A process may be stopped for longer than its
//! lease. The oracle: who is declared failed is dead, or is stopped and never acts again: the first thing that it does is to fence itself.

use super::Cluster;
use mend_base::{Duration, Instant, Rank, reach};
use mend_mpi::JobNotice;
use mend_proto::detector::Config;
use std::collections::{BTreeMap, BTreeSet};

/// What a cluster knows of the ring.
pub(super) struct Detection {
    pub config: Config,
    /// The ranks that some rank has declared failed.
    declared: BTreeSet<u32>,
    /// When each rank has acted last.
    acted: BTreeMap<u32, Instant>,
}

/// A stopped process of such a job stays so for at most so many steps: beyond its lease in half of the cases.
pub(super) const LONG_STOP_STEPS_MAX: u64 = 20_000;

impl Cluster {
    /// Lets the ranks of the job find failures by a ring of heartbeats.
    pub fn detect_failures(&mut self, config: Config) {
        self.detection = Some(Detection { config, declared: BTreeSet::new(), acted: BTreeMap::new() });
    }

    /// A rank has made progress: it may have fenced itself, or declared others. Returns whether it has fenced itself.
    pub(super) fn observe_detection(&mut self, rank: u32) -> bool {
        let Some(detection) = &mut self.detection else { return false };
        let Some(running) = &self.ranks[rank as usize].running else { return false };
        let mut engine = running.mpi.engine_mut();
        let is_fenced = engine.next_job_notice() == Some(JobNotice::Fenced);
        let lives = !self.killer.death_has_begun(rank);
        assert!(
            is_fenced || !lives || !detection.declared.contains(&rank),
            "rank {rank} was declared failed, and acts"
        );
        let span = detection.config.lease.map_or(Duration(0), |lease| lease.span);
        if !is_fenced {
            detection.acted.insert(rank, self.clock.now());
        }
        let failed: Vec<u32> = engine.ends().failed().iter().map(|peer| peer.0).collect();
        drop(engine);
        for declared in failed {
            if !detection.declared.insert(declared) {
                continue;
            }
            let is_dead = self.killer.death_has_begun(declared);
            if is_dead {
                reach!("sim.detection: a dead rank is declared");
            } else {
                let acted = detection.acted.get(&declared).copied().unwrap_or_default();
                let has_lease = self.clock.now() - acted < span;
                assert!(!has_lease, "rank {declared} was declared failed by rank {rank}, and has a lease");
                reach!("sim.detection: a stopped rank is declared");
            }
        }
        if is_fenced && lives {
            reach!("sim.detection: fenced");
            self.kill(Rank(rank));
        }
        is_fenced
    }
}
