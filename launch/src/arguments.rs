// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line of `mpiexec`. Written by hand, because MPI's long options take one dash or two.
//!
//! A choice is obeyed or refused with the reason, never re-interpreted.

use mend_base::parameter::{Assignments, Origin, Settings};
use mend_daemon::Counting;
use mend_runtime::environment::InitialErrorHandler;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

/// What the command line asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Invocation {
    /// `--help`.
    Help,
    /// `--version`.
    Version,
    /// Run a job.
    Run(JobDescription),
}

/// A job, as the command line describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobDescription {
    /// Programs, in the order of their ranks; at least one.
    pub apps: Vec<App>,
    /// Whether each rank is pinned to a processor.
    pub binding: Binding,
    /// Whether lines of output begin with their rank.
    pub labels: bool,
    /// The time after which the job is ended.
    pub timeout: Option<Duration>,
    /// `--mca`, checked.
    pub settings: Assignments,
    /// `--initial-errhandler`, by its name in the standard.
    pub error_handler: Option<&'static str>,
    /// Whether the job outlives the death of some of its ranks.
    pub fault_tolerant: bool,
    /// Which ranks' exit codes determine that of the job.
    pub counting: Counting,
    /// Whether variables `MEND_TEST_...` act.
    pub test_hooks: bool,
}

/// One program of a job, and how often it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct App {
    /// How many ranks run it.
    pub ranks: u32,
    /// The program, looked up as a shell does.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Its working directory; that of `mpiexec` if the user gave none.
    pub directory: Option<PathBuf>,
    /// Variables set for it; all others are inherited.
    pub environment: Vec<(OsString, OsString)>,
}

/// Where ranks may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Binding {
    /// On every processor that this process may use.
    #[default]
    None,
    /// Rank i on the i-th processor that this process may use, beginning anew after the last.
    Core,
}

impl Default for JobDescription {
    fn default() -> Self {
        JobDescription {
            apps: vec![],
            binding: Binding::None,
            labels: false,
            timeout: None,
            settings: vec![],
            error_handler: None,
            fault_tolerant: true,
            counting: Counting::NotFailed,
            test_hooks: false,
        }
    }
}

impl JobDescription {
    /// The most ranks of a job on one node.
    pub const RANKS_MAX: u32 = 1024;

    /// How many ranks it has.
    pub fn ranks(&self) -> u32 {
        self.apps.iter().map(|app| app.ranks).sum()
    }

    /// The program of each rank, in order.
    pub fn programs(&self) -> impl Iterator<Item = &App> {
        self.apps.iter().flat_map(|app| std::iter::repeat_n(app, app.ranks as usize))
    }

    /// Which of the programs each rank runs, by its place on the command line.
    pub fn app_numbers(&self) -> impl Iterator<Item = usize> {
        self.apps.iter().enumerate().flat_map(|(number, app)| std::iter::repeat_n(number, app.ranks as usize))
    }
}

/// Why a command line is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UsageError {
    /// No such option.
    #[error("there is no option '{0}'; 'mpiexec --help' lists them [E-ARG-001]")]
    Unknown(String),
    /// The option's value is missing.
    #[error("option '{option}' wants {wanted} behind it [E-ARG-002]")]
    Missing {
        /// The option.
        option: String,
        /// What it wants.
        wanted: &'static str,
    },
    /// The option does not take this value.
    #[error("option '{option}' does not take '{value}': {wanted} is wanted [E-ARG-003]")]
    BadValue {
        /// The option.
        option: String,
        /// As written.
        value: String,
        /// What it wants.
        wanted: &'static str,
    },
    /// Nothing to run.
    #[error("no program is named; as in 'mpiexec -n 4 PROGRAM' [E-ARG-004]")]
    NoProgram,
    /// More than a node can hold.
    #[error("{0} ranks are more than the {max} that a job on one node can have [E-ARG-005]", max = JobDescription::RANKS_MAX)]
    TooMany(u64),
    /// A parameter is unknown or does not take its value.
    #[error("--mca: {0} [E-ARG-006]")]
    Parameter(String),
    /// An option of other launchers that this version does not implement.
    #[error(
        "option '{0}' is not supported: this version runs jobs on one node, the one it is started on [E-ARG-007]"
    )]
    OneNode(String),
}

/// Reads a command line, without the name of the program.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation, UsageError> {
    let mut parser = Parser { rest: arguments.into_iter().collect(), job: JobDescription::default() };
    loop {
        if let Some(asked) = parser.app()? {
            return Ok(asked);
        }
        if parser.rest.is_empty() {
            break;
        }
    }
    let job = parser.job;
    let ranks: u64 = job.apps.iter().map(|app| u64::from(app.ranks)).sum();
    if ranks > u64::from(JobDescription::RANKS_MAX) {
        return Err(UsageError::TooMany(ranks));
    }
    check_settings(&job.settings)?;
    Ok(Invocation::Run(job))
}

fn check_settings(settings: &Assignments) -> Result<(), UsageError> {
    Settings::new(mend_world::DECLARED).apply(Origin::CommandLine, settings).map_err(|errors| {
        let words: Vec<_> = errors.iter().map(ToString::to_string).collect();
        UsageError::Parameter(words.join("; "))
    })
}

struct Parser {
    rest: VecDeque<OsString>,
    job: JobDescription,
}

impl Parser {
    /// One program with its options, up to a `:` or the end.
    fn app(&mut self) -> Result<Option<Invocation>, UsageError> {
        let mut app = App {
            ranks: 1,
            program: OsString::new(),
            arguments: vec![],
            directory: None,
            environment: vec![],
        };
        while let Some(word) = self.rest.front() {
            let bytes = word.as_bytes();
            if bytes == b":" || bytes.first() != Some(&b'-') {
                break;
            }
            let option = word.to_string_lossy().into_owned();
            self.rest.pop_front();
            if option == "--" {
                break;
            }
            if let Some(asked) = self.option(&option, &mut app)? {
                return Ok(Some(asked));
            }
        }
        let mut words = vec![];
        while let Some(word) = self.rest.pop_front() {
            if word == ":" {
                // Another program must follow a colon.
                if self.rest.is_empty() {
                    return Err(UsageError::NoProgram);
                }
                break;
            }
            words.push(word);
        }
        let mut words = words.into_iter();
        app.program = words.next().ok_or(UsageError::NoProgram)?;
        app.arguments = words.collect();
        self.job.apps.push(app);
        Ok(None)
    }

    /// Applies one option, whose name `written` has been taken from `rest`.
    fn option(&mut self, written: &str, app: &mut App) -> Result<Option<Invocation>, UsageError> {
        let name = written.strip_prefix("--").or_else(|| written.strip_prefix('-')).unwrap_or(written);
        match name {
            "h" | "help" => return Ok(Some(Invocation::Help)),
            "V" | "version" => return Ok(Some(Invocation::Version)),
            "n" | "np" | "c" => app.ranks = self.ranks(written)?,
            "x" => self.export(written, app)?,
            "wdir" | "wd" => app.directory = Some(self.value(written, "a directory")?.into()),
            "mca" => self.setting(written)?,
            "l" | "tag-output" => self.job.labels = true,
            "timeout" => self.job.timeout = Some(self.seconds(written)?),
            "bind-to" => self.job.binding = self.binding(written)?,
            "map-by" | "rank-by" => self.mapping(written)?,
            "initial-errhandler" => self.job.error_handler = Some(self.error_handler(written)?),
            // No flag is needed for more ranks than processors.
            "oversubscribe" | "allow-run-as-root" => {}
            "exit-code" => self.job.counting = self.counting(written)?,
            "test-hooks" => self.job.test_hooks = true,
            "with-ft" => {
                let chosen =
                    self.choice(written, &["ulfm", "mpi", "yes", "no"], "one of ulfm, mpi, yes, no")?;
                self.job.fault_tolerant = chosen != "no";
            }
            "host" | "hosts" | "H" | "hostfile" | "machinefile" | "f" | "ppn" | "npernode" => {
                return Err(UsageError::OneNode(written.to_owned()));
            }
            _ => return Err(UsageError::Unknown(written.to_owned())),
        }
        Ok(None)
    }

    fn value(&mut self, option: &str, wanted: &'static str) -> Result<OsString, UsageError> {
        self.rest.pop_front().ok_or_else(|| UsageError::Missing { option: option.to_owned(), wanted })
    }

    fn text(&mut self, option: &str, wanted: &'static str) -> Result<String, UsageError> {
        self.value(option, wanted)?.into_string().map_err(|value| bad(option, &value, wanted))
    }

    fn ranks(&mut self, option: &str) -> Result<u32, UsageError> {
        const WANTED: &str = "a number of ranks, 1 or more,";
        let text = self.text(option, WANTED)?;
        match text.parse::<u32>() {
            Ok(ranks) if ranks > 0 => Ok(ranks),
            _ => Err(bad(option, OsStr::new(&text), WANTED)),
        }
    }

    /// `-x NAME` has no effect, as variables are inherited anyway; but a variable that is not set is refused.
    fn export(&mut self, option: &str, app: &mut App) -> Result<(), UsageError> {
        const WANTED: &str = "NAME=VALUE, or the NAME of a variable that is set,";
        let word = self.value(option, WANTED)?;
        let bytes = word.as_bytes();
        match bytes.iter().position(|&byte| byte == b'=') {
            Some(0) => Err(bad(option, &word, WANTED)),
            Some(at) => {
                let part = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
                app.environment.push((part(&bytes[..at]), part(&bytes[at + 1..])));
                Ok(())
            }
            None if !word.is_empty() && std::env::var_os(&word).is_some() => Ok(()),
            None => Err(bad(option, &word, WANTED)),
        }
    }

    fn setting(&mut self, option: &str) -> Result<(), UsageError> {
        let name = self.text(option, "a parameter and a value")?;
        let value = self.text(option, "a value after the parameter")?;
        self.job.settings.push((name, value));
        Ok(())
    }

    fn seconds(&mut self, option: &str) -> Result<Duration, UsageError> {
        const WANTED: &str = "a number of seconds above 0";
        let text = self.text(option, WANTED)?;
        let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
        let span = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        span.ok_or_else(|| bad(option, OsStr::new(&text), WANTED))
    }

    fn choice(&mut self, option: &str, words: &[&str], wanted: &'static str) -> Result<String, UsageError> {
        let text = self.text(option, wanted)?;
        if words.contains(&text.as_str()) { Ok(text) } else { Err(bad(option, OsStr::new(&text), wanted)) }
    }

    fn binding(&mut self, option: &str) -> Result<Binding, UsageError> {
        match self.choice(option, &["core", "none"], "core or none")?.as_str() {
            "core" => Ok(Binding::Core),
            _ => Ok(Binding::None),
        }
    }

    fn counting(&mut self, option: &str) -> Result<Counting, UsageError> {
        match self.choice(option, &["survivors", "worst"], "survivors or worst")?.as_str() {
            "worst" => Ok(Counting::Worst),
            _ => Ok(Counting::NotFailed),
        }
    }

    /// On one node all mappings give the order that ranks have anyway.
    fn mapping(&mut self, option: &str) -> Result<(), UsageError> {
        const WANTED: &str = "one of slot, core, node, with :oversubscribe behind it or not,";
        let text = self.text(option, WANTED)?.to_ascii_lowercase();
        let by = text.strip_suffix(":oversubscribe").unwrap_or(&text);
        if ["slot", "core", "node", ""].contains(&by) {
            return Ok(());
        }
        Err(bad(option, OsStr::new(&text), WANTED))
    }

    fn error_handler(&mut self, option: &str) -> Result<&'static str, UsageError> {
        const WANTED: &str = "one of mpi_errors_are_fatal, mpi_errors_abort, mpi_errors_return";
        let text = self.text(option, WANTED)?;
        let known = InitialErrorHandler::NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(&text));
        known.map(|(name, _)| *name).ok_or_else(|| bad(option, OsStr::new(&text), WANTED))
    }
}

fn bad(option: &str, value: &OsStr, wanted: &'static str) -> UsageError {
    UsageError::BadValue { option: option.to_owned(), value: value.to_string_lossy().into_owned(), wanted }
}

/// What `--help` prints.
pub const HELP: &str = "\
usage: mpiexec [OPTIONS] PROGRAM [ARGUMENTS] [: [OPTIONS] PROGRAM [ARGUMENTS]]...
Runs MPI programs, and any others, on this node. Long options take one dash or two.

  of one program:
  -n, -np N               how many ranks run it (1)
  -x NAME=VALUE           set a variable for it (others are inherited; -x NAME is accepted)
  -wdir DIRECTORY         run it there

  of the job:
  -mca PARAMETER VALUE    set a parameter (mend-info lists them)
  -initial-errhandler H   mpi_errors_are_fatal (default), mpi_errors_abort, mpi_errors_return
  -l                      begin each line of output with [rank]
  -timeout SECONDS        end the job after that time, with exit code 124
  -bind-to core|none      pin rank i to the i-th processor, or let ranks run anywhere (default)
  -with-ft ulfm|mpi|no    ulfm, mpi (default): the other ranks go on when a rank dies; no: the first death ends the job
  -exit-code survivors|worst
                          whose exit codes count (survivors)
  -test-hooks             variables MEND_TEST_... act (for Mend's own tests)
  -map-by slot|core|node, -oversubscribe, -allow-run-as-root
                          accepted for compatibility; no effect

  -h, --help   --version

Standard input goes to rank 0. Ctrl-C is passed on; a second one, or two seconds, ends the job the hard way.
Exit code: the largest of the ranks that did not fail, or of all where none is left; 128 + signal for a job that a
signal ended; 124 after -timeout. MEND_REPORT=failures says of every death how it was found.
";

#[cfg(test)]
mod tests {
    use super::{App, Binding, Invocation, JobDescription, UsageError, parse};
    use std::ffi::OsString;
    use std::time::Duration;

    fn parsed(line: &str) -> Result<Invocation, UsageError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn job(line: &str) -> JobDescription {
        match parsed(line) {
            Ok(Invocation::Run(job)) => job,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn app(ranks: u32, program: &str, arguments: &[&str]) -> App {
        let arguments = arguments.iter().map(OsString::from).collect();
        App { ranks, program: program.into(), arguments, directory: None, environment: vec![] }
    }

    #[test]
    fn dashes_may_be_one_or_two_and_the_program_keeps_its_own_options() {
        for line in ["-n 4 a.out -n 5 --help", "-np 4 a.out -n 5 --help", "--np 4 -- a.out -n 5 --help"] {
            assert_eq!(job(line).apps, [app(4, "a.out", &["-n", "5", "--help"])], "{line}");
        }
        assert_eq!(job("a.out").ranks(), 1);
    }

    #[test]
    fn programs_parted_by_colons_have_options_of_their_own() {
        let job = job("-l -n 2 -x A=1=2 -wdir /tmp a : -n 3 --mca btl self b c : d");
        assert_eq!(job.apps[0].environment, [("A".into(), "1=2".into())]);
        assert_eq!(job.apps[0].directory, Some("/tmp".into()));
        assert_eq!(job.apps[1..], [app(3, "b", &["c"]), app(1, "d", &[])]);
        assert_eq!((job.ranks(), job.programs().count(), job.labels), (6, 6, true));
        assert_eq!(job.settings, [("btl".to_owned(), "self".to_owned())]);
    }

    #[test]
    fn choices_are_obeyed() {
        let job =
            job("--bind-to core --map-by slot:OVERSUBSCRIBE --oversubscribe --with-ft ulfm --timeout 1.5 \
                       --initial-errhandler MPI_ERRORS_RETURN a");
        assert_eq!(job.binding, Binding::Core);
        assert_eq!(job.timeout, Some(Duration::from_millis(1500)));
        assert_eq!(job.error_handler, Some("mpi_errors_return"));
        assert!(job.fault_tolerant && super::JobDescription::default().fault_tolerant && !job.test_hooks);
        assert_eq!(job.counting, super::Counting::NotFailed);
        let job = self::job("-with-ft no -exit-code worst --test-hooks a");
        assert_eq!((job.fault_tolerant, job.counting, job.test_hooks), (false, super::Counting::Worst, true));
        assert_eq!(parsed("-n 2 --help"), Ok(Invocation::Help));
        assert_eq!(parsed("--version"), Ok(Invocation::Version));
    }

    #[test]
    fn what_cannot_be_obeyed_is_refused_with_a_stable_code() {
        let refused = [
            ("--nn 4 a", "E-ARG-001"),
            ("-n", "E-ARG-002"),
            ("--mca btl", "E-ARG-002"),
            ("-n 0 a", "E-ARG-003"),
            ("-n -4 a", "E-ARG-003"),
            ("-n four a", "E-ARG-003"),
            ("-x =3 a", "E-ARG-003"),
            ("-x MEND_NO_SUCH_VARIABLE a", "E-ARG-003"),
            ("--timeout -1 a", "E-ARG-003"),
            ("--timeout nan a", "E-ARG-003"),
            ("--bind-to socket a", "E-ARG-003"),
            ("--map-by ppr:4:node a", "E-ARG-003"),
            ("--initial-errhandler ignore a", "E-ARG-003"),
            ("--exit-code best a", "E-ARG-003"),
            ("--with-ft perhaps a", "E-ARG-003"),
            ("-n 4", "E-ARG-004"),
            ("", "E-ARG-004"),
            ("a :", "E-ARG-004"),
            (": a", "E-ARG-004"),
            ("-n 1000 a : -n 1000 b", "E-ARG-005"),
            ("--mca btl smh a", "E-ARG-006"),
            ("--mca bttl shm a", "E-ARG-006"),
            ("--hostfile h a", "E-ARG-007"),
        ];
        for (line, code) in refused {
            let message = parsed(line).expect_err(line).to_string();
            assert!(message.contains(code), "{line}: {message}");
            assert!(!message.contains('\n'));
        }
    }
}
