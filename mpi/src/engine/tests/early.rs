// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages about communicators that are not created here: what a corrupt peer may send accuses that peer alone.

use super::collectives::{ended, job, progress};
use crate::member_protocols::AM_ID;
use crate::scripted::peer;
use crate::{Detail, SendMode};
use mend_base::{Identity, Instant, Job, Peer, Rank, Tag, Wire, Writer};
use mend_datatype::TypedBuffer;
use mend_proto::vote;
use mend_runtime::Notice;
use mend_transport::{Buffer, Cause, UserMemory};

/// A request of rank 1 for the result of the vote on this communicator, as in `member_protocols/packet.rs`.
fn request_for_a_creation(creator: Peer) -> Vec<u8> {
    let mut bytes = [0; 64];
    let mut out = Writer::new(&mut bytes);
    out.u8(5);
    Identity { creator, number: 77 }.write(&mut out);
    out.u32(1);
    vote::Message::Request(1).write(&mut out);
    let used = out.used();
    bytes[..used].to_vec()
}

fn asked_after(creator: Peer) -> Vec<(u32, Peer)> {
    let (job, mut processes) = job(3);
    job.give_message((1, 0), AM_ID, request_for_a_creation(creator));
    (0..3).for_each(|_| progress(&mut processes[0]));
    job.asked()
}

#[test]
fn a_request_for_a_communicator_of_no_process_accuses_its_sender_and_nobody_else() {
    assert_eq!(asked_after(peer(2)), [(0, peer(2))], "that creator may have failed");
    assert_eq!(asked_after(peer(9)), [(0, peer(1))], "there is no rank 9");
    assert_eq!(asked_after(Peer::new(Job(8), 2)), [(0, peer(1))], "it is of another job");
    assert_eq!(asked_after(peer(0)), [], "this process lives");
}

#[test]
fn without_memory_for_another_early_message_its_sender_is_refused_and_not_accused() {
    let (job, mut processes) = job(2);
    for _ in 0..=1 << 16 {
        job.give_message((1, 0), AM_ID, request_for_a_creation(peer(0)));
    }
    (0..3).for_each(|_| progress(&mut processes[0]));
    assert_eq!(job.refused(), [(0, peer(1), Cause::NoMemory)]);
    // No message arrives after one that is lost: the news of a revocation is too late.
    let world = processes[1].comm_world();
    processes[1].revoke(world).expect("right arguments");
    progress(&mut processes[1]);
    job.notify(0, Notice::Refused { peer: peer(1), cause: Cause::NoMemory });
    (0..3).for_each(|_| progress(&mut processes[0]));
    assert_eq!(processes[0].is_revoked(world), Ok(false));
    assert_eq!(job.asked(), []);
}

#[test]
fn a_process_that_is_unreachable_for_itself_revokes_and_learns_of_revocations() {
    let (job, mut processes) = job(2);
    job.give_contact(0, 0);
    let (world, data) =
        (processes[0].comm_world(), TypedBuffer::bytes(UserMemory::of_buffer(&Buffer::zeroed(4))));
    let send = processes[0].send(world, Rank(0), Tag(1), SendMode::Synchronous, data);
    progress(&mut processes[0]);
    processes[0].layers.net.evidence = vec![(0, Cause::NoMemory)];
    (0..3).for_each(|_| progress(&mut processes[0]));
    let unreachable = Detail::Unreachable(Rank(0), Cause::NoMemory);
    assert_eq!(ended(&processes[0], send.expect("right arguments")), unreachable);
    processes[0].revoke(world).expect("right arguments");
    for _ in 0..3 {
        processes.iter_mut().for_each(|process| _ = process.progress(Instant(1)));
    }
    assert_eq!(processes[1].is_revoked(world), Ok(true));
    assert_eq!(job.asked(), []);
}
