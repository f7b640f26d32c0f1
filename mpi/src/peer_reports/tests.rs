// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of `PeerReports` alone, over a scripted transport: its queries, and the order of the ends that it returns.

use super::{EndState, PeerReports};
use crate::layers::Layers;
use crate::scripted::{JOB, ScriptedJob, ScriptedRuntime, ScriptedTransport, card, peer};
use mend_base::PeerIndex;
use mend_pml::{End, Ends};
use mend_runtime::Notice;
use mend_transport::Cause;

/// Rank 0 of four, connected to 1 and 2.
fn peer_reports() -> (ScriptedJob, PeerReports<u32>, Layers<ScriptedTransport, ScriptedRuntime>) {
    let job = ScriptedJob::default();
    let (mut peer_reports, mut layers) = (PeerReports::new(JOB, 4, 0), job.layers(0, 4));
    for number in [1, 2] {
        let contact = Notice::Contact { peer: peer(number), card: card(number) };
        assert_eq!(peer_reports.on_notice(contact, &mut layers), None);
    }
    (job, peer_reports, layers)
}

/// The ends that `PeerReports` returns to be published, which are added to `ends`.
fn publish(peer_reports: &mut PeerReports<u32>, ends: &mut Ends) -> Vec<(PeerIndex, End)> {
    let given: Vec<_> = std::iter::from_fn(|| peer_reports.next_end()).collect();
    given.iter().for_each(|&(peer, end)| assert!(ends.add(peer, end)));
    given
}

fn ends(peer_reports: &mut PeerReports<u32>) -> Vec<(PeerIndex, End)> {
    publish(peer_reports, &mut Ends::default())
}

const ONE: PeerIndex = PeerIndex(1);
const TWO: PeerIndex = PeerIndex(2);
const THREE: PeerIndex = PeerIndex(3);

#[test]
fn evidence_asks_the_runtime_once_until_it_answers() {
    let (job, mut peer_reports, mut layers) = peer_reports();
    peer_reports.on_evidence(ONE, Cause::Silent);
    peer_reports.on_evidence(ONE, Cause::Exited);
    assert!(!peer_reports.is_empty());
    peer_reports.examine(&mut layers);
    assert_eq!(job.asked(), [(0, peer(1))]);
    assert_eq!(peer_reports.end_state(ONE), EndState::NotDeclared { query_open: true });
    assert_eq!(peer_reports.on_notice(Notice::Alive(peer(1)), &mut layers), Some(ONE));
    assert_eq!(peer_reports.end_state(ONE), EndState::NotDeclared { query_open: false });
    peer_reports.on_evidence(ONE, Cause::Silent);
    peer_reports.examine(&mut layers);
    assert_eq!(job.asked().len(), 2);
    assert_eq!(ends(&mut peer_reports), []);
}

#[test]
fn a_marked_life_word_is_evidence_once_and_once_more_after_each_answer() {
    let (job, mut peer_reports, mut layers) = peer_reports();
    for answers in 1..=3 {
        for _ in 0..4 {
            peer_reports.on_exited(peer(1));
            peer_reports.on_exited(peer(1));
            peer_reports.examine(&mut layers);
            assert_eq!(job.asked(), vec![(0, peer(1)); answers]);
        }
        peer_reports.on_notice(Notice::Alive(peer(1)), &mut layers);
    }
    peer_reports.on_notice(Notice::Failed(peer(1)), &mut layers);
    // Its end is declared, rank 3 is not connected, and nobody knows of the last one.
    for number in [1, 3, 77] {
        peer_reports.on_exited(peer(number));
    }
    assert!(peer_reports.is_empty());
}

#[test]
fn garbage_and_refusals_of_a_suspected_peer_are_reported_too() {
    let (job, mut peer_reports, mut layers) = peer_reports();
    for cause in [Cause::Silent, Cause::NoMemory, Cause::Garbage, Cause::Exited] {
        peer_reports.on_evidence(ONE, cause);
    }
    peer_reports.examine(&mut layers);
    assert_eq!(job.refused(), [(0, peer(1), Cause::NoMemory)]);
    assert_eq!(job.asked(), [(0, peer(1)); 2], "whether it is silent, and about the garbage");
}

#[test]
fn a_process_without_memory_for_a_message_to_itself_is_unreachable_for_itself() {
    let (job, mut peer_reports, mut layers) = peer_reports();
    let zero = PeerIndex(0);
    peer_reports.connect_or_end(zero, &card(0), &mut layers).expect("it can connect to itself");
    peer_reports.on_evidence(zero, Cause::Silent);
    peer_reports.examine(&mut layers);
    assert!(!peer_reports.some_severing() && job.asked().is_empty(), "it lives");
    peer_reports.on_evidence(zero, Cause::NoMemory);
    peer_reports.on_evidence(zero, Cause::NoMemory);
    peer_reports.examine(&mut layers);
    assert!(peer_reports.some_severing() && ends(&mut peer_reports).is_empty());
    peer_reports.on_severed(zero, 2);
    peer_reports.examine(&mut layers);
    assert_eq!(ends(&mut peer_reports), [(zero, End::Unreachable(Cause::NoMemory))]);
    assert!(job.refused().is_empty() && job.asked().is_empty(), "the runtime knows nothing about that");
}

#[test]
fn ends_come_in_the_order_of_the_declarations_however_long_each_drains() {
    let (_job, mut peer_reports, mut layers) = peer_reports();
    for notice in [Notice::Failed(peer(1)), Notice::Finalized(peer(2)), Notice::Finalized(peer(3))] {
        peer_reports.on_notice(notice, &mut layers);
    }
    assert_eq!((peer_reports.end_state(ONE), peer_reports.some_severing()), (EndState::Declared, true));
    // The second endpoint is severed first, and the third peer is not connected.
    peer_reports.on_severed(TWO, 1);
    assert_eq!((peer_reports.examine(&mut layers), ends(&mut peer_reports)), (1, Vec::new()));
    peer_reports.on_severed(ONE, 0);
    peer_reports.examine(&mut layers);
    let all = [(ONE, End::Failed), (TWO, End::Finalized), (THREE, End::Finalized)];
    assert_eq!(ends(&mut peer_reports), all);
    assert_eq!(peer_reports.end_state(THREE), EndState::Published);
}

#[test]
fn the_first_declaration_is_final_but_an_unreachable_peer_may_fail() {
    let (_job, mut peer_reports, mut layers) = peer_reports();
    let mut ends = Ends::default();
    let refused = Notice::Refused { peer: peer(1), cause: Cause::Refused };
    peer_reports.on_notice(Notice::Finalized(peer(3)), &mut layers);
    peer_reports.on_notice(Notice::Failed(peer(3)), &mut layers);
    assert_eq!(publish(&mut peer_reports, &mut ends), [(THREE, End::Finalized)]);
    peer_reports.on_notice(Notice::Failed(peer(3)), &mut layers);
    peer_reports.ask(ONE, Cause::NoEvidence, &mut layers.runtime);
    peer_reports.on_notice(refused.clone(), &mut layers);
    let asked = EndState::NotDeclared { query_open: true };
    assert_eq!(peer_reports.end_state(ONE), asked, "whether it lives is still to be answered");
    peer_reports.on_severed(ONE, 0);
    peer_reports.examine(&mut layers);
    assert_eq!(publish(&mut peer_reports, &mut ends), [(ONE, End::Unreachable(Cause::Refused))]);
    peer_reports.on_notice(refused, &mut layers);
    assert_eq!(publish(&mut peer_reports, &mut ends), []);
    assert_eq!(peer_reports.end_state(ONE), asked);
    peer_reports.on_notice(Notice::Alive(peer(1)), &mut layers);
    assert_eq!(peer_reports.end_state(ONE), EndState::NotDeclared { query_open: false });
    peer_reports.on_notice(Notice::Failed(peer(1)), &mut layers);
    assert_eq!(
        (peer_reports.end_state(ONE), publish(&mut peer_reports, &mut ends)),
        (EndState::Declared, vec![(ONE, End::Failed)])
    );
}

#[test]
fn a_peer_that_is_unreachable_and_fails_before_its_end_is_published_has_failed() {
    let (_job, mut peer_reports, mut layers) = peer_reports();
    for notice in [
        Notice::Refused { peer: peer(1), cause: Cause::Refused },
        Notice::Failed(peer(2)),
        Notice::Failed(peer(1)),
        Notice::Finalized(peer(1)),
    ] {
        peer_reports.on_notice(notice, &mut layers);
    }
    [(TWO, 1), (ONE, 0)].into_iter().for_each(|(peer, endpoint)| peer_reports.on_severed(peer, endpoint));
    peer_reports.examine(&mut layers);
    assert_eq!(ends(&mut peer_reports), [(ONE, End::Failed), (TWO, End::Failed)]);
}

#[test]
fn a_peer_that_this_process_cannot_reach_ends_at_once() {
    let (_job, mut peer_reports, mut layers) = peer_reports();
    peer_reports.on_notice(Notice::Failed(peer(1)), &mut layers);
    let mut other = card(3);
    other.layout += 1;
    assert_eq!(peer_reports.connect_or_end(THREE, &other, &mut layers), Err(Cause::LayoutDiffers));
    assert_eq!(ends(&mut peer_reports), [(THREE, End::Unreachable(Cause::LayoutDiffers))]);
    assert_eq!(peer_reports.end_state(ONE), EndState::Declared);
}
