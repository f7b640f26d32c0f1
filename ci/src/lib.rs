// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `tidy`: reads the project's files and reports where they break a rule that a program can check (ARCHITECTURE.md,
//! "Rules that a program checks"). It reads text only: it compiles nothing and knows no types, so it approximates some rules.
//!
//! [`Tree`] is the files that are read; [`rules`] is the list of rules.
#![forbid(unsafe_code)]

mod finding;
pub mod rules;
mod source;
mod tree;

pub use finding::Finding;
pub use source::{Function, Source};
pub use tree::Tree;
