// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several `Ob1` on a seeded fabric.

mod abandon;
mod awaited;
mod basics;
mod cancel;
mod control;
mod death;
mod fabric;
mod flow;
mod garbage;
mod gets;
mod memory;
mod naming;
mod operations;
mod polling;
mod progress;
mod remote_memory;
mod revoke;
mod traffic;
