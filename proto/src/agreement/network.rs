// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The members of a communicator, the channels between them and a node daemon, for the tests of agreements. Each decision that
//! a member returns is checked at that moment.

use super::{Agreement, AgreementId, Contribution, Decision, Message, Op, Output};
use crate::protocol::Protocol;
use crate::ranks::{Ranks, SetHash};
use crate::tree::Shape;
use mend_base::Rank;
use std::collections::VecDeque;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    Lives,
    Failed,
    Departed,
}

/// A member fails while it does what an event made it do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Messages that it sends before.
    pub(super) sends: usize,
    /// Whether its program got the decision before.
    pub(super) returns: bool,
}

/// A question to the node daemon.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) from: Rank,
    sequence: u32,
    answer: Option<Decision>,
}

pub(super) struct Network {
    size: u32,
    members: Vec<Agreement>,
    lives: Vec<Life>,
    channels: Vec<VecDeque<Message>>,
    /// The channels that are not empty.
    pub(super) busy: Vec<(Rank, Rank)>,
    /// Ends that are still to be published: where, and whose.
    pub(super) news: Vec<(Rank, Rank)>,
    pub(super) questions: Vec<Question>,
    /// Of each member: what it contributed, and what it returned.
    contributions: Vec<Vec<Contribution>>,
    decisions: Vec<Vec<Decision>>,
    /// What the members that left MPI have left with the node daemon.
    left: Vec<(u32, Decision)>,
    pub(super) sent: u64,
    first_sequence: u32,
}

impl Network {
    pub(super) fn new(size: u32, shape: Shape) -> Self {
        Self::at(0, size, shape)
    }

    /// All members have passed the agreements before this one.
    pub(super) fn at(sequence: u32, size: u32, shape: Shape) -> Self {
        let member = |rank| Agreement { sequence, ..Agreement::new(Rank(rank), size, shape) };
        let count = size as usize;
        Network {
            size,
            members: (0..size).map(member).collect(),
            lives: vec![Life::Lives; count],
            channels: vec![VecDeque::new(); count * count],
            busy: Vec::new(),
            news: Vec::new(),
            questions: Vec::new(),
            contributions: vec![Vec::new(); count],
            decisions: vec![Vec::new(); count],
            left: Vec::new(),
            sent: 0,
            first_sequence: sequence,
        }
    }

    pub(super) fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.size).map(Rank)
    }

    pub(super) fn member(&self, rank: Rank) -> &Agreement {
        &self.members[rank.index()]
    }

    pub(super) fn life(&self, rank: Rank) -> Life {
        self.lives[rank.index()]
    }

    pub(super) fn lives(&self, rank: Rank) -> bool {
        self.life(rank) == Life::Lives
    }

    pub(super) fn decisions(&self, rank: Rank) -> &[Decision] {
        &self.decisions[rank.index()]
    }

    pub(super) fn channel(&mut self, from: Rank, to: Rank) -> &mut VecDeque<Message> {
        &mut self.channels[from.index() * self.size as usize + to.index()]
    }

    pub(super) fn start(&mut self, rank: Rank, contribution: Contribution, cut: Option<Cut>) {
        self.contributions[rank.index()].push(contribution);
        self.act(rank, cut, |member, out| member.start(contribution, out));
    }

    pub(super) fn contribute_in_absentia(
        &mut self,
        rank: u32,
        contribution: Contribution,
        cycle: &[AgreementId],
    ) {
        self.contributions[rank as usize].push(contribution);
        self.act(Rank(rank), None, |member, out| member.contribute_in_absentia(contribution, cycle, out));
    }

    /// The next message from one member arrives at another.
    pub(super) fn deliver(&mut self, from: Rank, to: Rank, cut: Option<Cut>) {
        let message =
            self.channel(from, to).pop_front().unwrap_or_else(|| panic!("nothing from {from:?} to {to:?}"));
        if self.channel(from, to).is_empty() {
            self.busy.retain(|&pair| pair != (from, to));
        }
        self.act(to, cut, |member, out| member.on_message(from, message, out));
    }

    /// A member fails. `lost` says how many of the messages on the way to a member are lost with it: the last ones.
    pub(super) fn fail(&mut self, rank: Rank, mut lost: impl FnMut(Rank, usize) -> usize) {
        for to in self.ranks() {
            let channel = self.channel(rank, to);
            let kept = channel.len() - lost(to, channel.len());
            channel.truncate(kept);
        }
        self.end(rank, Life::Failed);
    }

    /// A member leaves MPI. The node daemon gets its last decision first.
    pub(super) fn depart(&mut self, rank: Rank) {
        let last = self.member(rank).last().map(|(sequence, decision)| (sequence, decision.clone()));
        self.left.extend(last);
        self.end(rank, Life::Departed);
    }

    fn end(&mut self, rank: Rank, life: Life) {
        assert!(self.lives(rank) && (life == Life::Failed || !self.member(rank).is_running()));
        self.lives[rank.index()] = life;
        for other in self.ranks() {
            self.channel(other, rank).clear();
        }
        self.news.retain(|&(at, _)| at != rank);
        self.questions.retain(|question| question.from != rank);
        let channels = &self.channels;
        let size = self.size as usize;
        self.busy.retain(|(from, to)| !channels[from.index() * size + to.index()].is_empty());
        let told: Vec<Rank> = self.ranks().filter(|&at| self.lives(at)).collect();
        self.news.extend(told.into_iter().map(|at| (at, rank)));
    }

    /// Whether the end can be published there: all messages have arrived.
    pub(super) fn can_publish(&mut self, (at, ended): (Rank, Rank)) -> bool {
        self.channel(ended, at).is_empty()
    }

    /// The end of a member is published at another.
    pub(super) fn publish(&mut self, at: Rank, ended: Rank, cut: Option<Cut>) {
        assert!(self.can_publish((at, ended)));
        self.news.retain(|&news| news != (at, ended));
        let life = self.life(ended);
        self.act(at, cut, |member, out| match life {
            Life::Failed => member.on_failure(ended, out),
            Life::Departed => member.on_departure(ended, out),
            Life::Lives => panic!("{ended:?} lives"),
        });
    }

    /// The node daemon answers the question at this place.
    pub(super) fn answer(&mut self, at: usize, cut: Option<Cut>) {
        let Question { from, sequence, answer } = self.questions.swap_remove(at);
        self.act(from, cut, |member, out| member.on_recalled(sequence, answer, out));
    }

    /// Everything that can happen happens, without further ends.
    pub(super) fn settle(&mut self) {
        loop {
            if let Some(&(from, to)) = self.busy.first() {
                self.deliver(from, to, None);
            } else if let Some(&(at, ended)) = self.news.first() {
                self.publish(at, ended, None);
            } else if !self.questions.is_empty() {
                self.answer(0, None);
            } else {
                break;
            }
        }
    }

    fn act(&mut self, rank: Rank, cut: Option<Cut>, event: impl FnOnce(&mut Agreement, &mut Output)) {
        assert!(self.lives(rank), "{rank:?} does not live");
        let mut out = Output::new();
        event(&mut self.members[rank.index()], &mut out);
        assert!(out.outcomes.len() <= 1);
        let sends = cut.map_or(usize::MAX, |cut| cut.sends);
        for (to, message) in out.sends.drain(..).take(sends) {
            assert!(to != rank && to.0 < self.size, "{rank:?} sends to {to:?}");
            self.sent += 1;
            if self.lives(to) {
                let channel = self.channel(rank, to);
                channel.push_back(message);
                if channel.len() == 1 {
                    self.busy.push((rank, to));
                }
            }
        }
        if cut.is_none_or(|cut| cut.returns) {
            for decision in out.outcomes {
                self.check(rank, &decision);
                self.decisions[rank.index()].push(decision);
            }
        }
        if let (None, Some(sequence)) = (cut, self.members[rank.index()].take_recall()) {
            let known = self.left.iter().find(|left| left.0 == sequence);
            self.questions.push(Question { from: rank, sequence, answer: known.map(|left| left.1.clone()) });
        }
    }

    /// The contributions of one agreement that are counted in a value; `None`: the value of this operation does not tell.
    fn counted(&self, number: usize, value: u64) -> Option<Vec<Rank>> {
        let op = self.contributions.iter().find_map(|all| all.get(number)).map(|each| each.op)?;
        let is_counted = |rank: Rank| match op {
            Op::And => value >> rank.0 & 1 == 0,
            Op::Or | Op::Xor => value >> rank.0 & 1 == 1,
            Op::Sum => value >> (4 * rank.0) & 15 == 1,
            _ => false,
        };
        let counted: Vec<Rank> = self.ranks().filter(|&rank| is_counted(rank)).collect();
        let once: u64 = counted.iter().fold(if op == Op::And { u64::MAX } else { 0 }, |sum, &rank| {
            if op == Op::And { sum & coded(op, rank) } else { sum + coded(op, rank) }
        });
        if op == Op::First {
            return None;
        }
        assert_eq!(value, once, "a contribution to {op:?} is counted twice");
        Some(counted)
    }

    /// What a member returns is right.
    fn check(&self, rank: Rank, decision: &Decision) {
        let number = self.decisions[rank.index()].len();
        let (uniform, op) =
            (self.contributions[rank.index()][number].uniform, self.contributions[rank.index()][number].op);
        for other in self.ranks() {
            let others = self.decisions[other.index()].get(number);
            let binds = uniform || self.life(other) != Life::Failed;
            assert!(
                !binds || others.is_none_or(|others| others == decision),
                "{rank:?} and {other:?} differ"
            );
        }
        let has_started = |rank: Rank| self.contributions[rank.index()].len() > number;
        let before = number.checked_sub(1).map(|before| &self.decisions[rank.index()][before].failed);
        assert!(before.is_none_or(|before| before.iter().all(|failed| decision.failed.contains(failed))));
        for failed in decision.failed.iter() {
            assert_eq!(self.life(failed), Life::Failed, "{failed:?} is decided to have failed");
        }
        let is_excused = |rank: Rank| {
            decision.failed.contains(rank) || decision.departed && self.life(rank) == Life::Departed
        };
        let Some(counted) = self.counted(number, decision.value) else {
            assert_eq!(op, Op::First);
            let first = Rank(decision.value as u32);
            assert!(has_started(first) && first <= rank);
            assert!((0..first.0).map(Rank).all(is_excused), "{first:?} is not the first");
            return;
        };
        assert!(counted.iter().all(|&rank| has_started(rank)));
        for other in self.ranks().filter(|rank| !counted.contains(rank)) {
            assert!(!self.lives(other), "{other:?} lives and is not counted");
            assert!(is_excused(other), "{other:?} is not counted, and neither failed nor departed");
        }
        let absent = |rank: &Rank| self.life(*rank) == Life::Departed && !counted.contains(rank);
        assert_eq!(decision.departed, decision.departed && self.ranks().any(|rank| absent(&rank)));
        let hash = decision.failed.hash();
        let equal = counted.iter().all(|rank| self.contributions[rank.index()][number].acknowledged == hash);
        assert_eq!(decision.acknowledged, equal, "acknowledged by all contributors");
    }

    /// Nothing runs, and members hold nothing but the last decision.
    pub(super) fn check_end(&self) {
        for member in self.ranks().filter(|&rank| self.lives(rank)).map(|rank| self.member(rank)) {
            let me = member.members.me();
            assert_eq!(member.state, super::State::NotContributed, "{me:?}");
            assert_eq!(member.records, super::Records::default(), "{me:?}");
            assert!(member.requests.is_empty(), "{me:?}");
            let passed = self.decisions[me.index()].len() as u32;
            assert_eq!(member.sequence, self.first_sequence.wrapping_add(passed), "{me:?}");
            let excluded = self.decisions[me.index()].last().map_or(Ranks::new(), |last| last.failed.clone());
            assert_eq!(*member.members.excluded(), excluded, "{me:?}");
        }
    }

    /// The hash of the failures that are known at a member.
    pub(super) fn known(&self, rank: Rank) -> SetHash {
        let members = &self.member(rank).members;
        members.excluded().iter().chain(members.failed().iter()).collect::<Ranks>().hash()
    }
}

/// What a rank contributes so that the result tells who was counted.
pub(super) fn coded(op: Op, rank: Rank) -> u64 {
    match op {
        Op::And => !(1 << rank.0),
        Op::Or | Op::Xor => 1 << rank.0,
        Op::Sum => 1 << (4 * rank.0),
        _ => u64::from(rank.0),
    }
}
