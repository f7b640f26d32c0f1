// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Jobs with little memory, or with a small, read-only or missing /dev/shm: each runs, or is refused with a message before anything
//! is reserved; there is no SIGBUS, and no process is killed because of memory that Mend reserved.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use mend_tests::watched_command::{Ended, WatchedCommand};
use mend_tests::{prefix, program, sandbox, skip};

#[test]
fn four_ranks_run_under_a_memory_limit_of_64_mib() {
    let test = "four_ranks_run_under_a_memory_limit_of_64_mib";
    under_memory_limit(test, 64, "exchange.c", &[], Ended::is_clean);
}

// The program's buffers take 8 MiB.
#[test]
fn four_ranks_run_under_a_memory_limit_of_24_mib() {
    let test = "four_ranks_run_under_a_memory_limit_of_24_mib";
    under_memory_limit(test, 24, "exchange.c", &[], Ended::is_clean);
}

#[test]
fn memory_that_the_limit_does_not_allow_is_refused_by_its_error_class() {
    let test = "memory_that_the_limit_does_not_allow_is_refused_by_its_error_class";
    under_memory_limit(test, 64, "alloc.c", &[], Ended::is_clean);
}

// The parameter asks for more free memory than the limit has.
#[test]
fn init_is_refused_in_words_where_no_shared_memory_may_be_taken() {
    let test = "init_is_refused_in_words_where_no_shared_memory_may_be_taken";
    let options = ["--mca", "btl_shm.memory_reserve_bytes", "1g"];
    under_memory_limit(test, 64, "exchange.c", &options, |ended| {
        ended.is_refused_with("are left under the memory limit")
    });
}

#[test]
fn a_job_runs_with_a_dev_shm_of_1_mib() {
    in_mount_namespace("a_job_runs_with_a_dev_shm_of_1_mib", "mount -t tmpfs -o size=1m none /dev/shm");
}

// A trace that does not fit is not written, and the rank runs on.
#[test]
fn a_traced_job_runs_on_a_full_disk_and_leaves_no_trace() {
    let test = "a_traced_job_runs_on_a_full_disk_and_leaves_no_trace";
    let mut command = four_ranks(program::limit_program("exchange.c"));
    command.env("MEND_TRACE", "/mnt/run");
    match sandbox::unshare(&["-m"], "mount -t tmpfs -o size=8k none /mnt", &command) {
        Err(why) => skip(test, &why),
        Ok(command) => {
            let ended = WatchedCommand::new(command, LIMIT).run();
            let warnings =
                ended.stderr.lines().filter(|line| line.contains("cannot write /mnt/run.")).count();
            assert!(ended.exited_with(0) && ended.stdout.contains("No errors"), "{}", ended.report());
            assert_eq!((warnings, ended.stderr.lines().count()), (4, 4), "{}", ended.report());
        }
    }
}

#[test]
fn a_job_runs_with_a_read_only_dev_shm() {
    in_mount_namespace("a_job_runs_with_a_read_only_dev_shm", "mount -t tmpfs -o ro none /dev/shm");
}

#[test]
fn a_job_runs_without_dev_shm() {
    in_mount_namespace("a_job_runs_without_dev_shm", &dev_without_shm());
}

/// The library and the program are used through other mounts, so that /tmp can be an empty one. This also shows that the installed
/// folder can be moved.
#[test]
fn jobs_leave_nothing_in_dev_shm_and_tmp() {
    let test = "jobs_leave_nothing_in_dev_shm_and_tmp";
    let exchange = program::limit_program("exchange.c");
    let script = format!(
        "mount -t tmpfs none /mnt && mkdir /mnt/prefix && touch /mnt/exchange
         mount --bind '{}' /mnt/prefix && mount --bind '{}' /mnt/exchange
         mount -t tmpfs none /tmp && mount -t tmpfs none /dev/shm && cd /mnt
         export LD_LIBRARY_PATH=/mnt/prefix/lib",
        prefix::prefix().display(),
        exchange.display()
    );
    let mut jobs = Command::new("sh");
    jobs.args(["-ec", JOBS_AND_LIST]);
    match sandbox::unshare(&["-m"], &script, &jobs) {
        Err(why) => skip(test, &why),
        Ok(command) => {
            let ended = WatchedCommand::new(command, LIMIT).run();
            assert!(ended.exited_with(0), "{}", ended.report());
            let (printed, left) = ended.stdout.split_once("left:").expect("the script prints what is left");
            assert_eq!(printed.matches("No errors").count(), 3, "{}", ended.report());
            assert_eq!(left.trim(), "", "{}", ended.report());
        }
    }
}

fn under_memory_limit(
    test: &str,
    mib: u64,
    source: &str,
    options: &[&str],
    expected: impl Fn(&Ended) -> bool,
) {
    let mut command = program::mpiexec(4, LIMIT);
    // The limits are those of shared memory, for which libfabric would stand in where it is installed.
    command.env("MEND_BTL", "^ofi").args(options).arg(program::limit_program(source));
    match sandbox::MemoryLimit::new(mib << 20) {
        Err(why) => skip(test, &why),
        Ok(group) => {
            let ended = WatchedCommand::new(group.hold(&command), LIMIT).run();
            assert!(expected(&ended), "{}", ended.report());
            assert_eq!(group.killed(), 0, "{}", ended.report());
        }
    }
}

fn in_mount_namespace(test: &str, script: &str) {
    let exchange = program::limit_program("exchange.c");
    match sandbox::unshare(&["-m"], script, &four_ranks(exchange)) {
        Err(why) => skip(test, &why),
        Ok(command) => {
            let ended = WatchedCommand::new(command, LIMIT).run();
            assert!(ended.is_clean(), "{}", ended.report());
        }
    }
}

fn four_ranks(program: PathBuf) -> Command {
    let mut command = program::mpiexec(4, LIMIT);
    command.arg(program);
    command
}

/// A script that mounts a /dev with the devices that programs need and without shm; the machine's own must not be changed.
fn dev_without_shm() -> String {
    let dev = prefix::folder("dev");
    format!(
        "mount -t tmpfs none '{0}' && for node in null zero full random urandom; do
             touch '{0}'/$node && mount --bind /dev/$node '{0}'/$node; done && mount --rbind '{0}' /dev && test ! -e /dev/shm",
        dev.display()
    )
}

const LIMIT: Duration = Duration::from_secs(60);
const JOBS_AND_LIST: &str = "for round in 1 2 3; do prefix/bin/mpiexec -n 4 ./exchange; done
    echo left:; ls -A /tmp /dev/shm | grep -v -e '^/' -e '^$' || true";
