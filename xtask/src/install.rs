// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds the library and installs it: bin, lib, include, share. The prefix can be moved: the wrappers find it from their own path,
//! and the library's links are relative.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use mend_testing::second_name;

use crate::place::Place;
use crate::{CommandError, Outcome, command_error, man};

/// One way to build what is installed.
#[derive(Clone, Debug)]
pub struct Build {
    /// The target folder.
    pub target: PathBuf,
    /// Variables for `cargo build`.
    pub environment: Vec<(String, String)>,
    /// A target triple, for builds whose flags must not reach build scripts.
    pub triple: Option<String>,
    /// Flags that every C program must be compiled with to link against this build.
    pub c_flags: &'static [&'static str],
}

impl Build {
    /// The build for users.
    pub fn release(place: &Place) -> Build {
        Build { target: place.target.clone(), environment: Vec::new(), triple: None, c_flags: &[] }
    }

    fn products(&self) -> PathBuf {
        match &self.triple {
            Some(triple) => self.target.join(triple).join("release"),
            None => self.target.join("release"),
        }
    }
}

/// `cargo xtask install [--asan] --prefix DIR`.
pub fn command(place: &Place, build: &Build, prefix: &str) -> Outcome {
    let here =
        std::env::current_dir().map_err(|error| command_error("cannot find the current folder", error))?;
    let prefix = here.join(prefix);
    install(place, build, &prefix)?;
    println!("installed into {}: try {}/bin/mpicc and {0}/bin/mpiexec", prefix.display(), prefix.display());
    Ok(())
}

/// Builds and installs. Unchanged files are not written again, so that programs that run from the prefix go on. The prefix folder
/// is locked meanwhile: of several processes that install into one prefix at the same time, the others wait for the first.
pub fn install(place: &Place, build: &Build, prefix: &Path) -> Outcome {
    std::fs::create_dir_all(prefix)
        .map_err(|error| command_error(format!("cannot make {}", prefix.display()), error))?;
    let _lock =
        locked(prefix).map_err(|error| command_error(format!("cannot lock {}", prefix.display()), error))?;
    compile(place, build)?;
    lay_out(place, &build.products(), prefix)?;
    trace_library(place, prefix)?;
    benchmarks(place, build, prefix)
}

fn locked(folder: &Path) -> std::io::Result<File> {
    let folder = File::open(folder)?;
    folder.lock()?;
    Ok(folder)
}

fn compile(place: &Place, build: &Build) -> Outcome {
    let mut cargo = place.cargo();
    cargo.args(["build", "--release"]);
    cargo.args(["--package", "mend-abi", "--package", "mend-launch", "--package", "mend-fabric-shim"]);
    if let Some(triple) = &build.triple {
        cargo.args(["--target", triple]);
    }
    cargo.env("CARGO_TARGET_DIR", &build.target);
    cargo.envs(build.environment.iter().map(|(name, value)| (name, value)));
    succeed(&mut cargo, "cargo build")
}

fn lay_out(place: &Place, products: &Path, prefix: &Path) -> Outcome {
    for folder in ["bin", "lib", "include"] {
        make(&prefix.join(folder))?;
    }
    copy(&products.join(LIBRARY_AS_BUILT), &prefix.join("lib").join(LIBRARY))?;
    for name in LIBRARY_LINKS {
        link(LIBRARY, &prefix.join("lib").join(name))?;
    }
    copy(&products.join(FABRIC_SHIM), &prefix.join("lib").join(FABRIC_SHIM))?;
    for name in PROGRAMS {
        copy(&products.join(name), &prefix.join("bin").join(name))?;
    }
    for name in WRAPPERS {
        copy(&place.root.join("abi/wrappers").join(name), &prefix.join("bin").join(name))?;
    }
    for (name, target) in PROGRAM_LINKS {
        link(target, &prefix.join("bin").join(name))?;
    }
    for name in ["mpi.h", "mpi-ext.h"] {
        copy(&place.root.join("abi/include").join(name), &prefix.join("include").join(name))?;
    }
    documents(place, prefix)?;
    man_pages(place, prefix)
}

/// Installs the README and the manual side by side, so that the links between the pages are valid there too.
fn documents(place: &Place, prefix: &Path) -> Outcome {
    let to = prefix.join("share/doc/mend");
    make(&to)?;
    for name in ["README.md", "CHANGELOG.md"] {
        copy(&place.root.join(name), &to.join(name))?;
    }
    for folder in ["docs", "docs/dev"] {
        make(&to.join(folder))?;
        for page in files_in(&place.root.join(folder), &["md", "svg"]) {
            let name = page.file_name().expect("a file that was listed has a name");
            copy(&page, &to.join(folder).join(name))?;
        }
    }
    Ok(())
}

/// Makes the man pages from the manual's pages at each installation, so that they cannot be out of date.
fn man_pages(place: &Place, prefix: &Path) -> Outcome {
    let folder = prefix.join("share/man/man1");
    make(&folder)?;
    for page in &man::PAGES {
        let source = place.root.join(page.source);
        let text = std::fs::read_to_string(&source)
            .map_err(|error| command_error(format!("cannot read {}", source.display()), error))?;
        let file = format!("{}.1", page.names[0]);
        write(&man::roff(page, &text), &folder.join(&file))?;
        for other in &page.names[1..] {
            link(&file, &folder.join(format!("{other}.1")))?;
        }
    }
    Ok(())
}

/// Compiles the library that records calls. It is not linked to MPI's: `mpiexec` loads it also into programs that start the rank.
fn trace_library(place: &Place, prefix: &Path) -> Outcome {
    let source = place.root.join("abi/trace/trace.c");
    let library = prefix.join("lib/libmend_trace.so");
    if newer(&library, &source) && newer(&library, &prefix.join("include/mpi.h")) {
        return Ok(());
    }
    let beside = second_name(&library);
    let mut compiler = Command::new("cc");
    compiler
        .args(["-std=c11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-I"])
        .arg(prefix.join("include"));
    succeed(compiler.arg("-o").arg(&beside).arg(&source), "cc abi/trace/trace.c")?;
    std::fs::rename(&beside, &library)
        .map_err(|error| command_error(format!("cannot rename {}", beside.display()), error))
}

/// Compiles the benchmarks, which are portable MPI programs, with the `mpicc` just installed, and so tests it too.
fn benchmarks(place: &Place, build: &Build, prefix: &Path) -> Outcome {
    for source in benchmark_sources(&place.root) {
        let stem = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let program = prefix.join("bin").join(format!("mend-{stem}"));
        if newer(&program, &source) && newer(&program, &prefix.join("include/mpi.h")) {
            continue;
        }
        let mut mpicc = Command::new(prefix.join("bin/mpicc"));
        let beside = second_name(&program);
        mpicc
            .args(build.c_flags)
            .args(["-O2", "-Wall", "-Wextra", "-pthread", "-o"])
            .arg(&beside)
            .arg(&source)
            .arg("-lm");
        succeed(&mut mpicc, &format!("mpicc {}", source.display()))?;
        std::fs::rename(&beside, &program)
            .map_err(|error| command_error(format!("cannot rename {}", beside.display()), error))?;
    }
    Ok(())
}

/// The benchmarks. What lies below an MPI (`raw_...`) is no MPI program: a comparison compiles it, where the headers of libfabric are.
pub fn benchmark_sources(root: &Path) -> Vec<PathBuf> {
    let mut sources = c_programs(&root.join("bench/c"));
    sources
        .retain(|source| !source.file_name().is_some_and(|name| name.to_string_lossy().starts_with("raw_")));
    sources
}

/// The C sources in `folder`, sorted; none if there is no such folder.
pub fn c_programs(folder: &Path) -> Vec<PathBuf> {
    files_in(folder, &["c", "cc"])
}

/// The files in `folder` whose names have one of these endings, sorted.
fn files_in(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let ends = |path: &PathBuf| path.extension().is_some_and(|kind| endings.iter().any(|each| kind == *each));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(ends).collect();
    files.sort();
    files
}

/// Runs a command with our terminal; anything but success is a failure that names it.
pub fn succeed(command: &mut Command, what: &str) -> Outcome {
    let status = command.status().map_err(|error| command_error(format!("cannot start {what}"), error))?;
    if status.success() { Ok(()) } else { Err(CommandError(format!("{what} failed: {status}"))) }
}

fn newer(product: &Path, source: &Path) -> bool {
    let time = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    matches!((time(product), time(source)), (Some(product), Some(source)) if product > source)
}

/// Copies to a temporary name, then renames: a running program's file cannot be written, and no reader may see half a file.
fn copy(from: &Path, to: &Path) -> Outcome {
    let what = || format!("cannot copy {} to {}", from.display(), to.display());
    let wanted = std::fs::read(from).map_err(|error| command_error(what(), error))?;
    if std::fs::read(to).is_ok_and(|present| present == wanted) {
        return Ok(());
    }
    let beside = second_name(to);
    std::fs::copy(from, &beside)
        .and_then(|_| std::fs::rename(&beside, to))
        .map_err(|error| command_error(what(), error))
}

/// Writes a generated text in the same way.
fn write(text: &str, to: &Path) -> Outcome {
    if std::fs::read(to).is_ok_and(|present| present == text.as_bytes()) {
        return Ok(());
    }
    let beside = second_name(to);
    std::fs::write(&beside, text)
        .and_then(|()| std::fs::rename(&beside, to))
        .map_err(|error| command_error(format!("cannot write {}", to.display()), error))
}

fn make(folder: &Path) -> Outcome {
    std::fs::create_dir_all(folder)
        .map_err(|error| command_error(format!("cannot make {}", folder.display()), error))
}

fn link(target: &str, name: &Path) -> Outcome {
    if std::fs::read_link(name).is_ok_and(|present| present == Path::new(target)) {
        return Ok(());
    }
    let beside = second_name(name);
    std::os::unix::fs::symlink(target, &beside)
        .and_then(|()| std::fs::rename(&beside, name))
        .map_err(|error| command_error(format!("cannot link {}", name.display()), error))
}

const LIBRARY_AS_BUILT: &str = "libmpi_abi.so";
const LIBRARY: &str = "libmpi_abi.so.1";
const LIBRARY_LINKS: [&str; 2] = ["libmpi_abi.so", "libmpi_abi.so.0"];
const FABRIC_SHIM: &str = "libmend_fabric_shim.so";
const PROGRAMS: [&str; 2] = ["mpiexec", "mend-info"];
const WRAPPERS: [&str; 2] = ["mpicc", "mpicxx"];
const PROGRAM_LINKS: [(&str, &str); 3] = [("mpirun", "mpiexec"), ("mpic++", "mpicxx"), ("mpiCC", "mpicxx")];
