// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A schedule, its execution, and its construction.
//!
//! ```text
//!               round complete
//!   Running ───────────────────────▶ Running
//!     │ │         no round left
//!     │ └──────────────────────────▶ Over(Ok, or the truncation)
//!     │    a request fails, or `interrupt`: the other requests are abandoned (I7)
//!     └────────────────────────────▶ Over(Err)
//! ```
//!
//! An error ends the schedule at once: the peer of another request may be dead, or may wait for a dead process
//! (design "Interrupted collectives"). A truncated message does not end the schedule: no peer has failed, and other ranks wait for what this
//! rank still has to send.

use crate::Error;
use mend_base::Rank;
use mend_datatype::{Datatype, Op, TypedBuffer, reduce};
use mend_pml::{Error as PmlError, Request, Started, State};
use mend_transport::{Buffer, UserMemory};

/// Messages between the ranks of one communicator, for one collective operation. The implementer chooses the channel, and a tag that
/// separates this operation from others in flight. Messages from one rank to another arrive in order. No method blocks.
///
/// If a rank dies, requests that depend on it end with an error, and the engine calls [`Schedule::interrupt`].
pub trait MessageLayer {
    /// Starts a send. An error means that no request was made.
    fn send(&mut self, to: Rank, data: TypedBuffer) -> Result<Started, PmlError>;
    /// Starts a receive. An error means that no request was made.
    fn receive(&mut self, from: Rank, data: TypedBuffer) -> Result<Started, PmlError>;
    /// The state of a request.
    fn poll(&self, request: Request) -> State;
    /// Frees a request whose state is `Done`.
    fn release(&mut self, request: Request);
    /// Ends and frees a request in any state. Its buffer is not accessed any more (I7).
    fn abandon(&mut self, request: Request);
}

/// What one rank does for one collective operation.
#[derive(Debug)]
pub struct Schedule {
    steps: Vec<Step>,
    next: usize,
    running: Vec<Request>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// `truncated`: the error of the first message that was longer than its buffer.
    Running {
        truncated: Option<PmlError>,
    },
    Over(Result<(), PmlError>),
}

/// One step. Sends and receives are started in order, and proceed together until [`Step::WaitAll`]. Copies and reductions are done when they
/// are reached.
#[derive(Debug)]
enum Step {
    Send {
        to: Rank,
        data: TypedBuffer,
    },
    Receive {
        from: Rank,
        data: TypedBuffer,
    },
    /// The end of a round: the next step begins when all requests of the round have ended.
    WaitAll,
    Copy {
        from: TypedBuffer,
        into: TypedBuffer,
    },
    Reduce {
        op: Op,
        left: TypedBuffer,
        into: TypedBuffer,
    },
}

impl Schedule {
    /// Executes steps as far as possible without waiting. `None`: the schedule is not over. When it is over, no request of the schedule is
    /// left, and its buffers are not accessed any more.
    pub fn progress(&mut self, layer: &mut impl MessageLayer) -> Option<Result<(), PmlError>> {
        loop {
            if let Phase::Over(result) = self.phase {
                return Some(result);
            }
            self.collect(layer);
            if !self.running.is_empty() {
                return None;
            }
            match self.phase {
                Phase::Running { truncated } if self.next == self.steps.len() => {
                    self.phase = Phase::Over(truncated.map_or(Ok(()), Err));
                }
                Phase::Running { .. } => self.start_round(layer),
                Phase::Over(_) => {}
            }
        }
    }

    /// Ends the schedule with this error, unless it is over. Its requests are freed, and its buffers are not accessed any more.
    pub fn interrupt(&mut self, layer: &mut impl MessageLayer, error: PmlError) {
        if matches!(self.phase, Phase::Running { .. }) {
            self.running.drain(..).for_each(|request| layer.abandon(request));
            self.phase = Phase::Over(Err(error));
        }
    }

    /// The requests that the current round waits for.
    pub fn awaited(&self) -> &[Request] {
        &self.running
    }

    /// Frees the requests that have ended. The first error other than a truncation interrupts the schedule.
    fn collect(&mut self, layer: &mut impl MessageLayer) {
        let mut error = None;
        self.running.retain(|&request| match layer.poll(request) {
            State::Running | State::PendingFailure => true,
            State::Done(result) => {
                layer.release(request);
                let worse = matches!(error, None | Some(PmlError::Truncated(_)));
                error = if worse { result.err().or(error) } else { error };
                false
            }
        });
        match (error, &mut self.phase) {
            (None, _) => {}
            (Some(error @ PmlError::Truncated(_)), Phase::Running { truncated }) => {
                mend_base::reach!("coll.schedule: a truncated message");
                truncated.get_or_insert(error);
            }
            (Some(error), _) => {
                mend_base::reach!("coll.schedule: a request failed");
                self.interrupt(layer, error);
            }
        }
    }

    fn start_round(&mut self, layer: &mut impl MessageLayer) {
        while let Some(step) = self.steps.get(self.next) {
            self.next += 1;
            let started = match step {
                Step::Send { to, data } => layer.send(*to, data.share()),
                Step::Receive { from, data } => layer.receive(*from, data.share()),
                Step::WaitAll => return,
                Step::Copy { from, into } => {
                    into.copy_from(from);
                    continue;
                }
                Step::Reduce { op, left, into } => {
                    reduce(*op, left, into);
                    continue;
                }
            };
            match started {
                Ok(Started::Done(_)) => (),
                Ok(Started::Running(request)) => self.running.push(request),
                Err(error) => return self.interrupt(layer, error),
            }
        }
    }
}

/// Collects the steps of a schedule.
pub(crate) struct Builder {
    pub(crate) me: u32,
    pub(crate) size: u32,
    steps: Vec<Step>,
}

impl Builder {
    pub(crate) fn new(me: Rank, size: u32) -> Self {
        Builder { me: me.0, size, steps: Vec::new() }
    }

    pub(crate) fn send(&mut self, to: u32, data: &TypedBuffer) {
        self.steps.push(Step::Send { to: Rank(to), data: data.share() });
    }

    pub(crate) fn receive(&mut self, from: u32, data: &TypedBuffer) {
        self.steps.push(Step::Receive { from: Rank(from), data: data.share() });
    }

    pub(crate) fn wait_all(&mut self) {
        self.steps.push(Step::WaitAll);
    }

    pub(crate) fn copy(&mut self, from: &TypedBuffer, into: &TypedBuffer) {
        self.steps.push(Step::Copy { from: from.share(), into: into.share() });
    }

    /// `into = left op into`.
    pub(crate) fn reduce(&mut self, op: Op, left: &TypedBuffer, into: &TypedBuffer) {
        self.steps.push(Step::Reduce { op, left: left.share(), into: into.share() });
    }

    pub(crate) fn finish(self) -> Schedule {
        Schedule {
            steps: self.steps,
            next: 0,
            running: Vec::new(),
            phase: Phase::Running { truncated: None },
        }
    }

    /// The number of the root, if it is a rank of the communicator.
    pub(crate) fn root(&self, root: Rank) -> Result<u32, Error> {
        if root.0 < self.size { Ok(root.0) } else { Err(Error::Root) }
    }

    /// The rank `distance` after this one, modulo the size.
    pub(crate) fn after(&self, distance: u32) -> u32 {
        ((u64::from(self.me) + u64::from(distance)) % u64::from(self.size)) as u32
    }

    /// The rank `distance` before this one, modulo the size; `distance` is below the size.
    pub(crate) fn before(&self, distance: u32) -> u32 {
        self.after(self.size - distance)
    }
}

/// A temporary buffer for as many elements as `like` has. It lives as long as the schedule and its requests.
pub(crate) fn scratch(like: &TypedBuffer) -> Result<TypedBuffer, Error> {
    let (datatype, count) = (like.datatype(), like.count());
    let bytes = datatype.span(count).expect("a buffer of as many elements exists");
    let buffer = Buffer::try_zeroed(bytes).ok_or(Error::NoMemory)?;
    Ok(TypedBuffer::new(UserMemory::of_buffer(&buffer), datatype, count))
}

/// A buffer with one block for each rank.
pub(crate) struct Blocks {
    all: TypedBuffer,
    elements: u64,
}

impl Blocks {
    /// `Err`: the number of elements is no multiple of `size`.
    pub(crate) fn new(all: &TypedBuffer, size: u32) -> Result<Self, Error> {
        let elements = all.count() / u64::from(size);
        if elements * u64::from(size) == all.count() {
            Ok(Blocks { all: all.share(), elements })
        } else {
            Err(Error::Count)
        }
    }

    /// The block of one rank.
    pub(crate) fn of(&self, rank: u32) -> TypedBuffer {
        self.run(rank, 1)
    }

    /// The blocks of `ranks` ranks from `first` on.
    pub(crate) fn run(&self, first: u32, ranks: u32) -> TypedBuffer {
        let run = self.all.elements(u64::from(first) * self.elements, u64::from(ranks) * self.elements);
        run.expect("as many blocks as ranks")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.elements == 0
    }
}

/// Checks that a reduction with this operation accepts this datatype.
pub(crate) fn check_operation(op: Op, datatype: Datatype) -> Result<(), Error> {
    if op.reduces() && op.takes(datatype) { Ok(()) } else { Err(Error::Operation) }
}

/// Checks that both buffers have the same datatype and count, as a reduction needs.
pub(crate) fn check_same_elements(send: Option<&TypedBuffer>, receive: &TypedBuffer) -> Result<(), Error> {
    let same = |send: &TypedBuffer| send.datatype() == receive.datatype() && send.count() == receive.count();
    if send.is_none_or(same) { Ok(()) } else { Err(Error::Count) }
}
