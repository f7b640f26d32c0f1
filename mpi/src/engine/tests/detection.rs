// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Failures that the ranks find by themselves: the runtime gives no notice of any. A process that is not driven is stopped or dead.

use super::collectives::result;
use crate::scripted::{Process, ScriptedJob};
use crate::{Detail, JobNotice, Started};
use mend_base::{Duration, Instant, Rank};
use mend_coll::Collective;
use mend_proto::detector::{Config, Lease};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const CONFIG: Config = Config {
    period: ms(10),
    timeout: ms(50),
    observers: 3,
    lease: Some(Lease { span: ms(200), margin: ms(60) }),
};

struct Job {
    job: ScriptedJob,
    processes: Vec<Process>,
    now: Instant,
}

impl Job {
    fn new(size: u32) -> Job {
        Job::with_late(size, 0)
    }

    /// The last `late` processes have not called MPI_Init yet.
    fn with_late(size: u32, late: usize) -> Job {
        let job = ScriptedJob::default();
        let mut processes: Vec<_> = (0..size).map(|me| job.process(me, size)).collect();
        for (me, other) in (0..size).flat_map(|me| (0..size).map(move |other| (me, other))) {
            if me != other {
                job.give_contact(me, other);
            }
        }
        for process in &mut processes[..size as usize - late] {
            process.detect_failures(Instant(1), CONFIG).expect("there is memory");
        }
        Job { job, processes, now: Instant(1) }
    }

    /// So much time passes, in which these processes make progress.
    fn run(&mut self, span: Duration, runs: &[usize]) {
        let end = self.now + span;
        while self.now < end {
            self.now = self.now + ms(1);
            for &at in runs {
                self.processes[at].progress(self.now);
            }
        }
    }

    fn failed(&mut self, at: usize) -> Vec<Rank> {
        let world = self.processes[at].comm_world();
        self.processes[at].failed(world).expect("WORLD exists")
    }
}

#[test]
fn the_ring_starts_when_all_ranks_have_called_init_and_doubts_nobody_who_lives() {
    let mut job = Job::with_late(4, 1);
    job.run(ms(1_000), &[0, 1, 2]);
    assert!((0..3).all(|at| !job.processes[at].detects_failures() && job.failed(at).is_empty()));
    job.processes[3].detect_failures(job.now, CONFIG).expect("there is memory");
    job.run(ms(2_000), &[0, 1, 2, 3]);
    assert!((0..4).all(|at| job.processes[at].detects_failures() && job.failed(at).is_empty()));
    assert!(job.job.asked().is_empty(), "nobody is suspected");
}

#[test]
fn a_dead_rank_is_declared_at_all_survivors_after_its_lease_and_ends_their_operations() {
    let mut job = Job::new(5);
    job.run(ms(100), &[0, 1, 2, 3, 4]);
    let alive = [0, 1, 3, 4];
    let world = job.processes[0].comm_world();
    let barriers: Vec<Started> = alive
        .iter()
        .map(|&at| job.processes[at].collective(world, Collective::Barrier).expect("nobody has failed"))
        .collect();
    job.run(ms(200), &alive);
    assert!(alive.iter().all(|&at| job.failed(at).is_empty()), "its lease is not over");
    assert!(!job.job.asked().is_empty(), "it is suspected, and the runtime is asked");
    job.run(ms(100), &alive);
    for (&at, &barrier) in alive.iter().zip(&barriers) {
        assert_eq!(job.failed(at), [Rank(2)]);
        let ended = result(&job.processes[at], barrier).expect("it is over").map_err(|error| error.detail);
        assert!(matches!(ended, Err(Detail::ProcFailed(Rank(2)))), "{at}: {ended:?}");
    }
}

#[test]
fn ranks_that_die_together_are_all_found() {
    let mut job = Job::new(7);
    job.run(ms(100), &[0, 1, 2, 3, 4, 5, 6]);
    // Two neighbours, which are two of three observers of another one, and one elsewhere.
    let alive = [0, 3, 4, 6];
    job.run(ms(2_000), &alive);
    for at in alive {
        let mut failed = job.failed(at);
        failed.sort_unstable();
        assert_eq!(failed, [Rank(1), Rank(2), Rank(5)], "{at}");
    }
}

#[test]
fn a_rank_that_was_stopped_beyond_its_lease_fences_itself_first_and_one_stopped_for_less_goes_on() {
    let mut job = Job::new(3);
    job.run(ms(100), &[0, 1, 2]);
    job.run(ms(120), &[0, 2]);
    job.run(ms(100), &[0, 1, 2]);
    assert!((0..3).all(|at| job.failed(at).is_empty()), "120 ms are less than the lease without the margin");
    assert!(!job.processes[1].has_job_notices());
    job.run(ms(400), &[0, 2]);
    assert_eq!((job.failed(0), job.failed(2)), (vec![Rank(1)], vec![Rank(1)]));
    job.now = job.now + ms(1);
    assert_eq!(job.processes[1].progress(job.now), 1);
    assert_eq!(job.processes[1].next_job_notice(), Some(JobNotice::Fenced));
    for _ in 0..10 {
        assert_eq!(job.processes[1].progress(job.now), 1, "it does nothing any more");
        assert!(!job.processes[1].finish(), "nor does it leave as if it had finalized");
    }
}

#[test]
fn a_rank_that_stops_between_init_and_its_first_progress_for_longer_than_a_lease_fences_itself() {
    let mut job = Job::new(3);
    job.now = job.now + ms(201);
    job.processes[1].progress(job.now);
    assert_eq!(job.processes[1].next_job_notice(), Some(JobNotice::Fenced));
}

/// The queue to the observer is full when the rank leaves, and the launcher says nothing of that.
#[test]
fn a_rank_that_finalizes_while_an_observer_is_stopped_is_not_taken_for_dead() {
    let mut job = Job::new(4);
    job.run(ms(100), &[0, 1, 2, 3]);
    job.run(ms(100), &[0, 2, 3]);
    assert!(!job.processes[2].finish(), "rank 1 has to hear of it");
    let mut has_left = false;
    for _ in 0..1_000 {
        job.run(ms(1), if has_left { &[0, 1, 3] } else { &[0, 1, 2, 3] });
        has_left = has_left || job.processes[2].finish();
    }
    assert!(has_left);
    for at in [0, 1, 3] {
        assert!(job.failed(at).is_empty() && !job.processes[at].has_job_notices(), "{at}");
    }
}

#[test]
fn a_rank_that_is_stopped_beyond_a_lease_while_the_ring_starts_fences_itself() {
    let mut job = Job::new(3);
    job.run(ms(300), &[0]);
    assert!(!job.processes[0].has_job_notices(), "it waits for the others, and makes progress");
    job.processes[1].progress(job.now);
    job.now = job.now + ms(201);
    job.processes[1].progress(job.now);
    assert_eq!(job.processes[1].next_job_notice(), Some(JobNotice::Fenced));
}

#[test]
fn a_rank_that_finalizes_is_not_taken_for_dead() {
    let mut job = Job::new(4);
    job.run(ms(100), &[0, 1, 2, 3]);
    let now = job.now;
    for _ in 0..100 {
        job.processes[2].progress(now);
        if job.processes[2].finish() {
            break;
        }
    }
    assert!(job.processes[2].finish());
    job.run(ms(1_000), &[0, 1, 3]);
    for at in [0, 1, 3] {
        assert!(job.failed(at).is_empty() && !job.processes[at].has_job_notices(), "{at}");
    }
}
