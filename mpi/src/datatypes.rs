// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Datatypes and reduction operations by their handles. This version has the predefined ones only. The engine finds them, so that a
//! later version finds those that a program creates in the same way.

use crate::{Detail, Engine, Error};
use mend_datatype::{Datatype, Op};
use mend_runtime::Runtime;
use mend_transport::Rdma;

/// The handle of a datatype, as the program gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatatypeHandle(pub usize);

/// The handle of a reduction operation, as the program gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpHandle(pub usize);

impl DatatypeHandle {
    // Hot: per message.
    /// The predefined datatype with this handle. Needs no engine.
    #[inline(always)]
    pub fn predefined(self) -> Result<Datatype, Error> {
        Datatype::from_handle(self.0).ok_or_else(no_such_datatype)
    }
}

impl<N: Rdma, R: Runtime> Engine<N, R> {
    // Hot: per message.
    /// The datatype with this handle.
    #[inline(always)]
    pub fn datatype(&self, handle: DatatypeHandle) -> Result<Datatype, Error> {
        handle.predefined()
    }

    /// The reduction operation with this handle.
    pub fn op(&self, handle: OpHandle) -> Result<Op, Error> {
        Op::from_handle(handle.0).ok_or(Error::of(Detail::NoSuchOp))
    }
}

#[cold]
fn no_such_datatype() -> Error {
    Error::of(Detail::NoSuchDatatype)
}

#[cfg(test)]
mod tests {
    use super::{DatatypeHandle, OpHandle};
    use crate::ErrorClass;
    use crate::scripted::ScriptedJob;
    use mend_datatype::{Datatype, Op};

    #[test]
    fn handles_name_predefined_datatypes_and_operations_or_nothing() {
        let process = ScriptedJob::default().process(0, 1);
        assert_eq!(process.datatype(DatatypeHandle(Datatype::INT.handle())), Ok(Datatype::INT));
        assert_eq!(process.op(OpHandle(Op::Sum.handle())), Ok(Op::Sum));
        let stale = 3 << 32 | 7;
        let errors = [
            process.datatype(DatatypeHandle(0x200)).unwrap_err(),
            process.datatype(DatatypeHandle(stale)).unwrap_err(),
            process.op(OpHandle(0x20)).unwrap_err(),
            process.op(OpHandle(stale)).unwrap_err(),
        ];
        let classes = errors.map(|error| (error.class, error.report_code().to_string()));
        let (datatype, op) =
            ((ErrorClass::Type, "E-CALL-003".to_owned()), (ErrorClass::Op, "E-CALL-007".to_owned()));
        assert_eq!(classes, [datatype.clone(), datatype, op.clone(), op]);
    }
}
