// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A member dies while collective operations run, and the other members get the notice at different times.

use crate::scripted::{Process, ScriptedJob, peer};
use crate::{CommKey, Detail, Error, ErrorClass, Hints, Request, Started, State, Status, Uniform};
use mend_base::{Instant, Random, Rank, Source, Tag, TagSelector};
use mend_coll::Collective;
use mend_datatype::{Datatype, Op, TypedBuffer};
use mend_pml::SendMode;
use mend_runtime::Notice;
use mend_transport::{Buffer, Cause, UserMemory};
use std::sync::Arc;

const TAG: Tag = Tag(4);
/// The length of a message that needs a rendezvous and several chunks.
pub(super) const LARGE: usize = 1000;

/// A job whose processes are all connected.
pub(super) fn job(size: u32) -> (ScriptedJob, Vec<Process>) {
    let job = ScriptedJob::default();
    let mut processes: Vec<_> = (0..size).map(|me| job.process(me, size)).collect();
    for (me, other) in (0..size).flat_map(|me| (0..size).map(move |other| (me, other))) {
        if me != other {
            job.give_contact(me, other);
        }
    }
    processes.iter_mut().for_each(progress);
    (job, processes)
}

pub(super) fn progress(process: &mut Process) {
    process.progress(Instant(1));
}

pub(super) fn ints(buffer: &Arc<Buffer>) -> TypedBuffer {
    TypedBuffer::new(UserMemory::of_buffer(buffer), Datatype::INT, buffer.len() as u64 / 4)
}

pub(super) fn result(process: &Process, started: Started) -> Option<Result<Status, Error>> {
    match started {
        Started::Done(status) => Some(Ok(status)),
        Started::Running(request) => match process.poll(request) {
            State::Done(result) => Some(result),
            State::Running | State::PendingFailure => None,
        },
    }
}

fn release(process: &mut Process, started: Started) {
    if let Started::Running(request) = started {
        process.release(request);
    }
}

fn allreduce(process: &mut Process, comm: CommKey) -> (Started, Arc<Buffer>) {
    let data = Buffer::from_bytes(&1u32.to_ne_bytes());
    let call = Collective::Allreduce { send: None, receive: ints(&data), op: Op::Sum };
    (process.collective(comm, call).expect("no member has failed"), data)
}

pub(super) fn ended(process: &Process, started: Started) -> Detail {
    result(process, started).expect("it is over").expect_err("it did not succeed").detail
}

// Rows CO1, CO2, CO4, CO12
#[test]
fn a_published_death_ends_operations_that_run_and_lets_none_start() {
    let (job, mut processes) = job(3);
    let world = processes[0].comm_world();
    let barriers: Vec<_> = processes[..2]
        .iter_mut()
        .map(|process| process.collective(world, Collective::Barrier).expect("nobody has failed yet"))
        .collect();
    processes.pop();
    (0..4).for_each(|_| processes.iter_mut().for_each(progress));
    job.notify(0, Notice::Failed(peer(2)));
    assert_eq!(processes[0].failed(world), Ok(vec![Rank(2)]));
    assert_eq!(ended(&processes[0], barriers[0]), Detail::ProcFailed(Rank(2)));
    assert_eq!(result(&processes[1], barriers[1]), None, "the notice has not come here");
    // Point-to-point messages between living members go on.
    let room = Buffer::zeroed(LARGE);
    let sent = processes[0]
        .send(world, Rank(1), TAG, SendMode::Synchronous, ints(&Buffer::from_bytes(&[7; LARGE])))
        .expect("right arguments");
    let source = Source::Rank(Rank(0));
    let received =
        processes[1].receive(world, source, TagSelector::Tag(TAG), ints(&room)).expect("right arguments");
    (0..9).for_each(|_| processes.iter_mut().for_each(progress));
    assert!(matches!(result(&processes[0], sent), Some(Ok(_))));
    assert!(matches!(result(&processes[1], received), Some(Ok(_))));
    assert_eq!(room.to_vec(), [7; LARGE]);
    // Acknowledged or not (Row AK8).
    for acknowledged in [false, true] {
        if acknowledged {
            assert_eq!(processes[0].acknowledge(world, None), Ok(1));
        }
        let again = processes[0].collective(world, Collective::Barrier).expect_err("a member failed");
        assert_eq!((again.class, again.detail), (ErrorClass::ProcFailed, Detail::ProcFailed(Rank(2))));
        let group = processes[0].communicator(world).expect("WORLD exists").group.clone();
        let creations = [
            processes[0].dup(world),
            processes[0].split(world, Some(0), 0),
            processes[0].create(world, &group),
        ];
        for creation in creations {
            let creation = creation.expect("right arguments");
            assert_eq!(ended(&processes[0], creation), Detail::ProcFailed(Rank(2)));
            release(&mut processes[0], creation);
        }
    }
    job.notify(1, Notice::Failed(peer(2)));
    assert_eq!(processes[1].failed(world), Ok(vec![Rank(2)]));
    assert_eq!(ended(&processes[1], barriers[1]), Detail::ProcFailed(Rank(2)));
    for (process, barrier) in processes.iter_mut().zip(barriers) {
        release(process, barrier);
        assert_eq!(process.open_counts().collectives, 0);
    }
}

// Row CO1
#[test]
fn an_error_names_a_member_that_left_only_after_all_others_are_known_to_live() {
    for dead in [true, false] {
        let (job, mut processes) = job(3);
        let world = processes[0].comm_world();
        let call = Collective::Bcast { data: ints(&Buffer::zeroed(LARGE)), root: Rank(1) };
        let waiting = processes[0].collective(world, call).expect("nobody has failed yet");
        // Rank 1 leaves without starting it, because it knows of a death, or because its program is wrong.
        job.notify(0, Notice::Finalized(peer(1)));
        (0..3).for_each(|_| progress(&mut processes[0]));
        assert_eq!(result(&processes[0], waiting), None, "not before it is known whether 2 lives");
        assert_eq!(job.asked(), [(0, peer(2))]);
        job.notify(0, if dead { Notice::Failed(peer(2)) } else { Notice::Alive(peer(2)) });
        (0..3).for_each(|_| progress(&mut processes[0]));
        let expected = if dead { Detail::ProcFailed(Rank(2)) } else { Detail::PeerLeft(Rank(1)) };
        assert_eq!(ended(&processes[0], waiting), expected);
    }
}

// Rule 7, I2
#[test]
fn an_operation_that_a_living_member_refuses_ends_when_the_others_are_known_to_live() {
    for dead in [true, false] {
        let (job, mut processes) = job(3);
        let world = processes[0].comm_world();
        let comms: Vec<_> =
            processes.iter_mut().map(|process| process.dup(world).expect("right arguments")).collect();
        (0..9).for_each(|_| processes.iter_mut().for_each(progress));
        let copies: Vec<_> = processes
            .iter_mut()
            .zip(comms)
            .map(|(process, started)| created(process, started).expect("it was created"))
            .collect();
        let call = Collective::Bcast { data: ints(&Buffer::zeroed(LARGE)), root: Rank(0) };
        let waiting = processes[0].collective(copies[0], call).expect("nobody has failed yet");
        // Rank 1 does not start the operation, and refuses its messages.
        processes[1].free(copies[1]).expect("it can be freed");
        (0..9).for_each(|_| processes.iter_mut().for_each(progress));
        assert_eq!(result(&processes[0], waiting), None, "the reason may be a failure");
        assert_eq!(job.asked(), [(0, peer(1)), (0, peer(2))]);
        job.notify(0, Notice::Alive(peer(1)));
        job.notify(0, if dead { Notice::Failed(peer(2)) } else { Notice::Alive(peer(2)) });
        (0..3).for_each(|_| progress(&mut processes[0]));
        let expected = if dead { Detail::ProcFailed(Rank(2)) } else { Detail::PeerFreed(Rank(1)) };
        assert_eq!(ended(&processes[0], waiting), expected);
    }
}

/// Answers as the node daemon does: one answer for all questions before it.
fn answer_new_questions(job: &ScriptedJob, answered: &mut usize) {
    let asked = job.asked();
    if asked.len() > *answered {
        let (to, about) = asked[*answered];
        assert!(asked[*answered..].iter().all(|question| *question == (to, about)));
        *answered = asked.len();
        job.notify(to, Notice::Alive(about));
    }
}

/// The ranks about which rank 1 asks while it waits in a barrier, after `checks` timed checks. It is connected to those below
/// `connected`.
fn asked_about(size: u32, connected: u32, checks: u32, first: impl Fn(&mut Process)) -> Vec<u32> {
    let job = ScriptedJob::default();
    let mut process = job.process(1, size);
    (0..connected).filter(|&other| other != 1).for_each(|other| job.give_contact(1, other));
    progress(&mut process);
    let world = process.comm_world();
    process.collective(world, Collective::Barrier).expect("nobody has failed yet");
    first(&mut process);
    let mut answered = 0;
    for _ in 0..checks {
        process.check();
        progress(&mut process);
        answer_new_questions(&job, &mut answered);
        progress(&mut process);
    }
    let mut asked: Vec<u32> = job.asked().iter().map(|(_, about)| about.number()).collect();
    asked.sort_unstable();
    asked.dedup();
    asked
}

// Row CO1: with any number of members, and any distance between questions, no member is left out.
#[test]
fn a_long_wait_asks_about_every_unconnected_member() {
    for (size, connected) in (3..9).flat_map(|size| (2..size).map(move |connected| (size, connected))) {
        let unconnected: Vec<u32> = (connected..size).collect();
        assert_eq!(
            asked_about(size, connected, 20, |_| ()),
            unconnected,
            "{size} members, {connected} connected: soon"
        );
        let long_since = |process: &mut Process| process.unconnected_query.skip_early_checks();
        let later = asked_about(size, connected, 16 * size, long_since);
        assert_eq!(later, unconnected, "{size} members, {connected} connected: later");
    }
}

// Row CO1
#[test]
fn a_member_is_asked_about_again_and_one_answer_for_both_questions_is_enough() {
    let (job, mut processes) = job(3);
    let world = processes[0].comm_world();
    let call = Collective::Bcast { data: ints(&Buffer::zeroed(LARGE)), root: Rank(1) };
    let waiting = processes[0].collective(world, call).expect("nobody has failed yet");
    processes[0].layers.net.evidence.push((2, Cause::Silent));
    progress(&mut processes[0]);
    assert_eq!(job.asked(), [(0, peer(2))], "because it is suspected");
    job.notify(0, Notice::Finalized(peer(1)));
    let mut answered = 0;
    for _ in 0..9 {
        (0..3).for_each(|_| progress(&mut processes[0]));
        let both = job.asked().len() == 2;
        assert!(
            both || result(&processes[0], waiting).is_none(),
            "the first answer may be older than a death"
        );
        answer_new_questions(&job, &mut answered);
    }
    assert_eq!(ended(&processes[0], waiting), Detail::PeerLeft(Rank(1)));
    assert_eq!(job.asked().len(), 2);
}

// Row CO1
#[test]
fn the_answer_for_one_operation_does_not_count_for_a_later_one() {
    for dead in [true, false] {
        let (job, mut processes) = job(3);
        let world = processes[0].comm_world();
        let begin = |process: &mut Process| {
            let call = Collective::Bcast { data: ints(&Buffer::zeroed(LARGE)), root: Rank(1) };
            process.collective(world, call).expect("nobody has failed yet")
        };
        let first = begin(&mut processes[0]);
        job.notify(0, Notice::Finalized(peer(1)));
        (0..3).for_each(|_| progress(&mut processes[0]));
        assert_eq!(job.asked(), [(0, peer(2))]);
        // Rank 2 lives when this question is answered, and may die before the next question.
        let second = begin(&mut processes[0]);
        (0..3).for_each(|_| progress(&mut processes[0]));
        job.notify(0, Notice::Alive(peer(2)));
        (0..3).for_each(|_| progress(&mut processes[0]));
        assert_eq!(ended(&processes[0], first), Detail::PeerLeft(Rank(1)));
        assert_eq!(result(&processes[0], second), None, "its own question is not answered");
        assert_eq!(job.asked(), [(0, peer(2)); 2]);
        job.notify(0, if dead { Notice::Failed(peer(2)) } else { Notice::Alive(peer(2)) });
        (0..3).for_each(|_| progress(&mut processes[0]));
        let expected = if dead { Detail::ProcFailed(Rank(2)) } else { Detail::PeerLeft(Rank(1)) };
        assert_eq!(ended(&processes[0], second), expected);
    }
}

// Row CO5
#[test]
fn a_communicator_without_the_dead_goes_on() {
    let (job, mut processes) = job(4);
    let world = processes[0].comm_world();
    let halves: Vec<_> = (0u32..)
        .zip(&mut processes)
        .map(|(rank, process)| process.split(world, Some(rank % 2), 0).expect("right arguments"))
        .collect();
    (0..9).for_each(|_| processes.iter_mut().for_each(progress));
    let comms: Vec<_> = halves
        .into_iter()
        .zip(&mut processes)
        .map(|(started, process)| created(process, started).expect("it was made"))
        .collect();
    let before = allreduce(&mut processes[0], comms[0]);
    let in_vain = allreduce(&mut processes[1], comms[1]);
    processes.pop();
    (0..3).for_each(|other| job.notify(other, Notice::Failed(peer(3))));
    processes.iter_mut().for_each(progress);
    let after = allreduce(&mut processes[2], comms[2]);
    (0..9).for_each(|_| processes.iter_mut().for_each(progress));
    for (at, (started, data)) in [(0, before), (2, after)] {
        assert!(matches!(result(&processes[at], started), Some(Ok(_))));
        assert_eq!(data.to_vec(), 2u32.to_ne_bytes());
    }
    assert_eq!(ended(&processes[1], in_vain.0), Detail::ProcFailed(Rank(1)), "the dead is its rank 1");
}

/// The communicator that a creation created.
fn created(process: &mut Process, started: Started) -> Option<CommKey> {
    let Started::Running(request) = started else { panic!("a creation has a request") };
    let comm = process.created(request);
    process.release(request);
    comm
}

// Row CO3
#[test]
fn a_communicator_that_only_some_members_created_refuses_messages_and_can_be_freed() {
    for named in [true, false] {
        let (job, mut processes) = job(4);
        let world = processes[0].comm_world();
        // By default the members vote, and no member alone has the communicator.
        let mut hints = Hints::default();
        hints.uniform = Uniform::Local;
        processes.iter_mut().for_each(|process| process.set_hints(world, hints).expect("WORLD exists"));
        let first = processes[0].dup(world).expect("right arguments");
        // The identity goes from 0 to 1 and 2, and from 2 to 3: without 3 it is known at 2, and without 2 it is not known at 3.
        let (other, dead) = if named { (2, 3) } else { (3, 2) };
        processes[other].layers.net.receives_max = 0;
        let second = processes[other].dup(world).expect("right arguments");
        job.notify(other as u32, Notice::Failed(peer(dead)));
        assert_eq!(processes[other].failed(world), Ok(vec![Rank(dead)]));
        processes[other].layers.net.receives_max = usize::MAX;
        (0..4).for_each(|_| [0, other].into_iter().for_each(|at| progress(&mut processes[at])));
        let only = created(&mut processes[0], first).expect("the root of a broadcast need not wait");
        assert!(
            matches!(ended(&processes[other], second), Detail::ProcFailed(Rank(failed)) if failed == dead)
        );
        assert_eq!(created(&mut processes[other], second), None);
        let sent = processes[0]
            .send(only, Rank(other as u32), TAG, SendMode::Synchronous, ints(&Buffer::zeroed(LARGE)))
            .expect("right arguments");
        processes[0].free(only).expect("it can be freed");
        (0..9).for_each(|_| processes.iter_mut().for_each(progress));
        if named {
            assert_eq!(ended(&processes[0], sent), Detail::NotCreated(Rank(2)));
        } else {
            assert_eq!(
                result(&processes[0], sent),
                None,
                "rank 3 does not know the identity, and refuses nothing yet"
            );
        }
        release(&mut processes[0], sent);
        // In MPI_Finalize no rank waits for the other.
        let mut left = [false; 2];
        for _ in 0..9 {
            for (at, left) in [0, other].into_iter().zip(&mut left) {
                progress(&mut processes[at]);
                *left = processes[at].finish();
            }
        }
        assert_eq!(left, [true, true]);
    }
}

/// The state of a surviving rank.
struct Survivor {
    process: Process,
    /// The number of operations on WORLD so far: all ranks start the same ones in the same order.
    round: u32,
    running: Option<(Started, Arc<Buffer>)>,
    over: bool,
    /// Buffers of operations that have ended, with their content then.
    ended: Vec<(Arc<Buffer>, Vec<u8>)>,
    created: Vec<CommKey>,
}

/// Starts operation `round` on WORLD; its messages are eager or need a rendezvous.
fn start(process: &mut Process, seed: u64, round: u32) -> Result<(Started, Arc<Buffer>), Error> {
    let world = process.comm_world();
    let size = process.communicator(world).map_or(1, |world| world.size());
    let mut random = Random(seed ^ u64::from(round) << 32);
    let each = [1, 60][random.below(2) as usize];
    let root = Rank(random.below(size.into()) as u32);
    let data = Buffer::from_bytes(&vec![1; 4 * each * size as usize]);
    let all = || ints(&data);
    let call = match random.below(8) {
        0 => Collective::Barrier,
        1 => Collective::Bcast { data: all(), root },
        2 => Collective::Allreduce { send: None, receive: all(), op: Op::Sum },
        3 => Collective::Alltoall { send: None, receive: all() },
        4 => Collective::Allgather { send: None, receive: all() },
        5 => Collective::Reduce {
            send: Some(ints(&Buffer::zeroed(data.len()))),
            receive: Some(all()),
            op: Op::Sum,
            root,
        },
        6 => return process.dup(world).map(|started| (started, data)),
        _ => return process.split(world, Some(0), 0).map(|started| (started, data)),
    };
    process.collective(world, call).map(|started| (started, data))
}

impl Survivor {
    /// Makes progress, and starts the next operation when one has ended, until one fails.
    fn step(&mut self, seed: u64, dead: Rank) {
        progress(&mut self.process);
        if self.over {
            return;
        }
        let Some((started, data)) = self.running.take() else {
            match start(&mut self.process, seed, self.round) {
                Ok(running) => self.running = Some(running),
                Err(error) => self.fail(error, dead),
            }
            return self.round += 1;
        };
        let Some(result) = result(&self.process, started) else {
            return self.running = Some((started, data));
        };
        if let Started::Running(request @ Request::Collective(_)) = started {
            self.created.extend(self.process.created(request));
        }
        release(&mut self.process, started);
        self.ended.push((Arc::clone(&data), data.to_vec()));
        if let Err(error) = result {
            self.fail(error, dead);
        }
    }

    /// Row AK3: MPI_Comm_get_failed lists the process that the error names.
    fn fail(&mut self, error: Error, dead: Rank) {
        assert_eq!(error.detail, Detail::ProcFailed(dead));
        let world = self.process.comm_world();
        assert_eq!(self.process.failed(world), Ok(vec![dead]));
        self.over = true;
    }
}

// Rows CO1, CO11
#[test]
fn wherever_a_member_dies_the_survivors_return_write_nothing_and_leave() {
    for seed in 0..2000 {
        let mut random = Random(seed);
        let size = 2 + random.below(4) as u32;
        let (job, mut processes) = job(size);
        processes
            .iter_mut()
            .for_each(|process| process.layers.net.receives_max = 1 + random.below(3) as usize);
        let dead = Rank(random.below(size.into()) as u32);
        let mut all: Vec<_> = processes
            .into_iter()
            .map(|process| {
                let (ended, created) = (vec![], vec![]);
                Some(Survivor { process, round: 0, running: None, over: false, ended, created })
            })
            .collect();
        let death = random.below(120);
        let notified: Vec<_> = (0..size).map(|_| death + 1 + random.below(60)).collect();
        for step in 0.. {
            if step == death {
                all[dead.index()] = None;
            }
            (0..size).filter(|&at| notified[at as usize] == step && at != dead.0).for_each(|at| {
                job.notify(at, Notice::Failed(peer(dead.0)));
            });
            let at = random.below(size.into()) as usize;
            all[at].iter_mut().for_each(|survivor| survivor.step(seed, dead));
            if step > death && all.iter().flatten().all(|survivor| survivor.over) {
                break;
            }
            assert!(step < 20_000, "seed {seed}: a survivor waits");
        }
        let mut all: Vec<Survivor> = all.into_iter().flatten().collect();
        use_what_was_created(&mut all, dead);
        leave(&mut all, seed);
    }
}

/// Each member sends on the communicators that it has created and others may not have, and frees them.
fn use_what_was_created(all: &mut [Survivor], dead: Rank) {
    for survivor in all {
        for comm in core::mem::take(&mut survivor.created) {
            let process = &mut survivor.process;
            let refused = process.collective(comm, Collective::Barrier).expect_err("it holds the dead");
            assert_eq!(refused.detail, Detail::ProcFailed(dead));
            let size = process.communicator(comm).map_or(0, |communicator| communicator.size());
            for to in (0..size).map(Rank) {
                let data = ints(&Buffer::zeroed(LARGE));
                let sent = process.send(comm, to, TAG, SendMode::Standard, data).expect("right arguments");
                if let Started::Running(request) = sent {
                    process.free_request(request);
                }
            }
            process.free(comm).expect("it can be freed");
        }
    }
}

/// All call MPI_Finalize: no rank waits for ever, and no buffer changed after its operation had ended.
fn leave(all: &mut [Survivor], seed: u64) {
    let mut left = vec![false; all.len()];
    for steps in 0.. {
        for (survivor, left) in all.iter_mut().zip(&mut left) {
            progress(&mut survivor.process);
            *left = survivor.process.finish();
        }
        if left.iter().all(|left| *left) {
            break;
        }
        assert!(steps < 2_000, "seed {seed}: a rank does not leave MPI");
    }
    for survivor in all {
        let counts = survivor.process.open_counts();
        assert_eq!((counts.collectives, counts.communicators), (0, 0), "seed {seed}");
        for (buffer, then) in &survivor.ended {
            assert!(buffer.to_vec() == *then, "seed {seed}: a buffer changed after the end of its operation");
        }
    }
}
