// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The node daemon's decisions: which ranks have failed, which notices each rank gets and in which order, which processes are
//! killed, when the job ends and with which exit code. This crate does no I/O: `launch` runs it with processes and sockets, `sim`
//! with simulated ones.
//!
//! Inputs are the methods `on_*`; time is an argument. Outputs are [`Effect`]s, which the caller performs immediately and in
//! order, and notices, which it takes after the effects: [`NodeDaemon::next_notice`] returns them for one rank at a time, as its
//! socket has room. How a death is handled:
//!
//! ```text
//!   life word marked, process ended ─────────────┐
//!   a rank asks ─▶ Examine ─▶ marked, or ended ──┼─▶ ReadMessages ─▶ it had left: nothing
//!                                                │      └─────▶ declared ─▶ Kill (if need be) ─▶ a notice to each other rank
//!   connection closed, garbage, abort_some ──────┴────────────────▲
//! ```
//!
//! | part | owns | may call |
//! |---|---|---|
//! | [`NodeDaemon`] | evidence that is being examined, effects, the end of the job | all parts below |
//! | `ranks` | for each rank: its state, and how its processes ended; the order of deaths | nothing |
//! | `notifier` | cards, pairs of ranks, the list of ends, how much of it each rank was told | nothing |
//! | `results` | results that ranks have left for others to recall | nothing |
//! | `hang_report` | where each rank is, in a job that may hang | nothing |
//! | `transport_report` | what each rank has said about its transports | `ranks`, to read |
//! | `exit_policy` | the command line's rules about exit codes | `ranks`, to read |
//! | `sentences` | nothing: forms the lines for the user about deaths | `ranks`, to read |
//!
//! Not here: bytes, processes, descriptors, the clock. Read [`NodeDaemon`] first.
#![forbid(unsafe_code)]

mod ending;
mod exit_policy;
mod hang_report;
mod node_daemon;
mod notifier;
mod ranks;
mod results;
mod sentences;
mod transport_report;

pub use ending::{Ending, signal_code, signal_name};
pub use exit_policy::{Counting, KILL_TIME_LIMIT, Muted, Rules};
pub use node_daemon::{Condition, Effect, JobEnd, JobEndReason, NodeDaemon, ProcessEnd};
pub use notifier::Step;
pub use ranks::RankLine;
