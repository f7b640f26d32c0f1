// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many objects of each kind are open: what a program left open, and what it could not close.

use std::sync::atomic::{AtomicI64, Ordering};

/// A kind of objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An element of a list of `fi_info`.
    Info,
    /// `fid_fabric`
    Fabric,
    /// `fid_domain`
    Domain,
    /// `fid_av`
    AddressVector,
    /// `fid_cq`
    CompletionQueue,
    /// `fid_ep`
    Endpoint,
    /// `fid_mr`
    Registration,
}

impl Kind {
    /// All kinds, with their names in the report.
    pub const ALL: [(Kind, &str); 7] = [
        (Kind::Info, "info"),
        (Kind::Fabric, "fabric"),
        (Kind::Domain, "domain"),
        (Kind::AddressVector, "av"),
        (Kind::CompletionQueue, "cq"),
        (Kind::Endpoint, "endpoint"),
        (Kind::Registration, "mr"),
    ];

    /// How many are open that the program has not asked to close.
    pub fn open(self) -> i64 {
        OPEN[self as usize].load(Ordering::Relaxed)
    }

    /// How many are open because their close failed.
    pub fn refused(self) -> i64 {
        REFUSED[self as usize].load(Ordering::Relaxed)
    }
}

pub(crate) fn opened(kind: Kind) {
    add(kind, 1);
}

/// Counts objects that were opened, or closed where the number is negative.
pub(crate) fn add(kind: Kind, number: i64) {
    OPEN[kind as usize].fetch_add(number, Ordering::Relaxed);
}

/// An object could not be closed, for the first time.
pub(crate) fn close_failed(kind: Kind) {
    OPEN[kind as usize].fetch_sub(1, Ordering::Relaxed);
    REFUSED[kind as usize].fetch_add(1, Ordering::Relaxed);
}

/// An object was closed, perhaps after a failure.
pub(crate) fn closed(kind: Kind, failed_before: bool) {
    let counts = if failed_before { &REFUSED } else { &OPEN };
    counts[kind as usize].fetch_sub(1, Ordering::Relaxed);
}

static OPEN: [AtomicI64; Kind::ALL.len()] = [const { AtomicI64::new(0) }; Kind::ALL.len()];
static REFUSED: [AtomicI64; Kind::ALL.len()] = [const { AtomicI64::new(0) }; Kind::ALL.len()];
