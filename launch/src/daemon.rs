// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The node daemon's processes and sockets. [`mend_daemon::NodeDaemon`] decides, without I/O; this module gives it the events
//! and performs its effects. The node daemon is the parent of all ranks of the job, and runs one event loop in one thread.
//!
//! | part | owns | may call |
//! |---|---|---|
//! | `Driver` (this file) | the loop, the job's command line | all parts below |
//! | [`NodeDaemon`] | every decision (its own parts: `mend_daemon`) | nothing here |
//! | [`connections`] | the listening socket, the ranks' connections | nothing |
//! | [`delivery`] | bell page and notice page, retries | `NodeDaemon` for the notices, `connections` for sockets |
//! | [`life`] | the threads that sleep on life words | nothing |
//! | [`processes`] | process descriptors of ranks | [`kill`], to reap |
//! | [`user_reports`] | the socket to `mpiexec` | nothing |
//! | [`kill`] | nothing: the process table of the system | nothing |

pub mod connections;
pub mod delivery;
pub mod life;
pub mod processes;
pub mod user_reports;

use crate::arguments::{App, JobDescription};
use crate::control::{DaemonCommand, DaemonReport, Received, receive, send};
use crate::launch_error::{LaunchError, PagesRefused};
use crate::signals::{self, SignalPipe, SignalRole};
use crate::{kill, spawn};
use connections::Connections;
use delivery::Delivery;
use life::{LifeWatch, WatchError, WatchMode};
use mend_daemon::{Condition, Effect, JobEnd, JobEndReason, Muted, NodeDaemon, Rules};
use mend_runtime::daemon_protocol::{HelloRefused, RankMessage, Welcome};
use mend_runtime::environment::{Address, LIFE_WATCH, MUTED, PAGES};
use mend_runtime::{RESULTS_MAX, entropy};
use mend_segment::{LifeState, SegmentError};
use processes::Processes;
use rustix::event::{Timespec, epoll};
use rustix::process::{Pid, Signal};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use user_reports::UserReports;

/// Runs the job as its node daemon. The socket to `mpiexec` is our standard input.
pub fn run(job: JobDescription) -> Result<u8, LaunchError> {
    let control = spawn::take_standard_input().map_err(LaunchError::System)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(LaunchError::system)?;
    // A name for `ps` and `top`; without it they show `exe`, from /proc/self/exe.
    let _ = rustix::thread::set_name(c"mend-daemon");
    let mut driver = match Driver::new(job, control.as_fd()) {
        Ok(driver) => driver,
        Err(error) => {
            send(control.as_fd(), &DaemonReport::Line(format!("mpiexec: {error}")), &[]);
            send(control.as_fd(), &DaemonReport::Ended(1), &[]);
            return Ok(0);
        }
    };
    let over = match driver.start().and_then(|()| driver.run()) {
        Ok(over) => over,
        Err(error) => Over { code: 1, lines: vec![format!("mpiexec: {error}")] },
    };
    driver.finish(over);
    Ok(0)
}

/// How the job ended.
#[derive(Debug)]
struct Over {
    code: u8,
    lines: Vec<String>,
}

struct Driver<'front> {
    job: JobDescription,
    node_daemon: NodeDaemon,
    connections: Connections,
    delivery: Delivery,
    life_watch: LifeWatch,
    processes: Processes,
    user_reports: UserReports<'front>,
    /// SIGCHLD for our children: ranks, wrappers, and descendants of ranks whose parent has ended.
    endings: SignalPipe,
    epoll_set: OwnedFd,
    over: Option<Over>,
}

/// Token of an epoll event: the kind in the upper 32 bits, an index in the lower 32 bits.
mod token {
    pub const CONTROL: u64 = 0;
    pub const ARRIVALS: u64 = 1;
    pub const CONNECTION: u64 = 2;
    pub const PROCESS: u64 = 3;
    pub const LIVES: u64 = 4;
    pub const ENDINGS: u64 = 5;
    pub const fn of(kind: u64, index: u32) -> u64 {
        kind << 32 | index as u64
    }
}

/// Start and end.
impl<'front> Driver<'front> {
    fn new(job: JobDescription, control: BorrowedFd<'front>) -> Result<Self, LaunchError> {
        let ranks = job.ranks();
        let epoll_set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(LaunchError::system)?;
        let address = Address {
            socket: entropy::random_bytes(),
            network: mend_runtime::namespace("net"),
            secret: entropy::random_bytes(),
            rank: 0,
        };
        let hook = |name| std::env::var(name).ok().filter(|_| job.test_hooks);
        let rules = Rules {
            fault_tolerant: job.fault_tolerant,
            counting: job.counting,
            reports_deaths: reports(&job, "failures"),
            reports_transports: reports(&job, "transports"),
            muted: match hook(MUTED).as_deref() {
                None => Muted::None,
                Some("all") => Muted::All,
                Some(_) => Muted::Unasked,
            },
        };
        let user_reports = UserReports::new(control, &job, rules.reports_deaths);
        let delivery = delivery(&job, hook(PAGES).as_deref(), &user_reports);
        let driver = Driver {
            node_daemon: NodeDaemon::new(mend_base::Job(entropy::random_u32()), ranks, rules),
            connections: Connections::open(&address, ranks).map_err(LaunchError::system)?,
            delivery,
            life_watch: LifeWatch::new(WatchMode::chosen(hook(LIFE_WATCH).as_deref()))
                .map_err(LaunchError::System)?,
            processes: Processes::new(ranks),
            user_reports,
            endings: signals::listen_to_endings().map_err(LaunchError::System)?,
            epoll_set,
            over: None,
            job,
        };
        driver.listen_to_all(control).map_err(LaunchError::System)?;
        Ok(driver)
    }

    fn listen_to_all(&self, control: BorrowedFd<'_>) -> io::Result<()> {
        listen(&self.epoll_set, control, token::of(token::CONTROL, 0))?;
        listen(&self.epoll_set, self.connections.listener(), token::of(token::ARRIVALS, 0))?;
        listen(&self.epoll_set, self.life_watch.descriptor(), token::of(token::LIVES, 0))?;
        listen(&self.epoll_set, &self.endings.arrivals, token::of(token::ENDINGS, 0))
    }

    /// Starts every rank; ends the job if one cannot be started.
    fn start(&mut self) -> Result<(), LaunchError> {
        // Descriptors for each rank: process, connection, outbox, life page, and until it is started the ends of its pipes.
        let needed = 192 + 5 * u64::from(self.job.ranks());
        let descriptor_limit = spawn::raise_descriptor_limit(needed)
            .map_err(|limit| LaunchError::Descriptors { needed, limit })?;
        let pins = spawn::pins(self.job.binding).map_err(LaunchError::System)?;
        let programs: Vec<App> = self.job.programs().cloned().collect();
        let app_numbers: Vec<usize> = self.job.app_numbers().collect();
        for ((rank, app), app_number) in (0..).zip(&programs).zip(app_numbers) {
            let address = Address { rank, ..*self.connections.address() };
            let start = spawn::RankStart { address, app_number, pinned: pins.of(rank), descriptor_limit };
            match spawn::rank(&self.job, app, &start) {
                Ok(started) => self.started(rank, started).map_err(LaunchError::System)?,
                Err(error) => {
                    self.over = Some(not_started(rank, app, &error));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn started(&mut self, rank: u32, started: spawn::StartedRank) -> io::Result<()> {
        let ends = [started.stdout.as_fd(), started.stderr.as_fd()];
        self.user_reports.send(&DaemonReport::Started(rank), &ends);
        if let Some(input) = &started.stdin {
            self.user_reports.send(&DaemonReport::Input, &[input.as_fd()]);
        }
        self.node_daemon.on_started(rank, number(started.pid));
        let pidfd = self.processes.started(rank, started.pid)?;
        listen_for_end(&self.epoll_set, pidfd, rank)
    }

    /// Ends every process of the job, and reports to `mpiexec` how it ended.
    fn finish(mut self, over: Over) {
        // The connections stay open until all ranks are dead: a rank whose connection closes reports an error.
        let spared: Vec<Pid> =
            self.node_daemon.spared().into_iter().filter_map(|rank| self.processes.of(rank)).collect();
        let left = kill::kill_all(&spared, |pid, ending| {
            if let Some((rank, end)) = self.processes.end_of(pid, ending) {
                self.node_daemon.on_process_ended(rank, end);
            }
        });
        let death = self.node_daemon.first_death().map(|line| self.line(&line));
        let Driver { user_reports, .. } = self;
        user_reports.finish(death.into_iter().chain(over.lines).chain(kill::unkillable(&left)), over.code);
    }
}

/// The loop.
impl Driver<'_> {
    /// Until the job is over.
    fn run(&mut self) -> Result<Over, LaunchError> {
        loop {
            if self.life_watch.must_poll() {
                self.on_marks();
            }
            self.node_daemon.on_time(now());
            self.perform();
            if let Some(over) = self.over.take() {
                return Ok(over);
            }
            self.delivery.send_all(&mut self.node_daemon, &self.connections);
            self.wait().map_err(LaunchError::System)?;
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(64);
        let at_most = self.wait_at_most();
        match epoll::wait(&self.epoll_set, rustix::buffer::spare_capacity(&mut events), at_most.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        for event in events {
            let index = event.data.u64() as u32;
            match event.data.u64() >> 32 {
                token::CONTROL => self.on_order(),
                token::ARRIVALS => self.on_arrivals()?,
                token::CONNECTION => self.on_connection(index),
                token::LIVES => self.on_marks(),
                token::ENDINGS => self.on_endings(),
                _ => self.on_process(index),
            }
            self.perform();
        }
        Ok(())
    }

    /// The time until the next deadline; `None` if there is none.
    fn wait_at_most(&self) -> Option<Timespec> {
        let time = Instant::now();
        let decide_in = self.node_daemon.next_deadline().map(|at| (at - now()).to_std());
        let poll_in = self.life_watch.must_poll().then_some(POLL_EVERY);
        let retry_in = self.delivery.retry_at().map(|at| at.saturating_duration_since(time));
        let span = [decide_in, poll_in, retry_in].into_iter().flatten().min()?;
        Timespec::try_from(span + Duration::from_millis(1)).ok()
    }

    /// Performs every effect, in order.
    fn perform(&mut self) {
        while let Some(effect) = self.node_daemon.next_effect() {
            match effect {
                Effect::WatchLife(rank, life_page) => self.watch_life(rank, life_page.as_fd()),
                Effect::ForgetLife(rank) => {
                    self.life_watch.remove(rank);
                    self.delivery.clear_processor(rank);
                }
                Effect::Examine(rank) => {
                    let condition = self.examine(rank);
                    self.node_daemon.on_examined(rank, condition, now());
                }
                Effect::ReadMessages(rank) => {
                    if let Some(connection) = self.connections.of_rank(rank) {
                        self.receive(connection, LAST_PACKETS);
                    }
                    self.node_daemon.on_messages_read(rank, now());
                }
                Effect::ExamineDying(rank) => {
                    let runs_on = self.processes.of(rank).is_some_and(kill::runs_on);
                    self.node_daemon.on_dying_examined(rank, runs_on);
                }
                Effect::Kill(rank) => {
                    if self.processes.kill(rank) {
                        self.node_daemon.on_killed_alive(rank);
                        self.delivery.clear_processor(rank);
                    }
                }
                Effect::Report(line) => self.user_reports.say_now(self.line(&line)),
                Effect::Table(lines) => lines.into_iter().for_each(|line| self.user_reports.say_now(line)),
                Effect::EndJob(JobEnd { code, lines, .. }) => {
                    let lines = lines.iter().map(|line| self.line(line)).collect();
                    self.over.get_or_insert(Over { code, lines });
                }
            }
        }
    }

    /// If this fails, the rank's process descriptor or connection shows its end, a little later.
    fn watch_life(&mut self, rank: u32, life_page: BorrowedFd<'_>) {
        match self.life_watch.add(rank, life_page, self.node_daemon.peer(rank)) {
            Err(WatchError::Thread(error)) => self.user_reports.life_words_are_polled(&error),
            Ok(()) | Err(WatchError::Page(_)) => {}
        }
    }

    fn examine(&self, rank: u32) -> Condition {
        match self.life_watch.poll(rank) {
            Some(LifeState::Dying) => Condition::Dying,
            Some(state) if state.is_marked() => Condition::Ended,
            _ if self.processes.is_alive(rank) => Condition::Alive,
            _ => Condition::Ended,
        }
    }

    fn line(&self, line: &mend_daemon::RankLine) -> String {
        self.user_reports.line(line, self.node_daemon.process(line.rank))
    }
}

/// What happens.
impl Driver<'_> {
    fn on_order(&mut self) {
        while self.over.is_none() {
            match receive::<DaemonCommand>(self.user_reports.control()) {
                Received::Nothing => return,
                Received::Message(DaemonCommand::Signal(signal), _) => self.pass_on(signal),
                // mpiexec, if it still runs, determines the exit code itself.
                Received::Message(DaemonCommand::Kill, _) | Received::Closed => {
                    self.node_daemon.on_end_command(JobEndReason::Asked)
                }
                Received::Message(DaemonCommand::Overdue, _) => {
                    self.node_daemon.on_end_command(JobEndReason::Overdue)
                }
            }
            self.perform();
        }
    }

    fn pass_on(&mut self, signal: i32) {
        let Some(signal) = Signal::from_named_raw(signal) else { return };
        if signals::role(signal) == SignalRole::End {
            self.node_daemon.on_termination_signal();
        }
        for group in self.processes.groups() {
            // The process may have ended just now.
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }

    fn on_arrivals(&mut self) -> io::Result<()> {
        for connection in self.connections.accept() {
            if let Some(socket) = self.connections.socket(connection) {
                listen(&self.epoll_set, socket, token::of(token::CONNECTION, connection))?;
            }
        }
        Ok(())
    }

    /// A process sent something, or closed its connection.
    fn on_connection(&mut self, connection: u32) {
        if let Some(rank) = self.receive(connection, PACKETS_PER_EVENT) {
            self.node_daemon.on_connection_closed(rank, now());
        }
    }

    /// Processes at most `packets` packets of a connection; the rest waits for the next event, after those of other
    /// connections. Returns the rank of a connection that has closed and from which everything was read.
    fn receive(&mut self, connection: u32, packets: u32) -> Option<u32> {
        for _ in 0..packets {
            match self.connections.receive(connection) {
                connections::ConnectionEvent::Nothing => return None,
                connections::ConnectionEvent::Closed(rank) => return rank,
                connections::ConnectionEvent::Garbage(None) => {
                    self.connections.refuse_hello(connection, HelloRefused::Garbled)
                }
                connections::ConnectionEvent::Garbage(Some(rank)) => self.node_daemon.on_garbage(rank, now()),
                connections::ConnectionEvent::Hello(message) => self.on_hello(connection, &message),
                connections::ConnectionEvent::FromRank(rank, message) => {
                    self.node_daemon.on_rank_message(rank, message, now())
                }
            }
        }
        None
    }

    fn on_hello(&mut self, connection: u32, message: &RankMessage) {
        let Some(process) = self.connections.process(connection) else { return };
        match self.join(process, message) {
            Ok(rank) => {
                let (size, pages) = (self.job.ranks(), self.delivery.pages());
                let welcome = Welcome {
                    peer: self.node_daemon.peer(rank),
                    size,
                    node_slot: rank,
                    node_slots: self.delivery.slots(),
                    local_ranks: size,
                    fault_tolerant: self.job.fault_tolerant,
                    has_pages: !pages.is_empty(),
                };
                self.connections.welcome(connection, rank, &welcome, &pages);
            }
            Err(why) => {
                self.user_reports.note_mismatch(process, message, why);
                self.connections.refuse_hello(connection, why);
            }
        }
    }

    fn join(&mut self, process: i32, message: &RankMessage) -> Result<u32, HelloRefused> {
        let rank = self.connections.check_hello(message)?.rank;
        let pid = Pid::from_raw(process).ok_or(HelloRefused::NotVisible)?;
        self.node_daemon.admit(rank)?;
        let pidfd = self.processes.join(rank, pid).map_err(|_| HelloRefused::NotVisible)?;
        if let Some(pidfd) = pidfd {
            // If the process cannot be watched, the end of its connection still shows its end.
            let _ = listen_for_end(&self.epoll_set, pidfd, rank);
        }
        self.node_daemon.on_joined(rank, number(pid));
        Ok(rank)
    }

    /// Threads have found marked life words.
    fn on_marks(&mut self) {
        for mark in self.life_watch.marked() {
            self.node_daemon.on_life_marked(mark.rank, mark.dying);
        }
        self.perform();
    }

    /// A process of `rank` has ended; others may have ended too.
    fn on_process(&mut self, rank: u32) {
        self.on_endings();
        if let Some(end) = self.processes.wrapped_end(rank) {
            self.node_daemon.on_process_ended(rank, end);
        }
    }

    /// Children have ended. Some may be adopted descendants of ranks, for which we have no process descriptor.
    fn on_endings(&mut self) {
        self.endings.take();
        for (rank, end) in self.processes.reap() {
            self.node_daemon.on_process_ended(rank, end);
        }
    }
}

/// Now, as [`NodeDaemon`] expects it.
fn now() -> mend_base::Instant {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    mend_base::Instant(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get() as u32
}

/// The pages of the node. Where the system refuses them, ranks start all the same, without shared memory; the user is told if they might
/// have used it.
fn delivery(job: &JobDescription, hook: Option<&str>, user_reports: &UserReports<'_>) -> Delivery {
    let slots = slots_for(job.ranks());
    let made = match hook {
        Some(_) => Err(SegmentError::NoMemfd(rustix::io::Errno::PERM)),
        None => Delivery::new(slots),
    };
    made.unwrap_or_else(|error| {
        // Invalid settings: the ranks report them.
        let settings = mend_world::settings_from_environment(&job.settings);
        if settings.is_ok_and(|(settings, _)| settings.allows("btl", "shm")) {
            user_reports.say_now(format!("mpiexec: {}", PagesRefused::from(error)));
        }
        Delivery::without_pages(slots)
    })
}

/// Whether the user asked for a report about this subject. Invalid settings count as no: the ranks report them.
fn reports(job: &JobDescription, subject: &str) -> bool {
    mend_world::settings_from_environment(&job.settings)
        .is_ok_and(|(settings, _)| settings.has_word("report", subject))
}

fn listen(epoll_set: &OwnedFd, to: impl AsFd, token: u64) -> io::Result<()> {
    Ok(epoll::add(epoll_set, to, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?)
}

/// Edge-triggered: a process that is traced becomes readable when it ends, but can be reaped only after its debugger has
/// released it, which is a second event. A level-triggered event would spin between the two.
fn listen_for_end(epoll_set: &OwnedFd, pidfd: impl AsFd, rank: u32) -> io::Result<()> {
    let data = epoll::EventData::new_u64(token::of(token::PROCESS, rank));
    Ok(epoll::add(epoll_set, pidfd, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?)
}

fn not_started(rank: u32, app: &App, error: &io::Error) -> Over {
    // The exit codes of a shell: 127 not found, 126 not executable.
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
    Over { code, lines: vec![line] }
}

/// Interval between two polls of life words that no thread watches. Not shorter, as the processors belong to the ranks.
const POLL_EVERY: Duration = Duration::from_millis(5);

/// How many packets of one rank are processed for one event, so that no rank starves the others.
const PACKETS_PER_EVENT: u32 = 64;

/// More packets than a correct rank that has ended has in its socket: the results that it has left, and some thousand others,
/// which fill a socket of the usual size.
const LAST_PACKETS: u32 = RESULTS_MAX as u32 + 4096;

/// How many node slots to provide: more than ranks, for processes that are to join after the start of the job. No process can do
/// that yet; so the node daemon uses the number of a rank as its node slot.
fn slots_for(ranks: u32) -> u32 {
    (2 * ranks).max(ranks + 16).min(JobDescription::RANKS_MAX).max(ranks)
}

#[cfg(test)]
mod tests {
    use super::slots_for;

    #[test]
    fn a_node_has_room_for_late_joiners_but_not_without_end() {
        assert_eq!([slots_for(1), slots_for(4), slots_for(64), slots_for(1000)], [17, 20, 128, 1024]);
    }
}
