// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles every program in `tests/c` with our `mpicc`, and runs it with our `mpiexec` on each number of ranks that it names.

use std::path::Path;
use std::time::Duration;

use mend_tests::program::{self, Header};
use mend_tests::watched_command::WatchedCommand;
use mend_tests::{page, prefix, say};
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
    let root = &prefix::place().root;
    let text = std::fs::read_to_string(root.join("docs/survive.md")).expect("the page is there");
    let programs = page::programs(&text);
    assert!(programs.len() >= 3, "{programs:?}");
    for program in programs {
        let source = root.join(program.source);
        let present = std::fs::read_to_string(&source).unwrap_or_default();
        assert!(present == program.text, "docs/survive.md and {} are not the same", source.display());
        let limit = Duration::from_secs(60);
        let mut command = program::mpiexec(program.ranks, limit);
        command.arg(program::compile(&source).unwrap());
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
