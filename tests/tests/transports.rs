// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which transports a job uses, and what the user is told: `mend-info`, `MEND_REPORT=transports`, `MEND_BTL_STRICT`.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use mend_tests::watched_command::{Ended, WatchedCommand};
use mend_tests::{Scratch, fabric, prefix, program, skip};

#[test]
fn mend_info_shows_each_provider_with_the_reason_why_it_is_not_chosen() {
    let test = "mend_info_shows_each_provider_with_the_reason_why_it_is_not_chosen";
    if !has_fabric(test) {
        return;
    }
    let (text, json) = mend_info(&[("MEND_BTL_OFI_PROVIDER", "sockets"), ("MEND_BTL_OFI_INTERFACE", "lo")]);
    assert!(text.contains("btl ofi       can run: libfabric "), "{text}");
    assert!(text.contains("sockets over lo: chosen"), "{text}");
    assert!(text.contains(": excluded by btl_ofi.provider"), "{text}");
    assert!(json.contains("\"provider\":\"sockets\",\"interface\":\"lo\",\"chosen\":true"), "{json}");
    assert!(json.contains("\"chosen\":false,\"reason\":\"excluded by btl_ofi.provider\""), "{json}");
}

#[test]
fn mend_info_says_in_one_line_why_libfabric_cannot_be_used() {
    let scratch = Scratch::new("libraries");
    let killer = library_that_kills(&scratch);
    let killer = killer.to_str().expect("paths of tests are text");
    let libraries = [
        (ABSENT, ABSENT),
        ("libm.so.6", "libm.so.6 has no fi_getinfo of version FABRIC_1.3"),
        (killer, "a child that looked for its providers was ended by signal 9"),
    ];
    for (library, reason) in libraries {
        let (text, json) = mend_info(&[("MEND_BTL_OFI_LIBRARY", library)]);
        let line = text.lines().find(|line| line.contains("btl ofi")).unwrap_or_default();
        assert!(line.contains("cannot run: ") && line.contains(reason), "{library}: {text}");
        assert!(json.contains(reason), "{library}: {json}");
    }
}

#[test]
fn a_library_that_hangs_is_given_up_and_a_job_over_shared_memory_does_not_open_it() {
    let scratch = Scratch::new("libraries");
    let opened = scratch.join("opened");
    let hangs =
        library_that(&format!("close(creat(\"{}\", 0600)); for (;;) pause()", opened.display()), &scratch);
    let variable = ("MEND_BTL_OFI_LIBRARY", hangs.to_str().expect("paths of tests are text"));
    assert!(hello(&[variable]).stderr.is_empty());
    assert!(!opened.exists(), "shared memory reaches all ranks");
    let output = prefix::command("mend-info").envs([variable]).output().expect("mend-info is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("cannot run: ") && text.contains("has not ended after"), "{text}");
    assert!(opened.exists());
}

#[test]
fn a_library_that_is_left_out_is_not_opened() {
    let scratch = Scratch::new("libraries");
    let killer = library_that_kills(&scratch);
    let killer = killer.to_str().expect("paths of tests are text");
    let (text, _) = mend_info(&[("MEND_BTL", "^ofi"), ("MEND_BTL_OFI_LIBRARY", killer)]);
    assert!(text.contains("btl ofi       cannot run: left out by btl = ^ofi (environment)"), "{text}");
}

#[test]
fn each_rank_reports_shared_memory_and_nothing_else_where_that_reaches_all() {
    let ended = hello(&[("MEND_REPORT", "transports")]);
    for rank in 0..RANKS {
        let line = report_of(&ended, rank);
        assert!(line.contains("; shm to rank") && !line.contains("ofi"), "{}", ended.report());
    }
    assert_eq!(ended.stderr.lines().count(), RANKS as usize, "{}", ended.report());
}

#[test]
fn each_rank_reports_provider_and_interface_and_why_shared_memory_is_not_used() {
    let test = "each_rank_reports_provider_and_interface_and_why_shared_memory_is_not_used";
    if !has_fabric(test) {
        return;
    }
    let ended = hello(&[
        ("MEND_REPORT", "transports"),
        ("MEND_BTL", "ofi,self"),
        ("MEND_BTL_OFI_PROVIDER", "tcp;ofi_rxm"),
        ("MEND_BTL_OFI_INTERFACE", "lo"),
    ]);
    for rank in 0..RANKS {
        let line = report_of(&ended, rank);
        assert!(line.contains("ofi (tcp;ofi_rxm over lo) to rank"), "{}", ended.report());
        assert!(line.contains("shm: left out by btl = ofi,self"), "{}", ended.report());
    }
}

#[test]
fn a_job_on_shared_memory_says_nothing_of_a_library_that_cannot_be_used() {
    let scratch = Scratch::new("libraries");
    let killer = library_that_kills(&scratch);
    let killer = killer.to_str().expect("paths of tests are text");
    for library in [ABSENT, killer] {
        for btl in ["", "shm,ofi,self"] {
            let ended = hello(&[("MEND_BTL_OFI_LIBRARY", library), ("MEND_BTL", btl)]);
            assert!(ended.stderr.is_empty(), "{}", ended.report());
        }
    }
}

#[test]
fn a_strict_job_does_not_start_without_a_transport_that_is_named() {
    let named = [("MEND_BTL", "shm,ofi,self"), ("MEND_BTL_OFI_LIBRARY", ABSENT)];
    let strict = [named[0], named[1], ("MEND_BTL_STRICT", "1")];
    let ended = run(&strict);
    assert!(ended.status.is_some_and(|status| !status.success()), "{}", ended.report());
    for words in ["E-INIT-009", "the transport ofi cannot be used", ABSENT] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.report());
    }
    // Nobody has named libfabric here.
    let ended = hello(&[("MEND_BTL_OFI_LIBRARY", ABSENT), ("MEND_BTL_STRICT", "1")]);
    assert!(ended.stderr.is_empty(), "{}", ended.report());
}

/// Whether libfabric is installed; if not, the test counts as skipped.
fn has_fabric(test: &str) -> bool {
    let missing = fabric::missing();
    missing.iter().for_each(|why| skip(test, why));
    missing.is_none()
}

/// What `mend-info` prints as text and as JSON. It has succeeded, and printed nothing on stderr.
fn mend_info(variables: &[(&str, &str)]) -> (String, String) {
    let print = |arguments: &[&str]| {
        let mut command = prefix::command("mend-info");
        command.args(arguments).envs(variables.iter().copied());
        let Output { status, stdout, stderr } = command.output().expect("mend-info is installed");
        let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success() && stderr.is_empty(), "{status}: {stdout}{stderr}");
        stdout.into_owned()
    };
    (print(&[]), print(&["--json"]))
}

/// Runs the example, which has come to its end.
fn hello(variables: &[(&str, &str)]) -> Ended {
    let ended = run(variables);
    assert!(ended.exited_with(0) && ended.stdout.contains("hello from rank"), "{}", ended.report());
    ended
}

fn run(variables: &[(&str, &str)]) -> Ended {
    let hello =
        program::compile(&prefix::place().root.join("examples/hello.c")).expect("an example compiles");
    let mut command = program::mpiexec(RANKS, LIMIT);
    command.arg(hello).envs(variables.iter().copied());
    WatchedCommand::new(command, LIMIT).run()
}

fn report_of(ended: &Ended, rank: u32) -> &str {
    let start = format!("mend: transports of rank {rank}: ");
    let mut lines = ended.stderr.lines().filter(|line| line.starts_with(&start));
    let line = lines.next().unwrap_or_else(|| panic!("{start}: {}", ended.report()));
    assert_eq!(lines.next(), None, "{}", ended.report());
    line
}

/// A library that ends each process that opens it, without a core.
fn library_that_kills(scratch: &Scratch) -> PathBuf {
    library_that("kill(getpid(), SIGKILL)", scratch)
}

/// A library that does this in each process that opens it.
fn library_that(does: &str, scratch: &Scratch) -> PathBuf {
    let (source, library) = (scratch.join("does.c"), scratch.join("libdoes.so"));
    let text = format!(
        "#include <fcntl.h>\n#include <signal.h>\n#include <unistd.h>\n\
         __attribute__((constructor)) static void act(void) {{ {does}; }}\n"
    );
    std::fs::write(&source, text).expect("a folder of the test");
    let built = Command::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).output();
    let built = built.expect("gcc is there");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    library
}

const ABSENT: &str = "libfabric-that-nobody-has.so.1";
const RANKS: u32 = 4;
const LIMIT: Duration = Duration::from_secs(60);
