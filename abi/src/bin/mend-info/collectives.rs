// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which component serves which collective operation, and why.

use crate::facts::{Component, origin_words};
use mend_base::parameter::Settings;
use mend_coll::{Bid, COMPONENTS, Framework, SelectionError};

/// The component that serves an operation.
pub struct Choice {
    /// The operation, and for which jobs the row holds if not for all.
    pub operation: String,
    /// The component that has won.
    pub component: &'static str,
    /// Its priority, and what the others have bid.
    pub reason: String,
}

/// The collective components, with their priorities.
pub fn components(settings: &Settings) -> impl Iterator<Item = Component> {
    COMPONENTS.iter().map(|component| {
        let (priority, origin) = settings.text(component.priority);
        Component {
            framework: "coll",
            name: component.name,
            description: component.description,
            runs: Ok(format!("priority {priority} ({})", origin_words(origin))),
            offers: Vec::new(),
        }
    })
}

/// The winner of each operation on a communicator of several ranks; what differs without fault tolerance has a row of its own. `Err`: why a
/// rank refuses to start, unless it is in a job without fault tolerance, for which the rows are.
pub fn choices(settings: &Settings) -> (Vec<Choice>, Result<(), SelectionError>) {
    let rows = |fault_tolerant: bool| {
        Framework::new(settings, fault_tolerant).map(|framework| framework.bids(RANKS))
    };
    let (with, without) = (rows(true), rows(false));
    let refused = with.as_ref().map(|_| ()).map_err(|error| *error);
    let (with, without) = (with.unwrap_or_default(), without.unwrap_or_default());
    let mut choices: Vec<Choice> =
        with.iter().filter_map(|(name, bids)| choice((*name).to_owned(), bids)).collect();
    let differs = without.iter().filter(|row| !with.contains(row));
    choices.extend(differs.filter_map(|(name, bids)| choice(format!("{name} ({WITHOUT})"), bids)));
    (choices, refused)
}

fn choice(operation: String, bids: &[Bid]) -> Option<Choice> {
    let winner = bids.iter().find(|bid| bid.refusal.is_none())?;
    let others = bids.iter().filter(|bid| bid.component != winner.component);
    let others = others.map(|bid| match bid.refusal {
        Some(refusal) => format!("; {}: {refusal}", bid.component),
        None => format!("; {} bids with priority {}", bid.component, bid.priority),
    });
    let reason = format!("priority {}{}", winner.priority, others.collect::<String>());
    Some(Choice { operation, component: winner.component, reason })
}

/// The size of the communicator that is shown.
const RANKS: u32 = 4;

const WITHOUT: &str = "mpiexec --with-ft no";

#[cfg(test)]
mod tests {
    use super::choices;
    use mend_base::parameter::{Origin, Settings};
    use mend_coll::SelectionError;

    fn rows(assigned: &[(&str, &str)]) -> (Vec<String>, Result<(), SelectionError>) {
        let mut settings = Settings::new(mend_world::DECLARED);
        let assigned =
            assigned.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        settings.apply(Origin::Environment, &assigned).expect("the parameters take these values");
        let (choices, refused) = choices(&settings);
        let words = choices.iter().map(|row| format!("{}: {}, {}", row.operation, row.component, row.reason));
        (words.collect(), refused)
    }

    #[test]
    fn each_operation_has_a_winner_and_the_reason() {
        let (rows, refused) = rows(&[]);
        assert_eq!(refused, Ok(()));
        for row in [
            "barrier: basic, priority 10; ftagree: it only agrees",
            "agree, iagree: ftagree, priority 50; basic bids with priority 10",
            "agree, iagree (mpiexec --with-ft no): basic, priority 10; ftagree: the job is not fault tolerant",
        ] {
            assert!(rows.iter().any(|each| each == row), "{row} is not among {rows:#?}");
        }
    }

    #[test]
    fn a_choice_that_a_rank_refuses_is_a_problem_and_shows_what_would_run_without_fault_tolerance() {
        let (without_ftagree, refused) = rows(&[("coll", "^ftagree")]);
        assert_eq!(refused, Err(SelectionError::NoAgreement));
        let agree = "agree, iagree (mpiexec --with-ft no): basic, priority 10";
        assert!(without_ftagree.iter().any(|row| row == agree), "{without_ftagree:#?}");
        assert_eq!(rows(&[("coll", "^basic")]), (Vec::new(), Err(SelectionError::NoCollective)));
    }
}
