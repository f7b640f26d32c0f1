// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The funnel alone, over scripted wires: what it asks, and in which order it gives the ends.

use super::{Fate, Funnel};
use crate::layers::Layers;
use crate::scripted::{JOB, Rehearsal, Script, Wires, card, peer};
use mend_base::PeerIndex;
use mend_pml::Gone;
use mend_runtime::Notice;
use mend_transport::Cause;

/// Rank 0 of four, connected to 1 and 2.
fn funnel() -> (Rehearsal, Funnel<u32>, Layers<Wires, Script>) {
    let job = Rehearsal::default();
    let (mut funnel, mut layers) = (Funnel::new(JOB, 4, 0), job.layers(0, 4));
    for number in [1, 2] {
        let contact = Notice::Contact { peer: peer(number), card: card(number) };
        assert_eq!(funnel.on_notice(contact, &mut layers), None);
    }
    (job, funnel, layers)
}

fn ends(funnel: &mut Funnel<u32>) -> Vec<(PeerIndex, Gone)> {
    std::iter::from_fn(|| funnel.next_end()).collect()
}

const ONE: PeerIndex = PeerIndex(1);
const TWO: PeerIndex = PeerIndex(2);
const THREE: PeerIndex = PeerIndex(3);

#[test]
fn evidence_asks_once_until_the_runtime_answers() {
    let (job, mut funnel, mut layers) = funnel();
    funnel.on_evidence(ONE, Cause::Silent);
    funnel.on_evidence(ONE, Cause::Exited);
    assert!(!funnel.is_empty());
    funnel.examine(&mut layers);
    assert_eq!(job.asked(), [(0, peer(1))]);
    assert_eq!(funnel.fate(ONE), Fate::Open { questioned: true });
    assert_eq!(funnel.on_notice(Notice::Alive(peer(1)), &mut layers), Some(ONE));
    assert_eq!(funnel.fate(ONE), Fate::Open { questioned: false });
    funnel.on_evidence(ONE, Cause::Silent);
    funnel.examine(&mut layers);
    assert_eq!(job.asked().len(), 2);
    assert_eq!(ends(&mut funnel), []);
}

#[test]
fn ends_come_in_the_order_of_the_declarations_however_long_each_drains() {
    let (_job, mut funnel, mut layers) = funnel();
    for notice in [Notice::Failed(peer(1)), Notice::Finalized(peer(2)), Notice::Finalized(peer(3))] {
        funnel.on_notice(notice, &mut layers);
    }
    assert_eq!((funnel.fate(ONE), funnel.some_severing()), (Fate::Declared, true));
    // The second endpoint is severed first, and nobody connected the third peer.
    funnel.on_severed(TWO, 1);
    assert_eq!((funnel.examine(&mut layers), ends(&mut funnel)), (1, Vec::new()));
    funnel.on_severed(ONE, 0);
    funnel.examine(&mut layers);
    let all = [(ONE, Gone::Failed), (TWO, Gone::Finalized), (THREE, Gone::Finalized)];
    assert_eq!(ends(&mut funnel), all);
    assert_eq!(funnel.fate(THREE), Fate::Published);
}

#[test]
fn the_first_declaration_stands_but_an_unreachable_peer_may_fail() {
    let (_job, mut funnel, mut layers) = funnel();
    funnel.on_notice(Notice::Finalized(peer(3)), &mut layers);
    funnel.on_notice(Notice::Failed(peer(3)), &mut layers);
    assert_eq!(ends(&mut funnel), [(THREE, Gone::Finalized)]);
    let refused = Gone::Unreachable(Cause::Refused);
    funnel.on_notice(Notice::Refused { peer: peer(1), cause: Cause::Refused }, &mut layers);
    funnel.on_severed(ONE, 0);
    funnel.examine(&mut layers);
    assert_eq!(ends(&mut funnel), [(ONE, refused)]);
    funnel.on_notice(Notice::Failed(peer(1)), &mut layers);
    assert_eq!(ends(&mut funnel), [(ONE, Gone::Failed)]);
}

#[test]
fn a_card_of_another_version_ends_the_peer() {
    let (_job, mut funnel, mut layers) = funnel();
    let mut other = card(3);
    other.layout += 1;
    assert_eq!(funnel.meet(THREE, &other, &mut layers), Err(Cause::LayoutDiffers));
    assert_eq!(ends(&mut funnel), [(THREE, Gone::Unreachable(Cause::LayoutDiffers))]);
}
