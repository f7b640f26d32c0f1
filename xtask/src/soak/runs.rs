// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Soaks with the ordinary build.

use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::Outcome;
use crate::place::Place;
use crate::step::Step;

/// Half the time on two cores with a rank each, half on one core with eight.
pub fn wakeups(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let each = (time / 2).as_secs().max(1);
    let steps = [("pair", "2 ranks, each on its own core"), ("many", "8 ranks on one core")];
    let steps = steps.map(|(case, sentence)| {
        let seed = drawn_seed();
        let mut cargo = place.cargo();
        cargo.args([
            "run",
            "--quiet",
            "--release",
            "--package",
            "mend-btl-shm",
            "--example",
            "wakeups",
            "--",
            case,
        ]);
        cargo.args(["--for", &format!("{each}s"), "--seed", &seed.to_string()]);
        let command = if each < SECONDS_FOR_LATENESS { tolerating_lateness(&cargo) } else { cargo };
        let step = Step::new(&format!("wakeups-{case}"), sentence, command).within(2 * time + COMPILING);
        Step { seed: Some(seed), ..step }
    });
    Ok(steps.into())
}

/// The program ends with 2 if wake-ups were late, which may be caused by other work on the machine in a short run; a lost wake-up
/// is an error in a run of any length.
fn tolerating_lateness(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$@\" || test $? -eq 2", "sh"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        shell.current_dir(folder);
    }
    shell
}

/// About one job in each second; `launch` has the test.
pub fn jobs(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let number = time.as_secs();
    let seed = drawn_seed();
    let mut cargo = place.cargo();
    cargo.args([
        "test",
        "--package",
        "mend-launch",
        "--test",
        "jobs",
        "jobs_ended_at_random",
        "--",
        "--nocapture",
    ]);
    cargo.env("MEND_SOAK_JOBS", number.to_string()).env("MEND_SOAK_SEED", seed.to_string());
    let sentence = format!("{number} jobs ended at random moments leave nothing behind");
    let step = Step::new("jobs", &sentence, cargo).within(10 * time + COMPILING);
    Ok(vec![Step { seed: Some(seed), ..step }])
}

/// `tests/c/traffic.c` on 8 ranks.
pub fn traffic(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let mut cargo = place.cargo();
    cargo.args(["test", "--package", "mend-tests", "--test", "traffic", "--", "--ignored", "--nocapture"]);
    cargo.env("MENDTEST_TRAFFIC_SECONDS", time.as_secs().to_string());
    Ok(vec![
        Step::new("traffic", "random traffic between 8 ranks, every byte checked", cargo)
            .within(time + COMPILING),
    ])
}

/// Ranks killed after every instruction of an operation; a sample of the points in a short run.
pub fn single_step(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let sentence = "ranks killed between two instructions of an operation";
    Ok(vec![points(place, "single-step", sentence, "single_step", time)])
}

/// Ranks killed at every system call of Init and Finalize; a sample of them in a short run.
pub fn init_finalize(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let sentence = "ranks killed at the steps of MPI_Init and MPI_Finalize, 2 to 5 of them";
    Ok(vec![points(place, "init-finalize", sentence, "lifecycle", time)])
}

fn points(place: &Place, name: &str, sentence: &str, test: &str, time: Duration) -> Step {
    let (mut cargo, seed) = killing(place, test);
    if time >= DIFFERENT_POINTS {
        cargo.env("MENDTEST_POINTS", "different");
    } else if time > SAMPLE_OF_POINTS {
        cargo.env("MENDTEST_POINTS", "all");
    }
    let step = Step::new(name, sentence, cargo).within(2 * time + COMPILING);
    Step { seed: Some(seed), ..step }
}

/// Two jobs a second; one rank is killed, several, all, or mpiexec.
pub fn kills(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let jobs = 2 * time.as_secs();
    let (mut cargo, seed) = killing(place, "kills");
    cargo.env("MENDTEST_JOBS", jobs.to_string());
    let sentence = format!("{jobs} jobs killed at random moments leave nothing behind");
    let step = Step::new("kills", &sentence, cargo).within(4 * time + COMPILING);
    Ok(vec![Step { seed: Some(seed), ..step }])
}

/// Some twenty deaths a second.
pub fn recoveries(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let deaths = 10 * time.as_secs();
    let (mut cargo, seed) = killing(place, "recoveries");
    cargo.env("MENDTEST_DEATHS", deaths.to_string());
    let sentence =
        format!("{deaths} ranks killed at any instruction: the survivors repair their communicator");
    let step = Step::new("recoveries", &sentence, cargo).within(4 * time + COMPILING);
    let recoveries = Step { seed: Some(seed), ..step };
    Ok(vec![recoveries, after_return(place, time), agreement_root(place, time)])
}

/// In a long run 200 deaths after the return of each operation, with notices and without.
fn after_return(place: &Place, time: Duration) -> Step {
    let (mut cargo, seed) = killing(place, "after_return");
    if time > SAMPLE_OF_POINTS {
        cargo.env("MENDTEST_DEATHS", "200");
    }
    let sentence = "members die right after their call has returned: the others complete theirs";
    Step { seed: Some(seed), ..Step::new("after-return", sentence, cargo).within(4 * time + COMPILING) }
}

fn agreement_root(place: &Place, time: Duration) -> Step {
    let (mut cargo, seed) = killing(place, "agreement_root");
    if time > SAMPLE_OF_POINTS {
        cargo.env("MENDTEST_POINTS", "200");
    }
    let sentence =
        "the root of an agreement dies at any instruction: the informed give the others the result";
    Step { seed: Some(seed), ..Step::new("agreement-root", sentence, cargo).within(4 * time + COMPILING) }
}

/// 8 ranks, stopped and continued.
pub fn stops(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let (mut cargo, seed) = killing(place, "stops");
    cargo.env("MENDTEST_SECONDS", time.as_secs().to_string());
    let sentence = "8 ranks that are stopped or compute: none is declared failed";
    let step = Step::new("stops", sentence, cargo).within(time + COMPILING);
    Ok(vec![Step { seed: Some(seed), ..step }])
}

/// Each kind of break so often as fits; a cut takes some 4 s, and a reset of each of four kinds 0.3 s.
pub fn wires(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let times = (time.as_secs() / 6).max(1);
    let mut cargo = place.cargo();
    cargo.args([
        "test",
        "--package",
        "mend-tests",
        "--test",
        "wires",
        "--",
        "--nocapture",
        "--test-threads=1",
    ]);
    cargo.env("MENDTEST_CUTS", times.to_string()).env("MENDTEST_RESETS", times.to_string());
    let sentence =
        format!("wires cut and connections reset {times} times each under traffic, and cut for good");
    Ok(vec![Step::new("wires", &sentence, cargo).within(4 * time + COMPILING)])
}

/// Garbage, core dumps, and detection times of deaths; run once, whatever the duration.
pub fn told(place: &Place, _time: Duration) -> Outcome<Vec<Step>> {
    let (cargo, seed) = killing(place, "deaths");
    let sentence = "garbage is fenced, a core dump is notified, with and without the notice page";
    let step = Step::new("told", sentence, cargo).within(COMPILING);
    Ok(vec![Step { seed: Some(seed), ..step }])
}

/// One of the tests of `tests` that kill ranks, one test at a time.
fn killing(place: &Place, test: &str) -> (Command, u64) {
    let seed = drawn_seed();
    let mut cargo = place.cargo();
    cargo.args(["test", "--package", "mend-tests", "--test", test, "--", "--nocapture", "--test-threads=1"]);
    cargo.env("MENDTEST_SEED", seed.to_string());
    (cargo, seed)
}

/// A peer that writes random values into the words that others read from it.
pub fn garbage(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let mut cargo = place.cargo();
    cargo.args(["test", "--release", "--package", "mend-btl-shm", "--test", "garbage", "--", "--nocapture"]);
    let sentence = "10,000 single random values: evidence or harmless";
    Ok(vec![Step::new("garbage", sentence, cargo).within(time + COMPILING)])
}

/// As many seeds as fit into the duration, from one made of the clock, so that no soak repeats another.
pub fn seeds(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    Ok(vec![simulation(place, time, "seeds", "seeds of the simulated cluster")])
}

/// The same for jobs in which ranks die. Jobs in which no rank happens to die do not count.
pub fn deaths(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    Ok(vec![simulation(place, time, "deaths", "seeds with deaths")])
}

/// One test of `sim`, which is named like its soak.
fn simulation(place: &Place, time: Duration, name: &str, what: &str) -> Step {
    let number = time.as_secs().saturating_mul(SEEDS_PER_SECOND);
    let first = drawn_seed();
    let mut cargo = place.cargo();
    cargo.args(["test", "--release", "--package", "mend-sim", "--test", name, "--", "--nocapture"]);
    cargo.env("MEND_SIM_SEEDS", number.to_string()).env("MEND_SIM_FIRST", first.to_string());
    let sentence = format!("{number} {what} from {first} on");
    let step = Step::new(name, &sentence, cargo).within(10 * time + COMPILING);
    Step { seed: Some(first), ..step }
}

/// Whole recoveries, for as many seeds as fit into the duration; of these few with 64 and with 1,024 ranks; and every blocking call with
/// a death at each of its points.
pub fn sim(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let first = drawn_seed();
    let jobs = time.as_secs().saturating_mul(RECOVERIES_PER_SECOND);
    let step = |name: &str, sentence: String, words: &[String]| {
        let mut cargo = place.cargo();
        cargo.args(["run", "--quiet", "--release", "--package", "mend-sim", "--features", "counts"]);
        cargo.args(["--bin", "sim", "--"]).args(words);
        let step = Step::new(name, &sentence, cargo).within(10 * time + COMPILING);
        Step { seed: Some(first), ..step }
    };
    let of_size = |jobs: u64, size: &str| {
        let words = ["--jobs", &jobs.to_string(), "--from", &first.to_string(), "--size", size];
        words.map(str::to_owned)
    };
    let usual = ["--jobs", &jobs.to_string(), "--from", &first.to_string()].map(str::to_owned);
    let sweep = ["--sweep".to_owned(), if time < WHOLE_SWEEP { "50" } else { "1" }.to_owned()];
    Ok(vec![
        step("sim", format!("{jobs} recoveries from seed {first} on"), &usual),
        step(
            "sim-64",
            format!("{} recoveries of 64 ranks", jobs / 1_000),
            &of_size((jobs / 1_000).max(1), "64"),
        ),
        step(
            "sim-1024",
            format!("{} recoveries of 1,024 ranks", jobs / 50_000),
            &of_size((jobs / 50_000).max(1), "1024"),
        ),
        step("sim-sweep", "a death at each point of each blocking call, up to 5 ranks".to_owned(), &sweep),
    ])
}

/// All states of the models of the protocols; in a short run those of the small ones, which the units check too.
pub fn model(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let mut cargo = place.cargo();
    cargo.args(["run", "--quiet", "--release", "--package", "mend-sim", "--bin", "model", "--"]);
    if time < ALL_MODELS {
        cargo.arg("--small");
    }
    let sentence = "every state that a few members of each protocol can reach";
    Ok(vec![Step::new("model", sentence, cargo).within(4 * time + COMPILING)])
}

fn drawn_seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(1, |time| time.as_secs() << 20)
}

/// Recoveries that two processors run in a second.
const RECOVERIES_PER_SECOND: u64 = 93;

/// From this duration on, the sweep tries every point.
const WHOLE_SWEEP: Duration = Duration::from_secs(600);

const SAMPLE_OF_POINTS: Duration = Duration::from_secs(60);
/// From this duration on there is time for each different instruction of the longest operations too.
const DIFFERENT_POINTS: Duration = Duration::from_secs(12 * 3600);
/// From this duration on there is time for all models.
const ALL_MODELS: Duration = Duration::from_secs(600);
const SEEDS_PER_SECOND: u64 = 250;
/// Runs of at least this many seconds treat late wake-ups as errors.
const SECONDS_FOR_LATENESS: u64 = 60;
const COMPILING: Duration = Duration::from_secs(600);
