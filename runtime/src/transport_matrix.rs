// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report about transports as lines for the user: which transport serves each pair of ranks, and why better ones are not used.
//! The node daemon prints them for its job, and a process without a node daemon for itself.
//!
//! Up to [`MATRIX_RANKS_MAX`] ranks have a matrix. In larger jobs ranks share a line that have reached others by the same transports, where
//! they had contact: whom a rank happened to send to is not a property of transports.

use crate::rank_ranges::in_words;
use crate::transport_view::TransportView;
use std::collections::{BTreeMap, BTreeSet};

/// A rank that has said nothing, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SilentRank {
    /// The rank.
    pub rank: u32,
    /// Why, in words.
    pub why: &'static str,
}

/// What stands above the lines.
pub fn heading(size: u32) -> &'static str {
    if size <= MATRIX_RANKS_MAX {
        "by which transport ranks (rows) have reached ranks (columns)"
    } else {
        "by which transport ranks have reached others, where they had contact"
    }
}

/// The lines about a job of `size` ranks: what these ranks have said, and which have said nothing.
pub fn lines(size: u32, views: &BTreeMap<u32, TransportView>, silent: &[SilentRank]) -> Vec<String> {
    let mut lines = Vec::new();
    if !views.is_empty() {
        let matrix = Matrix::new(size, views);
        lines = if size <= MATRIX_RANKS_MAX { matrix.cells() } else { matrix.groups() };
    }
    lines.extend(lines_about_silent(silent));
    lines.extend(lines_about_reasons(views));
    lines
}

/// The largest job that has a matrix.
pub const MATRIX_RANKS_MAX: u32 = 32;

/// How many names of transports are told apart; the others share one. A correct job has few.
const NAMES_MAX: usize = 26;

/// How many different lines there are about groups of ranks, and about reasons.
const LINES_MAX: usize = 64;

/// A transport, as an index of the names.
type Via = u8;

const ANOTHER: Via = NAMES_MAX as Via;

/// By which transport each rank has reached each other.
struct Matrix<'views> {
    size: u32,
    names: Vec<&'views str>,
    /// Of each rank that has said so: for each rank the transport, or `None` without contact.
    rows: BTreeMap<u32, Vec<Option<Via>>>,
}

/// What a pair of ranks has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pair {
    By(Via),
    NoContact,
    NotKnown,
}

impl<'views> Matrix<'views> {
    fn new(size: u32, views: &'views BTreeMap<u32, TransportView>) -> Self {
        let mut matrix = Matrix { size, names: vec![SELF, SHM], rows: BTreeMap::new() };
        for (&rank, view) in views {
            let mut row = vec![None; size as usize];
            for reached in view.reached() {
                let via = matrix.via(&reached.transport);
                for range in &reached.ranks {
                    let cells = row.get_mut(range.first as usize..=range.last as usize);
                    cells.into_iter().flatten().for_each(|cell| *cell = Some(via));
                }
            }
            matrix.rows.insert(rank, row);
        }
        matrix
    }

    fn via(&mut self, name: &'views str) -> Via {
        let known = self.names.iter().position(|each| *each == name);
        if known.is_none() && self.names.len() == NAMES_MAX {
            return ANOTHER;
        }
        let index = known.unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        });
        index as Via
    }

    fn name(&self, via: Via) -> String {
        self.names.get(usize::from(via)).map_or("others".to_owned(), |name| printable(name))
    }

    fn symbol(via: Via) -> char {
        match via {
            0 => '-',
            1 => 's',
            ANOTHER => '*',
            other => char::from(b'A' + other - 2),
        }
    }

    /// The matrix, a row for each rank, and the legend.
    fn cells(&self) -> Vec<String> {
        let width = if self.size > 10 { 3 } else { 2 };
        let line = |head: String, cells: &mut dyn Iterator<Item = String>| {
            let cells: String = cells.map(|cell| format!("{cell:>width$}")).collect();
            format!("{head:>width$} {cells}")
        };
        let mut lines = vec![line(String::new(), &mut (0..self.size).map(|rank| rank.to_string()))];
        for rank in 0..self.size {
            let cell =
                |column: usize| match self.rows.get(&rank).map(|row| row.get(column).copied().flatten()) {
                    None => '?',
                    Some(None) => '.',
                    Some(Some(via)) => Self::symbol(via),
                };
            lines.push(line(rank.to_string(), &mut (0..self.size as usize).map(|at| cell(at).to_string())));
        }
        let pairs = self.pairs();
        let mut legend: Vec<String> = self
            .used()
            .into_iter()
            .map(|via| {
                let counted = pairs.get(&Pair::By(via)).map(|&count| format!(", {}", pairs_in_words(count)));
                format!("{}: {}{}", Self::symbol(via), self.name(via), counted.unwrap_or_default())
            })
            .collect();
        legend.extend(
            pairs.get(&Pair::NoContact).map(|&count| format!(".: no contact, {}", pairs_in_words(count))),
        );
        let is_whole = self.rows.len() == self.size as usize;
        legend.extend((!is_whole).then(|| "?: not known".to_owned()));
        lines.push(legend.join("; "));
        lines
    }

    /// A line for each group of ranks, and the number of pairs of each transport.
    fn groups(&self) -> Vec<String> {
        let (groups, without, others) = self.grouped();
        let mut lines: Vec<String> = groups.iter().map(|group| self.group_line(group)).collect();
        let some =
            |ranks: &[u32], what: &str| (!ranks.is_empty()).then(|| format!("{}: {what}", in_words(ranks)));
        lines.extend(some(&without, "no contact with others"));
        lines.extend(some(&others, "not shown, too many differ"));
        let counts = self.pairs().into_iter().map(|(pair, count)| match pair {
            Pair::By(via) => format!("{} {count}", self.name(via)),
            Pair::NoContact => format!("no contact {count}"),
            Pair::NotKnown => format!("not known {count}"),
        });
        lines.push(format!("pairs: {}", counts.collect::<Vec<_>>().join(", ")));
        lines
    }

    /// Groups of ranks whose rows agree where both have contact; ranks without any contact; ranks beyond the last group.
    fn grouped(&self) -> (Vec<Group>, Vec<u32>, Vec<u32>) {
        let (mut groups, mut without, mut others): (Vec<Group>, Vec<u32>, Vec<u32>) = Default::default();
        for (&rank, row) in &self.rows {
            let mut row = row.clone();
            // Each rank reaches itself, and no other rank does so by that transport.
            row.iter_mut()
                .skip(rank as usize)
                .take(1)
                .filter(|cell| **cell == Some(0))
                .for_each(|cell| *cell = None);
            if row.iter().all(Option::is_none) {
                without.push(rank);
            } else if let Some(group) = groups.iter_mut().find(|group| group.agrees_with(&row)) {
                group.add(rank, &row);
            } else if groups.len() < LINES_MAX {
                groups.push(Group { ranks: vec![rank], row });
            } else {
                others.push(rank);
            }
        }
        (groups, without, others)
    }

    fn group_line(&self, group: &Group) -> String {
        let mut by_transport: BTreeMap<Via, Vec<u32>> = BTreeMap::new();
        for (rank, cell) in (0..).zip(&group.row) {
            cell.iter().for_each(|&via| by_transport.entry(via).or_default().push(rank));
        }
        let parts =
            by_transport.iter().map(|(&via, ranks)| format!("{} to {}", self.name(via), in_words(ranks)));
        format!("{}: {}", in_words(&group.ranks), parts.collect::<Vec<_>>().join("; "))
    }

    /// The transports of any pair.
    fn used(&self) -> BTreeSet<Via> {
        self.rows.values().flatten().filter_map(|cell| *cell).collect()
    }

    /// How many pairs of two different ranks have what. Of a pair one end is enough to know it.
    fn pairs(&self) -> BTreeMap<Pair, u32> {
        let mut counts: BTreeMap<Pair, u32> = BTreeMap::new();
        let cell = |row: Option<&Vec<Option<Via>>>, column: u32| {
            row.map(|row| row.get(column as usize).copied().flatten())
        };
        for one in 0..self.size {
            let row = self.rows.get(&one);
            for other in one + 1..self.size {
                let pair = match (cell(row, other), cell(self.rows.get(&other), one)) {
                    (Some(Some(via)), _) | (_, Some(Some(via))) => Pair::By(via),
                    (None, None) => Pair::NotKnown,
                    _ => Pair::NoContact,
                };
                *counts.entry(pair).or_default() += 1;
            }
        }
        counts
    }
}

/// Ranks whose rows agree, and what their rows say together.
struct Group {
    ranks: Vec<u32>,
    row: Vec<Option<Via>>,
}

impl Group {
    fn agrees_with(&self, row: &[Option<Via>]) -> bool {
        self.row.iter().zip(row).all(|(ours, theirs)| ours.is_none() || theirs.is_none() || ours == theirs)
    }

    fn add(&mut self, rank: u32, row: &[Option<Via>]) {
        self.ranks.push(rank);
        self.row.iter_mut().zip(row).for_each(|(ours, theirs)| *ours = ours.or(*theirs));
    }
}

/// One line for all silent ranks with the same reason.
fn lines_about_silent(silent: &[SilentRank]) -> Vec<String> {
    let mut by_reason: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    silent.iter().for_each(|each| by_reason.entry(each.why).or_default().push(each.rank));
    by_reason.iter().map(|(why, ranks)| format!("{} said nothing: {why}", in_words(ranks))).collect()
}

/// Each reason once, with the ranks that gave it, in the order of the first of them.
fn lines_about_reasons(views: &BTreeMap<u32, TransportView>) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<u32>)> = Vec::new();
    let mut not_shown = 0;
    for (&rank, view) in views {
        for reason in view.not_used() {
            let has_room = reasons.len() < LINES_MAX;
            match reasons.iter_mut().find(|(known, _)| known == reason) {
                Some((_, ranks)) if ranks.last() == Some(&rank) => {}
                Some((_, ranks)) => ranks.push(rank),
                None if has_room => reasons.push((reason, vec![rank])),
                None => not_shown += 1,
            }
        }
    }
    let line = |(reason, ranks): &(&str, Vec<u32>)| {
        format!("not used by {}: {}", in_words(ranks), printable(reason))
    };
    let rest = (not_shown > 0).then(|| format!("{not_shown} further reasons of ranks are not shown"));
    reasons.iter().map(line).chain(rest).collect()
}

/// A rank chose the text: it must not move the cursor, or begin another line.
fn printable(text: &str) -> String {
    text.chars().map(|each| if each.is_control() { '?' } else { each }).collect()
}

fn pairs_in_words(count: u32) -> String {
    if count == 1 { "1 pair".to_owned() } else { format!("{count} pairs") }
}

/// The names of the transports that have a place of their own, as ranks send them.
pub const SELF: &str = "self";

/// As [`SELF`].
pub const SHM: &str = "shm";

#[cfg(test)]
mod tests {
    use super::{LINES_MAX, NAMES_MAX, SilentRank, lines};
    use crate::transport_view::{TransportPart, TransportView};
    use std::collections::BTreeMap;

    const NET: &str = "ofi (net over lo)";

    fn view(reached: &[(&str, &[u32])], not_used: &[&str]) -> TransportView {
        let mut view = TransportView::default();
        reached.iter().for_each(|(name, ranks)| view.add_reached(name, ranks.iter().copied()));
        let reasons: Vec<String> = not_used.iter().map(|reason| (*reason).to_owned()).collect();
        view.add_not_used(&reasons);
        view
    }

    //
    #[test]
    fn a_small_job_has_a_matrix_with_a_legend_and_each_reason_once() {
        let left_out = "shm: left out by btl = ofi,self";
        let views = BTreeMap::from([
            (0, view(&[("self", &[0]), ("shm", &[1]), (NET, &[3])], &[])),
            (1, view(&[("self", &[1]), ("shm", &[0])], &[left_out, "another"])),
            (3, view(&[("self", &[3]), (NET, &[0])], &[left_out])),
        ]);
        let silent = [SilentRank { rank: 2, why: "ended before MPI_Finalize" }];
        assert_eq!(
            lines(4, &views, &silent),
            [
                "    0 1 2 3",
                " 0  - s . A",
                " 1  s - . .",
                " 2  ? ? ? ?",
                " 3  A . . -",
                "-: self; s: shm, 1 pair; A: ofi (net over lo), 1 pair; .: no contact, 4 pairs; ?: not known",
                "rank 2 said nothing: ended before MPI_Finalize",
                "not used by ranks 1, 3: shm: left out by btl = ofi,self",
                "not used by rank 1: another",
            ]
        );
    }

    #[test]
    fn the_columns_of_a_matrix_stand_below_each_other_whatever_the_size() {
        let views = BTreeMap::from([(11, view(&[("shm", &[0, 10])], &[]))]);
        let lines = lines(12, &views, &[]);
        assert_eq!(lines[0], "      0  1  2  3  4  5  6  7  8  9 10 11");
        assert_eq!(lines[12], " 11   s  .  .  .  .  .  .  .  .  .  s  .");
    }

    #[test]
    fn in_a_large_job_ranks_with_the_same_transports_share_a_line() {
        let size = 64;
        let views = (0..size).map(|rank| {
            // Two halves; rank 63 has no contact, and rank 5 only one.
            let near: Vec<u32> =
                (0..size - 1).filter(|&other| other != rank && other / 32 == rank / 32).collect();
            let far: Vec<u32> = (0..size - 1).filter(|other| other / 32 != rank / 32).collect();
            let own = ("self", &[rank][..]);
            let view = match rank {
                63 => view(&[own], &[]),
                5 => view(&[own, ("shm", &[6])], &[]),
                _ => view(&[own, ("shm", &near), (NET, &far)], &["a reason"]),
            };
            (rank, view)
        });
        assert_eq!(
            lines(size, &views.collect(), &[]),
            [
                "ranks 0-31: shm to ranks 0-31; ofi (net over lo) to ranks 32-62",
                "ranks 32-62: shm to ranks 32-62; ofi (net over lo) to ranks 0-31",
                "rank 63: no contact with others",
                "pairs: shm 961, ofi (net over lo) 992, no contact 63",
                "not used by ranks 0-4, 6-62: a reason",
            ]
        );
    }

    #[test]
    fn ranks_that_all_differ_have_a_bounded_number_of_lines() {
        let size = 300;
        let views = (0..size).map(|rank| {
            let (name, reason) = (format!("transport {rank}"), format!("reason {rank}"));
            (rank, view(&[(&name, &[0, 1])], &[&reason]))
        });
        let lines = lines(size, &views.collect(), &[]);
        assert!(lines.len() <= 2 * LINES_MAX + 5, "{lines:?}");
        let has = |what: &str| lines.iter().any(|line| line.contains(what));
        assert!(has("others to ranks 0-1") && has("236 further reasons of ranks are not shown"), "{lines:?}");
        assert!(has(&format!("transport {}", NAMES_MAX - 3)) && !has(&format!("transport {NAMES_MAX}")));
    }

    #[test]
    fn a_text_of_a_rank_does_not_begin_a_line_of_its_own() {
        let views = BTreeMap::from([(0, view(&[("net\nmpiexec: all is well", &[0])], &["\x1b[2J"]))]);
        let lines = lines(1, &views, &[]);
        assert_eq!(lines[2], "A: net?mpiexec: all is well");
        assert_eq!(lines[3], "not used by rank 0: ?[2J");
    }

    #[test]
    fn a_job_whose_ranks_said_nothing_has_no_matrix() {
        let silent = [0, 1, 2].map(|rank| SilentRank { rank, why: "ended before MPI_Finalize" });
        assert_eq!(
            lines(3, &BTreeMap::new(), &silent),
            ["ranks 0-2 said nothing: ended before MPI_Finalize"]
        );
    }

    #[test]
    fn a_rank_that_names_itself_or_all_by_one_transport_does_no_harm() {
        let mut odd = TransportView::default();
        let part = |part| match part {
            TransportPart::Reached(mut reached) => {
                reached.ranks.iter_mut().for_each(|range| range.last = 39);
                TransportPart::Reached(reached)
            }
            other => other,
        };
        let taken: Vec<bool> =
            view(&[("self", &[0])], &[]).parts().map(|each| odd.take(part(each), 40)).collect();
        assert_eq!(taken, [true, true]);
        let lines = lines(40, &BTreeMap::from([(7, odd)]), &[]);
        assert_eq!(lines[0], "rank 7: self to ranks 0-6, 8-39");
    }
}
