// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bounds within which the models are checked.

use super::agreements::Agreements;
use super::identities::Identities;
use super::shrinks::Shrinks;
use super::spreads::Spreads;
use super::votes::Votes;
use super::{Count, Limits, Model, Violation, check};
use mend_proto::tree::Shape;

/// One model with its bounds.
pub struct Check {
    /// The protocol and its bounds.
    pub name: String,
    run: Box<dyn Fn(Limits) -> Checked>,
}

/// The result of a check; `None`: the limit on states was reached.
pub type Checked = Result<Option<Count>, Box<Violation>>;

impl Check {
    fn new<M: Model + 'static>(name: String, model: M) -> Self {
        Check { name, run: Box::new(move |limits| check(&model, limits)) }
    }

    /// Visits all its states.
    pub fn run(&self, limits: Limits) -> Checked {
        (self.run)(limits)
    }
}

/// What unit tests check, in some seconds.
pub fn small() -> Vec<Check> {
    let mut checks = Vec::new();
    for shape in SHAPES {
        let votes = Votes {
            size: 3,
            shape,
            rounds: 2,
            crashes: 2,
            departures: 0,
            opposes: true,
            revokes: false,
            leaves: 0,
        };
        checks.push(vote(votes));
        checks.push(vote(Votes { size: 4, crashes: 3, opposes: false, ..votes }));
        checks.push(vote(Votes { rounds: 3, crashes: 0, ..votes }));
        checks.push(vote(Votes { departures: 1, ..votes }));
        checks.push(vote(Votes { opposes: false, revokes: true, ..votes }));
        checks.push(vote(Votes { leaves: 1, ..votes }));
        checks.push(vote(Votes { crashes: 0, leaves: 3, ..votes }));
        let agreements = Agreements {
            size: 3,
            shape,
            agreements: 2,
            crashes: 2,
            departures: 0,
            uniform: false,
            acknowledges: true,
        };
        checks.push(agreement(agreements));
        checks.push(agreement(Agreements { uniform: true, ..agreements }));
        checks.push(agreement(Agreements { departures: 1, ..agreements }));
    }
    let spreads = Spreads {
        size: 3,
        crashes: 2,
        late: 0,
        revokers: 1,
        suspecting: 0,
        frees: true,
        overtakes: true,
        eager: true,
    };
    checks.push(spread(Spreads { crashes: 1, ..spreads }));
    checks.push(spread(Spreads { crashes: 0, late: 1, ..spreads }));
    checks.push(spread(Spreads { size: 2, crashes: 1, suspecting: 1, eager: false, ..spreads }));
    checks.push(spread(Spreads { eager: false, frees: false, ..spreads }));
    checks.push(spread(Spreads { suspecting: 1, frees: false, ..spreads }));
    checks.push(spread(Spreads { size: 4, crashes: 1, overtakes: false, frees: false, ..spreads }));
    checks.push(shrink(Shrinks { size: 3, shape: Shape::Nomial(2), shrinks: 2, crashes: 2 }));
    let identities = Identities { size: 2, crashes: 1, ids: 1, sends: 2, senders: 1 };
    checks.push(identity(identities));
    checks.push(identity(Identities { sends: 1, senders: 2, ..identities }));
    checks
}

/// What the soak checks.
pub fn full() -> Vec<Check> {
    let mut checks = Vec::new();
    for shape in SHAPES {
        checks.extend(full_votes(shape).map(vote));
        for uniform in [false, true] {
            let agreements = Agreements {
                size: 4,
                shape,
                agreements: 2,
                crashes: 3,
                departures: 0,
                uniform,
                acknowledges: true,
            };
            checks.push(agreement(agreements));
            checks.push(agreement(Agreements { size: 3, agreements: 3, ..agreements }));
            checks.push(agreement(Agreements { crashes: 2, departures: 2, ..agreements }));
            checks.push(agreement(Agreements { size: 5, agreements: 1, crashes: 2, ..agreements }));
        }
    }
    let spreads = Spreads {
        size: 4,
        crashes: 3,
        late: 0,
        revokers: 1,
        suspecting: 0,
        frees: false,
        overtakes: true,
        eager: true,
    };
    checks.push(spread(spreads));
    checks.push(spread(Spreads { overtakes: false, ..spreads }));
    checks.push(spread(Spreads { crashes: 0, revokers: 4, ..spreads }));
    checks.push(spread(Spreads { crashes: 1, late: 1, ..spreads }));
    checks.push(spread(Spreads { size: 3, crashes: 2, eager: false, ..spreads }));
    checks.push(spread(Spreads { size: 3, crashes: 2, eager: false, frees: true, ..spreads }));
    checks.push(spread(Spreads { size: 3, crashes: 2, revokers: 2, frees: true, ..spreads }));
    checks.push(spread(Spreads { size: 3, crashes: 2, late: 2, frees: true, ..spreads }));
    checks.push(spread(Spreads { size: 3, crashes: 2, suspecting: 1, ..spreads }));
    for shape in SHAPES {
        checks.push(shrink(Shrinks { size: 4, shape, shrinks: 2, crashes: 3 }));
        checks.push(shrink(Shrinks { size: 3, shape, shrinks: 3, crashes: 2 }));
        checks.push(shrink(Shrinks { size: 4, shape, shrinks: 3, crashes: 3 }));
        checks.push(shrink(Shrinks { size: 5, shape, shrinks: 2, crashes: 3 }));
    }
    let identities = Identities { size: 2, crashes: 1, ids: 1, sends: 3, senders: 2 };
    checks.push(identity(identities));
    checks.push(identity(Identities { ids: 2, ..identities }));
    checks.push(identity(Identities { size: 3, crashes: 2, sends: 1, senders: 1, ..identities }));
    checks.push(identity(Identities { size: 3, crashes: 2, sends: 2, senders: 1, ..identities }));
    checks.push(identity(Identities { size: 3, crashes: 2, sends: 1, senders: 2, ..identities }));
    checks.push(identity(Identities { size: 4, crashes: 3, sends: 1, senders: 1, ..identities }));
    checks
}

/// What the soak checks of votes.
fn full_votes(shape: Shape) -> impl Iterator<Item = Votes> {
    let votes = Votes {
        size: 4,
        shape,
        rounds: 2,
        crashes: 3,
        departures: 0,
        opposes: true,
        revokes: false,
        leaves: 0,
    };
    [
        votes,
        Votes { rounds: 3, opposes: false, ..votes },
        Votes { opposes: false, revokes: true, ..votes },
        Votes { size: 3, revokes: true, departures: 1, ..votes },
        Votes { crashes: 2, departures: 2, ..votes },
        Votes { size: 5, rounds: 1, crashes: 2, ..votes },
        Votes { size: 5, crashes: 2, opposes: false, ..votes },
        Votes { size: 6, rounds: 1, crashes: 2, opposes: false, ..votes },
        Votes { leaves: 1, ..votes },
        Votes { opposes: false, leaves: 2, ..votes },
        Votes { crashes: 0, leaves: 4, ..votes },
        Votes { size: 3, rounds: 3, crashes: 2, leaves: 3, ..votes },
        Votes { size: 3, crashes: 2, revokes: true, departures: 1, leaves: 2, ..votes },
    ]
    .into_iter()
}

fn vote(votes: Votes) -> Check {
    let Votes { size, shape, rounds, crashes, departures, opposes, revokes, leaves } = votes;
    let more = [(opposes, ", each may vote no"), (revokes, ", one may revoke")];
    let leaves = if leaves == 0 { String::new() } else { format!(", {leaves} may leave the votes") };
    let members = members(size, shape, crashes, departures);
    let name = format!("vote: {members}, {rounds} rounds{}{leaves}", said(more));
    Check::new(name, votes)
}

fn agreement(agreements: Agreements) -> Check {
    let Agreements { size, shape, agreements: number, crashes, departures, uniform, acknowledges } =
        agreements;
    let more = [(uniform, ", uniform"), (acknowledges, ", failures may be unacknowledged")];
    let members = members(size, shape, crashes, departures);
    let name = format!("agreement: {members}, {number} in a row{}", said(more));
    Check::new(name, agreements)
}

fn spread(spreads: Spreads) -> Check {
    let Spreads { size, crashes, late, revokers, suspecting, frees, overtakes, eager } = spreads;
    let more =
        [(frees, ", each may free"), (overtakes, ", news may overtake"), (eager, ", sent with each event")];
    let items = format!("{revokers} may revoke, {suspecting} may suspect, {late} not created");
    Check::new(format!("spread: {size} members, {crashes} crashes, {items}{}", said(more)), spreads)
}

fn shrink(shrinks: Shrinks) -> Check {
    let Shrinks { size, shape, shrinks: number, crashes } = shrinks;
    Check::new(format!("shrink: {}, {number} in a row", members(size, shape, crashes, 0)), shrinks)
}

fn identity(identities: Identities) -> Check {
    let Identities { size, crashes, ids, sends, senders } = identities;
    let name = format!(
        "identity: {size} members, {crashes} crashes, 2 communicators, {ids} ids, {senders} send {sends}"
    );
    Check::new(name, identities)
}

fn members(size: u32, shape: Shape, crashes: u32, departures: u32) -> String {
    let shape = match shape {
        Shape::Chain => "chain".to_owned(),
        Shape::Binary => "binary tree".to_owned(),
        Shape::Nomial(radix) => format!("{radix}-nomial tree"),
    };
    let departures = if departures == 0 { String::new() } else { format!(", {departures} departures") };
    format!("{size} members, {shape}, {crashes} crashes{departures}")
}

fn said<const N: usize>(more: [(bool, &str); N]) -> String {
    more.into_iter().filter_map(|(is_so, words)| is_so.then_some(words)).collect()
}

/// In the binomial tree of four members, and in none of the others up to five, a member that loses the first root has a child.
const SHAPES: [Shape; 4] = [Shape::Chain, Shape::Binary, Shape::Nomial(4), Shape::Nomial(2)];

#[cfg(test)]
mod tests {
    use super::small;
    use crate::explore::Limits;

    fn check_all(protocol: &str) {
        for check in small().into_iter().filter(|check| check.name.starts_with(protocol)) {
            match check.run(Limits::default()) {
                Ok(count) => println!("{}: {}", check.name, count.expect("there is no limit")),
                Err(violation) => panic!("{}: {violation}", check.name),
            }
        }
    }

    #[test]
    fn votes_agree_and_end() {
        check_all("vote");
    }

    #[test]
    fn agreements_agree_and_end() {
        check_all("agreement");
    }

    #[test]
    fn no_identity_is_used_twice_by_shrinks() {
        check_all("shrink");
    }

    #[test]
    fn no_context_id_is_used_again_while_anybody_may_use_it() {
        check_all("identity");
    }

    #[test]
    fn every_member_gets_every_item_and_parts_end() {
        check_all("spread");
    }
}
