// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What must hold of the notices that each rank gets, whatever the seed: nothing but the truth, each end once, a contact
//! before the end of the peer, a death before the leaving of a rank that took notice of it, an answer to each question.

use super::job::{Fate, Ledger};
use mend_daemon::Rules;
use mend_runtime::Notice;
use mend_runtime::daemon_protocol::Request;
use std::collections::BTreeSet;

/// What each rank was told, and had asked.
#[derive(Debug)]
pub struct NoticeOracle(Vec<Told>);

#[derive(Debug, Default)]
struct Told {
    failed: BTreeSet<u32>,
    left: BTreeSet<u32>,
    met: BTreeSet<u32>,
    refused: BTreeSet<u32>,
    /// Who it asked about, without an answer.
    asked: BTreeSet<u32>,
    /// Who it wants to meet, or who wants to meet it.
    wanted: BTreeSet<u32>,
    /// With whom a connection was refused, by either.
    refusals: BTreeSet<u32>,
    /// The deaths that it took notice of, in that order.
    taken: Vec<u32>,
    /// How many of those when it left.
    taken_before_leaving: usize,
}

impl NoticeOracle {
    /// For so many ranks.
    pub fn new(size: u32) -> Self {
        NoticeOracle((0..size).map(|_| Told::default()).collect())
    }

    /// The deaths that `rank` took notice of, in that order.
    pub fn taken(&self, rank: u32) -> &[u32] {
        &self.0[rank as usize].taken
    }

    /// `rank` takes notice of a death.
    pub fn on_taken(&mut self, rank: u32, dead: u32) {
        let taken = &mut self.0[rank as usize].taken;
        if !taken.contains(&dead) {
            taken.push(dead);
        }
    }

    /// `rank` leaves.
    pub fn on_leaving(&mut self, rank: u32) {
        let told = &mut self.0[rank as usize];
        told.taken_before_leaving = told.taken.len();
    }

    /// The daemon hears this.
    pub fn on_request(&mut self, rank: u32, request: &Request, ledger: &Ledger) {
        // Of one that has left or failed the daemon hears nothing.
        if !(ledger.is_open(rank) && ledger.has_joined(rank)) {
            return;
        }
        match request {
            Request::Ask(peer, _) => drop(self.0[rank as usize].asked.insert(peer.number())),
            Request::Lookup(peer) => {
                self.0[rank as usize].wanted.insert(peer.number());
                self.0[peer.number() as usize].wanted.insert(rank);
                if !ledger.is_open(peer.number()) {
                    self.0[rank as usize].asked.insert(peer.number());
                }
            }
            Request::Refuse(peer, _) => {
                self.0[rank as usize].refusals.insert(peer.number());
                self.0[peer.number() as usize].refusals.insert(rank);
            }
            _ => {}
        }
    }

    /// The daemon sends `rank` this.
    pub fn on_delivered(&mut self, rank: u32, notice: &Notice, ledger: &Ledger, rules: &Rules) {
        if let Notice::Finalized(peer) = notice {
            self.causes_are_told(rank, peer.number(), rules);
        }
        let told = &mut self.0[rank as usize];
        match notice {
            Notice::Contact { peer, .. } => {
                let peer = peer.number();
                assert!(!told.knows_end(peer), "rank {rank} is introduced to rank {peer} after its end");
                assert!(told.wanted.contains(&peer), "rank {rank} is introduced to rank {peer} unasked");
                assert!(told.met.insert(peer), "rank {rank} is introduced to rank {peer} twice");
            }
            Notice::Refused { peer, .. } => {
                let peer = peer.number();
                assert!(
                    told.refusals.contains(&peer),
                    "rank {rank} is refused by rank {peer}, which did not"
                );
                told.refused.insert(peer);
            }
            Notice::Failed(peer) => {
                let peer = peer.number();
                let dead = ledger.fate(peer).is_some_and(|fate| fate != Fate::Left);
                assert!(dead, "rank {rank} is told that rank {peer} failed, which has not");
                assert!(!ledger.ends_the_job(peer), "rank {rank} is told of the death that ends the job");
                let first = told.failed.insert(peer);
                let unasked = rules.muted && !told.asked.contains(&peer) && !told.wanted.contains(&peer);
                assert!(!unasked, "rank {rank} is told of a death that is muted");
                assert!(first || told.asked.contains(&peer), "rank {rank} is told twice that {peer} failed");
                told.asked.remove(&peer);
            }
            Notice::Finalized(peer) => {
                let peer = peer.number();
                let left = ledger.fate(peer) == Some(Fate::Left);
                assert!(left, "rank {rank} is told that rank {peer} left, which has not");
                let first = told.left.insert(peer);
                assert!(first || told.asked.contains(&peer), "rank {rank} is told twice that {peer} left");
                told.asked.remove(&peer);
            }
            Notice::Alive(peer) => {
                let peer = peer.number();
                assert!(!told.knows_end(peer), "rank {rank} is told that rank {peer} lives after its end");
                assert!(told.asked.contains(&peer), "rank {rank} is told that rank {peer} lives unasked");
                told.asked.remove(&peer);
            }
            Notice::JobAborted { .. } => panic!("nobody is left to be told of the end of the job"),
        }
    }

    /// What a rank had taken notice of when it left, each rank is told before it is told of the leaving.
    fn causes_are_told(&self, rank: u32, left: u32, rules: &Rules) {
        let leaver = &self.0[left as usize];
        let causes = &leaver.taken[..leaver.taken_before_leaving];
        let missing =
            causes.iter().find(|dead| **dead != rank && !self.0[rank as usize].failed.contains(dead));
        if let Some(dead) = missing.filter(|_| !rules.muted) {
            panic!("rank {rank} is told that rank {left} left before the death of rank {dead}, its cause");
        }
    }

    /// All notices were sent: who is connected was told everything, and answered.
    pub fn all_is_told(&self, ledger: &Ledger, rules: &Rules) {
        for (rank, told) in (0..).zip(&self.0) {
            if !(ledger.is_open(rank) && ledger.has_joined(rank)) {
                continue;
            }
            let ended = |what: fn(Fate) -> bool| {
                let others = (0..self.0.len() as u32).filter(move |other| *other != rank);
                others.filter(move |other| ledger.fate(*other).is_some_and(what))
            };
            let mut left = ended(|fate| fate == Fate::Left);
            let mut failed = ended(|fate| fate != Fate::Left);
            if let Some(peer) = left.find(|peer| !told.left.contains(peer)) {
                panic!("rank {rank} is never told that rank {peer} left");
            }
            let untold = |peer: &u32| !told.failed.contains(peer) && !ledger.ends_the_job(*peer);
            if let Some(peer) = failed.find(untold).filter(|_| !rules.muted) {
                panic!("rank {rank} is never told that rank {peer} failed");
            }
            let open_refusals = told.refusals.iter().find(|peer| !told.refused.contains(peer));
            if let Some(peer) = open_refusals {
                panic!("rank {rank} is never told that its connection to rank {peer} was refused");
            }
            if let Some(peer) = told.asked.iter().find(|peer| !ledger.ends_the_job(**peer)) {
                panic!("rank {rank} asked about rank {peer}, and is never answered");
            }
        }
    }
}

impl Told {
    fn knows_end(&self, peer: u32) -> bool {
        self.failed.contains(&peer) || self.left.contains(&peer)
    }
}
