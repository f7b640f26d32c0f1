// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors as MPI sees them: a class for the program, and for its user the cause, what to do about it, and a code that
//! stays the same in every version. The one place where the errors of the layers below become MPI's.

use crate::ErrorClass;
use core::fmt;
use mend_base::{Rank, Tag};
use mend_pml::Status;
use mend_transport::Cause;

/// What a call or a request ends with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Error {
    /// For the program.
    pub class: ErrorClass,
    /// For its user.
    pub detail: Detail,
}

/// The lowest cause that is known, with the figures that belong to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// Nothing more than the class says.
    Plain,
    /// The handle of the communicator is stale or was never given out.
    NoSuchCommunicator,
    /// The handle of the request is stale or was never given out.
    NoSuchRequest,
    /// The handle names no datatype.
    NoSuchDatatype,
    /// The handle names no reduction operation.
    NoSuchOp,
    /// The rank is not below the size of the communicator or group, where that is known.
    NoSuchRank(Rank, Option<u32>),
    /// The root of a collective is not below the size of the communicator.
    NoSuchRoot,
    /// A tag below zero.
    NegativeTag(Tag),
    /// A predefined communicator was to be freed.
    PredefinedCommunicator,
    /// A group names a process that is not in the communicator.
    NotInCommunicator,
    /// The operation does not take this datatype.
    OpNotDefined,
    /// This rank's role in a collective needs a buffer, and was given `MPI_IN_PLACE` or none.
    BufferMissing,
    /// The buffers of a collective do not divide into blocks, or do not fit together.
    CountsDiffer,
    /// A rank or a peer was named twice in a group.
    NamedTwice,
    /// More bytes arrived (or were announced) than the receive has room for; the status holds what was kept.
    Truncated(Status),
    /// The peer has finalized; what was still to come from it, or go to it, never will.
    PeerLeft(Rank),
    /// The peer has freed the communicator without receiving this; MPI_Finalize frees them all.
    PeerFreed(Rank),
    /// The peer has failed.
    ProcFailed(Rank),
    /// A process that may be the sender has failed, and that was not acknowledged: the first such, where it is known.
    SenderMayHaveFailed(Option<Rank>),
    /// No transport leads to the peer.
    Unreachable(Rank, Cause),
    /// Memory for an operation could not be had.
    NoMemory,
    /// This process has made 2^32 communicators.
    IdentitiesExhausted,
    /// What a member sent while a communicator was made does not fit the others' contributions.
    BadCreation,
    /// MPI was finalized, or is not initialized.
    NotRunning,
}

impl Error {
    /// The error that `detail` stands for, with its class.
    pub const fn of(detail: Detail) -> Error {
        Error { class: detail.class(), detail }
    }

    /// A class alone.
    pub const fn plain(class: ErrorClass) -> Error {
        Error { class, detail: Detail::Plain }
    }

    /// The stable code, as `E-MPI-005`.
    pub fn code(self) -> Code {
        match self.detail {
            Detail::Plain => Code("CLS", self.class.number() as u16),
            detail => detail.row().1,
        }
    }

    /// What went wrong and what to do, as the second half of a report.
    pub fn advice(self) -> &'static str {
        self.detail.row().2
    }
}

impl From<Detail> for Error {
    fn from(detail: Detail) -> Error {
        Error::of(detail)
    }
}

/// A code that the manual's page of errors lists: a component's letters and a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Code(pub &'static str, pub u16);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "E-{}-{:03}", self.0, self.1)
    }
}

impl Detail {
    const fn class(self) -> ErrorClass {
        self.row().0
    }

    /// ErrorClass, code, and what to do.
    const fn row(self) -> (ErrorClass, Code, &'static str) {
        const CHECK: &str = "look at this argument of the call";
        const MEMORY: &str = "raise the memory limit of the container or job, lower btl_shm.memory_reserve_bytes \
             (MEND_BTL_SHM_MEMORY_RESERVE_BYTES), which is what must stay free under it, or run fewer ranks";
        const REPORT: &str = "this should not happen: please report it with the program that shows it";
        match self {
            Detail::Plain => (ErrorClass::Unknown, Code("CLS", 14), CHECK),
            Detail::NoSuchCommunicator => {
                (ErrorClass::Comm, Code("MPI", 1), "use a communicator that was made and has not been freed")
            }
            Detail::NoSuchRequest => {
                (ErrorClass::Request, Code("MPI", 2), "use a request that was started and has not ended")
            }
            Detail::NoSuchDatatype => {
                (ErrorClass::Type, Code("CALL", 3), "use a predefined datatype of mpi.h")
            }
            Detail::NoSuchOp => (
                ErrorClass::Op,
                Code("CALL", 7),
                "use a predefined operation of mpi.h; MPI_REPLACE and MPI_NO_OP are for one-sided calls",
            ),
            Detail::NoSuchRank(..) => {
                (ErrorClass::Rank, Code("MPI", 3), "ranks go from 0 to the size of the communicator less one")
            }
            Detail::NoSuchRoot => {
                (ErrorClass::Root, Code("MPI", 4), "ranks go from 0 to the size of the communicator less one")
            }
            Detail::NegativeTag(_) => (ErrorClass::Tag, Code("MPI", 5), "tags go from 0 to MPI_TAG_UB"),
            Detail::PredefinedCommunicator => {
                (ErrorClass::Comm, Code("MPI", 6), "leave MPI_COMM_WORLD and MPI_COMM_SELF to MPI_Finalize")
            }
            Detail::NotInCommunicator => {
                (ErrorClass::Group, Code("MPI", 7), "make the group from the communicator's own group")
            }
            Detail::OpNotDefined => (
                ErrorClass::Op,
                Code("COL", 1),
                "see MPI-5.0 section 6.9.2 for the datatypes that each operation takes",
            ),
            Detail::BufferMissing => (
                ErrorClass::Buffer,
                Code("COL", 2),
                "give this rank a buffer; see MPI-5.0 section 6 for where MPI_IN_PLACE is allowed",
            ),
            Detail::CountsDiffer => (
                ErrorClass::Count,
                Code("COL", 3),
                "let send and receive counts and types describe the same number of elements",
            ),
            Detail::NamedTwice => (ErrorClass::Rank, Code("MPI", 8), "name each process once"),
            Detail::Truncated(_) => (
                ErrorClass::Truncate,
                Code("PML", 1),
                "give the receive a buffer as long as the longest message it may match",
            ),
            Detail::PeerLeft(_) => (
                ErrorClass::Other,
                Code("PML", 2),
                "let that rank receive or send what others wait for before it calls MPI_Finalize",
            ),
            Detail::PeerFreed(_) => (
                ErrorClass::Other,
                Code("PML", 6),
                "let that rank receive what others send on a communicator before it frees it or finalizes",
            ),
            Detail::ProcFailed(_) => (
                ErrorClass::ProcFailed,
                Code("PML", 3),
                "with an error handler that returns (MPI_ERRORS_RETURN) this process goes on without it; MPI_Comm_get_failed \
                 lists who failed",
            ),
            Detail::SenderMayHaveFailed(_) => (
                ErrorClass::ProcFailedPending,
                Code("PML", 4),
                "acknowledge the failure by MPI_Comm_ack_failed and wait again, or cancel the receive",
            ),
            Detail::Unreachable(_, Cause::NoMemory) => (ErrorClass::NoMem, Code("PML", 7), MEMORY),
            Detail::Unreachable(..) => (
                ErrorClass::Other,
                Code("PML", 5),
                "see mend-info for the transports that can run here, and MEND_BTL for those that were chosen",
            ),
            Detail::NoMemory => (ErrorClass::NoMem, Code("PML", 7), MEMORY),
            Detail::IdentitiesExhausted => (ErrorClass::Intern, Code("MPI", 9), REPORT),
            Detail::BadCreation => (ErrorClass::Intern, Code("MPI", 10), REPORT),
            Detail::NotRunning => {
                (ErrorClass::Other, Code("MPI", 11), "call MPI between MPI_Init and MPI_Finalize")
            }
        }
    }
}

impl Detail {
    /// The process that the cause names, by its rank in the communicator.
    pub fn process(self) -> Option<Rank> {
        match self {
            Detail::PeerLeft(rank)
            | Detail::PeerFreed(rank)
            | Detail::ProcFailed(rank)
            | Detail::SenderMayHaveFailed(Some(rank))
            | Detail::Unreachable(rank, _) => Some(rank),
            _ => None,
        }
    }

    /// The cause in words. `in_world`: the rank in MPI_COMM_WORLD of the [process](Detail::process) that it names; both ranks are
    /// named where they differ.
    pub fn with_world_rank(self, in_world: Option<Rank>) -> impl fmt::Display {
        Words { detail: self, in_world }
    }
}

impl fmt::Display for Detail {
    /// The cause in words; a process is named by its rank in the communicator alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_world_rank(None).fmt(f)
    }
}

/// A cause, to be written.
struct Words {
    detail: Detail,
    in_world: Option<Rank>,
}

/// A process, to be written.
struct NamedProcess {
    rank: Rank,
    in_world: Option<Rank>,
}

impl fmt::Display for NamedProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.in_world {
            Some(world) if world != self.rank => {
                write!(f, "rank {} of the communicator (rank {} in MPI_COMM_WORLD)", self.rank.0, world.0)
            }
            _ => write!(f, "rank {}", self.rank.0),
        }
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let process = |rank| NamedProcess { rank, in_world: self.in_world };
        let words = match self.detail {
            Detail::Plain => "the call cannot be obeyed",
            Detail::NoSuchCommunicator => "the communicator does not exist",
            Detail::NoSuchRequest => "the request does not exist",
            Detail::NoSuchDatatype => "the handle is not a datatype that this version of Mend supports",
            Detail::NoSuchOp => "the handle is not a reduction operation that this version of Mend supports",
            Detail::NoSuchRank(rank, Some(size)) => {
                return write!(f, "there is no rank {} among {size}", rank.0);
            }
            Detail::NoSuchRank(rank, None) => return write!(f, "there is no rank {}", rank.0),
            Detail::NoSuchRoot => "the root is no rank of the communicator",
            Detail::NegativeTag(tag) => return write!(f, "tag {}", tag.0),
            Detail::PredefinedCommunicator => "a predefined communicator cannot be freed",
            Detail::NotInCommunicator => "the group names a process that is not in the communicator",
            Detail::OpNotDefined => "the operation is not defined for this datatype",
            Detail::BufferMissing => "this rank needs a buffer here",
            Detail::CountsDiffer => "send and receive buffers do not fit together",
            Detail::NamedTwice => "a process is named twice",
            Detail::Truncated(status) => {
                return write!(
                    f,
                    "the message is longer than the receive buffer; {} bytes were kept",
                    status.bytes
                );
            }
            Detail::PeerLeft(rank) => return write!(f, "{} has called MPI_Finalize", process(rank)),
            Detail::PeerFreed(rank) => {
                return write!(f, "{} has freed the communicator, or finalizes", process(rank));
            }
            Detail::ProcFailed(rank) => return write!(f, "{} has failed", process(rank)),
            Detail::SenderMayHaveFailed(Some(rank)) => {
                return write!(f, "{}, which may be the sender, has failed", process(rank));
            }
            Detail::SenderMayHaveFailed(None) => "a process that may be the sender has failed",
            Detail::Unreachable(rank, cause) => {
                return write!(f, "there is no way to {}: {}", process(rank), cause_words(cause));
            }
            Detail::NoMemory => "memory for the operation could not be reserved",
            Detail::IdentitiesExhausted => "this process has made as many communicators as it can name",
            Detail::BadCreation => "what a member sent while the communicator was made does not fit",
            Detail::NotRunning => "MPI does not run",
        };
        f.write_str(words)
    }
}

impl fmt::Display for Error {
    /// One line: class, cause, what to do, code.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, code) = (self.class.name(), self.code());
        match self.detail {
            Detail::Plain => write!(f, "{name}: {} [{code}]", self.class.description()),
            detail => write!(f, "{name}: {detail}; {} [{code}]", self.advice()),
        }
    }
}

impl core::error::Error for Error {}

impl From<mend_pml::Error> for Error {
    fn from(error: mend_pml::Error) -> Error {
        use mend_pml::Error as Pml;
        Error::of(match error {
            Pml::Truncated(status) => Detail::Truncated(status),
            Pml::ProcFailed(rank) => Detail::ProcFailed(rank),
            Pml::PeerLeft(rank) => Detail::PeerLeft(rank),
            Pml::Unreachable(rank, cause) => Detail::Unreachable(rank, cause),
            Pml::PeerFreed(rank) => Detail::PeerFreed(rank),
            Pml::NoSuchRank(rank) => Detail::NoSuchRank(rank, None),
            Pml::NoSuchChannel => Detail::NoSuchCommunicator,
            Pml::NoSuchRequest => Detail::NoSuchRequest,
            Pml::NoMemory => Detail::NoMemory,
        })
    }
}

impl From<mend_coll::Error> for Error {
    fn from(error: mend_coll::Error) -> Error {
        use mend_coll::Error as Coll;
        Error::of(match error {
            Coll::Root => Detail::NoSuchRoot,
            Coll::Operation => Detail::OpNotDefined,
            Coll::Buffer => Detail::BufferMissing,
            Coll::Count => Detail::CountsDiffer,
            Coll::NoMemory => Detail::NoMemory,
        })
    }
}

impl From<mend_comm::GroupError> for Error {
    fn from(error: mend_comm::GroupError) -> Error {
        use mend_comm::GroupError as Group;
        Error::of(match error {
            Group::NoSuchRank(rank) => Detail::NoSuchRank(rank, None),
            Group::Twice(_) | Group::PeerTwice(_) => Detail::NamedTwice,
        })
    }
}

/// What is wrong with a way, in contributions.
pub const fn cause_words(cause: Cause) -> &'static str {
    match cause {
        Cause::Exited => "it has ended",
        Cause::LinkDown => "the link is down",
        Cause::Silent => "nothing was heard from it for too long",
        Cause::Refused => "one side refused the connection, or had no file descriptor left for it",
        Cause::Garbage => "it wrote what no correct process writes",
        Cause::LayoutDiffers => "it runs another version of Mend",
        Cause::NoMemory => "one side could not reserve memory for the connection under its memory limit",
    }
}

#[cfg(test)]
mod tests {
    use super::{Detail, Error};
    use crate::ErrorClass;
    use mend_base::Rank;
    use mend_transport::Cause;

    #[test]
    fn both_ranks_of_a_process_are_named_where_they_differ() {
        let words = |detail: Detail, world| detail.with_world_rank(world).to_string();
        let failed = Detail::ProcFailed(Rank(1));
        assert_eq!(
            words(failed, Some(Rank(5))),
            "rank 1 of the communicator (rank 5 in MPI_COMM_WORLD) has failed"
        );
        assert_eq!(words(failed, Some(Rank(1))), "rank 1 has failed");
        assert_eq!(failed.to_string(), "rank 1 has failed");
        for detail in [
            Detail::PeerLeft(Rank(0)),
            Detail::PeerFreed(Rank(0)),
            Detail::SenderMayHaveFailed(Some(Rank(0))),
            Detail::Unreachable(Rank(0), Cause::Refused),
        ] {
            assert_eq!(detail.process(), Some(Rank(0)));
            let named = words(detail, Some(Rank(3)));
            assert!(named.contains("rank 0 of the communicator (rank 3 in MPI_COMM_WORLD)"), "{named}");
        }
        assert_eq!(Detail::NoSuchRank(Rank(7), None).process(), None);
    }

    #[test]
    fn memory_that_a_connection_could_not_have_is_an_error_of_memory_and_names_the_knob() {
        let error = Error::of(Detail::Unreachable(Rank(1), Cause::NoMemory));
        assert_eq!((error.class, error.code().to_string()), (ErrorClass::NoMem, "E-PML-007".to_owned()));
        assert!(error.advice().contains("btl_shm.memory_reserve_bytes"));
        assert_eq!(Error::of(Detail::Unreachable(Rank(1), Cause::Refused)).class, ErrorClass::Other);
    }
}
