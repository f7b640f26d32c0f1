// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MPI_Finalize: a process leaves when its peers have received everything.

use crate::scripted::{Process, ScriptedJob, peer};
use mend_base::Instant;
use mend_runtime::Notice;
use mend_transport::Cause;

/// Two connected processes.
fn pair() -> (ScriptedJob, [Process; 2]) {
    let job = ScriptedJob::default();
    let mut processes = [0, 1].map(|me| job.process(me, 2));
    (0..2).for_each(|me| job.give_contact(me, 1 - me));
    progress(&mut processes[0]);
    (job, processes)
}

fn progress(process: &mut Process) {
    (0..9).for_each(|_| _ = process.progress(Instant(1)));
}

#[test]
fn a_process_leaves_when_the_transports_say_that_everything_has_been_received() {
    let (job, [mut process, _]) = pair();
    process.layers.net.is_flushed = false;
    for _ in 0..3 {
        assert!(!process.finish() && process.is_flushing());
        progress(&mut process);
    }
    assert_eq!(job.finalized(), [], "the runtime is told last");
    process.layers.net.is_flushed = true;
    assert!(process.finish() && !process.is_flushing());
    assert_eq!(job.finalized(), [0]);
}

#[test]
fn what_is_to_be_said_last_is_said_once_before_the_runtime_is_told() {
    let (job, [mut process, _]) = pair();
    process.layers.net.is_flushed = false;
    let mut said = 0;
    for is_flushed in [false, false, true, true] {
        process.layers.net.is_flushed = is_flushed;
        let left = process.finish_after(|_, _| {
            assert_eq!(job.finalized(), []);
            said += 1;
        });
        assert_eq!((left, said), (is_flushed, u32::from(is_flushed)));
        progress(&mut process);
    }
    assert_eq!(job.finalized(), [0]);
}

#[test]
fn a_process_leaves_when_the_runtime_has_answered_about_a_peer_that_it_suspects() {
    for answer in [Notice::Alive(peer(1)), Notice::Failed(peer(1))] {
        let (job, [mut process, _]) = pair();
        process.layers.net.evidence.push((1, Cause::Silent));
        progress(&mut process);
        assert!(!process.finish(), "a quarantined peer has not received everything");
        progress(&mut process);
        assert!(!process.finish());
        job.notify(0, answer);
        progress(&mut process);
        assert!(process.finish());
        assert_eq!(job.finalized(), [0]);
    }
}
