// SPDX-License-Identifier: Apache-2.0 OR MIT
//! [`TypedBuffer`]: a buffer of elements, from which any range of packed bytes can be copied out (pack) or into which it can be copied
//! (unpack). Only bytes of the type map are accessed: the gaps of pair types are neither sent nor overwritten (MPI-5.0 §3.3.1).

use crate::Datatype;
use crate::predefined::Row;
use mend_transport::{Buffer, Payload, PayloadWriter, UserMemory};

/// A buffer that an operation reads or writes: `count` elements of a datatype in the user's memory.
#[derive(Debug)]
pub struct TypedBuffer {
    memory: UserMemory,
    datatype: Datatype,
    count: u64,
}

impl TypedBuffer {
    // Hot: per message.
    /// `memory` must have at least [`Datatype::span`] bytes; the layer that takes count and type from the user checks it.
    #[inline]
    pub fn new(memory: UserMemory, datatype: Datatype, count: u64) -> Self {
        debug_assert!(
            datatype.span(count).is_some_and(|span| span <= memory.len()),
            "a buffer shorter than its elements"
        );
        TypedBuffer { memory, datatype, count }
    }

    /// A buffer without elements, as for `MPI_PROC_NULL` and zero counts.
    pub fn empty() -> Self {
        TypedBuffer { memory: UserMemory::EMPTY, datatype: Datatype::BYTE, count: 0 }
    }

    /// All of `memory` as bytes.
    pub fn bytes(memory: UserMemory) -> Self {
        let count = memory.len() as u64;
        TypedBuffer { memory, datatype: Datatype::BYTE, count }
    }

    /// The type of the elements.
    pub fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// How many elements there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    // Hot: per message.
    /// The number of packed bytes. It cannot overflow: the span fits an address space, and the size is at most the extent.
    #[inline]
    pub fn packed_bytes(&self) -> usize {
        self.count as usize * self.datatype.size()
    }

    /// A second handle of the same elements, for another request.
    pub fn share(&self) -> Self {
        TypedBuffer { memory: self.memory.share(), datatype: self.datatype, count: self.count }
    }

    /// A packed copy; `None` where there is no memory for it.
    pub fn copied(&self) -> Option<Self> {
        let copy = TypedBuffer::bytes(UserMemory::of_buffer(&Buffer::try_zeroed(self.packed_bytes())?));
        copy.copy_from(self);
        Some(copy)
    }

    /// `count` of the elements, from the `first` on; `None` where there are fewer.
    pub fn elements(&self, first: u64, count: u64) -> Option<Self> {
        first.checked_add(count).filter(|&end| end <= self.count)?;
        let offset = if count == 0 { 0 } else { first as usize * self.datatype.extent() };
        let memory = self.memory.part(offset, self.datatype.span(count)?)?;
        Some(TypedBuffer { memory, datatype: self.datatype, count })
    }

    // Hot: per message.
    /// Appends the packed bytes `[from, from + bytes)` to `into`. Panics where there are fewer.
    #[inline(always)]
    pub fn pack(&self, from: usize, bytes: usize, into: &mut PayloadWriter<'_>) {
        if self.datatype.row().is_contiguous() {
            return into.put_user(&self.memory, from, bytes);
        }
        let mut runs = Runs::new(self.datatype.row(), from, bytes);
        while let Some((offset, length)) = runs.step() {
            into.put_user(&self.memory, offset, length);
        }
    }

    // Hot: per message.
    /// Writes the packed bytes `payload` to the packed offset `at`. Panics where they reach past the end.
    #[inline(always)]
    pub fn unpack(&self, at: usize, payload: Payload<'_>) {
        if self.datatype.row().is_contiguous() {
            return payload.copy_to_user(&self.memory, at);
        }
        let mut runs = Runs::new(self.datatype.row(), at, payload.len());
        let mut done = 0;
        while let Some((offset, length)) = runs.step() {
            payload.part(done, length).copy_to_user(&self.memory, offset);
            done += length;
        }
    }

    /// The memory of the packed bytes, if they lie there one behind the other.
    pub fn contiguous(&self) -> Option<UserMemory> {
        let is_contiguous = self.datatype.row().is_contiguous();
        if is_contiguous { self.memory.part(0, self.packed_bytes()) } else { None }
    }

    /// Writes `bytes` bytes of `from`, from `offset` on, to the packed offset `at`. Panics where they reach past an end.
    pub fn unpack_memory(&self, at: usize, from: &UserMemory, offset: usize, bytes: usize) {
        let mut block = [0; BLOCK_BYTES];
        for done in (0..bytes).step_by(BLOCK_BYTES) {
            let piece = &mut block[..BLOCK_BYTES.min(bytes - done)];
            from.read(offset + done, piece);
            self.unpack(at + done, Payload::from(&*piece));
        }
    }

    /// Copies the elements of `from` to the front of this buffer, as a message to oneself would. The memories may overlap only where
    /// they are the same elements. Copies as many bytes as both have, and returns the number.
    pub fn copy_from(&self, from: &TypedBuffer) -> usize {
        let bytes = self.packed_bytes().min(from.packed_bytes());
        if self.datatype.row().is_contiguous() && from.datatype.row().is_contiguous() {
            self.memory.copy_from(0, &from.memory, 0, bytes);
            return bytes;
        }
        let mut block = [0; BLOCK_BYTES];
        for at in (0..bytes).step_by(BLOCK_BYTES) {
            let piece = &mut block[..BLOCK_BYTES.min(bytes - at)];
            from.pack(at, piece.len(), &mut PayloadWriter::from(&mut *piece));
            self.unpack(at, Payload::from(&*piece));
        }
        bytes
    }
}

/// Copies through a temporary buffer use pieces of this size, which stay in the first-level cache.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// The runs of memory that a range of packed bytes lies in, in order.
struct Runs {
    row: &'static Row,
    /// Where the current element begins in memory.
    element: usize,
    /// Packed bytes of the current element that lie before the range's rest.
    within: usize,
    left: usize,
}

impl Runs {
    fn new(row: &'static Row, from: usize, bytes: usize) -> Self {
        let (element, within) = (from / usize::from(row.size), from % usize::from(row.size));
        Runs { row, element: element * usize::from(row.extent), within, left: bytes }
    }

    /// The next run: offset in memory and length.
    fn step(&mut self) -> Option<(usize, usize)> {
        if self.left == 0 {
            return None;
        }
        let first = usize::from(self.row.first);
        let (offset, rest) = if self.within < first {
            (self.element + self.within, first - self.within)
        } else {
            let past = self.within - first;
            (self.element + usize::from(self.row.second_at) + past, usize::from(self.row.size) - self.within)
        };
        let length = rest.min(self.left);
        self.left -= length;
        self.within += length;
        if self.within == usize::from(self.row.size) {
            self.within = 0;
            self.element += usize::from(self.row.extent);
        }
        Some((offset, length))
    }
}

#[cfg(test)]
mod tests {
    use super::TypedBuffer;
    use crate::Datatype;
    use mend_transport::{Buffer, Payload, PayloadWriter, UserMemory};

    fn typed(bytes: &[u8], datatype: Datatype, count: u64) -> (std::sync::Arc<Buffer>, TypedBuffer) {
        let buffer = Buffer::from_bytes(bytes);
        let memory = UserMemory::of_buffer(&buffer);
        (buffer, TypedBuffer::new(memory, datatype, count))
    }

    /// A simple model of the type map: which bytes of memory are sent, in order.
    fn map(datatype: Datatype, count: usize) -> Vec<usize> {
        let row = datatype.row();
        let runs = (0..usize::from(row.first)).chain(
            usize::from(row.second_at)..usize::from(row.second_at) + usize::from(row.size - row.first),
        );
        let element: Vec<usize> = runs.collect();
        (0..count).flat_map(|i| element.iter().map(move |at| i * datatype.extent() + at)).collect()
    }

    #[test]
    fn a_copy_is_packed_and_independent_of_its_source() {
        for datatype in Datatype::all() {
            let bytes: Vec<u8> = (0..datatype.extent() * 3).map(|i| i as u8 + 1).collect();
            let (buffer, from) = typed(&bytes, datatype, 3);
            let copy = from.copied().unwrap();
            UserMemory::of_buffer(&buffer).write(0, &vec![0; bytes.len()]);
            let mut packed = vec![0; copy.packed_bytes()];
            copy.pack(0, packed.len(), &mut PayloadWriter::from(&mut packed[..]));
            assert_eq!(packed, map(datatype, 3).into_iter().map(|at| bytes[at]).collect::<Vec<_>>());
        }
    }

    #[test]
    fn any_range_of_packed_bytes_is_what_the_type_map_says() {
        for datatype in Datatype::all() {
            let count = 3;
            let bytes: Vec<u8> = (0..datatype.extent() * count).map(|i| i as u8 + 1).collect();
            let map = map(datatype, count);
            let (_, from) = typed(&bytes, datatype, count as u64);
            assert_eq!(from.packed_bytes(), map.len());
            for start in 0..=map.len() {
                for end in start..=map.len() {
                    let wanted: Vec<u8> = map[start..end].iter().map(|&at| bytes[at]).collect();
                    let mut packed = vec![0; end - start];
                    from.pack(start, end - start, &mut PayloadWriter::from(&mut packed[..]));
                    assert_eq!(packed, wanted, "{} [{start}, {end})", datatype.name());

                    let (buffer, into) = typed(&vec![0; bytes.len()], datatype, count as u64);
                    into.unpack(start, Payload::from(&packed[..]));
                    let mut wanted = vec![0; bytes.len()];
                    map[start..end].iter().for_each(|&at| wanted[at] = bytes[at]);
                    assert_eq!(buffer.to_vec(), wanted, "{} [{start}, {end})", datatype.name());
                }
            }
        }
    }

    #[test]
    fn the_gaps_of_a_pair_are_never_overwritten() {
        let short_int = Datatype::from_handle(0x22c).unwrap();
        let (buffer, into) = typed(&[0xee; 16], short_int, 2);
        let (_, from) = typed(&[7; 16], short_int, 2);
        assert_eq!(into.copy_from(&from), 12);
        let element = [7, 7, 0xee, 0xee, 7, 7, 7, 7];
        assert_eq!(buffer.to_vec(), [element, element].concat());
    }

    #[test]
    fn a_copy_between_types_of_other_layout_goes_by_packed_bytes() {
        let count = 1000;
        let pair = Datatype::from_handle(0x22c).unwrap();
        let bytes: Vec<u8> = (0..8 * count).map(|i| (i % 251) as u8).collect();
        let (_, from) = typed(&bytes, pair, count as u64);
        let (packed, flat) = typed(&vec![0; 6 * count], Datatype::BYTE, 6 * count as u64);
        assert_eq!(flat.copy_from(&from), 6 * count);
        let wanted: Vec<u8> = map(pair, count).iter().map(|&at| bytes[at]).collect();
        assert_eq!(packed.to_vec(), wanted);
    }

    #[test]
    fn memory_is_contiguous_or_else_unpacked_from_another_in_pieces() {
        let (_, flat) = typed(&[1, 2, 3, 4], Datatype::BYTE, 3);
        assert_eq!(flat.contiguous().unwrap().len(), 3);
        let pair = Datatype::from_handle(0x22c).unwrap();
        let count = 1500;
        let (buffer, gaps) = typed(&vec![0xee; 8 * count], pair, count as u64);
        assert!(gaps.contiguous().is_none());
        let packed: Vec<u8> = (0..6 * count).map(|i| (i % 251) as u8).collect();
        let from = UserMemory::of_buffer(&Buffer::from_bytes(&packed));
        for (at, bytes) in [(0, 4100), (4100, 4900)] {
            gaps.unpack_memory(at, &from, at, bytes);
        }
        let mut wanted = vec![0xee; 8 * count];
        map(pair, count).iter().zip(packed).for_each(|(&at, byte)| wanted[at] = byte);
        assert_eq!(buffer.to_vec(), wanted);
    }

    #[test]
    fn elements_are_a_window_and_never_past_the_end() {
        let (_, all) = typed(&[1, 2, 3, 4, 5, 6, 7, 8], Datatype::from_handle(0x208).unwrap(), 4);
        let mut out = [0; 4];
        all.elements(1, 2).unwrap().pack(0, 4, &mut PayloadWriter::from(&mut out[..]));
        assert_eq!(out, [3, 4, 5, 6]);
        assert!(all.elements(4, 0).is_some());
        assert!(all.elements(3, 2).is_none());
        assert!(all.elements(1, u64::MAX).is_none());
    }

    #[test]
    #[should_panic(expected = "shorter than its elements")]
    fn a_buffer_too_short_for_its_elements_panics() {
        let _ = typed(&[0; 7], Datatype::INT, 2);
    }
}
