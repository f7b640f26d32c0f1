// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rank programs. Each checks its own results. Each of them ends under every schedule: a program that does not end has
//! found a fault of the engine.

mod collectives;
mod creation;
mod crossed;
mod deaths;
mod detector;
mod early;
mod fairness;
mod garbage;
mod inter;
mod no_memory;
pub mod recovery;
mod refused;
mod ring;
mod traffic;
mod waits;

use crate::{Process, Program};
use std::future::Future;
use std::rc::Rc;

/// The programs of jobs without deaths, with their names.
pub fn all() -> [(&'static str, Program); 10] {
    [
        ("ring", program(ring::run)),
        ("traffic", program(traffic::run)),
        ("collectives", program(collectives::run)),
        ("creation", program(creation::run)),
        ("early", program(early::run)),
        ("fairness", program(fairness::run)),
        ("refused", program(refused::run)),
        ("garbage", program(garbage::run)),
        // Three times as often as the others, since it covers most of the code.
        ("traffic", program(traffic::run)),
        ("traffic", program(traffic::run)),
    ]
}

/// The program whose ranks may die.
pub fn deaths() -> Program {
    program(deaths::run)
}

/// The program whose ranks call agreements of several communicators in orders of their own.
pub fn crossed() -> Program {
    program(crossed::run)
}

/// The program whose ranks connect by intercommunicators, and may die.
pub fn inter() -> Program {
    program(inter::run)
}

/// The program whose ranks lack memory at times.
pub fn no_memory() -> Program {
    program(|process| no_memory::run(process, false))
}

/// The same, and its ranks agree, too.
pub fn no_memory_and_agreements() -> Program {
    program(|process| no_memory::run(process, true))
}

/// The program whose ranks create communicators, lack memory at times, and may die.
pub fn no_memory_and_creations() -> Program {
    program(no_memory::creations::run)
}

/// The program of ranks that find failures by themselves.
pub fn detector() -> Program {
    program(detector::run)
}

/// The program that checks the results of calls that wait.
pub fn waits() -> Program {
    program(waits::run)
}

/// Makes a program of an `async fn`.
pub fn program<F: Future<Output = ()> + 'static>(run: impl Fn(Process) -> F + 'static) -> Program {
    Rc::new(move |process| Box::pin(run(process)))
}
