// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Error codes of libfabric.

use crate::bindings as fi;
use core::fmt;

/// An error code of libfabric, as a positive number: those of the system, and those of libfabric from 256 on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Code(pub i32);

impl Code {
    /// Nothing can be done now, or nothing is there.
    pub const AGAIN: Code = Code(fi::FI_EAGAIN as i32);
    /// A completion with an error can be read.
    pub const AVAILABLE: Code = Code(fi::FI_EAVAIL as i32);
    /// The operation was cancelled, or flushed with its connection.
    pub const CANCELED: Code = Code(fi::FI_ECANCELED as i32);
    /// The library lacks the function.
    pub const NO_FUNCTION: Code = Code(fi::FI_ENOSYS as i32);
    /// An argument is invalid.
    pub const INVALID: Code = Code(fi::FI_EINVAL as i32);
    /// A message was longer than its buffer.
    pub const TRUNCATED: Code = Code(fi::FI_ETRUNC as i32);

    /// The result of a call that returns 0 or a negative code.
    pub(crate) fn check(result: impl Into<i64>) -> Result<(), Code> {
        match result.into() {
            0.. => Ok(()),
            code => Err(Code(i32::try_from(-code).unwrap_or(i32::MAX))),
        }
    }

    /// The name of the code, without its prefix `FI_`.
    pub fn name(self) -> &'static str {
        CODES.iter().find(|(code, _)| *code == self.0).map_or("an unknown code", |(_, name)| name)
    }

    /// All codes that libfabric 1.17 declares.
    pub fn all() -> impl Iterator<Item = Code> {
        CODES.iter().map(|&(code, _)| Code(code))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({})", self.name(), self.0)
    }
}

macro_rules! codes {
    ($($name:ident)*) => { &[$((fi::$name as i32, strip(stringify!($name)))),*] };
}

/// `EAGAIN` of `FI_EAGAIN`.
const fn strip(name: &'static str) -> &'static str {
    name.split_at(3).1
}

const CODES: &[(i32, &str)] = codes!(
    FI_EPERM FI_ENOENT FI_EINTR FI_EIO FI_E2BIG FI_EBADF FI_EAGAIN FI_ENOMEM FI_EACCES FI_EFAULT FI_EBUSY
    FI_ENODEV FI_EINVAL FI_EMFILE FI_ENOSPC FI_ENOSYS FI_ENOMSG FI_ENODATA FI_EOVERFLOW FI_EMSGSIZE
    FI_ENOPROTOOPT FI_EOPNOTSUPP FI_EADDRINUSE FI_EADDRNOTAVAIL FI_ENETDOWN FI_ENETUNREACH FI_ECONNABORTED
    FI_ECONNRESET FI_ENOBUFS FI_EISCONN FI_ENOTCONN FI_ESHUTDOWN FI_ETIMEDOUT FI_ECONNREFUSED FI_EHOSTDOWN
    FI_EHOSTUNREACH FI_EALREADY FI_EINPROGRESS FI_EREMOTEIO FI_ECANCELED FI_EKEYREJECTED FI_EOTHER
    FI_ETOOSMALL FI_EOPBADSTATE FI_EAVAIL FI_EBADFLAGS FI_ENOEQ FI_EDOMAIN FI_ENOCQ FI_ECRC FI_ETRUNC
    FI_ENOKEY FI_ENOAV FI_EOVERRUN FI_ENORX
);

#[cfg(test)]
mod tests {
    use super::Code;
    use std::collections::BTreeSet;

    #[test]
    fn every_code_has_one_name() {
        assert_eq!(Code::AGAIN.to_string(), "EAGAIN (11)");
        assert_eq!(Code(266).name(), "ENOKEY");
        assert_eq!(Code(9_999).name(), "an unknown code");
        let codes: BTreeSet<_> = Code::all().collect();
        assert_eq!(codes.len(), Code::all().count());
    }

    #[test]
    fn a_negative_result_is_an_error() {
        assert_eq!(Code::check(0), Ok(()));
        assert_eq!(Code::check(7), Ok(()));
        assert_eq!(Code::check(-11), Err(Code::AGAIN));
        assert_eq!(Code::check(i64::MIN + 1), Err(Code(i32::MAX)));
    }
}
