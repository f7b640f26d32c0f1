// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be put around any BTL, and is one: faults by a seed, a memory of the last events, books that must balance.
//! For tests, the simulator, and whoever looks for a fault; never in a normal build's path.

mod counter;
mod fault_injector;
mod tracer;

pub use counter::{Counter, Counts, Ledger};
pub use fault_injector::{FaultInjector, Faults, OneIn};
pub use tracer::{Event, Tracer};
