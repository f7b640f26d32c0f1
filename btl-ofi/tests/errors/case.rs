// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One case: a code is injected as a row says, and what follows is looked at.

use super::pair::Pair;
use super::rows::{Outcome, Row, When};
use super::traffic::Traffic;
use mend_btl_ofi::{Class, classify};
use mend_fabric_shim::{Shim, Site};
use mend_ffi_ofi::{Code, Ofi as Library};
use mend_transport::Cause;
use std::sync::Arc;

/// What all cases of a process use.
pub struct Place {
    pub shim: Shim,
    pub library: Arc<Library>,
    pub provider: String,
}

/// What was seen in a case.
#[derive(Default)]
struct Seen {
    injected: u64,
    not_opened: bool,
    refused: bool,
    evidence: Vec<Cause>,
    reports: Vec<(Class, Code)>,
    failed: Vec<String>,
    reopened: u64,
}

impl Place {
    /// Runs a case. `Err`: what is wrong.
    pub fn run(&self, row: &Row, code: Code) -> Result<Outcome, String> {
        self.shim.set("");
        let before = self.left();
        let mut seen = Seen::default();
        self.play(row, code, &mut seen)?;
        if self.shim.refused_objects() > 0 {
            return Err(format!("an object could not be closed: {}", self.shim.report()));
        }
        if self.left() != before {
            return Err(format!("left open: {before:?} became {:?}: {}", self.left(), self.shim.report()));
        }
        seen.outcome(code)
    }

    /// Objects of the library, and descriptors, that are open.
    fn left(&self) -> (i64, usize) {
        let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        (self.shim.open_objects(), descriptors)
    }

    fn rule(&self, row: &Row, code: Code) {
        self.shim.set(&row.rules.replace("CODE", &code.0.to_string()));
    }

    /// Ends the rules, and adds what they have injected.
    fn end_rules(&self, row: &Row, seen: &mut Seen) {
        seen.injected += injected(&self.shim, row);
        self.shim.set("");
    }

    fn play(&self, row: &Row, code: Code, seen: &mut Seen) -> Result<(), String> {
        if matches!(row.when, When::Opening | When::Always) {
            self.rule(row, code);
        }
        let mut opened = Pair::open(&self.library, &self.provider);
        if row.when == When::Opening {
            self.end_rules(row, seen);
        }
        if opened.is_err() {
            seen.not_opened = true;
            opened = Pair::open(&self.library, &self.provider);
        }
        let mut pair = opened?;
        if row.when == When::Connecting {
            self.rule(row, code);
        }
        seen.refused = !pair.connect()?.is_empty();
        if row.when == When::Connecting {
            self.end_rules(row, seen);
        }
        let mut traffic = Traffic::new(&mut pair)?;
        if matches!(row.when, When::Running | When::Lasting) {
            self.rule(row, code);
        }
        self.exchange(row, &mut pair, &mut traffic, seen)?;
        traffic.check(&pair)?;
        seen.failed = core::mem::take(&mut traffic.failed);
        seen.evidence = pair.evidence();
        seen.reports = pair.reports();
        seen.reopened = pair.reopened();
        traffic.end(&mut pair)?;
        pair.sever()?;
        for end in &pair.ends {
            if end.btl.held() != (0, 0) && row.when != When::Always {
                return Err(format!("held after all: {:?}", end.btl.held()));
            }
        }
        drop(pair);
        if row.when == When::Always {
            self.end_rules(row, seen);
        }
        Ok(())
    }

    fn exchange(
        &self,
        row: &Row,
        pair: &mut Pair,
        traffic: &mut Traffic,
        seen: &mut Seen,
    ) -> Result<(), String> {
        let mut lasts = row.when == When::Lasting;
        for round in 0..ROUNDS_MAX {
            if traffic.is_over(pair) {
                if row.when != When::Always && row.when != When::Opening && row.when != When::Connecting {
                    self.end_rules(row, seen);
                }
                // What would come twice comes now.
                (0..ROUNDS_AFTERWARDS).for_each(|_| pair.round());
                return Ok(());
            }
            traffic.step(pair)?;
            pair.round();
            if lasts && (pair.evidence().iter().any(ends_the_wait) || round > ROUNDS_OF_A_LASTING_FAULT) {
                lasts = false;
                self.end_rules(row, seen);
            }
        }
        Err("hang: not everything came or ended".to_owned())
    }
}

/// How many faults were injected at the sites of the first rule: the others only lead there.
fn injected(shim: &Shim, row: &Row) -> u64 {
    let first = row.rules.split(';').find(|rule| rule.contains("CODE")).unwrap_or_default();
    let sites = first.split(',').find_map(|field| field.strip_prefix("site=")).unwrap_or_default();
    sites.split('+').filter_map(Site::named).map(|site| shim.injected(site)).sum()
}

/// The BTL has told the layer above what it waited to tell.
fn ends_the_wait(cause: &Cause) -> bool {
    matches!(cause, Cause::Silent | Cause::Unreachable)
}

impl Seen {
    fn outcome(&self, code: Code) -> Result<Outcome, String> {
        if self.injected == 0 {
            return Ok(Outcome::NotCalled);
        }
        let blames = |cause: &Cause| matches!(cause, Cause::LinkDown | Cause::Silent | Cause::Unreachable);
        let reported = self.reports.iter().find(|(_, reported)| *reported == code);
        if let Some((class, _)) = reported
            && *class != classify(code)
            && *class != Class::Device
        {
            return Err(format!("reported as {class:?}"));
        }
        Ok(match () {
            () if self.not_opened => Outcome::NotOpened,
            () if self.refused || self.evidence.iter().any(|cause| !blames(cause)) => Outcome::Refused,
            () if !self.failed.is_empty() => Outcome::Request,
            () if self.evidence.contains(&Cause::Unreachable) => Outcome::GivesUp,
            () if self.reopened > 0 => Outcome::Reopened,
            () if !self.evidence.is_empty() => Outcome::Suspected,
            () if reported.is_some() => Outcome::Reported,
            () => Outcome::Absorbed,
        })
    }
}

const ROUNDS_MAX: u64 = 100_000;
/// Longer than a way may be broken, or a peer be silent.
const ROUNDS_OF_A_LASTING_FAULT: u64 = 45_000;
const ROUNDS_AFTERWARDS: u64 = 60;
