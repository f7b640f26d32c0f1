// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A member dies right after its own operation has returned: who does not need it any more returns success, and a communicator that it
//! has got exists at all others. (`cargo sim --sweep` lets it die at every point after its return.)

use mend_base::Rank;
use mend_daemon::Rules;
use mend_mpi::{Collective, CommKey, Error};
use mend_sim::killer::Killer;
use mend_sim::programs::program;
use mend_sim::{Cluster, Process};
use mend_transport::{Buffer, UserMemory};

/// The operation that the member has returned from.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Barrier,
    Bcast,
    Allreduce,
    Dup,
}

impl Operation {
    async fn call(self, process: &Process) -> Result<Option<CommKey>, Error> {
        let (mpi, world) = (process.mpi.clone(), process.mpi.engine().comm_world());
        let buffer = Buffer::zeroed(24);
        let typed = |buffer| {
            mend_datatype::TypedBuffer::new(UserMemory::of_buffer(buffer), mend_datatype::Datatype::INT32, 6)
        };
        match self {
            Operation::Barrier => mpi.barrier(world).await.map(|_| None),
            Operation::Bcast => mpi.bcast(world, Rank(1), &buffer).await.map(|_| None),
            Operation::Allreduce => {
                let (send, receive) = (None, typed(&buffer));
                let call = Collective::Allreduce { send, receive, op: mend_datatype::Op::Sum };
                mpi.collective(world, call).await.map(|_| None)
            }
            Operation::Dup => mpi.dup(world).await,
        }
    }
}

async fn run(process: Process, operation: Operation, victim: u32) {
    let result = operation.call(&process).await;
    let mpi = process.mpi.clone();
    if process.rank == Rank(victim) {
        result.expect("all members live");
        // What the others need of this member has left it.
        mpi.wait_until(|| {
            let counts = mpi.engine().open_counts();
            counts.pml.unsent == 0 && counts.unsent_member_messages == 0
        })
        .await;
        process.die().await;
    }
    match result {
        Ok(Some(made)) => mpi.free(made).expect("it was created"),
        Ok(None) => {}
        Err(error) => panic!("{operation:?}: rank {} does not need rank {victim}: {error}", process.rank.0),
    }
}

// Rows CO1, CC1
#[test]
fn who_does_not_need_a_member_that_dies_after_its_return_succeeds() {
    for operation in [Operation::Barrier, Operation::Bcast, Operation::Allreduce, Operation::Dup] {
        for (size, victim) in (2..=5).flat_map(|size| (0..size).map(move |victim| (size, victim))) {
            let script = program(move |process| run(process, operation, victim));
            for seed in 0..40 {
                let mut cluster = Cluster::new(seed, size, script.clone());
                cluster.plan_deaths(Killer::new(size, vec![]), Rules::default());
                if let Err(report) = cluster.run() {
                    panic!("{operation:?}, victim {victim}: {report}");
                }
            }
        }
    }
}
