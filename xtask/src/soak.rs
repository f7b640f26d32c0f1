// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo soak [NAME] [--for DURATION]`: the long runs, in one table.
//!
//! A soak is a list of steps made for a duration; the suite runs short samples of those that have one. All random numbers come from
//! a seed, which the soak prints and the summary repeats.

use std::time::{Duration, Instant};

use crate::place::{Logs, Place};
use crate::step::{self, Report, Step};
use crate::{CommandError, Outcome, suite};

mod builds;
mod runs;

pub use builds::asan_build;

/// One long run.
struct Soak {
    name: &'static str,
    /// What it tests.
    sentence: &'static str,
    /// The duration if it is asked for by name.
    long: Duration,
    /// The duration if all are asked for.
    short: Duration,
    /// The duration in the suite; `None`: not run there.
    sample: Option<Duration>,
    steps: fn(&Place, Duration) -> Outcome<Vec<Step>>,
}

/// `cargo soak`: the table, then each for a short while; with a name: that one for its full time.
pub fn command(place: &Place, words: &[&str]) -> Outcome {
    let (name, time) = parse(words)?;
    let logs = Logs::open(place, "soak")?;
    let chosen: Vec<&Soak> = match name {
        Some(name) => vec![find(name)?],
        None => TABLE.iter().collect(),
    };
    if name.is_none() {
        list();
    }
    let started = Instant::now();
    let mut reports: Vec<Report> = Vec::new();
    for soak in chosen {
        let time = time.unwrap_or(if name.is_some() { soak.long } else { soak.short });
        println!("{}: {} ({})", soak.name, soak.sentence, words_for(time));
        for step in (soak.steps)(place, time)? {
            reports.push(step::run(step, logs.path())?);
        }
    }
    suite::summary(&reports, started.elapsed(), logs.path(), None)
}

/// The samples that the suite runs.
pub fn samples(place: &Place) -> Outcome<Vec<Step>> {
    let mut steps = Vec::new();
    for soak in TABLE {
        if let Some(time) = soak.sample {
            steps.extend((soak.steps)(place, time)?);
        }
    }
    Ok(steps)
}

/// The steps of all soaks, made for a short run.
pub fn all_steps(place: &Place) -> Outcome<Vec<Step>> {
    let steps = TABLE.iter().map(|soak| (soak.steps)(place, soak.short)).collect::<Outcome<Vec<_>>>()?;
    Ok(steps.into_iter().flatten().collect())
}

fn list() {
    println!("long runs (cargo soak NAME [--for 90s|10m|2h]):");
    for soak in TABLE {
        println!("  {:<13} {:<92} {:>6}", soak.name, soak.sentence, words_for(soak.long));
    }
    println!();
}

fn find(name: &str) -> Outcome<&'static Soak> {
    let names: Vec<_> = TABLE.iter().map(|soak| soak.name).collect();
    let found = TABLE.iter().find(|soak| soak.name == name);
    found.ok_or_else(|| CommandError(format!("there is no soak '{name}'; there are {}", names.join(", "))))
}

fn parse<'a>(words: &[&'a str]) -> Outcome<(Option<&'a str>, Option<Duration>)> {
    match words {
        [] => Ok((None, None)),
        ["--for", time] => Ok((None, Some(duration(time)?))),
        [name] if !name.starts_with('-') => Ok((Some(name), None)),
        [name, "--for", time] | ["--for", time, name] => Ok((Some(name), Some(duration(time)?))),
        _ => Err(CommandError(
            "usage: cargo soak [NAME] [--for DURATION], as in cargo soak traffic --for 10m".to_owned(),
        )),
    }
}

/// `90`, `90s`, `10m`, `2h`.
fn duration(text: &str) -> Outcome<Duration> {
    let (digits, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(digits) if text.ends_with('m') => (digits, 60),
        Some(digits) if text.ends_with('h') => (digits, 3600),
        Some(digits) => (digits, 1),
        None => (text, 1),
    };
    let number: Option<u64> = digits.parse().ok().and_then(|number: u64| number.checked_mul(unit));
    match number {
        Some(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        _ => Err(CommandError(format!("'{text}' is no duration: 90s, 10m or 2h is wanted"))),
    }
}

fn words_for(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        seconds if seconds % 60 == 0 => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

const TABLE: &[Soak] = &[
    Soak {
        name: "wakeups",
        sentence: "2 ranks on 2 cores and 8 on 1 ring, sleep and refill full rings at random delays: no wake-up is lost",
        long: seconds(1200),
        short: seconds(20),
        sample: Some(seconds(10)),
        steps: runs::wakeups,
    },
    Soak {
        name: "jobs",
        sentence: "500 jobs end by Ctrl-C, SIGTERM, SIGKILL of mpiexec or node_daemon at random moments: nothing is left",
        long: seconds(500),
        short: seconds(20),
        sample: Some(seconds(20)),
        steps: runs::jobs,
    },
    Soak {
        name: "traffic",
        sentence: "random traffic between 8 ranks, all modes, wildcards, threads, every byte checked",
        long: seconds(600),
        short: seconds(20),
        sample: Some(seconds(10)),
        steps: runs::traffic,
    },
    Soak {
        name: "kills",
        sentence: "1,000 jobs killed at random moments, one rank, several, all, or mpiexec: nothing is left",
        long: seconds(500),
        short: seconds(25),
        sample: Some(seconds(25)),
        steps: runs::kills,
    },
    Soak {
        name: "recoveries",
        sentence: "10,000 ranks killed at any instruction of a loop of communication: the others revoke, agree, shrink, go on",
        long: seconds(1000),
        short: seconds(20),
        sample: Some(seconds(20)),
        steps: runs::recoveries,
    },
    Soak {
        name: "single-step",
        sentence: "a rank killed after every instruction of an operation: no hang, no wrong byte",
        long: seconds(3600),
        short: seconds(60),
        sample: Some(seconds(60)),
        steps: runs::single_step,
    },
    Soak {
        name: "init-finalize",
        sentence: "a rank killed at every system call of Init and Finalize, 2 to 5 ranks: the others return",
        long: seconds(1200),
        short: seconds(60),
        sample: Some(seconds(60)),
        steps: runs::init_finalize,
    },
    Soak {
        name: "stops",
        sentence: "8 ranks on 2 cores, stopped for up to 30 s and computing without MPI: 0 declared failed",
        long: seconds(1800),
        short: seconds(20),
        sample: Some(seconds(10)),
        steps: runs::stops,
    },
    Soak {
        name: "wires",
        sentence: "over libfabric, wires cut for 3 s and connections reset at either end, both, and again, 100 times each: no error",
        long: seconds(600),
        short: seconds(30),
        sample: None,
        steps: runs::wires,
    },
    Soak {
        name: "told",
        sentence: "garbage by a living peer, a core dump of 1 GiB, every blocked call, the notice page muted",
        long: seconds(60),
        short: seconds(60),
        sample: Some(seconds(60)),
        steps: runs::told,
    },
    Soak {
        name: "garbage",
        sentence: "10,000 single random values in every word that others read: evidence or harmless, never a crash",
        long: seconds(600),
        short: seconds(20),
        sample: None,
        steps: runs::garbage,
    },
    Soak {
        name: "seeds",
        sentence: "seeds of the simulated cluster beyond those of the suite",
        long: seconds(1800),
        short: seconds(30),
        sample: None,
        steps: runs::seeds,
    },
    Soak {
        name: "deaths",
        sentence: "10^6 seeds of the simulated cluster in which ranks die at any step: no hang, no wrong class or byte",
        long: seconds(4000),
        short: seconds(30),
        sample: None,
        steps: runs::deaths,
    },
    Soak {
        name: "sim",
        sentence: "10^6 whole recoveries in the simulated cluster, 2 to 16 ranks, 10^3 of 64, 20 of 1,024; and every point of every call",
        long: seconds(10_800),
        short: seconds(60),
        sample: None,
        steps: runs::sim,
    },
    Soak {
        name: "model",
        sentence: "every state of votes, agreements, spread and identities of a few members, with crashes at any moment",
        long: seconds(1200),
        short: seconds(30),
        sample: None,
        steps: runs::model,
    },
    Soak {
        name: "loom",
        sentence: "every interleaving of ring, bell, sleep and the biased guard that loom's bounds allow",
        long: seconds(1800),
        short: seconds(300),
        sample: None,
        steps: builds::loom,
    },
    Soak {
        name: "mutations",
        sentence: "each protection of the wake-up protocol removed: the tests detect it within a minute",
        long: seconds(600),
        short: seconds(300),
        sample: None,
        steps: builds::mutations,
    },
    Soak {
        name: "mutants",
        sentence: "each rule of the recovery protocols broken in a copy of the sources: the tests detect it",
        long: seconds(3600),
        short: seconds(30),
        sample: None,
        steps: builds::mutants,
    },
    Soak {
        name: "asan",
        sentence: "segment, world and abi built with AddressSanitizer, under units and C programs",
        long: seconds(1800),
        short: seconds(900),
        sample: None,
        steps: builds::asan,
    },
    Soak {
        name: "ubsan",
        sentence: "the C programs compiled with gcc's undefined-behaviour sanitizer",
        long: seconds(600),
        short: seconds(300),
        sample: None,
        steps: builds::ubsan,
    },
];

#[cfg(test)]
mod tests {
    use super::{TABLE, duration, parse, words_for};
    use std::time::Duration;

    #[test]
    fn a_duration_is_read_as_it_is_written() {
        for soak in TABLE {
            assert_eq!(duration(&words_for(soak.long)).unwrap(), soak.long);
        }
        assert!(duration("soon").is_err());
        assert!(duration("0s").is_err());
    }

    #[test]
    fn name_and_time_come_in_either_order() {
        let ten = Some(Duration::from_secs(600));
        assert_eq!(parse(&["traffic", "--for", "10m"]).unwrap(), (Some("traffic"), ten));
        assert_eq!(parse(&["--for", "10m", "traffic"]).unwrap(), (Some("traffic"), ten));
        assert!(parse(&["--fro", "10m"]).is_err());
    }
}
