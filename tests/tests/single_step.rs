// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kills ranks after each instruction of an operation. The suite tries a sample of the points, `cargo soak single-step` all points
//! of all but the longest operations. `MENDTEST_POINTS` is `all`, `different`, or a number of points for each operation, see
//! [`choose`]; `MENDTEST_ONLY=NAME` selects operations whose name holds NAME.

use std::fmt::Write;
use std::time::Instant;

use mend_base::Random;
use mend_tests::single_step::{Operation, Path, Shape, TABLE, Trial};
use mend_tests::tried::Tried;
use mend_tests::{chance, prefix, say, skip, trace};

// Row PP7, Row PP5, Row PP2, Row PP23, Row AK3: at every point.
#[test]
fn a_death_between_two_instructions_harms_no_other_rank_and_complete_messages_arrive() {
    let test = "a_death_between_two_instructions_harms_no_other_rank_and_complete_messages_arrive";
    if let Some(why) = trace::forbidden() {
        return skip(test, &why);
    }
    let only = std::env::var("MENDTEST_ONLY").unwrap_or_default();
    let mut random = chance::drawn();
    let mut failures = Vec::new();
    let mut tried = 0;
    for operation in TABLE.iter().filter(|operation| operation.name.contains(&only)) {
        for shape in [Shape::ManyVictims(VICTIMS), Shape::Spinning] {
            match try_out(operation, shape, &mut random) {
                Ok(tally) => {
                    tried += tally.points;
                    failures.extend(tally.failures);
                }
                Err(why) => failures.push(why),
            }
        }
    }
    say(&format!("checks: {} passed, {} failed", tried - failures.len().min(tried), failures.len()));
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

struct Tally {
    points: usize,
    failures: Vec<String>,
}

fn try_out(operation: &Operation, shape: Shape, random: &mut Random) -> Result<Tally, String> {
    let begun = Instant::now();
    let path = operation.path(shape)?;
    let mut tried = Tried::open(&format!("{}-{}", operation.name, words(shape)));
    let points = choose(&path, &tried, shape, random);
    let trials = operation.try_all(shape, &points, |trials| {
        let well = trials.iter().filter(|trial| operation.check(trial).is_ok());
        tried.extend(well.map(|trial| trial.place.as_str()));
    })?;
    let known = path.distinct.iter().filter(|each| tried.contains(&each.place)).count();
    let failures: Vec<String> = trials.iter().filter_map(|trial| operation.check(trial).err()).collect();
    list(operation, shape, &trials);
    let delivered = trials.iter().filter(|trial| trial.class == 0).count();
    say(&format!(
        "figure: {} ({}), {}: {} of {} points, {delivered} with success, {} wrong, {:.1} s; {known} of {} different \
         instructions tried in all runs",
        operation.name,
        operation.sentence,
        words(shape),
        trials.len(),
        path.instructions + 1,
        failures.len(),
        begun.elapsed().as_secs_f64(),
        path.distinct.len()
    ));
    Ok(Tally { points: trials.len(), failures })
}

/// All points, or a sample: always the first and the last, half of the others at different instructions that no run has tried yet, the rest
/// at random. For an operation so long that all points would take days (copies, and loops that wait), `all` means a larger sample;
/// `different` means the first and the last execution of each of those, which takes most of a day in the first run. With
/// [`Shape::Spinning`] there is a job for each point, so the sample is smaller.
fn choose(path: &Path, tried: &Tried, shape: Shape, random: &mut Random) -> Vec<u32> {
    let choice = std::env::var("MENDTEST_POINTS").unwrap_or_default();
    let instructions = path.instructions;
    let short = matches!(shape, Shape::ManyVictims(_)) && instructions <= LONGEST_OF_ALL;
    let sample = match choice.as_str() {
        "all" | "different" if short => return (0..=instructions).collect(),
        "all" | "different" => LONG_SAMPLE,
        "" if short => SAMPLE,
        "" => SAMPLE / 4,
        number => number.parse().unwrap_or_else(|_| panic!("MENDTEST_POINTS={number} is no number")),
    };
    let chance = (2..sample).map(|_| random.below(u64::from(instructions) + 1) as u32);
    let mut points: Vec<u32> = chance.chain([0, instructions]).collect();
    let mut untried: Vec<_> = path.distinct.iter().filter(|each| !tried.contains(&each.place)).collect();
    match (choice.as_str(), shape) {
        ("different", Shape::ManyVictims(_)) => {
            points.extend(untried.iter().flat_map(|each| [each.first, each.last]))
        }
        _ if !untried.is_empty() => {
            points.truncate(sample / 2);
            for _ in 0..sample.div_ceil(2).min(untried.len()) {
                let each = untried.swap_remove(random.below(untried.len() as u64) as usize);
                points.push(if random.below(2) == 0 { each.first } else { each.last });
            }
            points.extend([0, instructions]);
        }
        _ => {}
    }
    points.sort_unstable();
    points.dedup();
    points
}

/// Writes the results of all points to a file. The file is renamed when it is complete, as another run may write it too.
fn list(operation: &Operation, shape: Shape, trials: &[Trial]) {
    let mut text = String::from("instructions,at,ended,class,wrong_bytes\n");
    for trial in trials {
        let Trial { point, place, ended, class, wrong, .. } = trial;
        writeln!(text, "{point},{place},{ended},{class},{wrong}").expect("a string takes every line");
    }
    let file = prefix::folder("points").join(format!("{}-{}.csv", operation.name, words(shape)));
    let beside = mend_testing::second_name(&file);
    std::fs::write(&beside, text).expect("the target folder can be written");
    std::fs::rename(&beside, file).expect("a file of ours can be renamed");
}

fn words(shape: Shape) -> &'static str {
    match shape {
        Shape::ManyVictims(_) => "many-victims",
        Shape::Spinning => "pair",
    }
}

/// How many ranks are killed in one job, one after another.
const VICTIMS: u32 = 16;
/// How many points of each operation the suite tries: some 200 in total.
const SAMPLE: usize = 20;
/// The same for `all` and each operation that is too long for all points: one point takes a second and more.
const LONG_SAMPLE: usize = 300;
const LONGEST_OF_ALL: u32 = 8_000;
