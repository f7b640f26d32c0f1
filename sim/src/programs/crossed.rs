// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Agreements and shrinks of several communicators, which each rank calls in an order of its own, while victims die: they wait for each
//! other. All of them end; each has one answer at all survivors; and where all ranks have the same order, none is crossed.

use crate::Process;
use mend_base::{Rank, reach};
use mend_mpi::{CommKey, Detail, Error};
use mend_transport::Buffer;

/// What the members call on a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Agree,
    Shrink,
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
        let calls: Vec<Call> = comms.iter().map(|_| draw(&process)).collect();
        let order = if in_order { (0..comms.len()).collect() } else { shuffled(&process, comms.len()) };
        if process.below(2) == 0 {
            process.pause().await;
        }
        for at in order {
            let number = round * 8 + at as u64;
            let crossed = call(&process, comms[at], calls[at], number).await;
            assert!(!(in_order && crossed), "all ranks have the same order, and call {number} was crossed");
        }
    }
    free_all(&process, comms);
}

fn free_all(process: &Process, comms: Vec<CommKey>) {
    comms.into_iter().for_each(|comm| process.mpi.free(comm).expect("the communicator exists"));
}

fn draw(process: &Process) -> Call {
    let shrinks = process.shared_random.borrow_mut().once_in(2);
    if shrinks { Call::Shrink } else { Call::Agree }
}

fn shuffled(process: &Process, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    (1..count).rev().for_each(|at| order.swap(at, process.below(at as u64 + 1) as usize));
    order
}

/// One call. Returns whether it was crossed.
async fn call(process: &Process, comm: CommKey, call: Call, number: u64) -> bool {
    process.at("crossed: call", number);
    let answer = match call {
        Call::Shrink => match process.mpi.shrink(comm).await {
            Ok(Some(made)) => {
                process.mpi.free(made).expect("it was just made");
                Ok(())
            }
            Ok(None) => panic!("a shrink of an intracommunicator makes one"),
            Err(error) => Err(error),
        },
        Call::Agree => agree(process, comm).await,
    };
    let answer = match answer {
        Ok(()) => 0,
        Err(Error { detail: Detail::ProcFailed(_), .. }) if call != Call::Shrink => 1,
        Err(Error { detail: Detail::Crossed(_), .. }) => 2,
        Err(error) => panic!("call {number} on a communicator: {error}"),
    };
    process.assert_answers_agree(number, answer);
    if answer == 2 {
        reach!("sim.crossed: a call was crossed");
    }
    answer == 2
}

async fn agree(process: &Process, comm: CommKey) -> Result<(), Error> {
    let (mine, all) = (1u32 << process.rank.0, (1u64 << process.size) - 1);
    let flag = Buffer::from_bytes(&(!mine).to_le_bytes());
    let result = process.mpi.agree(comm, &flag).await.map(|_| ());
    if !matches!(result, Err(Error { detail: Detail::Crossed(_), .. })) {
        let bytes = flag.to_vec().try_into().expect("4 bytes");
        let contributed = !u32::from_le_bytes(bytes);
        let missing = (0..process.size).filter(|rank| contributed >> rank & 1 == 0);
        let dead = missing.map(Rank).all(|rank| process.death_has_begun(rank));
        assert!(dead && u64::from(contributed) & !all == 0, "the flag lacks living members: {contributed:b}");
    }
    result
}
