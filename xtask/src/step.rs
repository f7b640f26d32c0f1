// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A step: one program run with a log, a time limit and a verdict.
//!
//! What the program prints goes to the log; the terminal shows one line with name, verdict and time. A failure shows the end
//! of the log. Verdicts count checks: libtest's `test result:` lines, our own `checks: N passed, N failed` lines, or, when
//! there are neither, the program itself as one check. Lines that begin `skipped: ` and `seed: ` are handed up for the summary.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::{Outcome, failure, processes};

/// What to run.
pub struct Step {
    /// One word: the name on the terminal, of the log and on the command line.
    pub name: String,
    /// What it shows, for the person who reads the list.
    pub sentence: String,
    /// The program, or why it cannot run here.
    pub work: Result<Command, String>,
    /// A step that has not ended by then hangs: it is killed and has failed.
    pub limit: Duration,
    /// Mutations: a protection has been taken out, so the step must fail, and the log must hold this sign that it failed
    /// for that reason (and not because it does not compile, for instance).
    pub must_fail: Option<&'static str>,
    /// Where its randomness begins, if it was drawn here; repeated in the summary.
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

    /// The same step, which must fail now and show `sign`.
    pub fn must_fail(self, sign: &'static str) -> Step {
        Step { must_fail: Some(sign), ..self }
    }
}

/// How a step ended.
#[derive(Debug, Default)]
pub struct Report {
    /// The step.
    pub name: String,
    /// Checks that held.
    pub passed: u32,
    /// Checks that did not.
    pub failed: u32,
    /// What was left out, and why.
    pub skips: Vec<String>,
    /// Seeds and figures that the step wants to be remembered.
    pub notes: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// Runs `step`, shows one line, and on failure the end of the log, which stays in `logs`.
pub fn run(step: Step, logs: &Path) -> Outcome<Report> {
    print!("  {:<26} {:<70}", step.name, step.sentence);
    // The terminal may be gone; the verdict does not depend on it.
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
    let ended = run_to_log(command, &log, step.limit)?;
    let text = String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned();
    let mut report = read_report(&text, ended.is_some_and(|status| status.success()), step.must_fail);
    report.took = started.elapsed();
    report.notes.extend(step.seed.map(|seed| format!("seed: {seed}")));
    let verdict = if report.failed == 0 { "ok" } else { "FAILED" };
    println!(" {verdict:<6} {:>7.1} s", report.took.as_secs_f64());
    if report.failed > 0 {
        show_end(&text, &log, ended, step.limit);
    }
    report.name = step.name;
    Ok(report)
}

/// `None`: it had to be killed.
fn run_to_log(mut command: Command, log: &PathBuf, limit: Duration) -> Outcome<Option<ExitStatus>> {
    let name = format!("{:?}", command.get_program());
    let file =
        File::create(log).map_err(|error| failure(format!("cannot write {}", log.display()), error))?;
    let twin = file.try_clone().map_err(|error| failure("cannot share a log", error))?;
    command.stdin(Stdio::null()).stdout(file).stderr(twin);
    let child = command.spawn().map_err(|error| failure(format!("cannot start {name}"), error))?;
    wait(child, limit)
}

/// The child is asked every 20 ms; when its time is over, it and all that descend from it are killed.
fn wait(mut child: Child, limit: Duration) -> Outcome<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(Some(status)),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            Ok(None) => break,
            Err(error) => return Err(failure("cannot wait for a child", error)),
        }
    }
    let mut doomed = processes::descendants(child.id());
    doomed.push(child.id());
    processes::kill(&doomed);
    child.wait().map_err(|error| failure("cannot wait for a child", error))?;
    Ok(None)
}

fn read_report(text: &str, succeeded: bool, must_fail: Option<&str>) -> Report {
    let mut report = Report::default();
    for line in text.lines().map(str::trim) {
        if let Some(counts) = line.strip_prefix("test result:").or_else(|| line.strip_prefix("checks:")) {
            report.passed += number_before(counts, "passed");
            report.failed += number_before(counts, "failed");
        } else if let Some(why) = line.strip_prefix("skipped: ") {
            report.skips.push(why.to_owned());
        } else if line.starts_with("seed: ") || line.starts_with("figure: ") {
            report.notes.push(line.to_owned());
        }
    }
    if let Some(sign) = must_fail {
        let found = !succeeded && text.contains(sign);
        (report.passed, report.failed) = if found { (1, 0) } else { (0, 1) };
    } else if !succeeded {
        report.failed = report.failed.max(1);
    } else if report.passed + report.failed == 0 {
        report.passed = 1;
    }
    report
}

fn number_before(text: &str, word: &str) -> u32 {
    let words: Vec<&str> = text.split([' ', ';', ',']).filter(|word| !word.is_empty()).collect();
    let found = words.windows(2).find(|pair| pair[1].trim_end_matches('.') == word);
    found.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
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

/// `  12: function` and `at file`: they stay in the log, and would hide the sentence that matters here.
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
    use super::{Step, read_report, run};
    use std::process::Command;
    use std::time::Duration;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn checks_are_counted_from_libtest_and_from_our_own_lines() {
        let text = "test result: ok. 12 passed; 0 failed; 1 ignored\nchecks: 30 passed, 2 failed\nskipped: no cgroup";
        let report = read_report(text, true, None);
        assert_eq!((report.passed, report.failed), (42, 2));
        assert_eq!(report.skips, ["no cgroup"]);
    }

    #[test]
    fn a_program_that_counts_nothing_is_one_check() {
        let silent = read_report("", true, None);
        assert_eq!((silent.passed, silent.failed), (1, 0));
        let broken = read_report("error: no", false, None);
        assert_eq!((broken.passed, broken.failed), (0, 1));
    }

    #[test]
    fn a_mutation_that_is_not_found_has_failed() {
        let judge = |text, succeeded| read_report(text, succeeded, Some("deadlock")).failed;
        assert_eq!(judge("test result: ok. 3 passed; 0 failed", true), 1);
        assert_eq!(judge("panicked: deadlock\ntest result: FAILED. 2 passed; 1 failed", false), 0);
        assert_eq!(judge("error: could not compile", false), 1);
    }

    #[test]
    fn a_step_that_hangs_is_killed_with_its_children_and_has_failed() {
        let logs = std::env::temp_dir().join(format!("mend-xtask-step-{}", std::process::id()));
        std::fs::create_dir_all(&logs).unwrap();
        let step = Step::new("hang", "", shell("sleep 1000 & wait")).within(Duration::from_millis(50));
        let report = run(step, &logs).unwrap();
        assert_eq!(report.failed, 1);
        std::fs::remove_dir_all(&logs).unwrap();
    }
}
