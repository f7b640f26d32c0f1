// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections to one life of a process.

use mend_base::{Duration, Instant, PeerIndex};
use mend_btl_ofi::{Choice, Ofi, Options, candidates, choose};
use mend_ffi_ofi::Ofi as Library;
use mend_testing::skip;
use mend_transport::{AmId, Btl, Card, Cause, ConnectError, Cookie, Payload, SendError, Sink, Stream};

/// Notes only that an endpoint was severed.
#[derive(Default)]
struct Severed(bool);

impl Sink<u32> for Severed {
    fn on_message(&mut self, _: PeerIndex, _: AmId, _: &[u8], _: Payload<'_>) {}
    fn on_chunk(&mut self, _: PeerIndex, _: Stream, _: Payload<'_>) {}
    fn on_done(&mut self, _: Cookie, _: Result<(), SendError>) {}
    fn on_sendable(&mut self, _: PeerIndex, _: u32) {}
    fn on_error(&mut self, _: PeerIndex, _: u32, _: Cause) {}
    fn on_severed(&mut self, _: PeerIndex, _: u32) {
        self.0 = true;
    }
}

#[test]
fn a_life_is_not_connected_again_after_it_was_severed_since_its_frames_may_still_come() {
    let test = "a_life_is_not_connected_again_after_it_was_severed_since_its_frames_may_still_come";
    let library = match Library::open(Library::DEFAULT_NAME) {
        Ok(library) => library,
        Err(why) => return skip(test, &why.to_string()),
    };
    let open = |instance| {
        let choice = Choice { providers: "tcp".to_owned(), rails: 1, one_host: true, ..Choice::default() };
        let infos = choose(candidates(&library, &choice).expect("providers are listed"));
        let reconnect = Duration::from_millis(10_000);
        let options = Options { instance, message_bytes_max: 4096, reconnect, report: Box::new(|_| ()) };
        Ofi::open(infos, options).expect("a device for a test")
    };
    let (mut own, first, second) = (open(1), open(2), open(3));
    let card = |of: &Ofi| {
        let mut card = Card { layout: Card::LAYOUT, ..Card::default() };
        of.advertise(&mut card);
        card
    };
    let endpoint = own.connect(PeerIndex(1), &card(&first)).expect("a first connection");
    own.sever(endpoint);
    let mut severed = Severed::default();
    let mut now = 0;
    while !severed.0 {
        now += 1;
        own.progress(Instant(now), 8, &mut severed);
    }
    assert_eq!(own.connect(PeerIndex(1), &card(&first)), Err(ConnectError::Unreachable));
    assert!(own.connect(PeerIndex(1), &card(&second)).is_ok(), "another life at whatever address");
}
