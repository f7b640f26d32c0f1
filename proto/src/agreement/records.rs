// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What other members have sent up, whether or not this member knows that they are its children: one record for each sender.

use super::value::Aggregate;
use mend_base::Rank;

/// The last that a member has sent up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Record {
    /// Its aggregate for the agreement that runs or comes next here.
    Up(Aggregate),
    /// It and all members below it have stored the decision.
    Confirmed,
    /// It has passed the agreement that runs here; this is its aggregate for the next one.
    Ahead(Aggregate),
}

/// Records, sorted by rank.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct Records(Vec<(Rank, Record)>);

impl Records {
    pub(super) fn get(&self, rank: Rank) -> Option<&Record> {
        let at = self.0.binary_search_by_key(&rank, |record| record.0).ok()?;
        Some(&self.0[at].1)
    }

    pub(super) fn set(&mut self, rank: Rank, record: Record) {
        match self.0.binary_search_by_key(&rank, |record| record.0) {
            Ok(at) => self.0[at].1 = record,
            Err(at) => self.0.insert(at, (rank, record)),
        }
    }

    pub(super) fn remove(&mut self, rank: Rank) {
        self.0.retain(|record| record.0 != rank);
    }

    /// From the highest rank to the lowest.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Rank, &Record)> {
        self.0.iter().rev().map(|(rank, record)| (*rank, record))
    }

    /// The agreement was passed: what was sent for the next one remains, of members that take part in it.
    pub(super) fn advance(&mut self, mut takes_part: impl FnMut(Rank) -> bool) {
        self.0.retain_mut(|(rank, record)| match *record {
            Record::Ahead(up) if takes_part(*rank) => {
                *record = Record::Up(up);
                true
            }
            _ => false,
        });
    }
}
