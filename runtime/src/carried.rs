// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The descriptors that travel beside a card. One of them may be missing: a process without shared memory has no outbox, and one that the
//! system refuses memory files has neither.

use mend_base::{Reader, Writer};
use mend_transport::Card;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Which descriptors are in the packet of a card, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// The outbox.
    pub outbox: bool,
    /// The life page.
    pub life: bool,
}

const OUTBOX: u8 = 1;
const LIFE: u8 = 2;

impl Carried {
    /// Those that the card has.
    pub fn of(card: &Card) -> Self {
        Carried { outbox: card.descriptor.is_some(), life: card.life.is_some() }
    }

    /// The descriptors of the card, as they go into its packet.
    pub fn descriptors(card: &Card) -> impl Iterator<Item = &Arc<OwnedFd>> {
        card.descriptor.iter().chain(&card.life)
    }

    /// How many they are.
    pub fn count(self) -> usize {
        usize::from(self.outbox) + usize::from(self.life)
    }

    /// Gives the card the descriptors of its packet. The last ones may be missing, if the process had no room for them.
    pub fn give(self, card: &mut Card, descriptors: Vec<OwnedFd>) {
        let mut descriptors = descriptors.into_iter().map(Arc::new);
        card.descriptor = if self.outbox { descriptors.next() } else { None };
        card.life = if self.life { descriptors.next() } else { None };
    }

    pub(crate) fn write(self, out: &mut Writer<'_>) {
        out.u8(if self.outbox { OUTBOX } else { 0 } | if self.life { LIFE } else { 0 });
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let bits = from.u8()?;
        let carried = Carried { outbox: bits & OUTBOX != 0, life: bits & LIFE != 0 };
        (bits & !(OUTBOX | LIFE) == 0).then_some(carried)
    }
}

#[cfg(test)]
mod tests {
    use super::Carried;
    use mend_base::{Reader, Writer};
    use mend_transport::Card;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::sync::Arc;

    fn descriptor() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    #[test]
    fn each_descriptor_arrives_in_its_place_whichever_are_there() {
        for (outbox, life) in [(false, false), (true, false), (false, true), (true, true)] {
            let some = |there: bool| there.then(|| Arc::new(descriptor()));
            let sent = Card { descriptor: some(outbox), life: some(life), ..Card::default() };
            let mut bytes = [0; 1];
            Carried::of(&sent).write(&mut Writer::new(&mut bytes));
            let carried = Carried::read(&mut Reader::new(&bytes)).unwrap();
            assert_eq!(
                (carried, carried.count()),
                (Carried { outbox, life }, usize::from(outbox) + usize::from(life))
            );
            let packet: Vec<OwnedFd> = Carried::descriptors(&sent).map(|_| descriptor()).collect();
            let numbers: Vec<i32> = packet.iter().map(|each| each.as_raw_fd()).collect();
            let mut received = Card::default();
            carried.give(&mut received, packet);
            let number = |descriptor: &Option<Arc<OwnedFd>>| descriptor.as_ref().map(|each| each.as_raw_fd());
            assert_eq!(number(&received.descriptor), outbox.then(|| numbers[0]));
            assert_eq!(number(&received.life), life.then(|| numbers[usize::from(outbox)]));
        }
        assert_eq!(Carried::read(&mut Reader::new(&[4])), None);
    }
}
