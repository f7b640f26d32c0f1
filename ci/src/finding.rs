// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A place where a rule is broken.

use core::fmt;

/// A place where a rule is broken. Displays as `file:line: rule: what`, which editors can follow.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// Relative to the project's root.
    pub file: String,
    /// Line number, from 1.
    pub line: usize,
    /// The name of the rule.
    pub rule: &'static str,
    /// What is wrong, in a sentence.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}: {}", self.file, self.line, self.rule, self.what)
    }
}
