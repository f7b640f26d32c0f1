// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The installed library: its symbols, its dependencies, its wrappers.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mend_tests::watched_command::WatchedCommand;
use mend_tests::{Scratch, prefix, program};

#[test]
fn every_function_of_the_header_is_there_with_its_twin() {
    let exported = exported();
    let declared = declared();
    let of_the_standard = declared.iter().filter(|name| name.starts_with("MPI_")).count();
    assert!(of_the_standard >= 664, "the header declares {of_the_standard} functions");
    let twins = declared.iter().map(|name| format!("P{name}"));
    let missing: Vec<_> =
        declared.iter().cloned().chain(twins).filter(|name| !exported.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_calls_of_fault_tolerance_have_four_names_each() {
    let exported = exported();
    for call in ["Comm_get_failed", "Comm_ack_failed", "Comm_failure_ack", "Comm_failure_get_acked"] {
        for prefix in ["MPI_", "PMPI_", "MPIX_", "PMPIX_"] {
            assert!(exported.contains(&format!("{prefix}{call}")), "{prefix}{call}");
        }
    }
}

/// Rule 8: the library exports no other symbol.
#[test]
fn nothing_but_mpi_is_exported() {
    let exported = exported();
    // Each function of the standard and its twin.
    assert!(exported.len() >= 2 * 664, "nm shows {} symbols", exported.len());
    let foreign: Vec<_> = exported.into_iter().filter(|name| !is_ours(name)).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

#[test]
fn the_library_has_its_name_and_needs_only_what_every_system_has() {
    let text = run("readelf", &["-d"]);
    let needed: Vec<_> = text.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(needed.iter().any(|line| line.contains("[libc.so.6]")), "readelf shows {needed:?}");
    for line in needed {
        assert!(ALLOWED.iter().any(|name| line.contains(name)), "{line}");
    }
    let soname = text.lines().find(|line| line.contains("(SONAME)")).expect("the library has a SONAME");
    assert!(soname.contains("[libmpi_abi.so.1]"), "{soname}");
}

#[test]
fn the_links_lead_to_the_library_by_relative_names() {
    for name in ["libmpi_abi.so", "libmpi_abi.so.0"] {
        let target = std::fs::read_link(prefix::prefix().join("lib").join(name)).unwrap();
        assert_eq!(target, PathBuf::from("libmpi_abi.so.1"));
    }
}

/// Rule 8: the one other library with C symbols has those of libfabric, and its own.
#[test]
fn the_fabric_shim_is_installed_with_the_symbols_of_libfabric() {
    let library = prefix::prefix().join("lib/libmend_fabric_shim.so");
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().last()).collect();
    for name in ["fi_getinfo@@FABRIC_1.3", "fi_fabric@@FABRIC_1.1", "fi_version@@FABRIC_1.0"] {
        assert!(names.contains(&name), "{name} is missing in {names:?}");
    }
    let ours = |name: &&&str| {
        ["fi_", "mend_fabric_shim_", "FABRIC_", "MEND_"].iter().any(|start| name.starts_with(start))
    };
    let foreign: Vec<_> = names.iter().filter(|name| !ours(name)).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

#[test]
fn the_wrappers_show_what_they_would_run() {
    for compiler in ["mpicc", "mpicxx", "mpic++", "mpiCC"] {
        for option in ["-show", "--showme", "--showme:compile", "--showme:link"] {
            let output = prefix::command(compiler).arg(option).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success() && !text.trim().is_empty(), "{compiler} {option}: {text}");
            let later = prefix::command(compiler).args(["-O2", option]).output().unwrap();
            let text = String::from_utf8_lossy(&later.stdout).into_owned();
            assert!(later.status.success() && !text.contains("show"), "{compiler} -O2 {option}: {text}");
        }
        // "-" is a source too, so the include path is passed.
        let output = prefix::command(compiler).args(["-###", "-xc", "-E", "-"]).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stderr).contains("/include"), "{compiler} -: {output:?}");
    }
}

/// `mend-info` prints the table of parameters.
#[test]
fn mend_info_prints_every_parameter() {
    let output = prefix::command("mend-info").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(mend_world::DECLARED.iter().count() >= 5, "few parameters are declared");
    for row in mend_world::DECLARED.iter() {
        assert!(text.contains(row.name), "mend-info does not name {}", row.name);
    }
}

#[test]
fn only_the_exit_code_counts_for_a_program_that_never_calls_init() {
    let limit = Duration::from_secs(30);
    for (name, code) in [("true", 0), ("false", 1)] {
        let mut command = program::mpiexec(3, limit);
        command.arg(name);
        let ended = WatchedCommand::new(command, limit).run();
        assert!(ended.exited_with(code), "{name}: {}", ended.report());
    }
}

/// docs/abi.md, "Profiling": from a library before ours, or by LD_PRELOAD; `tests/c/profiling.c` has the program's own.
#[test]
fn a_tool_that_is_preloaded_or_linked_before_the_library_sees_the_programs_calls() {
    let folder = Scratch::new("tool");
    let (source, tool, tooled) = (folder.join("tool.c"), folder.join("libtool.so"), folder.join("tooled"));
    std::fs::write(&source, TOOL).expect("the target folder can be written");
    compile(&[OsStr::new("-shared"), OsStr::new("-fPIC"), source.as_os_str()], &tool);
    let hello = prefix::place().root.join("examples/hello.c");
    compile(&[hello.as_os_str(), tool.as_os_str()], &tooled);
    let plain = program::compile(&hello).unwrap();
    let limit = Duration::from_secs(30);
    for (program, preload) in [(&tooled, None), (&plain, Some(&tool)), (&plain, None)] {
        let mut command = program::mpiexec(2, limit);
        command.arg(program).envs(preload.map(|tool| ("LD_PRELOAD", tool)));
        let ended = WatchedCommand::new(command, limit).run();
        let seen = ended.stdout.matches("the tool was told").count();
        let wanted = if program == &tooled || preload.is_some() { 2 } else { 0 };
        assert!(ended.exited_with(0) && seen == wanted, "{}", ended.report());
    }
}

#[test]
fn the_transports_that_are_chosen_are_used_and_those_that_do_not_exist_refused() {
    let hello = program::compile(&prefix::place().root.join("examples/hello.c")).unwrap();
    let limit = Duration::from_secs(30);
    for (chosen, ranks, complaint) in [
        ("shm,self", 2, None),
        ("self", 1, None),
        ("^shm", 1, None),
        ("^shm,ofi", 2, Some("cannot be reached")),
        ("self", 2, Some("cannot be reached")),
        ("shm,tcp", 1, Some("E-PARAM-003")),
        ("^tcp", 1, Some("E-PARAM-003")),
    ] {
        for by_option in [false, true] {
            let mut command = program::mpiexec(ranks, limit);
            if by_option {
                command.args(["--mca", "btl", chosen]);
            } else {
                command.env("MEND_BTL", chosen);
            }
            command.arg(&hello);
            let ended = WatchedCommand::new(command, limit).run();
            let as_wanted = match complaint {
                None => ended.exited_with(0) && ended.stderr.is_empty(),
                Some(_) if by_option && chosen.contains("tcp") => ended.stderr.contains("E-ARG-006"),
                Some(words) => !ended.exited_with(0) && ended.stderr.contains(words),
            };
            assert!(as_wanted, "btl = {chosen} on {ranks}: {}", ended.report());
        }
    }
    let output = prefix::command("mend-info").env("MEND_BTL", "^shm").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("cannot run: left out by btl = ^shm (environment)"), "{text}");
}

fn compile(words: &[&OsStr], product: &Path) {
    let mut command = prefix::command("mpicc");
    command.args(words).arg("-o").arg(product);
    let output = command.output().expect("mpicc is a script that is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

const TOOL: &str = "#include <mpi.h>
#include <stdio.h>
int MPI_Finalize(void) { printf(\"the tool was told\\n\"); return PMPI_Finalize(); }
";

fn exported() -> BTreeSet<String> {
    let text = run("nm", &["-D", "--defined-only"]);
    let names = text.lines().filter_map(|line| line.split_whitespace().last());
    names.map(|name| name.split('@').next().unwrap_or(name).to_owned()).collect()
}

/// Names followed by a bracket in the header, outside comments and macros: the functions that it declares.
fn declared() -> BTreeSet<String> {
    let text =
        std::fs::read_to_string(prefix::prefix().join("include/mpi.h")).expect("the header is installed");
    let lines = text.lines().filter(|line| is_declaration(line));
    lines.filter_map(|line| function_in(line).map(str::to_owned)).collect()
}

fn is_declaration(line: &str) -> bool {
    !line.starts_with(['#', ' ', '/', '*'])
        && !line.starts_with("typedef")
        && !line.contains("MPI_ABI_INLINE")
}

fn function_in(line: &str) -> Option<&str> {
    let before = line.split('(').next().filter(|before| before.len() < line.len())?;
    let name = before.split([' ', '*']).next_back()?;
    name.starts_with("MPI").then_some(name)
}

fn is_ours(name: &str) -> bool {
    ["MPI_", "PMPI_", "MPIX_", "PMPIX_"].iter().any(|prefix| name.starts_with(prefix))
}

fn run(tool: &str, words: &[&str]) -> String {
    let library = prefix::prefix().join("lib/libmpi_abi.so.1");
    let output = Command::new(tool).args(words).arg(&library).output();
    let output = output.unwrap_or_else(|error| panic!("cannot start {tool} (it comes with gcc): {error}"));
    assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const ALLOWED: [&str; 4] = ["[libc.so.6]", "[libm.so.6]", "[libgcc_s.so.1]", "[ld-linux-"];

#[test]
fn a_declaration_is_told_from_a_comment_and_a_macro() {
    assert_eq!(function_in("int MPI_Send(const void *buf, int count);"), Some("MPI_Send"));
    assert_eq!(function_in("MPI_Comm MPI_Comm_fromint(int comm);"), Some("MPI_Comm_fromint"));
    assert_eq!(function_in("extern int x;"), None);
    assert!(!is_declaration("#define MPI_BOTTOM ((void *)0)"));
    assert!(!is_declaration("/* int MPI_Send(); */"));
}
