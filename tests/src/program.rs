// SPDX-License-Identifier: Apache-2.0 OR MIT
//! C and C++ programs: their header lines, how they are compiled, how they are run.
//!
//! Comments at the top of a program state how it is run:
//!
//! ```c
//! // ranks: 2 4 8            for each of these numbers once; required
//! // args: 10 --fast         arguments of the program
//! // mpiexec: -l             options of mpiexec
//! // env: MEND_BTL=self,shm  variables of the job
//! // timeout: 120            seconds; the default is 60
//! // expect-exit: 3          the exit code of mpiexec; the default is 0
//! // expect-stderr: text     stderr must hold this; without the line it must be empty (R-25)
//! ```
//!
//! With code 0 expected, stdout must hold `No errors`.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mend_testing::second_name;

use crate::prefix;
use crate::watched_command::{Ended, WatchedCommand};

/// The header lines of a program.
#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    /// Numbers of ranks.
    pub ranks: Vec<u32>,
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// Options of mpiexec.
    pub options: Vec<String>,
    /// Variables of the job.
    pub variables: Vec<(String, String)>,
    /// How long a run may take.
    pub limit: Duration,
    /// The exit code wanted.
    pub exit: i32,
    /// What stderr must hold.
    pub complaint: Option<String>,
}

impl Header {
    /// Reads the comments at the top of `source`. Other lines (`// Row PP7`) are ignored.
    pub fn parse(source: &str) -> Result<Header, String> {
        let mut header = Header {
            ranks: Vec::new(),
            arguments: Vec::new(),
            options: Vec::new(),
            variables: Vec::new(),
            limit: Duration::from_secs(60),
            exit: 0,
            complaint: None,
        };
        for line in source.lines().take_while(|line| !line.starts_with('#')) {
            let comment =
                line.trim().trim_start_matches("//").trim_start_matches("/*").trim_start_matches('*');
            if let Some((key, value)) = comment.split_once(':') {
                header.take(key.trim(), value.trim_end_matches("*/").trim())?;
            }
        }
        if header.ranks.is_empty() { Err("no line '// ranks: ...'".to_owned()) } else { Ok(header) }
    }

    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        let words = || value.split_whitespace().map(str::to_owned);
        let number = |what: &str| value.parse().map_err(|_| format!("'{value}' is no {what}"));
        match key {
            "ranks" => {
                let parsed: Result<_, _> = words().map(|word| word.parse()).collect();
                self.ranks = parsed.map_err(|_| format!("'{value}' are no numbers of ranks"))?;
            }
            "args" => self.arguments = words().collect(),
            "mpiexec" => self.options = words().collect(),
            "env" => {
                for word in words() {
                    let (name, value) =
                        word.split_once('=').ok_or_else(|| format!("'{word}' is no NAME=VALUE"))?;
                    self.variables.push((name.to_owned(), value.to_owned()));
                }
            }
            "timeout" => self.limit = Duration::from_secs(number("time in seconds")? as u64),
            "expect-exit" => self.exit = number("exit code")?,
            "expect-stderr" => self.complaint = Some(value.to_owned()),
            _ => {}
        }
        Ok(())
    }

    /// `Err`: how the run differs from the header.
    pub fn check(&self, ended: &Ended) -> Result<(), String> {
        let wrong = if !ended.exited_with(self.exit) {
            format!("code {} was expected and nobody left behind", self.exit)
        } else if self.exit == 0 && !ended.stdout.contains("No errors") {
            "it did not say 'No errors'".to_owned()
        } else {
            match &self.complaint {
                None if ended.stderr.is_empty() || self.exit != 0 => return Ok(()),
                None => "stderr should be empty".to_owned(),
                Some(complaint) if ended.stderr.contains(complaint) => return Ok(()),
                Some(complaint) => format!("stderr should hold '{complaint}'"),
            }
        };
        Err(format!("{wrong}: {}", ended.report()))
    }
}

/// Compiles `source` with our mpicc or mpicxx. `Err`: the compiler's messages. There is a separate product folder for each prefix,
/// set of flags and folder of sources, as two folders may have sources of one name.
pub fn compile(source: &Path) -> Result<PathBuf, String> {
    let flags = std::env::var("MENDTEST_CFLAGS").unwrap_or_default();
    let mut build = DefaultHasher::new();
    (prefix::prefix(), &flags, source.parent()).hash(&mut build);
    compile_into(&prefix::folder(&format!("programs/{:016x}", build.finish())), source, &flags)
}

/// Compiles a source that a test has written into its own folder.
pub fn compile_beside(source: &Path) -> Result<PathBuf, String> {
    let flags = std::env::var("MENDTEST_CFLAGS").unwrap_or_default();
    compile_into(source.parent().ok_or("a source lies in a folder")?, source, &flags)
}

fn compile_into(folder: &Path, source: &Path, flags: &str) -> Result<PathBuf, String> {
    let stem = source.file_stem().ok_or("a source has a name")?;
    let product = folder.join(stem);
    let beside = second_name(&product);
    let compiler = if source.extension().is_some_and(|kind| kind == "cc") { "mpicxx" } else { "mpicc" };
    let mut command = prefix::command(compiler);
    command.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror"]).args(flags.split_whitespace());
    command.arg(source).arg("-o").arg(&beside).args(["-pthread", "-lm"]);
    let output = command.output().map_err(|error| format!("cannot start {compiler}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{compiler} failed:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    // Renamed when it is complete, as another test may be running the program of that name.
    std::fs::rename(&beside, &product).map_err(|error| format!("cannot rename a program: {error}"))?;
    Ok(product)
}

/// Compiles a program of `tests/limits`; panics if it does not compile.
pub fn limit_program(name: &str) -> PathBuf {
    needed(&prefix::place().root.join("tests/limits").join(name))
}

/// Compiles a program of `tests/deaths`.
pub fn death_program(name: &str) -> PathBuf {
    needed(&prefix::place().root.join("tests/deaths").join(name))
}

/// Compiles `source` once in each test program.
fn needed(source: &Path) -> PathBuf {
    static COMPILED: Mutex<BTreeMap<PathBuf, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(product) = compiled.get(source) {
        return product.clone();
    }
    let product = compile(source).unwrap_or_else(|why| panic!("{}: {why}", source.display()));
    compiled.insert(source.to_owned(), product.clone());
    product
}

/// `mpiexec -n RANKS`, with a --timeout a little before `limit`, so that it can report where the job hung.
pub fn mpiexec(ranks: u32, limit: Duration) -> Command {
    let mut command = prefix::command("mpiexec");
    command.args([
        "--timeout",
        &limit.as_secs().saturating_sub(2).max(1).to_string(),
        "-n",
        &ranks.to_string(),
    ]);
    command
}

/// Runs `program` on `ranks` ranks as its header says.
pub fn run(program: &Path, header: &Header, ranks: u32) -> Ended {
    let mut command = mpiexec(ranks, header.limit);
    command.args(&header.options).arg(program).args(&header.arguments);
    command.envs(header.variables.iter().map(|(name, value)| (name, value)));
    WatchedCommand::new(command, header.limit).run()
}

#[cfg(test)]
mod tests {
    use super::{Header, compile};
    use crate::prefix;
    use std::process::Command;
    use std::sync::Barrier;
    use std::time::Duration;

    #[test]
    fn one_program_compiled_by_many_threads_at_the_same_time_is_whole_for_each() {
        let source = prefix::place().root.join("examples/hello.c");
        prefix::prefix();
        let begin = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            let compile_and_run = || {
                begin.wait();
                let product = compile(&source).expect("an example compiles");
                Command::new(product).env_remove("LD_LIBRARY_PATH").output().expect("it can be started")
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(compile_and_run)).collect();
            for thread in threads {
                let output = thread.join().expect("it was compiled and started");
                assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
            }
        });
    }

    #[test]
    fn sources_of_one_name_in_two_folders_are_two_programs() {
        let root = &prefix::place().root;
        let [one, other] = ["tests/c/lifecycle.c", "tests/deaths/lifecycle.c"]
            .map(|path| compile(&root.join(path)).unwrap_or_else(|why| panic!("{path}: {why}")));
        assert_ne!(one, other);
        assert_eq!(one.file_name(), other.file_name());
    }

    const THREADS: usize = 8;

    #[test]
    fn the_first_lines_say_how_a_program_is_run() {
        let text = "// SPDX-License-Identifier: MIT\n// ranks: 2 4 8\n// Row PP7: sent whole\n// args: 10 x\n\
                    // timeout: 90\n// expect-exit: 3\n// env: A=1 B=2\n#include <mpi.h>\n// ranks: 9\n";
        let header = Header::parse(text).unwrap();
        assert_eq!(header.ranks, [2, 4, 8]);
        assert_eq!(header.arguments, ["10", "x"]);
        assert_eq!(header.limit, Duration::from_secs(90));
        assert_eq!(header.exit, 3);
        assert_eq!(header.variables[1], ("B".to_owned(), "2".to_owned()));
    }

    #[test]
    fn a_program_without_ranks_is_refused() {
        assert!(Header::parse("// args: 3\n#include <mpi.h>\n").is_err());
        assert!(Header::parse("// ranks: two\n").is_err());
    }
}
