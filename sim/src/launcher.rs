// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulated launcher: the production [`NodeDaemon`], with the processes, sockets and life words that it watches made up
//! here. What a rank sends lies in its socket until the seed lets it be heard; what shows the end of a process (life word,
//! process, connection) is seen in any order; notices reach each rank when the seed says so, and two deaths in an order of
//! the rank's own, as several daemons would tell them.

mod runtime;

pub use runtime::FabricRuntime;

use crate::killer::{Killer, Manner};
use crate::oracle::job::{Fate, Ledger};
use crate::oracle::notices::NoticeOracle;
use mend_base::{Duration, Instant, Job, Peer, Random};
use mend_daemon::{Condition, Effect, Ending, JobEnd, NodeDaemon, ProcessEnd, Rules};
use mend_runtime::Notice;
use mend_runtime::daemon_protocol::{Answer, Request};
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
    /// The processes that the daemon has killed, and the cluster has not buried.
    killed: Vec<u32>,
    end: Option<JobEnd>,
    ledger: Ledger,
    notices: NoticeOracle,
    /// Who dies.
    pub killer: Rc<Killer>,
    /// Who writes garbage: what it says of others' garbage is not believed.
    pub liar: Option<u32>,
}

#[derive(Debug, Default)]
struct Process {
    state: ProcessState,
    joined: bool,
    published: bool,
    /// What it sent, and the daemon has not heard.
    sent: VecDeque<Request>,
    /// What shows its end, and the daemon has not seen.
    sights: Vec<Sight>,
    /// What it is told of itself, where its own messages go by the network too: not the daemon's business.
    own: VecDeque<Notice>,
    visible: VecDeque<Notice>,
    version: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum ProcessState {
    #[default]
    Runs,
    /// It runs another program, in which there is no MPI.
    WithoutMpi,
    /// It said that it dies, and writes its core.
    WritesCore,
    Ended,
}

/// What shows the end of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sight {
    LifeWord { dying: bool },
    Closed,
    Ended(Ending),
}

impl Launcher {
    /// For `size` processes of a job, all started.
    pub fn new(job: Job, size: u32) -> Rc<RefCell<Launcher>> {
        let rules = Rules::default();
        let mut launcher = Launcher {
            job,
            daemon: NodeDaemon::new(job, size, rules),
            rules,
            now: Instant(0),
            processes: (0..size).map(|_| Process::default()).collect(),
            killed: vec![],
            end: None,
            ledger: Ledger::new(size, rules),
            notices: NoticeOracle::new(size),
            killer: Killer::none(),
            liar: None,
        };
        launcher.set_rules(rules);
        Rc::new(RefCell::new(launcher))
    }

    /// What the command line says. Before anything happens.
    pub fn set_rules(&mut self, rules: Rules) {
        let size = self.size();
        self.rules = rules;
        self.daemon = NodeDaemon::new(self.job, size, rules);
        self.ledger = Ledger::new(size, rules);
        (0..size).for_each(|rank| self.daemon.on_started(rank, rank + 1));
    }

    fn size(&self) -> u32 {
        self.processes.len() as u32
    }

    /// The process says hello, and is welcomed.
    fn join(&mut self, rank: u32) {
        if !self.ledger.is_open(rank) {
            // Its end was seen before: a correct daemon turns it away.
            return assert!(
                self.daemon.admit(rank).is_err(),
                "rank {rank} is admitted, and is known to be dead"
            );
        }
        self.daemon.admit(rank).expect("the first process of a rank is admitted");
        self.daemon.on_joined(rank, rank + 1);
        self.processes[rank as usize].joined = true;
        self.ledger.joined(rank);
    }

    /// The process joins, cannot begin, and goes on without MPI.
    pub fn give_up(&mut self, rank: u32, random: &mut Random) {
        self.join(rank);
        self.send(rank, Request::GiveUp);
        let process = &mut self.processes[rank as usize];
        process.state = ProcessState::WithoutMpi;
        process.sights = vec![Sight::Closed, Sight::Ended(draw_exit(random))];
    }

    fn send(&mut self, rank: u32, request: Request) {
        self.processes[rank as usize].sent.push_back(request);
    }

    /// The program has come to its end.
    pub fn exit(&mut self, rank: u32, random: &mut Random) {
        let process = &mut self.processes[rank as usize];
        process.state = ProcessState::Ended;
        process.sights = vec![Sight::Closed, Sight::Ended(draw_exit(random))];
    }

    /// The death of the process has begun, in its manner.
    pub fn die(&mut self, rank: u32, manner: Manner) {
        if self.processes[rank as usize].state != ProcessState::Runs {
            return;
        }
        let said = self.said(rank);
        let process = &mut self.processes[rank as usize];
        let marked = process.published && said.is_none() && self.ledger.is_open(rank);
        let closed = process.joined.then_some(Sight::Closed);
        let mark = |dying| marked.then_some(Sight::LifeWord { dying });
        let (state, sights) = match manner {
            Manner::Ends(ending) => {
                (ProcessState::Ended, vec![mark(false), closed, Some(Sight::Ended(ending))])
            }
            // Its wrapper's exit code stays what it is: nothing of it shows but these.
            Manner::Execs if process.joined => (ProcessState::WithoutMpi, vec![mark(false), closed]),
            Manner::WritesCore if marked => (ProcessState::WritesCore, vec![mark(true)]),
            Manner::Aborts { code, everybody: true } if process.joined => {
                process.sent.push_back(Request::Abort(code));
                return;
            }
            Manner::Aborts { code, everybody: false } if process.joined && marked => {
                let peers = vec![Peer::new(self.job, rank)];
                process.sent.push_back(Request::AbortSome(code, peers));
                return;
            }
            _ => {
                let ending = Ending::Signalled(11);
                (ProcessState::Ended, vec![mark(false), closed, Some(Sight::Ended(ending))])
            }
        };
        process.state = state;
        process.sights = sights.into_iter().flatten().collect();
    }

    /// How many have died, of those that had not left.
    pub fn deaths(&self) -> u64 {
        self.ledger.deaths()
    }

    /// The processes that the daemon has killed since the last call.
    pub fn killed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.killed)
    }

    /// Whether the daemon has ended the job.
    pub fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Lets the daemon hear and see some of what there is, and the ranks some of their notices, as `random` decides; all of it
    /// in a hurry. How much that was.
    pub fn publish(&mut self, now: Instant, random: &mut Random, hurry: bool) -> u32 {
        self.now = self.now.max(now);
        if self.has_ended() {
            return 0;
        }
        let mut moved = 0;
        for rank in 0..self.size() {
            while !self.processes[rank as usize].sent.is_empty() && (hurry || random.once_in(2)) {
                self.hear_one(rank);
                self.perform();
                moved += 1;
            }
        }
        // Between what was heard and what is seen now: a rank leaves MPI before its process ends.
        self.settle();
        for rank in 0..self.size() {
            moved += self.see(rank, random, hurry);
        }
        self.settle();
        for rank in self.daemon.due() {
            while (hurry || random.once_in(3)) && self.deliver(rank, random) {
                moved += 1;
            }
        }
        for process in &mut self.processes {
            while !process.own.is_empty() && (hurry || random.once_in(3)) {
                process.visible.extend(process.own.pop_front());
                process.version = process.version.wrapping_add(1);
                moved += 1;
            }
        }
        if hurry && !self.has_ended() {
            self.notices.all_is_told(&self.ledger, &self.rules);
        }
        moved
    }

    /// Nothing of the job moves any more but its last processes: the daemon ends it, and says what an oracle says.
    pub fn conclude(&mut self, random: &mut Random) {
        for round in 0..4 {
            if self.has_ended() {
                break;
            }
            // At first no time passes: then the daemon waits no longer for how a process ended.
            let later = self.now + Duration::from_millis(2_000 * round);
            self.publish(later, random, true);
        }
        let end = self.end.take().expect("all processes have ended, and the job goes on");
        self.ledger.ends_right(&end);
    }

    /// The daemon takes the next packet of a rank.
    fn hear_one(&mut self, rank: u32) {
        let Some(request) = self.processes[rank as usize].sent.pop_front() else { return };
        self.ledger.on_request(rank, &request);
        self.notices.on_request(rank, &request, &self.ledger);
        self.daemon.on_request(rank, request, self.now);
    }

    /// The daemon sees some of what shows the end of a process.
    fn see(&mut self, rank: u32, random: &mut Random, hurry: bool) -> u32 {
        let mut seen = 0;
        while !self.processes[rank as usize].sights.is_empty() && (hurry || random.once_in(3)) {
            let sights = &mut self.processes[rank as usize].sights;
            let sight = sights.swap_remove(random.below(sights.len() as u64) as usize);
            // Other threads of one that dies may still run: until then it has not ended, and its connection is open.
            if sight.is_last() && self.lingers(rank) {
                self.processes[rank as usize].sights.push(sight);
                break;
            }
            self.on_sight(rank, sight);
            seen += 1;
        }
        seen
    }

    fn lingers(&self, rank: u32) -> bool {
        self.killer.is_declared(rank) && !self.killer.is_dead(rank)
    }

    fn on_sight(&mut self, rank: u32, sight: Sight) {
        match sight {
            Sight::LifeWord { dying } => {
                self.daemon.on_life_marked(rank, dying);
                self.perform();
                self.ledger.on_end_seen(rank, self.said(rank));
                if dying {
                    let core = [Sight::Closed, Sight::Ended(Ending::Signalled(6))];
                    self.processes[rank as usize].sights.extend(core);
                }
            }
            Sight::Closed => {
                while !self.processes[rank as usize].sent.is_empty() {
                    self.hear_one(rank);
                }
                self.ledger.on_end_seen(rank, None);
                self.daemon.on_connection_closed(rank, self.now);
                self.perform();
            }
            Sight::Ended(ending) => {
                self.processes[rank as usize].state = ProcessState::Ended;
                self.ledger.on_process_ended(rank, ending);
                self.daemon.on_process_ended(rank, ProcessEnd::Child(ending));
                self.perform();
                self.ledger.on_end_seen(rank, self.said(rank));
            }
        }
    }

    /// What the rank has said of its end, and the daemon has not heard.
    fn said(&self, rank: u32) -> Option<Fate> {
        self.processes[rank as usize].sent.iter().find_map(|request| match request {
            Request::Finalize => Some(Fate::Left),
            Request::GiveUp => Some(Fate::GaveUp),
            _ => None,
        })
    }

    /// Performs what the daemon wants done.
    fn perform(&mut self) {
        while let Some(effect) = self.daemon.next_effect() {
            match effect {
                Effect::WatchLife(..) | Effect::ForgetLife(_) => {}
                Effect::Examine(rank) => {
                    let condition = self.condition(rank);
                    self.daemon.on_examined(rank, condition);
                }
                Effect::HearOut(rank) => {
                    while !self.processes[rank as usize].sent.is_empty() {
                        self.hear_one(rank);
                    }
                    self.ledger.on_end_seen(rank, None);
                    self.daemon.on_heard_out(rank, self.now);
                }
                Effect::Kill(rank) => self.kill(rank),
                Effect::Report(line) => self.ledger.on_report(&line),
                Effect::EndJob(end) => {
                    self.ledger.may_end(&end);
                    self.end = Some(end);
                }
            }
        }
    }

    fn condition(&self, rank: u32) -> Condition {
        match self.processes[rank as usize].state {
            ProcessState::WritesCore => Condition::Dying,
            ProcessState::Ended => Condition::Ended,
            // exec has marked its life word.
            ProcessState::WithoutMpi if self.processes[rank as usize].published => Condition::Ended,
            ProcessState::Runs | ProcessState::WithoutMpi => Condition::Lives,
        }
    }

    /// SIGKILL to the process.
    fn kill(&mut self, rank: u32) {
        let fate = self.ledger.fate(rank);
        let process = &mut self.processes[rank as usize];
        assert!(process.state != ProcessState::WritesCore, "rank {rank} is killed, and writes its core");
        assert!(fate != Some(Fate::GaveUp), "rank {rank} is killed, and only goes on without MPI");
        if process.state == ProcessState::Ended {
            return;
        }
        let innocent = fate.is_none_or(|fate| fate == Fate::Left);
        assert!(!innocent, "rank {rank} is killed, and has done nothing");
        let accused = fate == Some(Fate::Garbage);
        assert!(!accused || self.liar == Some(rank), "rank {rank} is accused, and innocent");
        process.state = ProcessState::Ended;
        process.sights = vec![Sight::Closed, Sight::Ended(Ending::Signalled(9))];
        process.sent.clear();
        self.killer.end(rank);
        self.killed.push(rank);
        self.ledger.on_killed(rank);
        self.daemon.on_killed_alive(rank);
    }

    /// The daemon decides what can be decided now.
    fn settle(&mut self) {
        if self.has_ended() {
            return;
        }
        self.daemon.on_time(self.now);
        self.perform();
        let stopped = |rank: u32| {
            matches!(self.processes[rank as usize].state, ProcessState::Ended | ProcessState::WritesCore)
        };
        self.ledger.dead_are_killed(stopped);
        self.ledger.is_over_in_time(self.end.is_some());
    }

    /// The next packet for a rank, if there is one.
    fn deliver(&mut self, rank: u32, random: &mut Random) -> bool {
        let Some((answer, step)) = self.daemon.next_notice(rank) else { return false };
        self.daemon.on_sent(rank, step);
        for notice in notices(answer) {
            self.notices.on_delivered(rank, &notice, &self.ledger, &self.rules);
            let process = &mut self.processes[rank as usize];
            process.visible.push_back(notice);
            process.version = process.version.wrapping_add(1);
            let last = process.visible.len() - 1;
            if last > 0 && random.once_in(2) && both_fail(&process.visible[last - 1], &process.visible[last])
            {
                mend_base::reach!("sim.launcher: two deaths in another order");
                process.visible.swap(last - 1, last);
            }
        }
        true
    }
}

impl Sight {
    /// Whether no thread of the process runs once this is seen.
    fn is_last(self) -> bool {
        matches!(self, Sight::Closed | Sight::Ended(_))
    }
}

fn both_fail(a: &Notice, b: &Notice) -> bool {
    matches!((a, b), (Notice::Failed(a), Notice::Failed(b)) if a != b)
}

/// As the client of the daemon has it.
fn notices(answer: Answer) -> Vec<Notice> {
    match answer {
        Answer::Contact(peer, card) => vec![Notice::Contact { peer, card }],
        Answer::Refused(peer, cause) => vec![Notice::Refused { peer, cause }],
        Answer::Finalized(peers) => peers.into_iter().map(Notice::Finalized).collect(),
        Answer::Failed(peer) => vec![Notice::Failed(peer)],
        Answer::Alive(peer) => vec![Notice::Alive(peer)],
        Answer::JobAborted(code) => vec![Notice::JobAborted { code }],
        Answer::Welcome(_) | Answer::TurnedAway(_) => panic!("{answer:?} is no notice"),
    }
}

/// Most programs end well.
fn draw_exit(random: &mut Random) -> Ending {
    Ending::Exited(if random.once_in(4) { random.below(256) as i32 } else { 0 })
}
