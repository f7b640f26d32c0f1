// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `tidy`: reads the project's files and says where they break a rule that a program can check (ARCHITECTURE.md,
//! "Rules"). Text only: it compiles nothing, knows no types, and errs where a rule is about meaning.
//!
//! Read [`Tree`] for what is looked at and [`rules`] for what is asked of it.
#![forbid(unsafe_code)]

mod finding;
pub mod rules;
mod source;
mod tree;

pub use finding::Finding;
pub use source::{Function, Source};
pub use tree::Tree;
