// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors that keep a job from being run at all.

use crate::arguments::UsageError;
use mend_segment::SegmentError;

/// Why a job could not be run at all.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The command line is refused.
    #[error(transparent)]
    Arguments(#[from] UsageError),
    /// The limit on descriptors is too low for so many ranks.
    #[error(
        "so many ranks need {needed} file descriptors here, and the limit is {limit}; \
         raise it ('ulimit -Hn', limits.conf) or start fewer [E-EXEC-001]"
    )]
    Descriptors {
        /// How many are needed.
        needed: u64,
        /// How many this process may have.
        limit: u64,
    },
    /// The system refused something that is always needed.
    #[error("a system call that every job needs has failed: {0} [E-EXEC-002]")]
    System(std::io::Error),
}

/// Why the pages that all ranks of a node share cannot be made. The job runs, without shared memory.
#[derive(Debug, thiserror::Error)]
pub enum PagesRefused {
    /// The system refuses them.
    #[error("the node's shared pages cannot be made, so its ranks have no shared memory: {0} [E-EXEC-003]")]
    Pages(SegmentError),
    /// The limit on file sizes does not let them be made.
    #[error("the node's shared pages cannot be made, so its ranks have no shared memory: {0} [E-EXEC-004]")]
    FileSizeLimit(SegmentError),
}

impl From<SegmentError> for PagesRefused {
    fn from(error: SegmentError) -> Self {
        match error {
            SegmentError::FileSizeLimit { .. } => PagesRefused::FileSizeLimit(error),
            other => PagesRefused::Pages(other),
        }
    }
}

impl LaunchError {
    pub(crate) fn system(errno: rustix::io::Errno) -> Self {
        LaunchError::System(errno.into())
    }
}
