// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The results that a process leaves with the node daemon when it leaves MPI, in bytes: another member may have to ask for them
//! (Trap 14).
//!
//! ```text
//!  decision of an agreement   0 value u64   8 acknowledged u8   9 departed u8   10 crossed u8: 0, or 1 and the number of agreements
//!                             listed   11 these   then failed ranks, u32 each
//!  result of a vote           as a ballot on the wire
//! ```

use mend_base::{Rank, Reader, Wire, Writer};
use mend_proto::agreement::{AgreementId, CROSSED_MAX, Decision};
use mend_proto::ranks::Ranks;
use mend_proto::vote::Ballot;
use mend_runtime::RESULT_BYTES_MAX;

/// The protocol numbers of the results.
pub(crate) const AGREEMENT: u8 = 1;
pub(crate) const VOTE: u8 = 2;
/// The vote on the communicator itself.
pub(crate) const CREATION: u8 = 3;

/// The bytes of a decision before its lists.
const HEAD: usize = 11;
/// All ranks of a node may have failed but the one that leaves the decision.
const _: () = assert!(HEAD + CROSSED_MAX * AgreementId::BYTES_MAX + 4 * 1_023 <= RESULT_BYTES_MAX);

/// The bytes of a decision.
pub(crate) fn of_decision(decision: &Decision) -> Vec<u8> {
    let listed = decision.crossed.as_deref().unwrap_or_default();
    let mut bytes =
        Vec::with_capacity(HEAD + AgreementId::BYTES_MAX * listed.len() + 4 * decision.failed.len());
    bytes.extend(decision.value.to_le_bytes());
    let crossed = if decision.crossed.is_some() { 1 + listed.len() as u8 } else { 0 };
    bytes.extend([u8::from(decision.acknowledged), u8::from(decision.departed), crossed]);
    for listed in listed {
        let mut one = [0; AgreementId::BYTES_MAX];
        listed.write(&mut Writer::new(&mut one));
        bytes.extend(one);
    }
    decision.failed.iter().for_each(|rank| bytes.extend(rank.0.to_le_bytes()));
    bytes
}

/// The decision in these bytes, which another process wrote; `None`: they are none of a communicator of `size` members.
pub(crate) fn decision(bytes: &[u8], size: u32) -> Option<Decision> {
    let mut from = Reader::new(bytes);
    let (value, acknowledged, departed) = (from.u64()?, flag(from.u8()?)?, flag(from.u8()?)?);
    let crossed = match usize::from(from.u8()?) {
        0 => None,
        listed if listed - 1 > CROSSED_MAX => return None,
        listed => Some((1..listed).map(|_| AgreementId::read(&mut from)).collect::<Option<Vec<_>>>()?),
    };
    let mut failed = Ranks::new();
    while !from.rest().is_empty() {
        let rank = from.u32().filter(|&rank| rank < size)?;
        failed.insert(Rank(rank));
    }
    Some(Decision { value, failed, acknowledged, departed, crossed })
}

/// The bytes of the result of a vote.
pub(crate) fn of_ballot(ballot: Ballot) -> Vec<u8> {
    let mut bytes = [0; Ballot::BYTES_MAX];
    let mut out = Writer::new(&mut bytes);
    ballot.write(&mut out);
    let used = out.used();
    bytes[..used].to_vec()
}

/// The result of a vote in these bytes, which another process wrote.
pub(crate) fn ballot(bytes: &[u8]) -> Option<Ballot> {
    let mut from = Reader::new(bytes);
    let ballot = Ballot::read(&mut from)?;
    from.rest().is_empty().then_some(ballot)
}

fn flag(byte: u8) -> Option<bool> {
    match byte {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{ballot, decision, of_ballot, of_decision};
    use mend_base::{Identity, Peer, Rank};
    use mend_proto::agreement::{AgreementId, Decision};
    use mend_proto::vote::{Ballot, Reason};

    #[test]
    fn what_was_left_is_read_and_nothing_else() {
        let failed = [Rank(3), Rank(1)].into_iter().collect();
        let left = Decision { value: 7 << 40, failed, acknowledged: true, departed: false, crossed: None };
        let bytes = of_decision(&left);
        let listed =
            |number| AgreementId { communicator: Identity { creator: Peer(1), number }, sequence: 4 };
        for crossed in [Some(vec![]), Some(vec![listed(2), listed(3)])] {
            let crossed = Decision { crossed, ..left.clone() };
            assert_eq!(decision(&of_decision(&crossed), 4), Some(crossed));
        }
        assert_eq!(decision(&bytes, 4), Some(left));
        assert_eq!(decision(&bytes, 3), None, "a rank that does not exist");
        assert_eq!(decision(&bytes[..bytes.len() - 1], 4), None);
        assert_eq!(decision(&[2; 11], 4), None);
        for result in [Ballot::Yes, Ballot::No(Reason::Failed(Rank(9))), Ballot::No(Reason::Other)] {
            assert_eq!(ballot(&of_ballot(result)), Some(result));
        }
        assert_eq!(ballot(&[]), None);
    }
}
