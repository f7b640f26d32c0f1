// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What one rank knows for the report about transports (R-22): by which transport it has reached which ranks, and why it does not use better
//! ones. It goes to the node daemon in parts, each a message, before the rank leaves MPI:
//!
//! ```text
//!   Reached ... NotUsed ... End        in any order, but the end last
//! ```
//!
//! What a rank can make another process store is bounded: texts and parts by the constants here, ranks by the size of the job.

use crate::rank_ranges::{RankRange, ranges};
use mend_base::{Reader, Writer};

/// What one rank says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TransportView {
    reached: Vec<Reached>,
    not_used: Vec<String>,
    /// How many ranks `reached` names; none is counted twice by a correct rank.
    reached_count: u32,
    is_complete: bool,
}

/// The ranks that were reached by one transport.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reached {
    /// Its name, with provider and interface: at most [`NAME_BYTES_MAX`] bytes.
    pub transport: String,
    /// At least one range, at most [`RANGES_MAX`], in ascending order.
    pub ranks: Vec<RankRange>,
}

/// A part of a [`TransportView`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TransportPart {
    /// By this transport the rank has reached these ranks.
    Reached(Reached),
    /// Something better is not used: what, and why. At most [`REASON_BYTES_MAX`] bytes.
    NotUsed(String),
    /// Nothing follows.
    End,
}

/// The bytes of the name of a transport.
pub const NAME_BYTES_MAX: usize = 160;

/// The bytes of a reason.
pub const REASON_BYTES_MAX: usize = 1_000;

/// How many reasons one rank gives.
pub const REASONS_MAX: usize = 32;

/// How many ranges one part names.
pub const RANGES_MAX: usize = 500;

/// The longest part, in bytes.
pub(crate) const PART_BYTES_MAX: usize = 1 + 2 + NAME_BYTES_MAX + 2 + 8 * RANGES_MAX;

const _: () = assert!(1 + 2 + REASON_BYTES_MAX <= PART_BYTES_MAX);

impl TransportView {
    /// Adds that `ranks`, in ascending order, were reached by `transport`. No rank is added twice.
    pub fn add_reached(&mut self, transport: &str, ranks: impl IntoIterator<Item = u32>) {
        for part in ranges(ranks).chunks(RANGES_MAX) {
            self.reached_count += part.iter().map(|range| range.count()).sum::<u32>();
            self.reached.push(Reached { transport: cut(transport, NAME_BYTES_MAX), ranks: part.to_vec() });
        }
    }

    /// Adds the reasons why better transports are not used. A text that is too long is cut, and of too many the last are a number.
    pub fn add_not_used(&mut self, reasons: &[String]) {
        let room = REASONS_MAX - self.not_used.len().min(REASONS_MAX);
        let shown = if reasons.len() > room { room.saturating_sub(1) } else { reasons.len() };
        self.not_used.extend(reasons.iter().take(shown).map(|reason| cut(reason, REASON_BYTES_MAX)));
        if shown < reasons.len() && room > 0 {
            self.not_used.push(format!("{} more, which mend-info shows", reasons.len() - shown));
        }
    }

    /// The messages that carry it.
    pub fn parts(&self) -> impl Iterator<Item = TransportPart> {
        let reached = self.reached.iter().cloned().map(TransportPart::Reached);
        let not_used = self.not_used.iter().cloned().map(TransportPart::NotUsed);
        reached.chain(not_used).chain([TransportPart::End])
    }

    /// Adds a part that a rank of a job of `size` ranks has sent. `false`: no correct rank sends that, and nothing was added.
    pub fn take(&mut self, part: TransportPart, size: u32) -> bool {
        if self.is_complete {
            return false;
        }
        match part {
            TransportPart::Reached(reached) => {
                let counts = reached.ranks.iter().map(|range| u64::from(range.count()));
                let count = counts.sum::<u64>() + u64::from(self.reached_count);
                if count > u64::from(size) || reached.ranks.iter().any(|range| range.last >= size) {
                    return false;
                }
                // Not above the size of the job.
                self.reached_count = count as u32;
                self.reached.push(reached);
            }
            TransportPart::NotUsed(_) if self.not_used.len() >= REASONS_MAX => return false,
            TransportPart::NotUsed(reason) => self.not_used.push(reason),
            TransportPart::End => self.is_complete = true,
        }
        true
    }

    /// Whether its end was taken.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The ranks that were reached. A transport may be named several times.
    pub fn reached(&self) -> &[Reached] {
        &self.reached
    }

    /// Why better transports are not used.
    pub fn not_used(&self) -> &[String] {
        &self.not_used
    }
}

/// The numbers of the parts on the wire.
mod number {
    pub const REACHED: u8 = 1;
    pub const NOT_USED: u8 = 2;
    pub const END: u8 = 3;
}

impl TransportPart {
    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        match self {
            TransportPart::Reached(Reached { transport, ranks }) => {
                assert!((1..=RANGES_MAX).contains(&ranks.len()));
                out.u8(number::REACHED);
                write_text(out, transport, NAME_BYTES_MAX);
                out.u16(ranks.len() as u16);
                for range in ranks {
                    out.u32(range.first);
                    out.u32(range.last);
                }
            }
            TransportPart::NotUsed(reason) => {
                out.u8(number::NOT_USED);
                write_text(out, reason, REASON_BYTES_MAX);
            }
            TransportPart::End => out.u8(number::END),
        }
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(match from.u8()? {
            number::REACHED => {
                let transport = read_text(from, NAME_BYTES_MAX)?;
                let count = usize::from(from.u16()?);
                if !(1..=RANGES_MAX).contains(&count) {
                    return None;
                }
                let mut ranks: Vec<RankRange> = Vec::with_capacity(count);
                for _ in 0..count {
                    let range = RankRange { first: from.u32()?, last: from.u32()? };
                    let is_above = ranks.last().is_none_or(|before| before.last < range.first);
                    if range.first > range.last || !is_above {
                        return None;
                    }
                    ranks.push(range);
                }
                TransportPart::Reached(Reached { transport, ranks })
            }
            number::NOT_USED => TransportPart::NotUsed(read_text(from, REASON_BYTES_MAX)?),
            number::END => TransportPart::End,
            _ => return None,
        })
    }
}

/// A text of at most so many bytes; one that was longer says so.
fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    format!("{}{CUT}", head(text, bytes_max - CUT.len()))
}

const CUT: &str = "...";

/// The first characters of a text, of at most so many bytes.
fn head(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    text.get(..end).unwrap_or(text)
}

fn write_text(out: &mut Writer<'_>, text: &str, bytes_max: usize) {
    let bytes = head(text, bytes_max).as_bytes();
    out.u16(bytes.len() as u16);
    out.bytes(bytes);
}

fn read_text(from: &mut Reader<'_>, bytes_max: usize) -> Option<String> {
    let length = usize::from(from.u16()?);
    if length > bytes_max {
        return None;
    }
    core::str::from_utf8(from.bytes(length)?).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::{
        NAME_BYTES_MAX, RANGES_MAX, REASON_BYTES_MAX, REASONS_MAX, Reached, TransportPart, TransportView,
    };
    use crate::rank_ranges::RankRange;

    fn taken(parts: impl Iterator<Item = TransportPart>, size: u32) -> TransportView {
        let mut view = TransportView::default();
        parts.for_each(|part| assert!(view.take(part, size)));
        view
    }

    fn reached(first: u32, last: u32) -> TransportPart {
        TransportPart::Reached(Reached {
            transport: "shm".to_owned(),
            ranks: vec![RankRange { first, last }],
        })
    }

    #[test]
    fn a_view_is_the_sum_of_its_parts() {
        let mut view = TransportView::default();
        view.add_reached("self", [1]);
        view.add_reached("shm", [0, 2, 3]);
        view.add_reached("ofi (net over lo)", []);
        view.add_not_used(&["a reason".to_owned()]);
        assert_eq!(view.parts().count(), 4);
        let got = taken(view.parts(), 4);
        assert!(got.is_complete());
        assert_eq!((got.reached(), got.not_used()), (view.reached(), view.not_used()));
    }

    #[test]
    fn many_ranks_and_long_texts_go_into_parts_of_bounded_size() {
        let mut view = TransportView::default();
        let size = 4 * RANGES_MAX as u32;
        view.add_reached(&"é".repeat(NAME_BYTES_MAX), (0..size).filter(|rank| rank % 2 == 0));
        let reasons: Vec<String> = (0..3 * REASONS_MAX).map(|_| "é".repeat(REASON_BYTES_MAX)).collect();
        view.add_not_used(&reasons);
        let got = taken(view.parts(), size);
        assert_eq!(got.reached().len(), 2);
        assert!(got.reached().iter().all(|part| part.transport.len() <= NAME_BYTES_MAX));
        assert_eq!(got.not_used().len(), REASONS_MAX);
        assert!(got.not_used()[0].len() <= REASON_BYTES_MAX && got.not_used()[0].ends_with("é..."));
        assert_eq!(got.not_used()[REASONS_MAX - 1], "65 more, which mend-info shows");
        view.add_not_used(&reasons);
        assert_eq!(view.not_used().len(), REASONS_MAX);
    }

    #[test]
    fn what_no_correct_rank_says_is_refused_and_changes_nothing() {
        let mut view = TransportView::default();
        assert!(view.take(reached(0, 2), 4));
        for wrong in [reached(3, 4), reached(0, u32::MAX), reached(2, 3)] {
            assert!(!view.take(wrong, 4), "no such rank, or more than there are");
        }
        assert!(view.take(reached(3, 3), 4));
        for _ in 0..REASONS_MAX {
            assert!(view.take(TransportPart::NotUsed(String::new()), 4));
        }
        assert!(!view.take(TransportPart::NotUsed(String::new()), 4));
        assert_eq!((view.reached().len(), view.not_used().len()), (2, REASONS_MAX));
        assert!(view.take(TransportPart::End, 4) && !view.take(TransportPart::End, 4));
    }
}
