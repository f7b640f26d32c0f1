// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares `long double` in software with the processor's: sums, products and extremes of random and of special numbers have
//! the same bits. (`tests/c/types.c` compares `REAL*16` with gcc's library.)
#![cfg(target_arch = "x86_64")]

use core::arch::asm;
use mend_base::Random;
use mend_datatype::{Datatype, Op, TypedBuffer, reduce};
use mend_transport::{Buffer, UserMemory};

type Bytes = [u8; 16];

fn by_mend(op: Op, left: Bytes, right: Bytes) -> Bytes {
    let long_double = Datatype::from_handle(0x220).expect("MPI_LONG_DOUBLE");
    let typed = |buffer| TypedBuffer::new(UserMemory::of_buffer(buffer), long_double, 1);
    let into = Buffer::from_bytes(&right);
    reduce(op, &typed(&Buffer::from_bytes(&left)), &typed(&into));
    into.to_vec().try_into().expect("16 bytes")
}

fn by_hardware(op: Op, left: Bytes, right: Bytes) -> Bytes {
    let mut out = [0; 16];
    let (l, r, o) = (left.as_ptr(), right.as_ptr(), out.as_mut_ptr());
    match op {
        // SAFETY: loads two long doubles, pops both, and stores ten bytes; all three arrays hold sixteen.
        Op::Sum => unsafe {
            asm!("fld tbyte ptr [{l}]", "fld tbyte ptr [{r}]", "faddp st(1), st", "fstp tbyte ptr [{o}]",
                l = in(reg) l, r = in(reg) r, o = in(reg) o,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _);
        },
        // SAFETY: as above.
        _ => unsafe {
            asm!("fld tbyte ptr [{l}]", "fld tbyte ptr [{r}]", "fmulp st(1), st", "fstp tbyte ptr [{o}]",
                l = in(reg) l, r = in(reg) r, o = in(reg) o,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _);
        },
    }
    out
}

fn number(negative: bool, biased: u16, significand: u64) -> Bytes {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&significand.to_le_bytes());
    bytes[8..10].copy_from_slice(&(biased | u16::from(negative) << 15).to_le_bytes());
    bytes
}

fn is_nan(bytes: Bytes) -> bool {
    let significand = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    bytes[9] & 0x7f == 0x7f && bytes[8] == 0xff && significand << 1 != 0
}

fn check(left: Bytes, right: Bytes) {
    for op in [Op::Sum, Op::Prod] {
        let (ours, theirs) = (by_mend(op, left, right), by_hardware(op, left, right));
        let same = ours == theirs || is_nan(ours) && is_nan(theirs);
        assert!(same, "{op:?} of {left:x?} and {right:x?}: {ours:x?}, the processor says {theirs:x?}");
    }
}

#[test]
fn special_numbers_combine_as_on_the_processor() {
    let leading = 1 << 63;
    let mut odd = vec![number(false, 0, 0), number(false, 0x7fff, leading), number(false, 0x7fff, 3 << 62)];
    for biased in [0, 1, 2, 63, 64, 65, 16382, 16383, 16384, 16446, 16447, 32765, 32766] {
        let leading = if biased == 0 { 0 } else { leading };
        for fraction in [0, 1, 2, 3, (1 << 62) - 1, 1 << 62, (1 << 63) - 1] {
            odd.push(number(false, biased, leading | fraction));
        }
    }
    let negative = |mut bytes: Bytes| {
        bytes[9] |= 0x80;
        bytes
    };
    for &left in &odd {
        for &right in &odd {
            check(left, right);
            check(left, negative(right));
            check(negative(left), right);
            check(negative(left), negative(right));
        }
    }
}

#[test]
fn random_numbers_combine_as_on_the_processor() {
    let mut random = Random(1);
    for _ in 0..300_000 {
        let near = 16383 + random.below(140) as u16 - 70;
        let mut one = |biased: u16| {
            let mut significand = random.bits() >> random.below(64) << random.below(64);
            significand |= 1 << 63;
            number(random.once_in(2), biased, significand)
        };
        let (left, right) = (one(near), one(16383));
        check(left, right);
        let far = random.below(32767) as u16;
        let mut tiny = number(random.once_in(2), 0, random.bits() >> (1 + random.below(63)));
        check(left, tiny);
        tiny[8..10].copy_from_slice(&far.to_le_bytes());
        if far != 0 {
            tiny[7] |= 0x80;
        }
        check(tiny, right);
        check(tiny, tiny);
    }
}
