// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A member dies while collective operations run, and the others hear of it one by one.

use crate::scripted::{Process, ScriptedJob, peer};
use crate::{CommKey, Detail, Error, ErrorClass, Request, Started, State, Status};
use mend_base::{Instant, Random, Rank, Source, Tag, TagSelector};
use mend_coll::Collective;
use mend_datatype::{Datatype, Op, TypedBuffer};
use mend_pml::SendMode;
use mend_runtime::Notice;
use mend_transport::{Buffer, Cause, UserMemory};
use std::sync::Arc;

const TAG: Tag = Tag(4);
/// As long as a message that is offered, and goes in several chunks.
const LARGE: usize = 1000;

/// A job whose processes all know each other.
fn job(size: u32) -> (ScriptedJob, Vec<Process>) {
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

fn progress(process: &mut Process) {
    process.progress(Instant(1));
}

fn ints(buffer: &Arc<Buffer>) -> TypedBuffer {
    TypedBuffer::new(UserMemory::of_buffer(buffer), Datatype::INT, buffer.len() as u64 / 4)
}

fn result(process: &Process, started: Started) -> Option<Result<Status, Error>> {
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
    (process.collective(comm, call).expect("nobody of it failed"), data)
}

fn ended(process: &Process, started: Started) -> Detail {
    result(process, started).expect("it is over").expect_err("it did not succeed").detail
}

// Rows CO1, CO2, CO4, CO12
#[test]
fn a_death_ends_what_runs_at_who_has_heard_and_nothing_starts_there_any_more() {
    let (job, mut processes) = job(3);
    let world = processes[0].world();
    let barriers: Vec<_> = processes[..2]
        .iter_mut()
        .map(|process| process.collective(world, Collective::Barrier).expect("nobody has failed yet"))
        .collect();
    processes.pop();
    (0..4).for_each(|_| processes.iter_mut().for_each(progress));
    job.notify(0, Notice::Failed(peer(2)));
    assert_eq!(processes[0].failed(world), Ok(vec![Rank(2)]));
    assert_eq!(ended(&processes[0], barriers[0]), Detail::ProcFailed(Rank(2)));
    assert_eq!(result(&processes[1], barriers[1]), None, "it has not heard");
    // Point-to-point does not notice.
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
        let group = processes[0].communicator(world).expect("it stands").group.clone();
        assert_eq!(processes[0].dup(world).expect_err("a member failed").class, ErrorClass::ProcFailed);
        assert_eq!(
            processes[0].split(world, Some(0), 0).expect_err("a member failed").class,
            ErrorClass::ProcFailed
        );
        assert_eq!(
            processes[0].create(world, &group).expect_err("a member failed").class,
            ErrorClass::ProcFailed
        );
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
fn nobody_is_blamed_for_leaving_before_the_others_are_heard_of() {
    for dead in [true, false] {
        let (job, mut processes) = job(3);
        let world = processes[0].world();
        let call = Collective::Bcast { data: ints(&Buffer::zeroed(LARGE)), root: Rank(1) };
        let waiting = processes[0].collective(world, call).expect("nobody has failed yet");
        // Rank 1 refuses to start it, because it has heard of a death, or because its program is wrong; and leaves.
        job.notify(0, Notice::Finalized(peer(1)));
        (0..3).for_each(|_| progress(&mut processes[0]));
        assert_eq!(result(&processes[0], waiting), None, "not before 2 is heard of");
        assert_eq!(job.asked(), [(0, peer(2))]);
        job.notify(0, if dead { Notice::Failed(peer(2)) } else { Notice::Alive(peer(2)) });
        (0..3).for_each(|_| progress(&mut processes[0]));
        let expected = if dead { Detail::ProcFailed(Rank(2)) } else { Detail::PeerLeft(Rank(1)) };
        assert_eq!(ended(&processes[0], waiting), expected);
    }
}

/// As the daemon does: one answer stands for all questions that came before it.
fn answer_what_is_new(job: &ScriptedJob, answered: &mut usize) {
    let asked = job.asked();
    if asked.len() > *answered {
        let (to, about) = asked[*answered];
        assert!(asked[*answered..].iter().all(|question| *question == (to, about)));
        *answered = asked.len();
        job.notify(to, Notice::Alive(about));
    }
}

/// Rank 1 waits in a barrier for rank 0, and looks now and then; of the others it has met those below `met`.
fn asked_of(size: u32, met: u32, looks: u32, first: impl Fn(&mut Process)) -> Vec<u32> {
    let job = ScriptedJob::default();
    let mut process = job.process(1, size);
    (0..met).filter(|&other| other != 1).for_each(|other| job.give_contact(1, other));
    progress(&mut process);
    let world = process.world();
    process.collective(world, Collective::Barrier).expect("nobody has failed yet");
    first(&mut process);
    let mut answered = 0;
    for _ in 0..looks {
        process.check();
        progress(&mut process);
        answer_what_is_new(&job, &mut answered);
        progress(&mut process);
    }
    let mut asked: Vec<u32> = job.asked().iter().map(|(_, about)| about.number()).collect();
    asked.sort_unstable();
    asked.dedup();
    asked
}

// Row CO1: however many members, and whatever the distance between questions, nobody is left out.
#[test]
fn who_waits_long_asks_about_every_member_that_it_never_met() {
    for (size, met) in (3..9).flat_map(|size| (2..size).map(move |met| (size, met))) {
        let unconnected: Vec<u32> = (met..size).collect();
        assert_eq!(asked_of(size, met, 20, |_| ()), unconnected, "{size} members, {met} met: soon");
        let long_since = |process: &mut Process| process.unconnected_query.skip_early_checks();
        let later = asked_of(size, met, 16 * size, long_since);
        assert_eq!(later, unconnected, "{size} members, {met} met: later");
    }
}

// Row CO1
#[test]
fn who_was_asked_about_before_is_asked_about_again_and_one_answer_for_both_questions_is_enough() {
    let (job, mut processes) = job(3);
    let world = processes[0].world();
    let call = Collective::Bcast { data: ints(&Buffer::zeroed(LARGE)), root: Rank(1) };
    let waiting = processes[0].collective(world, call).expect("nobody has failed yet");
    processes[0].layers.net.evidence.push((2, Cause::Silent));
    progress(&mut processes[0]);
    assert_eq!(job.asked(), [(0, peer(2))], "for it is suspected");
    job.notify(0, Notice::Finalized(peer(1)));
    let mut answered = 0;
    for _ in 0..9 {
        (0..3).for_each(|_| progress(&mut processes[0]));
        let both = job.asked().len() == 2;
        assert!(
            both || result(&processes[0], waiting).is_none(),
            "the first answer may be older than a death"
        );
        answer_what_is_new(&job, &mut answered);
    }
    assert_eq!(ended(&processes[0], waiting), Detail::PeerLeft(Rank(1)));
    assert_eq!(job.asked().len(), 2);
}

// Row CO1
#[test]
fn the_answer_to_one_operation_in_doubt_is_none_to_a_later_one() {
    for dead in [true, false] {
        let (job, mut processes) = job(3);
        let world = processes[0].world();
        let begin = |process: &mut Process| {
            let call = Collective::Bcast { data: ints(&Buffer::zeroed(LARGE)), root: Rank(1) };
            process.collective(world, call).expect("nobody has failed yet")
        };
        let first = begin(&mut processes[0]);
        job.notify(0, Notice::Finalized(peer(1)));
        (0..3).for_each(|_| progress(&mut processes[0]));
        assert_eq!(job.asked(), [(0, peer(2))]);
        // Rank 2 lives when this question is answered, and may be dead before the next one is asked.
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
    let world = processes[0].world();
    let halves: Vec<_> = (0u32..)
        .zip(&mut processes)
        .map(|(rank, process)| process.split(world, Some(rank % 2), 0).expect("right arguments"))
        .collect();
    (0..9).for_each(|_| processes.iter_mut().for_each(progress));
    let comms: Vec<_> = halves
        .into_iter()
        .zip(&mut processes)
        .map(|(started, process)| made(process, started).expect("it was made"))
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

/// What a making came to.
fn made(process: &mut Process, started: Started) -> Option<CommKey> {
    let Started::Running(request) = started else { panic!("a making has a request") };
    let comm = process.created(request);
    process.release(request);
    comm
}

// Row CO3
#[test]
fn a_communicator_born_at_one_alone_refuses_what_is_sent_on_it_and_can_be_freed() {
    for named in [true, false] {
        let (job, mut processes) = job(3);
        let world = processes[0].world();
        let first = processes[0].dup(world).expect("right arguments");
        (0..4).for_each(|_| progress(&mut processes[0]));
        let only = made(&mut processes[0], first).expect("the root of a broadcast need not wait");
        let second = processes[1].dup(world).expect("right arguments");
        processes.pop();
        // The contribution that names it lies in the ring of 1, who takes it, or hears of the death before.
        processes[1].layers.net.receives_max = usize::from(named);
        job.notify(1, Notice::Failed(peer(2)));
        assert_eq!(processes[1].failed(world), Ok(vec![Rank(2)]));
        assert!(matches!(ended(&processes[1], second), Detail::ProcFailed(Rank(2))));
        assert_eq!(made(&mut processes[1], second), None);
        processes[1].layers.net.receives_max = usize::MAX;
        let offer = processes[0]
            .send(only, Rank(1), TAG, SendMode::Synchronous, ints(&Buffer::zeroed(LARGE)))
            .expect("right arguments");
        processes[0].free(only).expect("it can be freed");
        (0..9).for_each(|_| processes.iter_mut().for_each(progress));
        if named {
            assert_eq!(ended(&processes[0], offer), Detail::PeerFreed(Rank(1)));
        } else {
            assert_eq!(result(&processes[0], offer), None, "1 does not know that it will never have it");
        }
        release(&mut processes[0], offer);
        // Neither waits for the other in MPI_Finalize.
        let mut left = [false; 2];
        for _ in 0..9 {
            for (process, left) in processes.iter_mut().zip(&mut left) {
                progress(process);
                *left = process.finish();
            }
        }
        assert_eq!(left, [true, true]);
    }
}

/// What one of the survivors is at.
struct Survivor {
    process: Process,
    /// Operations on WORLD so far: everybody starts the same ones in the same order.
    round: u32,
    running: Option<(Started, Arc<Buffer>)>,
    over: bool,
    /// Buffers of what has ended, as they were then.
    silent: Vec<(Arc<Buffer>, Vec<u8>)>,
    created: Vec<CommKey>,
}

/// Starts operation `round` on WORLD: large enough to be offered, or not.
fn start(process: &mut Process, seed: u64, round: u32) -> Result<(Started, Arc<Buffer>), Error> {
    let world = process.world();
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
    /// Makes progress, and starts the next operation when one is over; over itself at the first failure.
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
        self.silent.push((Arc::clone(&data), data.to_vec()));
        if let Err(error) = result {
            self.fail(error, dead);
        }
    }

    /// Row AK3: it can look up whom the error means.
    fn fail(&mut self, error: Error, dead: Rank) {
        assert_eq!(error.detail, Detail::ProcFailed(dead));
        let world = self.process.world();
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
                let (silent, created) = (vec![], vec![]);
                Some(Survivor { process, round: 0, running: None, over: false, silent, created })
            })
            .collect();
        let death = random.below(120);
        let heard: Vec<_> = (0..size).map(|_| death + 1 + random.below(60)).collect();
        for step in 0.. {
            if step == death {
                all[dead.index()] = None;
            }
            (0..size).filter(|&at| heard[at as usize] == step && at != dead.0).for_each(|at| {
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
        use_what_was_born(&mut all, dead);
        leave(&mut all, seed);
    }
}

/// A member that has a communicator that others may not have sends on it, and frees it.
fn use_what_was_born(all: &mut [Survivor], dead: Rank) {
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
                    process.detach(request);
                }
            }
            process.free(comm).expect("it can be freed");
        }
    }
}

/// MPI_Finalize at all: nobody waits for anybody for ever, and nothing was written after its end.
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
        assert!(steps < 2_000, "seed {seed}: somebody never leaves");
    }
    for survivor in all {
        let counts = survivor.process.open_counts();
        assert_eq!((counts.collectives, counts.communicators), (0, 0), "seed {seed}");
        for (buffer, then) in &survivor.silent {
            assert!(buffer.to_vec() == *then, "seed {seed}: a buffer changed after its end");
        }
    }
}
