// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles every program in `tests/c` with our `mpicc`, and runs it with our `mpiexec` on each number of ranks that it names.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mend_tests::program::{self, Header};
use mend_tests::watched_command::WatchedCommand;
use mend_tests::{Scratch, page, prefix, say, skip};
use mend_xtask::install::c_programs;

#[test]
fn every_program_prints_no_errors_on_each_number_of_ranks_and_nothing_on_stderr() {
    let only = std::env::var("MENDTEST_ONLY").unwrap_or_default();
    let mut table = Table::default();
    let sources = c_programs(&prefix::place().root.join("tests/c"));
    assert!(sources.len() >= 40, "tests/c holds {} programs", sources.len());
    for source in sources {
        if name(&source).contains(&only) {
            table.try_out(&source);
        }
    }
    assert!(table.passed as usize + table.failures.len() > 0, "no program's name holds '{only}'");
    say(&table.text);
    say(&format!("checks: {} passed, {} failed", table.passed, table.failures.len()));
    assert!(table.failures.is_empty(), "\n{}", table.failures.join("\n\n"));
}

#[test]
fn the_example_runs_and_every_rank_says_hello() {
    let hello = program::compile(&prefix::place().root.join("examples/hello.c")).unwrap();
    let limit = Duration::from_secs(60);
    let mut command = program::mpiexec(4, limit);
    command.arg(hello);
    let ended = WatchedCommand::new(command, limit).run();
    assert!(ended.exited_with(0) && ended.stderr.is_empty(), "{}", ended.report());
    let hellos = ended.stdout.lines().filter(|line| line.starts_with("hello from rank")).count();
    assert_eq!(hellos, 4, "{}", ended.report());
    assert!(ended.stdout.contains("came back as 4, the sum of all ranks is 6"), "{}", ended.report());
}

#[test]
fn a_traced_job_with_a_death_is_drawn_with_the_calls_of_every_rank_and_the_end_of_the_dead() {
    let program = program::compile(&prefix::place().root.join("examples/checkpoints.c")).unwrap();
    let scratch = Scratch::new("trace");
    let trace = scratch.join("run");
    let limit = Duration::from_secs(60);
    let mut command = program::mpiexec(4, limit);
    command.env("MEND_TRACE", &trace).arg(program).arg("2");
    let ended = WatchedCommand::new(command, limit).run();
    assert!(ended.exited_with(0) && ended.stderr.is_empty(), "{}", ended.report());
    let output = prefix::command("mend-info").arg("--timeline").arg(&trace).output().unwrap();
    let drawing = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && drawing.ends_with("</svg>\n"), "{output:?}");
    for words in
        ["rank 0<", "rank 3<", "MPI_Allreduce", "MPIX_Comm_shrink", "error class", "ended outside MPI"]
    {
        assert!(drawing.contains(words), "{words} is not in {drawing}");
    }
    assert_eq!(drawing.matches(">ended ").count(), 1, "one rank died");
}

#[test]
fn calls_that_an_error_handler_leaves_by_a_jump_are_drawn_and_are_not_where_the_rank_ended() {
    let source = prefix::place().root.join("tests/c/repair_in_handler.c");
    let program = program::compile(&source).unwrap();
    let scratch = Scratch::new("trace-handlers");
    let trace = scratch.join("run");
    let limit = Duration::from_secs(60);
    let mut command = program::mpiexec(4, limit);
    command.env("MEND_TRACE", &trace).arg(program);
    let ended = WatchedCommand::new(command, limit).run();
    assert!(ended.exited_with(0) && ended.stderr.is_empty(), "{}", ended.report());
    let output = prefix::command("mend-info").arg("--timeline").arg(&trace).output().unwrap();
    let drawing = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && drawing.ends_with("</svg>\n"), "{output:?}");
    for words in [", left by its error handler", "MPIX_Comm_shrink", ", error class"] {
        assert!(drawing.contains(words), "{words} is not in {drawing}");
    }
    // Each rank that dies does so outside MPI, after calls that its handler has left.
    assert_eq!(
        drawing.matches(">ended ").count(),
        drawing.matches(">ended outside MPI").count(),
        "{drawing}"
    );
}

/// valgrind gives a program an auxiliary vector of its own, which must not be read past the C library.
#[test]
fn a_program_runs_under_valgrind() {
    if let Err(error) = Command::new("valgrind").arg("--version").output() {
        return skip("a_program_runs_under_valgrind", &format!("valgrind cannot be started: {error}"));
    }
    let hello = program::compile(&prefix::place().root.join("examples/hello.c")).unwrap();
    let limit = Duration::from_secs(120);
    let mut command = program::mpiexec(2, limit);
    command.args(["valgrind", "--quiet", "--tool=none"]).arg(hello);
    let ended = WatchedCommand::new(command, limit).run();
    assert!(ended.exited_with(0), "{}", ended.report());
    let hellos = ended.stdout.lines().filter(|line| line.starts_with("hello from rank")).count();
    assert_eq!(hellos, 2, "{}", ended.report());
}

// Row CN8, Row CN9, Row CO12, Row PP8: what the example shows.
#[test]
fn the_example_loses_a_rank_and_the_others_name_it_and_go_on() {
    let survive = program::compile(&prefix::place().root.join("examples/survive.c")).unwrap();
    let limit = Duration::from_secs(60);
    let mut command = program::mpiexec(4, limit);
    command.arg(survive);
    let ended = WatchedCommand::new(command, limit).run();
    assert!(ended.exited_with(0) && ended.stderr.is_empty(), "{}", ended.report());
    let count = |words| ended.stdout.lines().filter(|line| line.contains(words)).count();
    let failed = count("the barrier returns MPI_ERR_PROC_FAILED; 1 of 4 ranks failed, rank 2 among them");
    assert_eq!((failed, count("the sum of the living is 4")), (3, 3), "{}", ended.report());
}

// Row CN8, Row CN9, Row AK7, Row PP8, Row PP9, Row EH2: what the page's programs rely on.
#[test]
fn every_program_of_the_page_on_surviving_is_an_example_and_prints_the_text_of_the_page() {
    assert_that_programs_are_as_the_page_says("docs/survive.md", 3);
}

// Row RV11, Row AG1, Row SH1, Row SH11: likewise.
#[test]
fn every_program_of_the_page_on_repair_is_an_example_and_prints_the_text_of_the_page() {
    assert_that_programs_are_as_the_page_says("docs/repair.md", 2);
}

#[test]
fn every_program_of_the_page_on_patterns_of_repair_is_an_example_and_prints_the_text_of_the_page() {
    assert_that_programs_are_as_the_page_says("docs/patterns.md", 2);
}

fn assert_that_programs_are_as_the_page_says(path: &str, least: usize) {
    let root = &prefix::place().root;
    let text = std::fs::read_to_string(root.join(path)).expect("the page is there");
    let programs = page::programs(&text);
    assert!(programs.len() >= least, "{programs:?}");
    for program in programs {
        let source = root.join(program.source);
        let present = std::fs::read_to_string(&source).unwrap_or_default();
        assert!(present == program.text, "{path} and {} are not the same", source.display());
        let limit = Duration::from_secs(60);
        let mut command = program::mpiexec(program.ranks, limit);
        command.arg(program::compile(&source).unwrap()).args(&program.arguments);
        let ended = WatchedCommand::new(command, limit).run();
        assert!(ended.exited_with(0) && ended.stderr.is_empty(), "{}", ended.report());
        // The program does not determine the order in which lines of different ranks are printed.
        let sorted = |text: &str| {
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&ended.stdout), sorted(program.prints), "{}", ended.report());
    }
}

#[derive(Default)]
struct Table {
    text: String,
    passed: u32,
    failures: Vec<String>,
}

impl Table {
    fn try_out(&mut self, source: &Path) {
        let text = std::fs::read_to_string(source).expect("a source that was listed can be read");
        let prepared = Header::parse(&text).and_then(|header| Ok((header, program::compile(source)?)));
        let (header, product) = match prepared {
            Ok(prepared) => prepared,
            Err(why) => return self.failures.push(format!("{}: {why}", name(source))),
        };
        for &ranks in &header.ranks {
            let ended = program::run(&product, &header, ranks);
            let checked = header.check(&ended);
            let word = if checked.is_ok() { "ok" } else { "FAILED" };
            let line = format!(
                "  {:<24} n={ranks:<4} {word:<6} {:>7.2} s\n",
                name(source),
                ended.took.as_secs_f64()
            );
            self.text.push_str(&line);
            match checked {
                Ok(()) => self.passed += 1,
                Err(why) => self.failures.push(format!("{} on {ranks} ranks: {why}", name(source))),
            }
        }
    }
}

fn name(source: &Path) -> String {
    source.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
