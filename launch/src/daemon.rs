// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The node daemon: the node's daemon. Parent of all ranks of the job; one thread, one loop.
//!
//! [`serve`] hears ranks, [`tell`] answers them, [`life`] sees who dies, [`watch`] knows how their processes fare, [`kill`] ends
//! them, [`exit`] says what that means for the job. This file lets them meet. The way of a death:
//!
//! ```text
//!   life word marked, process ended, connection closed ─┐
//!   a rank asks, and so it is ──────────────────────────┼──▶ its last words are heard ──▶ killed, to be sure ──▶ told to all
//!   garbage, abort_some ────────────────────────────────┘    (it may have left)          (not who writes a core)
//! ```

pub mod exit_policy;
pub mod kill;
pub mod life;
pub mod notifier;
pub mod serve;
pub mod watch;

use crate::arguments::{App, Job};
use crate::control::{Order, Report, Told, hear, tell as report};
use crate::signals::{self, Meaning};
use crate::{Failure, spawn};
use exit_policy::{Exit, Found, Rules};
use life::{LifeWatch, Means, WatchError};
use mend_base::Peer;
use mend_runtime::daemon_protocol::{Request, TurnedAway, Welcome};
use mend_runtime::draw;
use mend_runtime::environment::{Address, LIFE_WATCH, MUTED};
use mend_runtime::exit_code;
use mend_segment::LifeState;
use mend_transport::{Card, Cause};
use notifier::Notifier;
use rustix::event::{Timespec, epoll};
use rustix::process::Signal;
use serve::Desk;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use watch::Watch;

/// Runs the job as its node daemon. The socket to `mpiexec` is our standard input.
pub fn run(job: Job) -> Result<u8, Failure> {
    let control = spawn::take_standard_input().map_err(Failure::System)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(Failure::system)?;
    // For those who look at the process table; without it the name is that of /proc/self/exe.
    let _ = rustix::thread::set_name(c"mend-node_daemon");
    let mut node_daemon = NodeDaemon::new(job, control.as_fd())?;
    let over = match node_daemon.start().and_then(|()| node_daemon.keep()) {
        Ok(over) => over,
        Err(failure) => Over { code: 1, lines: vec![format!("mpiexec: {failure}")], why: Why::Judged },
    };
    // The connections stay until all are dead: a rank that sees one close would complain of it.
    let dying = if over.why.is_asked_for() { vec![] } else { node_daemon.watch.dying() };
    let left = kill::kill_all(&dying, |pid, ending| node_daemon.watch.note(pid, ending));
    let death = over.why.may_follow_a_death().then(|| node_daemon.first_death()).flatten();
    let mismatch = node_daemon.mismatch.take();
    drop(node_daemon);
    // If mpiexec is gone, nobody is left to hear it.
    for line in mismatch.into_iter().chain(death).chain(over.lines).chain(kill::immortals(&left)) {
        report(control.as_fd(), &Report::Line(line), &[]);
    }
    report(control.as_fd(), &Report::Ended(over.code), &[]);
    Ok(0)
}

/// How the job ended.
#[derive(Debug)]
struct Over {
    code: u8,
    lines: Vec<String>,
    why: Why,
}

/// Why a job is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    /// All have ended, or it cannot go on; what is to be said is.
    Judged,
    /// A rank wants it.
    Aborted,
    /// The user wants it.
    Asked,
    /// It takes too long.
    Overdue,
}

impl Why {
    /// Then nobody waits for a core that is being written.
    fn is_asked_for(self) -> bool {
        matches!(self, Why::Asked | Why::Overdue)
    }

    /// Then the first death is worth a line.
    fn may_follow_a_death(self) -> bool {
        matches!(self, Why::Aborted | Why::Overdue)
    }
}

struct NodeDaemon<'front> {
    job: Job,
    host: String,
    control: std::os::fd::BorrowedFd<'front>,
    waits: OwnedFd,
    address: Address,
    job_number: mend_base::Job,
    descriptor_limit: rustix::process::Rlimit,
    desk: Desk,
    teller: Notifier,
    watch: Watch,
    lives: LifeWatch,
    /// Of our children: ranks, wrappers, and the orphans that ranks leave.
    endings: signals::Heard,
    rules: Rules,
    /// Evidence that ranks have brought, and who has not been looked at for it.
    evidence: VecDeque<Evidence>,
    /// Who has failed, and is not reported yet, where the user wants to hear of each.
    unreported: Option<Vec<u32>>,
    /// What is said of a rank whose library is of another version.
    mismatch: Option<String>,
    /// It was said, or need not be, that life words are looked at alone.
    said_unwatched: bool,
    over: Option<Over>,
}

/// One rank's word against another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Evidence {
    from: u32,
    against: u32,
    cause: Cause,
}

/// What an event is about: the kind above, an index below.
mod token {
    pub const CONTROL: u64 = 0;
    pub const DESK: u64 = 1;
    pub const CONNECTION: u64 = 2;
    pub const PROCESS: u64 = 3;
    pub const LIVES: u64 = 4;
    pub const ENDINGS: u64 = 5;
    pub const fn of(kind: u64, index: u32) -> u64 {
        kind << 32 | index as u64
    }
}

impl<'front> NodeDaemon<'front> {
    fn new(job: Job, control: std::os::fd::BorrowedFd<'front>) -> Result<Self, Failure> {
        let ranks = job.ranks();
        // For each rank a process, a connection and an outbox, and while it starts the ends of its pipes.
        let wanted = 192 + 4 * u64::from(ranks);
        let descriptor_limit =
            spawn::raise_descriptor_limit(wanted).map_err(|limit| Failure::Descriptors { wanted, limit })?;
        let waits = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Failure::system)?;
        let address = Address {
            socket: draw::random_bytes(),
            network: mend_runtime::namespace("net"),
            secret: draw::random_bytes(),
            rank: 0,
        };
        let desk = Desk::open(&address, ranks).map_err(Failure::system)?;
        let job_number = mend_base::Job(draw::random_u32());
        let muted = std::env::var_os(MUTED).is_some();
        let hook = std::env::var(LIFE_WATCH).ok();
        let reports = reports_failures(&job);
        let node_daemon = NodeDaemon {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            control,
            address,
            job_number,
            descriptor_limit,
            desk,
            teller: Notifier::new(job_number, ranks, slots_for(ranks), muted)?,
            watch: Watch::new(ranks),
            lives: LifeWatch::new(Means::chosen(hook.as_deref())).map_err(Failure::System)?,
            endings: signals::listen_to_endings().map_err(Failure::System)?,
            rules: Rules::of(&job),
            evidence: VecDeque::new(),
            unreported: reports.then(Vec::new),
            mismatch: None,
            said_unwatched: !reports,
            over: None,
            waits,
            job,
        };
        listen(&node_daemon.waits, node_daemon.control, token::of(token::CONTROL, 0))
            .map_err(Failure::System)?;
        listen(&node_daemon.waits, node_daemon.desk.listener(), token::of(token::DESK, 0))
            .map_err(Failure::System)?;
        listen(&node_daemon.waits, node_daemon.lives.descriptor(), token::of(token::LIVES, 0))
            .map_err(Failure::System)?;
        listen(&node_daemon.waits, &node_daemon.endings.arrivals, token::of(token::ENDINGS, 0))
            .map_err(Failure::System)?;
        Ok(node_daemon)
    }

    fn peer(&self, rank: u32) -> Peer {
        Peer::new(self.job_number, rank)
    }

    /// Starts every rank, or ends the job with the first that cannot be.
    fn start(&mut self) -> Result<(), Failure> {
        let pins = spawn::pins(self.job.binding).map_err(Failure::System)?;
        let programs: Vec<App> = self.job.programs().cloned().collect();
        let app_numbers: Vec<usize> = self.job.app_numbers().collect();
        for ((rank, app), app_number) in (0..).zip(&programs).zip(app_numbers) {
            let address = Address { rank, ..self.address };
            let descriptor_limit = self.descriptor_limit;
            let seat = spawn::Seat { address, app_number, pinned: pins.of(rank), descriptor_limit };
            match spawn::rank(&self.job, app, &seat) {
                Ok(started) => self.started(rank, started).map_err(Failure::System)?,
                Err(error) => {
                    self.end(not_started(rank, app, &error));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn started(&mut self, rank: u32, started: spawn::Started) -> io::Result<()> {
        report(self.control, &Report::Started(rank), &[started.output.as_fd(), started.complaints.as_fd()]);
        if let Some(input) = &started.input {
            report(self.control, &Report::Input, &[input.as_fd()]);
        }
        let pidfd = self.watch.started(rank, started.pid)?;
        listen_for_end(&self.waits, pidfd, rank)
    }

    /// The loop, until the job is over.
    fn keep(&mut self) -> Result<Over, Failure> {
        loop {
            if self.lives.must_look() {
                self.on_marks();
            }
            self.weigh();
            let exit = exit_policy::decide(&self.watch, self.rules, Instant::now());
            self.report();
            if let Some(exit) = exit {
                self.judge(exit);
            }
            if let Some(over) = self.over.take() {
                return Ok(over);
            }
            self.teller.tell_all(&self.desk);
            self.wait().map_err(Failure::System)?;
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(64);
        let now = Instant::now();
        let judge_at = exit_policy::judge_again_at(&self.watch, self.rules, now);
        let look_at = self.lives.must_look().then(|| now + LOOK_EVERY);
        let deadlines = [judge_at, look_at, self.teller.look_again_at()];
        let next = deadlines.into_iter().flatten().min();
        let span = next.map(|at| at.saturating_duration_since(now) + Duration::from_millis(1));
        let at_most = span.and_then(|span| Timespec::try_from(span).ok());
        match epoll::wait(&self.waits, rustix::buffer::spare_capacity(&mut events), at_most.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        for event in events {
            let index = event.data.u64() as u32;
            match event.data.u64() >> 32 {
                token::CONTROL => self.on_order(),
                token::DESK => self.on_arrivals()?,
                token::CONNECTION => self.on_connection(index),
                token::LIVES => self.on_marks(),
                token::ENDINGS => self.on_endings(),
                _ => self.on_process(index),
            }
        }
        Ok(())
    }

    fn on_order(&mut self) {
        while self.over.is_none() {
            match hear::<Order>(self.control) {
                Told::Nothing => return,
                Told::Message(Order::Signal(signal), _) => self.pass_on(signal),
                // What the code is, mpiexec knows; if it is gone, nobody asks.
                Told::Message(Order::Kill, _) | Told::Gone => {
                    self.over = Some(Over { code: 1, lines: vec![], why: Why::Asked })
                }
                Told::Message(Order::Overdue, _) => {
                    self.over = Some(Over { code: 1, lines: vec![], why: Why::Overdue })
                }
            }
        }
    }

    fn pass_on(&mut self, signal: i32) {
        let Some(signal) = Signal::from_named_raw(signal) else { return };
        if signals::meaning(signal) == Meaning::End {
            self.watch.deaths_are_wanted();
        }
        for group in self.watch.groups() {
            // It may have ended just now.
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }

    fn on_arrivals(&mut self) -> io::Result<()> {
        for connection in self.desk.accept() {
            if let Some(socket) = self.desk.socket(connection) {
                listen(&self.waits, socket, token::of(token::CONNECTION, connection))?;
            }
        }
        Ok(())
    }

    /// Somebody said something, or closed its connection.
    fn on_connection(&mut self, connection: u32) {
        if let Some(rank) = self.hear(connection, PACKETS_AT_ONCE) {
            self.fail(rank, Found::Connection);
        }
    }

    /// Takes what lies there, at most so many packets: what is left is another event, behind those of others. The rank whose
    /// connection is closed, with nothing of it left to hear.
    fn hear(&mut self, connection: u32, packets: u32) -> Option<u32> {
        for _ in 0..packets {
            match self.desk.hear(connection) {
                serve::Heard::Nothing => return None,
                serve::Heard::Closed(rank) => return rank,
                serve::Heard::Garbage(None) => self.desk.turn_away(connection, TurnedAway::Garbled),
                serve::Heard::Garbage(Some(rank)) => self.fail(rank, Found::Garbage(None)),
                serve::Heard::FromStranger(request) => self.on_hello(connection, request),
                serve::Heard::FromRank(rank, request) => self.on_request(rank, request),
            }
        }
        None
    }

    /// What a rank that is dead still said: it may have left.
    fn read_emergency_channel(&mut self, rank: u32) {
        if let Some(connection) = self.desk.connection_of(rank) {
            self.hear(connection, LAST_PACKETS);
        }
    }

    fn on_hello(&mut self, connection: u32, request: Request) {
        let size = self.job.ranks();
        let Some(process) = self.desk.process(connection) else { return };
        let hello = match serve::check_hello(&request, &self.address.secret, size) {
            Ok(hello) => hello,
            Err(why) => {
                self.note_mismatch(process, &request, why);
                return self.desk.turn_away(connection, why);
            }
        };
        let rank = hello.rank;
        let pidfd = match self.watch.join(rank, process) {
            Ok(pidfd) => pidfd,
            Err(why) => return self.desk.turn_away(connection, why),
        };
        if let Some(pidfd) = pidfd {
            // Without it the end of the connection still shows.
            let _ = listen_for_end(&self.waits, pidfd, rank);
        }
        let welcome = Welcome {
            peer: self.peer(rank),
            size,
            slot: rank,
            slots: self.teller.slots(),
            local_ranks: size,
            fault_tolerant: self.job.fault_tolerant,
        };
        self.desk.welcome(connection, rank, &welcome, self.teller.pages());
        self.teller.arrived(rank);
    }

    /// Two installations mixed up show at both ends, here once for the job.
    fn note_mismatch(&mut self, process: i32, request: &Request, why: TurnedAway) {
        let differs = match (request, why) {
            (Request::OtherVersion(theirs), TurnedAway::VersionDiffers(ours)) => {
                format!("speaks version {theirs} of the launcher's protocol, and this mpiexec version {ours}")
            }
            (Request::Hello(hello), TurnedAway::LayoutDiffers(ours)) => {
                format!("shares memory in layout {}, and this mpiexec in layout {ours}", hello.layout)
            }
            _ => return,
        };
        let host = &self.host;
        self.mismatch.get_or_insert_with(|| {
            format!(
                "mpiexec: the MPI library of process {process} on {host} {differs}; \
                 use the mpiexec of the same installation [E-JOB-008]"
            )
        });
    }

    fn on_request(&mut self, rank: u32, request: Request) {
        let sound = match request {
            Request::Abort(code) => {
                let words = format!(
                    "called MPI_Abort, or met an error that is fatal, with code {code}; the job has been ended. \
                     Look at its own messages [E-JOB-002]"
                );
                let lines = vec![self.line(rank, &words)];
                self.end(Over { code: exit_code(code), lines, why: Why::Aborted });
                true
            }
            // Of one that has left or failed the rest says nothing.
            _ if !self.watch.is_inside(rank) => true,
            Request::Publish(card) => self.on_publish(rank, card),
            Request::Lookup(peer) => self.other(rank, peer).is_some_and(|other| {
                self.teller.lookup(rank, other);
                true
            }),
            Request::Refuse(peer, cause) => self.other(rank, peer).is_some_and(|other| {
                self.teller.refuse(rank, other, cause);
                true
            }),
            Request::Ask(peer, cause) => self.other(rank, peer).is_some_and(|against| {
                self.evidence.push_back(Evidence { from: rank, against, cause });
                true
            }),
            Request::Finalize => self.on_finalize(rank),
            Request::GiveUp => {
                self.fail(rank, Found::GaveUp);
                true
            }
            Request::AbortSome(code, peers) => self.on_abort_some(rank, code, &peers),
            Request::Hello(_) | Request::OtherVersion(_) => false,
        };
        if !sound {
            self.fail(rank, Found::Garbage(None));
        }
    }

    /// The rank of `peer`, if it is another one of this job.
    fn other(&self, rank: u32, peer: Peer) -> Option<u32> {
        self.rank_of(peer).filter(|other| *other != rank)
    }

    fn rank_of(&self, peer: Peer) -> Option<u32> {
        let rank = peer.number();
        (peer == self.peer(rank) && rank < self.job.ranks()).then_some(rank)
    }

    fn on_publish(&mut self, rank: u32, card: Card) -> bool {
        if let Some(outbox) = &card.descriptor {
            match self.lives.add(rank, outbox.as_fd(), rank, self.teller.slots()) {
                Err(WatchError::Thread(error)) => self.note_unwatched(&error),
                // Without a life word its process and its connection still show its end, a little later.
                Ok(()) | Err(WatchError::Outbox(_)) => {}
            }
        }
        self.teller.publish(rank, card)
    }

    /// Life words that no thread watches show a death at our next look: later, but as surely. Argument to those who want to hear
    /// of deaths.
    fn note_unwatched(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.said_unwatched, true) {
            let line = format!(
                "mpiexec: no thread can be started on {} to watch the ranks' life words: {error}; they are looked at every \
                 few milliseconds instead. Raise the limit on threads (ulimit -u) [E-JOB-014]",
                self.host
            );
            report(self.control, &Report::News(line), &[]);
        }
    }

    fn on_finalize(&mut self, rank: u32) -> bool {
        let sound = self.watch.finalize(rank);
        if sound {
            self.lives.remove(rank);
            self.teller.finalized(rank);
        }
        sound
    }

    /// `rank` ends these; itself first, if it is among them, as it is the one to look at.
    fn on_abort_some(&mut self, rank: u32, code: i32, peers: &[Peer]) -> bool {
        let Some(mut ranks) = peers.iter().map(|&peer| self.rank_of(peer)).collect::<Option<Vec<u32>>>()
        else {
            return false;
        };
        ranks.sort_by_key(|each| *each != rank);
        for each in ranks {
            self.fail(each, Found::Aborted { by: rank, code });
        }
        true
    }

    /// Looks at whom ranks have brought evidence against. Who writes garbage is fenced; anything else is a question about
    /// its health.
    fn weigh(&mut self) {
        while let Some(Evidence { from, against, cause }) = self.evidence.pop_front() {
            let life = self.lives.look(against);
            let dead = life.is_some_and(LifeState::is_marked) || !self.watch.lives(against);
            if cause == Cause::Garbage {
                self.fail(against, Found::Garbage(Some(from)));
            } else if dead {
                self.read_emergency_channel(against);
                self.fail(
                    against,
                    if life == Some(LifeState::Dying) { Found::EmergencyChannel } else { Found::Asked(from) },
                );
            } else if self.watch.is_open(against) {
                self.teller.alive(from, against);
            }
            // Of one that has left or failed it hears so, if it has not, or once more.
            self.teller.again(from, against);
        }
    }

    /// Life words are marked.
    fn on_marks(&mut self) {
        for mark in self.lives.marked() {
            self.read_emergency_channel(mark.rank);
            self.fail(mark.rank, if mark.dying { Found::EmergencyChannel } else { Found::LifeWord });
        }
    }

    /// A process of that rank has ended, and others may have: what they still said comes before it is judged.
    fn on_process(&mut self, rank: u32) {
        let ended = self.watch.look(rank);
        self.on_ended(ended);
    }

    /// Children have ended, orphans perhaps, of whom no process descriptor of ours tells.
    fn on_endings(&mut self) {
        self.endings.take();
        let ended = self.watch.reap();
        self.on_ended(ended);
    }

    fn on_ended(&mut self, ranks: Vec<u32>) {
        for ended in ranks {
            self.read_emergency_channel(ended);
            if self.watch.is_lost(ended) {
                self.fail(ended, Found::Process);
            }
        }
    }

    /// `rank` is dead, or is to be: final, and told to all the others. One that has left MPI is nobody's concern.
    fn fail(&mut self, rank: u32, found: Found) {
        if !self.watch.fail(rank, found, Instant::now()) {
            return;
        }
        self.lives.remove(rank);
        if found.is_killed() {
            self.watch.kill(rank);
        }
        if let Some(unreported) = self.unreported.as_mut().filter(|_| !self.watch.wanted()) {
            unreported.push(rank);
        }
        // Where its death is to end the job, nobody else has to get over it.
        if self.rules.fault_tolerant || !self.watch.ends_a_job(rank) {
            self.teller.failed(rank);
        }
    }

    /// Tells the user of deaths, where that is wanted, each once it is known how it was.
    fn report(&mut self) {
        let Some(unreported) = self.unreported.take() else { return };
        let open = unreported.into_iter().filter(|&rank| match exit_policy::report(&self.watch, rank) {
            Some(words) => {
                report(self.control, &Report::News(self.line(rank, &words)), &[]);
                false
            }
            None => true,
        });
        self.unreported = Some(open.collect());
    }

    fn judge(&mut self, exit: Exit) {
        let lines = exit.lines.iter().map(|(rank, words)| self.line(*rank, words)).collect();
        let why = if self.watch.wanted() { Why::Asked } else { Why::Judged };
        self.end(Over { code: exit.code, lines, why });
    }

    /// The line on the first death, if there was one.
    fn first_death(&self) -> Option<String> {
        exit_policy::first_death(&self.watch).map(|(rank, words)| self.line(rank, &words))
    }

    /// The first reason stands.
    fn end(&mut self, over: Over) {
        self.over.get_or_insert(over);
    }

    fn line(&self, rank: u32, words: &str) -> String {
        let program = self.job.programs().nth(rank as usize);
        let program = program.map_or_else(String::new, |app| app.program.to_string_lossy().into_owned());
        let process = self.watch.process(rank).map_or(0, |pid| pid.as_raw_nonzero().get());
        format!("mpiexec: rank {rank} ({program}, process {process} on {}) {words}", self.host)
    }
}

/// Whether the user wants to hear of every death. What the settings do not take, the ranks refuse.
fn reports_failures(job: &Job) -> bool {
    mend_world::settings_from_environment(&job.settings)
        .is_ok_and(|(settings, _)| settings.has_word("report", "failures"))
}

fn listen(waits: &OwnedFd, to: impl AsFd, token: u64) -> io::Result<()> {
    Ok(epoll::add(waits, to, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?)
}

/// Once when the process ends, and once more if a debugger that held it then lets go: in between there is nothing to take.
fn listen_for_end(waits: &OwnedFd, pidfd: impl AsFd, rank: u32) -> io::Result<()> {
    let data = epoll::EventData::new_u64(token::of(token::PROCESS, rank));
    Ok(epoll::add(waits, pidfd, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?)
}

fn not_started(rank: u32, app: &App, error: &io::Error) -> Over {
    // As a shell has it.
    let code = match error.kind() {
        io::ErrorKind::NotFound => 127,
        io::ErrorKind::PermissionDenied => 126,
        _ => 1,
    };
    let advice = match error.kind() {
        io::ErrorKind::WouldBlock => "raise the limit on processes (ulimit -u), or start fewer",
        _ => "check its name and place",
    };
    let place = app.directory.as_ref().map(|path| format!(" in {}", path.display())).unwrap_or_default();
    let line = format!(
        "mpiexec: '{}' (rank {rank}) cannot be started{place}: {error}; {advice} [E-JOB-007]",
        app.program.to_string_lossy(),
    );
    Over { code, lines: vec![line], why: Why::Judged }
}

/// Between two looks at life words that no thread watches; the processors of a job are its ranks'.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// One rank's share of a turn, in packets: none can keep the node daemon from the others.
const PACKETS_AT_ONCE: u32 = 64;

/// More than lie in the socket of a process that has ended.
const LAST_PACKETS: u32 = 4096;

/// Places on the node: room for processes that join late.
fn slots_for(ranks: u32) -> u32 {
    (2 * ranks).max(ranks + 16).min(Job::RANKS_MAX).max(ranks)
}

#[cfg(test)]
mod tests {
    use super::slots_for;

    #[test]
    fn a_node_has_room_for_late_joiners_but_not_without_end() {
        assert_eq!([slots_for(1), slots_for(4), slots_for(64), slots_for(1000)], [17, 20, 128, 1024]);
    }
}
