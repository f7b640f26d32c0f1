// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Jobs over libfabric.

use mend_ffi_ofi::Ofi;

/// The variable that lets a job use libfabric and nothing else between ranks.
pub const OVER_LIBFABRIC: (&str, &str) = ("MEND_BTL", "ofi,self");

/// Why this machine has no libfabric, and how to get it.
pub fn missing() -> Option<String> {
    let error = Ofi::open(Ofi::DEFAULT_NAME).err()?;
    Some(format!("{error} (Debian: apt-get install libfabric1)"))
}
