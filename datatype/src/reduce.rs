// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reduction kernels: `into[i] = left[i] op into[i]`, in blocks that are copied out of memory, combined, and copied back,
//! so that there is never a reference into a user's buffer.
//!
//! All predefined operations commute, but the order of operands affects NaNs and signed zeros. Callers that always pass the
//! lower rank's data as the left operand get the same bits on all ranks.

use crate::element::{Arithmetic, Bits, Complex, Element, Negate, Ordered, Pair};
use crate::half::Half;
use crate::pack::BLOCK_BYTES;
use crate::predefined::{Number, Row, TypeCategory};
use crate::soft::{Binary128, X87};
use crate::{Op, TypedBuffer};
use mend_transport::{Payload, PayloadWriter};

/// Reduces element by element; `op` must take the type ([`Op::takes`]), and both buffers have the same type and count.
pub fn reduce(op: Op, left: &TypedBuffer, into: &TypedBuffer) {
    let datatype = into.datatype();
    assert!(op.takes(datatype), "{op:?} of {}", datatype.name());
    assert!(
        left.datatype() == datatype && left.count() == into.count(),
        "a reduction of buffers that differ in type or count"
    );
    let kernel = kernel(op, datatype.row());
    if into.packed_bytes() <= SMALL_BYTES {
        reduce_by_blocks::<SMALL_BYTES>(kernel, left, into);
    } else {
        reduce_by_blocks::<BLOCK_BYTES>(kernel, left, into);
    }
}

/// So many bytes are reduced in a block of this length, since to clear two long blocks takes longer than to reduce a few elements.
const SMALL_BYTES: usize = 256;

fn reduce_by_blocks<const BYTES: usize>(kernel: Kernel, left: &TypedBuffer, into: &TypedBuffer) {
    let (mut ours, mut theirs) = ([0; BYTES], [0; BYTES]);
    let block = BYTES - BYTES % into.datatype().size();
    let bytes = into.packed_bytes();
    for at in (0..bytes).step_by(block) {
        let length = block.min(bytes - at);
        let (ours, theirs) = (&mut ours[..length], &mut theirs[..length]);
        left.pack(at, length, &mut PayloadWriter::from(&mut *theirs));
        into.pack(at, length, &mut PayloadWriter::from(&mut *ours));
        kernel(theirs, ours);
        into.unpack(at, Payload::from(&*ours));
    }
}

/// Reduces packed elements: the left operand, and the right one, which receives the result.
type Kernel = fn(&[u8], &mut [u8]);

fn kernel(op: Op, row: &Row) -> Kernel {
    match op {
        Op::Sum | Op::Prod if row.category == TypeCategory::Complex => complex(op, row.number),
        Op::Sum | Op::Prod => arithmetic(op, row.number),
        Op::Min | Op::Max => extremum(op, row.number),
        Op::Band | Op::Bor | Op::Bxor | Op::Land | Op::Lor | Op::Lxor => bits(op, row.number),
        Op::Minloc | Op::Maxloc => location(op, row),
        Op::Replace => |left, into| into.copy_from_slice(left),
        Op::NoOp => |_, _| (),
    }
}

#[inline(always)]
fn each<T: Element>(left: &[u8], into: &mut [u8], combine: impl Fn(T, T) -> T) {
    for (left, into) in left.chunks_exact(T::BYTES).zip(into.chunks_exact_mut(T::BYTES)) {
        combine(T::get(left), T::get(into)).put(into);
    }
}

fn arithmetic(op: Op, number: Number) -> Kernel {
    match number {
        Number::I8 | Number::U8 => sum_or_product::<u8>(op),
        Number::I16 | Number::U16 => sum_or_product::<u16>(op),
        Number::I32 | Number::U32 => sum_or_product::<u32>(op),
        Number::I64 | Number::U64 => sum_or_product::<u64>(op),
        Number::I128 => sum_or_product::<i128>(op),
        Number::F16 => sum_or_product::<Half>(op),
        Number::F32 => sum_or_product::<f32>(op),
        Number::F64 => sum_or_product::<f64>(op),
        Number::F80 => sum_or_product::<X87>(op),
        Number::F128 => sum_or_product::<Binary128>(op),
    }
}

fn complex(op: Op, number: Number) -> Kernel {
    fn parts<T: Arithmetic + Negate>(op: Op) -> Kernel {
        sum_or_product::<Complex<T>>(op)
    }
    match number {
        Number::F16 => parts::<Half>(op),
        Number::F32 => parts::<f32>(op),
        Number::F64 => parts::<f64>(op),
        Number::F80 => parts::<X87>(op),
        Number::F128 => parts::<Binary128>(op),
        _ => unreachable!("complex numbers have floating parts"),
    }
}

fn sum_or_product<T: Arithmetic>(op: Op) -> Kernel {
    match op {
        Op::Sum => |left, into| each::<T>(left, into, T::add),
        _ => |left, into| each::<T>(left, into, T::multiply),
    }
}

fn extremum(op: Op, number: Number) -> Kernel {
    fn of<T: Ordered>(op: Op) -> Kernel {
        match op {
            Op::Min => |left, into| each::<T>(left, into, |l, r| if l.less(r) { l } else { r }),
            _ => |left, into| each::<T>(left, into, |l, r| if r.less(l) { l } else { r }),
        }
    }
    match number {
        Number::I8 => of::<i8>(op),
        Number::I16 => of::<i16>(op),
        Number::I32 => of::<i32>(op),
        Number::I64 => of::<i64>(op),
        Number::I128 => of::<i128>(op),
        Number::U8 => of::<u8>(op),
        Number::U16 => of::<u16>(op),
        Number::U32 => of::<u32>(op),
        Number::U64 => of::<u64>(op),
        Number::F16 => of::<Half>(op),
        Number::F32 => of::<f32>(op),
        Number::F64 => of::<f64>(op),
        Number::F80 => of::<X87>(op),
        Number::F128 => of::<Binary128>(op),
    }
}

fn bits(op: Op, number: Number) -> Kernel {
    fn of<T: Bits>(op: Op) -> Kernel {
        match op {
            Op::Band => |left, into| each::<T>(left, into, T::and),
            Op::Bor => |left, into| each::<T>(left, into, T::or),
            Op::Bxor => |left, into| each::<T>(left, into, T::exclusive_or),
            Op::Land => |left, into| each::<T>(left, into, |l, r| T::from_truth(l.is_true() & r.is_true())),
            Op::Lor => |left, into| each::<T>(left, into, |l, r| T::from_truth(l.is_true() | r.is_true())),
            _ => |left, into| each::<T>(left, into, |l, r| T::from_truth(l.is_true() ^ r.is_true())),
        }
    }
    match number {
        Number::I8 | Number::U8 => of::<u8>(op),
        Number::I16 | Number::U16 => of::<u16>(op),
        Number::I32 | Number::U32 => of::<u32>(op),
        Number::I64 | Number::U64 => of::<u64>(op),
        Number::I128 => of::<i128>(op),
        Number::F16 | Number::F32 | Number::F64 | Number::F80 | Number::F128 => {
            unreachable!("no bits of floating numbers")
        }
    }
}

fn location(op: Op, row: &Row) -> Kernel {
    fn of<V: Ordered, I: Ordered>(op: Op) -> Kernel {
        match op {
            Op::Minloc => |left, into| each::<Pair<V, I>>(left, into, Pair::minloc),
            _ => |left, into| each::<Pair<V, I>>(left, into, Pair::maxloc),
        }
    }
    match (row.number, row.index) {
        (Number::I16, Number::I32) => of::<i16, i32>(op),
        (Number::I32, Number::I32) => of::<i32, i32>(op),
        (Number::I64, Number::I32) => of::<i64, i32>(op),
        (Number::F32, Number::I32) => of::<f32, i32>(op),
        (Number::F64, Number::I32) => of::<f64, i32>(op),
        (Number::F80, Number::I32) => of::<X87, i32>(op),
        (Number::F128, Number::I32) => of::<Binary128, i32>(op),
        (Number::F32, Number::F32) => of::<f32, f32>(op),
        (Number::F64, Number::F64) => of::<f64, f64>(op),
        _ => unreachable!("{} is no pair of the table", row.name),
    }
}

#[cfg(test)]
mod tests {
    use super::reduce;
    use crate::predefined::{Number, TypeCategory};
    use crate::{Datatype, Op, TypedBuffer};
    use mend_base::Random;
    use mend_transport::{Buffer, UserMemory};

    /// One number as the model sees it: integers as i128, floating ones as f64.
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Model {
        Whole(i128),
        Real(f64),
    }

    impl Model {
        fn less(self, other: Model) -> bool {
            match (self, other) {
                (Model::Whole(a), Model::Whole(b)) => a < b,
                (Model::Real(a), Model::Real(b)) => a < b,
                _ => unreachable!(),
            }
        }

        fn bytes(self, number: Number) -> Vec<u8> {
            match (self, number) {
                (Model::Real(value), Number::F16) => half_bytes(value).to_vec(),
                (Model::Real(value), Number::F32) => (value as f32).to_ne_bytes().to_vec(),
                (Model::Real(value), Number::F64) => value.to_ne_bytes().to_vec(),
                (Model::Real(value), _) => soft_bytes(value, number),
                (Model::Whole(value), _) => value.to_le_bytes()[..number_bytes(number)].to_vec(),
            }
        }

        /// The value modulo the type's width.
        fn wrapped(self, number: Number) -> Model {
            match (self, number) {
                (Model::Real(value), Number::F32) => Model::Real(f64::from(value as f32)),
                (Model::Real(value), _) => Model::Real(value),
                (Model::Whole(value), _) => {
                    let spare = 128 - 8 * number_bytes(number) as u32;
                    let signed =
                        matches!(number, Number::I8 | Number::I16 | Number::I32 | Number::I64 | Number::I128);
                    let high = value << spare;
                    Model::Whole(if signed { high >> spare } else { (high as u128 >> spare) as i128 })
                }
            }
        }
    }

    fn number_bytes(number: Number) -> usize {
        match number {
            Number::I8 | Number::U8 => 1,
            Number::I16 | Number::U16 | Number::F16 => 2,
            Number::I32 | Number::U32 | Number::F32 => 4,
            Number::I64 | Number::U64 | Number::F64 => 8,
            _ => 16,
        }
    }

    /// A small whole double, exactly, as a half.
    fn half_bytes(value: f64) -> [u8; 2] {
        let bits = value.to_bits();
        let (sign, biased, fraction) = (bits >> 63, bits >> 52 & 0x7ff, bits >> 42 & 1023);
        let biased = if value == 0.0 { 0 } else { biased + 15 - 1023 };
        ((sign << 15 | biased << 10 | fraction) as u16).to_ne_bytes()
    }

    /// A small double, exactly, in a long format.
    fn soft_bytes(value: f64, number: Number) -> Vec<u8> {
        let bits = value.to_bits();
        let (sign, biased, fraction) = (bits >> 63, bits >> 52 & 0x7ff, bits & ((1 << 52) - 1));
        let biased = if value == 0.0 { 0 } else { biased + 16383 - 1023 };
        let head = (sign << 15 | biased) as u16;
        let mut out = vec![0; 16];
        if number == Number::F80 {
            let leading = if value == 0.0 { 0 } else { 1 << 63 };
            out[..8].copy_from_slice(&(fraction << 11 | leading).to_le_bytes());
            out[8..10].copy_from_slice(&head.to_le_bytes());
        } else {
            let all = u128::from(head) << 112 | u128::from(fraction) << 60;
            out.copy_from_slice(&all.to_le_bytes());
        }
        out
    }

    fn scalar(op: Op, left: Model, right: Model) -> Model {
        let truth = |model| model != Model::Whole(0);
        match (op, left, right) {
            (Op::Sum, Model::Real(a), Model::Real(b)) => Model::Real(a + b),
            (Op::Prod, Model::Real(a), Model::Real(b)) => Model::Real(a * b),
            (Op::Sum, Model::Whole(a), Model::Whole(b)) => Model::Whole(a.wrapping_add(b)),
            (Op::Prod, Model::Whole(a), Model::Whole(b)) => Model::Whole(a.wrapping_mul(b)),
            (Op::Band, Model::Whole(a), Model::Whole(b)) => Model::Whole(a & b),
            (Op::Bor, Model::Whole(a), Model::Whole(b)) => Model::Whole(a | b),
            (Op::Bxor, Model::Whole(a), Model::Whole(b)) => Model::Whole(a ^ b),
            (Op::Land, ..) => Model::Whole((truth(left) && truth(right)).into()),
            (Op::Lor, ..) => Model::Whole((truth(left) || truth(right)).into()),
            (Op::Lxor, ..) => Model::Whole((truth(left) != truth(right)).into()),
            (Op::Min, ..) => {
                if right.less(left) {
                    right
                } else {
                    left
                }
            }
            (Op::Max, ..) => {
                if left.less(right) {
                    right
                } else {
                    left
                }
            }
            (Op::Replace, ..) => left,
            (Op::NoOp, ..) => right,
            _ => unreachable!("{op:?}"),
        }
    }

    /// One element: its numbers in order.
    fn combine(op: Op, category: TypeCategory, left: &[Model], right: &[Model]) -> Vec<Model> {
        match (category, op) {
            (_, Op::Replace) => left.to_vec(),
            (_, Op::NoOp) => right.to_vec(),
            (TypeCategory::Complex, Op::Prod) => {
                let [Model::Real(a), Model::Real(b), Model::Real(c), Model::Real(d)] =
                    [left[0], left[1], right[0], right[1]]
                else {
                    unreachable!()
                };
                vec![Model::Real(a * c - b * d), Model::Real(a * d + b * c)]
            }
            (TypeCategory::Pair, _) => {
                let (value, other) = (left[0], right[0]);
                let left_wins = if op == Op::Minloc { value.less(other) } else { other.less(value) };
                let tie = value == other && left[1].less(right[1]);
                if left_wins || tie { left.to_vec() } else { right.to_vec() }
            }
            _ => left.iter().zip(right).map(|(&l, &r)| scalar(op, l, r)).collect(),
        }
    }

    fn numbers(datatype: Datatype) -> Vec<Number> {
        let row = datatype.row();
        match row.category {
            TypeCategory::Complex => vec![row.number; 2],
            TypeCategory::Pair => vec![row.number, row.index],
            _ => vec![row.number],
        }
    }

    fn draw(random: &mut Random, number: Number) -> Model {
        match number {
            // Small whole numbers: every format holds their sums and products exactly.
            Number::F16 | Number::F32 | Number::F64 | Number::F80 | Number::F128 => {
                Model::Real(random.below(41) as f64 - 20.0)
            }
            _ if random.once_in(4) => Model::Whole(random.below(3) as i128),
            _ => Model::Whole(i128::from(random.bits()) << 64 | i128::from(random.bits())).wrapped(number),
        }
    }

    fn lay_out(datatype: Datatype, elements: &[Vec<Model>]) -> Vec<u8> {
        let row = datatype.row();
        let mut bytes = vec![0x5a; datatype.extent() * elements.len()];
        for (i, element) in elements.iter().enumerate() {
            let packed: Vec<u8> = element
                .iter()
                .zip(numbers(datatype))
                .flat_map(|(model, number)| model.bytes(number))
                .collect();
            let at = i * datatype.extent();
            let first = usize::from(row.first);
            bytes[at..at + first].copy_from_slice(&packed[..first]);
            let second = at + usize::from(row.second_at);
            bytes[second..][..packed.len() - first].copy_from_slice(&packed[first..]);
        }
        bytes
    }

    #[test]
    fn every_operation_on_every_type_it_takes_is_what_the_naive_model_says() {
        let mut random = Random(7);
        for datatype in Datatype::all() {
            for op in Op::ALL.into_iter().filter(|op| op.takes(datatype)) {
                // More than one block, and not a multiple of one.
                for count in [0, 1, 2, 700] {
                    let numbers = numbers(datatype);
                    let mut side = || -> Vec<Vec<Model>> {
                        (0..count).map(|_| numbers.iter().map(|&n| draw(&mut random, n)).collect()).collect()
                    };
                    let (left, right) = (side(), side());
                    let result: Vec<Vec<Model>> = left
                        .iter()
                        .zip(&right)
                        .map(|(l, r)| {
                            let combined = combine(op, datatype.row().category, l, r);
                            combined.iter().zip(&numbers).map(|(model, &n)| model.wrapped(n)).collect()
                        })
                        .collect();
                    let from = Buffer::from_bytes(&lay_out(datatype, &left));
                    let into = Buffer::from_bytes(&lay_out(datatype, &right));
                    let typed = |buffer| TypedBuffer::new(UserMemory::of_buffer(buffer), datatype, count);
                    reduce(op, &typed(&from), &typed(&into));
                    assert_eq!(into.to_vec(), lay_out(datatype, &result), "{op:?} of {}", datatype.name());
                    assert_eq!(from.to_vec(), lay_out(datatype, &left), "the left side is only read");
                }
            }
        }
    }

    #[test]
    fn of_equal_values_the_lower_index_wins_from_either_side() {
        let two_int = Datatype::from_handle(0x22b).unwrap();
        let bytes = |value: i32, index: i32| [value.to_ne_bytes(), index.to_ne_bytes()].concat();
        for op in [Op::Minloc, Op::Maxloc] {
            for (left, right) in [(3, 8), (8, 3)] {
                let into = Buffer::from_bytes(&bytes(5, right));
                let typed = |buffer| TypedBuffer::new(UserMemory::of_buffer(buffer), two_int, 1);
                reduce(op, &typed(&Buffer::from_bytes(&bytes(5, left))), &typed(&into));
                assert_eq!(into.to_vec(), bytes(5, 3));
            }
        }
    }
}
