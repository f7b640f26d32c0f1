// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A corrupted peer that writes any value into any word that others read. A value that no correct peer writes is evidence, any
//! other is harmless; nothing crashes, and the correct processes go on.

use mend_base::parameter::{Declared, Settings};
use mend_base::{Instant, PeerIndex, Random};
use mend_btl_shm::{NodeSlot, PARAMETERS, Shm, ShmEndpoint};
use mend_segment::broken_peer::Target;
use mend_segment::{
    BellPage, Block, BlockAddress, Bounds, CHUNK_SLOTS, CONTROL_SLOTS, MAILBOXES, MESSAGE_SLOTS, Outbox,
    PayloadMut, PeerBlock, Ring, SlotHeader,
};
use mend_transport::{
    AmId, Btl, Card, Cause, Cookie, MessageClass, Payload, SendError, Sink, Stream, TransportId, WakeSet,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const VICTIM: u32 = 0;
const CORRUPTED: u32 = 1;
const CORRECT: u32 = 2;
const SLOTS: u32 = 3;

/// What the victim delivered.
#[derive(Default)]
struct Delivered {
    from_corrupted: u32,
    from_correct: Vec<u8>,
    garbage: u32,
}

impl Sink<ShmEndpoint> for Delivered {
    fn on_message(&mut self, from: PeerIndex, _: AmId, header: &[u8], payload: Payload<'_>) {
        assert!(header.len() <= 40 && payload.len() <= 8192);
        // Reads all of it, which must be in bounds.
        let bytes = payload.to_vec();
        match from.0 {
            CORRECT => self.from_correct.push(bytes[0]),
            _ => self.from_corrupted += 1,
        }
    }

    fn on_chunk(&mut self, from: PeerIndex, _: Stream, payload: Payload<'_>) {
        assert_eq!(from.0, CORRUPTED);
        assert!(payload.to_vec().len() <= 32 << 10);
        self.from_corrupted += 1;
    }

    fn on_done(&mut self, _: Cookie, _: Result<(), SendError>) {
        panic!("no send has a cookie");
    }

    fn on_sendable(&mut self, _: PeerIndex, _: ShmEndpoint) {}

    fn on_error(&mut self, peer: PeerIndex, _: ShmEndpoint, cause: Cause) {
        assert_eq!((peer.0, cause), (CORRUPTED, Cause::Garbage));
        self.garbage += 1;
    }

    fn on_severed(&mut self, peer: PeerIndex, _: ShmEndpoint) {
        assert_eq!(peer.0, CORRUPTED);
    }
}

/// A process that is connected to a correct peer and to a corrupted one.
struct Scene {
    victim: Shm,
    to_corrupted: ShmEndpoint,
    correct: Shm,
    to_victim: ShmEndpoint,
    corrupted: Outbox,
    block: Block,
    bells: Arc<BellPage>,
    delivered: Delivered,
    number: u8,
}

impl Scene {
    fn new() -> Self {
        let bells = Arc::new(BellPage::create(SLOTS).unwrap().0);
        let start = |slot| {
            let node = NodeSlot { slot, slots: SLOTS, bells: Arc::clone(&bells) };
            Shm::new(node, &Settings::new(Declared(&[PARAMETERS]))).unwrap()
        };
        let (mut victim, mut correct) = (start(VICTIM), start(CORRECT));
        let corrupted = Outbox::create(CORRUPTED, SLOTS, 0).unwrap();
        let corrupted_card = card_of_corrupted(&victim, &corrupted);
        let to_corrupted = victim.connect(PeerIndex(CORRUPTED), &corrupted_card).unwrap();
        victim.connect(PeerIndex(CORRECT), &card_of(&correct)).unwrap();
        let to_victim = correct.connect(PeerIndex(VICTIM), &card_of(&victim)).unwrap();
        let block = corrupted.make_block(VICTIM).unwrap();
        let delivered = Delivered::default();
        Scene { victim, to_corrupted, correct, to_victim, corrupted, block, bells, delivered, number: 0 }
    }

    /// Has the corrupted peer send something correct of each kind first.
    fn greet(&mut self, random: &mut Random) {
        let slot_header = |chunk| SlotHeader { id: 7, header: b"abcd", chunk };
        let fill = |room: PayloadMut<'_>| {
            if let PayloadMut::Private(bytes) = room {
                bytes.fill(1);
            }
        };
        for _ in 0..random.below(6) {
            let _ = self.block.messages.push(slot_header(false), random.below(200) as usize, fill);
            let _ = self.block.control.push(slot_header(false), random.below(65) as usize, fill);
        }
        if random.once_in(2) {
            let _ = self.block.chunks().unwrap().push(slot_header(true), 1000, fill);
        }
        if random.once_in(2) {
            self.block.put_mailbox(slot_header(false), 8, fill);
        }
    }

    /// All three processes make progress, send and arm.
    fn run(&mut self) {
        self.bells.ring_bell(VICTIM, CORRUPTED);
        let header = [self.number; 4];
        let number = [self.number; 100];
        let sent =
            self.correct.send(self.to_victim, MessageClass::Data, AmId(1), &header, 100, |mut slot| {
                slot.put(&number)
            });
        assert_eq!(sent, Ok(()), "the correct peer is not disturbed");
        self.number = self.number.wrapping_add(1);
        for _ in 0..8 {
            self.victim.progress(Instant(0), 100, &mut self.delivered);
            self.correct.progress(Instant(0), 100, &mut self.delivered);
        }
        for class in [MessageClass::Data, MessageClass::Control, MessageClass::Mailbox] {
            for _ in 0..70 {
                let _ = self
                    .victim
                    .send(self.to_corrupted, class, AmId(1), b"head", 10, |mut slot| slot.put(&[3; 10]));
            }
        }
        let _ = self.victim.send_chunk(self.to_corrupted, Stream(1), 5000, |mut slot| slot.put(&[3; 5000]));
        let _ = self.victim.arm(&mut WakeSet::default());
        self.victim.progress(Instant(0), 100, &mut self.delivered);
        self.victim.disarm();
        let _ = self.victim.ready(self.to_corrupted);
    }

    fn assert_the_correct_peer_was_received(&self) {
        assert!(self.delivered.from_correct.iter().copied().eq(0..self.number));
        assert!(self.delivered.garbage <= 1, "evidence comes once");
    }
}

fn card_of(of: &Shm) -> Card {
    let mut card = Card { layout: Card::LAYOUT, ..Card::default() };
    of.advertise(&mut card);
    card
}

/// The card of the corrupted peer: a copy of the victim's with the other slot.
fn card_of_corrupted(victim: &Shm, corrupted: &Outbox) -> Card {
    let mut card = card_of(victim);
    card.entries[0].1[4..8].copy_from_slice(&CORRUPTED.to_le_bytes());
    card.descriptor = Some(corrupted.descriptor());
    card
}

fn any_target(random: &mut Random) -> Target {
    let ring = [Ring::Control, Ring::Messages, Ring::Chunks][random.below(3) as usize];
    let slots = [CONTROL_SLOTS, MESSAGE_SLOTS, CHUNK_SLOTS][ring as usize];
    match random.below(8) {
        0 => Target::Directory,
        1 => Target::State,
        2 => Target::BellRequest,
        3 => Target::Credit(ring),
        4 => Target::Mailbox(random.below(MAILBOXES as u64) as usize, random.below(32) as usize),
        5 => Target::Slot(ring, random.below(8) as usize, 0),
        _ => Target::Slot(ring, random.below(slots as u64) as usize, random.below(8) as usize),
    }
}

/// Random bits, small numbers, and values close to correct ones.
fn any_value(random: &mut Random) -> u64 {
    let sequence = 0u64.wrapping_sub(256 - random.below(80)) & u64::from(u32::MAX);
    match random.below(4) {
        0 => random.bits(),
        1 => random.below(70),
        2 => sequence | random.bits() << 32,
        _ => sequence | random.below(90) << 40 | random.below(9000) << 48,
    }
}

#[test]
fn one_random_word_at_a_time_never_crashes_and_never_stops_the_others() {
    let (mut with_evidence, mut without) = (0, 0);
    for seed in 0..10_000 {
        let random = &mut Random(seed);
        let mut scene = Scene::new();
        // Before anything was read from the corrupted peer, and after correct messages.
        if random.once_in(2) {
            scene.greet(random);
            scene.run();
            assert_eq!(scene.delivered.garbage, 0, "seed {seed}: a correct peer is no evidence");
        }
        scene.greet(random);
        let (target, value) = (any_target(random), any_value(random));
        if matches!(target, Target::Slot(Ring::Chunks, ..)) {
            scene.block.chunks().unwrap();
        }
        scene.corrupted.overwrite(VICTIM, target, value);
        scene.run();
        scene.greet(random);
        scene.run();
        scene.assert_the_correct_peer_was_received();
        let harmless = matches!(target, Target::BellRequest) || matches!(target, Target::Slot(_, _, 1..));
        assert!(!harmless || scene.delivered.garbage == 0, "seed {seed}: {target:?} {value:#x}");
        match scene.delivered.garbage {
            0 => without += 1,
            _ => {
                with_evidence += 1;
                let sent = scene.victim.send(scene.to_corrupted, MessageClass::Data, AmId(1), b"", 0, |_| ());
                assert_eq!(sent, Err(SendError::Busy), "seed {seed}: nothing goes out any more");
            }
        }
        scene.victim.sever(scene.to_corrupted);
        scene.run();
        scene.assert_the_correct_peer_was_received();
    }
    println!("{with_evidence} times evidence, {without} times harmless");
    assert!(with_evidence > 1000 && without > 1000);
}

#[test]
fn values_that_no_correct_peer_writes_are_reported_as_garbage() {
    let start = 0u64.wrapping_sub(256) & u64::from(u32::MAX);
    let next = start + 1;
    let cases = [
        ("a sequence of no lap", Target::Slot(Ring::Messages, 0, 0), next + 1),
        ("a header longer than any", Target::Slot(Ring::Messages, 0, 0), next | 41 << 40),
        ("a header of 63 bytes", Target::Slot(Ring::Control, 0, 0), next | 63 << 40),
        ("a payload longer than we take", Target::Slot(Ring::Messages, 0, 0), next | 4161 << 48),
        ("a control payload longer than any", Target::Slot(Ring::Control, 0, 0), next | 65 << 48),
        ("a chunk among control messages", Target::Slot(Ring::Control, 0, 0), next | 0x44 << 40 | 1 << 48),
        ("an empty chunk among control messages", Target::Slot(Ring::Control, 0, 0), next | 0x44 << 40),
        ("a chunk without a stream", Target::Slot(Ring::Messages, 0, 0), next | 0x40 << 40),
        ("a message among chunks", Target::Slot(Ring::Chunks, 0, 0), next | 4 << 40),
        ("a chunk longer than we take", Target::Slot(Ring::Chunks, 0, 0), next | 0x44 << 40 | 16_385 << 48),
        ("a state that does not exist", Target::State, 1 << 7),
        ("a directory word that does not exist", Target::Directory, 2),
        ("credit for what was not sent", Target::Credit(Ring::Messages), start + 65),
        ("credit taken back", Target::Credit(Ring::Messages), start - 1),
        ("control credit for what was not sent", Target::Credit(Ring::Control), start + 17),
    ];
    for (what, target, value) in cases {
        let mut scene = Scene::new();
        scene.block.chunks().unwrap();
        scene.corrupted.overwrite(VICTIM, target, value);
        scene.run();
        scene.run();
        assert_eq!(scene.delivered.garbage, 1, "{what}");
        assert_eq!(scene.delivered.from_corrupted, 0, "{what}");
        scene.assert_the_correct_peer_was_received();
    }
}

#[test]
fn values_that_a_correct_peer_may_write_are_not_reported() {
    let start = 0u64.wrapping_sub(256) & u64::from(u32::MAX);
    let cases = [
        ("an empty message", Target::Slot(Ring::Messages, 0, 0), start + 1),
        (
            "the longest message that we take",
            Target::Slot(Ring::Messages, 0, 0),
            (start + 1) | 40 << 40 | 4160 << 48,
        ),
        ("a slot of the previous lap", Target::Slot(Ring::Messages, 0, 0), start + 1 - 64),
        ("a bell request with all bits", Target::BellRequest, 0xffff_ffff),
        ("credit for what was sent", Target::Credit(Ring::Messages), start + 64),
        ("states that were never put", Target::State, 77 << 32),
        ("mailboxes that were never written", Target::State, 1 << 32 | 0b111_1110),
    ];
    for (what, target, value) in cases {
        let mut scene = Scene::new();
        scene.run();
        scene.corrupted.overwrite(VICTIM, target, value);
        scene.run();
        assert_eq!(scene.delivered.garbage, 0, "{what}");
        scene.assert_the_correct_peer_was_received();
    }
}

#[test]
fn any_content_of_the_doorbell_page_costs_no_more_than_a_poll() {
    for seed in 0..2_000 {
        let random = &mut Random(seed);
        let mut scene = Scene::new();
        let bytes = scene.bells.overwrite(0, 0) as u64;
        for _ in 0..20 {
            // The rows of the three processes, rather than the rest of the page.
            let at = random.below(bytes.min(u64::from(SLOTS) * 128));
            scene.bells.overwrite(at as usize, random.bits() as u8);
        }
        let _ = scene.bells.announce_sleep(VICTIM);
        scene.run();
        scene.bells.end_sleep(VICTIM);
        scene.run();
        assert_eq!(scene.delivered.garbage, 0);
        scene.assert_the_correct_peer_was_received();
    }
}

#[test]
fn a_peer_that_writes_while_we_read_is_read_in_bounds() {
    let mut seed = Random(1);
    for _ in 0..50 {
        let mut scene = Scene::new();
        scene.block.chunks().unwrap();
        scene.greet(&mut seed);
        let done = AtomicBool::new(false);
        let replacement = Outbox::create(CORRUPTED, SLOTS, 0).unwrap();
        let corrupted = core::mem::replace(&mut scene.corrupted, replacement);
        let mut random = Random(seed.bits());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    corrupted.overwrite(VICTIM, any_target(&mut random), any_value(&mut random));
                }
            });
            (0..20).for_each(|_| scene.run());
            done.store(true, Ordering::Relaxed);
        });
        scene.assert_the_correct_peer_was_received();
    }
}

#[test]
fn invalid_cards_are_refused() {
    let Scene { mut victim, corrupted, .. } = Scene::new();
    let right = card_of_corrupted(&victim, &corrupted);
    let mut refused = |change: &dyn Fn(&mut Card)| {
        let mut card = right.clone();
        change(&mut card);
        victim.connect(PeerIndex(9), &card).expect_err("an invalid card")
    };
    use mend_transport::ConnectError::{LayoutDiffers, Unreachable};
    assert_eq!(refused(&|card| card.layout += 1), LayoutDiffers);
    assert_eq!(refused(&|card| card.entries.clear()), Unreachable);
    assert_eq!(refused(&|card| card.descriptor = None), Unreachable);
    assert_eq!(refused(&|card| card.entries[0].1[4] = 0), Unreachable, "our own slot");
    assert_eq!(refused(&|_| ()), Unreachable, "its slot is taken");
    assert_eq!(refused(&|card| card.entries[0].1[4] = 2), Unreachable, "taken too");
    assert_eq!(refused(&|card| card.entries[0].1[4] = 3), LayoutDiffers, "no such slot");
    assert_eq!(refused(&|card| card.entries[0].1[8] = 4), LayoutDiffers, "another node size");
    assert_eq!(refused(&|card| card.entries[0].1[0] = 9), LayoutDiffers, "another layout");
    assert_eq!(refused(&|card| _ = card.entries[0].1.pop()), LayoutDiffers);
    assert_eq!(refused(&|card| card.entries[0].1.push(0)), LayoutDiffers);
    assert_eq!(refused(&|card| card.entries[0] = (TransportId::SHM, Vec::new())), LayoutDiffers);
}

#[test]
fn descriptors_that_are_no_outbox_are_refused() {
    let bells = Arc::new(BellPage::create(SLOTS).unwrap().0);
    let node = NodeSlot { slot: VICTIM, slots: SLOTS, bells };
    let mut victim = Shm::new(node, &Settings::new(Declared(&[PARAMETERS]))).unwrap();
    let corrupted = Outbox::create(CORRUPTED, SLOTS, 0).unwrap();
    let right = card_of_corrupted(&victim, &corrupted);
    let (_page, bell_file) = BellPage::create(3000).unwrap();
    let another = Outbox::create(CORRECT, SLOTS, 0).unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    for wrong in [Arc::new(bell_file), another.descriptor(), Arc::new(null.into())] {
        let card = Card { descriptor: Some(wrong), ..right.clone() };
        let refusal = victim.connect(PeerIndex(1), &card).expect_err("no outbox of that slot");
        assert_eq!(refusal, mend_transport::ConnectError::LayoutDiffers);
    }
    victim.connect(PeerIndex(1), &right).unwrap();
}

#[test]
fn another_processs_outbox_cannot_be_written_or_shortened() {
    let outbox = Outbox::create(CORRUPTED, SLOTS, 0).unwrap();
    let file = outbox.descriptor();
    let again = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&*file)));
    for file in [Some(rustix::io::dup(&*file).unwrap()), again.ok().map(Into::into)].into_iter().flatten() {
        assert!(rustix::fs::ftruncate(&file, 0).is_err());
        assert!(rustix::fs::ftruncate(&file, 1 << 40).is_err());
        assert!(rustix::io::pwrite(&file, b"x", 0).is_err());
        let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        assert!(rustix::fs::fallocate(&file, hole, 0, 4096).is_err());
        assert!(!can_be_made_writable(&file));
    }
    let address = BlockAddress { owner_slot: CORRUPTED, reader_slot: VICTIM, slots: SLOTS };
    let bounds = Bounds { message_bytes: 100, chunk_bytes: 100 };
    PeerBlock::map(std::os::fd::AsFd::as_fd(&*file), address, bounds).unwrap();
}

/// Whether the file can be mapped writable, directly or by changing a read-only mapping.
fn can_be_made_writable(file: &std::os::fd::OwnedFd) -> bool {
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect};
    let map = |protection| {
        // SAFETY: at an address that the kernel chooses.
        unsafe { mmap(core::ptr::null_mut(), 4096, protection, MapFlags::SHARED, file, 0) }
    };
    if map(ProtFlags::READ | ProtFlags::WRITE).is_ok() {
        return true;
    }
    let readable = map(ProtFlags::READ).unwrap();
    // SAFETY: the page was just mapped and nothing refers to it.
    unsafe { mprotect(readable, 4096, MprotectFlags::READ | MprotectFlags::WRITE) }.is_ok()
}
