// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Agreements under random schedules: members start, fail (also between two sends of one event) and leave MPI at random moments,
//! and hear of it late and in different orders. One seed is one schedule.

use super::network::{Cut, Life, Network, coded};
use super::{Contribution, Op};
use crate::ranks::SetHash;
use crate::tree::Shape;
use mend_base::{Random, Rank};

const SHAPES: [Shape; 5] =
    [Shape::Chain, Shape::Binary, Shape::Nomial(2), Shape::Nomial(4), Shape::Nomial(8)];
const OPS: [Op; 5] = [Op::And, Op::Or, Op::Xor, Op::Sum, Op::First];

struct Schedule {
    random: Random,
    network: Network,
    /// The agreements that each member takes part in.
    agreements: Vec<(Op, bool)>,
    fails_left: u64,
    departs_left: u64,
    /// An event is one that fails once in so many.
    fails_once_in: u64,
    /// Channels and news that are slow: a bit for each of 64 classes.
    slow: u64,
    loses: bool,
}

impl Schedule {
    fn new(seed: u64, size: u32, fails: u64, departs: u64) -> Self {
        let mut random = Random(seed);
        let shape = SHAPES[random.below(5) as usize];
        let count = 1 + random.below(4);
        let agreements = (0..count).map(|_| (OPS[random.below(5) as usize], random.once_in(3))).collect();
        let slow = random.bits() & random.bits();
        let (fails_once_in, loses) = (2 << random.below(7), random.once_in(2));
        let network = Network::new(size, shape);
        Schedule {
            random,
            network,
            agreements,
            fails_left: fails,
            departs_left: departs,
            fails_once_in,
            slow,
            loses,
        }
    }

    fn run(mut self) -> Network {
        let mut idle: Vec<Rank> = self.network.ranks().collect();
        loop {
            let counts =
                [idle.len(), self.network.busy.len(), self.network.news.len(), self.network.questions.len()];
            let mut at = self.random.below(counts.iter().sum::<usize>() as u64) as usize;
            let Some(kind) = counts.iter().position(|&count| {
                let is_here = at < count;
                at -= if is_here { 0 } else { count };
                is_here
            }) else {
                return self.network;
            };
            match kind {
                0 => self.start(idle.swap_remove(at)),
                1 => {
                    let (from, to) = self.network.busy[at];
                    if self.is_slow(from.0 * 7 + to.0) {
                        continue;
                    }
                    let cut = self.cut();
                    self.network.deliver(from, to, cut);
                    self.after(to, cut);
                }
                2 => {
                    let (to, ended) = self.network.news[at];
                    if !self.network.can_publish((to, ended)) || self.is_slow(to.0 * 5 + ended.0 + 32) {
                        continue;
                    }
                    let cut = self.cut();
                    self.network.publish(to, ended, cut);
                    self.after(to, cut);
                }
                _ => {
                    let (rank, cut) = (self.network.questions[at].from, self.cut());
                    self.network.answer(at, cut);
                    self.after(rank, cut);
                }
            }
            self.spontaneous();
            let network = &self.network;
            idle.retain(|&rank| network.lives(rank));
            let is_idle = |rank: Rank| network.lives(rank) && !network.member(rank).is_running();
            let wants = |rank: Rank| network.decisions(rank).len() < self.agreements.len();
            let more: Vec<_> = network
                .ranks()
                .filter(|&rank| is_idle(rank) && wants(rank) && !idle.contains(&rank))
                .collect();
            idle.extend(more);
        }
    }

    fn start(&mut self, rank: Rank) {
        let (op, uniform) = self.agreements[self.network.decisions(rank).len()];
        let acknowledged = match self.random.below(8) {
            0 => SetHash(self.random.bits()),
            1 | 2 => {
                self.network.decisions(rank).last().map_or(SetHash::default(), |last| last.failed.hash())
            }
            _ => self.network.known(rank),
        };
        let cut = self.cut();
        self.network.start(rank, Contribution { value: coded(op, rank), op, acknowledged, uniform }, cut);
        self.after(rank, cut);
    }

    fn is_slow(&mut self, class: u32) -> bool {
        self.slow >> (class % 64) & 1 == 1 && !self.random.once_in(16)
    }

    fn cut(&mut self) -> Option<Cut> {
        let fails = self.fails_left > 0 && self.random.once_in(self.fails_once_in);
        fails.then(|| Cut { sends: self.random.below(6) as usize, returns: self.random.once_in(2) })
    }

    fn after(&mut self, rank: Rank, cut: Option<Cut>) {
        if cut.is_some() {
            self.fail(rank);
        }
    }

    fn fail(&mut self, rank: Rank) {
        self.fails_left -= 1;
        let (random, loses) = (&mut self.random, self.loses);
        self.network.fail(rank, |length| if loses { random.below(length as u64 + 1) as usize } else { 0 });
    }

    /// A member fails or departs between two events.
    fn spontaneous(&mut self) {
        let living: Vec<Rank> = self.network.ranks().filter(|&rank| self.network.lives(rank)).collect();
        if living.is_empty() {
            return;
        }
        let rank = living[self.random.below(living.len() as u64) as usize];
        if self.fails_left > 0 && self.random.once_in(2 * self.fails_once_in) {
            self.fail(rank);
        } else if self.departs_left > 0 && !self.network.member(rank).is_running() && self.random.once_in(8) {
            self.departs_left -= 1;
            self.network.depart(rank);
        }
    }
}

fn run(seed: u64) -> Network {
    let mut random = Random(!seed);
    let size = 1 + random.below(16) as u32;
    let fails = random.below(u64::from(size) + 1);
    let departs = if random.once_in(3) { random.below(u64::from(size)) } else { 0 };
    Schedule::new(seed, size, fails, departs).run()
}

#[test]
fn members_that_survive_agree_under_random_schedules() {
    let seed = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (first, count) =
        (seed("MEND_AGREEMENT_FIRST").unwrap_or(0), seed("MEND_AGREEMENT_SEEDS").unwrap_or(SEEDS));
    let mut failing = 0;
    let mut ends = [0, 0];
    for seed in first..first + count {
        let result = std::panic::catch_unwind(|| {
            let network = run(seed);
            network.check_end();
            let count = |life| network.ranks().filter(|&rank| network.life(rank) == life).count();
            [count(Life::Failed), count(Life::Departed)]
        });
        match result {
            Ok(counts) => (0..2).for_each(|at| ends[at] += counts[at]),
            Err(_) => {
                failing += 1;
                println!("MEND_AGREEMENT_FIRST={seed} MEND_AGREEMENT_SEEDS=1 fails");
            }
        }
    }
    println!("{count} seeds, {} failures, {} departures: {failing} seeds fail", ends[0], ends[1]);
    assert_eq!(failing, 0);
}

#[test]
fn without_failures_an_agreement_takes_two_messages_for_each_member_but_the_root() {
    for seed in 0..2_000 {
        let size = 1 + seed as u32 % 16;
        let schedule = Schedule::new(seed, size, 0, 0);
        let half_trees: u64 =
            schedule.agreements.iter().map(|&(_, uniform)| if uniform { 4 } else { 2 }).sum();
        let network = schedule.run();
        network.check_end();
        assert_eq!(network.sent, half_trees * u64::from(size - 1));
    }
}

/// Seeds of one run of the unit tests.
const SEEDS: u64 = 100_000;
