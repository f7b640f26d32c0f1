// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A libfabric that passes every call on to another libfabric and injects faults. Mend, or any program, opens
//! `libmend_fabric_shim.so` in its place. `docs/fabric-shim.md` is for its users; read `object.rs` first to see how a call
//! is passed on, then `faults.rs`. Tests use [`Shim`].
//!
//! Not here: a network of our own. What is not injected is what the real library does.
//!
//! | part | what it has |
//! |---|---|
//! | `exports` | the C symbols |
//! | `real` | the real library |
//! | `object` | our objects in front of the real ones; the functions that all objects have |
//! | `fabric`, `domain`, `addresses`, `queue`, `endpoint` | one kind of objects each; `domain` registrations, too |
//! | `messages`, `tagged`, `remote_memory`, `atomics` | the operations of endpoints |
//! | `pending` | completions that are held back or were injected |
//! | `site`, `rules`, `faults` | where faults are injected, which, and when |
//! | `open`, `report` | what is open, and the report |

mod addresses;
mod atomics;
mod control;
mod domain;
mod endpoint;
mod exports;
mod fabric;
mod faults;
mod messages;
mod object;
mod open;
mod pending;
mod queue;
mod real;
mod remote_memory;
mod report;
mod rules;
mod site;
mod tagged;

pub use control::Shim;
pub use open::Kind;
pub use rules::{Failure, Fault, Rule, RuleError, Rules};
pub use site::Site;

use mend_ffi_ofi::bindings;
