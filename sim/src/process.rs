// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a rank program is given: its MPI, random numbers, and what the simulator knows of the job.

use crate::killer::{Killer, Milestone};
use crate::launcher::SimRuntime;
use crate::network::{SharedNetwork, SimBtl};
use crate::oracle::EndedBuffers;
use crate::record::JobRecord;
use mend_base::{Random, Rank};
use mend_mpi::{CommKey, Creation, Mpi, Operation};
use mend_transport::{Bml, Loopback};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Poll;

/// The transports of a simulated process.
pub type Transports = Bml<Loopback, SimBtl>;
/// MPI in a simulated process.
pub type SimMpi = Mpi<Transports, SimRuntime>;
/// An operation of a simulated process.
pub type SimOperation = Operation<Transports, SimRuntime>;
/// The creation of a communicator by one.
pub type SimCreation = Creation<Transports, SimRuntime>;
/// What a rank does, for reports: the name of an operation, and a number.
pub(crate) type Position = Rc<Cell<(&'static str, u64)>>;

/// One process of a job, as its program sees it.
#[derive(Clone)]
pub struct Process {
    /// Its MPI.
    pub mpi: SimMpi,
    /// Its rank in WORLD.
    pub number: u32,
    /// Its rank in WORLD, or in the communicator of [`Process::as_member`].
    pub rank: Rank,
    /// The size of that communicator.
    pub size: u32,
    /// Random numbers that are the same on every rank, as long as every rank draws the same number of them.
    pub shared_random: Rc<RefCell<Random>>,
    /// Random numbers of this rank alone.
    pub own_random: Rc<RefCell<Random>>,
    /// What the processes of this job did.
    pub record: Rc<RefCell<JobRecord>>,
    /// Buffers of ended requests. They are checked when the program has ended.
    pub ended_buffers: Rc<RefCell<EndedBuffers>>,
    /// Its messages to itself go by loopback, and one call of progress delivers them together with whatever else arrives.
    pub receives_own_messages_at_once: bool,
    pub(crate) position: Position,
    pub(crate) calls: Rc<Cell<u64>>,
    pub(crate) network: SharedNetwork,
    pub(crate) killer: Rc<Killer>,
}

impl Process {
    /// The rank that writes garbage. In a job without one, a rank that does not exist.
    pub fn garbage_writer(&self) -> Rank {
        let writer = self.network.borrow().faults.garbage_writer;
        Rank(writer.map_or(self.size, |writer| writer.number))
    }

    /// The ranks that may fail in this job, in ascending order.
    pub fn victims(&self) -> Vec<Rank> {
        let mut victims = self.killer.victims();
        victims.sort_unstable();
        victims.into_iter().map(Rank).collect()
    }

    /// Those of them whose planned death can happen before MPI_Finalize.
    pub fn victims_before_finalize(&self) -> Vec<Rank> {
        self.killer.victims_before_finalize().into_iter().map(Rank).collect()
    }

    /// Whether the death of this rank of WORLD has begun, so that other ranks may know of it.
    pub fn death_has_begun(&self, rank: Rank) -> bool {
        self.killer.death_has_begun(rank.0)
    }

    /// Ends this process, as SIGKILL would. Never returns.
    pub async fn die(&self) {
        self.killer.die_now(self.rank.0);
        std::future::pending().await
    }

    /// To be called when the process has created the communicators that the program needs first ([`Milestone::Ready`]).
    pub fn ready(&self) {
        self.killer.on_milestone(self.rank.0, Milestone::Ready);
    }

    /// Asserts that the results of a creation agree, as far as members have returned from it. Each communicator numbers its own: after a
    /// shrink that one member alone returned from, and died, the others create over another communicator than it did.
    pub fn assert_creation_is_uniform(&self, over: CommKey, number: u64, success: bool) {
        let is_dead = |rank| self.killer.death_has_begun(rank);
        let identity = self.mpi.engine().communicator(over).expect("it exists").identity;
        let (creation, mine) = ((identity, number), (self.rank.0, success));
        let agrees = self.record.borrow_mut().returned_from_creation(creation, mine, is_dead);
        assert!(
            agrees,
            "Row CC1: rank {} returned {success} from creation {number}, another the opposite",
            self.rank.0
        );
    }

    /// Asserts that all survivors get the same answer from a call (Rows AG2 and AG16). Each answer has a number.
    pub fn assert_answers_agree(&self, call: u64, answer: u64) {
        let is_dead = |rank| self.killer.death_has_begun(rank);
        let differs = self.record.borrow_mut().answered(call, (self.rank.0, answer), is_dead);
        assert_eq!(differs, None, "rank {} got {answer} from call {call}, and another rank", self.rank.0);
    }

    /// Whether every living process has voted true in this round. The simulator decides, so the agreement cannot fail.
    pub async fn agree(&self, round: u64, vote: bool) -> bool {
        std::future::poll_fn(|context| {
            let (me, is_dead) = ((self.rank.0, vote), |rank| self.killer.death_has_begun(rank));
            match self.record.borrow_mut().agree(round, me, self.size, is_dead, context.waker()) {
                Some(decision) => Poll::Ready(decision),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// This process as a rank of another communicator. All members must give the same random numbers.
    pub fn as_member(&self, rank: Rank, size: u32, shared_random: Random) -> Process {
        Process { rank, size, shared_random: Rc::new(RefCell::new(shared_random)), ..self.clone() }
    }

    /// Names the operation that comes next, for reports of a hang.
    pub fn at(&self, what: &'static str, number: u64) {
        self.position.set((what, number));
    }

    /// The program begins an MPI call, by the name that C programs use.
    pub fn call(&self, name: &'static str) {
        self.calls.set(self.calls.get() + 1);
        self.at(name, self.calls.get());
        self.record.borrow_mut().called(name);
        self.killer.on_program_call(self.number);
    }

    /// How many MPI calls the program has begun.
    pub fn calls(&self) -> u64 {
        self.calls.get()
    }

    /// A random number of this rank alone, below `bound`.
    pub fn below(&self, bound: u64) -> u64 {
        self.own_random.borrow_mut().below(bound)
    }

    /// Lets other ranks run until this one is scheduled again.
    pub async fn next_step(&self) {
        let mut is_first = true;
        std::future::poll_fn(|context| {
            if !core::mem::replace(&mut is_first, false) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }

    /// Lets other ranks run for a few steps, as a computation would.
    pub async fn pause(&self) {
        let mut left = self.below(4);
        std::future::poll_fn(|context| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }
}
