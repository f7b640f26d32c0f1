// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two connected transports and what each of them hears: for this crate's unit tests.

use crate::{PARAMETERS, Place, Shm, ShmEndpoint};
use mend_base::PeerIndex;
use mend_base::parameter::{Declared, Settings};
use mend_segment::BellPage;
use mend_transport::{AmId, Btl, Card, Cause, Cookie, Payload, SendError, Sink, Stream};
use std::sync::Arc;

/// What was heard, in order.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) messages: Vec<Vec<u8>>,
    pub(crate) chunks: Vec<Vec<u8>>,
    pub(crate) room: u32,
}

impl Sink<ShmEndpoint> for Heard {
    fn on_message(&mut self, _: PeerIndex, _: AmId, _: &[u8], payload: Payload<'_>) {
        self.messages.push(payload.to_vec());
    }

    fn on_chunk(&mut self, _: PeerIndex, _: Stream, payload: Payload<'_>) {
        self.chunks.push(payload.to_vec());
    }

    fn on_done(&mut self, _: Cookie, _: Result<(), SendError>) {}

    fn on_room(&mut self, _: PeerIndex, _: ShmEndpoint) {
        self.room += 1;
    }

    fn on_error(&mut self, _: PeerIndex, _: ShmEndpoint, cause: Cause) {
        panic!("{cause:?}");
    }

    fn on_severed(&mut self, _: PeerIndex, _: ShmEndpoint) {}
}

/// Two of them; endpoint 0 of each leads to the other.
pub(crate) fn pair() -> ([Shm; 2], ShmEndpoint) {
    let bells = Arc::new(BellPage::create(2).unwrap().0);
    let mut both = [0, 1].map(|slot| {
        let place = Place { slot, slots: 2, bells: Arc::clone(&bells) };
        Shm::new(place, 4096, &Settings::new(Declared(&[PARAMETERS]))).unwrap()
    });
    let cards = both.each_ref().map(|shm| {
        let mut card = Card { layout: Card::LAYOUT, ..Card::default() };
        shm.advertise(&mut card);
        card
    });
    let [first, second] = &mut both;
    let way = first.connect(PeerIndex(1), &cards[1]).unwrap();
    assert_eq!(second.connect(PeerIndex(0), &cards[0]), Ok(way));
    (both, way)
}
