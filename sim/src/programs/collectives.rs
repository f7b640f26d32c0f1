// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random collective operations. Each result is compared with that of a sequential computation. Several operations may be
//! active at once on the same communicator.

use crate::Process;
use crate::launcher::SimRuntime;
use crate::process::Transports;
use mend_base::{Random, Rank};
use mend_datatype::{Datatype, Op, TypedBuffer};
use mend_mpi::{Collective, CommKey, Operation};
use mend_transport::{Buffer, UserMemory};
use std::sync::Arc;

/// An active operation.
pub(super) struct CheckedOperation {
    /// The name of the MPI call.
    pub(super) name: &'static str,
    pub(super) operation: Operation<Transports, SimRuntime>,
    /// The buffer and the values that the operation must produce.
    pub(super) expected: Option<(Arc<Buffer>, Vec<i32>)>,
    /// The members without whose part the operation ends with an error here, if they are few: those between this rank and the root that
    /// sends, and those to which this rank sends. `None`: all members.
    pub(super) needed: Option<Vec<Rank>>,
}

/// All ranks draw the same operations from their shared random numbers.
pub async fn run(process: Process) {
    let comm = process.mpi.engine().comm_world();
    let count = 1 + process.shared_random.borrow_mut().below(20);
    let mut pending: Vec<CheckedOperation> = Vec::new();
    for number in 0..count {
        process.at("collectives: start", number);
        pending.push(start(&process, comm, number as i32));
        while pending.len() as u64 > process.below(3) {
            let at = process.below(pending.len() as u64) as usize;
            end(pending.swap_remove(at)).await;
        }
        if process.below(3) == 0 {
            process.pause().await;
        }
    }
    for each in pending {
        process.at("collectives: wait", 0);
        end(each).await;
    }
}

async fn end(checked: CheckedOperation) {
    checked.operation.await.expect("all members live");
    checked.expected.iter().for_each(assert_result);
}

/// Asserts that the buffer of a completed operation holds the right values.
pub(super) fn assert_result((buffer, values): &(Arc<Buffer>, Vec<i32>)) {
    assert_eq!(read(buffer), *values);
}

/// One element of what rank `rank` contributes to operation `number`.
fn contribution(number: i32, rank: u32, element: usize) -> i32 {
    (number + 1) * 1_000 + rank as i32 * 37 % 101 + element as i32 * 7 % 13
}

fn contributions(number: i32, rank: u32, elements: usize) -> Vec<i32> {
    (0..elements).map(|element| contribution(number, rank, element)).collect()
}

/// Starts an operation that all ranks draw alike. Rank and size of `process` are those of the communicator.
pub(super) fn start(process: &Process, comm: CommKey, number: i32) -> CheckedOperation {
    start_drawn(process, comm, number, None)
}

/// The same for the operation with this index.
pub(super) fn start_one(process: &Process, comm: CommKey, number: i32, which: u64) -> CheckedOperation {
    start_drawn(process, comm, number, Some(which))
}

fn start_drawn(process: &Process, comm: CommKey, number: i32, wanted: Option<u64>) -> CheckedOperation {
    let mut shared_random = process.shared_random.borrow_mut();
    let elements = [0, 1, 3, 50, 700][shared_random.below(5) as usize];
    let root = Rank(shared_random.below(process.size.into()) as u32);
    let drawn = shared_random.below(8);
    let which = wanted.unwrap_or(drawn);
    let op = draw_op(&mut shared_random);
    // MPI_IN_PLACE is used by all ranks or by none, in operations where each rank sends (MPI-5.0 §6.8, §6.9.6).
    let in_place = shared_random.below(3) == 0;
    drop(shared_random);
    let needed = match which {
        1 => Some(above_and_below(process.rank, root, process.size)),
        5 if process.rank != root => Some(vec![root]),
        _ => None,
    };
    let (call, buffer, values) = match which {
        0 => {
            return CheckedOperation {
                name: NAMES[0],
                operation: process.mpi.barrier(comm),
                expected: None,
                needed,
            };
        }
        1 => bcast(process, number, elements, root),
        2 => reduce(process, number, elements, op, root),
        3 => allreduce(process, number, elements, op, in_place),
        4 => gather(process, number, elements, root),
        5 => scatter(process, number, elements, root),
        6 => allgather(process, number, elements),
        _ => alltoall(process, number, elements, in_place),
    };
    let (operation, expected) = (process.mpi.collective(comm, call), values.map(|values| (buffer, values)));
    CheckedOperation { name: NAMES[which as usize], operation, expected, needed }
}

const NAMES: [&str; 8] = [
    "MPI_Barrier",
    "MPI_Bcast",
    "MPI_Reduce",
    "MPI_Allreduce",
    "MPI_Gather",
    "MPI_Scatter",
    "MPI_Allgather",
    "MPI_Alltoall",
];

/// Starts an allreduce.
pub(super) fn start_allreduce(
    process: &Process,
    comm: CommKey,
    number: i32,
    elements: usize,
) -> CheckedOperation {
    let (call, buffer, values) = allreduce(process, number, elements, Op::Sum, false);
    let expected = values.map(|values| (buffer, values));
    CheckedOperation { name: NAMES[3], operation: process.mpi.collective(comm, call), expected, needed: None }
}

/// The ranks between this one and the root of a binomial tree, and its children.
fn above_and_below(rank: Rank, root: Rank, size: u32) -> Vec<Rank> {
    let mut place = (rank.0 + size - root.0) % size;
    let levels = if place == 0 { 32 } else { place.trailing_zeros() };
    let mut ranks: Vec<u32> =
        (0..levels).map_while(|level| place.checked_add(1 << level).filter(|child| *child < size)).collect();
    while place != 0 {
        place &= place - 1;
        ranks.push(place);
    }
    ranks.into_iter().map(|place| Rank((place + root.0) % size)).collect()
}

type Prepared = (Collective, Arc<Buffer>, Option<Vec<i32>>);

fn bcast(process: &Process, number: i32, elements: usize, root: Rank) -> Prepared {
    let values = contributions(number, root.0, elements);
    let buffer = if process.rank == root { write(&values) } else { receive_buffer(elements) };
    (Collective::Bcast { data: typed(&buffer), root }, buffer, Some(values))
}

fn reduce(process: &Process, number: i32, elements: usize, op: Op, root: Rank) -> Prepared {
    let mine = contributions(number, process.rank.0, elements);
    let values = combined(process.size, number, elements, op);
    if process.rank != root {
        let send = write(&mine);
        return (Collective::Reduce { send: Some(typed(&send)), receive: None, op, root }, send, Some(mine));
    }
    let in_place = process.below(2) == 0;
    let buffer = if in_place { write(&mine) } else { receive_buffer(elements) };
    let send = (!in_place).then(|| typed(&write(&mine)));
    (Collective::Reduce { send, receive: Some(typed(&buffer)), op, root }, buffer, Some(values))
}

fn allreduce(process: &Process, number: i32, elements: usize, op: Op, in_place: bool) -> Prepared {
    let mine = contributions(number, process.rank.0, elements);
    let buffer = if in_place { write(&mine) } else { receive_buffer(elements) };
    let send = (!in_place).then(|| typed(&write(&mine)));
    let values = combined(process.size, number, elements, op);
    (Collective::Allreduce { send, receive: typed(&buffer), op }, buffer, Some(values))
}

fn gather(process: &Process, number: i32, elements: usize, root: Rank) -> Prepared {
    let send = write(&contributions(number, process.rank.0, elements));
    if process.rank != root {
        return (Collective::Gather { send: Some(typed(&send)), receive: None, root }, send, None);
    }
    let buffer = receive_buffer(elements * process.size as usize);
    let receive = Some(typed(&buffer));
    (
        Collective::Gather { send: Some(typed(&send)), receive, root },
        buffer,
        Some(contributions_of_all(process, number, elements)),
    )
}

fn scatter(process: &Process, number: i32, elements: usize, root: Rank) -> Prepared {
    let buffer = receive_buffer(elements);
    let all = write(&contributions_of_all(process, number, elements));
    let send = (process.rank == root).then(|| typed(&all));
    let values = contributions(number, process.rank.0, elements);
    (Collective::Scatter { send, receive: Some(typed(&buffer)), root }, buffer, Some(values))
}

fn allgather(process: &Process, number: i32, elements: usize) -> Prepared {
    let send = write(&contributions(number, process.rank.0, elements));
    let buffer = receive_buffer(elements * process.size as usize);
    let values = contributions_of_all(process, number, elements);
    (Collective::Allgather { send: Some(typed(&send)), receive: typed(&buffer) }, buffer, Some(values))
}

/// Block `b` that rank `r` sends is the contribution of rank `r` to operation `number + b`.
fn alltoall(process: &Process, number: i32, elements: usize, in_place: bool) -> Prepared {
    let block = |from: u32, to: u32| contributions(number + to as i32, from, elements);
    let mine: Vec<i32> = (0..process.size).flat_map(|to| block(process.rank.0, to)).collect();
    let values = (0..process.size).flat_map(|from| block(from, process.rank.0)).collect();
    let buffer = if in_place { write(&mine) } else { receive_buffer(mine.len()) };
    let send = (!in_place).then(|| typed(&write(&mine)));
    (Collective::Alltoall { send, receive: typed(&buffer) }, buffer, Some(values))
}

fn draw_op(random: &mut Random) -> Op {
    [Op::Sum, Op::Min, Op::Max, Op::Bxor][random.below(4) as usize]
}

fn combined(size: u32, number: i32, elements: usize, op: Op) -> Vec<i32> {
    let combine = |left: i32, right: i32| match op {
        Op::Sum => left + right,
        Op::Min => left.min(right),
        Op::Max => left.max(right),
        _ => left ^ right,
    };
    let of_all = |element| (0..size).map(move |rank| contribution(number, rank, element));
    (0..elements).map(|element| of_all(element).reduce(combine).expect("at least one rank")).collect()
}

fn contributions_of_all(process: &Process, number: i32, elements: usize) -> Vec<i32> {
    (0..process.size).flat_map(|rank| contributions(number, rank, elements)).collect()
}

fn write(values: &[i32]) -> Arc<Buffer> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Buffer::from_bytes(&bytes)
}

fn receive_buffer(elements: usize) -> Arc<Buffer> {
    write(&vec![-1; elements])
}

fn read(buffer: &Buffer) -> Vec<i32> {
    let bytes = buffer.to_vec();
    bytes.chunks_exact(4).map(|word| i32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}

fn typed(buffer: &Arc<Buffer>) -> TypedBuffer {
    TypedBuffer::new(UserMemory::of_buffer(buffer), Datatype::INT32, buffer.len() as u64 / 4)
}
