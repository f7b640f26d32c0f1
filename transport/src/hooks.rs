// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BTLs that wrap any other BTL, for tests: a fault injector, a tracer of the last events, and a check that no message is lost or
//! duplicated.

mod counter;
mod fault_injector;
mod tracer;

pub use counter::{Counter, Counts, InFlight};
pub use fault_injector::{FaultInjector, Faults, OneIn};
pub use tracer::{Event, Tracer};
