// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several `Ob1` on a seeded fabric.

mod abandon;
mod awaited;
mod basics;
mod death;
mod fabric;
mod flow;
mod garbage;
mod lifecycle_check;
mod naming;
mod traffic;
