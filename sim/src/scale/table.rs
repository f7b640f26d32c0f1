// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sizes that are executed, the comparison with the formulas, and what is written.

use super::cost::Cost;
use super::execution::Totals;
use super::formulas::{broadcast_depth_max, neighbours, tree_depth};
use super::protocols::{RING, What};
use super::svg::{self, Line};
use mend_proto::agreement::Agreement;
use mend_proto::detector::Detector;
use mend_proto::spread::Spread;
use std::fmt::Write;

/// One executed size of one protocol.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What was executed.
    pub what: What,
    /// With how many members.
    pub n: u32,
    /// What it cost.
    pub totals: Totals,
}

/// The formulas hold within this share of each count. They are exact; what is not counted is noise of nothing.
const TOLERANCE: f64 = 0.01;

/// To which size the figures are extended by the formulas.
const EXTRAPOLATED: u64 = 1_000_000;

/// Powers of two from 2 to `max`, and sizes between them that are none.
pub fn sizes(max: u32) -> Vec<u32> {
    let powers = (1..32).map(|power| 1_u32 << power).take_while(|&n| n <= max);
    let others = [3, 5, 12, 100, 1_000, 10_000, 100_000].into_iter().filter(|&n| n <= max);
    let mut sizes: Vec<u32> = powers.chain(others).collect();
    sizes.sort_unstable();
    sizes
}

/// What the formulas say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Messages.
    pub messages: u64,
    /// The most messages of one member; an upper bound.
    pub sends_max: u64,
    /// The most messages one after the other; an upper bound.
    pub depth_max: u64,
}

/// The formulas for `n` members.
pub fn expected(what: What, n: u64) -> Expected {
    let (depth, degree) = (tree_depth(n), neighbours(n));
    match what {
        What::Agree => Expected { messages: 2 * (n - 1), sends_max: degree_of_tree(n), depth_max: 2 * depth },
        What::AgreeUniformly => {
            Expected { messages: 4 * (n - 1), sends_max: 2 * degree_of_tree(n), depth_max: 4 * depth }
        }
        // The survivors agree; each message is preceded by a list of the one that failed, which all but itself know.
        What::Shrink => {
            Expected { messages: 4 * (n - 2), sends_max: 4 * degree_of_tree(n) + 2, depth_max: 2 * depth + 2 }
        }
        What::Revoke => {
            Expected { messages: n * degree, sends_max: degree, depth_max: broadcast_depth_max(n) }
        }
        // The failed member sends nothing; its neighbours take over from it, some to one that they have already.
        What::Detect => Expected {
            messages: (n - 1) * degree,
            sends_max: degree + 2,
            depth_max: broadcast_depth_max(n) + 1,
        },
    }
}

/// The most members below one: those that the root has, and its own message up for another member.
fn degree_of_tree(n: u64) -> u64 {
    let (mut children, mut weight) = (0, 1);
    while weight < n {
        children += (1..8).filter(|digit| digit * weight < n).count() as u64;
        weight *= 8;
    }
    children
}

/// Executes everything. `told` is called before each size.
pub fn execute(sizes: &[u32], cost: Cost, mut told: impl FnMut(What, u32)) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for what in What::ALL {
        for &n in sizes.iter().filter(|&&n| n >= what.size_min()) {
            told(what, n);
            let totals = what.execute(n, cost).map_err(|why| format!("{} of {n}: {why}", what.name()))?;
            rows.push(Row { what, n, totals });
        }
    }
    Ok(rows)
}

/// Compares the counts with the formulas. The error names each row that differs.
pub fn check(rows: &[Row]) -> Result<(), String> {
    let mut wrong = String::new();
    for Row { what, n, totals } in rows {
        let expected = expected(*what, u64::from(*n));
        let is_near =
            |count: u64, formula: u64| (count as f64 - formula as f64).abs() <= TOLERANCE * formula as f64;
        let holds = is_near(totals.messages, expected.messages)
            && totals.sends_max <= expected.sends_max
            && u64::from(totals.depth) <= expected.depth_max;
        if !holds {
            _ = writeln!(wrong, "{} of {n}: {totals:?}, expected {expected:?}", what.name());
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// The tables, in Markdown.
pub fn markdown(rows: &[Row], cost: Cost) -> String {
    let mut text = String::new();
    for what in What::ALL {
        let of = |row: &&Row| row.what == what;
        _ = writeln!(text, "\n### {}\n\n{}\n", what.name(), what.formula());
        text +=
            "| ranks | messages | formula | most of one rank | bytes | one after the other | time, us |\n";
        text += "|---|---|---|---|---|---|---|\n";
        for Row { n, totals, .. } in rows.iter().filter(of) {
            _ = writeln!(
                text,
                "| {n} | {} | {} | {} | {} | {} | {:.2} |",
                totals.messages,
                expected(what, u64::from(*n)).messages,
                totals.sends_max,
                totals.bytes,
                totals.depth,
                totals.time.0 as f64 / 1e3,
            );
        }
        let Expected { messages, sends_max, depth_max } = expected(what, EXTRAPOLATED);
        let time = fit(rows, what).map_or(f64::NAN, |fit| fit.at(EXTRAPOLATED as f64));
        _ = writeln!(
            text,
            "| {EXTRAPOLATED} | | {messages} | <= {sends_max} | | <= {depth_max} | ~{time:.1} |"
        );
        if what == What::Detect {
            let periods = rows.iter().filter(of).map(|row| row.totals.background as f64 / f64::from(row.n));
            let most = periods.fold(0.0, f64::max);
            _ = writeln!(
                text,
                "\nHeartbeats: {most:.1} messages a rank in each period of {} ms.",
                RING.period.0 / 1_000_000
            );
        }
    }
    let Cost { latency, overhead, picoseconds_per_byte } = cost;
    _ = writeln!(
        text,
        "\nLogGP constants: L = {} ns, o = {} ns, G = {} ns a byte.",
        latency.0,
        overhead.0,
        picoseconds_per_byte as f64 / 1e3
    );
    text
}

/// The whole page.
pub fn page(rows: &[Row], cost: Cost) -> String {
    let table = markdown(rows, cost);
    format!("{HEAD}\n{}\n{table}", states())
}

const HEAD: &str = "<!-- SPDX-License-Identifier: Apache-2.0 OR MIT -->
<!-- Written by `cargo xtask scale --write docs/dev`. -->
# How recovery grows

Each protocol is executed alone, with the production state machine of every rank, and its messages are counted. The counts must be
those of the formulas, within 1 %, at every size. Times are those of the cost model LogGP, for ranks that each have a processor; the
last line extends them by a line through the times over log2 n. Detection is by the heartbeat ring; a node daemon is told by the kernel.

![time until the last rank has returned, over ranks](scale.svg)
";

/// What the part of one member takes.
fn states() -> String {
    format!(
        "State of a rank, without failures, at every size: agreement {} bytes, broadcast {} bytes and an entry for each \
         neighbour that has sent something, ring {} bytes and its observers.",
        size_of::<Agreement>(),
        size_of::<Spread>(),
        size_of::<Detector>(),
    )
}

/// The times, drawn over the number of ranks.
pub fn drawing(rows: &[Row]) -> String {
    // Detection waits for the ring: it is of another order.
    let lines = What::ALL.into_iter().filter(|&what| what != What::Detect).map(|what| Line {
        name: what.name(),
        points: rows
            .iter()
            .filter(|row| row.what == what)
            .map(|row| (f64::from(row.n), row.totals.time.0 as f64 / 1e3))
            .collect(),
    });
    svg::draw("time until the last rank has returned (us), over ranks", &lines.collect::<Vec<_>>())
}

/// A line through the times over the logarithm of the size.
struct Fit {
    intercept: f64,
    slope: f64,
}

impl Fit {
    fn at(&self, n: f64) -> f64 {
        self.intercept + self.slope * n.log2()
    }
}

/// Least squares over the sizes from 64 on, where the tree is deeper than one level.
fn fit(rows: &[Row], what: What) -> Option<Fit> {
    let points: Vec<(f64, f64)> = rows
        .iter()
        .filter(|row| row.what == what && row.n >= 64)
        .map(|row| (f64::from(row.n).log2(), row.totals.time.0 as f64 / 1e3))
        .collect();
    let count = points.len() as f64;
    let mean = |values: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(values).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(&|point| point.0), mean(&|point| point.1));
    let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let slope = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>() / spread;
    (points.len() > 2).then_some(Fit { intercept: mean_y - slope * mean_x, slope })
}

impl What {
    fn size_min(self) -> u32 {
        match self {
            What::Shrink | What::Detect => 3,
            What::Agree | What::AgreeUniformly | What::Revoke => 2,
        }
    }

    fn formula(self) -> &'static str {
        match self {
            What::Agree => {
                "Messages: 2 (n - 1). One after the other: 2 d(n), with d(n) the depth of the 8-nomial tree."
            }
            What::AgreeUniformly => "Messages: 4 (n - 1). One after the other: 4 d(n).",
            What::Shrink => {
                "One of n has failed, and all know it. Messages: 2 (n - 2), each preceded by one that names the failed rank."
            }
            What::Revoke => {
                "Messages: n k(n), with k(n) = 2 floor(log2 n) neighbours, one less if n is a power of two. A rank sends k(n)."
            }
            What::Detect => {
                "One of n dies. The ring finds it when its lease is over; the news takes (n - 1) k(n) messages. The time is from the death."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Row, check, execute, markdown, sizes};
    use crate::scale::cost::Cost;
    use crate::scale::protocols::What;

    #[test]
    fn the_formulas_hold_for_every_size_to_300_and_powers_of_two() {
        let mut all: Vec<u32> = (2..=300).step_by(7).collect();
        all.extend(sizes(4_096));
        let rows = execute(&all, Cost::default(), |_, _| {}).expect("nobody waits for ever");
        check(&rows).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert!(markdown(&rows, Cost::default()).contains("| 1000000 |"));
    }

    #[test]
    fn a_count_that_differs_is_found() {
        let mut rows: Vec<Row> = execute(&[64], Cost::default(), |_, _| {}).expect("nobody waits for ever");
        rows.retain(|row| row.what == What::Agree);
        rows[0].totals.messages += 2;
        let wrong = check(&rows).expect_err("126 messages are expected");
        assert!(wrong.contains("agree of 64"), "{wrong}");
    }
}
