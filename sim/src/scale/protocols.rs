// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is executed: members that do one thing with the production state machines.

use super::cost::Cost;
use super::execution::{Execution, Member, Sends, Totals};
use mend_base::{Duration, Instant, Rank, Wire, Writer};
use mend_proto::agreement::{self, Agreement, Contribution, Decision, Op};
use mend_proto::detector::{self, Config, Detector, Lease, Outcome, Presence};
use mend_proto::protocol::{Output, Protocol};
use mend_proto::ranks::SetHash;
use mend_proto::spread::{self, Item, Spread};
use mend_proto::tree::Shape;

/// One of the things that are executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// MPIX_Comm_agree, without a failure.
    Agree,
    /// The same in uniform mode.
    AgreeUniformly,
    /// MPIX_Comm_shrink, after one failure that all members know.
    Shrink,
    /// MPIX_Comm_revoke by one member.
    Revoke,
    /// The heartbeat ring finds a crash, and all members are told.
    Detect,
}

impl What {
    /// All of them.
    pub const ALL: [What; 5] = [What::Agree, What::AgreeUniformly, What::Shrink, What::Revoke, What::Detect];

    /// As tables name it.
    pub fn name(self) -> &'static str {
        match self {
            What::Agree => "agree",
            What::AgreeUniformly => "agree, uniform",
            What::Shrink => "shrink",
            What::Revoke => "revoke",
            What::Detect => "detect",
        }
    }

    /// Executes it with `n` members, at least 2; shrink with at least 3.
    pub fn execute(self, n: u32, cost: Cost) -> Result<Totals, String> {
        match self {
            What::Agree => Execution::new(cost, agreeing(n, Op::And, false, None)).finish(None),
            What::AgreeUniformly => Execution::new(cost, agreeing(n, Op::And, true, None)).finish(None),
            What::Shrink => {
                let failed = Rank(n / 2);
                Execution::new(cost, agreeing(n, Op::First, false, Some(failed))).finish(Some(failed))
            }
            What::Revoke => {
                let members = (0..n).map(|rank| Revoking::new(Rank(rank), n)).collect();
                Execution::new(cost, members).finish(None)
            }
            What::Detect => detect(n, cost),
        }
    }
}

impl<P: Member> Execution<P> {
    fn finish(mut self, failed: Option<Rank>) -> Result<Totals, String> {
        if let Some(failed) = failed {
            self.crash(failed);
        }
        match self.run_until_done(Instant(0)) {
            true => Ok(self.totals()),
            false => Err("a member waits for ever".to_owned()),
        }
    }
}

fn encoded<W>(write: impl FnOnce(&mut Writer<'_>) -> W) -> usize {
    let mut bytes = [0; 64];
    let mut out = Writer::new(&mut bytes);
    write(&mut out);
    out.used()
}

/// A member of an agreement.
struct Agreeing {
    machine: Agreement,
    contribution: Contribution,
    has_started: bool,
    is_done: bool,
    out: Output<agreement::Message, Decision>,
}

fn agreeing(n: u32, op: Op, uniform: bool, failed: Option<Rank>) -> Vec<Agreeing> {
    let contribution = Contribution { value: u64::MAX, op, acknowledged: SetHash::default(), uniform };
    let member = |rank| {
        let mut machine = Agreement::new(rank, n, Shape::USUAL);
        let mut out = Output::new();
        if let Some(failed) = failed.filter(|&failed| failed != rank) {
            machine.on_failure(failed, &mut out);
        }
        Agreeing { machine, contribution, has_started: false, is_done: false, out }
    };
    (0..n).map(|rank| member(Rank(rank))).collect()
}

impl Agreeing {
    fn take(&mut self, sends: &mut Sends<agreement::Message>) {
        sends.append(&mut self.out.sends);
        self.is_done |= !self.out.outcomes.is_empty();
    }
}

impl Member for Agreeing {
    type Message = agreement::Message;

    fn on_message(
        &mut self,
        _: Instant,
        from: Rank,
        message: Self::Message,
        sends: &mut Sends<Self::Message>,
    ) {
        self.machine.on_message(from, message, &mut self.out);
        self.take(sends);
    }

    fn on_turn(&mut self, _: Instant, sends: &mut Sends<Self::Message>) {
        if !std::mem::replace(&mut self.has_started, true) {
            self.machine.start(self.contribution, &mut self.out);
        }
        self.take(sends);
    }

    fn is_done(&self) -> bool {
        self.is_done
    }

    fn bytes(message: &Self::Message) -> usize {
        encoded(|out| message.write(out))
    }
}

/// A member of a communicator that member 0 revokes.
struct Revoking {
    machine: Spread,
    revokes: bool,
    out: Output<spread::Message, Item>,
}

impl Revoking {
    fn new(me: Rank, n: u32) -> Self {
        Revoking { machine: Spread::new(me, n), revokes: me == Rank(0), out: Output::new() }
    }
}

impl Member for Revoking {
    type Message = spread::Message;

    fn on_message(
        &mut self,
        _: Instant,
        from: Rank,
        message: Self::Message,
        sends: &mut Sends<Self::Message>,
    ) {
        self.machine.on_message(from, message, &mut self.out);
        sends.append(&mut self.out.sends);
    }

    fn on_turn(&mut self, _: Instant, sends: &mut Sends<Self::Message>) {
        if std::mem::take(&mut self.revokes) {
            self.machine.add(Item::Revoked, &mut self.out);
        }
        self.machine.flush(&mut self.out);
        sends.append(&mut self.out.sends);
    }

    fn is_done(&self) -> bool {
        self.machine.is_revoked()
    }

    fn bytes(message: &Self::Message) -> usize {
        encoded(|out| message.write(out))
    }
}

/// The ring of the detection that is executed.
pub const RING: Config = Config {
    period: Duration::from_millis(25),
    timeout: Duration::from_millis(75),
    observers: 2,
    lease: Some(Lease { span: Duration::from_millis(150), margin: Duration::from_millis(25) }),
};

/// When the member dies.
const DEATH: Instant = Instant(RING.period.0 * 2 + RING.period.0 / 2);

/// A member of the heartbeat ring, which tells the others what it finds.
struct Observing {
    detector: Detector,
    spread: Spread,
    out: detector::Output,
    news: Output<spread::Message, Item>,
    is_told: bool,
}

enum RingMessage {
    Ring(detector::Message),
    News(spread::Message),
}

impl Observing {
    fn take(&mut self, sends: &mut Sends<RingMessage>) {
        sends.extend(self.out.sends.drain(..).map(|(to, message)| (to, RingMessage::Ring(message))));
        for outcome in self.out.outcomes.drain(..) {
            if let Outcome::Expired(rank) = outcome {
                self.spread.add(Item::Failed(rank), &mut self.news);
            }
        }
        sends.extend(self.news.sends.drain(..).map(|(to, message)| (to, RingMessage::News(message))));
        self.is_told |= !self.news.outcomes.is_empty();
    }
}

impl Member for Observing {
    type Message = RingMessage;

    fn on_message(&mut self, now: Instant, from: Rank, message: RingMessage, sends: &mut Sends<RingMessage>) {
        match message {
            RingMessage::Ring(message) => self.detector.on_message(now, from, message, &mut self.out),
            RingMessage::News(message) => self.spread.on_message(from, message, &mut self.news),
        }
        self.take(sends);
    }

    fn on_turn(&mut self, now: Instant, sends: &mut Sends<RingMessage>) {
        self.detector.on_timeout(now, &mut self.out);
        self.take(sends);
        self.spread.flush(&mut self.news);
        self.take(sends);
    }

    fn next_turn(&self) -> Option<Instant> {
        self.detector.next_timeout()
    }

    fn is_done(&self) -> bool {
        self.is_told
    }

    fn bytes(message: &RingMessage) -> usize {
        match message {
            RingMessage::Ring(message) => encoded(|out| message.write(out)),
            RingMessage::News(message) => encoded(|out| message.write(out)),
        }
    }

    fn is_counted(message: &RingMessage) -> bool {
        matches!(message, RingMessage::News(_))
    }
}

/// Messages that count are the news; the others are those of the ring in one period before the death.
fn detect(n: u32, cost: Cost) -> Result<Totals, String> {
    let member = |me| Observing {
        detector: Detector::new(Instant(0), me, n, RING, Presence::new(Instant(0))),
        spread: Spread::new(me, n),
        out: Output::new(),
        news: Output::new(),
        is_told: false,
    };
    let mut execution = Execution::new(cost, (0..n).map(|rank| member(Rank(rank))).collect());
    execution.run_until(Instant(DEATH.0 - RING.period.0));
    execution.restart_counting();
    execution.run_until(DEATH);
    let background = execution.totals().background;
    execution.crash(Rank(n / 2));
    match execution.run_until_done(DEATH) {
        true => Ok(Totals { background, ..execution.totals() }),
        false => Err("a member is not told".to_owned()),
    }
}
