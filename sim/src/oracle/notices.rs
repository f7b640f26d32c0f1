// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What must hold of the notices that each rank gets, whatever the seed: each notice is true; each end is notified once;
//! the contact with a peer comes before the end of that peer; if a rank knew of a failure when it finalized, every other
//! rank is notified of that failure before it is notified that the rank has left; each question gets an answer. A question for a
//! result is answered by what a rank that had left MPI has left; by none only where no such rank has left it, or one has left a
//! result with a higher number.

use super::job::{JobOracle, RankEnd};
use mend_daemon::{Muted, Rules};
use mend_runtime::daemon_protocol::RankMessage;
use mend_runtime::{Notice, ResultKey};
use std::collections::{BTreeSet, VecDeque};

/// The messages and notices of every rank.
#[derive(Debug)]
pub struct NoticeOracle(Vec<RankNotices>);

/// All sets contain ranks.
#[derive(Debug, Default)]
struct RankNotices {
    /// Notified: [`Notice::Failed`].
    failed: BTreeSet<u32>,
    /// Notified: [`Notice::Finalized`].
    left: BTreeSet<u32>,
    /// Notified: [`Notice::Contact`].
    contacts: BTreeSet<u32>,
    /// Notified: [`Notice::Refused`].
    refused: BTreeSet<u32>,
    /// This rank asked about them, and has no answer yet.
    asked: BTreeSet<u32>,
    /// This rank looked them up, or they looked up this rank.
    lookups: BTreeSet<u32>,
    /// One side refused the connection between them and this rank.
    refusals: BTreeSet<u32>,
    /// The failures whose notices the engine has taken, in that order.
    taken: Vec<u32>,
    /// The length of `taken` when this rank finalized.
    taken_before_finalize: usize,
    /// The results that this rank has left with the node daemon. They count when it has left MPI.
    results: Vec<(ResultKey, Vec<u8>)>,
    /// The results that this rank asked for and has no answer about, each with the right answers.
    recalls: VecDeque<(ResultKey, RightAnswers)>,
}

/// The results of ranks that had left MPI when the question was read. The answer is one of them; none if there is none.
type RightAnswers = Vec<Vec<u8>>;

impl NoticeOracle {
    /// For a job of `size` ranks.
    pub fn new(size: u32) -> Self {
        NoticeOracle((0..size).map(|_| RankNotices::default()).collect())
    }

    /// The failures whose notices the engine of `rank` has taken, in that order.
    pub fn taken(&self, rank: u32) -> &[u32] {
        &self.0[rank as usize].taken
    }

    /// The engine of `rank` takes the notice of a failure.
    pub fn on_taken(&mut self, rank: u32, failed: u32) {
        let taken = &mut self.0[rank as usize].taken;
        if !taken.contains(&failed) {
            taken.push(failed);
        }
    }

    /// `rank` finalizes.
    pub fn on_finalize(&mut self, rank: u32) {
        let notices = &mut self.0[rank as usize];
        notices.taken_before_finalize = notices.taken.len();
    }

    /// The node daemon receives a message.
    pub fn on_rank_message(&mut self, rank: u32, message: &RankMessage, job_oracle: &JobOracle) {
        // The node daemon ignores messages of a rank that has left or failed.
        if !(job_oracle.is_open(rank) && job_oracle.has_joined(rank)) {
            return;
        }
        match message {
            RankMessage::Ask(peer, _) => drop(self.0[rank as usize].asked.insert(peer.number())),
            RankMessage::Lookup(peer) => {
                self.0[rank as usize].lookups.insert(peer.number());
                self.0[peer.number() as usize].lookups.insert(rank);
                if !job_oracle.is_open(peer.number()) {
                    self.0[rank as usize].asked.insert(peer.number());
                }
            }
            RankMessage::Refuse(peer, _) => {
                self.0[rank as usize].refusals.insert(peer.number());
                self.0[peer.number() as usize].refusals.insert(rank);
            }
            RankMessage::LeaveResult(key, result) => {
                self.0[rank as usize].results.push((*key, result.clone()));
            }
            RankMessage::RecallResult(key) => {
                let answers = self.right_answers(*key, job_oracle);
                self.0[rank as usize].recalls.push_back((*key, answers));
            }
            _ => {}
        }
    }

    fn right_answers(&self, key: ResultKey, job_oracle: &JobOracle) -> RightAnswers {
        let departed = (0..).zip(&self.0).filter(|(rank, _)| job_oracle.end_of(*rank) == Some(RankEnd::Left));
        let results = departed.flat_map(|(_, notices)| &notices.results);
        let is_same = |other: &ResultKey| other.identity == key.identity && other.protocol == key.protocol;
        let candidates: Vec<_> = results.filter(|(other, _)| is_same(other)).collect();
        if candidates.iter().any(|(other, _)| other.sequence.wrapping_sub(key.sequence) as i32 > 0) {
            return vec![];
        }
        let exact = candidates.into_iter().filter(|(other, _)| *other == key);
        exact.map(|(_, result)| result.clone()).collect()
    }

    /// The node daemon sends a notice to `rank`.
    pub fn on_notice(&mut self, rank: u32, notice: &Notice, job_oracle: &JobOracle, rules: &Rules) {
        if let Notice::Finalized(peer) = notice {
            self.assert_known_failures_came_first(rank, peer.number(), rules);
        }
        let notices = &mut self.0[rank as usize];
        match notice {
            Notice::Contact { peer, .. } => notices.on_contact(rank, peer.number()),
            Notice::Refused { peer, .. } => {
                let peer = peer.number();
                let refused = notices.refusals.contains(&peer);
                assert!(refused, "rank {rank} is notified that rank {peer} refused, but it did not");
                notices.refused.insert(peer);
            }
            Notice::Failed(peer) => notices.on_failed(rank, peer.number(), job_oracle, rules),
            Notice::Finalized(peer) => notices.on_finalized(rank, peer.number(), job_oracle),
            Notice::Alive(peer) => {
                let peer = peer.number();
                let ended = notices.knows_end(peer);
                assert!(!ended, "rank {rank} is notified that rank {peer} lives, after the end of that rank");
                let asked = notices.asked.remove(&peer);
                assert!(asked, "rank {rank} is notified that rank {peer} lives, but did not ask");
            }
            Notice::Running(peer) => {
                let ended = notices.knows_end(peer.number());
                assert!(
                    !ended,
                    "rank {rank} is notified that rank {peer:?} runs, after the end of that rank"
                );
            }
            // Whose question it was may have ended meanwhile.
            Notice::Unheard(_) => {}
            Notice::Recalled { key, result } => notices.on_recalled(rank, *key, result.as_ref()),
            Notice::JobAborted { .. } => panic!("no rank is notified of the end of the job"),
            Notice::WhereAreYou => panic!("no rank reports a hang"),
        }
    }

    /// The failures that `left` knew when it finalized may be why it finalized. `rank` must know them before it knows that
    /// `left` has left.
    fn assert_known_failures_came_first(&self, rank: u32, left: u32, rules: &Rules) {
        let leaver = &self.0[left as usize];
        let causes = &leaver.taken[..leaver.taken_before_finalize];
        let is_unknown = |cause: &&u32| **cause != rank && !self.0[rank as usize].failed.contains(*cause);
        if let Some(cause) = causes.iter().find(is_unknown).filter(|_| rules.muted == Muted::None) {
            panic!(
                "rank {rank} is notified that rank {left} left before it is notified that rank {cause} failed"
            );
        }
    }

    /// Asserts, after all notices were sent, that each rank in the job was notified of everything and has all answers.
    pub fn assert_all_notified(&self, job_oracle: &JobOracle, rules: &Rules) {
        let in_job = |rank: u32| job_oracle.is_open(rank) && job_oracle.has_joined(rank);
        for (rank, notices) in (0..).zip(&self.0).filter(|(rank, _)| in_job(*rank)) {
            let others = (0..self.0.len() as u32).filter(|other| *other != rank);
            let ended = others.filter_map(|other| job_oracle.end_of(other).map(|end| (other, end)));
            for (peer, end) in ended {
                if end == RankEnd::Left {
                    let notified = notices.left.contains(&peer);
                    assert!(notified, "rank {rank} is never notified that rank {peer} left");
                } else if rules.muted == Muted::None && !job_oracle.ends_the_job(peer) {
                    let notified = notices.failed.contains(&peer);
                    assert!(notified, "rank {rank} is never notified that rank {peer} failed");
                }
            }
            let unanswered = notices.refusals.iter().find(|peer| !notices.refused.contains(peer));
            if let Some(peer) = unanswered {
                panic!("rank {rank} is never notified that its connection to rank {peer} was refused");
            }
            let is_answered = |peer: u32| match rules.muted {
                Muted::None | Muted::Unasked => !job_oracle.ends_the_job(peer),
                Muted::All => job_oracle.end_of(peer).is_none_or(|end| end == RankEnd::Left),
            };
            if let Some(peer) = notices.asked.iter().find(|peer| is_answered(**peer)) {
                panic!("rank {rank} asked about rank {peer}, and never gets an answer");
            }
            if let Some((key, _)) = notices.recalls.front() {
                panic!("rank {rank} asked for the result {key:?}, and never gets an answer");
            }
        }
    }
}

/// The node daemon sends one notice to this rank.
impl RankNotices {
    fn on_contact(&mut self, rank: u32, peer: u32) {
        assert!(
            !self.knows_end(peer),
            "rank {rank} gets the contact of rank {peer} after the end of that rank"
        );
        assert!(self.lookups.contains(&peer), "rank {rank} gets the contact of rank {peer} without a lookup");
        assert!(self.contacts.insert(peer), "rank {rank} gets the contact of rank {peer} twice");
    }

    fn on_failed(&mut self, rank: u32, peer: u32, job_oracle: &JobOracle, rules: &Rules) {
        let failed = job_oracle.end_of(peer).is_some_and(|end| end != RankEnd::Left);
        assert!(failed, "rank {rank} is notified that rank {peer} failed, but it has not failed");
        let ends_the_job = job_oracle.ends_the_job(peer);
        assert!(!ends_the_job, "rank {rank} is notified of the failure that ends the job");
        let asked = self.asked.contains(&peer);
        let muted = rules.muted != Muted::None && !asked && !self.lookups.contains(&peer);
        assert!(!muted, "rank {rank} is notified of a failure, and notices are muted");
        let first = self.failed.insert(peer);
        assert!(first || asked, "rank {rank} is notified twice that rank {peer} failed");
        self.asked.remove(&peer);
    }

    fn on_finalized(&mut self, rank: u32, peer: u32, job_oracle: &JobOracle) {
        let left = job_oracle.end_of(peer) == Some(RankEnd::Left);
        assert!(left, "rank {rank} is notified that rank {peer} left, but it has not left");
        let first = self.left.insert(peer);
        let asked = self.asked.remove(&peer);
        assert!(first || asked, "rank {rank} is notified twice that rank {peer} left");
    }

    fn on_recalled(&mut self, rank: u32, key: ResultKey, result: Option<&Vec<u8>>) {
        let Some((asked, answers)) = self.recalls.pop_front() else {
            panic!("rank {rank} gets the result {key:?}, but did not ask for it");
        };
        assert_eq!(asked, key, "rank {rank} gets the answers to its questions in another order");
        let is_right = result.map_or(answers.is_empty(), |result| answers.contains(result));
        assert!(is_right, "rank {rank} gets {result:?} for {key:?}, and not one of {answers:?}");
    }

    fn knows_end(&self, peer: u32) -> bool {
        self.failed.contains(&peer) || self.left.contains(&peer)
    }
}
