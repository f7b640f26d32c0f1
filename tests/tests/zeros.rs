// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls every function of the header with zeros only: null handles, null pointers, zero counts. None crashes; exactly those for
//! which the table has no implementation return MPI_ERR_UNSUPPORTED_OPERATION.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use mend_tests::watched_command::WatchedCommand;
use mend_tests::{Scratch, prefix, program};

#[test]
fn every_call_returns_with_zero_arguments_and_unsupported_ones_say_so() {
    let table = std::fs::read_to_string(prefix::place().root.join("abi/table/calls.table")).unwrap();
    let mut rows = String::new();
    for line in table.lines() {
        if let Some((names, works)) = row(line) {
            for name in names {
                writeln!(rows, "    {{\"{name}\", {}}},", i32::from(works)).unwrap();
            }
        }
    }
    assert!(rows.lines().count() > 600, "the table has the calls of the standard:\n{rows}");
    let folder = Scratch::new("zeros");
    let source = folder.join("zeros.c");
    std::fs::write(&source, PROGRAM.replace("ROWS", &rows)).expect("the target folder can be written");
    let zeros = program::compile_beside(&source).unwrap();
    let limit = Duration::from_secs(60);
    let mut command = program::mpiexec(1, limit);
    command.arg(zeros);
    let ended = WatchedCommand::new(command, limit).run();
    assert!(ended.exited_with(0) && ended.stdout.contains("No errors"), "{}", ended.report());
    // Calls of files and tools have no handler that returns; each prints a line on stderr, once.
    let printed = ended.stderr.lines().filter(|line| line.contains("is not supported by this version"));
    let names: BTreeSet<_> = printed.filter_map(|line| line.split(": ").nth(2)).collect();
    assert_eq!(names.len(), ended.stderr.lines().count(), "{}", ended.stderr);
}

/// The names of a line of the table and whether it works; nothing for comments, calls that end the process or MPI, that
/// return no class, or whose error handler is an argument: a null one is the initial one, which is fatal.
fn row(line: &str) -> Option<(Vec<String>, bool)> {
    let (head, rest) = line.split_once('(').filter(|_| !line.starts_with('#'))?;
    let (parameters, after) = rest.split_once(')')?;
    let mut words = head.split_whitespace();
    let name = words.next()?;
    let ends = ["Abort", "Finalize", "Init", "Init_thread"].contains(&name);
    let takes_handler = parameters.split(',').any(|parameter| parameter.trim() == "errhandler");
    if ends || takes_handler || after.contains("->") {
        return None;
    }
    let large = words.any(|word| word == "+c").then(|| format!("MPI_{name}_c"));
    Some(([format!("MPI_{name}")].into_iter().chain(large).collect(), after.contains('=')))
}

const PROGRAM: &str = r#"#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

/* As many as any call has; in every calling convention that Mend runs on, too many do no harm. */
typedef int (*call)(long, long, long, long, long, long, long, long, long, long, long, long, long, long, long, long);

static const struct { const char *name; int works; } calls[] = {
ROWS};

int main(void)
{
    int errors = 0;
    MPI_Init(NULL, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        call function = (call)dlsym(RTLD_DEFAULT, calls[i].name);
        int code = function ? function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) : -1;
        if (code < 0 || (code == MPI_ERR_UNSUPPORTED_OPERATION) == calls[i].works) {
            printf("%s gives %d\n", calls[i].name, code);
            errors++;
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (errors == 0)
        printf("No errors\n");
    MPI_Finalize();
    return errors != 0;
}
"#;

#[test]
fn a_row_of_the_table_is_read_as_the_generator_reads_it() {
    let names = |line: &str| row(line).map(|(names, works)| (names.join(" "), works));
    let send = "Send +c (buf:in_buffer, count, comm) = point_to_point::send";
    assert_eq!(names(send), Some(("MPI_Send MPI_Send_c".to_owned(), true)));
    assert_eq!(names("Buffer_flush ()"), Some(("MPI_Buffer_flush".to_owned(), false)));
    assert_eq!(names("Wtime () -> double = environment::wtime plain"), None);
    assert_eq!(names("# Environment"), None);
}
