// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lines for the user about deaths: one each, with a stable code (`docs/mpiexec.md`).

use crate::ending::Ending;
use crate::ranks::{Death, FoundBy, RankLine, RankRecord, RankTable};

/// The line about a death for a user who asked for a report of each. `None`: not yet, or not at all.
pub(crate) fn report(ranks: &RankTable, rank: u32) -> Option<RankLine> {
    let (_, record, death) = ranks.deaths().find(|(each, ..)| *each == rank)?;
    let how = how_it_ended(record)?;
    if !ranks.any_joined() {
        return None;
    }
    let place = if death.inside { "" } else { " before it called MPI_Init" };
    let words = format!("{how}{place}: it has failed, {} [E-JOB-009]", how_it_was_found(death.found));
    Some(RankLine { rank, words })
}

/// How the death was found, as the end of a sentence.
fn how_it_was_found(found: FoundBy) -> String {
    match found {
        FoundBy::LifeWord => "found by its life word, a lock that the kernel marks".to_owned(),
        FoundBy::DyingMark => "reported by its own handler of fatal signals".to_owned(),
        FoundBy::Process => "found by its process descriptor".to_owned(),
        FoundBy::Connection => "found by its closed connection".to_owned(),
        FoundBy::Question(rank) => format!("found when rank {rank} asked"),
        FoundBy::GaveUp => "as it reported that its MPI_Init failed".to_owned(),
        FoundBy::Garbage(Some(rank)) => format!("killed, as it wrote corrupt data to rank {rank}"),
        FoundBy::Garbage(None) => "killed, as it wrote corrupt data to the node daemon".to_owned(),
        FoundBy::Unreachable(rank) => {
            format!("killed, as it and rank {rank} cannot connect, and a communicator needs both")
        }
        FoundBy::Aborted { by, code } => format!("ended by rank {by} with code {code}"),
    }
}

/// How the process that is, or was, a rank ended, once that is known.
pub(crate) fn how_it_ended(record: &RankRecord) -> Option<String> {
    if let Some(ending) = record.own_ending() {
        return Some(ending.words());
    }
    if !record.has_ended() {
        return None;
    }
    // Only its wrapper knows how it ended; in most cases it passes the exit code on.
    Some(match record.child_ending() {
        Some(ending) => format!("ended (its wrapper {})", ending.words()),
        None => "ended under its wrapper".to_owned(),
    })
}

/// The first of the ranks that `of` selects whose child a signal killed.
pub(crate) fn killed_outside(ranks: &RankTable, of: impl Fn(&RankRecord) -> bool) -> Option<RankLine> {
    let outside = ranks.all().filter(|(_, record)| of(record));
    let mut killed = outside.filter_map(|(rank, record)| match record.child_ending()? {
        ending @ Ending::Signalled(_) => Some((rank, ending.words())),
        Ending::Exited(_) => None,
    });
    let (rank, words) = killed.next()?;
    let others = match killed.count() {
        0 => String::new(),
        others => format!(", and {others} other(s) were killed too"),
    };
    let words = format!("{words} outside MPI{others}; look at what its program does there [E-JOB-004]");
    Some(RankLine { rank, words })
}

/// The line about a death that made the job fail.
pub(crate) fn blame(ranks: &RankTable, rank: u32, death: &Death, aftermath: &str) -> String {
    let how = how_it_ended(ranks.get(rank)).unwrap_or_else(|| "ended".to_owned());
    match death.found {
        FoundBy::Garbage(Some(reader)) => format!(
            "wrote corrupt data into memory that rank {reader} reads, and was killed for it{aftermath}. \
             Most likely its program wrote through a wild pointer [E-JOB-005]"
        ),
        FoundBy::Garbage(None) => format!(
            "wrote corrupt data to the node daemon, and was killed for it{aftermath}. \
             Most likely its program wrote into a descriptor that is not its own [E-JOB-006]"
        ),
        FoundBy::Unreachable(other) => format!(
            "and rank {other} could not connect. Both are members of a communicator whose members must agree, so this one was \
             killed{aftermath}. Look at the limits on memory and descriptors (ulimit -v, -n), and whether all ranks have one \
             installation [E-JOB-016]"
        ),
        FoundBy::Aborted { by, code } if by == rank => format!(
            "called MPI_Abort, or met an error that is fatal, with code {code}{aftermath}. \
             Look at its own messages [E-JOB-002]"
        ),
        FoundBy::Aborted { by, code } => format!(
            "was ended by rank {by} with MPI_Abort, or an error that is fatal, with code {code}{aftermath}. \
             Look at the messages of rank {by} [E-JOB-002]"
        ),
        FoundBy::GaveUp => format!(
            "could not join MPI{aftermath}. Look at what its MPI_Init says, and at its other messages [E-JOB-003]"
        ),
        FoundBy::DyingMark if death.lived => format!(
            "reported that a fatal signal ends it, ran on, and was killed for it{aftermath}. \
             In a debugger, let the signal pass; a handler of the program must not return to it [E-JOB-001]"
        ),
        _ if !death.inside => format!(
            "{how} before it called MPI_Init, while other ranks are in MPI{aftermath}. \
             Look at its own messages [E-JOB-003]"
        ),
        _ if death.lived => format!(
            "left MPI without MPI_Finalize (as exec does), and was killed for it{aftermath}. \
             Check whether its program calls exec [E-JOB-001]"
        ),
        _ => format!(
            "{how} before it called MPI_Finalize{aftermath}. \
             Look at its own messages, or run it in a debugger [E-JOB-001]"
        ),
    }
}

/// The line about a rank that ends the job.
pub(crate) fn job_aborted(code: i32) -> String {
    format!(
        "called MPI_Abort, or met an error that is fatal, with code {code}; the job has been ended. \
         Look at its own messages [E-JOB-002]"
    )
}

/// What happened to the other ranks after the first death, as the end of a sentence.
pub(crate) fn aftermath(ranks: &RankTable, first: u32, code: u8) -> String {
    let (mut dead, mut ended) = (0, 0);
    for (_, record, death) in ranks.deaths().filter(|(rank, ..)| *rank != first) {
        match record.counted_code(death) {
            None => dead += 1,
            Some(_) if matches!(death.found, FoundBy::Aborted { .. }) => ended += 1,
            Some(_) => {}
        }
    }
    let mut words = String::new();
    if dead > 0 {
        words += &format!("; {dead} other(s) died after it");
    }
    if ended > 0 {
        words += &format!("; {ended} other(s) were ended by MPI_Abort or an error that is fatal");
    }
    if ranks.deaths().count() < ranks.size() as usize {
        words += &format!("; the job went on, and ended with exit code {code}");
    }
    words
}
