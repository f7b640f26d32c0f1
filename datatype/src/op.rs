// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The predefined operations, and which types each takes (MPI-5.0 §6.9.2).

use crate::Datatype;
use crate::predefined::TypeCategory;

/// A predefined operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Op {
    /// `MPI_SUM`.
    Sum = 0x21,
    /// `MPI_MIN`.
    Min = 0x22,
    /// `MPI_MAX`.
    Max = 0x23,
    /// `MPI_PROD`.
    Prod = 0x24,
    /// `MPI_BAND`.
    Band = 0x28,
    /// `MPI_BOR`.
    Bor = 0x29,
    /// `MPI_BXOR`.
    Bxor = 0x2a,
    /// `MPI_LAND`.
    Land = 0x30,
    /// `MPI_LOR`.
    Lor = 0x31,
    /// `MPI_LXOR`.
    Lxor = 0x32,
    /// `MPI_MINLOC`.
    Minloc = 0x38,
    /// `MPI_MAXLOC`.
    Maxloc = 0x39,
    /// `MPI_REPLACE`: one-sided communication only.
    Replace = 0x3c,
    /// `MPI_NO_OP`: one-sided communication only.
    NoOp = 0x3d,
}

impl Op {
    /// All of them.
    pub const ALL: [Op; 14] = [
        Op::Sum,
        Op::Min,
        Op::Max,
        Op::Prod,
        Op::Band,
        Op::Bor,
        Op::Bxor,
        Op::Land,
        Op::Lor,
        Op::Lxor,
        Op::Minloc,
        Op::Maxloc,
        Op::Replace,
        Op::NoOp,
    ];

    /// The operation with this handle value in the ABI.
    pub fn from_handle(handle: usize) -> Option<Self> {
        Op::ALL.into_iter().find(|&op| op as usize == handle)
    }

    /// Its handle value.
    pub fn handle(self) -> usize {
        self as usize
    }

    /// Whether reductions among processes take it: `MPI_REPLACE` and `MPI_NO_OP` are for one-sided communication
    /// alone (MPI-5.0 §12.3.4).
    pub fn reduces(self) -> bool {
        !matches!(self, Op::Replace | Op::NoOp)
    }

    /// Whether the operation is defined on elements of `datatype`; if not, a call is refused with `MPI_ERR_OP`.
    pub fn takes(self, datatype: Datatype) -> bool {
        use TypeCategory::{Byte, CInteger, Complex, Floating, FortranInteger, Logical, MultiLanguage, Pair};
        let category = datatype.row().category;
        match self {
            Op::Max | Op::Min => matches!(category, CInteger | FortranInteger | Floating | MultiLanguage),
            Op::Sum | Op::Prod => {
                matches!(category, CInteger | FortranInteger | Floating | Complex | MultiLanguage)
            }
            Op::Land | Op::Lor | Op::Lxor => matches!(category, CInteger | Logical),
            Op::Band | Op::Bor | Op::Bxor => {
                matches!(category, CInteger | FortranInteger | Byte | MultiLanguage)
            }
            Op::Minloc | Op::Maxloc => category == Pair,
            Op::Replace | Op::NoOp => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Op;
    use crate::Datatype;

    #[test]
    fn every_operation_is_found_by_its_handle_and_nothing_else_is() {
        let found = (0..0x400).filter_map(Op::from_handle);
        assert!(found.map(Op::handle).eq(Op::ALL.map(Op::handle)));
    }

    #[test]
    fn operations_take_the_types_that_the_standard_names() {
        let takes = |op: Op| Datatype::all().filter(|&each| op.takes(each)).count();
        // C integers, Fortran integers, floating, complex, logical types, byte, those of all languages, pairs.
        assert_eq!(takes(Op::Max), 18 + 6 + 9 + 3);
        assert_eq!(takes(Op::Sum), 18 + 6 + 9 + 12 + 3);
        assert_eq!(takes(Op::Land), 18 + 8);
        assert_eq!(takes(Op::Band), 18 + 6 + 1 + 3);
        assert_eq!(takes(Op::Minloc), 9);
        assert!(!Op::Sum.takes(Datatype::CHAR));
        assert!(!Op::Band.takes(Datatype::DOUBLE));
    }
}
