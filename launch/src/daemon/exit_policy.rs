// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the endings of ranks mean for the job: when it is over, with which exit code, and what its user is told.
//!
//! A *survivor* is whoever left MPI, or ended by itself without ever coming to it: its exit code counts, and so does the
//! code of those whom MPI_Abort or an error handler ended. Of the dead, none does while anybody survives.

use crate::arguments::{Counting, Job};
use crate::daemon::kill;
use crate::daemon::watch::{GRACE, Record, Stage, Watch};
use crate::exit::Ending;
use mend_runtime::exit_code;
use std::time::Instant;

/// A rank that is dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Death {
    /// What showed it first.
    pub found: Found,
    /// It was in MPI.
    pub inside: bool,
    /// Its process lived on, until it was killed for it.
    pub lived: bool,
    /// Since when it is known.
    pub at: Instant,
}

/// How a death was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The kernel marked its life word.
    LifeWord,
    /// It said itself that a fatal signal ends it.
    EmergencyChannel,
    /// Its process has ended.
    Process,
    /// It closed its connection.
    Connection,
    /// This rank asked.
    Asked(u32),
    /// It said itself that it cannot begin. Its process lives on, without MPI.
    GaveUp,
    /// It was fenced for what it wrote to this rank, or to the daemon.
    Garbage(Option<u32>),
    /// This rank ended it, perhaps itself, with this code.
    Aborted {
        /// Who.
        by: u32,
        /// As it was given.
        code: i32,
    },
}

impl Found {
    /// Whether its process is killed, to be sure: not one that dies by itself, as it may be writing its core, nor one that
    /// goes on without MPI.
    pub fn is_killed(self) -> bool {
        !matches!(self, Found::EmergencyChannel | Found::GaveUp)
    }

    /// As the end of a sentence.
    fn words(self) -> String {
        match self {
            Found::LifeWord => "found by its life word".to_owned(),
            Found::EmergencyChannel => "said by itself in its last moments".to_owned(),
            Found::Process => "found by its process descriptor".to_owned(),
            Found::Connection => "found by its closed connection".to_owned(),
            Found::Asked(rank) => format!("found when rank {rank} asked"),
            Found::GaveUp => "as it said itself that its MPI_Init failed".to_owned(),
            Found::Garbage(Some(rank)) => format!("fenced, as it wrote garbage to rank {rank}"),
            Found::Garbage(None) => "fenced, as it wrote garbage to the daemon".to_owned(),
            Found::Aborted { by, code } => format!("ended by rank {by} with code {code}"),
        }
    }
}

/// How a job is judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// It outlives deaths.
    pub fault_tolerant: bool,
    /// Whose exit codes count.
    pub counting: Counting,
}

impl Rules {
    /// What the command line says.
    pub fn of(job: &Job) -> Self {
        Rules { fault_tolerant: job.fault_tolerant, counting: job.counting }
    }
}

/// What has become of a job that is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exit {
    /// Its exit code.
    pub code: u8,
    /// What the user is told, and of which rank.
    pub lines: Vec<(u32, String)>,
}

/// What has become of the job by now, if it is over, or must not go on.
pub fn decide(watch: &Watch, rules: Rules, now: Instant) -> Option<Exit> {
    if !rules.fault_tolerant
        && !watch.wanted
        && let Some((rank, record, death)) = first_to_blame(watch)
    {
        // How it ended is worth a moment; who is writing a core has any time.
        let late = death.found != Found::EmergencyChannel && now >= death.at + GRACE;
        let known = late || watch.ending_words(rank).is_some();
        return known.then(|| Exit {
            code: counted(record, death).unwrap_or_else(|| record.code_of_dead(death)),
            lines: vec![(rank, blame(watch, rank, death, "; the job has been ended"))],
        });
    }
    if !watch.ranks.iter().all(|record| is_over(record, watch.wanted, now)) {
        return None;
    }
    Some(if watch.any_member && !watch.wanted { members(watch, rules) } else { programs(watch) })
}

/// What is said of the first death in a job that is ended for another reason, or because of it.
pub fn first_death(watch: &Watch) -> Option<(u32, String)> {
    let (rank, _, death) = first_to_blame(watch)?;
    Some((rank, blame(watch, rank, death, "; the job went on")))
}

/// When to judge again, whatever happens before.
pub fn judge_again_at(watch: &Watch, rules: Rules, now: Instant) -> Option<Instant> {
    let patience = if rules.fault_tolerant { kill::PATIENCE } else { GRACE };
    let awaited = |found: Found| found.is_killed() || (!rules.fault_tolerant && found == Found::GaveUp);
    let open = watch.deaths().filter(|(_, record, death)| !record.has_ended() && awaited(death.found));
    open.map(|(_, _, death)| death.at + patience).filter(|at| *at > now).min()
}

/// What is said of a death where the user wants to hear of each. `None`: not yet, or not at all.
pub fn report(watch: &Watch, rank: u32) -> Option<String> {
    let (_, _, death) = watch.deaths().find(|(each, ..)| *each == rank)?;
    let how = watch.ending_words(rank)?;
    if !watch.any_member {
        return None;
    }
    let place = if death.inside { "" } else { " before it called MPI_Init" };
    Some(format!("{how}{place}: it has failed, {} [E-JOB-009]", death.found.words()))
}

/// Whether nothing of it is waited for: where deaths are wanted, a member without its wrapper may still tidy up. What was
/// killed may take its time to die, and who dies by itself may take any to write its core.
fn is_over(record: &Record, wanted: bool, now: Instant) -> bool {
    match record.stage {
        Stage::Outside | Stage::Left => record.child_ended.is_some(),
        Stage::Inside => record.child_ended.is_some() && wanted && !record.member_lives(),
        Stage::Failed(death) => {
            let stuck = death.found.is_killed() && now >= death.at + kill::PATIENCE;
            let ended = record.has_ended() || stuck;
            ended && (record.child_ended.is_some() || !record.has_wrapper())
        }
    }
}

/// Programs without MPI, or a job that a signal ended: exit codes alone.
fn programs(watch: &Watch) -> Exit {
    let endings = || watch.ranks.iter().filter_map(|record| record.child_ended);
    let code = endings().map(Ending::code).max().unwrap_or(0);
    let killed = killed_outside(watch, |_| true).filter(|_| !watch.wanted);
    Exit { code, lines: killed.into_iter().collect() }
}

/// The first of these that a signal killed.
fn killed_outside(watch: &Watch, of: impl Fn(&Record) -> bool) -> Option<(u32, String)> {
    let outside = watch.ranks.iter().zip(0..).filter(|(record, _)| of(record));
    let mut killed = outside.filter_map(|(record, rank)| match record.child_ended? {
        ending @ Ending::Signalled(_) => Some((rank, ending.words())),
        Ending::Exited(_) => None,
    });
    let (rank, words) = killed.next()?;
    let others = match killed.count() {
        0 => String::new(),
        others => format!(", and {others} other(s) were killed too"),
    };
    Some((rank, format!("{words} outside MPI{others}; look at what its program does there [E-JOB-004]")))
}

/// A job with ranks in MPI.
fn members(watch: &Watch, rules: Rules) -> Exit {
    let of_survivors = watch.ranks.iter().filter_map(|record| match record.stage {
        Stage::Failed(death) => counted(record, &death),
        _ => record.child_ended.map(Ending::code),
    });
    let of_dead = || {
        let dead = watch.deaths().filter(|(_, record, death)| counted(record, death).is_none());
        dead.map(|(_, record, death)| record.code_of_dead(death)).max()
    };
    let code = match (of_survivors.max(), rules.counting) {
        (Some(code), Counting::Survivors) => code,
        (Some(code), Counting::Worst) => code.max(of_dead().unwrap_or(0)),
        (None, _) => of_dead().unwrap_or(1),
    };
    if code == 0 {
        return Exit { code, lines: vec![] };
    }
    let first = first_to_blame(watch);
    let died = first.map(|(rank, _, death)| (rank, blame(watch, rank, death, &aftermath(watch, rank, code))));
    let killed = killed_outside(watch, |record| record.stage == Stage::Left);
    Exit { code, lines: died.into_iter().chain(killed).collect() }
}

/// What a rank that failed adds to the exit code all the same: a code that MPI_Abort or a handler gave, or that its
/// program ended with before it ever came to MPI.
fn counted(record: &Record, death: &Death) -> Option<u8> {
    match (death.found, death.inside, record.child_ended) {
        (Found::Aborted { code, .. }, ..) => Some(exit_code(code)),
        (_, false, Some(ending @ Ending::Exited(_))) => Some(ending.code()),
        _ => None,
    }
}

/// The death that a job which went wrong is most likely to be blamed on: the first. A program that ended without MPI and
/// is content is no reason, unless an error of others followed from it.
fn first_to_blame(watch: &Watch) -> Option<(u32, &Record, &Death)> {
    let content =
        |record: &Record, death: &Death| !death.inside && record.child_ended == Some(Ending::Exited(0));
    let first = watch.deaths().find(|(_, record, death)| !content(record, death))?;
    match first.2.found {
        Found::Aborted { .. } => watch.deaths().next(),
        _ => Some(first).filter(|_| watch.any_member),
    }
}

/// What is said of a death that the job did not get over.
fn blame(watch: &Watch, rank: u32, death: &Death, aftermath: &str) -> String {
    let how = watch.ending_words(rank).unwrap_or_else(|| "ended".to_owned());
    match death.found {
        Found::Garbage(Some(reader)) => format!(
            "wrote garbage into memory that rank {reader} reads, and was killed for it{aftermath}. \
             Most likely its program wrote through a wild pointer [E-JOB-005]"
        ),
        Found::Garbage(None) => format!(
            "wrote garbage to the daemon, and was killed for it{aftermath}. \
             Most likely its program wrote into a descriptor that is not its own [E-JOB-006]"
        ),
        Found::Aborted { by, code } if by == rank => format!(
            "called MPI_Abort, or met an error that is fatal, with code {code}{aftermath}. \
             Look at its own messages [E-JOB-002]"
        ),
        Found::Aborted { by, code } => format!(
            "was ended by rank {by} with MPI_Abort, or an error that is fatal, with code {code}{aftermath}. \
             Look at the messages of rank {by} [E-JOB-002]"
        ),
        Found::GaveUp => format!(
            "could not join MPI{aftermath}. Look at what its MPI_Init says, and at its other messages [E-JOB-003]"
        ),
        _ if !death.inside => format!(
            "{how} before it called MPI_Init, while other ranks are in MPI{aftermath}. \
             Look at its own messages [E-JOB-003]"
        ),
        _ if death.lived => format!(
            "left MPI without MPI_Finalize (as exec does), and was killed for it{aftermath}. \
             Look at what its program starts [E-JOB-001]"
        ),
        _ => format!(
            "{how} before it called MPI_Finalize{aftermath}. \
             Look at its own messages, or run it in a debugger [E-JOB-001]"
        ),
    }
}

/// What became of the others after the first death.
fn aftermath(watch: &Watch, first: u32, code: u8) -> String {
    let (mut dead, mut ended) = (0, 0);
    for (_, record, death) in watch.deaths().filter(|(rank, ..)| *rank != first) {
        match counted(record, death) {
            None => dead += 1,
            Some(_) if matches!(death.found, Found::Aborted { .. }) => ended += 1,
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
    if watch.failed.len() < watch.ranks.len() {
        words += &format!("; the job went on, and ended with exit code {code}");
    }
    words
}

impl Watch {
    /// The dead, in the order in which they were found.
    fn deaths(&self) -> impl Iterator<Item = (u32, &Record, &Death)> {
        self.failed.iter().filter_map(|&rank| {
            let record = &self.ranks[rank as usize];
            match &record.stage {
                Stage::Failed(death) => Some((rank, record, death)),
                _ => None,
            }
        })
    }
}

impl Record {
    /// The exit code that a rank which is dead stands for: never 0.
    fn code_of_dead(&self, death: &Death) -> u8 {
        if death.lived {
            return 1;
        }
        // A wrapper passes the exit code of its program on, mostly.
        self.own_ending().or(self.child_ended).map_or(1, Ending::failure_code)
    }
}

#[cfg(test)]
mod tests {
    use super::{Exit, Found, Rules, decide, judge_again_at, report};
    use crate::arguments::Counting;
    use crate::daemon::kill;
    use crate::daemon::watch::{GRACE, Watch};
    use crate::exit::Ending::{self, Exited, Signalled};
    use std::time::Instant;

    const RULES: Rules = Rules { fault_tolerant: true, counting: Counting::Survivors };
    const WORST: Rules = Rules { fault_tolerant: true, counting: Counting::Worst };
    const WITHOUT: Rules = Rules { fault_tolerant: false, counting: Counting::Survivors };

    /// What one rank does.
    #[derive(Clone, Copy)]
    enum Does {
        /// Ends so, without MPI.
        Nothing(Ending),
        /// Leaves MPI, and ends so.
        Leave(Ending),
        /// Ends so in MPI.
        Die(Ending),
        /// Ends itself with this code, or another does.
        Abort(u32, i32),
    }
    use Does::{Abort, Die, Leave, Nothing};

    fn watch(all: &[Does]) -> Watch {
        let (mut watch, now) = (Watch::of(all.len() as u32), Instant::now());
        for (rank, does) in (0..).zip(all) {
            if !matches!(does, Nothing(_)) {
                watch.init(rank);
            }
        }
        for (rank, does) in (0..).zip(all) {
            let (found, ending) = match *does {
                Leave(ending) => {
                    assert!(watch.finalize(rank));
                    (None, ending)
                }
                Nothing(ending) | Die(ending) => (Some(Found::Process), ending),
                Abort(by, code) => (Some(Found::Aborted { by, code }), Signalled(9)),
            };
            watch.end(rank, ending);
            assert!(found.is_none_or(|found| watch.fail(rank, found, now)));
        }
        watch
    }

    fn judged(rules: Rules, all: &[Does]) -> (u8, Vec<(u32, String)>) {
        let Exit { code, lines } = decide(&watch(all), rules, Instant::now()).expect("all have ended");
        (code, lines)
    }

    /// The exit code, and which rank is named with which code of a message.
    fn named(rules: Rules, all: &[Does], code: u8, about: &[(u32, &str)]) {
        let (given, lines) = judged(rules, all);
        let fits = |((rank, words), (wanted, part)): (&(u32, String), &(u32, &str))| {
            rank == wanted && words.contains(part)
        };
        let all_fit = lines.len() == about.len() && lines.iter().zip(about).all(fits);
        assert!(given == code && all_fit, "{given}, {lines:?}, not {code}, {about:?}");
    }

    #[test]
    fn programs_without_mpi_are_judged_by_their_exit_codes_alone() {
        named(RULES, &[Nothing(Exited(3)), Nothing(Exited(2))], 3, &[]);
        named(WITHOUT, &[Nothing(Exited(3)), Nothing(Exited(2))], 3, &[]);
        named(RULES, &[Nothing(Exited(0)), Nothing(Signalled(11))], 139, &[(1, "[E-JOB-004]")]);
        let mut watch = Watch::of(2);
        watch.end(0, Exited(1));
        assert_eq!(decide(&watch, WITHOUT, Instant::now()), None);
    }

    // Row CN9
    #[test]
    fn a_job_whose_survivors_return_0_ends_with_0_and_says_nothing() {
        for death in [Signalled(9), Exited(0), Exited(7)] {
            named(RULES, &[Leave(Exited(0)), Die(death), Die(Signalled(11))], 0, &[]);
        }
        named(RULES, &[Leave(Exited(0)), Nothing(Signalled(9))], 0, &[]);
        named(RULES, &[Leave(Exited(0)), Nothing(Exited(0))], 0, &[]);
    }

    // Row CN9
    #[test]
    fn the_largest_code_of_the_survivors_is_the_jobs_and_the_first_death_is_named() {
        let all = [Leave(Exited(2)), Die(Signalled(9)), Leave(Exited(3)), Die(Signalled(11))];
        named(
            RULES,
            &all,
            3,
            &[(1, "SIGKILL before it called MPI_Finalize; 1 other(s) died after it; the job went on")],
        );
        named(RULES, &[Leave(Exited(2)), Leave(Exited(3))], 3, &[]);
        // Who never came to MPI, and ended by itself, has failed to its peers alone.
        named(RULES, &[Leave(Exited(0)), Nothing(Exited(5))], 5, &[(1, "[E-JOB-003]")]);
        // Killed after it had left MPI: nobody else's concern.
        named(RULES, &[Leave(Signalled(11)), Leave(Exited(0))], 139, &[(0, "[E-JOB-004]")]);
    }

    // Row CN9
    #[test]
    fn who_is_ended_by_mpi_abort_or_a_fatal_error_counts_with_its_code() {
        named(RULES, &[Leave(Exited(0)), Abort(1, 7)], 7, &[(1, "with code 7; the job went on")]);
        named(RULES, &[Leave(Exited(0)), Abort(1, 0), Abort(1, 0)], 1, &[(1, "[E-JOB-002]")]);
        // A fatal error after a death: the death is what the user must know.
        let all = [Die(Signalled(9)), Abort(1, 101), Abort(2, 101)];
        named(RULES, &all, 101, &[(0, "SIGKILL before it called MPI_Finalize; 2 other(s) were ended")]);
        named(RULES, &[Nothing(Exited(0)), Abort(1, 101)], 101, &[(0, "[E-JOB-003]")]);
    }

    // Row CN9
    #[test]
    fn without_survivors_the_largest_of_all_counts_and_never_0() {
        named(RULES, &[Die(Exited(0)), Die(Exited(0))], 1, &[(0, "[E-JOB-001]")]);
        named(RULES, &[Die(Signalled(9)), Die(Signalled(11))], 139, &[(0, "[E-JOB-001]")]);
        named(RULES, &[Die(Exited(7))], 7, &[(0, "exit code 7 before it called MPI_Finalize. Look")]);
    }

    // Row CN9
    #[test]
    fn the_dead_count_too_where_that_is_asked_for() {
        named(WORST, &[Leave(Exited(0)), Die(Signalled(9))], 137, &[(1, "[E-JOB-001]")]);
        named(WORST, &[Leave(Exited(0)), Die(Exited(0))], 1, &[(1, "[E-JOB-001]")]);
        named(WORST, &[Leave(Exited(200)), Die(Signalled(9))], 200, &[(1, "[E-JOB-001]")]);
        named(WORST, &[Leave(Exited(0)), Leave(Exited(0))], 0, &[]);
    }

    // Row CN6
    #[test]
    fn without_fault_tolerance_the_first_death_ends_the_job() {
        for (ending, code) in [(Signalled(11), 139), (Exited(0), 1), (Exited(5), 5)] {
            let mut watch = Watch::of(2);
            watch.init(1);
            watch.end(1, ending);
            watch.fail(1, Found::Process, Instant::now());
            let ended = decide(&watch, WITHOUT, Instant::now()).expect("nobody waits for the other");
            assert!(ended.code == code && ended.lines[0].1.contains("the job has been ended"), "{ended:?}");
            assert_eq!(decide(&watch, RULES, Instant::now()), None);
        }
        // Before Init a failure ends it only if somebody is in MPI, and no failure never.
        named(WITHOUT, &[Leave(Exited(0)), Nothing(Exited(7))], 7, &[(1, "[E-JOB-003]")]);
        named(WITHOUT, &[Leave(Exited(0)), Nothing(Exited(0))], 0, &[]);
    }

    #[test]
    fn how_a_process_ended_is_waited_for_but_not_for_ever() {
        let (mut watch, now) = (Watch::of(1), Instant::now());
        watch.init(0);
        watch.fail(0, Found::Connection, now);
        assert_eq!((decide(&watch, WITHOUT, now), decide(&watch, RULES, now)), (None, None));
        assert_eq!(judge_again_at(&watch, WITHOUT, now), Some(now + GRACE));
        assert!(decide(&watch, WITHOUT, now + GRACE).is_some());
        assert_eq!(judge_again_at(&watch, RULES, now), Some(now + kill::PATIENCE));
        assert!(decide(&watch, RULES, now + kill::PATIENCE).is_some());
        assert_eq!(judge_again_at(&watch, RULES, now + kill::PATIENCE), None);
    }

    #[test]
    fn a_core_is_waited_for_however_long_it_takes() {
        let (mut watch, now) = (Watch::of(1), Instant::now());
        watch.init(0);
        watch.fail(0, Found::EmergencyChannel, now);
        assert_eq!(decide(&watch, RULES, now + 100 * kill::PATIENCE), None);
        watch.end(0, Signalled(11));
        assert_eq!(decide(&watch, RULES, now).unwrap().code, 139);
    }

    // Row LC3
    #[test]
    fn who_could_not_begin_counts_with_its_exit_code_and_may_take_its_time() {
        let (mut watch, now) = (Watch::of(2), Instant::now());
        watch.init(0);
        watch.init(1);
        watch.fail(1, Found::GaveUp, now);
        assert!(watch.finalize(0));
        watch.end(0, Exited(0));
        assert_eq!(decide(&watch, RULES, now + 100 * kill::PATIENCE), None);
        watch.end(1, Exited(16));
        let ended = decide(&watch, RULES, now).unwrap();
        assert!(ended.code == 16 && ended.lines[0].1.contains("could not join MPI"), "{ended:?}");
    }

    // Row CN6
    #[test]
    fn without_fault_tolerance_who_could_not_begin_ends_the_job_though_it_lives_on() {
        let (mut watch, now) = (Watch::of(2), Instant::now());
        watch.init(0);
        watch.init(1);
        watch.fail(1, Found::GaveUp, now);
        assert_eq!((decide(&watch, WITHOUT, now), judge_again_at(&watch, RULES, now)), (None, None));
        assert_eq!(judge_again_at(&watch, WITHOUT, now), Some(now + GRACE));
        let ended = decide(&watch, WITHOUT, now + GRACE).unwrap();
        assert!(ended.code == 1 && ended.lines[0].1.contains("could not join MPI"), "{ended:?}");
    }

    #[test]
    fn a_report_says_how_a_rank_ended_and_how_that_was_found() {
        let (mut watch, now) = (Watch::of(2), Instant::now());
        watch.init(0);
        watch.fail(0, Found::Asked(1), now);
        assert_eq!(report(&watch, 0), None);
        watch.end(0, Signalled(9));
        let words = report(&watch, 0).unwrap();
        assert!(words.contains("SIGKILL") && words.contains("when rank 1 asked"), "{words}");
        assert_eq!(report(&watch, 1), None);
    }

    #[test]
    fn after_a_signal_that_ends_jobs_deaths_are_no_news() {
        let (mut watch, now) = (Watch::of(2), Instant::now());
        watch.init(0);
        watch.deaths_are_wanted();
        watch.end(0, Signalled(2));
        watch.fail(0, Found::Process, now);
        assert_eq!(decide(&watch, WITHOUT, now), None);
        watch.end(1, Signalled(2));
        watch.fail(1, Found::Process, now);
        assert_eq!(decide(&watch, RULES, now), Some(Exit { code: 130, lines: vec![] }));
    }
}
