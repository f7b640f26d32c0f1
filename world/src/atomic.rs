// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The atomic types of `bias`: those of `core`. Its model, `world/tests/guard_model.rs`, has loom's instead.

pub use core::sync::atomic::{AtomicU32, Ordering, compiler_fence, fence};
