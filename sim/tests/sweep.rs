// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A death at points of every blocking call. The soak `sim` tries every point.

use mend_sim::recoveries::report_panics;
use mend_sim::sweep::{sweep, table};

/// A prime, so that the points differ from call to call.
const STRIDE: u64 = 41;

//
#[test]
fn wherever_a_member_dies_in_a_blocking_call_the_survivors_return_and_repair() {
    report_panics();
    let rows = sweep(STRIDE);
    println!("every {STRIDE}st point\n{}", table(&rows));
    for (name, row) in &rows {
        if let Some((history, failure)) = row.failures.first() {
            panic!("{name}: {:?}: {}\n{history}", failure.kind, failure.what);
        }
        assert!(!row.has_hole(), "{name}: no rank died in the call, or not with some number of ranks");
    }
}
