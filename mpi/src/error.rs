// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of MPI: a class for the program, and for its user the cause, what to do about it, and a code that is the same in every
//! version. Errors of the layers below are converted here only.

use crate::{CommKey, ErrorClass};
use core::fmt;
use mend_base::{Peer, Rank, Tag};
use mend_pml::Status;
use mend_transport::Cause;

/// The error of a call or a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Error {
    /// The class, which the program gets.
    pub class: ErrorClass,
    /// The cause, which a report names to the user.
    pub detail: Detail,
}

/// The cause of an error, with the values that a report names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// Nothing is known beyond the class.
    Plain,
    /// The handle of the communicator is stale or was never valid.
    NoSuchCommunicator,
    /// The handle of the request is stale or was never valid.
    NoSuchRequest,
    /// The handle names no datatype.
    NoSuchDatatype,
    /// The handle names no reduction operation.
    NoSuchOp,
    /// The rank is not below the size of the communicator or group; the size, where it is known.
    NoSuchRank(Rank, Option<u32>),
    /// The root of a collective operation is not below the size of the communicator.
    NoSuchRoot,
    /// A tag below zero.
    NegativeTag(Tag),
    /// The call is not supported on an intercommunicator.
    Intercommunicator,
    /// The call needs an intercommunicator.
    Intracommunicator,
    /// The two groups of an intercommunicator are to have no process in common.
    GroupsOverlap,
    /// A call was to free a predefined communicator.
    PredefinedCommunicator,
    /// A group contains a process that is not in the communicator.
    NotInCommunicator,
    /// The reduction operation is not defined for this datatype.
    OpNotDefined,
    /// This rank needs a buffer in a collective operation, and gave none or `MPI_IN_PLACE`.
    BufferMissing,
    /// The buffers of a collective operation do not divide into blocks, or describe different numbers of elements.
    CountsDiffer,
    /// A group contains a process twice.
    NamedTwice,
    /// The message is longer than the buffer of the receive; the status has the number of bytes that were stored.
    Truncated(Status),
    /// The peer has finalized: no more messages come from it or go to it.
    PeerLeft(Rank),
    /// A member has finalized, or freed the communicator, and it is not known here which.
    SomeMemberLeft,
    /// The peer takes no part in this message any more: it freed the communicator (MPI_Finalize frees all), gave the operation
    /// up, or had no memory for it.
    PeerFreed(Rank),
    /// The peer never created the communicator, and will not: its creation failed there.
    NotCreated(Rank),
    /// The communicator is revoked.
    Revoked,
    /// The peer has failed.
    ProcFailed(Rank),
    /// A process has failed that has no rank in the communicator of the call: a member of the other group of an intercommunicator.
    MemberFailed(Peer),
    /// A process has finalized that has no rank in the communicator of the call.
    MemberLeft(Peer),
    /// The peer communicator, or that of the other group, from which an intercommunicator was to be created, is revoked.
    OtherRevoked,
    /// A process that may be the sender has failed, and its failure is not acknowledged: the first such process, where it is known.
    SenderMayHaveFailed(Option<Rank>),
    /// No transport leads to the peer.
    Unreachable(Rank, Cause),
    /// There is no memory for an operation.
    NoMemory,
    /// This process has created as many communicators as there are identities, about 2^32.
    IdentitiesExhausted,
    /// A contribution that a member sent for the creation of a communicator is invalid, or contradicts the others.
    BadCreation,
    /// A member could not take part in the creation of the communicator, so it exists nowhere.
    CreationRefused,
    /// Agreements of several communicators waited for each other: that of the call, and one of this communicator.
    Crossed(CrossedWith),
    /// MPI was finalized, or is not initialized.
    NotRunning,
}

/// A communicator whose agreement waited for that of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrossedWith {
    /// MPI_COMM_WORLD.
    World,
    /// A communicator of this process.
    Comm(CommKey),
    /// This process is not a member of it, or has freed it.
    NotMember,
}

impl fmt::Display for CrossedWith {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CrossedWith::World => f.write_str("MPI_COMM_WORLD"),
            CrossedWith::Comm(comm) => write!(f, "communicator {:#x}", comm.to_bits()),
            CrossedWith::NotMember => f.write_str("a communicator of other members"),
        }
    }
}

impl Error {
    /// The error with this cause, and the class of the cause.
    pub const fn of(detail: Detail) -> Error {
        Error { class: detail.class(), detail }
    }

    /// An error of this class, without a cause.
    pub const fn plain(class: ErrorClass) -> Error {
        Error { class, detail: Detail::Plain }
    }

    /// The stable code, as `E-MPI-005`.
    pub fn report_code(self) -> Code {
        match self.detail {
            Detail::Plain => Code("CLS", self.class.number() as u16),
            detail => detail.row().1,
        }
    }

    /// What the user can do about the error.
    pub fn advice(self) -> &'static str {
        self.detail.row().2
    }
}

impl From<Detail> for Error {
    fn from(detail: Detail) -> Error {
        Error::of(detail)
    }
}

/// A code that docs/errors.md lists: the letters of a component, and a number.
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
        const CHECK: &str = "check the arguments of the call";
        const MEMORY: &str = "raise the memory limit of the container or job, lower btl_shm.memory_reserve_bytes \
             (MEND_BTL_SHM_MEMORY_RESERVE_BYTES), which is what must stay free under it, or run fewer ranks";
        const REPORT: &str = "this should not happen: please report it with the program that shows it";
        match self {
            Detail::Plain => (ErrorClass::Unknown, Code("CLS", 14), CHECK),
            Detail::NoSuchCommunicator => (
                ErrorClass::Comm,
                Code("MPI", 1),
                "use a communicator that was created and has not been freed",
            ),
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
            Detail::PredefinedCommunicator => (
                ErrorClass::Comm,
                Code("MPI", 6),
                "do not free MPI_COMM_WORLD and MPI_COMM_SELF: MPI_Finalize does",
            ),
            Detail::Intercommunicator => (
                ErrorClass::Comm,
                Code("MPI", 13),
                "merge the groups by MPI_Intercomm_merge and use the intracommunicator that it creates",
            ),
            Detail::Intracommunicator => {
                (ErrorClass::Comm, Code("MPI", 14), "use a communicator that MPI_Intercomm_create created")
            }
            Detail::GroupsOverlap => (
                ErrorClass::Comm,
                Code("MPI", 15),
                "give each side a communicator of its own, and each leader the rank of the other one",
            ),
            Detail::NotInCommunicator => (
                ErrorClass::Group,
                Code("MPI", 7),
                "create the group from the group of the communicator (MPI_Comm_group)",
            ),
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
                "give send and receive counts and datatypes that describe the same number of elements",
            ),
            Detail::NamedTwice => (ErrorClass::Rank, Code("MPI", 8), "include each process once"),
            Detail::Truncated(_) => (
                ErrorClass::Truncate,
                Code("PML", 1),
                "give the receive a buffer as long as the longest message it may match",
            ),
            Detail::PeerLeft(_) | Detail::MemberLeft(_) | Detail::SomeMemberLeft => (
                ErrorClass::Other,
                Code("PML", 2),
                "in the program of that rank, receive and send all messages that others wait for before MPI_Finalize",
            ),
            Detail::PeerFreed(_) => (
                ErrorClass::Other,
                Code("PML", 6),
                "in the program of that rank, receive all messages on the communicator before MPI_Comm_free or MPI_Finalize; \
                 if it gave up or had no memory, its own calls reported why",
            ),
            Detail::NotCreated(_) => (
                ErrorClass::Other,
                Code("PML", 8),
                "use the communicator only if all its members have created it: in the program of that rank, the call that was to \
                 create it failed and reported why",
            ),
            Detail::OtherRevoked => (
                ErrorClass::Revoked,
                Code("MPI", 16),
                "if the other group repairs its communicator, call MPI_Intercomm_create again when it has; if the peer communicator \
                 is revoked, call it with another one",
            ),
            Detail::Revoked => (
                ErrorClass::Revoked,
                Code("PML", 9),
                "a member has called MPI_Comm_revoke, so that all members leave the communicator; MPI_Comm_shrink and \
                 MPI_Comm_agree still work on it, and MPI_Comm_free frees it",
            ),
            Detail::ProcFailed(_) | Detail::MemberFailed(_) => (
                ErrorClass::ProcFailed,
                Code("PML", 3),
                "with an error handler that returns (MPI_ERRORS_RETURN) this process goes on without that rank; \
                 MPI_Comm_get_failed lists the failed ranks",
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
                "mend-info shows the transports that can run here; MEND_BTL selects among them",
            ),
            Detail::NoMemory => (ErrorClass::NoMem, Code("PML", 7), MEMORY),
            Detail::IdentitiesExhausted => (ErrorClass::Intern, Code("MPI", 9), REPORT),
            Detail::BadCreation => (ErrorClass::Intern, Code("MPI", 10), REPORT),
            Detail::CreationRefused => {
                (ErrorClass::Other, Code("MPI", 12), "look at what the other members report")
            }
            Detail::Crossed(_) => (
                ErrorClass::Other,
                Code("MPI", 17),
                "let all members repair their communicators in the same order, or at once by MPI_Comm_ishrink and MPI_Comm_iagree; \
                 both communicators can still be used, so call again",
            ),
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
            | Detail::NotCreated(rank)
            | Detail::ProcFailed(rank)
            | Detail::SenderMayHaveFailed(Some(rank))
            | Detail::Unreachable(rank, _) => Some(rank),
            _ => None,
        }
    }

    /// The cause in words. `in_world`: the rank in MPI_COMM_WORLD of the [process](Detail::process) that the cause names; if the two
    /// ranks differ, the text has both.
    pub fn with_world_rank(self, in_world: Option<Rank>) -> impl fmt::Display {
        Words { detail: self, in_world }
    }
}

impl fmt::Display for Detail {
    /// The cause in words; a process is named by its rank in the communicator only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_world_rank(None).fmt(f)
    }
}

/// A cause, to be written as text.
struct Words {
    detail: Detail,
    in_world: Option<Rank>,
}

/// A process, to be written as text.
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

/// A process that has no rank in the communicator.
fn write_process(f: &mut fmt::Formatter<'_>, peer: Peer, words: &str) -> fmt::Result {
    write!(f, "rank {} in MPI_COMM_WORLD {words}", peer.number())
}

fn write_crossed(f: &mut fmt::Formatter<'_>, with: CrossedWith) -> fmt::Result {
    write!(f, "agreements or shrinks of this communicator and of {with} waited for each other")
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let process = |rank| NamedProcess { rank, in_world: self.in_world };
        let words = match self.detail {
            Detail::Plain => "the call cannot be carried out",
            Detail::NoSuchCommunicator => "the communicator does not exist",
            Detail::NoSuchRequest => "the request does not exist",
            Detail::NoSuchDatatype => "the handle is not a datatype that this version of Mend supports",
            Detail::NoSuchOp => "the handle is not a reduction operation that this version of Mend supports",
            Detail::NoSuchRank(rank, Some(size)) => {
                return write!(f, "there is no rank {} in a communicator of size {size}", rank.0);
            }
            Detail::NoSuchRank(rank, None) => return write!(f, "there is no rank {}", rank.0),
            Detail::NoSuchRoot => "the root is not a rank of the communicator",
            Detail::NegativeTag(tag) => return write!(f, "the tag {} is negative", tag.0),
            Detail::Intercommunicator => {
                "this version of Mend does not support the call on an intercommunicator"
            }
            Detail::Intracommunicator => "the communicator is no intercommunicator",
            Detail::GroupsOverlap => "the two groups have a process in common, or one has none",
            Detail::OtherRevoked => "the peer communicator or that of the other group is revoked",
            Detail::MemberFailed(peer) => return write_process(f, peer, "has failed"),
            Detail::SomeMemberLeft => "a member has called MPI_Finalize, or freed the communicator",
            Detail::MemberLeft(peer) => return write_process(f, peer, "has called MPI_Finalize"),
            Detail::PredefinedCommunicator => "a predefined communicator cannot be freed",
            Detail::NotInCommunicator => "the group contains a process that is not in the communicator",
            Detail::OpNotDefined => "the operation is not defined for this datatype",
            Detail::BufferMissing => "this rank needs a buffer in this call, not MPI_IN_PLACE",
            Detail::CountsDiffer => "the send and receive buffers describe different numbers of elements",
            Detail::NamedTwice => "the group contains a process twice",
            Detail::Truncated(status) => {
                return write!(
                    f,
                    "the message is longer than the receive buffer; its first {} bytes were received",
                    status.bytes
                );
            }
            Detail::PeerLeft(rank) => return write!(f, "{} has called MPI_Finalize", process(rank)),
            Detail::PeerFreed(rank) => {
                return write!(
                    f,
                    "{} takes no part in the message: it has freed the communicator, called MPI_Finalize, \
                     given the operation up, or had no memory for it",
                    process(rank)
                );
            }
            Detail::NotCreated(rank) => {
                return write!(f, "{} has not created the communicator", process(rank));
            }
            Detail::Revoked => "the communicator is revoked",
            Detail::ProcFailed(rank) => return write!(f, "{} has failed", process(rank)),
            Detail::SenderMayHaveFailed(Some(rank)) => {
                return write!(f, "{}, which may be the sender, has failed", process(rank));
            }
            Detail::SenderMayHaveFailed(None) => "a process that may be the sender has failed",
            Detail::Unreachable(rank, cause) => {
                return write!(f, "{} cannot be reached: {}", process(rank), cause_words(cause));
            }
            Detail::NoMemory => "there is no memory for the operation",
            Detail::IdentitiesExhausted => {
                "this process has created as many communicators as there are identities, about 2^32"
            }
            Detail::BadCreation => "a member sent invalid data for the creation of the communicator",
            Detail::CreationRefused => {
                "a member could not take part, so the communicator was created nowhere"
            }
            Detail::Crossed(with) => return write_crossed(f, with),
            Detail::NotRunning => "MPI is not initialized, or was finalized",
        };
        f.write_str(words)
    }
}

impl fmt::Display for Error {
    /// One line: class, cause, what to do, code.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, code) = (self.class.name(), self.report_code());
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
            Pml::PeerFreed(rank) | Pml::Poisoned { by: rank, .. } => Detail::PeerFreed(rank),
            Pml::NotCreated(rank) => Detail::NotCreated(rank),
            Pml::Revoked => Detail::Revoked,
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

/// Why a peer is unreachable, in words: a clause whose "it" is the peer.
pub const fn cause_words(cause: Cause) -> &'static str {
    match cause {
        Cause::Exited => "it has ended",
        Cause::LinkDown => "the link is down",
        Cause::Silent => "it has sent nothing for too long",
        Cause::Refused => "one side refused the connection, or had no file descriptor left for it",
        Cause::Garbage => "it wrote data that no correct process writes",
        Cause::LayoutDiffers => "it runs another version of Mend",
        Cause::NoEvidence => "the reason is not known",
        Cause::Unreachable => "the way to it has been broken for too long",
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
            Detail::NotCreated(Rank(0)),
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
    fn a_connection_without_memory_is_an_error_of_memory_that_names_the_parameter() {
        let error = Error::of(Detail::Unreachable(Rank(1), Cause::NoMemory));
        assert_eq!(
            (error.class, error.report_code().to_string()),
            (ErrorClass::NoMem, "E-PML-007".to_owned())
        );
        assert!(error.advice().contains("btl_shm.memory_reserve_bytes"));
        assert_eq!(Error::of(Detail::Unreachable(Rank(1), Cause::Refused)).class, ErrorClass::Other);
    }
}
