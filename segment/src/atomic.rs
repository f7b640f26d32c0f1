// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The atomic types of shared memory: those of `core`, or loom's under `cfg(loom)`, so that the model checks the
//! production code.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
