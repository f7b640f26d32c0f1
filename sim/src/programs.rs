// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rank programs: what simulated jobs do. Each checks what it gets; all of them end, whatever the schedule, or the
//! engine is wrong.

mod birth;
mod collectives;
mod deaths;
mod early;
mod fairness;
mod hostile;
mod refused;
mod ring;
mod traffic;
mod waits;

use crate::{Process, Program};
use std::future::Future;
use std::rc::Rc;

/// Every program, with its name.
pub fn all() -> [(&'static str, Program); 10] {
    [
        ("ring", program(ring::run)),
        ("traffic", program(traffic::run)),
        ("collectives", program(collectives::run)),
        ("birth", program(birth::run)),
        ("early", program(early::run)),
        ("fairness", program(fairness::run)),
        ("refused", program(refused::run)),
        ("hostile", program(hostile::run)),
        // The one that finds most comes more often.
        ("traffic", program(traffic::run)),
        ("traffic", program(traffic::run)),
    ]
}

/// The one whose ranks may die.
pub fn deaths() -> Program {
    program(deaths::run)
}

/// The one that shows what each call that waits answers.
pub fn waits() -> Program {
    program(waits::run)
}

/// An `async fn` as a program.
pub fn program<F: Future<Output = ()> + 'static>(run: impl Fn(Process) -> F + 'static) -> Program {
    Rc::new(move |process| Box::pin(run(process)))
}
