// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why shared memory is not available.

use rustix::io::Errno;

/// Why shared memory is not available. Not `non_exhaustive`: each cause has one message that a user can act on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SegmentError {
    /// The kernel would not make an anonymous file.
    #[error("memfd_create is refused on this system: {0}")]
    NoMemfd(Errno),
    /// The kernel would not seal it (F_SEAL_FUTURE_WRITE came with Linux 5.1).
    #[error("sealing shared memory is refused on this system (Linux 5.1 or later is needed): {0}")]
    NoSeals(Errno),
    /// Address space could not be mapped.
    #[error("shared memory could not be mapped: {0}")]
    NoMapping(Errno),
    /// A descriptor could not be duplicated, as none is left.
    #[error("no file descriptor is left: {0}")]
    NoDescriptor(Errno),
    /// Space could not be reserved, or a memory limit leaves too little of it.
    #[error("{wanted} bytes of shared memory were wanted, and {free} are left under the memory limit")]
    NoMemory {
        /// The bytes to be reserved.
        wanted: u64,
        /// What the limits leave, less what must stay free; 0 where the kernel itself refused.
        free: u64,
    },
    /// The limit on file sizes is smaller than the memory file, which counts as one.
    #[error(
        "shared memory of {wanted} bytes is wanted, and the limit on file sizes, which counts it, is {limit} bytes; \
         raise it (ulimit -f unlimited)"
    )]
    FileSizeLimit {
        /// The bytes of the memory file.
        wanted: u64,
        /// RLIMIT_FSIZE.
        limit: u64,
    },
    /// The kernel or the C library has no robust mutexes, without which a failure cannot be detected promptly.
    #[error(
        "robust mutexes are refused on this system, and without them process failures cannot be detected promptly: {0}"
    )]
    NoLifeWord(Errno),
    /// The file is not what its owner should have made: not sealed, too short, or of another layout version.
    #[error("the shared memory of the other process was not made by this version of Mend")]
    LayoutDiffers,
}
