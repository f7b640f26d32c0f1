// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask mutants [--check] [WORD...]`: breaks one rule of the recovery protocols after another in a copy of the sources; the
//! tests must fail each time. `xtask/mutants.table` has the mutants and says how they are written.
//!
//! ```text
//!   table ─▶ every text is found exactly once ─▶ copy ─▶ for each mutant: replace, build, test, put back
//!                                                         └▶ caught, or survived; a survivor must be declared in the table
//! ```
//!
//! All mutants are built in one target folder, so that only what depends on the changed file is built again. `--check` looks for
//! the texts only; with words, only mutants whose names contain all of them are run.

mod copy;
mod table;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::place::{Logs, Place};
use crate::{CommandError, Outcome, command_error, processes};
use copy::Sources;
pub use table::Mutant;

/// What a mutant has come to.
#[derive(Clone, PartialEq, Eq, Debug)]
enum End {
    /// This test failed.
    Caught(String),
    /// The tests did not end: something waits or goes on for ever.
    Hung,
    Survived,
    /// It cannot be compiled, which says nothing.
    NotBuilt,
}

/// Runs the mutants that the words choose.
pub fn command(place: &Place, words: &[&str]) -> Outcome {
    let mut mutants = table::read(place)?;
    for mutant in &mutants {
        mutant.apply(&copy::read(&place.root.join(&mutant.file))?)?;
    }
    mutants.retain(|mutant| words.iter().all(|word| *word == CHECK || mutant.name.contains(word)));
    if words.contains(&CHECK) {
        println!("checks: {} passed, 0 failed", mutants.len());
        return Ok(());
    }
    let (copy, logs) = (Sources::make(place)?, Logs::open(place, "mutants/logs")?);
    let run = Run { copy, logs };
    let unchanged = run.tests_pass(&mutants)?;
    let (mut passed, mut failed) = (0, 0);
    for mutant in &mutants {
        let started = Instant::now();
        let end = run.run(mutant, unchanged)?;
        let is_expected = match end {
            End::Caught(_) | End::Hung => mutant.survives.is_none(),
            End::Survived => mutant.survives.is_some(),
            End::NotBuilt => false,
        };
        *(if is_expected { &mut passed } else { &mut failed }) += 1;
        let mark = if is_expected { "" } else { "   NOT AS DECLARED" };
        println!("{:<34} {} ({:.0} s){mark}", mutant.name, words_for(&end), started.elapsed().as_secs_f64());
    }
    println!("checks: {passed} passed, {failed} failed");
    match failed {
        0 => Ok(()),
        _ => Err(CommandError(format!("{failed} mutants are not as the table declares"))),
    }
}

const CHECK: &str = "--check";

fn words_for(end: &End) -> String {
    match end {
        End::Caught(test) => format!("caught by {test}"),
        End::Hung => "caught: the tests do not end".to_owned(),
        End::Survived => "survived".to_owned(),
        End::NotBuilt => "cannot be compiled".to_owned(),
    }
}

/// The scratch copy, and where the output of its tests goes.
struct Run {
    copy: Sources,
    logs: Logs,
}

impl Run {
    /// All tests that the mutants name pass without a mutant. Returns the longest time that one took.
    fn tests_pass(&self, mutants: &[Mutant]) -> Outcome<Duration> {
        let mut longest = Duration::ZERO;
        let mut tests: Vec<&str> = mutants.iter().map(|mutant| &*mutant.test).collect();
        tests.sort_unstable();
        tests.dedup();
        for test in tests {
            if !self.cargo(test, true, BUILD_LIMIT)?.is_some_and(|succeeded| succeeded) {
                return Err(CommandError(format!("without a mutant, cargo test {test} cannot be built")));
            }
            let started = Instant::now();
            if !self.cargo(test, false, BUILD_LIMIT)?.is_some_and(|succeeded| succeeded) {
                return Err(CommandError(format!("without a mutant, cargo test {test} fails")));
            }
            println!("without a mutant: {test} ({:.0} s)", started.elapsed().as_secs_f64());
            longest = longest.max(started.elapsed());
        }
        Ok(longest)
    }

    fn run(&self, mutant: &Mutant, unchanged: Duration) -> Outcome<End> {
        let before = self.copy.read(&mutant.file)?;
        self.copy.write(&mutant.file, &mutant.apply(&before)?)?;
        let end = self.test(mutant, unchanged);
        self.copy.write(&mutant.file, &before)?;
        end
    }

    fn test(&self, mutant: &Mutant, unchanged: Duration) -> Outcome<End> {
        if !self.cargo(&mutant.test, true, BUILD_LIMIT)?.is_some_and(|succeeded| succeeded) {
            return Ok(End::NotBuilt);
        }
        Ok(match self.cargo(&mutant.test, false, 2 * unchanged + SLACK)? {
            Some(true) => End::Survived,
            Some(false) => End::Caught(self.failed_test()?),
            None => End::Hung,
        })
    }

    /// Builds or runs tests in the copy. `None`: they had to be killed.
    fn cargo(&self, test: &str, only_builds: bool, limit: Duration) -> Outcome<Option<bool>> {
        let log = self.logs.path().join("test.log");
        let cannot = |error| command_error(format!("cannot write {}", log.display()), error);
        let output = std::fs::File::create(&log).map_err(cannot)?;
        let mut cargo = self.copy.cargo_test(test, only_builds);
        if !only_builds {
            // A mutant may loop and allocate: it must not take the memory of the machine.
            cargo = limited(&cargo);
        }
        cargo.stdin(Stdio::null()).stderr(output.try_clone().map_err(cannot)?).stdout(output);
        let mut child = cargo.spawn().map_err(|error| command_error("cannot start cargo", error))?;
        let deadline = Instant::now() + limit;
        loop {
            match child.try_wait().map_err(|error| command_error("cannot wait for cargo", error))? {
                Some(status) => return Ok(Some(status.success())),
                None if Instant::now() > deadline => break,
                None => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        let mut doomed = processes::descendants(child.id());
        doomed.push(child.id());
        processes::kill(&doomed);
        child.wait().map_err(|error| command_error("cannot wait for cargo", error))?;
        Ok(None)
    }

    /// The first test that the log shows as failed.
    fn failed_test(&self) -> Outcome<String> {
        let log = copy::read(&self.logs.path().join("test.log"))?;
        Ok(failed_in(&log).unwrap_or("a crash").to_owned())
    }
}

/// The first test in the output of libtest that failed.
fn failed_in(log: &str) -> Option<&str> {
    let line = log.lines().find(|line| line.starts_with("---- ") && line.ends_with(" stdout ----"))?;
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// The same command with at most 8 GiB of addresses for each process.
fn limited(command: &Command) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -v 8388608; exec \"$@\"", "sh"]).arg(command.get_program());
    limited.args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        limited.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

const BUILD_LIMIT: Duration = Duration::from_secs(3600);
/// Another program may take the processors while a mutant runs.
const SLACK: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::{copy, failed_in, table};
    use crate::place::Place;
    use std::collections::BTreeSet;

    #[test]
    fn each_mutant_changes_a_text_that_is_found_exactly_once() {
        let place = Place::find().unwrap();
        let mutants = table::read(&place).unwrap();
        for mutant in &mutants {
            mutant.apply(&copy::read(&place.root.join(&mutant.file)).unwrap()).unwrap();
        }
        let names: BTreeSet<_> = mutants.iter().map(|mutant| &mutant.name).collect();
        assert_eq!(names.len(), mutants.len(), "a name is used twice");
        assert!(mutants.iter().filter(|mutant| mutant.survives.is_none()).count() >= 40);
    }

    #[test]
    fn the_first_failed_test_is_named() {
        let log =
            "test a ... ok\nfailures:\n\n---- spread::b stdout ----\nthread panicked\n---- c stdout ----\n";
        assert_eq!(failed_in(log), Some("spread::b"));
        assert_eq!(failed_in("test a ... ok"), None);
    }
}
