// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `model [--small] [WORD...]`: checks the models of the protocols (`mend_sim::explore`) whose names contain all these words.
//!
//! Ends with 0 if nothing was violated, with 10 after a violation of safety, with 11 after one of liveness.

use mend_sim::explore::{Fault, Limits, table};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let is_small = words.iter().any(|word| word == "--small");
    words.retain(|word| word != "--small");
    let mut checks = if is_small { table::small() } else { table::full() };
    checks.retain(|check| words.iter().all(|word| check.name.contains(&**word)));
    let (mut states, mut number) = (0, 0);
    for check in checks {
        print!("{}: ", check.name);
        let _ = std::io::stdout().flush();
        match check.run(Limits::default()) {
            Ok(count) => {
                let count = count.expect("there is no limit");
                println!("{count}");
                (states, number) = (states + count.states, number + 1);
            }
            Err(violation) => {
                println!("{violation}");
                return ExitCode::from(match violation.fault {
                    Fault::Safety(_) => SAFETY,
                    Fault::Liveness(_) => LIVENESS,
                });
            }
        }
    }
    println!("{number} models, {states} states, no violation. {LEFT_OUT}");
    ExitCode::SUCCESS
}

const LEFT_OUT: &str = "Left out: more members, crashes and rounds than each line says, and with the probability that it ends \
    with (confusion) states whose hash is that of another one. No reduction by order. By symmetry only: members that revoke are numbered \
    in their order, where all members are neighbours. 'Sent with each event': several events in one turn of progress. Communicators that \
    four members free.";
const SAFETY: u8 = 10;
const LIVENESS: u8 = 11;
