// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The detection time of deaths, over many deaths. There is one death in each job (`bench/c/detect.c`); this module collects them:
//! for each kind of call and each amount of memory that the victim had touched, the least, the median, the 99th percentile and
//! the greatest time from SIGKILL to the return of a survivor's call, how many survivors got a wrong result, and how many runs failed:
//! they ended, or had to be ended, before each survivor's call had returned.

use crate::compare::mpi::Mpi;
use crate::compare::{Outcome, folder, progress};
use std::path::Path;
use std::process::Command;

/// The options of the command line.
#[derive(Debug, PartialEq)]
struct Options<'a> {
    mend: Option<&'a str>,
    others: Vec<(&'a str, &'a str)>,
    open_mpi: bool,
    ranks: u32,
    kills: u32,
    calls: Vec<&'a str>,
    touched: Vec<u32>,
    format: Format,
    conditions: Conditions<'a>,
}

/// Under which conditions Mend's ranks die.
#[derive(Clone, Debug, Default, PartialEq)]
struct Conditions<'a> {
    /// The transports of Mend; `None`: as it chooses.
    btl: Option<&'a str>,
    /// The node daemon sends no notices of deaths by itself.
    muted: bool,
    /// All survivors are asleep when the victim dies.
    asleep: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Format {
    Text,
    Csv,
    Json,
}

/// One line of the table.
#[derive(Debug)]
struct Row<'a> {
    mpi: &'a str,
    call: &'a str,
    mebibytes: u32,
    kills: u32,
    /// Microseconds, sorted.
    samples: Vec<f64>,
    wrong: u32,
    /// Runs of which some survivor's call never returned.
    failed: u32,
    /// What the last of them printed.
    failure: String,
}

/// `mend-bench detect`.
pub fn command(words: &[&str]) -> Outcome {
    let options = parse(words)?;
    let folder = folder()?;
    let mpis = Mpi::prepare(options.mend, &options.others, options.open_mpi, &["detect"], &folder)?;
    let mut rows = Vec::new();
    for mpi in &mpis {
        for &mebibytes in &options.touched {
            for &call in &options.calls {
                rows.push(measure(mpi, call, mebibytes, &options, &folder)?);
            }
        }
    }
    progress("");
    print(&rows, &options);
    Ok(())
}

fn measure<'a>(
    mpi: &'a Mpi,
    call: &'a str,
    mebibytes: u32,
    options: &Options<'_>,
    folder: &Path,
) -> Outcome<Row<'a>> {
    let (samples, failure) = (Vec::new(), String::new());
    let mut row =
        Row { mpi: &mpi.name, call, mebibytes, kills: options.kills, samples, wrong: 0, failed: 0, failure };
    for kill in 0..options.kills {
        progress(&format!(
            "{}: {call}, {mebibytes} MiB touched: death {} of {}",
            mpi.name,
            kill + 1,
            options.kills
        ));
        let mut command = options.conditions.command(mpi, folder, options.ranks);
        let delay = options.conditions.delay_us(kill);
        command.args(["--samples", "--call", call, "--touched", &mebibytes.to_string()]);
        command.args(["--delay", &delay.to_string()]);
        if options.conditions.asleep {
            command.arg("--all-early");
        }
        let output = command.output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let found: Vec<(f64, bool)> = text.lines().filter_map(read).collect();
        if found.len() + 1 != options.ranks as usize {
            let errors = String::from_utf8_lossy(&output.stderr);
            row.failed += 1;
            row.failure = format!("{} ({}): {command:?}\n{text}{errors}", mpi.name, output.status);
            continue;
        }
        row.wrong += found.iter().filter(|(_, right)| !right).count() as u32;
        row.samples.extend(found.iter().map(|(time, _)| time));
    }
    if row.failed == options.kills {
        return Err(row.failure);
    }
    row.samples.sort_by(f64::total_cmp);
    Ok(row)
}

impl Conditions<'_> {
    /// The command of a job; what concerns Mend alone is not said to others.
    fn command(&self, mpi: &Mpi, folder: &Path, ranks: u32) -> Command {
        let options = if self.muted && mpi.is_mend() { &["--test-hooks"][..] } else { &[] };
        let mut command = mpi.run_with_deaths(folder, "detect", ranks, options);
        if mpi.is_mend() {
            command.envs(self.btl.map(|btl| ("MEND_BTL", btl)));
            command.envs(self.muted.then_some(("MEND_TEST_MUTED", "1")));
        }
        command
    }

    /// Survivors are blocked for 0 to 30 ms before: some still poll when the victim dies, most are asleep.
    fn delay_us(&self, kill: u32) -> u64 {
        let delay = u64::from(kill) * DELAY_STEP_US % DELAY_LONGEST_US;
        if self.asleep { delay + ASLEEP_AFTER_US } else { delay }
    }
}

/// `rank,microseconds,right|wrong`.
fn read(line: &str) -> Option<(f64, bool)> {
    let mut columns = line.split(',');
    columns.next()?.parse::<u32>().ok()?;
    let time = columns.next()?.parse().ok()?;
    match (columns.next()?, columns.next()) {
        ("right", None) => Some((time, true)),
        ("wrong", None) => Some((time, false)),
        _ => None,
    }
}

impl Row<'_> {
    fn at(&self, share: f64) -> f64 {
        let last = self.samples.len().saturating_sub(1);
        self.samples.get((last as f64 * share) as usize).copied().unwrap_or(0.0)
    }
}

fn print(rows: &[Row<'_>], options: &Options<'_>) {
    match options.format {
        Format::Text => {
            println!("# from SIGKILL of 1 of {} ranks to the return of each other's call", options.ranks);
            println!(
                "{:<10} {:<10} {:>12} {:>6} {:>8} {:>10} {:>10} {:>10} {:>10} {:>6} {:>6}",
                "MPI",
                "call",
                "touched MiB",
                "kills",
                "samples",
                "min us",
                "median us",
                "p99 us",
                "max us",
                "wrong",
                "failed"
            );
        }
        Format::Csv => {
            println!("mpi,call,touched_mib,kills,samples,min_us,p50_us,p99_us,max_us,wrong,failed")
        }
        Format::Json => println!("["),
    }
    for (number, row) in rows.iter().enumerate() {
        let Row { mpi, call, mebibytes, kills, samples, wrong, failed, failure: _ } = row;
        let [least, median, p99, most] = [0.0, 0.5, 0.99, 1.0].map(|share| row.at(share));
        let samples = samples.len();
        match options.format {
            Format::Text => println!(
                "{mpi:<10} {call:<10} {mebibytes:>12} {kills:>6} {samples:>8} {least:>10.1} {median:>10.1} {p99:>10.1} {most:>10.1} {wrong:>6} {failed:>6}"
            ),
            Format::Csv => println!(
                "{mpi},{call},{mebibytes},{kills},{samples},{least:.3},{median:.3},{p99:.3},{most:.3},{wrong},{failed}"
            ),
            Format::Json => println!(
                "  {{\"mpi\": \"{mpi}\", \"call\": \"{call}\", \"touched_mib\": {mebibytes}, \"kills\": {kills}, \
                 \"samples\": {samples}, \"min_us\": {least:.3}, \"p50_us\": {median:.3}, \"p99_us\": {p99:.3}, \
                 \"max_us\": {most:.3}, \"wrong\": {wrong}, \"failed\": {failed}}}{}",
                if number + 1 < rows.len() { "," } else { "" }
            ),
        }
    }
    if options.format == Format::Json {
        println!("]");
    }
}

fn parse<'a>(words: &[&'a str]) -> Outcome<Options<'a>> {
    let mut options = Options {
        mend: None,
        others: Vec::new(),
        open_mpi: false,
        ranks: 8,
        kills: 20,
        calls: CALLS.to_vec(),
        touched: vec![0, 1024],
        format: Format::Text,
        conditions: Conditions::default(),
    };
    let mut words = words.iter();
    while let Some(&option) = words.next() {
        let flag = match option {
            "--open-mpi" => Some(&mut options.open_mpi),
            "--muted" => Some(&mut options.conditions.muted),
            "--asleep" => Some(&mut options.conditions.asleep),
            _ => None,
        };
        if let Some(flag) = flag {
            *flag = true;
            continue;
        }
        let &value = words.next().ok_or_else(|| format!("{option} needs a value\n{}", super::USAGE))?;
        match option {
            "--mend" => options.mend = Some(value),
            "--rival" => {
                let other = value.split_once('=').ok_or_else(|| format!("'{value}' is not NAME=PREFIX"))?;
                options.others.push(other);
            }
            "--ranks" => options.ranks = number(value, 2..=1024)?,
            "--kills" => options.kills = number(value, 1..=100_000)?,
            "--calls" => options.calls = value.split(',').map(call).collect::<Outcome<_>>()?,
            "--touched" => {
                options.touched =
                    value.split(',').map(|word| number(word, 0..=65_536)).collect::<Outcome<_>>()?;
            }
            "--format" => options.format = format(value)?,
            "--btl" => options.conditions.btl = Some(value),
            _ => return Err(format!("'{option}' is not understood\n{}", super::USAGE)),
        }
    }
    Ok(options)
}

fn number(word: &str, within: std::ops::RangeInclusive<u32>) -> Outcome<u32> {
    let parsed = word.parse().ok().filter(|number| within.contains(number));
    parsed.ok_or_else(|| format!("'{word}' is no number from {} to {}", within.start(), within.end()))
}

fn call(word: &str) -> Outcome<&str> {
    if CALLS.contains(&word) { Ok(word) } else { Err(format!("'{word}' is none of {}", CALLS.join(", "))) }
}

fn format(word: &str) -> Outcome<Format> {
    match word {
        "text" => Ok(Format::Text),
        "csv" => Ok(Format::Csv),
        "json" => Ok(Format::Json),
        _ => Err(format!("'{word}' is none of text, csv, json")),
    }
}

const CALLS: [&str; 6] = ["receive", "wildcard", "probe", "barrier", "allreduce", "waitall"];
/// A prime, so that the delays of many kills are spread over the whole range.
const DELAY_STEP_US: u64 = 7_919;
const DELAY_LONGEST_US: u64 = 30_000;
/// By then every rank that waits sleeps, and has looked several times.
const ASLEEP_AFTER_US: u64 = 300_000;

#[cfg(test)]
mod tests {
    use super::{Conditions, Format, parse, read};

    #[test]
    fn the_command_line_is_understood_or_refused() {
        let options =
            parse(&["--mend", "p", "--calls", "probe,barrier", "--touched", "0,64", "--format", "csv"])
                .unwrap();
        assert_eq!((options.calls, options.touched), (vec!["probe", "barrier"], vec![0, 64]));
        assert_eq!((options.format, options.kills, options.ranks), (Format::Csv, 20, 8));
        let conditions = parse(&["--btl", "ofi,self", "--muted"]).unwrap().conditions;
        assert_eq!(conditions, Conditions { btl: Some("ofi,self"), muted: true, asleep: false });
        for wrong in [&["--calls", "send"][..], &["--kills", "0"], &["--touched", "x"], &["--mend"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_sample_is_read_and_other_lines_are_not() {
        assert_eq!(read("3,512.250,right"), Some((512.25, true)));
        assert_eq!(read("3,512.250,wrong"), Some((512.25, false)));
        assert_eq!(read("# detect"), None);
        assert_eq!(read("detect,8,0,7,1.0,2.0"), None);
    }
}
