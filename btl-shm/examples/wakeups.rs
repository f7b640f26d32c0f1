// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Searches for lost wake-ups: ranks ring, sleep and refill full rings at random delays, for as long as `--for` says.
//!
//! `cargo run --release -p mend-btl-shm --example wakeups -- [pair|many] [--for 60s] [--seed N]`
//!
//! `pair`: 2 ranks pinned on 2 cores. `many`: 8 ranks on 1 core. Each rank is a thread with an outbox and a mapping of the
//! bell page of its own. Ends with 1 at a hang, with 2 where wakes were late more often than once in 1000 sleeps or by
//! more than 2 ms. With `RUSTFLAGS='--cfg mend_mutation="NAME"'` (`no_settle`, `no_last_look`, `clear_bell_unpolled`) it
//! must find the hang within a minute.

use mend_base::parameter::{Declared, Settings};
use mend_base::{Duration, Instant, PeerIndex, Random};
use mend_btl_shm::{NodeSlot, PARAMETERS, Shm, ShmEndpoint, Statistics};
use mend_segment::{AnnouncedSleep, BellPage, Woken};
use mend_transport::{
    AmId, Btl, Card, Cause, Cookie, MessageClass, Payload, SendError, Sink, Stream, WakeSet,
};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::{process, thread, time};

fn main() {
    let arguments = Arguments::parse();
    let ranks = arguments.case.ranks();
    let (_page, file) = BellPage::create(ranks).expect("a bell page");
    let job = Arc::new(Job {
        arguments,
        file,
        cards: (0..ranks).map(|_| Mutex::new(None)).collect(),
        rounds: (0..ranks).map(|_| AtomicU64::new(0)).collect(),
        returned: (0..ranks).map(|_| AtomicU64::new(0)).collect(),
        stop: AtomicBool::new(false),
        last_round: AtomicU64::new(u64::MAX),
        began: time::Instant::now(),
    });
    println!(
        "{:?}, {ranks} ranks, {:?}, seed {}",
        job.arguments.case, job.arguments.span, job.arguments.seed
    );
    let threads: Vec<_> = (0..ranks)
        .map(|slot| {
            let job = Arc::clone(&job);
            thread::spawn(move || Rank::new(&job, slot).live())
        })
        .collect();
    watch(&job);
    let tallies: Vec<Tally> = threads.into_iter().map(|thread| thread.join().expect("a rank")).collect();
    process::exit(summary(&tallies));
}

/// Prints the figures; the exit code says whether they are within the limits.
fn summary(tallies: &[Tally]) -> i32 {
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    let (sleeps, late) = (sum(|tally| tally.sleeps), sum(|tally| tally.late));
    let latest = tallies.iter().map(|tally| tally.latest).max().unwrap_or_default();
    println!(
        "{} messages, {} times no room, {sleeps} sleeps, {} bells, {} promotions, {} demotions",
        sum(|tally| tally.messages),
        sum(|tally| tally.statistics.busy),
        sum(|tally| tally.statistics.bells_rung),
        sum(|tally| tally.statistics.promotions),
        sum(|tally| tally.statistics.demotions),
    );
    println!("no hang; {late} late wakes, the latest by {} us", latest.0 / 1000);
    let within_limits = late * 1000 <= sleeps && latest <= Duration::from_millis(2);
    if !within_limits {
        println!("late wakes: more than 1 in 1000 sleeps, or by more than 2 ms");
    }
    if within_limits { 0 } else { 2 }
}

struct Arguments {
    case: Case,
    span: time::Duration,
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Case {
    Pair,
    Many,
}

impl Case {
    fn ranks(self) -> u32 {
        match self {
            Case::Pair => 2,
            Case::Many => 8,
        }
    }
}

impl Arguments {
    fn parse() -> Self {
        let mut parsed = Arguments { case: Case::Pair, span: time::Duration::from_secs(10), seed: 1 };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_else(|| usage());
            match word.as_str() {
                "pair" => parsed.case = Case::Pair,
                "many" => parsed.case = Case::Many,
                "--for" => parsed.span = span(&value()).unwrap_or_else(|| usage()),
                "--seed" => parsed.seed = value().parse().unwrap_or_else(|_| usage()),
                _ => usage(),
            }
        }
        parsed
    }
}

fn usage() -> ! {
    eprintln!("wakeups [pair|many] [--for 60s|10m] [--seed N]");
    process::exit(64)
}

fn span(text: &str) -> Option<time::Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return None,
    };
    Some(time::Duration::from_secs(number.parse::<u64>().ok()? * seconds))
}

/// What the ranks share, besides shared memory.
struct Job {
    arguments: Arguments,
    file: OwnedFd,
    cards: Vec<Mutex<Option<Card>>>,
    /// How many rounds each rank has ended.
    rounds: Vec<AtomicU64>,
    /// When each rank's last send returned.
    returned: Vec<AtomicU64>,
    stop: AtomicBool,
    /// The round after which all ranks stop.
    last_round: AtomicU64,
    began: time::Instant,
}

/// Ends the job when its time is over, and the process when a rank ends no round for 10 s.
fn watch(job: &Job) {
    let read = || job.rounds.iter().map(|round| round.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let still_seconds = 10;
    let mut history: Vec<Vec<u64>> = Vec::new();
    while !job.rounds.iter().all(|round| round.load(Ordering::Relaxed) == OVER) {
        thread::sleep(time::Duration::from_secs(1));
        if job.began.elapsed() >= job.arguments.span {
            job.stop.store(true, Ordering::Relaxed);
        }
        history.push(read());
        let Some(before) = history.len().checked_sub(still_seconds + 1).map(|at| &history[at]) else {
            continue;
        };
        let stuck = before.iter().zip(read()).position(|(&before, now)| before == now && now != OVER);
        if let Some(rank) = stuck {
            let seconds = job.began.elapsed().as_secs() - still_seconds as u64;
            println!("HANG: rank {rank} got no further after {seconds} s, rounds {:?}", read());
            process::exit(1);
        }
    }
}

const OVER: u64 = u64::MAX;

#[derive(Default)]
struct Tally {
    messages: u64,
    sleeps: u64,
    /// Sleeps that ended by their time-out although the poll after them found a message.
    late: u64,
    latest: Duration,
    statistics: Statistics,
}

struct Rank<'a> {
    job: &'a Job,
    slot: u32,
    shm: Shm,
    bells: Arc<BellPage>,
    ways: Vec<Option<ShmEndpoint>>,
    inbox: Inbox,
    sent: Vec<u64>,
    /// Random numbers for the delays of this rank.
    delays: Random,
    /// Random numbers that choose sender, receiver and count of each round; the same in all ranks.
    plan: Random,
    tally: Tally,
}

/// What has arrived.
struct Inbox {
    received: Vec<u64>,
    /// What one poll found: when the send of the first message began, its sender, and how many messages there were.
    found: Option<(Instant, usize, u32)>,
}

impl Sink<ShmEndpoint> for Inbox {
    fn on_message(&mut self, from: PeerIndex, _: AmId, header: &[u8], payload: Payload<'_>) {
        let mut number = [0; 8];
        number.copy_from_slice(&header[..8]);
        let received = &mut self.received[from.index()];
        assert_eq!(u64::from_le_bytes(number), *received, "messages in order");
        *received += 1;
        let mut stamp = [0; 8];
        payload.part(0, 8).copy_to_slice(&mut stamp);
        let stamp = Instant(u64::from_le_bytes(stamp));
        let (oldest, whose, count) = self.found.unwrap_or((stamp, from.index(), 0));
        self.found = Some((oldest.min(stamp), whose, count + 1));
    }

    fn on_chunk(&mut self, _: PeerIndex, _: Stream, _: Payload<'_>) {}
    fn on_done(&mut self, _: Cookie, _: Result<(), SendError>) {}
    fn on_sendable(&mut self, _: PeerIndex, _: ShmEndpoint) {}
    fn on_error(&mut self, _: PeerIndex, _: ShmEndpoint, cause: Cause) {
        panic!("{cause:?}");
    }
    fn on_severed(&mut self, _: PeerIndex, _: ShmEndpoint) {}
}

impl<'a> Rank<'a> {
    fn new(job: &'a Job, slot: u32) -> Self {
        let ranks = job.arguments.case.ranks();
        let core = if job.arguments.case == Case::Pair { slot as usize } else { 0 };
        let mut set = rustix::thread::CpuSet::new();
        set.set(core);
        rustix::thread::sched_setaffinity(None, &set).expect("two cores");
        let bells = Arc::new(BellPage::map(job.file.as_fd(), ranks).expect("the bell page"));
        let node = NodeSlot { slot, slots: ranks, bells: Arc::clone(&bells) };
        let mut shm = Shm::new(node, &Settings::new(Declared(&[PARAMETERS]))).expect("an outbox");
        // Few endpoints are polled, so that some are demoted.
        shm.set_polled_max(0);
        let mut card = Card { layout: Card::LAYOUT, ..Card::default() };
        shm.advertise(&mut card);
        *job.cards[slot as usize].lock().expect("no rank panics with a card") = Some(card);
        let ways = (0..ranks).map(|peer| (peer != slot).then(|| connect(job, &mut shm, peer))).collect();
        let seed = job.arguments.seed;
        Rank {
            job,
            slot,
            shm,
            bells,
            ways,
            inbox: Inbox { received: vec![0; ranks as usize], found: None },
            sent: vec![0; ranks as usize],
            delays: Random(seed.wrapping_mul(1000) + u64::from(slot) + 1),
            plan: Random(seed),
            tally: Tally::default(),
        }
    }

    /// Runs all rounds: in each one every rank exchanges bursts with a partner that the plan chooses.
    fn live(mut self) -> Tally {
        let ranks = self.ways.len() as u64;
        let mut expected = vec![0; ranks as usize];
        while !self.is_over() {
            let partner = (u64::from(self.slot) ^ (1 + self.plan.below(ranks - 1))) as usize;
            let burst = if self.plan.once_in(16) { 1 + self.plan.below(200) } else { 1 + self.plan.below(2) };
            let both = self.plan.once_in(2);
            let first = (self.slot as usize) < partner;
            if both || first {
                (0..burst).for_each(|_| self.send(partner));
            }
            if both || !first {
                expected[partner] += burst;
                self.pause();
                while self.inbox.received[partner] < expected[partner] {
                    self.wait(|rank| rank.inbox.received[partner] >= expected[partner]);
                }
            }
            self.job.rounds[self.slot as usize].fetch_add(1, Ordering::Relaxed);
        }
        self.job.rounds[self.slot as usize].store(OVER, Ordering::Relaxed);
        self.tally.statistics = self.shm.statistics();
        self.tally.messages = self.inbox.received.iter().sum();
        self.tally
    }

    /// All ranks must stop after the same round, which rank 0 chooses well in advance.
    fn is_over(&self) -> bool {
        let mine = self.job.rounds[self.slot as usize].load(Ordering::Relaxed);
        self.job.last_round.load(Ordering::Acquire) <= mine || {
            if self.slot == 0 && mine.is_multiple_of(16) && self.job.stop.load(Ordering::Relaxed) {
                // No rank can be so many rounds ahead of another, as in that many rounds each rank is the partner of each other.
                self.job.last_round.fetch_min(mine + 2_000, Ordering::AcqRel);
            }
            false
        }
    }

    fn send(&mut self, to: usize) {
        self.pause();
        let len = if self.delays.once_in(8) { 8 + self.delays.below(3000) as usize } else { 8 };
        let mut header = [0; 16];
        header[..8].copy_from_slice(&self.sent[to].to_le_bytes());
        let endpoint = self.ways[to].expect("a partner is another rank");
        loop {
            let mut payload = vec![0; len];
            payload[..8].copy_from_slice(&self.now().0.to_le_bytes());
            match self
                .shm
                .send(endpoint, MessageClass::Data, AmId(1), &header, len, |mut room| room.put(&payload))
            {
                Ok(()) => break,
                Err(SendError::Busy) => self.wait(|_| false),
                Err(error) => panic!("{error:?}"),
            }
        }
        self.sent[to] += 1;
        self.job.returned[self.slot as usize].store(self.now().0, Ordering::Release);
    }

    fn up_to_64_us(&mut self) -> Duration {
        let bits = self.delays.below(17);
        Duration(self.delays.below(1 << bits))
    }

    /// Spins for up to 80 us, often not at all, as a rank that computes.
    fn pause(&mut self) {
        if self.delays.once_in(2) {
            let span =
                if self.delays.once_in(4) { Duration(self.delays.below(80_000)) } else { self.up_to_64_us() };
            let until = self.now() + span;
            while self.now() < until {
                std::hint::spin_loop();
            }
        }
    }

    /// Waits for any event, as `world` does, but goes to sleep much sooner. May return early.
    fn wait(&mut self, done: impl Fn(&Self) -> bool) {
        // As long as a wake takes, or much shorter, so that a rank often falls asleep while its partner sends.
        let until = self.now() + self.up_to_64_us();
        loop {
            if self.progress() > 0 || done(self) {
                return;
            }
            if self.now() >= until {
                break;
            }
        }
        let announced = self.bells.announce_sleep(self.slot);
        let before = self.shm.statistics().armed_holding_back;
        if self.shm.arm(&mut WakeSet::default()).is_ok() {
            self.sleep(announced, self.shm.statistics().armed_holding_back > before);
        }
        self.bells.end_sleep(self.slot);
        self.shm.disarm();
        self.progress();
    }

    /// `holds_back`: messages of peers that have had their share are held back on purpose, and are not late.
    fn sleep(&mut self, announced: AnnouncedSleep, holds_back: bool) {
        let mut span = Duration::from_millis(1);
        if cfg!(mend_mutation = "no_settle") {
            span = FOR_EVER;
        }
        loop {
            self.tally.sleeps += 1;
            let due = self.now() + span;
            let woken = self.bells.sleep(self.slot, announced, span);
            if woken == Woken::Rung {
                return;
            }
            if cfg!(mend_mutation = "no_last_look") {
                span = FOR_EVER;
                continue;
            }
            if self.progress() > 0 {
                let late = if holds_back { Duration(0) } else { self.lateness(due) };
                self.tally.latest = self.tally.latest.max(late);
                self.tally.late += u64::from(late > ON_ITS_WAY);
                return;
            }
            span = Duration((span.0 * 2).min(Duration::from_millis(100).0));
        }
    }

    /// How long the message that the last poll found had been there when the sleep was due to end. Delays by other work on the
    /// machine are not counted: a send that has not returned has not rung yet, and a sleeper may get its processor back late.
    fn lateness(&self, due: Instant) -> Duration {
        let Some((oldest, whose, count)) = self.inbox.found else { return Duration(0) };
        let returned = Instant(self.job.returned[whose].load(Ordering::Acquire));
        if returned < oldest {
            return Duration(0);
        }
        due - if count == 1 { returned } else { oldest }
    }

    fn progress(&mut self) -> u32 {
        self.inbox.found = None;
        let now = self.now();
        self.shm.progress(now, 1000, &mut self.inbox)
    }

    fn now(&self) -> Instant {
        Instant(self.job.began.elapsed().as_nanos() as u64)
    }
}

/// A message that came less than this before the time-out is not late, as its wake was under way.
const ON_ITS_WAY: Duration = Duration::from_micros(100);
const FOR_EVER: Duration = Duration::from_millis(3_600_000);

fn connect(job: &Job, shm: &mut Shm, peer: u32) -> ShmEndpoint {
    loop {
        let card = job.cards[peer as usize].lock().expect("no rank panics with a card").clone();
        match card {
            Some(card) => return shm.connect(PeerIndex(peer), &card).expect("an endpoint"),
            None => thread::yield_now(),
        }
    }
}
