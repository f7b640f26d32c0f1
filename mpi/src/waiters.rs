// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which sleeping threads an event concerns: the one whose request has ended, or all of them (X-8.3: a death, another end
//! of a peer, an acknowledgement may change what any wait is to answer).
//!
//! Whoever is about to put a thread to sleep has its call polled once more between [`note_awaited`](Engine::note_awaited)
//! and [`wake_when_over`](Engine::wake_when_over): the requests that this poll finds active are those that the thread
//! waits for.

use crate::{Engine, Request};
use core::cell::{Cell, RefCell};
use mend_pml::Waiter;
use mend_runtime::Runtime;
use mend_transport::Btl;

/// What the engine keeps of it.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    noting: Cell<bool>,
    /// Active requests that were polled since `noting` began.
    noted: RefCell<Vec<Request>>,
    /// Waiters of collective operations that have ended.
    ended: Vec<Waiter>,
    /// How often something happened that concerns all; wraps.
    concern_all: u32,
}

impl Waiters {
    #[inline]
    pub(crate) fn note(&self, request: Request) {
        if self.noting.get() {
            self.noted.borrow_mut().push(request);
        }
    }

    pub(crate) fn ended(&mut self, waiter: Option<Waiter>) {
        self.ended.extend(waiter);
    }

    pub(crate) fn concern_all(&mut self) {
        self.concern_all = self.concern_all.wrapping_add(1);
    }
}

impl<N: Btl, R: Runtime> Engine<N, R> {
    /// From now on active requests that are polled are noted.
    pub fn note_awaited(&mut self) {
        self.waiters.noting.set(true);
    }

    /// The end of each request that was noted wakes `waiter`. `false`: none was, so what the call waits for is no request,
    /// and may come with any event.
    pub fn wake_when_over(&mut self, waiter: Waiter) -> bool {
        self.waiters.noting.set(false);
        let noted = self.waiters.noted.take();
        for &request in &noted {
            match request {
                Request::PointToPoint(key) => self.pml.wake_at_end(mend_pml::Request(key), waiter),
                Request::Collective(key) => self.set_collective_waiter(key, waiter),
                Request::Completed(_) => {}
            }
        }
        !noted.is_empty()
    }

    /// A waiter whose request has ended; each comes once for each end.
    #[inline]
    pub fn next_ended_waiter(&mut self) -> Option<Waiter> {
        self.pml.next_ended_waiter().or_else(|| self.waiters.ended.pop())
    }

    /// Changes whenever something happened that may concern every waiter; wraps.
    #[inline]
    pub fn concerns_all(&self) -> u32 {
        self.waiters.concern_all
    }
}

#[cfg(test)]
mod tests {
    use crate::scripted::{Process, Rehearsal, peer};
    use crate::{Collective, Request, SendMode, Started, State, Waiter};
    use core::num::NonZero;
    use mend_base::{Instant, Rank, Source, Tag, TagSelector};
    use mend_datatype::Typed;
    use mend_runtime::Notice;
    use mend_transport::{Buffer, UserMemory};
    use std::sync::Arc;

    const SLEEPER: Waiter = Waiter(NonZero::new(7).unwrap());

    /// Two ranks that know each other.
    fn pair() -> (Rehearsal, [Process; 2]) {
        let job = Rehearsal::default();
        let mut processes = [0, 1].map(|me| job.process(me, 2));
        job.introduce(0, 1);
        job.introduce(1, 0);
        (0..3).for_each(|_| progress(&mut processes));
        (job, processes)
    }

    fn progress(processes: &mut [Process; 2]) {
        processes.iter_mut().for_each(|process| _ = process.progress(Instant(1)));
    }

    fn bytes(buffer: &Arc<Buffer>) -> Typed {
        Typed::bytes(UserMemory::of_buffer(buffer))
    }

    fn receive(process: &mut Process, tag: i32, room: &Arc<Buffer>) -> Request {
        let (world, tag) = (process.world(), TagSelector::Tag(Tag(tag)));
        running(process.receive(world, Source::Rank(Rank(1)), tag, bytes(room)).expect("arguments"))
    }

    fn running(started: Started) -> Request {
        match started {
            Started::Running(request) => request,
            Started::Done(status) => panic!("it is over: {status:?}"),
        }
    }

    fn send(process: &mut Process, tag: i32) {
        let (world, data) = (process.world(), Buffer::from_bytes(&[1]));
        process.send(world, Rank(0), Tag(tag), SendMode::Standard, bytes(&data)).expect("arguments");
    }

    /// What a thread does before it sleeps that waits for these requests. Whether it named one.
    fn falls_asleep(process: &mut Process, requests: &[Request]) -> bool {
        process.note_awaited();
        for &request in requests {
            assert_eq!(process.poll(request), State::Running);
        }
        process.wake_when_over(SLEEPER)
    }

    #[test]
    fn the_end_of_an_awaited_request_names_its_waiter_once_and_no_other_end_does() {
        let (_job, mut processes) = pair();
        let room = Buffer::from_bytes(&[0]);
        let [awaited, other] = [1, 2].map(|tag| receive(&mut processes[0], tag, &room));
        assert!(falls_asleep(&mut processes[0], &[awaited]));
        assert_eq!(processes[0].poll(other), State::Running, "polled later, it is nobody's");
        send(&mut processes[1], 2);
        progress(&mut processes);
        progress(&mut processes);
        assert_eq!(processes[0].next_ended_waiter(), None);
        send(&mut processes[1], 1);
        progress(&mut processes);
        progress(&mut processes);
        assert_eq!(processes[0].next_ended_waiter(), Some(SLEEPER));
        assert_eq!(processes[0].next_ended_waiter(), None);
    }

    #[test]
    fn the_end_of_a_collective_operation_names_its_waiter() {
        let (_job, mut processes) = pair();
        let world = processes[0].world();
        let barrier = running(processes[0].collective(world, Collective::Barrier).expect("nobody failed"));
        assert!(falls_asleep(&mut processes[0], &[barrier]));
        assert!(processes[1].collective(world, Collective::Barrier).is_ok());
        (0..4).for_each(|_| progress(&mut processes));
        assert_eq!(processes[0].next_ended_waiter(), Some(SLEEPER));
    }

    #[test]
    fn a_call_that_awaits_no_request_names_none() {
        let (_job, mut processes) = pair();
        assert!(!falls_asleep(&mut processes[0], &[]));
    }

    //
    #[test]
    fn the_end_of_a_peer_and_an_acknowledgement_concern_all() {
        let (job, mut processes) = pair();
        let (world, before) = (processes[0].world(), processes[0].concerns_all());
        job.say(0, Notice::Failed(peer(1)));
        assert_eq!(processes[0].failed(world), Ok(vec![Rank(1)]));
        let published = processes[0].concerns_all();
        assert_ne!(published, before);
        assert_eq!(processes[0].acknowledge(world, None), Ok(1));
        assert_ne!(processes[0].concerns_all(), published);
    }
}
