// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The atomics that shared memory is made of: the hardware's, or loom's under `cfg(loom)`, so that the model checks the
//! very code that runs.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
