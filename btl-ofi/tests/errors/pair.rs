// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two BTLs of this process, what they report, and what the layer above them does about it: it quarantines a peer that is suspected, and resumes
//! it some rounds later, as after the node daemon's word that it lives.

use mend_base::{Duration, Instant, PeerIndex};
use mend_btl_ofi::{Choice, Class, Ofi, Options, candidates, choose};
use mend_ffi_ofi::{Code, Ofi as Library};
use mend_transport::conformance::{Callback, Recorder};
use mend_transport::{Btl, Card, Cause, WakeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The two, with endpoints to each other.
pub struct Pair {
    pub ends: Vec<End>,
    rounds: u64,
}

/// One of them.
pub struct End {
    pub btl: Ofi,
    pub endpoint: u32,
    pub recorder: Recorder<u32>,
    pub evidence: Vec<Cause>,
    reports: Arc<Mutex<Vec<(Class, Code)>>>,
    /// The callbacks that were looked at.
    seen: usize,
    resume_in: Option<u64>,
}

/// Time goes on by this much in each round, so that seconds of a broken way are thousands of rounds.
const ROUND: Duration = Duration::from_micros(100);
/// How long a way may be broken.
const RECONNECT: Duration = Duration::from_millis(3_000);
const ROUNDS_OF_QUARANTINE: u64 = 6;
/// More rounds are taken for a hang: seconds of the time that the BTLs see.
const ROUNDS_MAX: u64 = 60_000;

impl Pair {
    /// Opens both, and not more.
    pub fn open(library: &Arc<Library>, provider: &str) -> Result<Pair, String> {
        let ends = (0..2).map(|_| End::open(library, provider)).collect::<Result<_, _>>()?;
        Ok(Pair { ends, rounds: 0 })
    }

    /// Connects the two. Counts the refusals, after each of which it tries again.
    pub fn connect(&mut self) -> Result<Vec<String>, String> {
        let cards: Vec<Card> = self.ends.iter().map(|end| end.card()).collect();
        let mut refusals = Vec::new();
        for (at, end) in self.ends.iter_mut().enumerate() {
            let peer = PeerIndex(1 - at as u32);
            end.endpoint = loop {
                match end.btl.connect(peer, &cards[1 - at]) {
                    Ok(endpoint) => break endpoint,
                    Err(_) if refusals.len() > TRIES => return Err("no connection".to_owned()),
                    Err(error) => refusals.push(format!("{error:?}")),
                }
            };
        }
        let sendable = |end: &End| {
            let is_sendable = |callback: &Callback<u32>| matches!(callback, Callback::Sendable(..));
            end.recorder.callbacks.iter().any(is_sendable)
        };
        self.until("both are connected", |pair| pair.ends.iter().all(sendable))?;
        Ok(refusals)
    }

    /// One call of progress of each, and what follows from its callbacks.
    pub fn round(&mut self) {
        self.rounds += 1;
        let now = Instant(self.rounds * ROUND.0);
        let mut events = 0;
        for end in &mut self.ends {
            events += end.btl.progress(now, BUDGET, &mut end.recorder);
            end.react(self.rounds);
            if self.rounds.is_multiple_of(ROUNDS_TO_LOOK) {
                end.look();
            }
        }
        if events == 0 {
            std::thread::yield_now();
        }
    }

    /// Makes rounds until `done`; `what` describes that.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&Pair) -> bool) -> Result<(), String> {
        let last = self.rounds + ROUNDS_MAX;
        while !done(self) {
            if self.rounds >= last {
                return Err(format!("hang: it is not true that {what}"));
            }
            self.round();
        }
        Ok(())
    }

    /// Severs both endpoints.
    pub fn sever(&mut self) -> Result<(), String> {
        self.ends.iter_mut().for_each(|end| end.btl.sever(end.endpoint));
        let severed = |end: &End| {
            end.recorder.callbacks.iter().filter(|callback| matches!(callback, Callback::Severed(..))).count()
        };
        self.until("both endpoints are severed", |pair| pair.ends.iter().all(|end| severed(end) == 1))?;
        for end in &self.ends {
            let last = end.recorder.callbacks.last();
            if !matches!(last, Some(Callback::Severed(..))) {
                return Err(format!("after the severed report came {last:?}"));
            }
        }
        Ok(())
    }

    /// Evidence that either has reported.
    pub fn evidence(&self) -> Vec<Cause> {
        self.ends.iter().flat_map(|end| end.evidence.clone()).collect()
    }

    /// Reports of both.
    pub fn reports(&self) -> Vec<(Class, Code)> {
        self.ends.iter().flat_map(|end| end.reports.lock().expect("no test panics there").clone()).collect()
    }

    /// How often a device was opened again.
    pub fn reopened(&self) -> u64 {
        self.ends.iter().map(|end| end.btl.statistics().reopened).sum()
    }
}

impl End {
    fn open(library: &Arc<Library>, provider: &str) -> Result<End, String> {
        static INSTANCES: AtomicU64 = AtomicU64::new(1);
        let interfaces = if provider == "shm" { "" } else { "lo" };
        let choice = Choice {
            providers: provider.to_owned(),
            interfaces: interfaces.to_owned(),
            rails: 1,
            one_host: true,
        };
        let infos = choose(candidates(library, &choice).map_err(|code| format!("no list: {code}"))?);
        if infos.is_empty() {
            return Err("no provider".to_owned());
        }
        let reports = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&reports);
        let options = Options {
            instance: INSTANCES.fetch_add(1, Ordering::Relaxed) << 32 | u64::from(std::process::id()),
            eager_bytes: Some(4096),
            chunk_bytes: Some(4096),
            reconnect: RECONNECT,
            report: Box::new(move |report| {
                sink.lock().expect("no test panics there").push((report.class, report.code));
            }),
        };
        let btl = Ofi::open(infos, options).map_err(|error| error.to_string())?;
        let recorder = Recorder { callbacks: Vec::new() };
        Ok(End { btl, endpoint: 0, recorder, evidence: Vec::new(), reports, seen: 0, resume_in: None })
    }

    fn card(&self) -> Card {
        let mut card = Card { layout: Card::LAYOUT, ..Card::default() };
        self.btl.advertise(&mut card);
        card
    }

    fn react(&mut self, round: u64) {
        let news = self.recorder.callbacks.iter().skip(self.seen);
        let causes: Vec<Cause> = news
            .filter_map(|callback| match callback {
                Callback::Error(_, _, cause) => Some(*cause),
                _ => None,
            })
            .collect();
        self.seen = self.recorder.callbacks.len();
        if !causes.is_empty() && self.resume_in.is_none() {
            self.btl.quarantine(self.endpoint);
            self.resume_in = Some(round + ROUNDS_OF_QUARANTINE);
        }
        self.evidence.extend(causes);
        if self.resume_in.is_some_and(|resume| resume <= round) {
            self.resume_in = None;
            self.btl.resume(self.endpoint);
        }
    }

    /// What a process does that waits.
    fn look(&mut self) {
        self.btl.check_peers();
        let _ = self.btl.arm(&mut WakeSet::default());
        self.btl.disarm();
    }
}

const BUDGET: u32 = 64;
const ROUNDS_TO_LOOK: u64 = 16;
const TRIES: usize = 8;
