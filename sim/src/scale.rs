// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the protocols of recovery grow with the number of ranks: each is executed alone, with the production state machine for every
//! member, and its messages are counted and timed.
//!
//! The cost model is LogGP: Alexandrov, Ionescu, Schauser, Scheiman, "LogGP: Incorporating Long Messages into the LogP Model",
//! SPAA'95 (doi:10.1145/215399.215427). Its constants are arguments, so that they can be those of a measured machine; counts do not
//! depend on them.
//!
//! | part | owns |
//! |---|---|
//! | [`command`] | the command line |
//! | [`cost`] | the constants of the cost model |
//! | [`execution`] | members, the messages between them, and time |
//! | [`protocols`] | what is executed: agreement, uniform agreement, shrink, revocation, detection |
//! | [`formulas`] | what the counts must be |
//! | [`table`] | the sizes, the comparison, what is written |

pub mod command;
pub mod cost;
pub mod execution;
pub mod formulas;
pub mod protocols;
mod svg;
pub mod table;
