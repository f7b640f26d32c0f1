// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Agreements and shrinks of several communicators, which each rank calls in an order of its own, while victims die: they wait for each
//! other. Some calls are nonblocking, so that several run together at a rank. All of them end; each has one answer at all survivors; and
//! where all ranks have the same order, none is crossed.

use crate::process::{Process, SimCreation, SimOperation};
use mend_base::{Rank, reach};
use mend_mpi::{CommKey, Detail, Error};
use mend_transport::Buffer;
use std::sync::Arc;

/// What the members call on a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Agree,
    Shrink,
}

/// One call of a round.
#[derive(Clone, Copy, Debug)]
struct Planned {
    comm: CommKey,
    call: Call,
    /// The same at all ranks.
    number: u64,
}

/// A call that runs.
enum Running {
    Agree(Arc<Buffer>, SimOperation),
    Shrink(SimCreation),
}

/// One job. Row AG16.
pub async fn run(process: Process) {
    let world = process.mpi.engine().comm_world();
    let mut comms = Vec::new();
    for number in 0..3 {
        process.at("crossed: dup", number);
        match process.mpi.dup(world).await {
            Ok(Some(comm)) => comms.push(comm),
            // At all survivors alike (Row CC1).
            _ => return free_all(&process, comms),
        }
    }
    process.ready();
    let (rounds, in_order) = {
        let mut shared_random = process.shared_random.borrow_mut();
        (1 + shared_random.below(3), shared_random.once_in(4))
    };
    for round in 0..rounds {
        let mut calls = plan(&process, &comms, round);
        if !in_order {
            shuffle(&process, &mut calls);
        }
        if process.below(2) == 0 {
            process.pause().await;
        }
        while !calls.is_empty() {
            let together = if process.below(3) == 0 { 1 + process.below(3) as usize } else { 1 };
            let first: Vec<Planned> = calls.drain(..together.min(calls.len())).collect();
            let running: Vec<Running> = first.iter().map(|planned| begin(&process, *planned)).collect();
            for (planned, running) in first.into_iter().zip(running) {
                let crossed = end(&process, planned, running).await;
                assert!(!(in_order && crossed), "all ranks have the same order, and {planned:?} was crossed");
            }
        }
    }
    free_all(&process, comms);
}

fn free_all(process: &Process, comms: Vec<CommKey>) {
    comms.into_iter().for_each(|comm| process.mpi.free(comm).expect("the communicator exists"));
}

/// One or two calls on each communicator.
fn plan(process: &Process, comms: &[CommKey], round: u64) -> Vec<Planned> {
    let mut random = process.shared_random.borrow_mut();
    let mut calls = Vec::new();
    for &comm in comms {
        for _ in 0..1 + random.below(2) {
            let call = if random.once_in(2) { Call::Shrink } else { Call::Agree };
            calls.push(Planned { comm, call, number: round * 8 + calls.len() as u64 });
        }
    }
    calls
}

/// In an order of this rank, in which the calls on each communicator keep theirs.
fn shuffle(process: &Process, calls: &mut [Planned]) {
    let planned = calls.to_vec();
    let mut comms: Vec<CommKey> = planned.iter().map(|planned| planned.comm).collect();
    (1..comms.len()).rev().for_each(|at| comms.swap(at, process.below(at as u64 + 1) as usize));
    let mut left = planned;
    for (call, comm) in calls.iter_mut().zip(comms) {
        let next = left.iter().position(|planned| planned.comm == comm).expect("as many as there are");
        *call = left.remove(next);
    }
}

fn begin(process: &Process, planned: Planned) -> Running {
    process.at("crossed: call", planned.number);
    match planned.call {
        Call::Shrink => Running::Shrink(process.mpi.shrink(planned.comm)),
        Call::Agree => {
            let flag = Buffer::from_bytes(&(!(1u32 << process.rank.0)).to_le_bytes());
            let operation = process.mpi.agree(planned.comm, &flag);
            Running::Agree(flag, operation)
        }
    }
}

/// Waits for a call. Returns whether it was crossed.
async fn end(process: &Process, planned: Planned, running: Running) -> bool {
    let answer = match running {
        Running::Shrink(creation) => match creation.await {
            Ok(Some(made)) => {
                process.mpi.free(made).expect("it was just made");
                Ok(())
            }
            Ok(None) => panic!("a shrink of an intracommunicator makes one"),
            Err(error) => Err(error),
        },
        Running::Agree(flag, operation) => {
            let result = operation.await.map(|_| ());
            if !matches!(result, Err(Error { detail: Detail::Crossed(_), .. })) {
                assert_all_contributed(process, &flag);
            }
            result
        }
    };
    let answer = match answer {
        Ok(()) => 0,
        Err(Error { detail: Detail::ProcFailed(_), .. }) if planned.call != Call::Shrink => 1,
        Err(Error { detail: Detail::Crossed(_), .. }) => 2,
        Err(error) => panic!("{planned:?}: {error}"),
    };
    process.assert_answers_agree(planned.number, answer);
    if answer == 2 {
        reach!("sim.crossed: a call was crossed");
    }
    answer == 2
}

fn assert_all_contributed(process: &Process, flag: &Buffer) {
    let all = (1u64 << process.size) - 1;
    let bytes = flag.to_vec().try_into().expect("4 bytes");
    let contributed = !u32::from_le_bytes(bytes);
    let missing = (0..process.size).filter(|rank| contributed >> rank & 1 == 0);
    let dead = missing.map(Rank).all(|rank| process.death_has_begun(rank));
    assert!(dead && u64::from(contributed) & !all == 0, "the flag lacks living members: {contributed:b}");
}
