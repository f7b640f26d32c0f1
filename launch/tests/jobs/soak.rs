// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Jobs that are ended at random moments in four ways leave nothing behind.
//!
//! `MEND_SOAK_JOBS` sets how many (20), `MEND_SOAK_SEED` the seed of the random numbers.

use crate::run::{PROBE, Run, signal, start, until};
use mend_base::Random;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn jobs_ended_at_random_moments_leave_nothing_behind() {
    let number = |name, default| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let (jobs, seed) = (number("MEND_SOAK_JOBS", 20), number("MEND_SOAK_SEED", 1));
    let mut random = Random(seed);
    let before = (FOLDERS.map(names), names("/proc/self/fd").len());
    for job in 0..jobs {
        let words = programs(&mut random);
        let run = start(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let how = random.below(4);
        let after = Duration::from_micros(random.below(300_000));
        // Shown only if it fails.
        println!("job {job}, way {how} after {after:?}: {words:?}");
        pause(after);
        end(&run, how);
        run.until_nothing_is_left();
        let ended = run.end();
        assert_ne!(ended.code, 0, "seed {seed}, job {job}, way {how} after {after:?}: {ended:?}");
    }
    // Other programs use these folders too; files of jobs have our name in theirs. Tests beside this one use other folders.
    for (folder, before) in FOLDERS.iter().zip(&before.0) {
        let new = || {
            names(folder).difference(before).filter(|name| is_ours(folder, name)).cloned().collect::<Vec<_>>()
        };
        until(&format!("end of {:?} in {folder} (seed {seed})", new()), || new().is_empty());
    }
    // Tests beside this one hold descriptors of their own while they run.
    println!(
        "{jobs} jobs, seed {seed}: nothing left; descriptors {} before, {} after",
        before.1,
        names("/proc/self/fd").len()
    );
}

fn programs(random: &mut Random) -> Vec<String> {
    let ranks = (1 + random.below(6)).to_string();
    let script = match random.below(3) {
        0 => format!("exec {PROBE} wait"),
        1 => format!("setsid sleep 1000 & {PROBE} wait"),
        _ => "trap '' INT TERM; (setsid sleep 1000 &); while :; do sleep 0.01; done".to_owned(),
    };
    ["-n", &ranks, "sh", "-c", &script].map(str::to_owned).to_vec()
}

fn pause(span: Duration) {
    let began = Instant::now();
    while began.elapsed() < span {
        // Sleeps: the random moment of the end is what is tested; there is no event to wait for.
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn end(run: &Run, how: u64) {
    match how {
        0 => {
            run.signal(Signal::INT);
            run.signal(Signal::INT);
        }
        1 => run.signal(Signal::TERM),
        2 => run.signal(Signal::KILL),
        _ => signal(run.node_daemon(), Signal::KILL),
    }
}

/// A file, and no folder, with our name.
fn is_ours(folder: &str, name: &str) -> bool {
    let data = Path::new(folder).join(name).symlink_metadata();
    name.contains("mend") && data.is_ok_and(|data| !data.is_dir())
}

const FOLDERS: [&str; 2] = ["/dev/shm", "/tmp"];

fn names(directory: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
