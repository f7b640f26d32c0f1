// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two BTLs of this process over the loopback interface, from within: what no program can bring about at will.

use crate::connection::State;
use crate::frame::HEADER_BYTES;
use crate::operations::Operation;
use crate::{Choice, Class, Ofi, Options, Statistics, candidates, choose};
use mend_base::{Duration, Instant, PeerIndex};
use mend_fabric_shim::Shim;
use mend_ffi_ofi::Ofi as Library;
use mend_transport::{
    AmId, Btl, Buffer, Card, Cause, Cookie, MessageClass, Payload, Rdma, RemoteAccess, SendError, Sink, Span,
    Stream, UserMemory, WakeSet,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

mod half_received;

/// What has come to a process.
#[derive(Default)]
struct Arrived {
    messages: Vec<Vec<u8>>,
    ended: Vec<(Cookie, Result<(), SendError>)>,
    severed: u32,
}

impl Sink<u32> for Arrived {
    fn on_message(&mut self, _: PeerIndex, _: AmId, _: &[u8], payload: Payload<'_>) {
        let mut bytes = vec![0; payload.len()];
        payload.copy_to_slice(&mut bytes);
        self.messages.push(bytes);
    }
    fn on_chunk(&mut self, _: PeerIndex, _: Stream, _: Payload<'_>) {}
    fn on_done(&mut self, done: Cookie, result: Result<(), SendError>) {
        self.ended.push((done, result));
    }
    fn on_sendable(&mut self, _: PeerIndex, _: u32) {}
    fn on_error(&mut self, _: PeerIndex, _: u32, _: Cause) {}
    fn on_severed(&mut self, _: PeerIndex, _: u32) {
        self.severed += 1;
    }
}

/// Two processes that are connected; endpoint 0 of each is the other.
struct Pair {
    btls: [Ofi; 2],
    arrived: [Arrived; 2],
    /// The classes of the reports of both.
    reports: Arc<Mutex<Vec<(Class, &'static str)>>>,
    started: std::time::Instant,
    /// The rules of the shim are those of this process.
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

/// `None`: skipped, as there is no libfabric, or none of its providers over sockets.
fn pair(test: &str) -> Option<Pair> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(why) = Library::open(Library::DEFAULT_NAME) {
        mend_testing::skip(test, &format!("{why} (Debian: apt-get install libfabric1)"));
        return None;
    }
    Shim::open().expect("cargo builds the shim for this test").set("");
    let library = Library::open(&Shim::path().to_string_lossy()).expect("the shim opens the library");
    let reports = Arc::new(Mutex::new(Vec::new()));
    let open = |instance| {
        let reports = Arc::clone(&reports);
        let report = move |report: &crate::Report| {
            reports.lock().unwrap().push((report.class, report.operation));
        };
        open_reporting(&library, "tcp", instance, Some(4096), Box::new(report))
    };
    let mut btls = [open(1), open(2)];
    let cards = btls.each_ref().map(card);
    for (at, btl) in btls.iter_mut().enumerate() {
        assert_eq!(btl.connect(PeerIndex(1 - at as u32), &cards[1 - at]), Ok(0));
    }
    let (arrived, started) = (Default::default(), std::time::Instant::now());
    let mut pair = Pair { btls, arrived, reports, started, _turn: turn };
    pair.until("both are connected", |pair| {
        pair.btls.iter().all(|btl| btl.connections[0].state == State::Connected)
    });
    Some(pair)
}

fn card(btl: &Ofi) -> Card {
    let mut card = Card { layout: Card::LAYOUT, ..Card::default() };
    btl.advertise(&mut card);
    card
}

/// A process over one provider, with frames for this many bytes, or for as many as suit the provider.
fn open(library: &Arc<Library>, provider: &str, instance: u64, bytes: Option<u32>) -> Ofi {
    open_reporting(library, provider, instance, bytes, Box::new(|_| ()))
}

fn open_reporting(
    library: &Arc<Library>,
    provider: &str,
    instance: u64,
    bytes: Option<u32>,
    report: Box<dyn FnMut(&crate::Report) + Send>,
) -> Ofi {
    let (providers, interfaces) = (provider.to_owned(), "lo".to_owned());
    let choice = Choice { providers, interfaces, rails: 1, one_host: true };
    let infos = choose(candidates(library, &choice).expect("a list of providers"));
    let (eager_bytes, chunk_bytes) = (bytes, bytes);
    let reconnect = Duration::from_millis(10_000);
    Ofi::open(infos, Options { instance, eager_bytes, chunk_bytes, reconnect, report })
        .expect("a device for a test")
}

impl Pair {
    fn progress(&mut self, at: usize) {
        let now = Instant(self.started.elapsed().as_nanos() as u64);
        self.btls[at].progress(now, 64, &mut self.arrived[at]);
    }

    fn until(&mut self, what: &str, condition: impl Fn(&Pair) -> bool) {
        let deadline = self.started.elapsed() + std::time::Duration::from_secs(60);
        while !condition(self) {
            assert!(self.started.elapsed() < deadline, "{what}: not within 60 s");
            // What process 0 begins in its turn, the other one has not seen when the condition is looked at.
            (0..2).rev().for_each(|at| self.progress(at));
            std::thread::yield_now();
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), SendError> {
        self.btls[0].send(0, MessageClass::Data, AmId(1), &[], bytes.len(), |mut out| out.put(bytes))
    }

    /// Process 0 begins to read memory of process 1, which makes no progress, so that the read does not end.
    fn begin_read(&mut self) -> Arc<Buffer> {
        let access = RemoteAccess { read: true, write: false, atomic: false };
        let whole = |region| Span { region, offset: 0, bytes: 64 << 10 };
        let theirs = Buffer::from_bytes(&[1; 64 << 10]);
        let region = self.btls[1].register(0, &UserMemory::of_buffer(&theirs)).unwrap();
        let (_, key) = self.btls[1].expose(0, whole(region), access).unwrap();
        let own = Buffer::zeroed(64 << 10);
        let region = self.btls[0].register(0, &UserMemory::of_buffer(&own)).unwrap();
        let remote = self.btls[0].import(0, key.as_bytes()).unwrap();
        self.btls[0].get(0, whole(region), remote, 0, READ).unwrap();
        // The provider connects first.
        self.until("the device has the read", |pair| pair.btls[0].transfers.posted(0));
        assert!(self.arrived[0].ended.is_empty() && self.btls[0].transfers.ended.is_empty());
        own
    }

    /// Process 1 takes back a key that process 0 has, which does not answer, as it makes no progress.
    fn take_back_a_key(&mut self) {
        let access = RemoteAccess { read: true, write: false, atomic: false };
        let region = self.btls[1].register(0, &UserMemory::of_buffer(&Buffer::zeroed(100))).unwrap();
        let (exposure, _) = self.btls[1].expose(0, Span { region, offset: 0, bytes: 100 }, access).unwrap();
        self.btls[1].unexpose(exposure, READ);
    }

    /// For process 1 time passes in which it would open its device again several times.
    fn wait_for_an_answer(&mut self) {
        for step in 1..=8 {
            let now = self.started.elapsed() + step * std::time::Duration::from_millis(100);
            self.btls[1].progress(Instant(now.as_nanos() as u64), 64, &mut self.arrived[1]);
        }
    }

    /// A process with which process 1 is connected, too, as its connection 1.
    fn third(&mut self) -> Ofi {
        let library = Library::open(&Shim::path().to_string_lossy()).expect("it was opened before");
        let mut third = open(&library, "tcp", 3, Some(4096));
        assert_eq!(third.connect(PeerIndex(1), &card(&self.btls[1])), Ok(0));
        assert_eq!(self.btls[1].connect(PeerIndex(2), &card(&third)), Ok(1));
        while self.btls[1].connections[1].state != State::Connected {
            let now = Instant(self.started.elapsed().as_nanos() as u64);
            third.progress(now, 64, &mut Arrived::default());
            self.progress(1);
        }
        third
    }

    fn local_faults(&self) -> usize {
        let reports = self.reports.lock().unwrap();
        reports.iter().filter(|(class, _)| *class == Class::LocalFault).count()
    }
}

const READ: Cookie = Cookie(7);

#[test]
fn sends_that_the_provider_has_forgotten_give_their_tokens_back() {
    let Some(mut pair) = pair("sends_that_the_provider_has_forgotten_give_their_tokens_back") else { return };
    // As after many breaks of the way, in each of which the provider dropped what it had.
    let btl = &mut pair.btls[0];
    for epoch in 0.. {
        btl.connections[0].epoch = epoch + 1;
        let buffer = btl.buffers.take(HEADER_BYTES).unwrap();
        let forgotten = Operation::Frame { connection: 0, epoch, buffer };
        if btl.rails[0].operations.begin(forgotten).is_none() {
            btl.buffers.release(buffer);
            break;
        }
    }
    let message = vec![5; 4000];
    pair.send(&message).unwrap();
    pair.until("the message arrives", |pair| !pair.arrived[1].messages.is_empty());
    assert_eq!(pair.arrived[1].messages, [message]);
    assert_eq!(pair.btls[0].statistics().reopened, 1);
    pair.until("all operations end", |pair| pair.btls[0].held() == (0, 0));
}

#[test]
fn memory_stays_lent_while_an_endpoint_that_reads_into_it_is_not_closed() {
    let Some(mut pair) = pair("memory_stays_lent_while_an_endpoint_that_reads_into_it_is_not_closed") else {
        return;
    };
    let own = pair.begin_read();
    Shim::open().unwrap().set("site=close,code=EINVAL");
    pair.btls[0].sever(0);
    (0..2_000).for_each(|_| pair.progress(0));
    assert!(pair.arrived[0].ended.is_empty() && pair.arrived[0].severed == 0, "the read may go on");
    assert_eq!(pair.local_faults(), 1, "once: {:?}", pair.reports);
    // The completion tells that it is over.
    Shim::open().unwrap().set("");
    pair.until("the read ends", |pair| pair.arrived[0].severed == 1);
    assert_eq!(pair.arrived[0].ended.len(), 1);
    assert!(own.to_vec().iter().all(|&byte| byte == 1) || pair.arrived[0].ended[0].1.is_err());
}

/// The first reads have come whole, one in part, when the endpoint of reads is closed: `tcp` of libfabric 1.17.0 uses one entry for two operations
/// then, and later reads never end or get other bytes.
#[test]
fn reads_whose_endpoint_is_closed_in_their_middle_are_done_again_and_so_are_later_ones() {
    const BYTES: usize = 1 << 20;
    let test = "reads_whose_endpoint_is_closed_in_their_middle_are_done_again_and_so_are_later_ones";
    let Some(mut pair) = pair(test) else { return };
    let content: Vec<u8> = (0..4 * BYTES).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let (theirs, own) = (Buffer::from_bytes(&content), Buffer::zeroed(4 * BYTES));
    let region = pair.btls[1].register(0, &UserMemory::of_buffer(&theirs)).unwrap();
    let access = RemoteAccess { read: true, write: false, atomic: false };
    let whole = Span { region, offset: 0, bytes: 4 * BYTES as u64 };
    let (_, key) = pair.btls[1].expose(0, whole, access).unwrap();
    let region = pair.btls[0].register(0, &UserMemory::of_buffer(&own)).unwrap();
    let remote = pair.btls[0].import(0, key.as_bytes()).unwrap();
    for round in 1..=6 {
        let offsets = (0..4).map(|part| part * BYTES as u64);
        for offset in offsets.clone() {
            let local = Span { region, offset, bytes: BYTES as u64 };
            pair.btls[0].get(0, local, remote, offset, Cookie(100 + offset)).unwrap();
        }
        pair.until("the device has the reads", |pair| pair.btls[0].transfers.to_post.is_empty());
        // Sockets hold less than four reads, so process 1 cannot have sent them all.
        (0..round % 3).for_each(|_| pair.progress(1));
        pair.progress(0);
        pair.btls[0].next_repair = Instant(0);
        pair.btls[0].renew_transfers(0);
        pair.until("the reads end", |pair| pair.arrived[0].ended.len() == 4);
        let mut ended = core::mem::take(&mut pair.arrived[0].ended);
        ended.sort_by_key(|(done, _)| *done);
        assert_eq!(ended, offsets.map(|offset| (Cookie(100 + offset), Ok(()))).collect::<Vec<_>>());
        assert!(own.to_vec() == content, "other bytes in round {round}");
        UserMemory::of_buffer(&own).write(0, &vec![0; 4 * BYTES]);
    }
    pair.send(b"as if nothing had been").unwrap();
    pair.until("the message arrives", |pair| pair.arrived[1].messages.len() == 1);
}

#[test]
fn a_registration_that_is_not_closed_is_silenced_by_closing_its_device() {
    let Some(mut pair) = pair("a_registration_that_is_not_closed_is_silenced_by_closing_its_device") else {
        return;
    };
    let access = RemoteAccess { read: true, write: false, atomic: false };
    let region = pair.btls[1].register(0, &UserMemory::of_buffer(&Buffer::zeroed(100))).unwrap();
    let (exposure, _) = pair.btls[1].expose(0, Span { region, offset: 0, bytes: 100 }, access).unwrap();
    Shim::open().unwrap().set("site=close,code=EINVAL,count=1");
    pair.btls[1].unexpose_unused(exposure, READ);
    assert!(pair.btls[1].transfers.ended.is_empty(), "peers may still have access");
    pair.until("the key is taken back", |pair| !pair.arrived[1].ended.is_empty());
    assert_eq!(pair.arrived[1].ended, [(READ, Ok(()))]);
    assert_eq!((pair.btls[1].statistics().reopened, pair.local_faults()), (1, 1));
    pair.send(b"as if nothing had been").unwrap();
    pair.until("the message arrives", |pair| pair.arrived[1].messages.len() == 1);
}

#[test]
fn a_device_that_cannot_be_opened_again_breaks_no_way() {
    let Some(mut pair) = pair("a_device_that_cannot_be_opened_again_breaks_no_way") else { return };
    pair.take_back_a_key();
    Shim::open().unwrap().set("site=domain,code=EMFILE");
    let before = pair.btls[1].statistics();
    pair.wait_for_an_answer();
    let Statistics { troubles, reopened, .. } = pair.btls[1].statistics();
    assert_eq!((troubles, reopened), (before.troubles, before.reopened));
    assert!(pair.arrived[1].ended.is_empty(), "the peer may be reading");
    Shim::open().unwrap().set("");
    pair.until("the key is taken back", |pair| !pair.arrived[1].ended.is_empty());
}

#[test]
fn peers_that_are_severed_together_and_may_read_cost_one_reopening() {
    let Some(mut pair) = pair("peers_that_are_severed_together_and_may_read_cost_one_reopening") else {
        return;
    };
    let _third = pair.third();
    let access = RemoteAccess { read: true, write: false, atomic: false };
    let region = pair.btls[1].register(0, &UserMemory::of_buffer(&Buffer::zeroed(100))).unwrap();
    for connection in 0..2 {
        pair.btls[1].expose(connection, Span { region, offset: 0, bytes: 100 }, access).unwrap();
        pair.btls[1].sever(connection);
    }
    pair.until("both are severed", |pair| pair.arrived[1].severed == 2);
    assert_eq!(pair.btls[1].statistics().reopened, 1);
}

#[test]
fn a_device_that_is_opened_again_returns_to_the_address_of_the_card_once_that_is_free() {
    let test = "a_device_that_is_opened_again_returns_to_the_address_of_the_card_once_that_is_free";
    let Some(mut pair) = pair(test) else { return };
    let own = pair.btls[0].entry.rails[0].1.clone();
    // As if the device had been at this address first, which another program has taken since. The port is bytes 2 and 3.
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut card = own.clone();
    card[2..4].copy_from_slice(&other.local_addr().unwrap().port().to_be_bytes());
    pair.btls[0].card_names[0] = card.clone();
    let reopen = |pair: &mut Pair, count| {
        pair.btls[0].rails[0].broken = Some(mend_ffi_ofi::Code(mend_ffi_ofi::bindings::FI_EOVERRUN as i32));
        pair.until("the device is opened again", |pair| pair.btls[0].statistics().reopened == count);
        pair.btls[0].entry.rails[0].1.clone()
    };
    assert_eq!(reopen(&mut pair, 1), own);
    drop(other);
    assert_eq!(reopen(&mut pair, 2), card);
}

#[test]
fn answers_that_wait_for_room_are_not_flushed() {
    let Some(mut pair) = pair("answers_that_wait_for_room_are_not_flushed") else { return };
    pair.until("nothing is under way", |pair| !pair.btls[0].connections[0].has_unacknowledged());
    assert!(pair.btls[0].is_flushed(&mut |_| true));
    pair.btls[0].transfers.ask_for_end_of_reads(0, mend_transport::Exposure(1));
    assert!(!pair.btls[0].is_flushed(&mut |_| true));
}

#[test]
fn the_helper_thread_polls_where_only_progress_goes_on() {
    let Some(mut pair) = pair("the_helper_thread_polls_where_only_progress_goes_on") else { return };
    pair.until("nothing is under way", |pair| !pair.btls[0].connections[0].has_unacknowledged());
    pair.btls[0].connections[0].begin_trouble(Instant(0));
    let mut wake = WakeSet::default();
    // Pending, or polled: both make progress.
    assert!(pair.btls[0].arm_descriptors(&mut wake).is_err() || wake.must_poll);
}
