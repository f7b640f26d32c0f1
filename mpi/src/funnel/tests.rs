// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the funnel alone, over a scripted transport: its queries, and the order of the ends that it returns.

use super::{EndState, Funnel};
use crate::layers::Layers;
use crate::scripted::{JOB, ScriptedJob, ScriptedRuntime, ScriptedTransport, card, peer};
use mend_base::PeerIndex;
use mend_pml::{End, Ends};
use mend_runtime::Notice;
use mend_transport::Cause;

/// Rank 0 of four, connected to 1 and 2.
fn funnel() -> (ScriptedJob, Funnel<u32>, Layers<ScriptedTransport, ScriptedRuntime>) {
    let job = ScriptedJob::default();
    let (mut funnel, mut layers) = (Funnel::new(JOB, 4, 0), job.layers(0, 4));
    for number in [1, 2] {
        let contact = Notice::Contact { peer: peer(number), card: card(number) };
        assert_eq!(funnel.on_notice(contact, &Ends::default(), &mut layers), None);
    }
    (job, funnel, layers)
}

/// The ends that the funnel returns to be published, which are added to `ends`.
fn publish(funnel: &mut Funnel<u32>, ends: &mut Ends) -> Vec<(PeerIndex, End)> {
    let given: Vec<_> = std::iter::from_fn(|| funnel.next_end()).collect();
    given.iter().for_each(|&(peer, end)| assert!(ends.add(peer, end)));
    given
}

fn ends(funnel: &mut Funnel<u32>) -> Vec<(PeerIndex, End)> {
    publish(funnel, &mut Ends::default())
}

const ONE: PeerIndex = PeerIndex(1);
const TWO: PeerIndex = PeerIndex(2);
const THREE: PeerIndex = PeerIndex(3);

#[test]
fn evidence_asks_the_runtime_once_until_it_answers() {
    let (job, mut funnel, mut layers) = funnel();
    funnel.on_evidence(ONE, Cause::Silent);
    funnel.on_evidence(ONE, Cause::Exited);
    assert!(!funnel.is_empty());
    funnel.examine(&mut layers);
    assert_eq!(job.asked(), [(0, peer(1))]);
    assert_eq!(funnel.end_state(ONE), EndState::NotDeclared { query_open: true });
    assert_eq!(funnel.on_notice(Notice::Alive(peer(1)), &Ends::default(), &mut layers), Some(ONE));
    assert_eq!(funnel.end_state(ONE), EndState::NotDeclared { query_open: false });
    funnel.on_evidence(ONE, Cause::Silent);
    funnel.examine(&mut layers);
    assert_eq!(job.asked().len(), 2);
    assert_eq!(ends(&mut funnel), []);
}

#[test]
fn garbage_and_refusals_of_a_suspected_peer_are_reported_too() {
    let (job, mut funnel, mut layers) = funnel();
    for cause in [Cause::Silent, Cause::NoMemory, Cause::Garbage, Cause::Exited] {
        funnel.on_evidence(ONE, cause);
    }
    funnel.examine(&mut layers);
    assert_eq!(job.refused(), [(0, peer(1), Cause::NoMemory)]);
    assert_eq!(job.asked(), [(0, peer(1)); 2], "whether it is silent, and about the garbage");
}

#[test]
fn a_process_without_memory_for_a_message_to_itself_is_unreachable_for_itself() {
    let (job, mut funnel, mut layers) = funnel();
    let zero = PeerIndex(0);
    funnel.connect_or_end(zero, &card(0), &mut layers).expect("it can connect to itself");
    funnel.on_evidence(zero, Cause::Silent);
    funnel.examine(&mut layers);
    assert!(!funnel.some_severing() && job.asked().is_empty(), "it lives");
    funnel.on_evidence(zero, Cause::NoMemory);
    funnel.on_evidence(zero, Cause::NoMemory);
    funnel.examine(&mut layers);
    assert!(funnel.some_severing() && ends(&mut funnel).is_empty());
    funnel.on_severed(zero, 2);
    funnel.examine(&mut layers);
    assert_eq!(ends(&mut funnel), [(zero, End::Unreachable(Cause::NoMemory))]);
    assert!(job.refused().is_empty() && job.asked().is_empty(), "the runtime knows nothing about that");
}

#[test]
fn ends_come_in_the_order_of_the_declarations_however_long_each_drains() {
    let (_job, mut funnel, mut layers) = funnel();
    for notice in [Notice::Failed(peer(1)), Notice::Finalized(peer(2)), Notice::Finalized(peer(3))] {
        funnel.on_notice(notice, &Ends::default(), &mut layers);
    }
    assert_eq!((funnel.end_state(ONE), funnel.some_severing()), (EndState::Declared, true));
    // The second endpoint is severed first, and the third peer is not connected.
    funnel.on_severed(TWO, 1);
    assert_eq!((funnel.examine(&mut layers), ends(&mut funnel)), (1, Vec::new()));
    funnel.on_severed(ONE, 0);
    funnel.examine(&mut layers);
    let all = [(ONE, End::Failed), (TWO, End::Finalized), (THREE, End::Finalized)];
    assert_eq!(ends(&mut funnel), all);
    assert_eq!(funnel.end_state(THREE), EndState::Published);
}

#[test]
fn the_first_declaration_is_final_but_an_unreachable_peer_may_fail() {
    let (_job, mut funnel, mut layers) = funnel();
    let mut ends = Ends::default();
    let refused = Notice::Refused { peer: peer(1), cause: Cause::Refused };
    funnel.on_notice(Notice::Finalized(peer(3)), &ends, &mut layers);
    funnel.on_notice(Notice::Failed(peer(3)), &ends, &mut layers);
    assert_eq!(publish(&mut funnel, &mut ends), [(THREE, End::Finalized)]);
    funnel.on_notice(Notice::Failed(peer(3)), &ends, &mut layers);
    funnel.on_notice(refused.clone(), &ends, &mut layers);
    funnel.on_severed(ONE, 0);
    funnel.examine(&mut layers);
    assert_eq!(publish(&mut funnel, &mut ends), [(ONE, End::Unreachable(Cause::Refused))]);
    funnel.on_notice(refused, &ends, &mut layers);
    assert_eq!(publish(&mut funnel, &mut ends), []);
    funnel.on_notice(Notice::Failed(peer(1)), &ends, &mut layers);
    assert_eq!(
        (funnel.end_state(ONE), publish(&mut funnel, &mut ends)),
        (EndState::Declared, vec![(ONE, End::Failed)])
    );
}

#[test]
fn a_peer_that_is_unreachable_and_fails_before_its_end_is_published_has_failed() {
    let (_job, mut funnel, mut layers) = funnel();
    for notice in [
        Notice::Refused { peer: peer(1), cause: Cause::Refused },
        Notice::Failed(peer(2)),
        Notice::Failed(peer(1)),
        Notice::Finalized(peer(1)),
    ] {
        funnel.on_notice(notice, &Ends::default(), &mut layers);
    }
    [(TWO, 1), (ONE, 0)].into_iter().for_each(|(peer, endpoint)| funnel.on_severed(peer, endpoint));
    funnel.examine(&mut layers);
    assert_eq!(ends(&mut funnel), [(ONE, End::Failed), (TWO, End::Failed)]);
}

#[test]
fn a_peer_that_this_process_cannot_reach_ends_at_once() {
    let (_job, mut funnel, mut layers) = funnel();
    funnel.on_notice(Notice::Failed(peer(1)), &Ends::default(), &mut layers);
    let mut other = card(3);
    other.layout += 1;
    assert_eq!(funnel.connect_or_end(THREE, &other, &mut layers), Err(Cause::LayoutDiffers));
    assert_eq!(ends(&mut funnel), [(THREE, End::Unreachable(Cause::LayoutDiffers))]);
    assert_eq!(funnel.end_state(ONE), EndState::Declared);
}
