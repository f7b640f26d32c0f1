// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a process cannot join its job, in words for its user.

use crate::daemon_protocol::{HelloRefused, VERSION};
use crate::environment::ForeignLauncher;
use mend_segment::SegmentError;
use mend_transport::Card;

/// Why a process cannot begin. Each message ends with what to do and a stable code (`docs/mpiexec.md`).
#[derive(Clone, Debug, thiserror::Error)]
pub enum StartError {
    /// A foreign launcher started this process.
    #[error("this process was started by {} ({} is set), which Mend cannot join: each of its ranks would be rank 0 of 1; \
             start the program with Mend's own mpiexec, as in 'mpiexec -n 4 PROGRAM' [E-START-001]", .0.name, .0.variable)]
    Foreign(ForeignLauncher),
    /// A variable of `mpiexec` holds a value that it did not write.
    #[error(
        "the variable {0} does not hold what this version's mpiexec writes there; \
             start the program with the mpiexec of the same installation, or unset it [E-START-002]"
    )]
    Variable(&'static str),
    /// No node daemon listens at the address.
    #[error(
        "the daemon of the mpiexec that started this process does not answer ({0}): it has ended, or this is a \
             process left over from its job; start the program anew [E-START-003]"
    )]
    NoDaemon(std::io::ErrorKind),
    /// The node daemon listens in another network namespace.
    #[error(
        "the daemon of the mpiexec that started this process is in another network name space (container) than this \
             process; start both in the same one, as with 'podman run --network=host' [E-START-004]"
    )]
    OtherNetwork,
    /// The node daemon refused the hello of this process.
    #[error("{}", hello_refused(.0))]
    HelloRefused(HelloRefused),
    /// The node daemon closed the connection.
    #[error(
        "the daemon of the mpiexec that started this process ended during the hello; see its own message \
             [E-START-005]"
    )]
    Closed,
    /// The node daemon's answer is one that no correct node daemon sends.
    #[error(
        "the daemon of the mpiexec that started this process answered with garbage; \
             start the program with the mpiexec of the same installation [E-START-006]"
    )]
    Garbage,
    /// The pages of the node cannot be made or mapped.
    #[error("the node's shared pages cannot be used: {0} [E-START-007]")]
    Pages(SegmentError),
    /// The pages of the node cannot be made because of the limit on file sizes.
    #[error("the node's shared pages cannot be made: {0} [E-START-019]")]
    FileSizeLimit(SegmentError),
}

impl From<SegmentError> for StartError {
    fn from(error: SegmentError) -> Self {
        match error {
            SegmentError::FileSizeLimit { .. } => StartError::FileSizeLimit(error),
            other => StartError::Pages(other),
        }
    }
}

fn hello_refused(why: &HelloRefused) -> String {
    match why {
        HelloRefused::VersionDiffers(theirs) => format!(
            "this process's library speaks version {VERSION} of the launcher's protocol and its mpiexec version {theirs}; \
             use the mpiexec of the same installation [E-START-010]"
        ),
        HelloRefused::LayoutDiffers(theirs) => format!(
            "this process's library shares memory in layout {} and its mpiexec in layout {theirs}; \
             use the mpiexec of the same installation [E-START-011]",
            Card::LAYOUT
        ),
        HelloRefused::WrongSecret => "the daemon does not know this process's job: MEND_DAEMON was changed; \
             start the program anew [E-START-012]"
            .to_owned(),
        HelloRefused::NoSuchRank => {
            "the job has no such rank: MEND_DAEMON was changed; start the program anew \
             [E-START-013]"
                .to_owned()
        }
        HelloRefused::Taken(pid) => format!(
            "process {pid} is this rank already: two programs under one rank cannot both call MPI_Init; \
             give each program a rank of its own, as in 'mpiexec -n 1 A : -n 1 B' [E-START-014]"
        ),
        HelloRefused::Over => {
            "a program under this rank has been in MPI and left it: MPI cannot be initialized again under the same rank; \
             start each program with an mpiexec of its own [E-START-015]"
                .to_owned()
        }
        HelloRefused::Failed => {
            "this rank is known to have failed: the process that was started for it ended before MPI_Init, or an earlier program \
             under it could not join MPI, or died in it. A rank initializes MPI once: have the wrapper wait for its program, \
             and start no second one [E-START-018]"
                .to_owned()
        }
        HelloRefused::NotVisible => {
            "the daemon cannot see this process from its own pid name space, so it could not \
             watch over it; start mpiexec outside the container, or in the same one [E-START-016]"
                .to_owned()
        }
        HelloRefused::OtherUser(user) => format!(
            "this process runs as another user than the mpiexec that started it, which runs as uid {user} and takes no others; \
             start mpiexec as the user that the ranks run as, without sudo or su under it [E-START-020]"
        ),
        HelloRefused::Garbled => "the daemon did not understand this process; \
             use the mpiexec of the same installation [E-START-017]"
            .to_owned(),
    }
}
