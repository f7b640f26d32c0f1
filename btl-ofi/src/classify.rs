// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an error of the provider says about the peer, if anything.

use mend_ffi_ofi::Code;
use mend_ffi_ofi::bindings as fi;

/// The class of an error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Resources are short now: the operation is tried again.
    Again,
    /// The operation ended because of another event, which has a cause of its own: the connection broke, or was closed.
    Consequence,
    /// The peer may have failed, or the way to it is broken. The peer is suspected, and the node daemon is asked.
    Hint,
    /// A fault of this process or host, such as an invalid argument or a lack of memory. It says nothing about the peer.
    LocalFault,
    /// The device is broken; the processes live.
    Device,
}

/// libfabric passes this number of the system on without declaring it.
const EPIPE: u32 = 32;

/// The class of `code`, which an operation to a peer, or a call of the device, returned.
pub fn classify(code: Code) -> Class {
    match code.0 as u32 {
        fi::FI_EAGAIN | fi::FI_EINTR | fi::FI_EBUSY | fi::FI_EINPROGRESS | fi::FI_EALREADY => Class::Again,
        fi::FI_ECANCELED | fi::FI_EAVAIL => Class::Consequence,
        fi::FI_ECONNRESET
        | fi::FI_ECONNABORTED
        | fi::FI_ECONNREFUSED
        | fi::FI_ENOTCONN
        | fi::FI_EISCONN
        | fi::FI_ESHUTDOWN
        | fi::FI_ETIMEDOUT
        | fi::FI_EHOSTDOWN
        | fi::FI_EHOSTUNREACH
        | fi::FI_ENETUNREACH
        | fi::FI_EREMOTEIO
        | fi::FI_EIO
        | EPIPE
        | fi::FI_ENOENT
        | fi::FI_EADDRNOTAVAIL
        | fi::FI_ENORX
        | fi::FI_ECRC
        | fi::FI_EOTHER => Class::Hint,
        fi::FI_ENODEV | fi::FI_ENETDOWN | fi::FI_EOVERRUN | fi::FI_EOPBADSTATE | fi::FI_EBADF => {
            Class::Device
        }
        _ => Class::LocalFault,
    }
}

#[cfg(test)]
mod tests {
    use super::{Class, classify};
    use mend_ffi_ofi::Code;
    use mend_ffi_ofi::bindings as fi;

    #[test]
    fn the_classes_are_those_of_the_table() {
        let class = |code| classify(Code(code as i32));
        assert_eq!(class(fi::FI_ECANCELED), Class::Consequence);
        for hint in [fi::FI_ECONNRESET, fi::FI_EHOSTUNREACH, fi::FI_ETIMEDOUT, fi::FI_EREMOTEIO] {
            assert_eq!(class(hint), Class::Hint);
        }
        for local in [fi::FI_EINVAL, fi::FI_ENOSPC, fi::FI_ENOMEM, fi::FI_EACCES, fi::FI_EKEYREJECTED] {
            assert_eq!(class(local), Class::LocalFault);
        }
        assert_eq!(class(fi::FI_EOVERRUN), Class::Device);
        assert_eq!(class(fi::FI_EAGAIN), Class::Again);
        assert_eq!(classify(Code(12_345)), Class::LocalFault, "a code that nobody knows");
    }
}
