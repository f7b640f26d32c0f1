// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state machine of the node daemon: from inputs it derives effects and notices.

use crate::ending::Ending;
use crate::exit_policy::{self, ENDING_TIME_LIMIT, ExitPolicy, Rules};
use crate::hang_report::{Call, HangReport};
use crate::notifier::{Notifier, Step};
use crate::ranks::{Death, FoundBy, RankLine, RankTable};
use crate::results::Results;
use crate::sentences;
use crate::transport_report::TransportReport;
use mend_base::{Instant, Job, Peer};
use mend_runtime::daemon_protocol::{DaemonMessage, HelloRefused, Place, RankMessage};
use mend_runtime::exit_code;
use mend_transport::{Card, Cause};
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The node daemon's decisions about one job. After each input the [`Effect`]s are performed, in order.
#[derive(Debug)]
pub struct NodeDaemon {
    job: Job,
    ranks: RankTable,
    notifier: Notifier,
    results: Results,
    hang_report: HangReport,
    transport_report: TransportReport,
    policy: ExitPolicy,
    /// Questions of ranks about others that are being examined, in the order of their [`Effect::Examine`].
    examined: VecDeque<Question>,
    /// Ranks that are asked whether they run, and by whom. A rank that is stopped answers when it goes on.
    running_queries: BTreeSet<RunningQuery>,
    /// Ends that were seen, and are declared once all messages of the rank are read, in the order of their
    /// [`Effect::ReadMessages`].
    seen_ends: VecDeque<SeenEnd>,
    /// Ranks that have failed, and whose death is not reported yet.
    unreported: Vec<u32>,
    /// The time of the last call of [`on_time`](NodeDaemon::on_time).
    decided_at: Instant,
    /// When the dying ranks were examined last.
    dying_examined_at: Instant,
    /// Why the job is over, if it is.
    over: Option<JobEndReason>,
    effects: VecDeque<Effect>,
}

/// What the caller has to do now.
#[derive(Debug)]
pub enum Effect {
    /// Watch the life word in the life page of this rank; when it is marked, call [`NodeDaemon::on_life_marked`] once.
    WatchLife(u32, Arc<OwnedFd>),
    /// Stop watching the life word of this rank.
    ForgetLife(u32),
    /// Poll the life word and the process of this rank, and call [`NodeDaemon::on_examined`].
    Examine(u32),
    /// Read every message that this rank has sent, pass each to [`NodeDaemon::on_rank_message`], and then call
    /// [`NodeDaemon::on_messages_read`].
    ReadMessages(u32),
    /// Look whether the process of this rank, which said that a fatal signal ends it, runs on: it neither writes its core nor is stopped.
    /// Then call [`NodeDaemon::on_dying_examined`].
    ExamineDying(u32),
    /// Kill the process that is this rank, but no wrapper that it runs under. If the process was alive until then, call
    /// [`NodeDaemon::on_killed_alive`].
    Kill(u32),
    /// Print this line for the user.
    Report(RankLine),
    /// Print these lines for the user.
    Table(Vec<String>),
    /// The job is over: end every process of it except [`NodeDaemon::spared`].
    EndJob(JobEnd),
}

/// How a job ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobEnd {
    /// Its exit code.
    pub code: u8,
    /// Lines for the user.
    pub lines: Vec<RankLine>,
    /// Why.
    pub reason: JobEndReason,
}

/// Why a job is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobEndReason {
    /// All ranks have ended, or the job cannot go on.
    Over,
    /// A rank called MPI_Abort, or an error was fatal.
    Aborted,
    /// `mpiexec` asked for the end, or has ended.
    Asked,
    /// The job ran longer than `--timeout`.
    Overdue,
}

/// What polling the life word and the process of a rank has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// Its process has not ended, and its life word is not marked.
    Alive,
    /// Its own signal handler marked its life word; it may be writing its core.
    Dying,
    /// Its process has ended, or its life word is marked by the kernel.
    Ended,
}

/// Which process of a rank has ended, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessEnd {
    /// The process that was started.
    Child(Ending),
    /// The process that joined, under a wrapper. How it ended is known only if the node daemon reaped it.
    Wrapped(Option<Ending>),
}

#[derive(Clone, Copy, Debug)]
struct Question {
    from: u32,
    about: u32,
    /// The two must be able to reach each other, and cannot.
    is_needed: bool,
}

/// `from` hears nothing of `about`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct RunningQuery {
    about: u32,
    from: u32,
}

#[derive(Clone, Copy, Debug)]
struct SeenEnd {
    rank: u32,
    found: FoundBy,
}

impl NodeDaemon {
    /// For ranks 0 to `ranks` - 1 of `job`, none of them started.
    pub fn new(job: Job, ranks: u32, rules: Rules) -> Self {
        NodeDaemon {
            job,
            ranks: RankTable::new(ranks),
            notifier: Notifier::new(job, ranks, rules.muted),
            results: Results::default(),
            hang_report: HangReport::default(),
            transport_report: TransportReport::new(rules.reports_transports),
            policy: ExitPolicy::new(rules),
            examined: VecDeque::new(),
            running_queries: BTreeSet::new(),
            seen_ends: VecDeque::new(),
            unreported: vec![],
            decided_at: Instant(0),
            dying_examined_at: Instant(0),
            over: None,
            effects: VecDeque::new(),
        }
    }

    /// The name of `rank`.
    pub fn peer(&self, rank: u32) -> Peer {
        Peer::new(self.job, rank)
    }

    /// The id of the process that is, or was, `rank`; 0 if none was started.
    pub fn process(&self, rank: u32) -> u32 {
        self.ranks.get(rank).process()
    }

    /// Whether the job outlives deaths.
    pub fn is_fault_tolerant(&self) -> bool {
        self.policy.rules().fault_tolerant
    }

    /// Whether the rank has neither left nor failed.
    pub fn is_open(&self, rank: u32) -> bool {
        self.ranks.get(rank).is_open()
    }

    /// The next effect to perform.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The ranks for which there may be a notice.
    pub fn due(&self) -> Vec<u32> {
        self.notifier.due()
    }

    /// The next notice for `rank`. When it has been sent, the step must be passed to [`on_sent`](NodeDaemon::on_sent).
    pub fn next_notice(&mut self, rank: u32) -> Option<(DaemonMessage, Step)> {
        self.notifier.next(rank)
    }

    /// When [`on_time`](NodeDaemon::on_time) has to be called at the latest. It may already have passed.
    pub fn next_deadline(&self) -> Option<Instant> {
        let decision = self.policy.next_deadline(&self.ranks, self.decided_at);
        let examination = self.dying().map(|(_, death)| self.examines_at(death)).min();
        decision.into_iter().chain(examination).chain(self.hang_report.deadline()).min()
    }

    /// The ranks that said that a fatal signal ends them, and whose process has not ended.
    fn dying(&self) -> impl Iterator<Item = (u32, &Death)> {
        let deaths = self.ranks.deaths();
        let dying =
            deaths.filter(|(_, record, death)| death.found == FoundBy::DyingMark && !record.has_ended());
        dying.map(|(rank, _, death)| (rank, death))
    }

    /// A dying process has had time to begin its core when it is examined.
    fn examines_at(&self, death: &Death) -> Instant {
        death.at.max(self.dying_examined_at) + ENDING_TIME_LIMIT
    }

    /// Has dying ranks examined, time and again: a debugger may let such a process run on, with the signal discarded.
    fn examine_dying(&mut self, now: Instant) {
        let due: Vec<u32> =
            self.dying().filter(|(_, death)| self.examines_at(death) <= now).map(|(rank, _)| rank).collect();
        if !due.is_empty() {
            self.dying_examined_at = now;
            self.effects.extend(due.into_iter().map(Effect::ExamineDying));
        }
    }

    /// When the job is over: the ranks that are dying by themselves, and may be writing their cores. None if the user asked for the end.
    pub fn spared(&self) -> Vec<u32> {
        if matches!(self.over, Some(JobEndReason::Asked | JobEndReason::Overdue)) {
            return vec![];
        }
        self.dying().map(|(rank, _)| rank).collect()
    }

    /// The line about the first death in a job that was ended for another reason than a death, if there is one to name.
    pub fn first_death(&self) -> Option<RankLine> {
        let worth_a_line = matches!(self.over, Some(JobEndReason::Aborted | JobEndReason::Overdue));
        worth_a_line.then(|| exit_policy::first_death(&self.ranks)).flatten()
    }
}

/// Inputs about processes.
impl NodeDaemon {
    /// The process of `rank` has been started.
    pub fn on_started(&mut self, rank: u32, process: u32) {
        self.ranks.started(rank, process);
    }

    /// Whether a process may join as `rank`.
    pub fn admit(&self, rank: u32) -> Result<(), HelloRefused> {
        self.ranks.admit(rank)
    }

    /// A process that was admitted is `rank` from now on.
    pub fn on_joined(&mut self, rank: u32, process: u32) {
        self.ranks.joined(rank, process);
        self.notifier.joined(rank);
    }

    /// The life word of `rank` is marked; `dying`: by the rank's own signal handler, before its core is written.
    pub fn on_life_marked(&mut self, rank: u32, dying: bool) {
        self.read_messages(rank, if dying { FoundBy::DyingMark } else { FoundBy::LifeWord });
    }

    /// A process of `rank` has ended.
    pub fn on_process_ended(&mut self, rank: u32, end: ProcessEnd) {
        match end {
            ProcessEnd::Child(ending) => self.ranks.child_ended(rank, ending),
            ProcessEnd::Wrapped(ending) => self.ranks.wrapped_ended(rank, ending),
        }
        if self.ranks.get(rank).is_lost() {
            self.read_messages(rank, FoundBy::Process);
        }
    }

    /// `rank` has closed its connection, and everything was read from it.
    pub fn on_connection_closed(&mut self, rank: u32, now: Instant) {
        self.fail(rank, FoundBy::Connection, now);
    }

    /// `rank` wrote to the node daemon what no correct rank writes.
    pub fn on_garbage(&mut self, rank: u32, now: Instant) {
        self.fail(rank, FoundBy::Garbage(None), now);
    }

    /// The process that [`Effect::Kill`] named was alive until it was killed.
    pub fn on_killed_alive(&mut self, rank: u32) {
        self.ranks.had_lived(rank);
    }

    /// Every message that `rank` had sent was passed in.
    pub fn on_messages_read(&mut self, rank: u32, now: Instant) {
        let seen = self.seen_ends.pop_front().expect("each ReadMessages is answered once");
        assert_eq!(seen.rank, rank, "effects are performed in order");
        self.fail(rank, seen.found, now);
        if let FoundBy::Question(from) = seen.found {
            self.notifier.again(from, rank);
        }
    }

    /// What polling the life word and the process of `rank` has shown.
    pub fn on_examined(&mut self, rank: u32, condition: Condition, now: Instant) {
        let Question { from, about, is_needed } =
            self.examined.pop_front().expect("each Examine is answered once");
        assert_eq!(about, rank, "effects are performed in order");
        match condition {
            Condition::Ended => self.read_messages(rank, FoundBy::Question(from)),
            Condition::Dying => {
                self.read_messages(rank, FoundBy::DyingMark);
                self.read_messages(rank, FoundBy::Question(from));
            }
            Condition::Alive if self.is_open(rank) && is_needed && self.is_open(from) => {
                self.on_needed(from, rank, now);
            }
            Condition::Alive if self.is_open(rank) => self.notifier.alive(from, rank),
            // The process lives, but has left MPI, or has failed and goes on without MPI.
            Condition::Alive => self.notifier.again(from, rank),
        }
    }

    /// Whether the process of `rank`, which said that a fatal signal ends it, runs on. Other ranks know it as failed: it is killed, since the
    /// job would wait for it (I1).
    pub fn on_dying_examined(&mut self, rank: u32, runs_on: bool) {
        if runs_on {
            self.effects.push_back(Effect::Kill(rank));
        }
    }

    /// Has the messages that `rank` sent before its end read before its failure is declared: it may have left.
    fn read_messages(&mut self, rank: u32, found: FoundBy) {
        self.seen_ends.push_back(SeenEnd { rank, found });
        self.effects.push_back(Effect::ReadMessages(rank));
    }

    /// Declares the failure of `rank`: final. The process is killed before any rank is notified: the caller performs effects
    /// before it takes notices. No effect on a rank that has left MPI, or has failed.
    fn fail(&mut self, rank: u32, found: FoundBy, now: Instant) {
        if !self.ranks.fail(rank, found, now) {
            return;
        }
        self.results.failed(rank);
        self.forget_running_queries(rank);
        self.effects.push_back(Effect::ForgetLife(rank));
        if found.is_killed() {
            self.effects.push_back(Effect::Kill(rank));
        }
        if self.policy.rules().reports_deaths && !self.policy.deaths_are_expected() {
            self.unreported.push(rank);
        }
        // If the death ends the job, no other rank is notified.
        if self.is_fault_tolerant() || self.ranks.is_harmless(rank) {
            self.notifier.failed(rank);
        }
    }
}

/// Inputs from ranks.
impl NodeDaemon {
    /// `rank` sent this message. A message that no correct rank sends is evidence against it.
    pub fn on_rank_message(&mut self, rank: u32, message: RankMessage, now: Instant) {
        let correct = match message {
            RankMessage::Abort(code) => {
                let lines = vec![RankLine { rank, words: sentences::job_aborted(code) }];
                self.end_job(JobEnd { code: exit_code(code), lines, reason: JobEndReason::Aborted });
                true
            }
            // Requests of a rank that has left or failed are ignored.
            _ if !self.ranks.get(rank).is_inside() => true,
            RankMessage::Publish(card, _) => self.on_publish(rank, card),
            RankMessage::Lookup(peer) => {
                self.on_other(rank, peer, |daemon, other| daemon.notifier.lookup(rank, other))
            }
            RankMessage::Refuse(peer, cause) => {
                self.on_other(rank, peer, |daemon, other| daemon.notifier.refuse(rank, other, cause))
            }
            RankMessage::Ask(peer, cause) => {
                self.on_other(rank, peer, |daemon, other| daemon.on_question(rank, other, cause, now))
            }
            RankMessage::LeaveResult(key, result) => {
                self.results.leave(rank, key, &result);
                true
            }
            RankMessage::RecallResult(key) => self.notifier.recalled(rank, key, self.results.recall(key)),
            RankMessage::Sits(place) => {
                self.on_place(rank, place, now);
                true
            }
            RankMessage::Running => {
                self.on_running(rank);
                true
            }
            RankMessage::Transport(part) => self.transport_report.on_part(rank, part, self.ranks.size()),
            RankMessage::Finalize => self.on_finalize(rank),
            RankMessage::GiveUp => {
                self.fail(rank, FoundBy::GaveUp, now);
                true
            }
            RankMessage::AbortSome(code, peers) => self.on_abort_some(rank, code, &peers, now),
            RankMessage::Hello(_) | RankMessage::OtherVersion(_) => false,
        };
        if !correct {
            self.on_garbage(rank, now);
        }
    }

    /// A message about another rank of this job. `false`: `peer` is not one.
    fn on_other(&mut self, rank: u32, peer: Peer, on: impl FnOnce(&mut Self, u32)) -> bool {
        let other = self.rank_of(peer).filter(|other| *other != rank);
        other.map(|other| on(self, other)).is_some()
    }

    fn rank_of(&self, peer: Peer) -> Option<u32> {
        let rank = peer.number();
        (peer == self.peer(rank) && rank < self.ranks.size()).then_some(rank)
    }

    fn on_publish(&mut self, rank: u32, card: Card) -> bool {
        let life_page = card.life.clone();
        let first = self.notifier.publish(rank, card);
        if let Some(life_page) = life_page.filter(|_| first) {
            self.effects.push_back(Effect::WatchLife(rank, life_page));
        }
        first
    }

    /// `rank` says where it is. All are asked if it is the first that has been blocked for too long.
    fn on_place(&mut self, rank: u32, place: Place, now: Instant) {
        let Place { is_blocked, seconds, what } = place;
        let what = what.chars().map(|each| if each.is_control() { '?' } else { each }).collect();
        if self.hang_report.on_call(rank, is_blocked, Call { what, seconds }, now) {
            let others = self.ranks.all().filter(|(other, record)| record.is_inside() && *other != rank);
            others.for_each(|(other, _)| self.notifier.where_are_you(other));
        }
    }

    /// A rank that writes garbage is fenced; for any other cause it is examined.
    fn on_question(&mut self, from: u32, about: u32, cause: Cause, now: Instant) {
        if cause == Cause::Garbage {
            self.fail(about, FoundBy::Garbage(Some(from)), now);
            self.notifier.again(from, about);
        } else {
            self.examine(Question { from, about, is_needed: cause == Cause::Refused });
        }
        if cause == Cause::Silent && self.ranks.get(about).is_inside() {
            self.running_queries.insert(RunningQuery { about, from });
            self.notifier.are_you_running(about, from);
        }
    }

    /// `rank` takes notices, so it is not stopped: others may not hear it because the way to it is broken. An answer that was under way when
    /// the question came counts as well; transports ask several times.
    fn on_running(&mut self, rank: u32) {
        let (answered, open) =
            core::mem::take(&mut self.running_queries).into_iter().partition(|query| query.about == rank);
        self.running_queries = open;
        let answered: BTreeSet<RunningQuery> = answered;
        answered.iter().for_each(|query| self.notifier.running(query.from, rank));
    }

    /// `rank` has ended: all are notified of that instead.
    fn forget_running_queries(&mut self, rank: u32) {
        self.running_queries.retain(|query| query.about != rank && query.from != rank);
    }

    fn examine(&mut self, question: Question) {
        self.effects.push_back(Effect::Examine(question.about));
        self.examined.push_back(question);
    }

    /// A message of a protocol among members is lost between these two, which cannot connect and are alive: one of them is fenced, after
    /// it was examined. Protocols need that what one member sends arrives, or one of the two has failed, in the view of all.
    fn on_needed(&mut self, from: u32, about: u32, now: Instant) {
        if self.notifier.at_fault(from, about) == about {
            self.fail(about, FoundBy::Unreachable(from), now);
            self.notifier.again(from, about);
        } else {
            self.examine(Question { from: about, about: from, is_needed: true });
        }
    }

    fn on_finalize(&mut self, rank: u32) -> bool {
        let correct = self.ranks.finalize(rank);
        if correct {
            self.effects.push_back(Effect::ForgetLife(rank));
            self.forget_running_queries(rank);
            // Before any rank can be notified: see `results`.
            self.results.finalized(rank);
            self.notifier.finalized(rank);
        }
        correct
    }

    /// `rank` ends these peers: itself first, if it is among them, so that the line for the user names it.
    fn on_abort_some(&mut self, rank: u32, code: i32, peers: &[Peer], now: Instant) -> bool {
        let ranks: Option<Vec<u32>> = peers.iter().map(|&peer| self.rank_of(peer)).collect();
        let Some(mut ranks) = ranks else { return false };
        ranks.sort_by_key(|each| *each != rank);
        for each in ranks {
            self.fail(each, FoundBy::Aborted { by: rank, code }, now);
        }
        true
    }
}

/// The end of the job.
impl NodeDaemon {
    /// A signal (SIGINT, SIGTERM or the like) asks the job to end: deaths from now on are expected.
    pub fn on_termination_signal(&mut self) {
        self.policy.expect_deaths();
    }

    /// `mpiexec` asks for the end of the job, or has ended. It determines the exit code itself.
    pub fn on_end_command(&mut self, reason: JobEndReason) {
        self.end_job(JobEnd { code: 1, lines: vec![], reason });
    }

    /// The packet of that step was sent to `rank`.
    pub fn on_sent(&mut self, rank: u32, step: Step) {
        self.notifier.sent(rank, step);
    }

    /// Reports deaths once it is known how the processes ended, and ends the job if it is over. Must also be called after each
    /// other input.
    pub fn on_time(&mut self, now: Instant) {
        self.decided_at = now;
        self.examine_dying(now);
        let ranks = &self.ranks;
        let effects = &mut self.effects;
        self.unreported.retain(|&rank| match sentences::report(ranks, rank) {
            Some(line) => {
                effects.push_back(Effect::Report(line));
                false
            }
            None => true,
        });
        let inside = self.ranks.all().filter(|(_, record)| record.is_inside()).map(|(rank, _)| rank);
        self.effects.extend(self.hang_report.lines(inside, now).map(Effect::Table));
        self.effects.extend(self.transport_report.lines(&self.ranks, false).map(Effect::Table));
        if let Some(exit) = self.policy.decide(&self.ranks, now) {
            let asked_by_user = self.policy.deaths_are_expected();
            let reason = if asked_by_user { JobEndReason::Asked } else { JobEndReason::Over };
            self.end_job(JobEnd { code: exit.code, lines: exit.lines, reason });
        }
    }

    /// Ends the job, unless it has been ended already for an earlier reason.
    fn end_job(&mut self, end: JobEnd) {
        if self.over.is_none() {
            self.over = Some(end.reason);
            self.effects.extend(self.transport_report.lines(&self.ranks, true).map(Effect::Table));
            self.effects.push_back(Effect::EndJob(end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Effect, NodeDaemon, ProcessEnd};
    use crate::Condition;
    use crate::ending::Ending;
    use crate::exit_policy::{ENDING_TIME_LIMIT, Rules};
    use mend_base::{Identity, Instant, Job, Peer};
    use mend_runtime::daemon_protocol::{DaemonMessage, RankMessage};
    use mend_runtime::transport_view::{TransportPart, TransportView};
    use mend_runtime::{RECALLS_MAX, ResultKey};
    use mend_transport::Cause;

    const NOW: Instant = Instant(0);
    const JOB: Job = Job(1);
    const KEY: ResultKey =
        ResultKey { identity: Identity { creator: Peer::new(JOB, 0), number: 16 }, protocol: 1, sequence: 5 };

    fn daemon() -> NodeDaemon {
        let mut daemon = NodeDaemon::new(JOB, 3, Rules::default());
        (0..3).for_each(|rank| daemon.on_started(rank, 100 + rank));
        (0..3).for_each(|rank| daemon.on_joined(rank, 100 + rank));
        daemon
    }

    fn say(daemon: &mut NodeDaemon, rank: u32, message: RankMessage) {
        daemon.on_rank_message(rank, message, NOW);
    }

    fn next_notice(daemon: &mut NodeDaemon, rank: u32) -> Option<DaemonMessage> {
        let (message, step) = daemon.next_notice(rank)?;
        daemon.on_sent(rank, step);
        Some(message)
    }

    fn recall(daemon: &mut NodeDaemon, rank: u32) -> Option<Vec<u8>> {
        say(daemon, rank, RankMessage::RecallResult(KEY));
        match next_notice(daemon, rank) {
            Some(DaemonMessage::Recalled(key, result)) if key == KEY => result,
            other => panic!("{other:?}"),
        }
    }

    // Trap 14, X-6.11
    #[test]
    fn a_rank_that_was_notified_of_a_departure_finds_the_results_of_the_departed() {
        let mut daemon = daemon();
        say(&mut daemon, 0, RankMessage::LeaveResult(KEY, vec![9]));
        assert_eq!(recall(&mut daemon, 1), None);
        say(&mut daemon, 0, RankMessage::Finalize);
        assert!(matches!(next_notice(&mut daemon, 1), Some(DaemonMessage::Finalized(_))));
        assert_eq!(recall(&mut daemon, 1), Some(vec![9]));
        // What a rank sends after it has left counts for nothing.
        say(&mut daemon, 0, RankMessage::LeaveResult(ResultKey { sequence: 6, ..KEY }, vec![8]));
        say(&mut daemon, 1, RankMessage::Finalize);
        assert!(matches!(next_notice(&mut daemon, 2), Some(DaemonMessage::Finalized(_))));
        assert_eq!(recall(&mut daemon, 2), Some(vec![9]));
    }

    fn killed(daemon: &mut NodeDaemon) -> Vec<u32> {
        let effects = core::iter::from_fn(|| daemon.next_effect());
        effects.filter_map(|effect| if let Effect::Kill(rank) = effect { Some(rank) } else { None }).collect()
    }

    #[test]
    fn of_two_ranks_that_cannot_connect_one_that_lives_is_killed_when_a_protocol_needs_both() {
        for (condition, expected) in [(Condition::Alive, vec![0]), (Condition::Dying, vec![])] {
            let mut daemon = daemon();
            let peer = |rank| Peer::new(JOB, rank);
            say(&mut daemon, 0, RankMessage::Refuse(peer(1), Cause::NoMemory));
            assert_eq!(killed(&mut daemon), []);
            say(&mut daemon, 1, RankMessage::Ask(peer(0), Cause::Refused));
            say(&mut daemon, 0, RankMessage::Ask(peer(1), Cause::Refused));
            let mut killed = Vec::new();
            while let Some(effect) = daemon.next_effect() {
                match effect {
                    Effect::Examine(0) => daemon.on_examined(0, condition, NOW),
                    Effect::Examine(rank) => daemon.on_examined(rank, Condition::Alive, NOW),
                    Effect::ReadMessages(rank) => daemon.on_messages_read(rank, NOW),
                    Effect::Kill(rank) => killed.push(rank),
                    _ => {}
                }
            }
            assert_eq!(killed, expected, "a rank that writes its core is not killed");
            for rank in [1, 2] {
                let notices: Vec<_> = core::iter::from_fn(|| next_notice(&mut daemon, rank)).collect();
                assert!(
                    matches!(notices.last(), Some(DaemonMessage::Failed(failed)) if *failed == peer(0)),
                    "{notices:?}"
                );
            }
        }
    }

    #[test]
    fn a_rank_that_needs_one_that_has_left_learns_that_and_nobody_is_killed() {
        let mut daemon = daemon();
        say(&mut daemon, 0, RankMessage::Finalize);
        assert!(matches!(next_notice(&mut daemon, 1), Some(DaemonMessage::Finalized(_))));
        say(&mut daemon, 1, RankMessage::Ask(Peer::new(JOB, 0), Cause::Refused));
        while let Some(effect) = daemon.next_effect() {
            assert!(!matches!(effect, Effect::Kill(_)), "{effect:?}");
            if let Effect::Examine(rank) = effect {
                daemon.on_examined(rank, Condition::Alive, NOW);
            }
        }
        assert!(matches!(next_notice(&mut daemon, 1), Some(DaemonMessage::Finalized(_))));
    }

    #[test]
    fn a_silent_rank_counts_as_running_once_it_has_answered_itself() {
        let mut daemon = daemon();
        let peer = |rank| Peer::new(JOB, rank);
        for from in [1, 2, 1] {
            say(&mut daemon, from, RankMessage::Ask(peer(0), Cause::Silent));
        }
        while let Some(effect) = daemon.next_effect() {
            assert!(matches!(effect, Effect::Examine(0)), "{effect:?}");
            daemon.on_examined(0, Condition::Alive, NOW);
        }
        let mut notices = |rank| -> Vec<String> {
            core::iter::from_fn(|| next_notice(&mut daemon, rank))
                .map(|notice| format!("{notice:?}"))
                .collect()
        };
        let about = |what: &str| vec![format!("{what}({:?})", peer(0))];
        assert_eq!(notices(0), [1, 2].map(|from| format!("AreYouRunning({:?})", peer(from))), "once each");
        assert_eq!([notices(1), notices(2)], [about("Alive"), about("Alive")], "it may be stopped");
        say(&mut daemon, 0, RankMessage::Running);
        let mut notices = |rank| -> Vec<String> {
            core::iter::from_fn(|| next_notice(&mut daemon, rank))
                .map(|notice| format!("{notice:?}"))
                .collect()
        };
        assert_eq!([notices(1), notices(2)], [about("Running"), about("Running")]);
        // Nobody has asked since.
        say(&mut daemon, 0, RankMessage::Running);
        assert!(next_notice(&mut daemon, 1).is_none());
    }

    #[test]
    fn of_a_silent_rank_that_ends_only_the_end_is_told() {
        let mut daemon = daemon();
        say(&mut daemon, 1, RankMessage::Ask(Peer::new(JOB, 0), Cause::Silent));
        say(&mut daemon, 0, RankMessage::Running);
        say(&mut daemon, 2, RankMessage::Ask(Peer::new(JOB, 0), Cause::Silent));
        say(&mut daemon, 0, RankMessage::Finalize);
        say(&mut daemon, 0, RankMessage::Running);
        let told: Vec<_> = core::iter::from_fn(|| next_notice(&mut daemon, 2)).collect();
        assert!(matches!(told[..], [DaemonMessage::Finalized(_)]), "{told:?}");
    }

    fn examined(daemon: &mut NodeDaemon) -> Vec<u32> {
        let effects = core::iter::from_fn(|| daemon.next_effect());
        let examined = effects.filter_map(|effect| match effect {
            Effect::ExamineDying(rank) => Some(rank),
            _ => None,
        });
        examined.collect()
    }

    #[test]
    fn a_rank_that_said_that_it_dies_is_examined_time_and_again_and_killed_when_it_runs_on() {
        let mut daemon = daemon();
        daemon.on_life_marked(1, true);
        daemon.on_messages_read(1, NOW);
        daemon.on_time(NOW);
        assert_eq!(examined(&mut daemon), []);
        let first = daemon.next_deadline().unwrap();
        assert_eq!(first, NOW + ENDING_TIME_LIMIT);
        daemon.on_time(first);
        assert_eq!(examined(&mut daemon), [1]);
        // It writes its core.
        daemon.on_dying_examined(1, false);
        assert!(daemon.next_effect().is_none());
        let second = daemon.next_deadline().unwrap();
        assert_eq!(second, first + ENDING_TIME_LIMIT);
        daemon.on_time(second);
        assert_eq!(examined(&mut daemon), [1]);
        daemon.on_dying_examined(1, true);
        assert!(matches!(daemon.next_effect(), Some(Effect::Kill(1))));
        daemon.on_process_ended(1, ProcessEnd::Child(Ending::Signalled(9)));
        assert_eq!(daemon.next_deadline(), None);
    }

    #[test]
    fn results_of_a_rank_that_failed_before_it_had_finalized_do_not_count() {
        let mut daemon = daemon();
        say(&mut daemon, 0, RankMessage::LeaveResult(KEY, vec![9]));
        daemon.on_life_marked(0, false);
        daemon.on_messages_read(0, NOW);
        assert!(matches!(next_notice(&mut daemon, 1), Some(DaemonMessage::Failed(_))));
        assert_eq!(recall(&mut daemon, 1), None);
    }

    #[test]
    fn results_that_are_read_after_the_end_of_their_rank_was_seen_count_if_it_had_finalized() {
        let mut daemon = daemon();
        daemon.on_life_marked(0, false);
        say(&mut daemon, 0, RankMessage::LeaveResult(KEY, vec![9]));
        assert!(next_notice(&mut daemon, 1).is_none());
        say(&mut daemon, 0, RankMessage::Finalize);
        daemon.on_messages_read(0, NOW);
        assert!(matches!(next_notice(&mut daemon, 1), Some(DaemonMessage::Finalized(_))));
        assert_eq!(recall(&mut daemon, 1), Some(vec![9]));
    }

    fn tables(daemon: &mut NodeDaemon) -> Vec<String> {
        let effects = core::iter::from_fn(|| daemon.next_effect());
        let tables =
            effects.filter_map(|effect| if let Effect::Table(lines) = effect { Some(lines) } else { None });
        tables.flatten().collect()
    }

    fn say_transports(daemon: &mut NodeDaemon, rank: u32) {
        let mut view = TransportView::default();
        view.add_reached("shm", 0..3);
        view.parts().for_each(|part| say(daemon, rank, RankMessage::Transport(part)));
    }

    #[test]
    fn the_transports_of_a_job_are_a_table_when_the_last_rank_has_said_its_own_or_has_died() {
        let mut daemon = daemon();
        for rank in [0, 1] {
            say_transports(&mut daemon, rank);
            say(&mut daemon, rank, RankMessage::Finalize);
            daemon.on_time(NOW);
            assert!(tables(&mut daemon).is_empty());
        }
        daemon.on_life_marked(2, false);
        daemon.on_messages_read(2, NOW);
        daemon.on_time(NOW);
        let lines = tables(&mut daemon);
        assert!(lines.iter().any(|line| line.contains("rank 2 said nothing")), "{lines:?}");
        daemon.on_time(NOW);
        assert!(tables(&mut daemon).is_empty(), "once for the job");
    }

    #[test]
    fn an_abort_prints_what_is_known_of_the_transports_before_it_ends_the_job() {
        let mut daemon = daemon();
        say_transports(&mut daemon, 0);
        say(&mut daemon, 1, RankMessage::Abort(3));
        assert!(matches!(daemon.next_effect(), Some(Effect::Table(lines)) if lines.len() > 3));
        assert!(matches!(daemon.next_effect(), Some(Effect::EndJob(_))));
    }

    #[test]
    fn a_rank_that_says_of_transports_what_no_correct_rank_says_has_failed() {
        let mut daemon = daemon();
        say_transports(&mut daemon, 0);
        assert!(next_notice(&mut daemon, 1).is_none());
        say(&mut daemon, 0, RankMessage::Transport(TransportPart::End));
        assert_eq!(killed(&mut daemon), [0]);
    }

    #[test]
    fn a_rank_that_asks_without_end_and_reads_no_answer_has_failed() {
        let mut daemon = daemon();
        for _ in 0..RECALLS_MAX {
            say(&mut daemon, 0, RankMessage::RecallResult(KEY));
        }
        assert!(next_notice(&mut daemon, 1).is_none());
        say(&mut daemon, 0, RankMessage::RecallResult(KEY));
        assert!(
            matches!(next_notice(&mut daemon, 1), Some(DaemonMessage::Failed(peer)) if peer.number() == 0)
        );
    }
}
