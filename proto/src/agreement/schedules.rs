// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Agreements under random schedules: members start, fail (also between two sends of one event) and leave MPI at random
//! moments, and hear of it late and in different orders. One seed is one schedule.

use super::network::{Cut, Life, Network, coded};
use super::{AgreementId, Contribution, Op};
use crate::ranks::SetHash;
use crate::tree::Shape;
use mend_base::{Identity, Peer, Random, Rank};

const SHAPES: [Shape; 5] =
    [Shape::Chain, Shape::Binary, Shape::Nomial(2), Shape::Nomial(4), Shape::Nomial(8)];
const OPS: [Op; 5] = [Op::First, Op::And, Op::Or, Op::Xor, Op::Sum];

struct Schedule {
    random: Random,
    size: u64,
    network: Network,
    /// The members that will start an agreement.
    idle: Vec<Rank>,
    /// The agreements that each member takes part in.
    agreements: Vec<(Op, bool)>,
    fails_left: u64,
    departs_left: u64,
    /// An event is one that fails once in so many.
    fails_once_in: u64,
    /// Channels and news that are slow: a bit for each of 64 classes.
    slow: u64,
    loses: bool,
    /// Whether a member that returns is likely to fail or depart at once.
    ends_on_return: bool,
    /// Whether members contribute in absentia.
    crosses: bool,
}

impl Schedule {
    fn new(seed: u64, size: u32, fails: u64, departs: u64) -> Self {
        let mut random = Random(seed);
        let shape = SHAPES[random.below(5) as usize];
        let count = 1 + random.below(4);
        // Other values tell who is counted among 16 members at most.
        let ops = if size > 16 { &OPS[..1] } else { &OPS };
        let op = |random: &mut Random| ops[random.below(ops.len() as u64) as usize];
        let agreements = (0..count).map(|_| (op(&mut random), random.once_in(3))).collect();
        let slow = random.bits() & random.bits();
        let (fails_once_in, loses, ends_on_return) =
            (2 << random.below(7), random.once_in(2), random.once_in(3));
        let network = Network::new(size, shape);
        Schedule {
            random,
            size: u64::from(size),
            idle: network.ranks().collect(),
            network,
            agreements,
            fails_left: fails,
            departs_left: departs,
            fails_once_in,
            slow,
            loses,
            ends_on_return,
            crosses: false,
        }
    }

    fn run(mut self) -> Network {
        loop {
            let network = &self.network;
            let counts = [self.idle.len(), network.busy.len(), network.news.len(), network.questions.len()];
            let mut at = self.random.below(counts.iter().sum::<usize>() as u64) as usize;
            let kind = counts.iter().position(|&count| {
                let is_here = at < count;
                at -= if is_here { 0 } else { count };
                is_here
            });
            let Some(kind) = kind else { return self.network };
            if let Some(rank) = self.step(kind, at) {
                self.end_at_random();
                let network = &self.network;
                self.idle.retain(|&rank| network.lives(rank));
                let is_idle = network.lives(rank) && !network.member(rank).is_running();
                let wants_more = network.decisions(rank).len() < self.agreements.len();
                if is_idle && wants_more && !self.idle.contains(&rank) {
                    self.idle.push(rank);
                }
            }
        }
    }

    /// Something happens at a member, unless it comes too early. Returns the member.
    fn step(&mut self, kind: usize, at: usize) -> Option<Rank> {
        let cut = self.cut();
        let network = &mut self.network;
        let rank = match kind {
            0 => self.idle[at],
            1 => network.busy[at].1,
            2 => network.news[at].0,
            _ => network.questions[at].from,
        };
        let before = network.decisions(rank).len();
        match kind {
            0 => {
                self.idle.swap_remove(at);
                let contribution = self.contribution(rank);
                if self.crosses && cut.is_none() && self.random.once_in(8) {
                    let communicator = Identity { creator: Peer(9), number: self.random.below(3) as u32 };
                    let cycle = [AgreementId { communicator, sequence: 0 }];
                    self.network.contribute_in_absentia(rank.0, contribution, &cycle);
                } else {
                    self.network.start(rank, contribution, cut);
                }
            }
            1 => {
                let from = network.busy[at].0;
                if self.is_slow(from.0 * 7 + rank.0) {
                    return None;
                }
                self.network.deliver(from, rank, cut);
            }
            2 => {
                let news = network.news[at];
                if !network.can_publish(news) || self.is_slow(rank.0 * 5 + news.1.0 + 32) {
                    return None;
                }
                self.network.publish(rank, news.1, cut);
            }
            _ => network.answer(at, cut),
        }
        let returned = self.network.decisions(rank).len() > before;
        if cut.is_some() {
            self.fail(rank);
        } else if returned && self.ends_on_return && self.random.once_in(2) {
            if self.fails_left > 0 && self.random.once_in(2) {
                self.fail(rank);
            } else if self.departs_left > 0 {
                self.depart(rank);
            }
        }
        Some(rank)
    }

    fn contribution(&mut self, rank: Rank) -> Contribution {
        let (op, uniform) = self.agreements[self.network.decisions(rank).len()];
        let last = self.network.decisions(rank).last();
        let acknowledged = match self.random.below(8) {
            0 => SetHash(self.random.bits()),
            1 | 2 => last.map_or(SetHash::default(), |last| last.failed.hash()),
            _ => self.network.known(rank),
        };
        Contribution { value: coded(op, rank), op, acknowledged, uniform }
    }

    fn is_slow(&mut self, class: u32) -> bool {
        self.slow >> (class % 64) & 1 == 1 && !self.random.once_in(16)
    }

    fn cut(&mut self) -> Option<Cut> {
        let fails = self.fails_left > 0 && self.random.once_in(self.fails_once_in);
        fails.then(|| Cut { sends: self.random.below(6) as usize, returns: self.random.once_in(2) })
    }

    fn fail(&mut self, rank: Rank) {
        self.fails_left -= 1;
        let (random, loses) = (&mut self.random, self.loses);
        self.network.fail(rank, |_, length| if loses { random.below(length as u64 + 1) as usize } else { 0 });
    }

    /// A member fails or departs between two events.
    fn end_at_random(&mut self) {
        let rank = Rank(self.random.below(self.size) as u32);
        if !self.network.lives(rank) {
            return;
        }
        if self.fails_left > 0 && self.random.once_in(2 * self.fails_once_in) {
            self.fail(rank);
        } else if self.departs_left > 0 && !self.network.member(rank).is_running() && self.random.once_in(8) {
            self.depart(rank);
        }
    }

    fn depart(&mut self, rank: Rank) {
        self.departs_left -= 1;
        self.network.depart(rank);
    }
}

fn run(seed: u64) -> Network {
    let mut random = Random(!seed);
    let size = 1 + random.below(16) as u32;
    let fails = random.below(u64::from(size) + 1);
    let departs = if random.once_in(3) { random.below(u64::from(size)) } else { 0 };
    let crosses = random.once_in(4);
    Schedule { crosses, ..Schedule::new(seed, size, fails, departs) }.run()
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
fn many_members_agree_under_random_schedules() {
    for seed in 0..210 {
        let (size, fails) = (if seed < 200 { 64 } else { 256 }, Random(seed).below(16));
        let network = Schedule::new(seed, size, fails, seed % 4).run();
        network.check_end();
    }
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

/// Seeds of a run without `MEND_AGREEMENT_SEEDS`.
const SEEDS: u64 = 20_000;
