// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `mend-abi-generate` makes from `abi/table`.

pub(crate) mod constants;
mod exports;
