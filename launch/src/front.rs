// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `mpiexec` itself: starts the node daemon, prints what ranks print, passes signals on, and ends with the job's exit code.
//!
//! ```text
//!            node daemon starts ranks          Ended           pipes empty, all printed
//!   Running ─────────────────────▶ Running ────▶ Draining ────────────────────────▶ exit code
//!      │ End signal, --timeout, nobody reads our output: Kill at once or 2 s later     ▲
//!      └── node daemon gone: kill every descendant ourselves ───────────────────────────────┘
//! ```
//!
//! The reader of our output may have stopped reading. So draining lasts 2 s at most if the job was ended by force, and an End
//! signal or --timeout during draining ends `mpiexec` without printing the rest.

use crate::arguments::JobDescription;
use crate::control::{DaemonCommand, DaemonReport, Received, receive, send};
use crate::launch_error::LaunchError;
use crate::output::{Assembler, Joiner, Printer};
use crate::signals::{self, SignalPipe, SignalRole};
use crate::{kill, spawn, stdin};
use mend_daemon::signal_code;
use mend_runtime::environment::TEST_HOOKS;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long ranks may take to end after a signal that ends jobs; after that, how long the reader may take to read the output.
const END_TIME_LIMIT: Duration = Duration::from_secs(2);

/// An unfinished line is shown when its stream has been silent for this time: it may be a prompt.
const SILENCE: Duration = Duration::from_millis(100);

/// How long `mpiexec` waits for its own last lines to be printed, when it waits for nothing else.
const FINAL_LINES_TIME_LIMIT: Duration = Duration::from_millis(100);

/// How long the node daemon may take to obey the order to end the job before `mpiexec` kills it, and then the ranks.
const END_ORDER_TIME_LIMIT: Duration = Duration::from_millis(2_500);

// R-35: what a signal that ends jobs has not ended is killed within 5 s.
const _: () = assert!(END_TIME_LIMIT.as_millis() + END_ORDER_TIME_LIMIT.as_millis() < 5_000);

/// Runs the job to its end, and returns the exit code of `mpiexec`.
pub fn run(job: &JobDescription) -> Result<u8, LaunchError> {
    let needed = 64 + 2 * u64::from(job.ranks());
    let limit = spawn::raise_descriptor_limit(needed);
    let limit = limit.map_err(|limit| LaunchError::Descriptors { needed, limit })?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(LaunchError::system)?;
    let _endings = signals::listen_to_endings().map_err(LaunchError::System)?;
    let signals = signals::listen().map_err(LaunchError::System)?;
    let (control, daemons_end) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .map_err(LaunchError::system)?;
    let node_daemon = spawn::node_daemon(daemons_end, limit).map_err(LaunchError::System)?;
    let mut front = Front::new(job, node_daemon, control, signals).map_err(LaunchError::System)?;
    if job.test_hooks {
        front.streams[STDERR].say(&hooks_line());
    }
    loop {
        if let Some(code) = front.code() {
            reap_node_daemon(node_daemon);
            return Ok(code);
        }
        front.step().map_err(LaunchError::System)?;
    }
}

/// The line that names the hooks that act in a job with `--test-hooks`.
fn hooks_line() -> String {
    let set = TEST_HOOKS.iter().filter(|name| std::env::var_os(name).is_some());
    let names: Vec<&str> = set.copied().collect();
    let names = if names.is_empty() { "none is set".to_owned() } else { names.join(", ") };
    format!("mpiexec: hooks of Mend's own tests act in this job, as --test-hooks says: {names} [E-JOB-015]")
}

/// Reaps the node daemon after its last report. Otherwise its zombie would be left to the next parent, which may never reap it
/// (the first process of a container).
fn reap_node_daemon(node_daemon: Pid) {
    if let Ok(None) = rustix::process::waitpid(Some(node_daemon), WaitOptions::NOHANG) {
        // The node daemon ends by itself, unless somebody has stopped it (SIGSTOP).
        let _ = rustix::process::kill_process(node_daemon, Signal::KILL);
        while matches!(rustix::process::waitpid(Some(node_daemon), WaitOptions::empty()), Err(Errno::INTR)) {}
    }
}

/// Index of standard error among the two output streams.
const STDERR: usize = 1;

struct Front<'job> {
    job: &'job JobDescription,
    node_daemon: Pid,
    control: OwnedFd,
    signals: Vec<SignalPipe>,
    epoll_set: OwnedFd,
    /// What all ranks print, to stdout and to stderr.
    streams: [OutputStream; 2],
    state: State,
    /// The exit code, if a signal, --timeout or a broken pipe determines it.
    forced_code: Option<u8>,
    /// Lines for the user at the end, after everything that the ranks printed.
    lines: Vec<String>,
    started: Instant,
    /// When the ranks are killed, after a signal asked them to end.
    kill_at: Option<Instant>,
    /// When the node daemon is killed, after it was told to kill the ranks.
    enforce_at: Option<Instant>,
    /// When `mpiexec` stops waiting for the reader of its output.
    leave_at: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The node daemon reports.
    Running,
    /// No process of the job is left, but some of its output is not printed yet. Holds the exit code.
    Draining(u8),
}

/// One of the two output streams of `mpiexec`, and the pipes of all ranks that are copied to it. The pipes are in a separate epoll
/// set, which is not waited for while the printer has no room.
struct OutputStream {
    printer: Printer,
    joiner: Joiner,
    pipes: Vec<Option<Pipe>>,
    open: u32,
    set: OwnedFd,
    listening: bool,
}

struct Pipe {
    rank: u32,
    end: OwnedFd,
    assembler: Assembler,
    /// When something was last read from it.
    last_read: Instant,
}

impl Pipe {
    /// When its unfinished line is to be shown, if there is one.
    fn show_at(&self) -> Option<Instant> {
        self.assembler.holds().then(|| self.last_read + SILENCE)
    }
}

mod token {
    pub const CONTROL: u64 = 0;
    pub const STREAM: u64 = 1;
    pub const PRINTER: u64 = 3;
    pub const SIGNAL: u64 = 5;
}

impl<'job> Front<'job> {
    fn new(
        job: &'job JobDescription,
        node_daemon: Pid,
        control: OwnedFd,
        signals: Vec<SignalPipe>,
    ) -> io::Result<Self> {
        let epoll_set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        listen(&epoll_set, &control, token::CONTROL)?;
        for (index, pipe) in signals.iter().enumerate() {
            listen(&epoll_set, &pipe.arrivals, token::SIGNAL + index as u64)?;
        }
        let streams = [OutputStream::new(job, io::stdout())?, OutputStream::new(job, io::stderr())?];
        for (index, stream) in streams.iter().enumerate() {
            listen(&epoll_set, &stream.set, token::STREAM + index as u64)?;
            listen(&epoll_set, stream.printer.descriptor(), token::PRINTER + index as u64)?;
        }
        Ok(Front {
            job,
            node_daemon,
            control,
            signals,
            epoll_set,
            streams,
            state: State::Running,
            forced_code: None,
            lines: vec![],
            started: Instant::now(),
            kill_at: None,
            enforce_at: None,
            leave_at: None,
        })
    }

    /// The exit code, once the job has ended and its output is printed or no longer waited for.
    fn code(&mut self) -> Option<u8> {
        self.check_printers();
        let State::Draining(code) = self.state else { return None };
        let late = self.leave_at.is_some_and(|at| Instant::now() >= at);
        if late && self.lines.is_empty() {
            return Some(self.forced_code.unwrap_or(code));
        }
        if late {
            self.leave_at = Some(Instant::now() + FINAL_LINES_TIME_LIMIT);
        } else if self.streams.iter().any(|stream| stream.open > 0 && !stream.printer.broken()) {
            return None;
        }
        for line in std::mem::take(&mut self.lines) {
            self.streams[STDERR].say(&line);
        }
        let printed = self.streams.iter().all(|stream| stream.printer.idle());
        printed.then(|| self.forced_code.unwrap_or(code))
    }

    fn step(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(16);
        let at_most = self.wait_at_most();
        match epoll::wait(&self.epoll_set, rustix::buffer::spare_capacity(&mut events), at_most.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let quiet = events.is_empty();
        for event in events {
            match event.data.u64() {
                token::CONTROL => self.read_node_daemon()?,
                at @ (1 | 2) => self.read((at - token::STREAM) as usize)?,
                at @ (3 | 4) => self.on_printed((at - token::PRINTER) as usize)?,
                at => self.on_signal((at - token::SIGNAL) as usize),
            }
        }
        if quiet && matches!(self.state, State::Draining(_)) {
            // No process of the job is left: a process that still holds a pipe does not belong to the job.
            self.streams.iter_mut().filter(|stream| stream.listening).for_each(OutputStream::close_all);
        }
        let now = Instant::now();
        self.streams.iter_mut().for_each(|stream| stream.show_begun(now));
        self.check_deadlines();
        Ok(())
    }

    /// The time until the next deadline; zero once all ranks have ended and while their pipes are read.
    fn wait_at_most(&self) -> Option<Timespec> {
        let now = Instant::now();
        if matches!(self.state, State::Draining(_)) {
            let reading = self.streams.iter().any(|stream| stream.listening && stream.open > 0);
            if reading {
                return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
            }
        }
        let timeout = self.job.timeout.filter(|_| self.forced_code.is_none());
        let timeout = timeout.and_then(|span| self.started.checked_add(span));
        let show = self.streams.iter().filter_map(OutputStream::show_at).min();
        let next =
            [self.kill_at, self.enforce_at, self.leave_at, timeout, show].into_iter().flatten().min()?;
        let span = next.saturating_duration_since(now) + Duration::from_millis(1);
        Timespec::try_from(span).ok()
    }

    fn check_deadlines(&mut self) {
        let now = Instant::now();
        if self.kill_at.is_some_and(|at| now >= at) {
            self.kill(DaemonCommand::Kill);
        }
        if self.enforce_at.is_some_and(|at| now >= at) {
            // The node daemon hangs. It was not reaped yet, so its process id cannot have been reused.
            let _ = rustix::process::kill_process(self.node_daemon, Signal::KILL);
            self.enforce_at = None;
        }
        let timeout = self.job.timeout.filter(|_| self.forced_code.is_none());
        if let Some(span) = timeout.filter(|span| now.duration_since(self.started) >= *span) {
            self.forced_code = Some(124);
            self.lines.push(format!(
                "mpiexec: the job has run for {} s, as long as --timeout allows, and has been ended [E-JOB-010]",
                span.as_secs_f64()
            ));
            self.kill(DaemonCommand::Overdue);
        }
    }

    /// Ends the job now; while draining, ends `mpiexec` without printing the rest.
    fn kill(&mut self, command: DaemonCommand) {
        self.kill_at = None;
        if self.state != State::Running {
            self.leave_at = Some(Instant::now());
            return;
        }
        self.enforce_at.get_or_insert_with(|| Instant::now() + END_ORDER_TIME_LIMIT);
        send(self.control.as_fd(), &command, &[]);
        self.continue_node_daemon();
    }

    /// Continues a node daemon that somebody has stopped. It was not reaped yet, so its process id cannot have been reused.
    fn continue_node_daemon(&self) {
        if self.state == State::Running {
            let _ = rustix::process::kill_process(self.node_daemon, Signal::CONT);
        }
    }

    fn read_node_daemon(&mut self) -> io::Result<()> {
        loop {
            match receive::<DaemonReport>(self.control.as_fd()) {
                Received::Nothing => return Ok(()),
                Received::Closed => return self.on_node_daemon_gone(),
                Received::Message(DaemonReport::Started(rank), ends) => {
                    for (stream, end) in self.streams.iter_mut().zip(ends) {
                        stream.add(rank, self.job.ranks() == 1, end)?;
                    }
                }
                Received::Message(DaemonReport::Input, mut ends) => {
                    if let Some(end) = ends.pop() {
                        stdin::pass_on(end)?;
                    }
                }
                Received::Message(DaemonReport::Line(line), _) => self.lines.push(line),
                Received::Message(DaemonReport::LineNow(line), _) => self.streams[STDERR].say(&line),
                Received::Message(DaemonReport::Ended(code), _) => self.over(code),
            }
        }
    }

    fn over(&mut self, code: u8) {
        if self.state == State::Running {
            self.state = State::Draining(code);
            (self.kill_at, self.enforce_at) = (None, None);
            self.leave_at = self.forced_code.map(|_| Instant::now() + END_TIME_LIMIT);
        }
    }

    /// The node daemon, the parent of all ranks, has ended: its children have become ours, and are killed.
    fn on_node_daemon_gone(&mut self) -> io::Result<()> {
        epoll::delete(&self.epoll_set, &self.control)?;
        if self.state == State::Running {
            let left = kill::kill_all(&[], |_, _| {});
            let line = "mpiexec: the node daemon, which starts and watches the ranks, was killed; the job has been ended \
                 [E-JOB-011]";
            // Unless mpiexec killed it itself.
            if self.forced_code.is_none() {
                self.lines.push(line.to_owned());
            }
            self.lines.extend(kill::unkillable(&left));
            self.over(1);
        }
        Ok(())
    }

    fn read(&mut self, index: usize) -> io::Result<()> {
        let stream = &mut self.streams[index];
        stream.read()?;
        if !stream.printer.has_room() {
            epoll::delete(&self.epoll_set, &stream.set)?;
            stream.listening = false;
        }
        Ok(())
    }

    fn on_printed(&mut self, index: usize) -> io::Result<()> {
        let stream = &mut self.streams[index];
        stream.printer.seen();
        let room = stream.printer.has_room() && !stream.printer.broken();
        if room && !stream.listening {
            listen(&self.epoll_set, &stream.set, token::STREAM + index as u64)?;
            stream.listening = true;
        }
        Ok(())
    }

    /// If the reader has closed the output, `mpiexec` ends like a program that SIGPIPE kills, without a line, unless all ranks
    /// have ended by then. Output that is lost for another reason makes the exit code nonzero.
    fn check_printers(&mut self) {
        for index in 0..self.streams.len() {
            let Some(errno) = self.streams[index].printer.error() else { continue };
            let reader_is_gone = errno == rustix::io::Errno::PIPE;
            if self.forced_code.is_some() || (reader_is_gone && self.state != State::Running) {
                continue;
            }
            if reader_is_gone {
                self.forced_code = Some(signal_code(Signal::PIPE.as_raw()));
            } else {
                self.forced_code = Some(1);
                let which = ["standard output", "standard error"][index];
                let error = io::Error::from(errno);
                self.lines.push(format!(
                    "mpiexec: what the ranks print cannot be written to {which}: {error}; the job has been ended \
                     [E-JOB-013]"
                ));
            }
            if self.state == State::Running {
                self.kill(DaemonCommand::Kill);
            }
        }
    }

    fn on_signal(&mut self, index: usize) {
        let pipe = &mut self.signals[index];
        let signal = pipe.signal;
        let count = pipe.take();
        if count == 0 {
            return;
        }
        match signals::role(signal) {
            SignalRole::PassOn | SignalRole::Continue => self.pass_on(signal),
            SignalRole::Stop => {
                // The ranks are in another session: only SIGSTOP stops them.
                self.pass_on(Signal::STOP);
                let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
            }
            SignalRole::End => {
                let again = self.forced_code.is_some() || count > 1 || self.state != State::Running;
                if self.forced_code.is_none() {
                    self.forced_code = Some(signal_code(signal.as_raw()));
                    self.pass_on(signal);
                    self.continue_node_daemon();
                    self.kill_at = Some(Instant::now() + END_TIME_LIMIT);
                }
                if again {
                    self.kill(DaemonCommand::Kill);
                }
            }
        }
    }

    fn pass_on(&self, signal: Signal) {
        send(self.control.as_fd(), &DaemonCommand::Signal(signal.as_raw()), &[]);
    }
}

impl OutputStream {
    fn new(job: &JobDescription, out: impl AsFd + Send + 'static) -> io::Result<Self> {
        Ok(OutputStream {
            printer: Printer::start(out)?,
            joiner: Joiner::new(job.labels),
            pipes: vec![],
            open: 0,
            set: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            listening: true,
        })
    }

    fn add(&mut self, rank: u32, alone: bool, end: OwnedFd) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&end, true)?;
        listen(&self.set, &end, self.pipes.len() as u64)?;
        let assembler = if alone { Assembler::unbuffered() } else { Assembler::whole_lines() };
        self.pipes.push(Some(Pipe { rank, end, assembler, last_read: Instant::now() }));
        self.open += 1;
        Ok(())
    }

    /// Reads once from each readable pipe, until the printer has no room.
    fn read(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(64);
        let unbuffered = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&self.set, rustix::buffer::spare_capacity(&mut events), Some(&unbuffered)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        for event in events {
            self.read_one(event.data.u64() as usize);
        }
        Ok(())
    }

    fn read_one(&mut self, index: usize) {
        let Some(pipe) = self.pipes.get_mut(index).and_then(Option::as_mut) else { return };
        let mut bytes = [0; 16 << 10];
        let text = match rustix::io::read(&pipe.end, &mut bytes) {
            Ok(0) => return self.close(index),
            Ok(count) => {
                pipe.last_read = Instant::now();
                pipe.assembler.add(&bytes[..count])
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
            Err(_) => return self.close(index),
        };
        self.print(index, &text);
    }

    fn print(&mut self, index: usize, text: &[u8]) {
        let Some(pipe) = &self.pipes[index] else { return };
        let mut joined = Vec::with_capacity(text.len());
        self.joiner.join(pipe.rank, text, &mut joined);
        self.printer.print(&joined);
    }

    /// When the next unfinished line is to be shown; `None` while the printer has no room.
    fn show_at(&self) -> Option<Instant> {
        self.pipes.iter().flatten().filter(|_| self.listening).filter_map(Pipe::show_at).min()
    }

    fn show_begun(&mut self, now: Instant) {
        if self.show_at().is_none_or(|at| now < at) {
            return;
        }
        for index in 0..self.pipes.len() {
            let due = |pipe: &mut Pipe| pipe.show_at().filter(|at| now >= *at).map(|_| pipe.assembler.rest());
            if let Some(begun) = self.pipes[index].as_mut().and_then(due) {
                self.print(index, &begun);
            }
        }
    }

    fn close(&mut self, index: usize) {
        let rest = self.pipes[index].as_mut().map(|pipe| pipe.assembler.rest()).unwrap_or_default();
        self.print(index, &rest);
        if self.pipes[index].take().is_some() {
            self.open -= 1;
        }
    }

    fn close_all(&mut self) {
        (0..self.pipes.len()).for_each(|index| self.close(index));
    }

    /// Prints a line of `mpiexec` itself.
    fn say(&mut self, line: &str) {
        let mut text = Vec::with_capacity(line.len() + 2);
        self.joiner.end_line(&mut text);
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
        self.printer.print(&text);
    }
}

fn listen(set: &OwnedFd, to: impl AsFd, token: u64) -> io::Result<()> {
    Ok(epoll::add(set, to, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?)
}
