// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random jobs of recoveries, one for each seed (`sim/src/programs/recovery.rs`). `MEND_SIM_SEEDS=n` runs n seeds, from
//! `MEND_SIM_FIRST=n` on. `cargo sim --seed N` replays one, and makes it shorter if it fails.

use mend_daemon::Ending;
use mend_sim::environment;
use mend_sim::history::{Creation, Disturbances, History, Repair, Round, Step, Use};
use mend_sim::killer::{Manner, PlannedDeath, When};
use mend_sim::recoveries::{Report, report_panics, run_all};

const SEEDS: u64 = 1_000;

/// Runs the jobs of these seeds, with this many ranks if it is given.
fn pass(first: u64, count: u64, size: Option<u32>) {
    report_panics();
    let history = |seed| size.map_or_else(|| History::draw(seed), |size| History::draw_for(seed, size));
    let Report { tally, failures } = run_all(first, count, history, false);
    if let Some((_, seed, failure)) = failures.values().next() {
        let size = size.map_or(String::new(), |size| format!(" --size {size}"));
        panic!("replay with cargo sim --seed {seed}{size}: {:?}: {}", failure.kind, failure.what);
    }
    assert_eq!(tally.jobs, count);
    assert!(tally.jobs_with_deaths * 10 > count * 9, "a rank dies in nearly every job");
    println!("{count} seeds from {first}\n{tally}");
}

// Rows AK3, AG1 to AG6, AG15, SH1 to SH4, CC1
#[test]
fn survivors_repair_their_communicator_wherever_members_die() {
    let (first, count) = environment::seeds(SEEDS);
    pass(first, count, None);
}

#[test]
fn survivors_of_64_repair_their_communicator() {
    pass(0, 3, Some(64));
}

/// A history that failed once, without disturbances.
fn history(schedule: u64, size: u32, steps: &[Step], deaths: &[(u32, When)]) -> History {
    let death = |&(number, when)| PlannedDeath {
        number,
        manner: Manner::Ends(Ending::Signalled(9)),
        when,
        calls_while_dying: 0,
    };
    History {
        schedule,
        size,
        rounds: vec![Round { steps: steps.to_vec(), repair: Repair::default() }],
        deaths: deaths.iter().map(death).collect(),
        calls_min: 0,
        waits_for_deaths: true,
        disturbances: Disturbances::default(),
    }
}

/// Runs a shape of job that failed once, under the schedule with which it did, and many more.
fn passes_now(failed: &History) {
    report_panics();
    let count = 300;
    let of = |seed| History { schedule: failed.schedule.wrapping_add(seed), ..failed.clone() };
    let Report { tally, failures } = run_all(0, count, of, false);
    if let Some((_, seed, failure)) = failures.values().next() {
        panic!("schedule {:#x}: {:?}: {}", failed.schedule.wrapping_add(*seed), failure.kind, failure.what);
    }
    assert_eq!(tally.jobs, count);
}

// Row LC7: each round agrees and shrinks, and at the end nothing is left of its communicators.
#[test]
fn after_ten_thousand_recoveries_of_one_job_nothing_is_left() {
    let mut long = history(7, 4, &[Step::Allreduce(1)], &[(3, When::During(100, 7))]);
    long.rounds[0].repair.shrinks_always = true;
    long.calls_min = 75_000;
    let Report { tally, failures } = run_all(0, 1, |_| long.clone(), false);
    assert!(failures.is_empty(), "{failures:?}");
    let shrinks = tally.calls["MPIX_Comm_shrink"];
    assert!(shrinks >= 3 * 10_000, "{shrinks} by three survivors");
}

// A member that learned from one other that a freed communicator is closed did not tell those that waited for it.
#[test]
fn all_members_forget_a_freed_communicator_when_the_root_of_its_closing_dies() {
    let steps = [
        Step::Create(Creation::Split, Use::DupAndRing),
        Step::Create(Creation::CreateGroup, Use::None),
        Step::Allreduce(9),
    ];
    let deaths = [(0, When::During(8, 45))];
    let mut failed = history(0x61c1_ba33_5ebf_e09a, 7, &steps, &deaths);
    failed.rounds[0].repair = Repair { agrees_meanwhile: true, uniform: true, ..Repair::default() };
    failed.disturbances.slow_pairs = 29;
    passes_now(&failed);
}

// It stayed for ever after its last news had left.
#[test]
fn a_freed_communicator_is_forgotten_with_its_last_news() {
    let deaths = [(0, When::During(8, 45)), (5, When::During(0, 2))];
    let mut failed = history(0x61c1_ba33_5ebf_e090, 7, &[Step::Allreduce(9)], &deaths);
    failed.rounds[0].repair = Repair { agrees_meanwhile: true, uniform: true, ..Repair::default() };
    passes_now(&failed);
}

// It took part in no closing, and the others waited for it.
#[test]
fn a_member_that_hears_of_a_vote_after_it_has_freed_the_communicator_takes_part_in_its_closing() {
    let steps = [Step::Create(Creation::Idup, Use::DupAndRing)];
    passes_now(&history(0x673c_6b10_6540_ccdc, 5, &steps, &[(4, When::During(35, 332))]));
}

// The parent in the tree of the closing waited for it.
#[test]
fn a_member_that_has_freed_the_communicator_and_owes_nothing_is_asked_by_the_closing() {
    let steps = [Step::Create(Creation::Idup, Use::DupAndRing)];
    passes_now(&history(0x6028_4b8d_e478_2655, 3, &steps, &[(0, When::During(27, 165))]));
}

// The news waited for members that never created it.
#[test]
fn a_failure_revokes_no_communicator_before_its_creation_is_decided() {
    let steps = [
        Step::AnySource(10),
        Step::Create(Creation::Split, Use::Barrier),
        Step::Create(Creation::Create, Use::None),
        Step::Create(Creation::Dup, Use::RingFreed),
    ];
    let mut failed = history(0xee9f_4f02_f970_a6de, 3, &steps, &[(0, When::During(19, 27))]);
    failed.rounds[0].repair = Repair { uniform: true, range_group: true, ..Repair::default() };
    passes_now(&failed);
}

// It was stored for ever.
#[test]
fn news_of_a_communicator_that_was_freed_before_is_passed_on_and_forgotten() {
    let steps = [Step::Create(Creation::CreateGroup, Use::DupAndRing)];
    passes_now(&history(0x77c9_597f_68fc_d280, 5, &steps, &[(0, When::Step(1_798))]));
}

// An answer "it lives" that was on its way when another member reported the failure was taken for the answer about it. With the notice
// page muted nothing else tells of it.
#[test]
fn a_failure_that_others_know_is_asked_about_until_it_is_known_here() {
    let steps = [
        Step::Allreduce(6),
        Step::AnySource(4),
        Step::Create(Creation::Dup, Use::None),
        Step::Create(Creation::Dup, Use::RingFreed),
    ];
    let mut failed = history(0x9491_b86d_e46a_b882, 9, &steps, &[(6, When::During(13, 4))]);
    failed.rounds[0].repair.uniform = true;
    failed.disturbances = Disturbances {
        muted: true,
        true_evidence_once_in: 5,
        sleeps: true,
        late_notices: 28,
        ..Disturbances::default()
    };
    passes_now(&failed);
}

/// Creations without an agreement, after one of which a member dies.
fn local_creation(creation: Creation, used: Use, engine_calls: u64) -> History {
    let deaths = [(6, When::During(2, engine_calls))];
    let mut failed = history(0x895c_24fe_fd44_6bb9, 7, &[Step::Create(creation, used)], &deaths);
    failed.rounds[0].repair.local_creation = true;
    failed
}

const ALL_BUT_IDUP: [Creation; 5] =
    [Creation::Dup, Creation::DupWithInfo, Creation::Split, Creation::Create, Creation::CreateGroup];

// Row IK3. It stored news about a communicator that it never got, and its neighbours waited for an answer.
#[test]
fn a_member_that_never_gets_a_communicator_answers_news_about_it() {
    for creation in ALL_BUT_IDUP {
        passes_now(&local_creation(creation, Use::Disconnect, 3));
    }
}

// Row IK3, Row AG1. The agreement waited for it.
#[test]
fn an_agreement_ends_without_members_that_never_get_the_communicator() {
    for creation in ALL_BUT_IDUP {
        passes_now(&local_creation(creation, Use::DupAndRing, 9));
    }
}

// It told them another reason, and they returned MPI_ERR_OTHER.
#[test]
fn who_gives_up_the_creation_of_a_group_as_the_parent_is_revoked_tells_the_others_so() {
    let steps = [Step::Create(Creation::CreateGroup, Use::Barrier), Step::Create(Creation::Split, Use::None)];
    let mut failed = history(0xe1c7_5538_d19f_1838, 7, &steps, &[(5, When::Step(123))]);
    failed.deaths[0].manner = Manner::Aborts { code: 33, everybody: false };
    passes_now(&failed);
}
