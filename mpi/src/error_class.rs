// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The error classes of MPI-5.0 with the numbers of its standard ABI, and the three classes of fault tolerance. An error code that
//! Mend returns is always a class, since programs compare raw codes (Trap 3).

macro_rules! classes {
    ($($variant:ident = $number:literal, $name:literal, $description:literal;)*) => {
        /// An error class. Its number is what the C function returns.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
        #[repr(i32)]
        pub enum ErrorClass {
            $(#[doc = $description] $variant = $number,)*
        }

        impl ErrorClass {
            /// All classes, in the order of their numbers.
            pub const ALL: &'static [ErrorClass] = &[$(ErrorClass::$variant),*];

            /// Its name in C.
            pub const fn name(self) -> &'static str {
                match self { $(ErrorClass::$variant => $name),* }
            }

            /// The description that MPI_Error_string gives.
            pub const fn description(self) -> &'static str {
                match self { $(ErrorClass::$variant => $description),* }
            }
        }
    };
}

classes! {
    Success = 0, "MPI_SUCCESS", "no error";
    Buffer = 1, "MPI_ERR_BUFFER", "the buffer pointer is invalid";
    Count = 2, "MPI_ERR_COUNT", "the count argument is invalid";
    Type = 3, "MPI_ERR_TYPE", "the datatype argument is invalid";
    Tag = 4, "MPI_ERR_TAG", "the tag argument is invalid";
    Comm = 5, "MPI_ERR_COMM", "the communicator is invalid";
    Rank = 6, "MPI_ERR_RANK", "the rank is not one of this communicator";
    Request = 7, "MPI_ERR_REQUEST", "the request is invalid";
    Root = 8, "MPI_ERR_ROOT", "the root is not a rank of this communicator";
    Group = 9, "MPI_ERR_GROUP", "the group is invalid";
    Op = 10, "MPI_ERR_OP", "the reduction operation is invalid for this datatype";
    Topology = 11, "MPI_ERR_TOPOLOGY", "the topology is invalid";
    Dims = 12, "MPI_ERR_DIMS", "the dimension argument is invalid";
    Arg = 13, "MPI_ERR_ARG", "an argument is invalid";
    Unknown = 14, "MPI_ERR_UNKNOWN", "unknown error";
    Truncate = 15, "MPI_ERR_TRUNCATE", "the message is longer than the receive buffer";
    Other = 16, "MPI_ERR_OTHER", "an error that has no class of its own";
    Intern = 17, "MPI_ERR_INTERN", "an error inside Mend";
    Pending = 18, "MPI_ERR_PENDING", "the request is still pending";
    InStatus = 19, "MPI_ERR_IN_STATUS", "the error codes are in the statuses";
    Access = 20, "MPI_ERR_ACCESS", "permission denied";
    Amode = 21, "MPI_ERR_AMODE", "the access mode of the file is invalid";
    Assert = 22, "MPI_ERR_ASSERT", "the assertion argument is invalid";
    BadFile = 23, "MPI_ERR_BAD_FILE", "the file name is invalid";
    Base = 24, "MPI_ERR_BASE", "the base argument is invalid";
    Conversion = 25, "MPI_ERR_CONVERSION", "a data conversion function failed";
    Disp = 26, "MPI_ERR_DISP", "the displacement argument is invalid";
    DupDatarep = 27, "MPI_ERR_DUP_DATAREP", "a data representation of this name exists already";
    FileExists = 28, "MPI_ERR_FILE_EXISTS", "the file exists";
    FileInUse = 29, "MPI_ERR_FILE_IN_USE", "the file is open in some process";
    File = 30, "MPI_ERR_FILE", "the file handle is invalid";
    InfoKey = 31, "MPI_ERR_INFO_KEY", "the info key is longer than MPI_MAX_INFO_KEY";
    InfoNokey = 32, "MPI_ERR_INFO_NOKEY", "the info object has no such key";
    InfoValue = 33, "MPI_ERR_INFO_VALUE", "the info value is longer than MPI_MAX_INFO_VAL";
    Info = 34, "MPI_ERR_INFO", "the info object is invalid";
    Io = 35, "MPI_ERR_IO", "an input or output operation failed";
    Keyval = 36, "MPI_ERR_KEYVAL", "the attribute key is invalid";
    Locktype = 37, "MPI_ERR_LOCKTYPE", "the lock type is invalid";
    Name = 38, "MPI_ERR_NAME", "the service name was not published";
    NoMem = 39, "MPI_ERR_NO_MEM", "memory could not be reserved";
    NotSame = 40, "MPI_ERR_NOT_SAME", "the processes gave different arguments to a collective call";
    NoSpace = 41, "MPI_ERR_NO_SPACE", "no space is left on the device";
    NoSuchFile = 42, "MPI_ERR_NO_SUCH_FILE", "the file does not exist";
    Port = 43, "MPI_ERR_PORT", "the port name is invalid";
    Quota = 44, "MPI_ERR_QUOTA", "the quota is exceeded";
    ReadOnly = 45, "MPI_ERR_READ_ONLY", "the file, or its file system, is read-only";
    RmaAttach = 46, "MPI_ERR_RMA_ATTACH", "the memory cannot be attached to the window";
    RmaConflict = 47, "MPI_ERR_RMA_CONFLICT", "conflicting accesses to a window";
    RmaRange = 48, "MPI_ERR_RMA_RANGE", "the target memory is not part of the window";
    RmaShared = 49, "MPI_ERR_RMA_SHARED", "the memory cannot be shared among these processes";
    RmaSync = 50, "MPI_ERR_RMA_SYNC", "the window is not synchronized as this call needs";
    Service = 51, "MPI_ERR_SERVICE", "the service name cannot be unpublished";
    Size = 52, "MPI_ERR_SIZE", "the size argument is invalid";
    Spawn = 53, "MPI_ERR_SPAWN", "processes could not be started";
    UnsupportedDatarep = 54, "MPI_ERR_UNSUPPORTED_DATAREP", "the data representation is not supported";
    UnsupportedOperation = 55, "MPI_ERR_UNSUPPORTED_OPERATION", "the operation is not supported";
    Win = 56, "MPI_ERR_WIN", "the window is invalid";
    RmaFlavor = 57, "MPI_ERR_RMA_FLAVOR", "the window has the wrong flavor for this call";
    ProcAborted = 58, "MPI_ERR_PROC_ABORTED", "a peer process has aborted";
    ValueTooLarge = 59, "MPI_ERR_VALUE_TOO_LARGE", "the value does not fit into the type of the output argument";
    Session = 60, "MPI_ERR_SESSION", "the session is invalid";
    Errhandler = 61, "MPI_ERR_ERRHANDLER", "the error handler is invalid";
    Abi = 62, "MPI_ERR_ABI", "the ABI is not one that Mend supports";
    ProcFailed = 101, "MPI_ERR_PROC_FAILED", "a process that the operation needs has failed";
    ProcFailedPending = 102, "MPI_ERR_PROC_FAILED_PENDING",
        "a process that may have been the sender has failed; the request is still pending";
    Revoked = 103, "MPI_ERR_REVOKED", "the communicator is revoked";
}

impl ErrorClass {
    /// The error code that a C function returns.
    pub const fn number(self) -> i32 {
        self as i32
    }

    /// Whether the class is one of fault tolerance: a process failed, or the communicator was revoked.
    pub const fn is_fault_tolerance_error(self) -> bool {
        matches!(self, ErrorClass::ProcFailed | ErrorClass::ProcFailedPending | ErrorClass::Revoked)
    }

    /// The class with this number.
    pub fn from_number(number: i32) -> Option<ErrorClass> {
        ErrorClass::ALL.iter().copied().find(|class| class.number() == number)
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorClass;

    #[test]
    fn all_63_classes_of_the_standard_and_three_of_fault_tolerance_have_their_numbers() {
        let numbers: Vec<i32> = ErrorClass::ALL.iter().map(|class| class.number()).collect();
        let expected: Vec<i32> = (0..63).chain(101..=103).collect();
        assert_eq!(numbers, expected);
        assert_eq!(ErrorClass::from_number(101), Some(ErrorClass::ProcFailed));
        assert_eq!(ErrorClass::from_number(63), None);
        for class in ErrorClass::ALL {
            assert_eq!(ErrorClass::from_number(class.number()), Some(*class));
            assert!(class.name().starts_with("MPI_"));
        }
    }
}
