// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls that read and set statuses (MPI-5.0 §3.2.5, §13.3). They are valid at any time.

use crate::argument_error::ArgumentError;
use crate::call_error::CallError;
use crate::calls::datatype::find;
use crate::generated::constants::UNDEFINED;
use crate::pointer::{Out, OutCount};
use crate::status::Status;
use core::ffi::c_int;
use mend_datatype::Datatype;
use mend_mpi::DatatypeHandle;

/// The number of whole elements; `MPI_UNDEFINED` if the bytes are not a whole number of elements, or the number does not fit into the
/// result (§3.2.5).
fn elements(status: &Status, datatype: Datatype) -> i64 {
    let (bytes, size) = (status.bytes(), datatype.size() as u64);
    if bytes % size != 0 {
        return i64::from(UNDEFINED);
    }
    i64::try_from(bytes / size).unwrap_or(i64::from(UNDEFINED))
}

pub(crate) fn get_count(status: Status, datatype: DatatypeHandle, count: OutCount) -> Result<(), CallError> {
    count.set(elements(&status, find(datatype)?), UNDEFINED);
    Ok(())
}

/// The number of basic elements: a pair has two, of which only the first may have been received (§5.1.11). Every other predefined
/// type is one.
fn basic_elements(status: &Status, datatype: Datatype) -> i64 {
    let Some(first) = datatype.first_of_pair() else { return elements(status, datatype) };
    let (bytes, size) = (status.bytes(), datatype.size() as u64);
    let alone = match bytes % size {
        0 => 0,
        rest if rest == first as u64 => 1,
        _ => return i64::from(UNDEFINED),
    };
    i64::try_from(bytes / size * 2 + alone).unwrap_or(i64::from(UNDEFINED))
}

pub(crate) fn get_elements(
    status: Status,
    datatype: DatatypeHandle,
    count: OutCount,
) -> Result<(), CallError> {
    count.set(basic_elements(&status, find(datatype)?), UNDEFINED);
    Ok(())
}

pub(crate) fn get_elements_x(
    status: Status,
    datatype: DatatypeHandle,
    count: Out<i64>,
) -> Result<(), CallError> {
    count.set(basic_elements(&status, find(datatype)?));
    Ok(())
}

pub(crate) fn test_cancelled(status: Status, flag: Out<c_int>) -> Result<(), CallError> {
    flag.set(c_int::from(status.is_cancelled()));
    Ok(())
}

macro_rules! fields {
    ($($get:ident $set:ident $field:ident;)*) => { $(
        pub(crate) fn $get(status: Status, value: Out<c_int>) -> Result<(), CallError> {
            value.set(status.$field);
            Ok(())
        }

        pub(crate) fn $set(status: Out<Status>, value: c_int) -> Result<(), CallError> {
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

pub(crate) fn set_cancelled(status: Out<Status>, flag: c_int) -> Result<(), CallError> {
    status.set(status.get().with_cancelled(flag != 0));
    Ok(())
}

pub(crate) fn set_elements(
    status: Out<Status>,
    datatype: DatatypeHandle,
    count: u64,
) -> Result<(), CallError> {
    let datatype = find(datatype)?;
    let size = datatype.size() as u64;
    let bytes = match datatype.first_of_pair() {
        None => count.checked_mul(size),
        Some(first) => {
            (count / 2).checked_mul(size).and_then(|whole| whole.checked_add(count % 2 * first as u64))
        }
    };
    let bytes = bytes.ok_or(ArgumentError::Overlong)?;
    status.set(status.get().with_bytes(bytes));
    Ok(())
}

pub(crate) fn set_elements_x(
    status: Out<Status>,
    datatype: DatatypeHandle,
    count: i64,
) -> Result<(), CallError> {
    set_elements(status, datatype, crate::check::count(count)?)
}

#[cfg(test)]
mod tests {
    use super::{basic_elements, elements};
    use crate::generated::constants::UNDEFINED;
    use crate::status::Status;
    use mend_datatype::Datatype;

    #[test]
    fn a_pair_has_two_basic_elements_and_its_first_may_come_alone() {
        let pair = Datatype::from_handle(0x229).unwrap();
        let of = |bytes| basic_elements(&Status::EMPTY.with_bytes(bytes), pair);
        assert_eq!([of(0), of(24), of(20), of(13)], [0, 4, 3, i64::from(UNDEFINED)]);
        assert_eq!(elements(&Status::EMPTY.with_bytes(24), pair), 2);
        assert_eq!(basic_elements(&Status::EMPTY.with_bytes(8), Datatype::INT), 2);
    }
}
