// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A schedule, its execution, and its construction.
//!
//! ```text
//!               round complete
//!   Running ───────────────────────▶ Running
//!     │ │         no round left
//!     │ └──────────────────────────▶ Over(Ok, or the error that did not end the schedule)
//!     │    a receive fails, or `interrupt`: the other requests are abandoned
//!     └────────────────────────────▶ Abandoned ── they have ended (I7) ──▶ Over(Err); `owed` ranks still expect messages
//! ```
//!
//! A receive that fails ends the schedule at once, since its data are needed; the ranks that still expect messages are
//! [`owed`](Schedule::owed) poison, which the owner of the schedule sends (design "Interrupted collectives"). Two errors do not end the
//! schedule: a truncated message, and a send to a rank that takes no part in the operation any more. Other ranks wait for what this
//! rank still has to send; the schedule reports the error when it is over.

use crate::Error;
use mend_base::Rank;
use mend_datatype::{Datatype, Op, TypedBuffer, reduce};
use mend_pml::{Error as PmlError, Request, Started, State};
use mend_transport::{Buffer, UserMemory};

/// Messages between the ranks of one communicator, for one collective operation. The implementer chooses the channel, and a tag that
/// separates this operation from others in flight. Messages from one rank to another arrive in order. No method blocks.
///
/// If a rank dies, requests that need it end with an error, and the owner of the schedule calls [`Schedule::on_death`].
pub trait MessageLayer {
    /// Starts a send. An error means that no request was made.
    fn send(&mut self, to: Rank, data: TypedBuffer) -> Result<Started, PmlError>;
    /// Starts a receive. An error means that no request was made.
    fn receive(&mut self, from: Rank, data: TypedBuffer) -> Result<Started, PmlError>;
    /// How many messages of this rank are here whole, and not received yet.
    fn whole_messages(&self, from: Rank) -> usize;
    /// The state of a request.
    fn poll(&self, request: Request) -> State;
    /// Frees a request whose state is `Done`.
    fn release(&mut self, request: Request);
    /// Gives up and frees a request in any state. Its buffer is not accessed any more when it [has ended](MessageLayer::has_ended).
    fn abandon(&mut self, request: Request);
    /// Whether an abandoned request has ended: its buffer is not accessed any more (I7).
    fn has_ended(&self, request: Request) -> bool;
}

/// What one rank does for one collective operation.
#[derive(Debug)]
pub struct Schedule {
    steps: Vec<Step>,
    next: usize,
    /// The requests of the present round; when the schedule has ended with an error, those that were abandoned.
    running: Vec<Running>,
    phase: Phase,
}

/// A send or receive whose data have not been transferred.
#[derive(Clone, Copy, Debug)]
struct Running {
    /// `None`: it has ended with an error that ends the schedule.
    request: Option<Request>,
    /// The receiver, if it is a send.
    to: Option<Rank>,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// `error`: the first that did not end the schedule.
    Running {
        error: Option<PmlError>,
    },
    /// The schedule ends with this error when its requests have ended.
    Abandoned(PmlError),
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
            self.collect(layer);
            match self.phase {
                Phase::Over(result) => return Some(result),
                Phase::Abandoned(_) => return None,
                Phase::Running { .. } if !self.running.is_empty() => return None,
                Phase::Running { error } if self.next == self.steps.len() => {
                    self.phase = Phase::Over(error.map_or(Ok(()), Err));
                }
                Phase::Running { .. } => self.start_round(layer),
            }
        }
    }

    /// Ends the schedule with this error, unless it has ended. Its requests are freed. Its buffers are not accessed any more when
    /// [`progress`](Schedule::progress) says that it is over.
    pub fn interrupt(&mut self, layer: &mut impl MessageLayer, error: PmlError) {
        if matches!(self.phase, Phase::Running { .. }) {
            self.running
                .iter()
                .filter_map(|running| running.request)
                .for_each(|request| layer.abandon(request));
            self.phase = Phase::Abandoned(error);
        }
    }

    /// A rank has died, and no message of it will arrive any more: ends the schedule with this error if a later step needs one that is not
    /// here. If only a step of the present round needs the rank, a request ends with an error.
    pub fn on_death(&mut self, layer: &mut impl MessageLayer, dead: Rank, error: PmlError) {
        let later = self.steps.get(self.next..).unwrap_or_default().iter();
        let needed = later.filter(|step| matches!(step, Step::Receive { from, .. } if *from == dead)).count();
        if needed > layer.whole_messages(dead) {
            mend_base::reach!("coll.schedule: a later step needs the dead");
            self.interrupt(layer, error);
        }
    }

    /// The requests that the current round waits for, or, of a schedule that ends with an error, those that have not ended.
    pub fn awaited(&self) -> impl Iterator<Item = Request> {
        let is_running = !matches!(self.phase, Phase::Over(_));
        self.running.iter().filter(move |_| is_running).filter_map(|running| running.request)
    }

    /// The ranks that still expect messages of a schedule that has not begun, or has ended with an error: the receivers of sends that have
    /// not ended. A rank may come more than once.
    pub fn owed(&self) -> impl Iterator<Item = Rank> {
        let later = self.steps.get(self.next..).unwrap_or_default().iter();
        let later = later.filter_map(|step| match step {
            Step::Send { to, .. } => Some(*to),
            _ => None,
        });
        self.running.iter().filter_map(|running| running.to).chain(later)
    }

    /// Frees the requests that have ended. An error that ends the schedule interrupts it.
    fn collect(&mut self, layer: &mut impl MessageLayer) {
        match self.phase {
            Phase::Over(_) => return,
            Phase::Abandoned(error) => {
                let mut requests = self.running.iter().filter_map(|running| running.request);
                if requests.all(|request| layer.has_ended(request)) {
                    self.phase = Phase::Over(Err(error));
                }
                return;
            }
            Phase::Running { .. } => {}
        }
        let (mut fatal, mut other) = (None, None);
        self.running.retain_mut(|running| {
            let Some(request) = running.request else { return true };
            let State::Done(result) = layer.poll(request) else { return true };
            layer.release(request);
            match result {
                Ok(_) => false,
                Err(error) if goes_on(error, running.to) => {
                    other = other.or(Some(error));
                    false
                }
                Err(error) => {
                    fatal = fatal.or(Some(error));
                    running.request = None;
                    true
                }
            }
        });
        if let (Some(new), Phase::Running { error }) = (other, &mut self.phase) {
            mend_base::reach!("coll.schedule: goes on after an error");
            *error = match *error {
                None | Some(PmlError::Truncated(_)) => Some(new),
                first => first,
            };
        }
        if let Some(error) = fatal {
            mend_base::reach!("coll.schedule: a request failed");
            self.interrupt(layer, error);
            self.collect(layer);
        }
    }

    fn start_round(&mut self, layer: &mut impl MessageLayer) {
        while let Some(step) = self.steps.get(self.next) {
            self.next += 1;
            let (started, to) = match step {
                Step::Send { to, data } => (layer.send(*to, data.share()), Some(*to)),
                Step::Receive { from, data } => (layer.receive(*from, data.share()), None),
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
                Ok(Started::Running(request)) => self.running.push(Running { request: Some(request), to }),
                Err(error) => {
                    // The receiver still expects the message of this step.
                    self.next -= 1;
                    return self.interrupt(layer, error);
                }
            }
        }
    }
}

/// Whether a schedule goes on after this error of a request, a send to `to` or a receive. After an error of a send, the receiver has ended,
/// or has given the operation up.
fn goes_on(error: PmlError, to: Option<Rank>) -> bool {
    match error {
        PmlError::Truncated(_) => true,
        PmlError::ProcFailed(_)
        | PmlError::PeerLeft(_)
        | PmlError::Unreachable(..)
        | PmlError::Poisoned { .. } => to.is_some(),
        PmlError::PeerFreed(_)
        | PmlError::NotCreated(_)
        | PmlError::Revoked
        | PmlError::NoSuchRank(_)
        | PmlError::NoSuchChannel
        | PmlError::NoSuchRequest
        | PmlError::NoMemory => false,
    }
}

/// Collects the steps of a schedule.
pub(crate) struct Builder {
    pub(crate) me: u32,
    pub(crate) size: u32,
    steps: Vec<Step>,
}

/// Most operations of two ranks have no more steps: one allocation.
const STEPS: usize = 8;

impl Builder {
    /// The schedule of rank `me` of `size` with the steps that `add` adds.
    pub(crate) fn build(
        me: Rank,
        size: u32,
        add: impl FnOnce(&mut Builder) -> Result<(), Error>,
    ) -> Result<Schedule, Error> {
        assert!(me.0 < size, "the rank is not in the communicator");
        let mut builder = Builder { me: me.0, size, steps: Vec::with_capacity(STEPS) };
        add(&mut builder)?;
        Ok(builder.finish())
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

    fn finish(self) -> Schedule {
        Schedule { steps: self.steps, next: 0, running: Vec::new(), phase: Phase::Running { error: None } }
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

/// A temporary buffer with these bytes, `count` elements of `datatype`. It lives as long as the schedule and its requests.
pub(crate) fn buffer_of(bytes: &[u8], datatype: Datatype, count: u64) -> Result<TypedBuffer, Error> {
    let buffer = Buffer::try_zeroed(bytes.len()).ok_or(Error::NoMemory)?;
    let memory = UserMemory::of_buffer(&buffer);
    memory.write(0, bytes);
    Ok(TypedBuffer::new(memory, datatype, count))
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

#[cfg(test)]
mod tests {
    use super::{Builder, MessageLayer};
    use mend_base::{Key, Rank};
    use mend_datatype::TypedBuffer;
    use mend_pml::{Error, Request, Started, State};

    const SEND: Request = Request(Key { index: 1, generation: 1 });
    const RECEIVE: Request = Request(Key { index: 2, generation: 1 });
    const FAILED: Error = Error::ProcFailed(Rank(1));

    /// A send that runs, and a receive that has failed.
    #[derive(Default)]
    struct Layer {
        abandoned: Vec<Request>,
        /// The transports use the memory of abandoned requests no more.
        released: bool,
    }

    impl MessageLayer for Layer {
        fn send(&mut self, _to: Rank, _data: TypedBuffer) -> Result<Started, Error> {
            Ok(Started::Running(SEND))
        }
        fn receive(&mut self, _from: Rank, _data: TypedBuffer) -> Result<Started, Error> {
            Ok(Started::Running(RECEIVE))
        }
        fn whole_messages(&self, _from: Rank) -> usize {
            0
        }
        fn poll(&self, request: Request) -> State {
            if request == RECEIVE { State::Done(Err(FAILED)) } else { State::Running }
        }
        fn release(&mut self, _request: Request) {}
        fn abandon(&mut self, request: Request) {
            self.abandoned.push(request);
        }
        fn has_ended(&self, request: Request) -> bool {
            assert_eq!(request, SEND);
            self.released
        }
    }

    #[test]
    fn a_schedule_with_an_error_is_over_when_its_abandoned_requests_have_ended() {
        let data = TypedBuffer::empty();
        let add = |builder: &mut Builder| {
            builder.send(1, &data);
            builder.receive(1, &data);
            builder.wait_all();
            Ok(())
        };
        let mut schedule = Builder::build(Rank(0), 2, add).expect("the steps are right");
        let mut layer = Layer::default();
        assert_eq!(schedule.progress(&mut layer), None);
        schedule.interrupt(&mut layer, Error::Revoked);
        assert_eq!(schedule.progress(&mut layer), None, "its buffers are used");
        assert_eq!((&layer.abandoned[..], schedule.awaited().collect::<Vec<_>>()), (&[SEND][..], vec![SEND]));
        layer.released = true;
        assert_eq!(schedule.progress(&mut layer), Some(Err(FAILED)), "the first error counts");
        assert_eq!(schedule.owed().collect::<Vec<_>>(), [Rank(1)]);
    }
}
