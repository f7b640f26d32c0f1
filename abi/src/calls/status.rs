// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading and setting statuses (MPI-5.0 §3.2.5, §13.3). Legal at any time.

use crate::check::Wrong;
use crate::entry::Failure;
use crate::generated::constants::UNDEFINED;
use crate::pointer::{Out, OutCount};
use crate::status::Status;
use core::ffi::c_int;
use mend_datatype::Datatype;

/// Whole elements; `MPI_UNDEFINED` where the bytes are no whole number of them, or too many for the result (§3.2.5).
fn elements(status: &Status, datatype: Datatype) -> i64 {
    let (bytes, size) = (status.bytes(), datatype.size() as u64);
    if bytes % size != 0 {
        return i64::from(UNDEFINED);
    }
    i64::try_from(bytes / size).unwrap_or(i64::from(UNDEFINED))
}

pub(crate) fn get_count(status: Status, datatype: Datatype, count: OutCount) -> Result<(), Failure> {
    count.set(elements(&status, datatype), UNDEFINED);
    Ok(())
}

/// Predefined types other than pairs are basic elements; pairs count whole, as one (the parts of a pair never come alone
/// here: senders send whole elements of their types, and a half is `MPI_UNDEFINED`).
pub(crate) fn get_elements(status: Status, datatype: Datatype, count: OutCount) -> Result<(), Failure> {
    count.set(elements(&status, datatype), UNDEFINED);
    Ok(())
}

pub(crate) fn get_elements_x(status: Status, datatype: Datatype, count: Out<i64>) -> Result<(), Failure> {
    count.set(elements(&status, datatype));
    Ok(())
}

pub(crate) fn test_cancelled(status: Status, flag: Out<c_int>) -> Result<(), Failure> {
    flag.set(c_int::from(status.is_cancelled()));
    Ok(())
}

macro_rules! fields {
    ($($get:ident $set:ident $field:ident;)*) => { $(
        pub(crate) fn $get(status: Status, value: Out<c_int>) -> Result<(), Failure> {
            value.set(status.$field);
            Ok(())
        }

        pub(crate) fn $set(status: Out<Status>, value: c_int) -> Result<(), Failure> {
            status.set(Status { $field: value, ..status.get() });
            Ok(())
        }
    )* };
}

fields! {
    get_source set_source source;
    get_tag set_tag tag;
    get_error set_error error;
}

pub(crate) fn set_cancelled(status: Out<Status>, flag: c_int) -> Result<(), Failure> {
    status.set(status.get().with_cancelled(flag != 0));
    Ok(())
}

pub(crate) fn set_elements(status: Out<Status>, datatype: Datatype, count: u64) -> Result<(), Failure> {
    let bytes = count.checked_mul(datatype.size() as u64).ok_or(Wrong::Overlong)?;
    status.set(status.get().with_bytes(bytes));
    Ok(())
}

pub(crate) fn set_elements_x(status: Out<Status>, datatype: Datatype, count: i64) -> Result<(), Failure> {
    set_elements(status, datatype, crate::check::count(count)?)
}
