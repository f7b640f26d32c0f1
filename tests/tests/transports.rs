// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which transports a job uses, and what the user is told: `mend-info`, `MEND_REPORT=transports`, `MEND_BTL_STRICT`.

use std::collections::BTreeSet;
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
fn where_the_kernel_has_no_process_descriptors_a_library_that_hangs_or_kills_is_given_up_too() {
    let test = "where_the_kernel_has_no_process_descriptors_a_library_that_hangs_or_kills_is_given_up_too";
    let scratch = Scratch::new("libraries");
    let without = without_process_descriptors(&scratch);
    let tried = Command::new(&without).arg("true").output().expect("it was compiled");
    if !tried.status.success() {
        return skip(test, "the kernel permits no filter of system calls");
    }
    let reasons = [
        ("kill(getpid(), SIGKILL)", "was ended by signal 9"),
        ("for (;;) pause()", "has not ended after 10 s"),
    ];
    for (does, reason) in reasons {
        let mut command = Command::new(&without);
        command.arg(prefix::prefix().join("bin/mend-info")).env_remove("LD_LIBRARY_PATH");
        command.env("MEND_BTL_OFI_LIBRARY", library_that(does, &scratch));
        let ended = WatchedCommand::new(command, LIMIT).run();
        assert!(ended.exited_with(0) && ended.stdout.contains(reason), "{does}: {}", ended.report());
    }
}

#[test]
fn a_library_that_is_left_out_is_not_opened() {
    let scratch = Scratch::new("libraries");
    let killer = library_that_kills(&scratch);
    let killer = killer.to_str().expect("paths of tests are text");
    let (text, _) = mend_info(&[("MEND_BTL", "^ofi"), ("MEND_BTL_OFI_LIBRARY", killer)]);
    assert!(text.contains("btl ofi       cannot run: left out by btl = ^ofi (environment)"), "{text}");
}

//
#[test]
fn a_job_over_shared_memory_prints_one_matrix_with_no_other_transport() {
    let ended = hello(&[REPORT]);
    let matrix = Matrix::of(&ended, RANKS as usize);
    assert_eq!(matrix.symbols_of_the_ring(), BTreeSet::from(['s']), "{}", ended.report());
    assert!(matrix.below[0].starts_with("-: self; s: shm, "), "{}", ended.report());
    assert_eq!(matrix.below.len(), 1, "nothing is better: {}", ended.report());
}

#[test]
fn a_job_over_libfabric_prints_provider_and_interface_and_why_shared_memory_is_not_used() {
    let test = "a_job_over_libfabric_prints_provider_and_interface_and_why_shared_memory_is_not_used";
    if !has_fabric(test) {
        return;
    }
    let variables = [
        REPORT,
        ("MEND_BTL", "ofi,self"),
        ("MEND_BTL_OFI_PROVIDER", "tcp;ofi_rxm"),
        ("MEND_BTL_OFI_INTERFACE", "lo"),
    ];
    let ended = hello(&variables);
    let matrix = Matrix::of(&ended, RANKS as usize);
    assert_eq!(matrix.symbols_of_the_ring(), BTreeSet::from(['A']), "{}", ended.report());
    assert!(matrix.below[0].contains("; A: ofi (tcp;ofi_rxm over lo), "), "{}", ended.report());
    let reasons = matrix.reasons();
    assert!(reasons.contains(&"shm: left out by btl = ofi,self"), "{}", ended.report());
    let (_, json) = mend_info(&variables[1..]);
    // Each reason of a provider concerns one or more interfaces, and mend-info has it for each of them.
    let mut of_providers = 0;
    for reason in reasons {
        let of_provider = reason.strip_prefix("ofi: ").and_then(|reason| reason.split_once(" over "));
        let Some((provider, rest)) = of_provider else { continue };
        let (interfaces, why) = rest.split_once(": ").expect("a reason behind the interfaces");
        for interface in interfaces.split(", ") {
            of_providers += 1;
            let offer = format!(
                "{{\"provider\":\"{provider}\",\"interface\":\"{interface}\",\"chosen\":false,\"reason\":\"{why}\"}}"
            );
            assert!(json.contains(&offer), "{offer}: {json}");
        }
    }
    assert!(of_providers > 0, "{}", ended.report());
    assert!(json.contains("left out by btl = ofi,self"), "{json}");
}

#[test]
fn a_rank_that_is_killed_before_finalize_is_named_and_the_others_have_their_rows() {
    let ended = run_example("survive.c", RANKS, &[REPORT]);
    assert!(ended.exited_with(0), "{}", ended.report());
    let matrix = Matrix::of(&ended, RANKS as usize);
    assert_eq!(matrix.rows[2], vec!['?'; RANKS as usize], "{}", ended.report());
    for (rank, row) in matrix.rows.iter().enumerate().filter(|(rank, _)| *rank != 2) {
        assert!(row[rank] == '-' && row.contains(&'s') && !row.contains(&'?'), "{}", ended.report());
    }
    assert!(matrix.below[0].ends_with("; ?: not known"), "{}", ended.report());
    assert_eq!(matrix.below[1], "rank 2 said nothing: ended before MPI_Finalize", "{}", ended.report());
}

#[test]
fn a_job_without_libfabric_starts_and_says_for_all_ranks_at_once_why_it_is_not_used() {
    for library in [ABSENT, "libm.so.6"] {
        let ended = hello(&[REPORT, ("MEND_BTL", "shm,ofi,self"), ("MEND_BTL_OFI_LIBRARY", library)]);
        let matrix = Matrix::of(&ended, RANKS as usize);
        assert_eq!(matrix.symbols_of_the_ring(), BTreeSet::from(['s']), "{}", ended.report());
        let start = format!("not used by ranks 0-3: ofi: {library}");
        assert!(matrix.below.len() == 2 && matrix.below[1].starts_with(&start), "{}", ended.report());
    }
}

#[test]
fn in_a_job_of_many_ranks_those_with_the_same_transports_share_a_line() {
    let ended = run_example("hello.c", 40, &[REPORT]);
    assert!(ended.exited_with(0), "{}", ended.report());
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert!(lines[0].ends_with("[E-JOB-023]"), "{}", ended.report());
    assert_eq!(lines[1], "mpiexec:   ranks 0-39: shm to ranks 0-39", "{}", ended.report());
    assert!(lines[2].starts_with("mpiexec:   pairs: shm "), "{}", ended.report());
    assert_eq!(lines.len(), 3, "{}", ended.report());
}

#[test]
fn a_process_without_mpiexec_prints_its_own_row() {
    let mut command = Command::new(example("hello.c"));
    command.env_remove("LD_LIBRARY_PATH").envs([REPORT]);
    let ended = WatchedCommand::new(command, LIMIT).run();
    assert!(ended.exited_with(0), "{}", ended.report());
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(lines[2..], ["mend:    0  -", "mend:   -: self"], "{}", ended.report());
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
    run_example("hello.c", RANKS, variables)
}

fn run_example(name: &str, ranks: u32, variables: &[(&str, &str)]) -> Ended {
    let mut command = program::mpiexec(ranks, LIMIT);
    command.arg(example(name)).envs(variables.iter().copied());
    WatchedCommand::new(command, LIMIT).run()
}

fn example(name: &str) -> PathBuf {
    program::compile(&prefix::place().root.join("examples").join(name)).expect("an example compiles")
}

/// The report about transports of a job that has printed nothing else on stderr.
struct Matrix<'ended> {
    rows: Vec<Vec<char>>,
    /// The lines below the matrix: the legend, silent ranks, reasons.
    below: Vec<&'ended str>,
}

impl<'ended> Matrix<'ended> {
    fn of(ended: &'ended Ended, ranks: usize) -> Self {
        let lines: Vec<&str> = ended.stderr.lines().collect();
        assert!(lines.len() > ranks + 2 && lines[0].ends_with("[E-JOB-023]"), "{}", ended.report());
        let body: Vec<&str> = lines[1..].iter().filter_map(|line| line.strip_prefix("mpiexec:   ")).collect();
        assert_eq!(body.len(), lines.len() - 1, "{}", ended.report());
        let row = |(rank, line): (usize, &&str)| {
            let mut words = line.split_whitespace();
            assert_eq!(words.next(), Some(rank.to_string().as_str()), "{}", ended.report());
            let cells: Vec<char> = words.flat_map(str::chars).collect();
            assert_eq!(cells.len(), ranks, "{}", ended.report());
            cells
        };
        let rows = body[1..=ranks].iter().enumerate().map(row).collect();
        Matrix { rows, below: body[ranks + 1..].to_vec() }
    }

    /// What each rank has for its right neighbour, to which the example sends; the ranks reach themselves by `self`.
    fn symbols_of_the_ring(&self) -> BTreeSet<char> {
        let ranks = self.rows.len();
        assert!((0..ranks).all(|rank| self.rows[rank][rank] == '-'));
        (0..ranks).map(|rank| self.rows[rank][(rank + 1) % ranks]).collect()
    }

    /// Why better transports are not used, each of which concerns all ranks of a job of four.
    fn reasons(&self) -> Vec<&'ended str> {
        self.below[1..]
            .iter()
            .map(|line| line.strip_prefix("not used by ranks 0-3: ").unwrap_or_else(|| panic!("{line}")))
            .collect()
    }
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
    gcc(Command::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source));
    library
}

/// A program that runs another one to which the kernel seems to be older than 5.3. It fails where that is not permitted.
fn without_process_descriptors(scratch: &Scratch) -> PathBuf {
    let (source, program) = (scratch.join("without.c"), scratch.join("without"));
    let text = "#include <errno.h>\n#include <linux/filter.h>\n#include <linux/seccomp.h>\n#include <stddef.h>\n\
                #include <sys/prctl.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n\
                int main(int argc, char **argv) {\n\
                struct sock_filter steps[] = {\n\
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),\n\
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),\n\
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),\n\
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};\n\
                struct sock_fprog filter = {4, steps};\n\
                if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)\n\
                || syscall(SYS_pidfd_open, getpid(), 0) != -1 || errno != ENOSYS) return 1;\n\
                (void)argc; execvp(argv[1], argv + 1); return 1; }\n";
    std::fs::write(&source, text).expect("a folder of the test");
    gcc(Command::new("gcc").arg("-o").arg(&program).arg(&source));
    program
}

fn gcc(command: &mut Command) {
    let built = command.output().expect("gcc is there");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

const ABSENT: &str = "libfabric-that-nobody-has.so.1";
const REPORT: (&str, &str) = ("MEND_REPORT", "transports");
const RANKS: u32 = 4;
const LIMIT: Duration = Duration::from_secs(60);
