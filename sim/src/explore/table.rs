// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bounds within which the models are checked.

use super::agreements::Agreements;
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
        let votes =
            Votes { size: 3, shape, rounds: 2, crashes: 2, departures: 0, opposes: true, revokes: false };
        checks.push(vote(votes));
        checks.push(vote(Votes { size: 4, crashes: 3, opposes: false, ..votes }));
        checks.push(vote(Votes { rounds: 3, crashes: 0, ..votes }));
        checks.push(vote(Votes { departures: 1, ..votes }));
        checks.push(vote(Votes { opposes: false, revokes: true, ..votes }));
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
    checks
}

/// What the soak checks.
pub fn full() -> Vec<Check> {
    let mut checks = Vec::new();
    for shape in SHAPES {
        let votes =
            Votes { size: 4, shape, rounds: 2, crashes: 3, departures: 0, opposes: true, revokes: false };
        checks.push(vote(votes));
        checks.push(vote(Votes { rounds: 3, opposes: false, ..votes }));
        checks.push(vote(Votes { opposes: false, revokes: true, ..votes }));
        checks.push(vote(Votes { size: 3, revokes: true, departures: 1, ..votes }));
        checks.push(vote(Votes { crashes: 2, departures: 2, ..votes }));
        checks.push(vote(Votes { size: 5, rounds: 1, crashes: 2, ..votes }));
        checks.push(vote(Votes { size: 5, crashes: 2, opposes: false, ..votes }));
        checks.push(vote(Votes { size: 6, rounds: 1, crashes: 2, opposes: false, ..votes }));
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
    checks
}

fn vote(votes: Votes) -> Check {
    let Votes { size, shape, rounds, crashes, departures, opposes, revokes } = votes;
    let more = [(opposes, ", each may vote no"), (revokes, ", one may revoke")];
    let name = format!("vote: {}, {rounds} rounds{}", members(size, shape, crashes, departures), said(more));
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

fn members(size: u32, shape: Shape, crashes: u32, departures: u32) -> String {
    let shape = match shape {
        Shape::Chain => "chain".to_owned(),
        Shape::Binary => "binary tree".to_owned(),
        Shape::Nomial(radix) => format!("{radix}-nomial tree"),
    };
    let departures = if departures == 0 { String::new() } else { format!(", {departures} departures") };
    format!("{size} members, {shape}, {crashes} crashes{departures}")
}

fn said(more: [(bool, &str); 2]) -> String {
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
}
