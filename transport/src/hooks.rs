// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BTLs around any other BTL, for tests and the simulator: a fault injector, a tracer of the last events, a check
//! that no message is lost or duplicated.

mod counter;
mod fault_injector;
mod tracer;

pub use counter::{Counter, Counts, Ledger};
pub use fault_injector::{FaultInjector, Faults, OneIn};
pub use tracer::{Event, Tracer};
