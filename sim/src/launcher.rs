// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulated launcher: the production [`NodeDaemon`] with simulated processes, sockets and life words. The seed decides
//! when the node daemon reads the messages of a rank, in which order it gets the evidence of the end of a process (life
//! word, process, connection), and when each rank gets its notices. A rank may get the notices of two failures in another
//! order than other ranks, as it would in a job with several node daemons.

mod runtime;

pub use runtime::SimRuntime;

use crate::killer::{Killer, Manner};
use crate::oracle::job::{JobOracle, RankEnd};
use crate::oracle::notices::NoticeOracle;
use crate::rank_set::RankSet;
use mend_base::{Duration, Instant, Job, Peer, Random};
use mend_daemon::{Condition, Effect, Ending, JobEnd, NodeDaemon, ProcessEnd, Rules};
use mend_runtime::Notice;
use mend_runtime::daemon_protocol::{DaemonMessage, RankMessage};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// The launcher of one job.
#[derive(Debug)]
pub struct Launcher {
    job: Job,
    daemon: NodeDaemon,
    rules: Rules,
    now: Instant,
    processes: Vec<Process>,
    /// The processes that may have unread requests, evidence or answers about themselves.
    busy: RankSet,
    /// The processes that the node daemon has killed since the last [`Launcher::take_killed`].
    killed: Vec<u32>,
    /// How the node daemon has ended the job.
    end: Option<JobEnd>,
    job_oracle: JobOracle,
    notice_oracle: NoticeOracle,
    /// The planned deaths.
    pub killer: Rc<Killer>,
    /// The rank that writes garbage. What others write may look like garbage to it, so its reports of garbage are dropped.
    pub garbage_writer: Option<u32>,
    /// Ranks read the life words of the others.
    pub lives_are_read: bool,
    /// Each rank gets its notices up to so many times later than usual; 0: none.
    pub late_notices: u64,
}

/// A simulated process and its socket.
#[derive(Debug, Default)]
struct Process {
    state: ProcessState,
    joined: bool,
    published: bool,
    /// Requests in the socket, which the node daemon has not read.
    unread: VecDeque<RankMessage>,
    /// Evidence of its end that the node daemon has not got.
    evidence: Vec<EndEvidence>,
    /// Answers about the process itself, which do not come from the node daemon. Needed where its messages to itself go by the
    /// network.
    self_notices: VecDeque<Notice>,
    /// The kernel has marked its life word, or the process has.
    life_is_marked: bool,
    /// Notices that its engine can take.
    notices: VecDeque<Notice>,
    /// See [`mend_runtime::Runtime::notice_version`].
    version: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum ProcessState {
    #[default]
    Runs,
    /// It has called exec, or goes on after a failed MPI_Init.
    WithoutMpi,
    /// It has marked its life word as dying, and writes its core.
    WritesCore,
    Ended,
}

/// Evidence that a process has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EndEvidence {
    LifeWordMarked { dying: bool },
    ConnectionClosed,
    ProcessEnded(Ending),
}

impl Launcher {
    /// For a job of `size` processes, all of them started.
    pub fn new(job: Job, size: u32) -> Rc<RefCell<Launcher>> {
        let rules = Rules::default();
        let mut launcher = Launcher {
            job,
            daemon: NodeDaemon::new(job, size, rules),
            rules,
            now: Instant(0),
            processes: (0..size).map(|_| Process::default()).collect(),
            busy: RankSet::default(),
            killed: vec![],
            end: None,
            job_oracle: JobOracle::new(size, rules),
            notice_oracle: NoticeOracle::new(size),
            killer: Killer::none(),
            garbage_writer: None,
            lives_are_read: false,
            late_notices: 0,
        };
        launcher.set_rules(rules);
        Rc::new(RefCell::new(launcher))
    }

    /// Sets what the command line of the job requires. Must be called before any process joins.
    pub fn set_rules(&mut self, rules: Rules) {
        let size = self.size();
        self.rules = rules;
        self.daemon = NodeDaemon::new(self.job, size, rules);
        self.job_oracle = JobOracle::new(size, rules);
        (0..size).for_each(|rank| self.daemon.on_started(rank, rank + 1));
    }

    fn size(&self) -> u32 {
        self.processes.len() as u32
    }

    fn process(&mut self, rank: u32) -> &mut Process {
        self.busy.insert(rank);
        &mut self.processes[rank as usize]
    }

    /// The next busy process from `rank` on.
    fn next_busy(&mut self, rank: u32) -> Option<u32> {
        let mut first = rank;
        while let Some(found) = self.busy.next_from(first) {
            let process = &self.processes[found as usize];
            if !(process.unread.is_empty() && process.evidence.is_empty() && process.self_notices.is_empty())
            {
                return Some(found);
            }
            self.busy.remove(found);
            first = found + 1;
        }
        None
    }

    /// The number of ranks that have failed.
    pub fn deaths(&self) -> u64 {
        self.job_oracle.deaths()
    }

    /// The processes that the node daemon has killed since the last call.
    pub fn take_killed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.killed)
    }

    /// Whether the node daemon has ended the job.
    pub fn has_ended(&self) -> bool {
        self.end.is_some()
    }
}

/// What processes do.
impl Launcher {
    /// The process joins the job. If the node daemon knows that the rank has ended, it must refuse.
    fn join(&mut self, rank: u32) {
        if !self.job_oracle.is_open(rank) {
            let refused = self.daemon.admit(rank).is_err();
            return assert!(refused, "rank {rank} has ended, and the node daemon admits it");
        }
        self.daemon.admit(rank).expect("the first process of a rank is admitted");
        self.daemon.on_joined(rank, rank + 1);
        self.process(rank).joined = true;
        self.job_oracle.on_joined(rank);
    }

    /// The MPI_Init of the process fails after it has joined; the process goes on without MPI.
    pub fn give_up(&mut self, rank: u32, random: &mut Random) {
        self.join(rank);
        self.send(rank, RankMessage::GiveUp);
        let process = self.process(rank);
        process.state = ProcessState::WithoutMpi;
        process.evidence =
            vec![EndEvidence::ConnectionClosed, EndEvidence::ProcessEnded(draw_ending(random))];
    }

    fn send(&mut self, rank: u32, message: RankMessage) {
        self.process(rank).unread.push_back(message);
    }

    /// The process exits after its program has ended.
    pub fn exit(&mut self, rank: u32, random: &mut Random) {
        let process = self.process(rank);
        process.state = ProcessState::Ended;
        process.evidence =
            vec![EndEvidence::ConnectionClosed, EndEvidence::ProcessEnded(draw_ending(random))];
    }

    /// The death of the process begins. A manner that is not possible at this time becomes a death by SIGSEGV without a core.
    pub fn begin_death(&mut self, rank: u32, manner: Manner) {
        if self.processes[rank as usize].state != ProcessState::Runs {
            return;
        }
        let unread_end = self.unread_end(rank);
        let is_open = self.job_oracle.is_open(rank);
        let peer = Peer::new(self.job, rank);
        let process = self.process(rank);
        // The kernel marks a life word only while it is locked: until MPI_Finalize.
        let has_life_word = process.published && unread_end.is_none() && is_open;
        let mark = |dying| has_life_word.then_some(EndEvidence::LifeWordMarked { dying });
        let closed = process.joined.then_some(EndEvidence::ConnectionClosed);
        let ended = |ending| vec![mark(false), closed, Some(EndEvidence::ProcessEnded(ending))];
        let (state, evidence) = match manner {
            Manner::Ends(ending) => (ProcessState::Ended, ended(ending)),
            // The process goes on with another program, so no evidence says that it has ended.
            Manner::Execs if process.joined => (ProcessState::WithoutMpi, vec![mark(false), closed]),
            Manner::WritesCore if has_life_word => (ProcessState::WritesCore, vec![mark(true)]),
            Manner::Aborts { code, everybody: true } if process.joined => {
                return process.unread.push_back(RankMessage::Abort(code));
            }
            Manner::Aborts { code, everybody: false } if process.joined && has_life_word => {
                return process.unread.push_back(RankMessage::AbortSome(code, vec![peer]));
            }
            _ => (ProcessState::Ended, ended(Ending::Signalled(11))),
        };
        process.state = state;
        process.evidence = evidence.into_iter().flatten().collect();
        let is_mark = |evidence: &EndEvidence| matches!(evidence, EndEvidence::LifeWordMarked { .. });
        process.life_is_marked = process.evidence.iter().any(is_mark);
    }

    /// The end of the rank that follows from a message which the node daemon has not read.
    fn unread_end(&self, rank: u32) -> Option<RankEnd> {
        self.processes[rank as usize].unread.iter().find_map(|message| match message {
            RankMessage::Finalize => Some(RankEnd::Left),
            RankMessage::GiveUp => Some(RankEnd::GaveUp),
            _ => None,
        })
    }
}

/// The node daemon's event loop.
impl Launcher {
    /// Gives the node daemon some of the unread messages and of the evidence, and the ranks some of their notices, as `random`
    /// decides; with `all` everything. Returns how many of them.
    pub fn advance(&mut self, now: Instant, random: &mut Random, all: bool) -> u32 {
        self.now = self.now.max(now);
        if self.has_ended() {
            return 0;
        }
        let (mut moved, mut next) = (0, 0);
        while let Some(rank) = self.next_busy(next) {
            while !self.processes[rank as usize].unread.is_empty() && (all || random.once_in(2)) {
                self.read_message(rank);
                self.perform();
                moved += 1;
            }
            next = rank + 1;
        }
        // The messages have effect before the evidence: a rank finalizes before its process ends.
        self.decide();
        next = 0;
        while let Some(rank) = self.next_busy(next) {
            moved += self.give_evidence(rank, random, all);
            next = rank + 1;
        }
        self.decide();
        for rank in self.daemon.due() {
            if !all && self.is_late(rank, random) {
                continue;
            }
            while (all || random.once_in(3)) && self.send_notice(rank, random) {
                moved += 1;
            }
        }
        next = 0;
        while let Some(rank) = self.next_busy(next) {
            let process = &mut self.processes[rank as usize];
            while !process.self_notices.is_empty() && (all || random.once_in(3)) {
                process.notices.extend(process.self_notices.pop_front());
                process.version = process.version.wrapping_add(1);
                moved += 1;
            }
            next = rank + 1;
        }
        if all && !self.has_ended() {
            self.notice_oracle.assert_all_notified(&self.job_oracle, &self.rules);
        }
        moved
    }

    /// Whether a rank gets no notices now, because they are late. Each rank has its own delay.
    fn is_late(&self, rank: u32, random: &mut Random) -> bool {
        let delay = (u64::from(rank) * 31 + self.late_notices * 17) % (self.late_notices + 1);
        delay > 1 && !random.once_in(delay)
    }

    /// To be called when all programs have ended. Asserts that the node daemon ends the job as the oracle requires.
    pub fn finish(&mut self, random: &mut Random) {
        for round in 0..4 {
            if self.has_ended() {
                break;
            }
            // In the first round no time passes. In later ones the time limits of the node daemon expire.
            let later = self.now + Duration::from_millis(2_000 * round);
            self.advance(later, random, true);
        }
        let end =
            self.end.take().expect("all processes have ended, and the node daemon has not ended the job");
        self.job_oracle.assert_job_end(&end);
    }

    /// The node daemon reads the next message of a rank.
    fn read_message(&mut self, rank: u32) {
        let Some(message) = self.process(rank).unread.pop_front() else { return };
        self.job_oracle.on_rank_message(rank, &message);
        self.notice_oracle.on_rank_message(rank, &message, &self.job_oracle);
        self.daemon.on_rank_message(rank, message, self.now);
    }

    fn read_all_messages(&mut self, rank: u32) {
        while !self.processes[rank as usize].unread.is_empty() {
            self.read_message(rank);
        }
    }

    /// The node daemon gets some of the evidence of the end of a process, in any order. Returns how much of it.
    fn give_evidence(&mut self, rank: u32, random: &mut Random, all: bool) -> u32 {
        let mut given = 0;
        while !self.processes[rank as usize].evidence.is_empty() && (all || random.once_in(3)) {
            let evidence = &mut self.process(rank).evidence;
            let next = evidence.swap_remove(random.below(evidence.len() as u64) as usize);
            if next.means_no_thread_runs() && self.is_dying(rank) {
                self.process(rank).evidence.push(next);
                break;
            }
            self.on_evidence(rank, next);
            given += 1;
        }
        given
    }

    /// Whether the death of the process has begun, and other threads of it still run.
    fn is_dying(&self, rank: u32) -> bool {
        self.killer.death_has_begun(rank) && !self.killer.is_dead(rank)
    }

    fn on_evidence(&mut self, rank: u32, evidence: EndEvidence) {
        match evidence {
            EndEvidence::LifeWordMarked { dying } => {
                self.daemon.on_life_marked(rank, dying);
                self.perform();
                self.job_oracle.on_end_evidence(rank, self.unread_end(rank));
                if dying {
                    let core_is_written =
                        [EndEvidence::ConnectionClosed, EndEvidence::ProcessEnded(Ending::Signalled(6))];
                    self.process(rank).evidence.extend(core_is_written);
                }
            }
            EndEvidence::ConnectionClosed => {
                self.read_all_messages(rank);
                self.job_oracle.on_end_evidence(rank, None);
                self.daemon.on_connection_closed(rank, self.now);
                self.perform();
            }
            EndEvidence::ProcessEnded(ending) => {
                self.process(rank).state = ProcessState::Ended;
                self.job_oracle.on_process_ended(rank, ending);
                self.daemon.on_process_ended(rank, ProcessEnd::Child(ending));
                self.perform();
                self.job_oracle.on_end_evidence(rank, self.unread_end(rank));
            }
        }
    }

    /// Performs the effects of the node daemon.
    fn perform(&mut self) {
        while let Some(effect) = self.daemon.next_effect() {
            match effect {
                Effect::WatchLife(..) | Effect::ForgetLife(_) => {}
                Effect::Examine(rank) => {
                    let condition = self.condition(rank);
                    self.daemon.on_examined(rank, condition, self.now);
                    if condition == Condition::Alive && !self.daemon.is_open(rank) {
                        self.job_oracle.on_fenced(rank);
                    }
                }
                Effect::ReadMessages(rank) => {
                    self.read_all_messages(rank);
                    self.job_oracle.on_end_evidence(rank, None);
                    self.daemon.on_messages_read(rank, self.now);
                }
                // No simulated process goes on after it has said that it dies.
                Effect::ExamineDying(rank) => self.daemon.on_dying_examined(rank, false),
                Effect::Kill(rank) => self.kill(rank),
                // No rank of a simulated job has the parameters.
                Effect::Table(lines) => panic!("a report of a hang, or about transports: {lines:?}"),
                Effect::Report(line) => self.job_oracle.on_report(&line),
                Effect::EndJob(end) => {
                    self.job_oracle.assert_may_end(&end);
                    self.end = Some(end);
                }
            }
        }
    }

    /// What the node daemon finds when it polls the life word and the process of a rank.
    fn condition(&self, rank: u32) -> Condition {
        let process = &self.processes[rank as usize];
        match process.state {
            ProcessState::WritesCore => Condition::Dying,
            ProcessState::Ended => Condition::Ended,
            // The kernel marks the life word at exec.
            ProcessState::WithoutMpi if process.published => Condition::Ended,
            ProcessState::Runs | ProcessState::WithoutMpi => Condition::Alive,
        }
    }

    /// The node daemon sends SIGKILL to the process. Asserts that there is a reason for that.
    fn kill(&mut self, rank: u32) {
        let end = self.job_oracle.end_of(rank);
        let state = self.processes[rank as usize].state;
        assert!(state != ProcessState::WritesCore, "rank {rank} is killed while it writes its core");
        assert!(end != Some(RankEnd::GaveUp), "rank {rank} is killed, though it only goes on without MPI");
        if state == ProcessState::Ended {
            return;
        }
        let has_failed = end.is_some_and(|end| end != RankEnd::Left);
        assert!(has_failed, "rank {rank} is killed, though it has not failed");
        let wrote_garbage = end != Some(RankEnd::Garbage) || self.garbage_writer == Some(rank);
        assert!(wrote_garbage, "rank {rank} is killed for garbage, though it wrote none");
        let process = self.process(rank);
        process.state = ProcessState::Ended;
        process.evidence =
            vec![EndEvidence::ConnectionClosed, EndEvidence::ProcessEnded(Ending::Signalled(9))];
        process.unread.clear();
        self.killer.set_dead(rank);
        self.killed.push(rank);
        self.job_oracle.on_killed_alive(rank);
        self.daemon.on_killed_alive(rank);
    }

    /// The node daemon makes the decisions that depend on time. Asserts that none of them is missing.
    fn decide(&mut self) {
        if self.has_ended() {
            return;
        }
        self.daemon.on_time(self.now);
        self.perform();
        let stopped = |rank: u32| {
            matches!(self.processes[rank as usize].state, ProcessState::Ended | ProcessState::WritesCore)
        };
        self.job_oracle.assert_failed_have_stopped(stopped);
        self.job_oracle.assert_ended_in_time(self.end.is_some());
    }

    /// The node daemon sends the next packet to a rank. False where there is none.
    fn send_notice(&mut self, rank: u32, random: &mut Random) -> bool {
        let Some((message, step)) = self.daemon.next_notice(rank) else { return false };
        self.daemon.on_sent(rank, step);
        if let DaemonMessage::AreYouRunning(_) = message {
            if self.processes[rank as usize].state != ProcessState::Runs {
                return true;
            }
            // The production client answers before the engine gets the notice.
            self.send(rank, RankMessage::Running);
        }
        for notice in notices(message) {
            self.notice_oracle.on_notice(rank, &notice, &self.job_oracle, &self.rules);
            let process = self.process(rank);
            process.notices.push_back(notice);
            process.version = process.version.wrapping_add(1);
            let last = process.notices.len() - 1;
            if last > 0
                && random.once_in(2)
                && are_two_failures(&process.notices[last - 1], &process.notices[last])
            {
                mend_base::reach!("sim.launcher: two failures in another order");
                process.notices.swap(last - 1, last);
            }
        }
        true
    }
}

impl EndEvidence {
    /// Whether no thread of the process runs when there is this evidence.
    fn means_no_thread_runs(self) -> bool {
        matches!(self, EndEvidence::ConnectionClosed | EndEvidence::ProcessEnded(_))
    }
}

fn are_two_failures(a: &Notice, b: &Notice) -> bool {
    matches!((a, b), (Notice::Failed(a), Notice::Failed(b)) if a != b)
}

/// The notices in one packet of the node daemon, as the production client decodes it.
fn notices(message: DaemonMessage) -> Vec<Notice> {
    match message {
        DaemonMessage::Contact(peer, card, _) => vec![Notice::Contact { peer, card }],
        DaemonMessage::Refused(peer, cause) => vec![Notice::Refused { peer, cause }],
        DaemonMessage::Finalized(peers) => peers.into_iter().map(Notice::Finalized).collect(),
        DaemonMessage::Failed(peer) => vec![Notice::Failed(peer)],
        DaemonMessage::Alive(peer) => vec![Notice::Alive(peer)],
        DaemonMessage::Running(peer) => vec![Notice::Running(peer)],
        DaemonMessage::AreYouRunning(peer) => vec![Notice::Unheard(peer)],
        DaemonMessage::Recalled(key, result) => vec![Notice::Recalled { key, result }],
        DaemonMessage::WhereAreYou => vec![Notice::WhereAreYou],
        DaemonMessage::JobAborted(code) => vec![Notice::JobAborted { code }],
        DaemonMessage::Welcome(_) | DaemonMessage::HelloRefused(_) => panic!("{message:?} is no notice"),
    }
}

/// The ending of a program that is not killed: mostly with exit code 0.
fn draw_ending(random: &mut Random) -> Ending {
    Ending::Exited(if random.once_in(4) { random.below(256) as i32 } else { 0 })
}
