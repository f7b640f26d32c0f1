// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One job: a command with all its descendants, watched until they have ended.
//!
//! Every job is marked by a variable in its environment, which all its processes inherit; so processes that it leaves behind are
//! found in /proc, also when they have another parent, and are not confused with those of other jobs.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mend_xtask::processes;

/// A command to be run and watched.
#[derive(Debug)]
pub struct WatchedCommand {
    command: Command,
    limit: Duration,
    mark: String,
}

/// How a job ended.
#[derive(Debug)]
pub struct Ended {
    /// `None`: it hung and was killed.
    pub status: Option<ExitStatus>,
    /// What it printed.
    pub stdout: String,
    /// What it printed on stderr.
    pub stderr: String,
    /// Processes that were still there 5 s after its end; they have been killed.
    pub left_behind: Vec<String>,
    /// From start to end.
    pub took: Duration,
}

/// A job that runs.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: JoinHandle<String>,
    stderr: JoinHandle<String>,
    started: Instant,
    limit: Duration,
    mark: String,
}

impl WatchedCommand {
    /// A job that is killed when `limit` has passed.
    pub fn new(mut command: Command, limit: Duration) -> WatchedCommand {
        let mark = mend_testing::unique();
        command.env(MARK, &mark);
        WatchedCommand { command, limit, mark }
    }

    /// Runs it to its end.
    pub fn run(mut self) -> Ended {
        self.command.stdin(Stdio::null());
        self.spawn(|_| {}).end()
    }

    /// Starts it with a pipe for stdin; `on_line` sees every line of stdout as it comes.
    pub fn start(mut self, on_line: impl FnMut(&str) + Send + 'static) -> Running {
        self.command.stdin(Stdio::piped());
        self.spawn(on_line)
    }

    fn spawn(mut self, on_line: impl FnMut(&str) + Send + 'static) -> Running {
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Instant::now();
        let mut child =
            self.command.spawn().unwrap_or_else(|error| panic!("cannot start {:?}: {error}", self.command));
        let stdout = collect(child.stdout.take().expect("stdout is a pipe"), on_line);
        let stderr = collect(child.stderr.take().expect("stderr is a pipe"), |_| {});
        Running { child, stdout, stderr, started, limit: self.limit, mark: self.mark }
    }
}

impl Running {
    /// The processes of this job whose program is called `name`.
    pub fn processes(&self, name: &str) -> Vec<u32> {
        let mut found = processes::marked(MARK, &self.mark);
        found.retain(|pid| program_of(*pid).as_deref() == Some(name));
        found.sort_unstable();
        found
    }

    /// The mark in the environment of its processes.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// The process that was started: in most tests mpiexec.
    pub fn first(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process that was started has ended.
    pub fn is_over(&self) -> bool {
        program_of(self.first()).is_none()
    }

    /// Closes its stdin and waits for its end.
    pub fn end(mut self) -> Ended {
        drop(self.child.stdin.take());
        let status = self.wait();
        let left_behind = self.sweep();
        Ended {
            status,
            stdout: self.stdout.join().expect("a reader of a pipe does not panic"),
            stderr: self.stderr.join().expect("a reader of a pipe does not panic"),
            left_behind,
            took: self.started.elapsed(),
        }
    }

    fn wait(&mut self) -> Option<ExitStatus> {
        while self.started.elapsed() < self.limit {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                // Sleeps: between two checks, which must not take a processor from the job.
                Ok(None) => std::thread::sleep(CHECK_INTERVAL),
                Err(error) => panic!("cannot wait for a child: {error}"),
            }
        }
        processes::kill(&processes::marked(MARK, &self.mark));
        self.child.kill().expect("our own child can be killed");
        self.child.wait().expect("our own child can be waited for");
        None
    }

    /// Names and kills the processes that are still there after a while, which also ends the pipes.
    fn sweep(&self) -> Vec<String> {
        assert!(processes::all().any(|pid| pid == std::process::id()), "/proc does not show this process");
        let deadline = Instant::now() + SWEEP_LIMIT;
        let mut left = processes::marked(MARK, &self.mark);
        while !left.is_empty() && Instant::now() < deadline {
            // Sleeps: /proc gives no event for the end of a process that is not our child.
            std::thread::sleep(CHECK_INTERVAL);
            left = processes::marked(MARK, &self.mark);
        }
        let names =
            left.iter().map(|&pid| format!("{pid} ({})", program_of(pid).unwrap_or_default())).collect();
        while !left.is_empty() {
            processes::kill(&left);
            left = processes::marked(MARK, &self.mark);
        }
        names
    }
}

impl Ended {
    /// What a test prints if the job was not as expected.
    pub fn report(&self) -> String {
        let status = self.status.map_or_else(|| "killed: it hung".to_owned(), |status| status.to_string());
        let mut report = format!("{status} after {:.1} s", self.took.as_secs_f64());
        for (title, text) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !text.is_empty() {
                report.push_str(&format!("\n--- {title} ---\n{}", end_of(text)));
            }
        }
        if !self.left_behind.is_empty() {
            report.push_str(&format!("\n--- left behind ---\n{}", self.left_behind.join(", ")));
        }
        report
    }

    /// Whether it ended in time, with `code`, and left no process behind.
    pub fn exited_with(&self, code: i32) -> bool {
        self.status.and_then(|status| status.code()) == Some(code) && self.left_behind.is_empty()
    }

    /// Whether it succeeded without a message: code 0, `No errors`, nothing on stderr.
    pub fn is_clean(&self) -> bool {
        self.exited_with(0) && self.stdout.contains("No errors") && self.stderr.is_empty()
    }

    /// Whether it was refused properly: an exit code that is not a signal's, and on stderr a sentence with the reason, which
    /// contains `words`.
    pub fn is_refused_with(&self, words: &str) -> bool {
        let code = self.status.and_then(|status| status.code());
        code.is_some_and(|code| code != 0 && code < 128)
            && self.stderr.lines().any(|line| line.contains(words))
            && self.left_behind.is_empty()
    }
}

/// Kills all processes of the job with this mark.
pub fn kill(mark: &str) {
    processes::kill(&processes::marked(MARK, mark));
}

fn collect(
    mut from: impl Read + Send + 'static,
    mut on_line: impl FnMut(&str) + Send + 'static,
) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut printed = 0;
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut piece) {
            bytes.extend_from_slice(&piece[..length]);
            while let Some(end) = bytes[printed..].iter().position(|&byte| byte == b'\n') {
                on_line(&String::from_utf8_lossy(&bytes[printed..printed + end]));
                printed += end + 1;
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn program_of(pid: u32) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    Some(path.file_name()?.to_string_lossy().into_owned())
}

fn end_of(text: &str) -> &str {
    let start = text.len().saturating_sub(4000);
    text.get(text.ceil_char_boundary(start)..).unwrap_or(text)
}

const MARK: &str = "MENDTEST_JOB";
const CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// no process is left 5 s after the end.
const SWEEP_LIMIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::WatchedCommand;
    use std::process::Command;
    use std::time::Duration;

    fn shell(script: &str, limit: Duration) -> WatchedCommand {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        WatchedCommand::new(command, limit)
    }

    #[test]
    fn a_job_that_hangs_is_killed_and_reported_as_hanging() {
        let ended = shell("echo begun; sleep 1000", Duration::from_millis(100)).run();
        assert!(ended.status.is_none());
        assert_eq!(ended.stdout, "begun\n");
    }

    #[test]
    fn a_process_that_outlives_its_job_is_found_named_and_ended() {
        let ended = shell("setsid sleep 1000 & exit 0", Duration::from_secs(20)).run();
        assert_eq!(ended.left_behind.len(), 1, "{}", ended.report());
        assert!(ended.left_behind[0].contains("sleep"));
    }

    #[test]
    fn lines_are_seen_as_they_come_and_stdin_closes_at_the_end() {
        let (sender, lines) = std::sync::mpsc::channel();
        let running = shell("echo ready; cat; echo over", Duration::from_secs(20))
            .start(move |line| sender.send(line.to_owned()).expect("the test listens"));
        assert_eq!(lines.recv_timeout(Duration::from_secs(10)).unwrap(), "ready");
        // The shell has printed `ready`, and starts `cat` next; if it does not, the job's limit ends the loop.
        while running.processes("cat").is_empty() {
            assert!(running.started.elapsed() < running.limit, "cat never began");
            std::thread::yield_now();
        }
        let ended = running.end();
        assert!(ended.exited_with(0), "{}", ended.report());
        assert_eq!(ended.stdout, "ready\nover\n");
    }
}
