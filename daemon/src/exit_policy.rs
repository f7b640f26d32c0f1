// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The exit policy: when a job is over, and with which exit code.
//!
//! The *counted* ranks are those that left MPI, those that ended by themselves without having joined it, those whose MPI_Init
//! failed, and those that MPI_Abort or an error handler ended. Codes of other dead ranks count only if there is no counted rank.

use crate::ending::Ending;
use crate::ranks::{Death, FoundBy, RankLine, RankRecord, RankState, RankTable};
use crate::sentences;
use mend_base::{Duration, Instant};

/// How long a process that was killed may take to die.
pub const KILL_TIME_LIMIT: Duration = Duration::from_millis(5_000);

/// How long the job waits to learn how a process ended, after it is known that the process has ended.
pub(crate) const ENDING_TIME_LIMIT: Duration = Duration::from_millis(1_000);

/// Which ranks' exit codes determine that of the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Counting {
    /// Those of the counted ranks, if there are any.
    #[default]
    NotFailed,
    /// Those of all ranks.
    Worst,
}

/// What the command line says about deaths and exit codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// The job outlives deaths.
    pub fault_tolerant: bool,
    /// Whose exit codes count.
    pub counting: Counting,
    /// Each death is reported in a line.
    pub reports_deaths: bool,
    /// The transports between all ranks are reported, once for the job.
    pub reports_transports: bool,
    /// Which notices of a death are not sent (a test hook).
    pub muted: Muted,
}

/// Which notices of a death are not sent, for tests of what finds deaths otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Muted {
    /// All are sent.
    None,
    /// They are sent only to ranks that ask about the dead rank or wait for a contact with it.
    Unasked,
    /// None is sent: as a launcher without knowledge of failures.
    All,
}

impl Default for Rules {
    /// The rules of a command line without options.
    fn default() -> Self {
        Rules {
            fault_tolerant: true,
            counting: Counting::NotFailed,
            reports_deaths: false,
            reports_transports: false,
            muted: Muted::None,
        }
    }
}

/// The result of a job that is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Exit {
    /// Its exit code.
    pub(crate) code: u8,
    /// Lines for the user, each about one rank.
    pub(crate) lines: Vec<RankLine>,
}

/// The rules of one job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExitPolicy {
    rules: Rules,
    /// A signal asked the job to end: deaths are expected, and no line names one.
    deaths_are_expected: bool,
}

impl ExitPolicy {
    pub(crate) fn new(rules: Rules) -> Self {
        ExitPolicy { rules, deaths_are_expected: false }
    }

    pub(crate) fn rules(&self) -> Rules {
        self.rules
    }

    /// A signal has asked the job to end.
    pub(crate) fn expect_deaths(&mut self) {
        self.deaths_are_expected = true;
    }

    /// Whether a signal has asked the job to end.
    pub(crate) fn deaths_are_expected(&self) -> bool {
        self.deaths_are_expected
    }

    /// The result of the job, if it is over, or must be ended.
    pub(crate) fn decide(&self, ranks: &RankTable, now: Instant) -> Option<Exit> {
        if !self.rules.fault_tolerant
            && !self.deaths_are_expected
            && let Some(first) = first_harmful(ranks)
        {
            return first_death_ends(ranks, first, now);
        }
        if !ranks.all().all(|(_, record)| self.is_over(record, now)) {
            return None;
        }
        let joined = ranks.any_joined() && !self.deaths_are_expected;
        Some(if joined { self.of_joined(ranks) } else { self.of_programs(ranks) })
    }

    /// When to decide again, whatever happens before.
    pub(crate) fn next_deadline(&self, ranks: &RankTable, now: Instant) -> Option<Instant> {
        let limit = if self.rules.fault_tolerant { KILL_TIME_LIMIT } else { ENDING_TIME_LIMIT };
        let awaited =
            |found: FoundBy| found.is_killed() || (!self.rules.fault_tolerant && found == FoundBy::GaveUp);
        let running = ranks.deaths().filter(|(_, record, death)| !record.has_ended() && awaited(death.found));
        running.map(|(_, _, death)| death.at + limit).filter(|at| *at > now).min()
    }

    /// Whether the job need not wait for this rank any longer. After a signal that ends jobs, a joined process whose wrapper has
    /// ended may still clean up. A killed process may take up to [`KILL_TIME_LIMIT`]; one that dies by itself may write its core
    /// for any time.
    fn is_over(&self, record: &RankRecord, now: Instant) -> bool {
        let child_ended = record.child_ending().is_some();
        match record.state() {
            RankState::Outside | RankState::Left => child_ended,
            RankState::Inside => child_ended && self.deaths_are_expected && !record.wrapped_lives(),
            RankState::Failed(death) => {
                let stuck = death.found.is_killed() && now >= death.at + KILL_TIME_LIMIT;
                (record.has_ended() || stuck) && (child_ended || !record.has_wrapper())
            }
        }
    }

    /// The result of programs without MPI, or of a job that a signal ended: only exit codes count.
    fn of_programs(&self, ranks: &RankTable) -> Exit {
        let endings = ranks.all().filter_map(|(_, record)| record.child_ending());
        let code = endings.map(Ending::code).max().unwrap_or(0);
        let killed = sentences::killed_outside(ranks, |_| true).filter(|_| !self.deaths_are_expected);
        Exit { code, lines: killed.into_iter().collect() }
    }

    /// The result of a job with ranks in MPI.
    fn of_joined(&self, ranks: &RankTable) -> Exit {
        let of_not_failed = ranks.all().filter_map(|(_, record)| match record.state() {
            RankState::Failed(death) => record.counted_code(&death),
            _ => record.child_ending().map(Ending::code),
        });
        let of_dead = || {
            let dead = ranks.deaths().filter(|(_, record, death)| record.counted_code(death).is_none());
            dead.map(|(_, record, death)| record.code_of_dead(death)).max()
        };
        let code = match (of_not_failed.max(), self.rules.counting) {
            (Some(code), Counting::NotFailed) => code,
            (Some(code), Counting::Worst) => code.max(of_dead().unwrap_or(0)),
            (None, _) => of_dead().unwrap_or(1),
        };
        if code == 0 {
            return Exit { code, lines: vec![] };
        }
        let died = to_blame(ranks).map(|(rank, _, death)| {
            let rest = sentences::aftermath(ranks, rank, code);
            RankLine { rank, words: sentences::blame(ranks, rank, death, &rest) }
        });
        let killed = sentences::killed_outside(ranks, |record| record.state() == RankState::Left);
        Exit { code, lines: died.into_iter().chain(killed).collect() }
    }
}

/// The result of a job without fault tolerance at its first death, once it is known how the process ended, or after
/// [`ENDING_TIME_LIMIT`]. A process that writes its core is waited for without limit.
fn first_death_ends(
    ranks: &RankTable,
    (rank, record, death): (u32, &RankRecord, &Death),
    now: Instant,
) -> Option<Exit> {
    let late = death.found != FoundBy::DyingMark && now >= death.at + ENDING_TIME_LIMIT;
    let known = late || sentences::how_it_ended(record).is_some();
    known.then(|| {
        let code = record.counted_code(death).unwrap_or_else(|| record.code_of_dead(death)).max(1);
        let (rank, _, death) = to_blame(ranks).unwrap_or((rank, record, death));
        let words = sentences::blame(ranks, rank, death, "; the job has been ended");
        Exit { code, lines: vec![RankLine { rank, words }] }
    })
}

/// The line about the first death in a job that is ended for another reason, or because of that death.
pub(crate) fn first_death(ranks: &RankTable) -> Option<RankLine> {
    let (rank, _, death) = to_blame(ranks)?;
    Some(RankLine { rank, words: sentences::blame(ranks, rank, death, "; the job went on") })
}

/// The first death that is not harmless, if any rank was in MPI.
fn first_harmful(ranks: &RankTable) -> Option<(u32, &RankRecord, &Death)> {
    let first = ranks.deaths().find(|(_, record, death)| !record.is_harmless(death));
    first.filter(|_| ranks.any_joined())
}

/// The death that most likely made the job fail: the first one. A harmless death is skipped, unless ranks aborted after it.
fn to_blame(ranks: &RankTable) -> Option<(u32, &RankRecord, &Death)> {
    let first = first_harmful(ranks)?;
    match first.2.found {
        FoundBy::Aborted { .. } => ranks.deaths().next(),
        _ => Some(first),
    }
}

#[cfg(test)]
mod tests {
    use super::{Counting, ENDING_TIME_LIMIT, Exit, ExitPolicy, KILL_TIME_LIMIT, Muted, Rules};
    use crate::ending::Ending::{self, Exited, Signalled};
    use crate::ranks::{FoundBy, RankTable};
    use crate::sentences::report;
    use crate::{Effect, NodeDaemon};
    use mend_base::{Duration, Instant, Job};

    const RULES: Rules = Rules {
        fault_tolerant: true,
        counting: Counting::NotFailed,
        reports_deaths: false,
        reports_transports: false,
        muted: Muted::None,
    };
    const WORST: Rules = Rules { counting: Counting::Worst, ..RULES };
    const WITHOUT: Rules = Rules { fault_tolerant: false, ..RULES };
    const NOW: Instant = Instant(1);
    const LONG: Duration = Duration(100 * KILL_TIME_LIMIT.0);

    fn decide(ranks: &RankTable, rules: Rules, now: Instant) -> Option<Exit> {
        ExitPolicy::new(rules).decide(ranks, now)
    }

    fn next_deadline(ranks: &RankTable, rules: Rules, now: Instant) -> Option<Instant> {
        ExitPolicy::new(rules).next_deadline(ranks, now)
    }

    /// How one rank behaves.
    #[derive(Clone, Copy)]
    enum Does {
        /// Ends in this way, without MPI.
        Nothing(Ending),
        /// Leaves MPI, and ends in this way.
        Leave(Ending),
        /// Ends in this way while in MPI.
        Die(Ending),
        /// Is ended by this rank, perhaps itself, with this code.
        Abort(u32, i32),
    }
    use Does::{Abort, Die, Leave, Nothing};

    fn table(all: &[Does]) -> RankTable {
        let (mut table, now) = (RankTable::of(all.len() as u32), NOW);
        for (rank, does) in (0..).zip(all) {
            if !matches!(does, Nothing(_)) {
                table.init(rank);
            }
        }
        for (rank, does) in (0..).zip(all) {
            let (found, ending) = match *does {
                Leave(ending) => {
                    assert!(table.finalize(rank));
                    (None, ending)
                }
                Nothing(ending) | Die(ending) => (Some(FoundBy::Process), ending),
                Abort(by, code) => (Some(FoundBy::Aborted { by, code }), Signalled(9)),
            };
            table.child_ended(rank, ending);
            assert!(found.is_none_or(|found| table.fail(rank, found, now)));
        }
        table
    }

    fn exit(rules: Rules, all: &[Does]) -> (u8, Vec<(u32, String)>) {
        let Exit { code, lines } = decide(&table(all), rules, NOW).expect("all have ended");
        (code, lines.into_iter().map(|line| (line.rank, line.words)).collect())
    }

    /// Asserts the exit code, and which ranks the lines name with which words.
    fn named(rules: Rules, all: &[Does], code: u8, about: &[(u32, &str)]) {
        let (given, lines) = exit(rules, all);
        let fits = |((rank, words), (wanted, part)): (&(u32, String), &(u32, &str))| {
            rank == wanted && words.contains(part)
        };
        let all_fit = lines.len() == about.len() && lines.iter().zip(about).all(fits);
        assert!(given == code && all_fit, "{given}, {lines:?}, not {code}, {about:?}");
    }

    #[test]
    fn the_code_of_programs_without_mpi_is_the_largest_of_theirs() {
        named(RULES, &[Nothing(Exited(3)), Nothing(Exited(2))], 3, &[]);
        named(WITHOUT, &[Nothing(Exited(3)), Nothing(Exited(2))], 3, &[]);
        named(RULES, &[Nothing(Exited(0)), Nothing(Signalled(11))], 139, &[(1, "[E-JOB-004]")]);
        let mut table = RankTable::of(2);
        table.child_ended(0, Exited(1));
        assert_eq!(decide(&table, WITHOUT, NOW), None);
    }

    // Row CN9
    #[test]
    fn a_job_whose_other_ranks_return_0_ends_with_0_and_without_a_line() {
        for death in [Signalled(9), Exited(0), Exited(7)] {
            named(RULES, &[Leave(Exited(0)), Die(death), Die(Signalled(11))], 0, &[]);
        }
        named(RULES, &[Leave(Exited(0)), Nothing(Signalled(9))], 0, &[]);
        named(RULES, &[Leave(Exited(0)), Nothing(Exited(0))], 0, &[]);
    }

    // Row CN9
    #[test]
    fn the_largest_code_of_the_ranks_that_did_not_fail_is_the_jobs_and_the_first_death_is_named() {
        let all = [Leave(Exited(2)), Die(Signalled(9)), Leave(Exited(3)), Die(Signalled(11))];
        named(
            RULES,
            &all,
            3,
            &[(1, "SIGKILL before it called MPI_Finalize; 1 other(s) died after it; the job went on")],
        );
        named(RULES, &[Leave(Exited(2)), Leave(Exited(3))], 3, &[]);
        // A rank that ended by itself without having joined MPI has failed only for its peers.
        named(RULES, &[Leave(Exited(0)), Nothing(Exited(5))], 5, &[(1, "[E-JOB-003]")]);
        // A rank that is killed after it has left MPI concerns no other rank.
        named(RULES, &[Leave(Signalled(11)), Leave(Exited(0))], 139, &[(0, "[E-JOB-004]")]);
    }

    // Row CN9
    #[test]
    fn a_rank_that_mpi_abort_or_a_fatal_error_ends_counts_with_its_code() {
        named(RULES, &[Leave(Exited(0)), Abort(1, 7)], 7, &[(1, "with code 7; the job went on")]);
        named(RULES, &[Leave(Exited(0)), Abort(1, 0), Abort(1, 0)], 1, &[(1, "[E-JOB-002]")]);
        // A fatal error after a death: the line names the death.
        let all = [Die(Signalled(9)), Abort(1, 101), Abort(2, 101)];
        named(RULES, &all, 101, &[(0, "SIGKILL before it called MPI_Finalize; 2 other(s) were ended")]);
        named(RULES, &[Nothing(Exited(0)), Abort(1, 101)], 101, &[(0, "[E-JOB-003]")]);
    }

    // Row CN9
    #[test]
    fn if_all_ranks_failed_the_largest_of_all_counts_and_never_0() {
        named(RULES, &[Die(Exited(0)), Die(Exited(0))], 1, &[(0, "[E-JOB-001]")]);
        named(RULES, &[Die(Signalled(9)), Die(Signalled(11))], 139, &[(0, "[E-JOB-001]")]);
        named(RULES, &[Die(Exited(7))], 7, &[(0, "exit code 7 before it called MPI_Finalize. Look")]);
    }

    // Row CN9
    #[test]
    fn with_worst_the_dead_count_too() {
        named(WORST, &[Leave(Exited(0)), Die(Signalled(9))], 137, &[(1, "[E-JOB-001]")]);
        named(WORST, &[Leave(Exited(0)), Die(Exited(0))], 1, &[(1, "[E-JOB-001]")]);
        named(WORST, &[Leave(Exited(200)), Die(Signalled(9))], 200, &[(1, "[E-JOB-001]")]);
        named(WORST, &[Leave(Exited(0)), Leave(Exited(0))], 0, &[]);
    }

    // Row CN6
    #[test]
    fn without_fault_tolerance_the_first_death_ends_the_job() {
        for (ending, code) in [(Signalled(11), 139), (Exited(0), 1), (Exited(5), 5)] {
            let mut table = RankTable::of(2);
            table.init(1);
            table.child_ended(1, ending);
            table.fail(1, FoundBy::Process, NOW);
            let ended = decide(&table, WITHOUT, NOW).expect("the job does not wait for the other rank");
            assert!(
                ended.code == code && ended.lines[0].words.contains("the job has been ended"),
                "{ended:?}"
            );
            assert_eq!(decide(&table, RULES, NOW), None);
        }
        // A failure before Init ends the job only if some rank is in MPI; an exit with 0 never does.
        named(WITHOUT, &[Leave(Exited(0)), Nothing(Exited(7))], 7, &[(1, "[E-JOB-003]")]);
        named(WITHOUT, &[Leave(Exited(0)), Nothing(Exited(0))], 0, &[]);
    }

    // Row CN6
    #[test]
    fn without_fault_tolerance_an_error_that_follows_a_harmless_death_gives_the_code() {
        let (code, lines) = exit(WITHOUT, &[Nothing(Exited(0)), Abort(1, 7), Leave(Exited(0))]);
        assert!(code == 7 && lines.len() == 1 && lines[0].0 == 0, "{code}, {lines:?}");
    }

    #[test]
    fn the_job_waits_a_limited_time_to_learn_how_a_process_ended() {
        let (mut table, now) = (RankTable::of(1), NOW);
        table.init(0);
        table.fail(0, FoundBy::Connection, now);
        assert_eq!((decide(&table, WITHOUT, now), decide(&table, RULES, now)), (None, None));
        assert_eq!(next_deadline(&table, WITHOUT, now), Some(now + ENDING_TIME_LIMIT));
        assert!(decide(&table, WITHOUT, now + ENDING_TIME_LIMIT).is_some());
        assert_eq!(next_deadline(&table, RULES, now), Some(now + KILL_TIME_LIMIT));
        assert!(decide(&table, RULES, now + KILL_TIME_LIMIT).is_some());
        assert_eq!(next_deadline(&table, RULES, now + KILL_TIME_LIMIT), None);
    }

    #[test]
    fn a_deadline_that_passes_after_the_last_decision_is_still_the_next() {
        let mut daemon = NodeDaemon::new(Job(1), 1, RULES);
        daemon.on_started(0, 100);
        daemon.on_joined(0, 100);
        daemon.on_garbage(0, NOW);
        let deadline = NOW + KILL_TIME_LIMIT;
        daemon.on_time(Instant(deadline.0 - 1));
        assert!(
            !core::iter::from_fn(|| daemon.next_effect()).any(|effect| matches!(effect, Effect::EndJob(_)))
        );
        // However late it is now, the deadline has not been decided.
        assert_eq!(daemon.next_deadline(), Some(deadline));
        daemon.on_time(deadline);
        assert_eq!(daemon.next_deadline(), None);
    }

    #[test]
    fn the_job_waits_for_a_core_without_limit() {
        let (mut table, now) = (RankTable::of(1), NOW);
        table.init(0);
        table.fail(0, FoundBy::DyingMark, now);
        assert_eq!(decide(&table, RULES, now + LONG), None);
        table.child_ended(0, Signalled(11));
        assert_eq!(decide(&table, RULES, now).unwrap().code, 139);
    }

    // Row LC3
    #[test]
    fn a_rank_whose_init_failed_counts_with_its_exit_code_and_is_waited_for() {
        let (mut table, now) = (RankTable::of(2), NOW);
        table.init(0);
        table.init(1);
        table.fail(1, FoundBy::GaveUp, now);
        assert!(table.finalize(0));
        table.child_ended(0, Exited(0));
        assert_eq!(decide(&table, RULES, now + LONG), None);
        table.child_ended(1, Exited(16));
        let ended = decide(&table, RULES, now).unwrap();
        assert!(ended.code == 16 && ended.lines[0].words.contains("could not join MPI"), "{ended:?}");
    }

    // Row CN6
    #[test]
    fn without_fault_tolerance_a_rank_whose_init_failed_ends_the_job_though_it_lives_on() {
        let (mut table, now) = (RankTable::of(2), NOW);
        table.init(0);
        table.init(1);
        table.fail(1, FoundBy::GaveUp, now);
        assert_eq!((decide(&table, WITHOUT, now), next_deadline(&table, RULES, now)), (None, None));
        assert_eq!(next_deadline(&table, WITHOUT, now), Some(now + ENDING_TIME_LIMIT));
        let ended = decide(&table, WITHOUT, now + ENDING_TIME_LIMIT).unwrap();
        assert!(ended.code == 1 && ended.lines[0].words.contains("could not join MPI"), "{ended:?}");
    }

    #[test]
    fn a_report_says_how_a_rank_ended_and_how_that_was_found() {
        let (mut table, now) = (RankTable::of(2), NOW);
        table.init(0);
        table.fail(0, FoundBy::Question(1), now);
        assert_eq!(report(&table, 0), None);
        table.child_ended(0, Signalled(9));
        let words = report(&table, 0).unwrap().words;
        assert!(words.contains("SIGKILL") && words.contains("when rank 1 asked"), "{words}");
        assert_eq!(report(&table, 1), None);
    }

    #[test]
    fn after_a_signal_that_ends_jobs_no_line_names_a_death() {
        let mut table = RankTable::of(2);
        table.init(0);
        let after_signal = |rules| {
            let mut policy = ExitPolicy::new(rules);
            policy.expect_deaths();
            policy
        };
        table.child_ended(0, Signalled(2));
        table.fail(0, FoundBy::Process, NOW);
        assert_eq!(after_signal(WITHOUT).decide(&table, NOW), None);
        table.child_ended(1, Signalled(2));
        table.fail(1, FoundBy::Process, NOW);
        assert_eq!(after_signal(RULES).decide(&table, NOW), Some(Exit { code: 130, lines: vec![] }));
    }
}
