// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Agreements that wait for each other in a cycle, as a decision names them.
//!
//! A member that is blocked in one agreement of the cycle has not started another one. It contributes to that one *in absentia*
//! ([`Agreement::contribute_in_absentia`](super::Agreement::contribute_in_absentia)): the contribution carries the mark `crossed`,
//! and a list of the agreements of the cycle goes before it. The mark goes up and down with aggregates and the decision.

use super::message::Body;
use mend_base::{Identity, Reader, Wire, Writer};

/// One agreement of one communicator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AgreementId {
    /// The communicator.
    pub communicator: Identity,
    /// The number of the agreement.
    pub sequence: u32,
}

/// A list names at most this many agreements. Longer cycles are not looked for ([`crate::crossing`]).
pub const CROSSED_MAX: usize = 8;

/// The agreements of cycles that a member has heard of, for the agreement that runs and for the next one. Each list is sorted.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct Crossed {
    current: Vec<AgreementId>,
    next: Vec<AgreementId>,
}

impl Crossed {
    /// Another member lists this agreement for the one that runs here.
    pub(super) fn list(&mut self, listed: AgreementId) {
        insert(&mut self.current, listed);
    }

    /// A member that is one agreement ahead lists this agreement.
    pub(super) fn list_for_next(&mut self, listed: AgreementId) {
        insert(&mut self.next, listed);
    }

    /// The decision came with this list.
    pub(super) fn decide(&mut self, listed: impl Iterator<Item = AgreementId>) {
        self.current.clear();
        listed.for_each(|listed| insert(&mut self.current, listed));
    }

    pub(super) fn current(&self) -> &[AgreementId] {
        &self.current
    }

    /// The agreement that runs is passed. Returns its list.
    pub(super) fn advance(&mut self) -> Vec<AgreementId> {
        core::mem::replace(&mut self.current, core::mem::take(&mut self.next))
    }
}

fn insert(list: &mut Vec<AgreementId>, listed: AgreementId) {
    if let Err(at) = list.binary_search(&listed)
        && list.len() < CROSSED_MAX
    {
        list.insert(at, listed);
    }
}

/// The messages that list these agreements, to be sent before an `Up` or `Down` that carries the mark.
pub(super) fn lists(listed: &[AgreementId], decided: bool) -> impl Iterator<Item = Body> {
    listed.iter().map(move |&agreement| Body::Listed { agreement, decided })
}

impl Wire for AgreementId {
    const BYTES_MAX: usize = Identity::BYTES_MAX + 4;

    fn write(&self, out: &mut Writer<'_>) {
        self.communicator.write(out);
        out.u32(self.sequence);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(AgreementId { communicator: Identity::read(from)?, sequence: from.u32()? })
    }
}
