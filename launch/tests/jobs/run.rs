// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs `mpiexec` under a watchdog, and finds every process of its job by a mark in the environment.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// `mpiexec`.
pub const MPIEXEC: &str = env!("CARGO_BIN_EXE_mpiexec");
/// A rank without MPI.
pub const PROBE: &str = env!("CARGO_BIN_EXE_mend-launch-probe");

/// A job that runs.
pub struct Run {
    /// `mpiexec`.
    pub child: Child,
    mark: String,
    watchdog: mpsc::Sender<()>,
}

/// How a job ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code, or 1000 + signal.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Starts `mpiexec` with these words.
pub fn start(words: &[&str]) -> Run {
    let mut command = Command::new(MPIEXEC);
    command.args(words);
    start_command(command)
}

/// Starts a command that is `mpiexec` or executes it.
pub fn start_command(command: Command) -> Run {
    let mut command = with_signals(&command);
    let mark = mend_testing::unique();
    command.env(MARK, &mark).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    // Until `env` has executed the command, a signal that was inherited as ignored is lost.
    let program = format!("/proc/{}/exe", child.id());
    while std::fs::read_link(&program).is_ok_and(|program| program.ends_with("env")) {
        std::thread::yield_now();
    }
    let (watchdog, ended) = mpsc::channel();
    let hung = mark.clone();
    std::thread::spawn(move || {
        if ended.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("the watchdog ends a job that hangs: {hung}");
            for pid in marked(&hung) {
                signal(pid, rustix::process::Signal::KILL);
            }
        }
    });
    Run { child, mark, watchdog }
}

/// The same command with default actions of signals: tests that run in the background (`nohup`, a script's `&`) have SIGINT
/// and SIGHUP ignored, and `mpiexec` goes on ignoring what it inherits as ignored.
fn with_signals(command: &Command) -> Command {
    let mut env = Command::new("env");
    env.arg("--default-signal=HUP,INT,QUIT,TERM,USR1,USR2")
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => env.env(name, value),
            None => env.env_remove(name),
        };
    }
    env
}

/// Runs a job to its end with an empty standard input.
pub fn run(words: &[&str]) -> Ended {
    run_with_input(words, b"")
}

/// Runs a job to its end.
pub fn run_with_input(words: &[&str], input: &[u8]) -> Ended {
    start(words).end_with_input(input)
}

/// Runs a shell command on each of `ranks` ranks.
pub fn shell(ranks: &str, script: &str) -> Ended {
    run(&["-n", ranks, "sh", "-c", script])
}

impl Run {
    /// Waits for the end, all output read.
    pub fn end(self) -> Ended {
        self.end_with_input(b"")
    }

    fn end_with_input(mut self, input: &[u8]) -> Ended {
        let mut stdin = self.child.stdin.take();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            // Rank 0 may read less.
            let _ = stdin.as_mut().map(|stdin| stdin.write_all(&input));
        });
        let mut stderr = self.child.stderr.take().unwrap();
        let complaints = std::thread::spawn(move || {
            let mut text = Vec::new();
            stderr.read_to_end(&mut text).unwrap();
            text
        });
        let mut stdout = Vec::new();
        if let Some(mut stream) = self.child.stdout.take() {
            stream.read_to_end(&mut stdout).unwrap();
        }
        let status = self.child.wait().unwrap();
        let stderr = complaints.join().unwrap();
        writer.join().unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let code = status
            .code()
            .unwrap_or_else(|| 1000 + std::os::unix::process::ExitStatusExt::signal(&status).unwrap());
        let ended = Ended { code, stdout: text(&stdout), stderr: text(&stderr) };
        // The watchdog may have ended already.
        let _ = self.watchdog.send(());
        ended
    }

    /// All processes of the job, `mpiexec` and its node daemon among them.
    pub fn processes(&self) -> Vec<i32> {
        marked(&self.mark)
    }

    /// The node daemon, once it is there.
    pub fn node_daemon(&self) -> i32 {
        let mut found = None;
        until("a node daemon", || {
            found = self.processes().into_iter().find(|&pid| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                line.split(|&byte| byte == 0).any(|word| word == b"--mend-node-daemon")
            });
            found.is_some()
        });
        found.unwrap()
    }

    /// Waits until so many processes of the job run.
    pub fn until_processes(&self, count: usize) {
        until("processes of the job", || self.processes().len() >= count);
    }

    /// Waits until no process of the job is left: at most 5 seconds.
    pub fn until_nothing_is_left(&self) {
        let began = Instant::now();
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(5), "left after 5 s: {left:?}");
            // Sleeps: between two looks at /proc, which has nothing to wait on.
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a signal to `mpiexec`.
    pub fn signal(&self, which: rustix::process::Signal) {
        signal(self.child.id() as i32, which);
    }
}

/// Waits for a condition; a watchdog ends what hangs.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(30), "no {what} after 30 s");
        // Sleeps: between two looks at /proc, which has nothing to wait on.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a signal; the process may be gone.
pub fn signal(pid: i32, which: rustix::process::Signal) {
    let _ = rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), which);
}

/// A variable in the environment of each process of a job, by which all of them are found. Not `MEND_...`, as it is no parameter.
const MARK: &str = "LAUNCH_JOB_MARK";

/// Processes that live and carry the mark. (Zombies have no environment.)
fn marked(mark: &str) -> Vec<i32> {
    let wanted = format!("{MARK}={mark}");
    let numbers =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    let numbers: Vec<i32> = numbers.collect();
    assert!(numbers.contains(&(std::process::id() as i32)), "/proc does not show this process");
    let carries = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    numbers.into_iter().filter(carries).collect()
}
