// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The model checker: all schedules of a few members of a [`Protocol`], with all crashes, to the last state.
//!
//! A [`Model`] says which protocol, how many members, what their owners may do and what must hold. [`check`] visits every state
//! that can be reached. A state is the parts of all members, what their owners remember, and the messages on their way. An
//! event is
//!
//! * the arrival of the first message of a channel: each ordered pair of members has a channel, which keeps the order, or several;
//! * something that the owner of a member does (a *choice*: it may also never happen), or that it will do (an *obligation*);
//! * the crash of a member;
//! * the news of a crash at one member: at its own time for each member. What has not arrived from the dead until then is lost, or,
//!   where the model lets news overtake ([`Model::news_overtakes`]), it may still arrive, and any suffix of it is lost at any time;
//! * a member leaves MPI, and the news of that at one member: not before all that the member has sent to it has arrived.
//!
//! All sends of one event are made at once. That leaves nothing out: a crash between two sends of an event gives the states of
//! a crash after all of them, since the news may come before any message, so that any suffix of each channel of the dead may be
//! lost. What another member does between two sends, it does here before the later one arrives.
//!
//! An oracle looks at each state ([`Model::safety`]), and one at each state in which nothing can happen any more but choices
//! and crashes ([`Model::liveness`]). A circle of states is a violation, too: messages would be sent for ever. A violation
//! comes with a shortest [`Trace`].
//!
//! No symmetry is used in trees: in no shape of them are two members alike, since the lowest living rank becomes the root. In `spread` the
//! members that revoke are numbered in their order, as up to five members are all neighbours of each other, and alike. Visited
//! states are stored as 64-bit hashes: with N states, the probability that one was taken for another is N^2 / 2^65, and is
//! printed.
//!
//! | part | owns |
//! |---|---|
//! | `model` | what is checked |
//! | `space` | parts of members, messages and channels, each stored once, and every step of one member, computed once |
//! | `search` | the visit of all states, and the search for a shortest trace |
//! | [`votes`], [`agreements`], [`shrinks`] | the models of [`mend_proto::vote`] and [`mend_proto::agreement`], and of identities that agreements decide |
//! | [`spreads`], [`identities`] | the models of [`mend_proto::spread`] and of context ids ([`mend_proto::identity`]) |
//! | [`table`] | the bounds |
//!
//! [`Protocol`]: mend_proto::protocol::Protocol

pub mod agreements;
mod fingerprints;
pub mod identities;
mod model;
mod search;
pub mod shrinks;
mod space;
pub mod spreads;
pub mod table;
pub mod votes;

pub use model::{Effects, Member, MemberOf, MessageOf, Model, OutcomeOf, Status, View};
pub use search::{Count, Limits, Trace, Violation, check};
pub use space::{Fault, SIZE_MAX, STREAMS_MAX};
