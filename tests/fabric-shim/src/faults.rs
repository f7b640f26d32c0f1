// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which calls and completions get a fault now: the rules, and how far each has come.

use crate::rules::{Failure, Fault, Rule, Rules};
use crate::site::{self, Site};
use mend_ffi_ofi::Code;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The rules in force.
static FAULTS: Mutex<Faults> = Mutex::new(Faults { rules: Vec::new() });

struct Faults {
    rules: Vec<Progress>,
}

/// A rule, and how far it has come.
struct Progress {
    rule: Rule,
    /// Matching calls so far.
    matched: u64,
    injected: u64,
    /// The state of its random numbers.
    random: u64,
    /// Peers whose connection is broken, with the number of operations that will fail yet.
    broken: Vec<(u64, u64)>,
}

/// What a call gets instead of being made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Injected {
    /// This code, at once.
    Return(Code),
    /// Success, and later this error completion.
    Fail(Failure),
    /// Success, and later a completion.
    Complete,
    /// It is made, and returns this code.
    Made(Code),
}

/// What happens to a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Delay { reads: u64 },
    Reorder,
    Truncate { bytes: usize },
}

/// Replaces the rules, and sets all counts to zero.
pub(crate) fn set(rules: Rules) {
    let Rules { seed, rules } = rules;
    let progress = |(index, rule)| Progress {
        rule,
        matched: 0,
        injected: 0,
        // Rules with one seed differ.
        random: seed.wrapping_add(index).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        broken: Vec::new(),
    };
    lock().rules = (1..).zip(rules).map(progress).collect();
    site::reset_counts();
}

/// Counts a call, and returns what it gets instead. `peer` is the number of the peer, for operations towards one.
pub(crate) fn at_call(site: Site, peer: Option<u64>) -> Option<Injected> {
    site.count_call();
    let fault = lock().at_call(site, peer)?;
    site.count_injected();
    match fault {
        Fault::Error(code) => Some(Injected::Return(code)),
        Fault::Completion(failure) => Some(Injected::Fail(failure)),
        Fault::Break { failure, completes: true, .. } => Some(Injected::Fail(failure)),
        Fault::Break { failure, .. } => Some(Injected::Return(failure.code)),
        Fault::Made(code) => Some(Injected::Made(code)),
        Fault::Drop => Some(Injected::Complete),
        Fault::Crash => crash(),
        Fault::Hang => hang(),
        Fault::Delay { .. } | Fault::Reorder | Fault::Truncate { .. } => None,
    }
}

/// The code that a call without completion returns instead of being made.
pub(crate) fn refusal(site: Site) -> Option<Code> {
    match at_call(site, None)? {
        Injected::Return(code) => Some(code),
        Injected::Fail(_) | Injected::Complete | Injected::Made(_) => None,
    }
}

/// What happens to the completion of an operation that was started at this site.
pub(crate) fn at_completion(site: Site) -> Option<Change> {
    let change = match lock().at_completion(site)? {
        Fault::Delay { reads } => Change::Delay { reads },
        Fault::Reorder => Change::Reorder,
        Fault::Truncate { bytes } => Change::Truncate { bytes },
        _ => return None,
    };
    site.count_injected();
    Some(change)
}

fn lock() -> MutexGuard<'static, Faults> {
    FAULTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Faults {
    fn at_call(&mut self, site: Site, peer: Option<u64>) -> Option<Fault> {
        if let Some(peer) = peer.filter(|_| site.sends())
            && let Some(fault) = self.rules.iter_mut().find_map(|rule| rule.still_broken(peer))
        {
            return Some(fault);
        }
        let rules = self.rules.iter_mut().filter(|progress| !progress.rule.fault.changes_completion());
        // Each rule counts the call, also behind one that injects.
        let faults: Vec<Fault> = rules.filter_map(|rule| rule.matches(site, peer)).collect();
        faults.first().copied()
    }

    fn at_completion(&mut self, site: Site) -> Option<Fault> {
        let rules = self.rules.iter_mut().filter(|progress| progress.rule.fault.changes_completion());
        let faults: Vec<Fault> = rules.filter_map(|rule| rule.matches(site, None)).collect();
        faults.first().copied()
    }
}

impl Progress {
    /// The fault, if the rule injects it into this call.
    fn matches(&mut self, site: Site, peer: Option<u64>) -> Option<Fault> {
        let rule = &self.rule;
        let elsewhere = !rule.sites.contains(&site) || rule.peer.is_some() && rule.peer != peer;
        if elsewhere {
            return None;
        }
        self.matched += 1;
        let due = self.matched > self.rule.after && self.injected < self.rule.count;
        if !due || !self.is_drawn() {
            return None;
        }
        self.injected += 1;
        if let (Fault::Break { calls, .. }, Some(peer)) = (self.rule.fault, peer) {
            self.broken.push((peer, calls - 1));
        }
        Some(self.rule.fault)
    }

    fn still_broken(&mut self, peer: u64) -> Option<Fault> {
        self.broken.retain(|(_, left)| *left > 0);
        let (_, left) = self.broken.iter_mut().find(|(broken, _)| *broken == peer)?;
        *left -= 1;
        Some(self.rule.fault)
    }

    /// Draws a random number (SplitMix64, by Steele, Lea and Flood), if the rule needs one.
    fn is_drawn(&mut self) -> bool {
        if self.rule.one_in == 1 {
            return true;
        }
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.random;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)).is_multiple_of(self.rule.one_in)
    }
}

/// Ends the process as an access to memory that is not there does.
fn crash() -> ! {
    loop {
        // A handler may return and expect that the access is made again, so the signal is raised again.
        // SAFETY: takes a number.
        unsafe { libc::raise(libc::SIGSEGV) };
    }
}

fn hang() -> ! {
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::{Faults, Progress};
    use crate::rules::{Fault, Rules};
    use crate::site::Site;

    fn faults(text: &str) -> Faults {
        let Rules { seed, rules } = Rules::parse(text).unwrap();
        let progress = |rule| Progress { rule, matched: 0, injected: 0, random: seed, broken: Vec::new() };
        Faults { rules: rules.into_iter().map(progress).collect() }
    }

    /// Which of `calls` sends towards peer 1 get a fault.
    fn hits(faults: &mut Faults, calls: usize) -> Vec<usize> {
        (0..calls).filter(|_| faults.at_call(Site::Send, Some(1)).is_some()).collect()
    }

    #[test]
    fn a_rule_begins_after_some_calls_and_ends_after_some_faults() {
        let mut faults = faults("site=send,code=EIO,after=3,count=2");
        assert_eq!(hits(&mut faults, 10), [3, 4]);
    }

    #[test]
    fn a_rule_for_one_peer_leaves_the_others_alone() {
        let mut faults = faults("site=send,code=EIO,peer=2");
        assert_eq!(hits(&mut faults, 3), [0; 0]);
        assert!(faults.at_call(Site::Send, Some(2)).is_some());
        assert!(faults.at_call(Site::Send, None).is_none());
        assert!(faults.at_call(Site::Read, Some(2)).is_none());
    }

    #[test]
    fn chance_is_repeated_by_its_seed() {
        let draw = |seed: u64| hits(&mut faults(&format!("seed={seed};site=send,code=EIO,one_in=10")), 1_000);
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
        assert!((60..140).contains(&draw(5).len()), "{} of 1,000", draw(5).len());
    }

    #[test]
    fn a_broken_connection_fails_every_operation_and_is_made_again() {
        let mut faults = faults("site=send,fault=break,code=ECONNRESET,after=1,calls=4,peer=1");
        assert!(faults.at_call(Site::Send, Some(1)).is_none());
        for site in [Site::Send, Site::Read, Site::Inject, Site::Write] {
            assert!(matches!(faults.at_call(site, Some(1)), Some(Fault::Break { .. })), "{site:?}");
            assert!(faults.at_call(site, Some(0)).is_none());
        }
        assert_eq!(hits(&mut faults, 5), [0; 0]);
    }

    #[test]
    fn the_first_of_two_rules_wins_and_both_count() {
        let mut faults = faults("site=send,code=EIO,count=1;site=send,code=EPERM,after=1,count=1");
        let codes: Vec<_> = (0..3).map(|_| faults.at_call(Site::Send, None)).collect();
        let error = |code| Some(Fault::Error(mend_ffi_ofi::Code(code)));
        assert_eq!(codes, [error(5), error(1), None]);
    }
}
