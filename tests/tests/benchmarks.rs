// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The installed benchmarks run, check every byte when asked to, and print what programs can read. Their figures are never
//! asserted: they depend on the machine.

use std::time::Duration;

use mend_tests::watched_command::{Ended, WatchedCommand};
use mend_tests::{prefix, program};

#[test]
fn every_benchmark_passes_with_every_byte_checked() {
    for name in benchmarks() {
        let ended = run(&name, &["--validate"]);
        assert!(ended.exited_with(0) && ended.stderr.is_empty(), "{name}: {}", ended.report());
    }
}

#[test]
fn tables_for_programs_hold_nothing_else_on_stdout() {
    for name in benchmarks() {
        let csv = run(&name, &["--format", "csv"]);
        let columns: Vec<usize> = csv.stdout.lines().map(|line| line.split(',').count()).collect();
        assert!(csv.exited_with(0) && columns.len() >= 2, "{name}: {}", csv.report());
        assert!(columns.iter().all(|&number| number == columns[0] && number > 1), "{name}: {}", csv.stdout);
        let json = run(&name, &["--format", "json"]).stdout;
        let text = json.trim();
        let braces = |open, close| text.matches(open).count() == text.matches(close).count();
        assert!(text.starts_with(['{', '[']) && braces('{', '}') && braces('[', ']'), "{name}: {text}");
    }
}

fn run(name: &str, options: &[&str]) -> Ended {
    let mut command = program::mpiexec(2, LIMIT);
    command.arg(prefix::prefix().join("bin").join(name)).args(options);
    command.args(["--sizes", "8,64K,1M", "--iterations", "5", "--warmup", "1", "--window", "8"]);
    WatchedCommand::new(command, LIMIT).run()
}

/// One for each source in `bench/c`, under the name the install gives it.
fn benchmarks() -> Vec<String> {
    let sources = mend_xtask::install::benchmark_sources(&prefix::place().root);
    assert!(sources.len() >= 6, "bench/c holds {} programs", sources.len());
    sources.iter().filter_map(|path| Some(format!("mend-{}", path.file_stem()?.to_str()?))).collect()
}

const LIMIT: Duration = Duration::from_secs(60);
