// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The predefined datatypes: one table, by the handle values of the MPI-5.0 ABI, with the sizes of x86-64 and aarch64
//! Linux. All of them work, also those that the standard calls optional, so that none has the size `MPI_UNDEFINED`
//! (MPI-5.0 §20.4): a type that no Fortran compiler of the platform has, as `MPI_REAL2`, may exist in C.

/// A predefined datatype (MPI-5.0 §3.2.2, §A.1.1). Constructed only from handles in the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Datatype(u16);

impl Datatype {
    /// `MPI_BYTE`.
    pub const BYTE: Datatype = Datatype(0x247);
    /// `MPI_PACKED`.
    pub const PACKED: Datatype = Datatype(0x207);
    /// `MPI_CHAR`.
    pub const CHAR: Datatype = Datatype(0x243);
    /// `MPI_INT`.
    pub const INT: Datatype = Datatype(0x209);
    /// `MPI_INT32_T`.
    pub const INT32: Datatype = Datatype(0x250);
    /// `MPI_INT64_T`.
    pub const INT64: Datatype = Datatype(0x258);
    /// `MPI_UINT64_T`.
    pub const UINT64: Datatype = Datatype(0x259);
    /// `MPI_DOUBLE`.
    pub const DOUBLE: Datatype = Datatype(0x214);

    // Hot: per message.
    /// The type with this handle value; `None` for values that name none.
    #[inline]
    pub fn from_handle(handle: usize) -> Option<Self> {
        let index = handle.wrapping_sub(FIRST_HANDLE);
        let row = BY_HANDLE.get(index)?;
        (row.size != 0).then_some(Datatype(handle as u16))
    }

    /// Its handle value in the ABI.
    pub fn handle(self) -> usize {
        usize::from(self.0)
    }

    /// Bytes of data in one element, without gaps (`MPI_Type_size`).
    #[inline]
    pub fn size(self) -> usize {
        usize::from(self.row().size)
    }

    /// From one element to the next in memory, in bytes (`MPI_Type_get_extent`).
    #[inline]
    pub fn extent(self) -> usize {
        usize::from(self.row().extent)
    }

    /// How many bytes of data the first part of a pair type has; `None` for types that are no pairs.
    pub fn first_of_pair(self) -> Option<usize> {
        let row = self.row();
        (row.category == TypeCategory::Pair).then(|| usize::from(row.number.bytes()))
    }

    /// The name in the standard, such as `MPI_INT`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The length in bytes of the memory of `count` elements, from the first to the last byte that may be accessed; `None`
    /// if it is more than an address space holds.
    #[inline]
    pub fn span(self, count: u64) -> Option<usize> {
        let row = self.row();
        let Some(before_last) = count.checked_sub(1) else { return Some(0) };
        let before_last = usize::try_from(before_last).ok()?.checked_mul(usize::from(row.extent))?;
        before_last.checked_add(row.touched()).filter(|&bytes| bytes <= isize::MAX as usize)
    }

    /// Every type of the table.
    pub fn all() -> impl Iterator<Item = Datatype> {
        TABLE.iter().map(|row| Datatype(row.handle))
    }

    #[inline]
    pub(crate) fn row(self) -> &'static Row {
        &BY_HANDLE[usize::from(self.0) - FIRST_HANDLE]
    }
}

/// One predefined type. An element is one run of bytes, or two with a gap between them (pair types).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) handle: u16,
    pub(crate) name: &'static str,
    pub(crate) size: u8,
    pub(crate) extent: u8,
    /// Bytes of the first run; all bytes if there is no second run.
    pub(crate) first: u8,
    /// Where the second run begins.
    pub(crate) second_at: u8,
    pub(crate) category: TypeCategory,
    /// The format of its number; in complex and pair types, of the first number.
    pub(crate) number: Number,
    /// In pair types, the second number.
    pub(crate) index: Number,
}

impl Row {
    /// Whether elements have no gaps, so that packed and unpacked bytes are the same.
    #[inline]
    pub(crate) const fn is_contiguous(&self) -> bool {
        self.size == self.extent
    }

    /// Bytes from an element's first to its last that may be accessed: less than the extent if padding follows.
    const fn touched(&self) -> usize {
        if self.size == self.first {
            self.size as usize
        } else {
            (self.second_at + self.size - self.first) as usize
        }
    }
}

/// The groups of MPI-5.0 §6.9.2, by which operations choose their types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TypeCategory {
    CInteger,
    FortranInteger,
    Floating,
    Logical,
    Complex,
    Byte,
    /// `MPI_AINT`, `MPI_OFFSET`, `MPI_COUNT`.
    MultiLanguage,
    /// A value and an index, for MINLOC and MAXLOC.
    Pair,
    /// Characters and packed data: no operation takes them.
    Other,
}

/// The format of a number in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Number {
    I8,
    I16,
    I32,
    I64,
    I128,
    U8,
    U16,
    U32,
    U64,
    /// IEEE binary16.
    F16,
    F32,
    F64,
    /// The x87 format: 64 bits of significand in 16 bytes, of which 10 are used.
    F80,
    /// IEEE binary128.
    F128,
}

impl Number {
    const fn bytes(self) -> u8 {
        match self {
            Number::I8 | Number::U8 => 1,
            Number::I16 | Number::U16 | Number::F16 => 2,
            Number::I32 | Number::U32 | Number::F32 => 4,
            Number::I64 | Number::U64 | Number::F64 => 8,
            Number::I128 | Number::F80 | Number::F128 => 16,
        }
    }
}

#[cfg(target_arch = "x86_64")]
const LONG_DOUBLE: Number = Number::F80;
#[cfg(not(target_arch = "x86_64"))]
const LONG_DOUBLE: Number = Number::F128;

const fn plain(handle: u16, name: &'static str, category: TypeCategory, number: Number) -> Row {
    let size = number.bytes();
    Row { handle, name, size, extent: size, first: size, second_at: 0, category, number, index: number }
}

const fn complex(handle: u16, name: &'static str, number: Number) -> Row {
    let size = 2 * number.bytes();
    Row {
        handle,
        name,
        size,
        extent: size,
        first: size,
        second_at: 0,
        category: TypeCategory::Complex,
        number,
        index: number,
    }
}

/// As a C compiler lays out `struct { number; index; }`.
const fn pair(handle: u16, name: &'static str, number: Number, index: Number) -> Row {
    let (first, second) = (number.bytes(), index.bytes());
    let second_at = first.next_multiple_of(second);
    let align = if first > second { first } else { second };
    let extent = (second_at + second).next_multiple_of(align);
    Row {
        handle,
        name,
        size: first + second,
        extent,
        first,
        second_at,
        category: TypeCategory::Pair,
        number,
        index,
    }
}

const FIRST_HANDLE: usize = 0x200;

/// The row of handle values that name no type: size 0, which no type has.
const NONE: Row = Row {
    handle: 0,
    name: "",
    size: 0,
    extent: 0,
    first: 0,
    second_at: 0,
    category: TypeCategory::Other,
    number: Number::U8,
    index: Number::U8,
};

static BY_HANDLE: [Row; 256] = {
    let mut rows = [NONE; 256];
    let mut at = 0;
    while at < TABLE.len() {
        rows[TABLE[at].handle as usize - FIRST_HANDLE] = TABLE[at];
        at += 1;
    }
    rows
};

const TABLE: &[Row] = {
    use Number::{F16, F32, F64, F128, I8, I16, I32, I64, I128, U8, U16, U32, U64};
    use TypeCategory::{Byte, CInteger, Floating, FortranInteger, Logical, MultiLanguage, Other};
    &[
        plain(0x201, "MPI_AINT", MultiLanguage, I64),
        plain(0x202, "MPI_COUNT", MultiLanguage, I64),
        plain(0x203, "MPI_OFFSET", MultiLanguage, I64),
        plain(0x207, "MPI_PACKED", Other, U8),
        plain(0x208, "MPI_SHORT", CInteger, I16),
        plain(0x209, "MPI_INT", CInteger, I32),
        plain(0x20a, "MPI_LONG", CInteger, I64),
        plain(0x20b, "MPI_LONG_LONG", CInteger, I64),
        plain(0x20c, "MPI_UNSIGNED_SHORT", CInteger, U16),
        plain(0x20d, "MPI_UNSIGNED", CInteger, U32),
        plain(0x20e, "MPI_UNSIGNED_LONG", CInteger, U64),
        plain(0x20f, "MPI_UNSIGNED_LONG_LONG", CInteger, U64),
        plain(0x210, "MPI_FLOAT", Floating, F32),
        complex(0x212, "MPI_C_FLOAT_COMPLEX", F32),
        complex(0x213, "MPI_CXX_FLOAT_COMPLEX", F32),
        plain(0x214, "MPI_DOUBLE", Floating, F64),
        complex(0x216, "MPI_C_DOUBLE_COMPLEX", F64),
        complex(0x217, "MPI_CXX_DOUBLE_COMPLEX", F64),
        plain(0x218, "MPI_LOGICAL", Logical, I32),
        plain(0x219, "MPI_INTEGER", FortranInteger, I32),
        plain(0x21a, "MPI_REAL", Floating, F32),
        complex(0x21b, "MPI_COMPLEX", F32),
        plain(0x21c, "MPI_DOUBLE_PRECISION", Floating, F64),
        complex(0x21d, "MPI_DOUBLE_COMPLEX", F64),
        plain(0x21e, "MPI_CHARACTER", Other, U8),
        plain(0x220, "MPI_LONG_DOUBLE", Floating, LONG_DOUBLE),
        complex(0x224, "MPI_C_LONG_DOUBLE_COMPLEX", LONG_DOUBLE),
        complex(0x225, "MPI_CXX_LONG_DOUBLE_COMPLEX", LONG_DOUBLE),
        pair(0x228, "MPI_FLOAT_INT", F32, I32),
        pair(0x229, "MPI_DOUBLE_INT", F64, I32),
        pair(0x22a, "MPI_LONG_INT", I64, I32),
        pair(0x22b, "MPI_2INT", I32, I32),
        pair(0x22c, "MPI_SHORT_INT", I16, I32),
        pair(0x22d, "MPI_LONG_DOUBLE_INT", LONG_DOUBLE, I32),
        pair(0x230, "MPI_2REAL", F32, F32),
        pair(0x231, "MPI_2DOUBLE_PRECISION", F64, F64),
        pair(0x232, "MPI_2INTEGER", I32, I32),
        plain(0x238, "MPI_C_BOOL", Logical, U8),
        plain(0x239, "MPI_CXX_BOOL", Logical, U8),
        plain(0x23c, "MPI_WCHAR", Other, I32),
        plain(0x240, "MPI_INT8_T", CInteger, I8),
        plain(0x241, "MPI_UINT8_T", CInteger, U8),
        plain(0x243, "MPI_CHAR", Other, I8),
        plain(0x244, "MPI_SIGNED_CHAR", CInteger, I8),
        plain(0x245, "MPI_UNSIGNED_CHAR", CInteger, U8),
        plain(0x247, "MPI_BYTE", Byte, U8),
        plain(0x248, "MPI_INT16_T", CInteger, I16),
        plain(0x249, "MPI_UINT16_T", CInteger, U16),
        plain(0x250, "MPI_INT32_T", CInteger, I32),
        plain(0x251, "MPI_UINT32_T", CInteger, U32),
        plain(0x258, "MPI_INT64_T", CInteger, I64),
        plain(0x259, "MPI_UINT64_T", CInteger, U64),
        plain(0x2c0, "MPI_LOGICAL1", Logical, I8),
        plain(0x2c1, "MPI_INTEGER1", FortranInteger, I8),
        plain(0x2c8, "MPI_LOGICAL2", Logical, I16),
        plain(0x2c9, "MPI_INTEGER2", FortranInteger, I16),
        plain(0x2ca, "MPI_REAL2", Floating, F16),
        plain(0x2d0, "MPI_LOGICAL4", Logical, I32),
        plain(0x2d1, "MPI_INTEGER4", FortranInteger, I32),
        plain(0x2d2, "MPI_REAL4", Floating, F32),
        complex(0x2d3, "MPI_COMPLEX4", F16),
        plain(0x2d8, "MPI_LOGICAL8", Logical, I64),
        plain(0x2d9, "MPI_INTEGER8", FortranInteger, I64),
        plain(0x2da, "MPI_REAL8", Floating, F64),
        complex(0x2db, "MPI_COMPLEX8", F32),
        plain(0x2e0, "MPI_LOGICAL16", Logical, I128),
        plain(0x2e1, "MPI_INTEGER16", FortranInteger, I128),
        plain(0x2e2, "MPI_REAL16", Floating, F128),
        complex(0x2e3, "MPI_COMPLEX16", F64),
        complex(0x2eb, "MPI_COMPLEX32", F128),
    ]
};

#[cfg(test)]
mod tests {
    use super::Datatype;

    fn named(name: &str) -> Datatype {
        Datatype::all().find(|each| each.name() == name).unwrap()
    }

    #[test]
    fn every_row_is_found_by_its_handle() {
        for each in Datatype::all() {
            assert_eq!(Datatype::from_handle(each.handle()), Some(each), "{}", each.name());
            assert!(each.size() <= each.extent());
        }
        assert_eq!(Datatype::all().count(), 70);
    }

    #[test]
    fn null_and_unknown_types_are_refused() {
        for handle in [0, 0x1ff, 0x200, 0x204, 0x2cb, 0x2d4, 0x2ff, 0x300, usize::MAX] {
            assert_eq!(Datatype::from_handle(handle), None, "{handle:#x}");
        }
    }

    #[test]
    fn pair_types_are_laid_out_as_c_lays_out_its_structs() {
        let sizes = |name| (named(name).size(), named(name).extent(), named(name).span(1));
        assert_eq!(sizes("MPI_FLOAT_INT"), (8, 8, Some(8)));
        assert_eq!(sizes("MPI_DOUBLE_INT"), (12, 16, Some(12)));
        assert_eq!(sizes("MPI_LONG_INT"), (12, 16, Some(12)));
        assert_eq!(sizes("MPI_2INT"), (8, 8, Some(8)));
        assert_eq!(sizes("MPI_SHORT_INT"), (6, 8, Some(8)));
        assert_eq!(sizes("MPI_LONG_DOUBLE_INT"), (20, 32, Some(20)));
    }

    #[test]
    fn a_span_that_no_address_space_holds_is_refused() {
        assert_eq!(Datatype::INT.span(0), Some(0));
        assert_eq!(Datatype::INT.span(3), Some(12));
        assert_eq!(named("MPI_LONG_INT").span(3), Some(44));
        assert_eq!(Datatype::INT.span(1 << 61), None);
        assert_eq!(Datatype::INT.span(u64::MAX), None);
    }
}
