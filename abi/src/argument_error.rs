// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of arguments: one row for each cause, with its error class, its code E-CALL-..., the cause in words, and what the user can
//! do. `docs/errors.md` lists each code.

use crate::generated::constants::{
    ERR_ARG, ERR_BASE, ERR_BUFFER, ERR_COMM, ERR_COUNT, ERR_ERRHANDLER, ERR_GROUP, ERR_INFO, ERR_INFO_KEY,
    ERR_INFO_NOKEY, ERR_INFO_VALUE, ERR_KEYVAL, ERR_NO_MEM, ERR_OP, ERR_RANK, ERR_REQUEST, ERR_ROOT,
    ERR_SIZE, ERR_TAG,
};
use core::ffi::c_int;

/// The cause of an error of an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ArgumentError {
    NegativeCount,
    NullBuffer,
    Tag,
    Rank,
    Root,
    Request,
    NullPointer,
    Group,
    GroupRank,
    Errhandler,
    Info,
    Overlong,
    InPlace,
    ErrorCode,
    Keyval,
    Memory,
    NotOurMemory,
    ThreadLevel,
    Split,
    NegativeSize,
    OpType,
    GroupRange,
    Communicator,
    Acknowledged,
    InfoReadOnly,
    InfoKey,
    InfoValue,
    InfoNoKey,
    InfoIndex,
    SplitType,
    BufferLength,
}

impl ArgumentError {
    /// All causes, for tests.
    #[cfg(test)]
    pub(crate) const ALL: [ArgumentError; 31] = [
        ArgumentError::NegativeCount,
        ArgumentError::NullBuffer,
        ArgumentError::Tag,
        ArgumentError::Rank,
        ArgumentError::Root,
        ArgumentError::Request,
        ArgumentError::NullPointer,
        ArgumentError::Group,
        ArgumentError::GroupRank,
        ArgumentError::Errhandler,
        ArgumentError::Info,
        ArgumentError::Overlong,
        ArgumentError::InPlace,
        ArgumentError::ErrorCode,
        ArgumentError::Keyval,
        ArgumentError::Memory,
        ArgumentError::NotOurMemory,
        ArgumentError::ThreadLevel,
        ArgumentError::Split,
        ArgumentError::NegativeSize,
        ArgumentError::OpType,
        ArgumentError::GroupRange,
        ArgumentError::Communicator,
        ArgumentError::Acknowledged,
        ArgumentError::InfoReadOnly,
        ArgumentError::InfoKey,
        ArgumentError::InfoValue,
        ArgumentError::InfoNoKey,
        ArgumentError::InfoIndex,
        ArgumentError::SplitType,
        ArgumentError::BufferLength,
    ];

    /// Error class, number of the code E-CALL-..., cause, advice.
    pub(crate) const fn row(self) -> (c_int, u16, &'static str, &'static str) {
        match self {
            ArgumentError::NegativeCount => (ERR_COUNT, 1, "a count is negative", "counts are 0 or more"),
            ArgumentError::NullBuffer => (
                ERR_BUFFER,
                2,
                "the buffer is null though the count is not 0",
                "give the address of a buffer, or a count of 0",
            ),
            ArgumentError::Tag => (
                ERR_TAG,
                4,
                "the tag is negative",
                "tags go from 0 to MPI_TAG_UB; receives accept MPI_ANY_TAG",
            ),
            ArgumentError::Rank => (
                ERR_RANK,
                5,
                "the rank is negative, and not a constant that this call accepts",
                "ranks go from 0 to the size of the communicator less one; MPI_PROC_NULL is accepted too, and MPI_ANY_SOURCE by receives",
            ),
            ArgumentError::Root => {
                (ERR_ROOT, 6, "the root is negative", "the root is a rank of the communicator")
            }
            ArgumentError::Request => (
                ERR_REQUEST,
                8,
                "the request does not exist, or has ended before",
                "wait for a request once; after its completion the handle is MPI_REQUEST_NULL",
            ),
            ArgumentError::NullPointer => (ERR_ARG, 9, "a pointer is null", "give the address of a variable"),
            ArgumentError::Group => {
                (ERR_GROUP, 10, "the group does not exist", "use a group that was created and not freed")
            }
            ArgumentError::GroupRank => (
                ERR_RANK,
                11,
                "a rank is not in the group, or occurs twice",
                "ranks go from 0 to the size of the group less one",
            ),
            ArgumentError::Errhandler => (
                ERR_ERRHANDLER,
                12,
                "the error handler does not exist",
                "use an error handler that was created for communicators and not freed, or a predefined one",
            ),
            ArgumentError::Info => (
                ERR_INFO,
                13,
                "the info object does not exist",
                "use an info object that was created and not freed; calls on info objects do not take MPI_INFO_NULL",
            ),
            ArgumentError::Overlong => (
                ERR_COUNT,
                14,
                "the buffer would be longer than an address space",
                "check count and datatype",
            ),
            ArgumentError::InPlace => (
                ERR_BUFFER,
                15,
                "MPI_IN_PLACE is not allowed as this buffer",
                "see the call's page in the standard for where MPI_IN_PLACE is allowed",
            ),
            ArgumentError::ErrorCode => (
                ERR_ARG,
                16,
                "there is no such error class or code, or it was not added by the program",
                "use a class or code that MPI_Add_error_class or MPI_Add_error_code returned",
            ),
            ArgumentError::Keyval => {
                (ERR_KEYVAL, 17, "there is no such attribute key", "use a predefined key of mpi.h")
            }
            ArgumentError::Memory => {
                (ERR_NO_MEM, 19, "there is not enough memory", "raise the memory limit, or ask for less")
            }
            ArgumentError::NotOurMemory => (
                ERR_BASE,
                20,
                "the memory was not allocated by MPI_Alloc_mem, or was freed before",
                "free each allocation of MPI_Alloc_mem once",
            ),
            ArgumentError::ThreadLevel => {
                (ERR_ARG, 21, "there is no such level of thread support", "use an MPI_THREAD_ constant")
            }
            ArgumentError::Split => {
                (ERR_ARG, 22, "the color is negative", "colors are 0 or more, or MPI_UNDEFINED")
            }
            ArgumentError::NegativeSize => (ERR_SIZE, 23, "the size is negative", "sizes are 0 or more"),
            ArgumentError::OpType => (
                ERR_OP,
                24,
                "the operation is not defined for this datatype",
                "MPI-5.0 section 6.9.2 says which datatypes each operation takes",
            ),
            ArgumentError::GroupRange => {
                (ERR_ARG, 25, "the stride of a range is 0", "use a positive or negative stride")
            }
            ArgumentError::Communicator => (
                ERR_COMM,
                26,
                "the communicator does not exist",
                "use a communicator that was created and has not been freed",
            ),
            ArgumentError::Acknowledged => (
                ERR_ARG,
                27,
                "the number of failures to acknowledge is negative, or more than the communicator has members",
                "pass the size of the communicator to acknowledge all known failures",
            ),
            ArgumentError::InfoReadOnly => (
                ERR_INFO,
                31,
                "MPI_INFO_ENV cannot be changed or freed",
                "change a copy of it (MPI_Info_dup)",
            ),
            ArgumentError::InfoKey => (
                ERR_INFO_KEY,
                32,
                "the key is empty, or longer than MPI_MAX_INFO_KEY less one",
                "use keys of 1 to 255 bytes",
            ),
            ArgumentError::InfoValue => (
                ERR_INFO_VALUE,
                33,
                "the value is longer than MPI_MAX_INFO_VAL less one",
                "use values of at most 1,023 bytes",
            ),
            ArgumentError::InfoNoKey => (
                ERR_INFO_NOKEY,
                34,
                "the info object does not have the key",
                "ask by MPI_Info_get_string whether it has the key",
            ),
            ArgumentError::InfoIndex => (
                ERR_ARG,
                35,
                "the number of the key is negative, or not below the number of keys",
                "keys have the numbers from 0 to that of MPI_Info_get_nkeys less one",
            ),
            ArgumentError::BufferLength => (
                ERR_ARG,
                36,
                "the length of the buffer is negative",
                "pass the size of the buffer; 0 asks MPI_Info_get_string for the length alone",
            ),
            ArgumentError::SplitType => (
                ERR_ARG,
                37,
                "there is no such type of a split",
                "use an MPI_COMM_TYPE_ constant, or MPI_UNDEFINED",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ArgumentError;
    use std::collections::BTreeSet;

    #[test]
    fn every_cause_has_a_code_of_its_own_that_the_manual_explains() {
        let manual = include_str!("../../docs/errors.md");
        let numbers: BTreeSet<u16> = ArgumentError::ALL.iter().map(|error| error.row().1).collect();
        assert_eq!(numbers.len(), ArgumentError::ALL.len());
        for error in ArgumentError::ALL {
            let (_, number, cause, _) = error.row();
            let line = manual.lines().find(|line| line.contains(&format!("E-CALL-{number:03} ")));
            assert!(line.is_some_and(|line| line.contains(cause)), "E-CALL-{number:03}: {cause}");
        }
    }
}
