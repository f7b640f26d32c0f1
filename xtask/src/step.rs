// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A step: one program run with a log and a time limit, which passes or fails.
//!
//! The output of the program goes to the log; the terminal shows one line with name, result and time. After a failure the end of
//! the log is shown. [`Report`] counts the checks in the log. A test that runs longer than the step allows ([`Step::tests_within`])
//! is named, and the test program is killed; cargo then goes on with the next one.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::{Outcome, command_error, processes};

mod report;
mod watch;

pub use report::Report;
pub use watch::TestLimits;

use watch::Watch;

/// What to run.
pub struct Step {
    /// One word: the name on the terminal, of the log and on the command line.
    pub name: String,
    /// What it tests, for the list of steps.
    pub sentence: String,
    /// The program, or why it cannot run here.
    pub work: Result<Command, String>,
    /// A step that has not ended after this time hangs: it is killed and has failed.
    pub limit: Duration,
    /// For mutations: a protection has been removed, so the step must fail, and the log must hold this text as a sign that it
    /// failed for that reason (and not because it does not compile, for instance).
    pub must_fail: Option<&'static str>,
    /// How long each test of libtest may run; `None`: as long as the step.
    pub tests: Option<TestLimits>,
    /// The seed of its random numbers, if it was drawn here; repeated in the summary.
    pub seed: Option<u64>,
}

impl Step {
    /// A step that must succeed within ten minutes.
    pub fn new(name: &str, sentence: &str, command: Command) -> Step {
        let limit = Duration::from_secs(600);
        Step {
            name: name.to_owned(),
            sentence: sentence.to_owned(),
            work: Ok(command),
            limit,
            must_fail: None,
            tests: None,
            seed: None,
        }
    }

    /// A step that cannot run on this machine, and why.
    pub fn skipped(name: &str, sentence: &str, why: impl Into<String>) -> Step {
        Step { work: Err(why.into()), ..Step::new(name, sentence, Command::new("true")) }
    }

    /// The same step with another time limit.
    pub fn within(self, limit: Duration) -> Step {
        Step { limit, ..self }
    }

    /// The same step, each of whose tests has a time limit too.
    pub fn tests_within(self, each: Duration, longer: &'static [(&'static str, Duration)]) -> Step {
        Step { tests: Some(TestLimits { each, longer }), ..self }
    }

    /// The same step, which must fail now and show `sign`.
    pub fn must_fail(self, sign: &'static str) -> Step {
        Step { must_fail: Some(sign), ..self }
    }
}

/// Runs `step`, shows one line, and on failure the end of the log, which stays in `logs`.
pub fn run(step: Step, logs: &Path) -> Outcome<Report> {
    print!("  {:<26} {:<70}", step.name, step.sentence);
    // The terminal may be closed; the result does not depend on it.
    let _ = std::io::stdout().flush();
    let command = match step.work {
        Ok(command) => command,
        Err(why) => {
            println!(" skipped");
            return Ok(Report { name: step.name, skips: vec![why], ..Report::default() });
        }
    };
    let log = logs.join(format!("{}.log", step.name));
    let started = Instant::now();
    let end = run_to_log(command, &log, step.limit, step.tests)?;
    let text = String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned();
    let succeeded = end.status.is_some_and(|status| status.success());
    let mut report = match step.must_fail {
        Some(sign) => Report::of_mutation(&text, succeeded, sign),
        None => Report::read(&text, succeeded),
    };
    report.took = started.elapsed();
    report.notes.extend(step.seed.map(|seed| format!("seed: {seed}")));
    end.hung.iter().for_each(|test| report.fault(format!("HANG: {test}")));
    report.name = step.name;
    println!("{}", result_line(&report));
    if report.failed > 0 {
        show_end(&text, &log, end.status, step.limit);
        report.faults.iter().for_each(|fault| println!("    {fault}"));
    }
    Ok(report)
}

fn result_line(report: &Report) -> String {
    let word = match report {
        Report { failed: 1.., .. } => "FAILED",
        Report { passed: 0, .. } => "skipped",
        _ => "ok",
    };
    let skipped = match report.skips.len() {
        0 => String::new(),
        number => format!(", {number} skipped"),
    };
    format!(" {word:<7} {:>7.1} s{skipped}", report.took.as_secs_f64())
}

/// How a program ended.
#[derive(Default)]
struct End {
    /// `None`: it had to be killed.
    status: Option<ExitStatus>,
    /// Tests that ran too long, each with its time.
    hung: Vec<String>,
}

fn run_to_log(mut command: Command, log: &Path, limit: Duration, tests: Option<TestLimits>) -> Outcome<End> {
    let name = format!("{:?}", command.get_program());
    let cannot = |error| command_error(format!("cannot write {}", log.display()), error);
    let file = File::create(log).map_err(cannot)?;
    let twin = file.try_clone().map_err(|error| command_error("cannot share a log", error))?;
    let growing = Growing { file: File::open(log).map_err(cannot)?, line: Vec::new() };
    command.stdin(Stdio::null()).stdout(file).stderr(twin);
    let child = command.spawn().map_err(|error| command_error(format!("cannot start {name}"), error))?;
    wait(child, limit, growing, tests.map(Watch::new))
}

/// Polls the child every 20 ms. When the step's time is over, the child and all its descendants are killed. When the time of a test
/// is over, only the descendants are: the test program, and the processes that it has started.
fn wait(mut child: Child, limit: Duration, mut log: Growing, mut watch: Option<Watch>) -> Outcome<End> {
    let deadline = Instant::now() + limit;
    let mut end = End::default();
    while Instant::now() < deadline {
        end.status = child.try_wait().map_err(cannot_wait)?;
        if end.status.is_some() {
            return Ok(end);
        }
        if let Some(watch) = &mut watch {
            log.show(watch);
            let now = Instant::now();
            let overdue = watch.overdue(now);
            if !overdue.is_empty() {
                end.hung.extend(overdue);
                watch.forget();
                processes::kill(&processes::descendants(child.id()));
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut doomed = processes::descendants(child.id());
    doomed.push(child.id());
    processes::kill(&doomed);
    child.wait().map_err(cannot_wait)?;
    Ok(end)
}

fn cannot_wait(error: std::io::Error) -> crate::CommandError {
    command_error("cannot wait for a child", error)
}

/// A log that is read while it is written.
struct Growing {
    file: File,
    /// The last line, which may be unfinished.
    line: Vec<u8>,
}

impl Growing {
    /// Passes new lines of the log to `watch`.
    fn show(&mut self, watch: &mut Watch) {
        let old = self.line.len();
        // A read error is ignored: the rest is read the next time, or when the whole log is read at the end.
        let read = self.file.read_to_end(&mut self.line).unwrap_or(0);
        if read == 0 {
            return;
        }
        let begins = self.line[old..].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| old + at + 1);
        let now = Instant::now();
        for line in self.line.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            watch.see(&String::from_utf8_lossy(line), now);
        }
        self.line.drain(..begins);
    }
}

fn show_end(text: &str, log: &Path, ended: Option<ExitStatus>, limit: Duration) {
    let lines: Vec<&str> = text.lines().filter(|line| !is_of_a_backtrace(line)).collect();
    for line in &lines[lines.len().saturating_sub(LINES_OF_A_FAILURE)..] {
        println!("    | {line}");
    }
    match ended {
        Some(status) => println!("    {status}; the whole log: {}", log.display()),
        None => {
            println!("    killed after {} s: it hangs; the whole log: {}", limit.as_secs(), log.display())
        }
    }
}

/// Whether a line is one of a backtrace, as `  12: function` or `at file`. Such lines are only in the log: on the terminal they
/// would hide the message.
fn is_of_a_backtrace(line: &str) -> bool {
    let line = line.trim_start();
    let numbered = line.split_once(": ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    numbered
        || line.starts_with("at ")
        || line.starts_with("stack backtrace:")
        || line.starts_with("note: Some details")
}

const LINES_OF_A_FAILURE: usize = 40;

#[cfg(test)]
mod tests {
    use super::{Step, run};
    use mend_testing::Scratch;
    use std::process::Command;
    use std::time::Duration;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_step_that_hangs_is_killed_with_its_children_and_has_failed() {
        let logs = Scratch::new("step");
        let step = Step::new("hang", "", shell("sleep 1000 & wait")).within(Duration::from_millis(50));
        let report = run(step, logs.path()).unwrap();
        assert_eq!(report.failed, 1);
    }

    // As cargo does with a test program: the shell goes on when the program that it started has been killed.
    #[test]
    fn a_test_that_hangs_is_named_and_the_programs_after_it_run() {
        let logs = Scratch::new("watch");
        let script = "sh -c 'echo \"test ring::a_waiter_hears ... \"; sleep 1000'; echo 'test result: ok. 3 passed'; exit 101";
        let step = Step::new("units", "", shell(script))
            .tests_within(Duration::from_millis(50), &[("another", LONG)]);
        let report = run(step, logs.path()).unwrap();
        assert_eq!((report.passed, report.faults), (3, vec!["HANG: ring::a_waiter_hears".to_owned()]));
        assert!(report.failed > 0);
    }

    #[test]
    fn a_test_with_a_longer_limit_may_use_it() {
        let logs = Scratch::new("watch");
        let script = "echo 'test ring::another ... '; sleep 0.3; echo ok; echo 'test result: ok. 1 passed'";
        let step = Step::new("units", "", shell(script))
            .tests_within(Duration::from_millis(50), &[("another", LONG)]);
        let report = run(step, logs.path()).unwrap();
        assert_eq!((report.passed, report.failed), (1, 0));
    }

    const LONG: Duration = Duration::from_secs(600);
}
