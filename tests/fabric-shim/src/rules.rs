// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules: which faults are injected where. A text has rules separated by `;`, and a rule has fields `key=value` separated by `,`.
//! `docs/fabric-shim.md` explains the keys.

use crate::site::Site;
use mend_ffi_ofi::Code;

/// What a text says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    /// The seed of `one_in`.
    pub seed: u64,
    /// In the order of the text.
    pub rules: Vec<Rule>,
}

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Where it applies.
    pub sites: Vec<Site>,
    /// What it does there.
    pub fault: Fault,
    /// So many matching calls pass first.
    pub after: u64,
    /// Most faults that it injects.
    pub count: u64,
    /// Of the calls after that, one in so many gets the fault, by chance.
    pub one_in: u64,
    /// Only operations towards this peer.
    pub peer: Option<u64>,
}

/// What is injected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The call returns the code, and nothing is done.
    Error(Code),
    /// The call succeeds, nothing is done, and a completion with the error comes later.
    Completion(Failure),
    /// The call is made, and returns the code all the same.
    Made(Code),
    /// The operation completes, and nothing is done.
    Drop,
    /// The connection to the peer is broken: so many operations towards it fail, this one first.
    Break {
        /// How they fail.
        failure: Failure,
        /// Whether in a completion.
        completes: bool,
        /// How many do.
        calls: u64,
    },
    /// The completion is held back for so many reads of the queue.
    Delay {
        /// How many.
        reads: u64,
    },
    /// The completion comes after the next one of another operation.
    Reorder,
    /// The length of a received message is so many bytes less.
    Truncate {
        /// How many.
        bytes: usize,
    },
    /// The process gets SIGSEGV.
    Crash,
    /// The call does not return.
    Hang,
}

/// An error completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Its code.
    pub code: Code,
    /// The code of the provider.
    pub provider_code: i32,
}

impl Fault {
    /// Whether it changes a completion, and not the call that starts the operation.
    pub fn changes_completion(self) -> bool {
        matches!(self, Fault::Delay { .. } | Fault::Reorder | Fault::Truncate { .. })
    }

    fn applies_at(self, site: Site) -> bool {
        match self {
            Fault::Error(_) | Fault::Crash | Fault::Hang => true,
            Fault::Completion(_) => site.starts_operation(),
            Fault::Made(_) => matches!(site, Site::Bind | Site::Close),
            Fault::Drop => matches!(site, Site::Send | Site::Inject | Site::Write),
            Fault::Break { .. } => site.sends(),
            Fault::Delay { .. } | Fault::Reorder => site.starts_operation() && site != Site::Inject,
            Fault::Truncate { .. } => site == Site::Recv,
        }
    }
}

/// Why a text is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleError(pub String);

impl Rules {
    /// Reads a text.
    pub fn parse(text: &str) -> Result<Rules, RuleError> {
        let mut rules = Rules::default();
        for part in text.split([';', '\n']).map(str::trim).filter(|part| !part.is_empty()) {
            match part.strip_prefix("seed=") {
                Some(seed) => rules.seed = number("seed", seed)?,
                None => rules.rules.push(Fields::parse(part)?.rule()?),
            }
        }
        Ok(rules)
    }
}

/// The fields of a rule as written.
#[derive(Default)]
struct Fields<'a> {
    sites: Vec<Site>,
    fault: Option<&'a str>,
    mode: Option<&'a str>,
    code: Option<Code>,
    provider_code: Option<i32>,
    after: u64,
    count: Option<u64>,
    one_in: Option<u64>,
    peer: Option<u64>,
    reads: Option<u64>,
    bytes: Option<u64>,
    calls: Option<u64>,
}

impl<'a> Fields<'a> {
    fn parse(text: &'a str) -> Result<Fields<'a>, RuleError> {
        let mut fields = Fields::default();
        for field in text.split(',').map(str::trim) {
            let (key, value) =
                field.split_once('=').ok_or_else(|| RuleError(format!("'{field}' is not key=value")))?;
            match key {
                "site" => fields.sites = sites(value)?,
                "fault" => fields.fault = Some(value),
                "mode" => fields.mode = Some(value),
                "code" => fields.code = Some(code(value)?),
                "provider_code" => fields.provider_code = Some(number(key, value)?),
                "after" => fields.after = number(key, value)?,
                "count" => fields.count = Some(number(key, value)?),
                "one_in" => fields.one_in = Some(positive(key, value)?),
                "peer" => fields.peer = Some(number(key, value)?),
                "reads" => fields.reads = Some(number(key, value)?),
                "bytes" => fields.bytes = Some(number(key, value)?),
                "calls" => fields.calls = Some(positive(key, value)?),
                _ => return Err(RuleError(format!("'{key}' is no key of a rule"))),
            }
        }
        Ok(fields)
    }

    fn rule(self) -> Result<Rule, RuleError> {
        let fault = self.fault()?;
        let wrong = self.sites.iter().find(|&&site| !fault.applies_at(site));
        if let Some(site) = wrong {
            return Err(RuleError(format!("this fault cannot be injected at {}", site.name())));
        }
        let everywhere = Site::ALL.iter().copied().filter(|&site| fault.applies_at(site));
        let sites = if self.sites.is_empty() { everywhere.collect() } else { self.sites };
        // A connection that is broken again with the next operation would never be one that can be made again.
        let unlimited = if matches!(fault, Fault::Break { .. }) { 1 } else { u64::MAX };
        let count = self.count.unwrap_or(unlimited);
        Ok(Rule { sites, fault, after: self.after, count, one_in: self.one_in.unwrap_or(1), peer: self.peer })
    }

    fn fault(&self) -> Result<Fault, RuleError> {
        let code = self.code.ok_or_else(|| RuleError("a rule of this fault needs code=".to_owned()));
        let failure = code.clone().map(|code| {
            let provider_code = self.provider_code.unwrap_or(code.0);
            Failure { code, provider_code }
        });
        let mode = self.mode.unwrap_or("call");
        match (self.fault.unwrap_or("error"), mode) {
            ("error", "call") => Ok(Fault::Error(code?)),
            ("error", "completion") => Ok(Fault::Completion(failure?)),
            ("error", "made") => Ok(Fault::Made(code?)),
            ("break", "call" | "completion") => {
                let calls = self.calls.unwrap_or(u64::MAX);
                Ok(Fault::Break { failure: failure?, completes: mode == "completion", calls })
            }
            ("drop", _) => Ok(Fault::Drop),
            ("delay", _) => Ok(Fault::Delay { reads: self.needed("reads", self.reads)? }),
            ("reorder", _) => Ok(Fault::Reorder),
            ("truncate", _) => Ok(Fault::Truncate { bytes: self.needed("bytes", self.bytes)? as usize }),
            ("crash", _) => Ok(Fault::Crash),
            ("hang", _) => Ok(Fault::Hang),
            (fault, mode) => Err(RuleError(format!("there is no fault '{fault}' with mode '{mode}'"))),
        }
    }

    fn needed(&self, key: &str, value: Option<u64>) -> Result<u64, RuleError> {
        value.ok_or_else(|| RuleError(format!("a rule of this fault needs {key}=")))
    }
}

fn sites(text: &str) -> Result<Vec<Site>, RuleError> {
    let named = |name| Site::named(name).ok_or_else(|| RuleError(format!("'{name}' is no site")));
    text.split('+').map(named).collect()
}

/// A code by its name, with or without the prefix `FI_`, or by its number.
fn code(text: &str) -> Result<Code, RuleError> {
    let name = text.strip_prefix("FI_").unwrap_or(text);
    let named = Code::all().find(|code| code.name() == name);
    let numbered = || text.parse().ok().filter(|code| *code > 0).map(Code);
    named.or_else(numbered).ok_or_else(|| RuleError(format!("'{text}' is no code of libfabric")))
}

fn number<T: core::str::FromStr>(key: &str, text: &str) -> Result<T, RuleError> {
    text.parse().map_err(|_| RuleError(format!("{key}={text} is no number in range")))
}

fn positive(key: &str, text: &str) -> Result<u64, RuleError> {
    let value = number(key, text)?;
    if value == 0 { Err(RuleError(format!("{key} must be at least 1"))) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::{Failure, Fault, Rule, Rules};
    use crate::site::Site;
    use mend_ffi_ofi::Code;

    fn refused(text: &str) -> String {
        Rules::parse(text).unwrap_err().0
    }

    #[test]
    fn a_rule_with_all_keys_is_read() {
        let text = " seed=7; site=send+inject, code=FI_ENOKEY, mode=completion, provider_code=-3, after=10, count=1, \
                    one_in=4, peer=2 ;";
        let rules = Rules::parse(text).unwrap();
        let fault = Fault::Completion(Failure { code: Code(266), provider_code: -3 });
        let sites = vec![Site::Send, Site::Inject];
        let rule = Rule { sites, fault, after: 10, count: 1, one_in: 4, peer: Some(2) };
        assert_eq!(rules, Rules { seed: 7, rules: vec![rule] });
    }

    #[test]
    fn a_rule_without_sites_applies_wherever_its_fault_can() {
        let rules = Rules::parse("fault=drop\nfault=truncate,bytes=3\ncode=5").unwrap();
        let sites: Vec<_> = rules.rules.iter().map(|rule| rule.sites.len()).collect();
        assert_eq!(sites, [3, 1, Site::ALL.len()]);
    }

    #[test]
    fn what_is_no_rule_is_refused_with_the_reason() {
        assert_eq!(refused("site=sent,code=5"), "'sent' is no site");
        assert_eq!(refused("site=send"), "a rule of this fault needs code=");
        assert_eq!(refused("site=send,code=EWRONG"), "'EWRONG' is no code of libfabric");
        assert_eq!(refused("site=close,fault=drop"), "this fault cannot be injected at close");
        assert_eq!(refused("site=send,code=5,one_in=0"), "one_in must be at least 1");
        assert_eq!(refused("fault=melt"), "there is no fault 'melt' with mode 'call'");
        assert_eq!(refused("fault=delay"), "a rule of this fault needs reads=");
        assert_eq!(refused("seed=x"), "seed=x is no number in range");
        assert_eq!(refused("sites"), "'sites' is not key=value");
        assert_eq!(refused("color=red"), "'color' is no key of a rule");
    }
}
