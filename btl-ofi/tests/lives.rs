// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lives of processes at one address: what was for an earlier process does not reach the one that has its address now.

use mend_base::{Duration, Instant, PeerIndex};
use mend_btl_ofi::{Choice, Ofi, Options, candidates, choose};
use mend_ffi_ofi::Ofi as Library;
use mend_testing::skip;
use mend_transport::{
    AmId, Btl, Card, Cause, ConnectError, Cookie, MessageClass, Payload, SendError, Sink, Stream, TransportId,
};
use std::sync::Arc;

/// What a process got.
#[derive(Default)]
struct Got {
    messages: Vec<PeerIndex>,
    sendable: Vec<PeerIndex>,
    is_severed: bool,
}

impl Sink<u32> for Got {
    fn on_message(&mut self, from: PeerIndex, _id: AmId, _header: &[u8], _payload: Payload<'_>) {
        self.messages.push(from);
    }
    fn on_chunk(&mut self, _from: PeerIndex, _stream: Stream, _payload: Payload<'_>) {}
    fn on_done(&mut self, _done: Cookie, _result: Result<(), SendError>) {}
    fn on_sendable(&mut self, to: PeerIndex, _endpoint: u32) {
        self.sendable.push(to);
    }
    fn on_error(&mut self, _peer: PeerIndex, _endpoint: u32, _cause: Cause) {}
    fn on_severed(&mut self, _peer: PeerIndex, _endpoint: u32) {
        self.is_severed = true;
    }
}

const EARLIER: PeerIndex = PeerIndex(7);
const LATER: PeerIndex = PeerIndex(8);

#[test]
fn a_process_at_the_address_of_an_earlier_one_gets_nothing_that_was_for_that_one() {
    let library = match Library::open(Library::DEFAULT_NAME) {
        Ok(library) => library,
        Err(error) => {
            let test = "a_process_at_the_address_of_an_earlier_one_gets_nothing_that_was_for_that_one";
            return skip(test, &format!("{error} (Debian: apt-get install libfabric1)"));
        }
    };
    let (mut sender, mut later) = (open(&library, 1), open(&library, 2));
    let card = card_of(&later);
    let to_earlier = sender.connect(EARLIER, &of_an_earlier_life(&card)).expect("the address is one");
    let to_later = sender.connect(LATER, &card).expect("the address is one");
    let from_sender = later.connect(PeerIndex(9), &card_of(&sender)).expect("the address is one");
    let (mut at_sender, mut at_later) = (Got::default(), Got::default());
    let started = std::time::Instant::now();
    let mut has_sent = false;
    // Until the later process has its message, and has got several probes that were for the earlier one.
    while at_later.messages.is_empty() || later.statistics().strays < 3 {
        let now = Instant(started.elapsed().as_nanos() as u64);
        sender.progress(now, 100, &mut at_sender);
        later.progress(now, 100, &mut at_later);
        let sent = |sent| matches!(sent, Ok(()) | Err(SendError::Busy));
        assert!(sent(sender.send(to_earlier, MessageClass::Data, AmId(1), &[], 0, |_| {})), "it waits");
        if !has_sent {
            has_sent = sender.send(to_later, MessageClass::Data, AmId(1), &[], 0, |_| {}).is_ok();
        }
        assert!(started.elapsed().as_secs() < 60, "{:?} at the later process", later.statistics());
    }
    assert!(!at_sender.sendable.contains(&EARLIER), "an earlier life has answered");
    assert_eq!(at_later.messages, [PeerIndex(9)]);
    assert!(later.send(from_sender, MessageClass::Data, AmId(1), &[], 0, |_| {}).is_ok(), "both ways work");
}

#[test]
fn a_life_is_not_connected_again_after_it_was_severed_since_its_frames_may_still_come() {
    let test = "a_life_is_not_connected_again_after_it_was_severed_since_its_frames_may_still_come";
    let library = match Library::open(Library::DEFAULT_NAME) {
        Ok(library) => library,
        Err(why) => return skip(test, &why.to_string()),
    };
    let (mut own, first, second) = (open(&library, 1), open(&library, 2), open(&library, 3));
    let endpoint = own.connect(PeerIndex(1), &card_of(&first)).expect("a first connection");
    own.sever(endpoint);
    let mut got = Got::default();
    let mut now = 0;
    while !got.is_severed {
        now += 1;
        own.progress(Instant(now), 8, &mut got);
    }
    assert_eq!(own.connect(PeerIndex(1), &card_of(&first)), Err(ConnectError::Unreachable));
    assert!(own.connect(PeerIndex(1), &card_of(&second)).is_ok(), "another life at whatever address");
}

fn open(library: &Arc<Library>, instance: u64) -> Ofi {
    let choice =
        Choice { providers: "tcp".to_owned(), interfaces: "lo".to_owned(), rails: 1, one_host: true };
    let infos = choose(candidates(library, &choice).expect("a list of providers"));
    let options = Options {
        instance: instance << 32 | u64::from(std::process::id()),
        eager_bytes: Some(4096),
        chunk_bytes: None,
        reconnect: Duration::from_millis(10_000),
        report: Box::new(|_| {}),
    };
    Ofi::open(infos, options).expect("a device for a test")
}

fn card_of(btl: &Ofi) -> Card {
    let mut card = Card { layout: Card::LAYOUT, ..Card::default() };
    btl.advertise(&mut card);
    card
}

/// The same address with another instance number, which stands behind the layout version.
fn of_an_earlier_life(card: &Card) -> Card {
    let mut bytes = card.entry(TransportId::OFI).expect("every BTL advertises itself").to_vec();
    bytes[1..9].copy_from_slice(&77_u64.to_le_bytes());
    Card { entries: vec![(TransportId::OFI, bytes)], ..card.clone() }
}
