// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which component serves which operation of a communicator.
//!
//! ```text
//!   parameters coll, coll.NAME_priority ─▶ Framework ── select(size) ─▶ Selection, which the communicator has from its creation on
//!                                              ▲
//!                  each component of COMPONENTS bids for each operation: it serves it, or says why not
//! ```
//!
//! Of the components that the parameter `coll` allows and that bid for an operation, the one with the highest priority wins; of equal
//! priorities, the one that is first in [`COMPONENTS`]. `basic` bids for every operation of every communicator, so each has a winner.
//! A bid depends on what all members know alike ([`Facts`]), so all members select the same, as long as their parameters are the same.
//!
//! An algorithm that depends on the length of the data is chosen by the component that has won, when it builds a schedule.

use crate::component::{Agree, AgreeOn, Build, Component, Facts, Operation, Refusal};
use crate::parameters::PARAMETERS;
use crate::schedule::Builder;
use crate::{Collective, Error, Schedule, basic, ftagree};
use mend_base::Rank;
use mend_base::parameter::{Declared, Settings};
use mend_datatype::TypedBuffer;
use std::sync::Arc;

/// All components. `basic` is the last.
pub const COMPONENTS: &[Component] = &[ftagree::COMPONENT, basic::COMPONENT];

/// Why no engine starts with these parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SelectionError {
    /// `basic` is left out.
    #[error("E-INIT-003: MEND_COLL leaves no component for collective operations; drop it, or name basic")]
    NoCollective,
    /// `ftagree` is left out, and the job is fault tolerant.
    #[error(
        "E-INIT-006: MEND_COLL leaves ftagree out, and without it MPI_Comm_agree and MPI_Comm_shrink do not survive the failure of a \
         rank; allow ftagree, or give fault tolerance up by mpiexec --with-ft no"
    )]
    NoAgreement,
    /// Another component would agree, and the job is fault tolerant.
    #[error(
        "E-INIT-006: with these priorities {0} comes before ftagree, but if {0} agrees, MPI_Comm_agree and MPI_Comm_shrink do not \
         survive the failure of a rank; give MEND_COLL_FTAGREE_PRIORITY a higher value, or give fault tolerance up by mpiexec --with-ft no"
    )]
    Outbid(&'static str),
}

/// The components that the parameters allow, and their priorities.
#[derive(Clone, Debug)]
pub struct Framework {
    /// The winner of an operation is the first that bids for it.
    components: Vec<(&'static Component, u64)>,
    fault_tolerant: bool,
    /// The last selection, since most communicators have the size of another one.
    last: Option<(Facts, Arc<Selection>)>,
}

/// The winners of one communicator.
#[derive(Debug)]
pub struct Selection {
    builds: [Build; Operation::ALL.len()],
    agree: Agree,
}

/// A bid of a component for an operation, for `mend-info`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bid {
    /// The name of the component.
    pub component: &'static str,
    /// Its priority.
    pub priority: u64,
    /// Why it does not bid; `None`: it does.
    pub refusal: Option<&'static str>,
}

impl Framework {
    /// The framework with these parameters, in a job that is fault tolerant or not. A choice is obeyed or refused (R-24).
    pub fn new(settings: &Settings, fault_tolerant: bool) -> Result<Framework, SelectionError> {
        let allowed = COMPONENTS.iter().filter(|component| settings.allows("coll", component.name));
        let mut components: Vec<_> =
            allowed.map(|component| (component, settings.number(component.priority))).collect();
        // Stable: of equal priorities, the order of `COMPONENTS` counts.
        components.sort_by_key(|&(_, priority)| core::cmp::Reverse(priority));
        if components.iter().all(|(component, _)| component.name != basic::COMPONENT.name) {
            return Err(SelectionError::NoCollective);
        }
        let framework = Framework { components, fault_tolerant, last: None };
        let (winner, agree) = framework.winner_of_agree(framework.facts(2));
        let has_ftagree = settings.allows("coll", ftagree::COMPONENT.name);
        match agree {
            Agree::Schedule(_) if fault_tolerant && !has_ftagree => Err(SelectionError::NoAgreement),
            Agree::Schedule(_) if fault_tolerant => Err(SelectionError::Outbid(winner)),
            Agree::Schedule(_) | Agree::Protocol => Ok(framework),
        }
    }

    /// The framework with the defaults of all parameters.
    pub fn with_defaults(fault_tolerant: bool) -> Framework {
        let settings = Settings::new(Declared(&[PARAMETERS]));
        Framework::new(&settings, fault_tolerant).expect("the defaults leave no component out")
    }

    /// The winners for a communicator of this size.
    pub fn select(&mut self, size: u32) -> Arc<Selection> {
        let facts = self.facts(size);
        if let Some((of, selection)) = &self.last
            && *of == facts
        {
            return Arc::clone(selection);
        }
        let agree = self.winner_of_agree(facts).1;
        let selection =
            Arc::new(Selection { builds: Operation::ALL.map(|each| self.winner(each, facts)), agree });
        self.last = Some((facts, Arc::clone(&selection)));
        selection
    }

    /// The bids for each operation of a communicator of this size, with the name of the operation: the winner is the first that has no
    /// refusal.
    pub fn bids(&self, size: u32) -> Vec<(&'static str, Vec<Bid>)> {
        let facts = self.facts(size);
        let bids = |refusal: &dyn Fn(&Component) -> Option<Refusal>| {
            let bid = |&(component, priority): &(&'static Component, u64)| Bid {
                component: component.name,
                priority,
                refusal: refusal(component),
            };
            self.components.iter().map(bid).collect()
        };
        let on_data = |operation: Operation| {
            (operation.name(), bids(&|component| (component.bid)(operation, facts).err()))
        };
        let agree = ("agree, iagree", bids(&|component| (component.bid_agree)(facts).err()));
        Operation::ALL.into_iter().map(on_data).chain([agree]).collect()
    }

    fn facts(&self, size: u32) -> Facts {
        Facts { size, fault_tolerant: self.fault_tolerant }
    }

    fn winner(&self, operation: Operation, facts: Facts) -> Build {
        let mut bids =
            self.components.iter().filter_map(|(component, _)| (component.bid)(operation, facts).ok());
        bids.next().expect("basic bids for every operation")
    }

    fn winner_of_agree(&self, facts: Facts) -> (&'static str, Agree) {
        let mut bids = self
            .components
            .iter()
            .filter_map(|(component, _)| Some((component.name, (component.bid_agree)(facts).ok()?)));
        bids.next().expect("basic bids for agreements")
    }
}

impl Selection {
    /// Builds the schedule of rank `me` of `size` for `call`.
    pub fn schedule(&self, me: Rank, size: u32, call: Collective) -> Result<Schedule, Error> {
        let build = self.builds[call.operation() as usize];
        Builder::build(me, size, |builder| build(builder, call))
    }

    /// Builds the schedule of rank `me` of `size` by which the members agree on a bitwise AND of the ints in `flag`. `None`: the members
    /// agree by the protocol of `mend_proto::agreement`.
    pub fn agree(
        &self,
        me: Rank,
        size: u32,
        flag: &TypedBuffer,
        on: AgreeOn,
    ) -> Option<Result<Schedule, Error>> {
        match self.agree {
            Agree::Schedule(build) => Some(Builder::build(me, size, |builder| build(builder, flag, on))),
            Agree::Protocol => None,
        }
    }

    /// Whether the members agree by the protocol of `mend_proto::agreement`, which survives failures.
    pub fn agrees_by_protocol(&self) -> bool {
        matches!(self.agree, Agree::Protocol)
    }
}

#[cfg(test)]
mod tests {
    use super::{COMPONENTS, Framework, SelectionError};
    use crate::parameters::PARAMETERS;
    use mend_base::parameter::{Declared, Origin, ParameterKind, Settings};
    use std::sync::Arc;

    fn settings(assigned: &[(&str, &str)]) -> Settings {
        let mut settings = Settings::new(Declared(&[PARAMETERS]));
        let assigned =
            assigned.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        settings.apply(Origin::Environment, &assigned).expect("the parameters take these values");
        settings
    }

    fn refused(fault_tolerant: bool, assigned: &[(&str, &str)]) -> Option<SelectionError> {
        Framework::new(&settings(assigned), fault_tolerant).err()
    }

    #[test]
    fn ftagree_agrees_where_ranks_may_fail_and_basic_elsewhere() {
        for fault_tolerant in [true, false] {
            let mut framework = Framework::with_defaults(fault_tolerant);
            for size in [1, 2, 17] {
                assert_eq!(framework.select(size).agrees_by_protocol(), fault_tolerant);
            }
            let bids = framework.bids(4);
            let (name, agree) = bids.last().expect("agree is the last");
            assert_eq!(*name, "agree, iagree");
            let winner = agree.iter().find(|bid| bid.refusal.is_none()).expect("somebody bids");
            assert_eq!(winner.component, if fault_tolerant { "ftagree" } else { "basic" });
        }
    }

    #[test]
    fn a_choice_that_would_not_survive_failures_is_refused_unless_fault_tolerance_is_given_up() {
        let without = [("coll", "^ftagree")];
        assert_eq!(refused(true, &without), Some(SelectionError::NoAgreement));
        assert_eq!(refused(true, &[("coll", "basic")]), Some(SelectionError::NoAgreement));
        assert_eq!(refused(false, &without), None);
        let outbid = [("coll.basic_priority", "90"), ("coll.ftagree_priority", "40")];
        assert_eq!(refused(true, &outbid), Some(SelectionError::Outbid("basic")));
        assert_eq!(refused(false, &outbid), None);
        let equal = [("coll.basic_priority", "40"), ("coll.ftagree_priority", "40")];
        assert_eq!(
            refused(true, &equal),
            None,
            "of equal priorities, the component that is first in the table wins"
        );
    }

    #[test]
    fn basic_cannot_be_left_out() {
        for value in ["^basic", "ftagree"] {
            assert_eq!(refused(true, &[("coll", value)]), Some(SelectionError::NoCollective), "{value}");
        }
    }

    #[test]
    fn every_component_can_be_named_and_has_a_priority() {
        let list = PARAMETERS.iter().find(|parameter| parameter.name == "coll").expect("it is declared");
        let ParameterKind::Names(names) = list.kind else { panic!("it takes names") };
        let mut declared: Vec<&str> = COMPONENTS.iter().map(|component| component.name).collect();
        declared.sort_unstable();
        assert_eq!(names, declared, "in the order of the alphabet");
        let all = settings(&[]);
        for component in COMPONENTS {
            assert_eq!(component.priority, format!("coll.{}_priority", component.name));
            assert!(all.number(component.priority) <= 100);
        }
        assert_eq!(COMPONENTS.last().map(|component| component.name), Some("basic"));
    }

    #[test]
    fn communicators_of_one_size_share_their_selection() {
        let mut framework = Framework::with_defaults(true);
        let first = framework.select(3);
        assert!(Arc::ptr_eq(&first, &framework.select(3)));
        assert!(!Arc::ptr_eq(&first, &framework.select(4)));
    }
}
