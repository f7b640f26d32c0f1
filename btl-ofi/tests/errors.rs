// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each error code at each call site of libfabric, injected by the fabric shim between two BTLs with traffic: none ends the process, none
//! hangs, each has the effect that its class has at the site, nothing is lost or doubled, and nothing is left open. The test prints the
//! table.
//!
//! `MENDTEST_OFI_ERRORS=all` injects each code in each row; else a row of faults that last, or of a device that is opened again, gets some codes
//! of each class. `MENDTEST_OFI_ERRORS_PROVIDER` names another provider than `tcp`.

#[path = "errors/case.rs"]
mod case;
#[path = "errors/pair.rs"]
mod pair;
#[path = "errors/rows.rs"]
mod rows;
#[path = "errors/traffic.rs"]
mod traffic;

use case::Place;
use mend_btl_ofi::{Class, classify};
use mend_fabric_shim::Shim;
use mend_ffi_ofi::{Code, Ofi as Library};
use rows::{Outcome, ROWS, Row, When};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

const TEST: &str = "every_code_at_every_site_has_the_effect_of_its_class";

/// In a child: the number of its first case, and of the first that is not its.
const CHILD: &str = "MENDTEST_OFI_ERRORS_CASES";

/// A row, and a code.
type Case = (&'static Row, Code);

/// How a case ended, and what was wrong.
type Ended = (Outcome, String);

#[test]
fn every_code_at_every_site_has_the_effect_of_its_class() {
    let cases = cases();
    if let Ok(range) = std::env::var(CHILD) {
        return run_here(&cases, &range);
    }
    if let Err(why) = Library::open(Library::DEFAULT_NAME) {
        return mend_testing::skip(TEST, &format!("{why} (Debian: apt-get install libfabric1)"));
    }
    let ended = run_all(&cases);
    let wrong = table(&cases, &ended);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn cases() -> Vec<Case> {
    let all = std::env::var("MENDTEST_OFI_ERRORS").is_ok_and(|value| value == "all");
    let codes: Vec<Code> = Code::all().collect();
    let takes = |row: &Row, code: &Code| {
        let few = row.when == When::Lasting || row.name.ends_with("again");
        all || !few || SOME.contains(&code.name())
    };
    ROWS.iter()
        .flat_map(|row| codes.iter().filter(|code| takes(row, code)).map(move |&code| (row, code)))
        .collect()
}

/// Codes of each class.
const SOME: &[&str] =
    &["EAGAIN", "ECANCELED", "ECONNRESET", "ETIMEDOUT", "EINVAL", "ENOMEM", "EKEYREJECTED", "ENODEV"];

/// Runs cases in this process, and prints a line for each.
fn run_here(cases: &[Case], range: &str) {
    let (from, to) = range.split_once('-').expect("two numbers");
    let (from, to): (usize, usize) = (from.parse().expect("a number"), to.parse().expect("a number"));
    let provider = std::env::var("MENDTEST_OFI_ERRORS_PROVIDER").unwrap_or_else(|_| "tcp".to_owned());
    let shim = Shim::open().expect("cargo builds the shim for this test");
    let library = Library::open(&Shim::path().to_string_lossy()).expect("the shim can be opened");
    let place = Place { shim, library, provider };
    // Some providers open what they keep with the first device.
    place.run(&ROWS[0], Code::INVALID).ok();
    for (number, (row, code)) in cases.iter().enumerate().take(to).skip(from) {
        let (outcome, why) = match place.run(row, *code) {
            Ok(outcome) => (outcome, String::new()),
            Err(why) => (Outcome::Wrong, why),
        };
        println!("\ncase {number} {outcome:?} {}", why.replace('\n', " "));
        std::io::stdout().flush().expect("the parent reads");
        if outcome == Outcome::Wrong {
            // What it left open would be counted for the next case; the parent starts another child for that.
            std::process::exit(3);
        }
    }
}

/// Runs all cases in children, two at a time. A case in which a child ends, or says nothing for a long time, is wrong.
fn run_all(cases: &[Case]) -> Vec<Ended> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut ended = Vec::new();
        loop {
            let from = next.fetch_add(CHUNK, Ordering::Relaxed);
            if from >= cases.len() {
                return ended;
            }
            ended.push((from, run_chunk(from, cases.len().min(from + CHUNK))));
        }
    };
    let mut chunks: BTreeMap<usize, Vec<Ended>> = BTreeMap::new();
    std::thread::scope(|scope| {
        let workers = [scope.spawn(work), scope.spawn(work)];
        for worker in workers {
            chunks.extend(worker.join().expect("a worker does not panic"));
        }
    });
    chunks.into_values().flatten().collect()
}

fn run_chunk(from: usize, to: usize) -> Vec<Ended> {
    let mut ended: Vec<Ended> = Vec::new();
    while from + ended.len() < to {
        let before = ended.len();
        let how = run_child(from + before, to, &mut ended);
        // The case at which the child ended without a word.
        let has_said =
            ended.len() > before && ended.last().is_some_and(|(outcome, _)| *outcome == Outcome::Wrong);
        if from + ended.len() < to && !has_said {
            ended.push((Outcome::Wrong, how));
        }
    }
    ended
}

/// Runs a child, and returns how it ended.
fn run_child(from: usize, to: usize, ended: &mut Vec<Ended>) -> String {
    let mut command = Command::new(std::env::current_exe().expect("a running program has a name"));
    command.args(["--exact", TEST, "--nocapture"]).env(CHILD, format!("{from}-{to}"));
    // A library that libfabric loads (libinfinipath) installs handlers for fatal signals, which write a file and exit, unless this is set.
    command.env("IPATH_NO_BACKTRACE", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("this program starts again");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let (sender, receiver) = channel();
    let reader =
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| _ = sender.send(line)));
    let mut hangs = false;
    loop {
        match receiver.recv_timeout(WATCHDOG) {
            Ok(line) => ended.extend(parse(&line)),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                hangs = true;
                child.kill().expect("a child that runs can be killed");
            }
        }
    }
    reader.join().expect("a reader does not panic");
    let output = child.wait_with_output().expect("a child that has ended");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    if hangs { "hang: a call does not return".to_owned() } else { format!("{}: {words}", output.status) }
}

/// `case NUMBER OUTCOME WHY`
fn parse(line: &str) -> Option<Ended> {
    let words = line.strip_prefix("case ")?;
    let (_, words) = words.split_once(' ')?;
    let (outcome, why) = words.split_once(' ')?;
    Some((Outcome::named(outcome)?, why.to_owned()))
}

/// Prints the table, and returns what is wrong in it.
fn table(cases: &[Case], ended: &[Ended]) -> Vec<String> {
    assert_eq!(cases.len(), ended.len(), "each case ended");
    let mut cells: BTreeMap<(usize, Class), BTreeMap<String, usize>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for ((row, code), (outcome, why)) in cases.iter().zip(ended) {
        let number = ROWS.iter().position(|other| core::ptr::eq(other, *row)).expect("a row of the table");
        *cells.entry((number, classify(*code))).or_default().entry(format!("{outcome:?}")).or_default() += 1;
        let expected = (row.follows)(*code);
        if *outcome != expected {
            let (name, when) = (row.name, row.when);
            wrong.push(format!("{name} ({when:?}), {}: {outcome:?}, not {expected:?}: {why}", code.name()));
        }
    }
    for (number, row) in ROWS.iter().enumerate() {
        let mut line = format!("table: {:<20}{:<11}", row.name, format!("{:?}", row.when));
        for class in [Class::Again, Class::Consequence, Class::Hint, Class::LocalFault, Class::Device] {
            let Some(outcomes) = cells.get(&(number, class)) else { continue };
            let words: Vec<_> =
                outcomes.iter().map(|(outcome, count)| format!("{outcome} {count}")).collect();
            line += &format!(" | {class:?}: {}", words.join(", "));
        }
        mend_testing::say(&line);
    }
    let sites = ROWS.len();
    mend_testing::say(&format!("figure: {} cases in {sites} rows, {} wrong", cases.len(), wrong.len()));
    wrong
}

/// Cases of one child.
const CHUNK: usize = 60;

/// A child that says nothing for so long does not return from a call.
const WATCHDOG: Duration = Duration::from_secs(60);
