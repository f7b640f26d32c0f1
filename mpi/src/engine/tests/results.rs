// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results that are left with the node daemon, and its answers.

use crate::scripted::{ScriptedJob, peer};
use mend_base::{Identity, Instant};
use mend_runtime::{ResultKey, Runtime};

const KEY: ResultKey =
    ResultKey { identity: Identity { creator: peer(0), number: 16 }, protocol: 1, sequence: 5 };

#[test]
fn an_answer_about_a_result_is_taken_as_one_event_and_ends_no_peer() {
    let job = ScriptedJob::default();
    let mut zero = job.process(0, 3);
    while zero.progress(Instant(1)) > 0 {}
    job.give_recalled(0, KEY, Some(&[7]));
    job.give_recalled(0, KEY, None);
    assert_eq!(zero.progress(Instant(1)), 2);
    assert_eq!(zero.progress(Instant(1)), 0);
    let world = zero.comm_world();
    assert!(zero.failed(world).expect("WORLD exists").is_empty());
    assert!(job.recalled().is_empty() && job.left_results().is_empty());
}

#[test]
fn the_scripted_runtime_records_which_rank_left_or_asked_for_what() {
    let job = ScriptedJob::default();
    let mut runtime = job.layers(2, 3).runtime;
    runtime.leave_result(KEY, &[7]);
    runtime.recall_result(KEY);
    assert_eq!(job.left_results(), [(2, KEY, vec![7])]);
    assert_eq!(job.recalled(), [(2, KEY)]);
}
