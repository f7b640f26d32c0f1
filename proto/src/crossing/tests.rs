// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Searches find each cycle and nothing else: every schedule of a few processes, and random schedules of more. `Job` asserts at each
//! contribution in absentia for a proven cycle that there was a deadlock, and at the end that all programs have ended with the same
//! answers.

use super::job::{Event, Job};
use super::{Message, ProgramWait, SearchId, Searches, VISITS_MAX, Waits};
use crate::agreement::{AgreementId, CROSSED_MAX, Expected};
use crate::tree::Shape;
use mend_base::{Identity, Peer, Random, Rank};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Visits each state that can be reached with so many crashes. At each, the job can finish. Returns the number of states, and how many
/// of them have a proven cycle.
fn visit_all(job: &Job, crashes: u32) -> (usize, usize) {
    let (mut visited, mut proven) = (HashSet::new(), 0);
    let mut open = vec![(job.clone(), crashes)];
    while let Some((job, crashes)) = open.pop() {
        let mut hasher = DefaultHasher::new();
        (&job, crashes).hash(&mut hasher);
        if !visited.insert(hasher.finish()) {
            continue;
        }
        proven += usize::from(job.processes.iter().any(|process| process.proofs > 0));
        let events = job.events();
        if events.iter().all(|event| matches!(event, Event::Call(_))) {
            job.clone().finish();
        }
        for event in events {
            let mut next = job.clone();
            next.step(event);
            open.push((next, crashes));
        }
        for victim in (0..job.processes.len()).filter(|&at| crashes > 0 && job.processes[at].lives) {
            for lost in 0..2 {
                let mut next = job.clone();
                next.crash(victim, |length| lost * length);
                open.push((next, crashes - 1));
            }
        }
    }
    (visited.len(), proven)
}

#[test]
fn every_schedule_of_two_processes_and_two_communicators_ends() {
    // Row AG16
    for (crashes, searches) in [(0, 2), (1, 1)] {
        let job = Job::new(&[&[0, 1], &[0, 1]], &[&[0, 1], &[1, 0]], Shape::Chain, searches);
        let (states, proven) = visit_all(&job, crashes);
        println!(
            "2 processes, 2 communicators, {crashes} crashes, {searches} searches each: {states} states"
        );
        assert!(proven > 0);
    }
}

#[test]
fn without_a_cycle_no_schedule_marks_anything() {
    let job = Job::new(&[&[0, 1], &[0, 1]], &[&[0, 1], &[0, 1]], Shape::Chain, 1);
    let (states, proven) = visit_all(&job, 1);
    println!("{states} states");
    assert_eq!(proven, 0);
}

#[test]
fn every_schedule_of_a_cycle_of_three_communicators_ends() {
    // Row AG16
    let groups: [&[usize]; 3] = [&[0, 1], &[1, 2], &[2, 0]];
    let job = Job::new(&groups, &[&[0, 2], &[1, 0], &[2, 1]], Shape::Chain, 0);
    let mut one = job;
    one.processes[0].searches_left = 1;
    let (states, proven) = visit_all(&one, 0);
    println!("3 processes, 3 communicators, 1 search: {states} states");
    assert!(proven > 0);
    let (states, proven) = visit_all(&one, 1);
    println!("3 processes, 3 communicators, 1 search, 1 crash: {states} states");
    assert!(proven > 0);
}

#[test]
fn every_schedule_of_two_communicators_with_a_bystander_ends() {
    // The bystander is a member of both, and calls at any time.
    let mut job = Job::new(&[&[0, 1, 2], &[2, 1, 0]], &[&[0], &[1], &[1]], Shape::Binary, 0);
    job.processes[0].searches_left = 1;
    for process in 0..3 {
        let missing = [0, 1].into_iter().filter(|at| !job.processes[process].calls.contains(at));
        let missing: Vec<usize> = missing.collect();
        job.processes[process].calls.extend(missing);
    }
    let (states, proven) = visit_all(&job, 0);
    println!("3 processes in 2 communicators, 1 search: {states} states");
    assert!(proven > 0);
}

/// A job with random communicators and calls.
fn random_job(random: &mut Random) -> Job {
    let size = 2 + random.below(5) as usize;
    let count = 2 + random.below(3) as usize;
    let shuffled = |random: &mut Random, mut items: Vec<usize>| {
        (1..items.len()).rev().for_each(|at| items.swap(at, random.below(at as u64 + 1) as usize));
        items
    };
    let groups: Vec<Vec<usize>> = (0..count)
        .map(|_| {
            let members = 2 + random.below(size as u64 - 1) as usize;
            shuffled(random, (0..size).collect()).into_iter().take(members).collect()
        })
        .collect();
    let rounds = 1 + random.below(2);
    let in_order = random.once_in(8);
    let calls: Vec<Vec<usize>> = (0..size)
        .map(|at| {
            let of: Vec<usize> =
                (0..count).filter(|&communicator| groups[communicator].contains(&at)).collect();
            let round = |_| if in_order { of.clone() } else { shuffled(random, of.clone()) };
            (0..rounds).flat_map(round).collect()
        })
        .collect();
    let groups: Vec<&[usize]> = groups.iter().map(Vec::as_slice).collect();
    let calls: Vec<&[usize]> = calls.iter().map(Vec::as_slice).collect();
    let shapes = [Shape::Chain, Shape::Binary, Shape::Nomial(2), Shape::Nomial(8)];
    Job::new(&groups, &calls, shapes[random.below(4) as usize], random.below(3) as u32)
}

#[test]
fn random_schedules_end_and_mark_deadlocks_alone() {
    let seed = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (first, count) =
        (seed("MEND_CROSSING_FIRST").unwrap_or(0), seed("MEND_CROSSING_SEEDS").unwrap_or(3_000));
    let (mut failing, mut proven, mut died) = (0, 0, 0);
    for seed in first..first + count {
        let result = std::panic::catch_unwind(|| {
            let mut random = Random(seed);
            let mut job = random_job(&mut random);
            let mut crashes = random.below(3);
            loop {
                let events = job.events();
                if events.is_empty() {
                    break;
                }
                if crashes > 0 && random.once_in(24) {
                    let victim = random.below(job.processes.len() as u64) as usize;
                    if job.processes[victim].lives {
                        crashes -= 1;
                        job.crash(victim, |length| random.below(length as u64 + 1) as usize);
                    }
                    continue;
                }
                job.step(events[random.below(events.len() as u64) as usize]);
            }
            job.finish();
            let proofs = job.processes.iter().any(|process| process.proofs > 0);
            (proofs, job.processes.iter().any(|process| !process.lives))
        });
        match result {
            Ok((has_proof, has_death)) => {
                proven += u64::from(has_proof);
                died += u64::from(has_death && has_proof);
            }
            Err(_) => {
                failing += 1;
                println!("MEND_CROSSING_FIRST={seed} MEND_CROSSING_SEEDS=1 fails");
            }
        }
    }
    println!("{count} seeds, {proven} with a cycle, {died} of them with deaths: {failing} seeds fail");
    assert_eq!(failing, 0);
    assert!(count < 100 || proven > 0);
}

/// A process whose program waits for the end of communicator 0, in which rank 1 is awaited, and has started nothing else.
struct Blocked;

const COMMUNICATOR: Identity = Identity { creator: Peer(0), number: 0 };

impl Waits for Blocked {
    fn program(&self) -> Option<ProgramWait> {
        Some(ProgramWait { number: 0, communicators: vec![COMMUNICATOR] })
    }

    fn expected_by(&self, _: Rank, _: AgreementId) -> Expected {
        Expected::Start
    }

    fn awaited(&self, _: Identity, visit: &mut dyn FnMut(Rank, u32)) {
        visit(Rank(1), 0);
    }

    fn is_next(&self, _: AgreementId) -> bool {
        true
    }
}

#[test]
fn a_search_passes_so_many_programs_and_so_many_visits_are_kept() {
    let (mut searches, mut out) = (Searches::new(Peer(0)), Vec::new());
    let edge = (Identity { creator: Peer(0), number: 1 }, Rank(2));
    let mut pass = |initiator, crossings| {
        let search = SearchId { initiator: Peer(initiator), number: 0 };
        let message = Message::Search { search, sequence: 0, crossings };
        searches.on_message(edge, message, &Blocked, &mut out);
        (core::mem::take(&mut out).len(), searches.visits.len())
    };
    assert_eq!(pass(1, 1), (0, 0), "it has met the last program");
    // Each search visits the program and one agreement.
    for count in 1..=VISITS_MAX {
        assert_eq!(pass(count as u64, CROSSED_MAX as u8), (1, VISITS_MAX.min(2 * count)));
    }
}
