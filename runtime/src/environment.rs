// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The variables that `mpiexec` sets in the environment of a rank, and those of foreign launchers.

use crate::daemon_protocol::Secret;
use mend_base::parameter::Assignments;
use std::ffi::OsString;

/// Where the node daemon listens, and which rank this process is: written by `mpiexec`, read at Init. See [`Address`].
pub const DAEMON: &str = "MEND_DAEMON";
/// The assignments of `mpiexec --mca`. See [`write_assignments`].
pub const COMMAND_LINE: &str = "MEND_COMMAND_LINE";
/// The value of `mpiexec --initial-errhandler`. See [`InitialErrorHandler`].
pub const INITIAL_ERROR_HANDLER: &str = "MEND_INITIAL_ERRHANDLER";
/// For scripts: the rank in `MPI_COMM_WORLD`. Mend does not read it.
pub const RANK: &str = "MEND_RANK";
/// For scripts: the size of `MPI_COMM_WORLD`. Mend does not read it.
pub const SIZE: &str = "MEND_SIZE";

/// Which of the programs on the command line of `mpiexec` (`A : B : ...`) this rank runs, from 0: `MPI_APPNUM`.
pub const APP_NUMBER: &str = "MEND_APPNUM";

/// How many ranks run the same program of that command line: `maxprocs` in `MPI_INFO_ENV`.
pub const APP_SIZE: &str = "MEND_APPSIZE";

/// The name of the files, without `.RANK`, to which each rank records its calls. `mpiexec` then loads [`TRACE_LIBRARY`] into each rank.
pub const TRACE: &str = "MEND_TRACE";

/// The library that records, in the folder `lib` beside the `bin` of `mpiexec`.
pub const TRACE_LIBRARY: &str = "libmend_trace.so";

/// A test hook, not for users: if set, the node daemon notifies only ranks that ask of deaths; `all`: none.
pub const MUTED: &str = "MEND_TEST_MUTED";

/// A test hook, not for users: how the node daemon watches life words. `apart`: with a thread for each, as on a system without
/// futex_waitv. `none`: without threads, as if none could be started.
pub const LIFE_WATCH: &str = "MEND_TEST_LIFE_WATCH";

/// A test hook, not for users: if set, the node daemon makes no pages, as where the system refuses memory files.
pub const PAGES: &str = "MEND_TEST_PAGES";

/// The test hooks. They act only in the node daemon of an `mpiexec --test-hooks`; elsewhere they are unknown variables.
pub const TEST_HOOKS: [&str; 3] = [MUTED, LIFE_WATCH, PAGES];

/// Variables of Mend that are not parameters, and are not reported as misspelt parameters.
pub const VARIABLES: [&str; 8] =
    [DAEMON, COMMAND_LINE, INITIAL_ERROR_HANDLER, RANK, SIZE, APP_NUMBER, APP_SIZE, TRACE];

/// Where a job's node daemon listens, and which rank this process is. The socket is in the abstract namespace: there is no file,
/// and no descriptor that a wrapper could lose or pass to another program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The name of the socket, drawn at random.
    pub socket: [u8; 16],
    /// The inode number of the node daemon's network namespace: the abstract name is not valid in another one.
    pub network: u64,
    /// Proves that a process is of the job.
    pub secret: Secret,
    /// The rank in `MPI_COMM_WORLD`.
    pub rank: u32,
}

impl Address {
    /// The socket's name in the abstract namespace.
    pub fn socket_name(&self) -> String {
        format!("mend-{}", hex(&self.socket))
    }

    /// The address as a value of [`DAEMON`].
    pub fn to_text(&self) -> String {
        format!("{}:{}:{}:{}:{}", FORMAT, hex(&self.socket), self.network, hex(&self.secret), self.rank)
    }

    /// Reads an address from a value of [`DAEMON`].
    pub fn from_text(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.split(':').collect();
        let [FORMAT, socket, network, secret, rank] = fields[..] else { return None };
        Some(Address {
            socket: unhex(socket)?,
            network: network.parse().ok()?,
            secret: unhex(secret)?,
            rank: rank.parse().ok()?,
        })
    }
}

/// The first field of an address: the version of its format.
const FORMAT: &str = "1";

fn hex(bytes: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*bytes))
}

fn unhex(text: &str) -> Option<[u8; 16]> {
    let well_formed = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    well_formed.then(|| u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes))?
}

/// The assignments of `mpiexec --mca` as a value of [`COMMAND_LINE`]: `name=value`, separated by `;`. No parameter takes a value
/// with `;` in it.
pub fn write_assignments(assignments: &Assignments) -> String {
    let words: Vec<_> = assignments.iter().map(|(name, value)| format!("{name}={value}")).collect();
    words.join(";")
}

/// Reads assignments from a value of [`COMMAND_LINE`].
pub fn read_assignments(text: &str) -> Option<Assignments> {
    let words = text.split(';').filter(|word| !word.is_empty());
    words.map(|word| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))).collect()
}

/// The error handler of `MPI_COMM_WORLD` and `MPI_COMM_SELF` when a program begins (MPI-5.0 §11.8.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InitialErrorHandler {
    /// `MPI_ERRORS_ARE_FATAL`.
    #[default]
    AreFatal,
    /// `MPI_ERRORS_ABORT`.
    Abort,
    /// `MPI_ERRORS_RETURN`.
    Return,
}

impl InitialErrorHandler {
    /// The names that the standard gives them.
    pub const NAMES: [(&'static str, InitialErrorHandler); 3] = [
        ("mpi_errors_are_fatal", InitialErrorHandler::AreFatal),
        ("mpi_errors_abort", InitialErrorHandler::Abort),
        ("mpi_errors_return", InitialErrorHandler::Return),
    ];

    /// Its name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            InitialErrorHandler::AreFatal => Self::NAMES[0].0,
            InitialErrorHandler::Abort => Self::NAMES[1].0,
            InitialErrorHandler::Return => Self::NAMES[2].0,
        }
    }

    /// The handler of that name, in upper or lower case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(each, _)| each.eq_ignore_ascii_case(name)).map(|(_, handler)| *handler)
    }
}

/// The launcher of another MPI, as its variables show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForeignLauncher {
    /// Which of its variables was found.
    pub variable: &'static str,
    /// What it is called.
    pub name: &'static str,
}

/// The foreign launcher that started this process, if one did. Without this check each of its ranks would be rank 0 of 1.
///
/// For Intel MPI only variables that its launcher sets count, as `I_MPI_ROOT` and others are set in login shells. Slurm sets
/// `SLURM_PROCID` in batch scripts too, so a single task does not count as started by a foreign launcher.
pub fn foreign_launcher(variable: impl Fn(&str) -> Option<OsString>) -> Option<ForeignLauncher> {
    let found = FOREIGN.iter().find(|foreign| variable(foreign.variable).is_some()).copied();
    found.or_else(|| {
        let tasks = variable("SLURM_NTASKS").or_else(|| variable("SLURM_NPROCS"))?;
        let several = tasks.to_str()?.parse::<u64>().ok()? > 1;
        let slurm = ForeignLauncher { variable: "SLURM_PROCID", name: "srun (Slurm)" };
        (several && variable(slurm.variable).is_some()).then_some(slurm)
    })
}

const FOREIGN: [ForeignLauncher; 6] = [
    ForeignLauncher { variable: "OMPI_COMM_WORLD_RANK", name: "the mpiexec of Open MPI" },
    ForeignLauncher { variable: "OMPI_COMM_WORLD_SIZE", name: "the mpiexec of Open MPI" },
    ForeignLauncher { variable: "I_MPI_MPIRUN", name: "the mpiexec of Intel MPI" },
    ForeignLauncher { variable: "I_MPI_PMI_RANK", name: "the mpiexec of Intel MPI" },
    ForeignLauncher { variable: "PMIX_RANK", name: "a PMIx launcher (srun, prterun)" },
    ForeignLauncher { variable: "PMI_RANK", name: "a PMI launcher (the mpiexec of MPICH, srun)" },
];

#[cfg(test)]
mod tests {
    use super::{Address, InitialErrorHandler, foreign_launcher, read_assignments, write_assignments};
    use std::ffi::OsString;

    fn with(pairs: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        move |name| pairs.iter().find(|(each, _)| *each == name).map(|(_, value)| OsString::from(value))
    }

    #[test]
    fn an_address_is_read_as_it_was_written_and_damage_is_refused() {
        let address = Address { socket: [0xA5; 16], network: 4_026_531_840, secret: [1; 16], rank: 12 };
        let text = address.to_text();
        assert_eq!(Address::from_text(&text), Some(address));
        assert_eq!(Address::from_text(&text[1..]), None);
        assert_eq!(Address::from_text(&text.replace(":12", ":-1")), None);
        assert_eq!(Address::from_text(&text.replacen("a5", "+5", 1)), None);
        assert_eq!(Address::from_text(""), None);
    }

    #[test]
    fn assignments_are_read_as_they_were_written() {
        let assignments = vec![("btl".to_owned(), "^shm".to_owned()), ("report".to_owned(), String::new())];
        assert_eq!(read_assignments(&write_assignments(&assignments)), Some(assignments));
        assert_eq!(read_assignments(""), Some(vec![]));
        assert_eq!(read_assignments("btl"), None);
    }

    #[test]
    fn error_handlers_have_the_names_of_the_standard() {
        assert_eq!(InitialErrorHandler::from_name("MPI_ERRORS_RETURN"), Some(InitialErrorHandler::Return));
        assert_eq!(InitialErrorHandler::from_name("return"), None);
        for (name, handler) in InitialErrorHandler::NAMES {
            assert_eq!(handler.name(), name);
        }
    }

    #[test]
    fn a_foreign_launcher_is_recognized_by_its_variables_and_a_single_slurm_task_is_none() {
        let found = foreign_launcher(with(&[("PMI_RANK", "0")])).unwrap();
        assert_eq!(found.variable, "PMI_RANK");
        assert!(foreign_launcher(with(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2")])).is_some());
        assert!(foreign_launcher(with(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")])).is_none());
        assert!(foreign_launcher(with(&[("I_MPI_ROOT", "/opt/intel")])).is_none());
        assert!(foreign_launcher(with(&[])).is_none());
    }
}
