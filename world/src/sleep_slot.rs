// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sleep slot of this process: its sleep word in the bell page of the node, the processor on which it waits, on what it sleeps, and
//! for how long.

use crate::descriptor_watch::{DescriptorWatch, WakeRequest};
use crate::poll_set::PollSet;
use crate::processors;
use crate::spin_policy::ProcessorObserver;
use core::sync::atomic::{AtomicBool, Ordering};
use mend_base::Duration;
use mend_segment::{AnnouncedSleep, BellPage, Woken};
use mend_transport::WakeSet;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};

/// The slot of this process in the bell page.
#[derive(Debug)]
pub struct SleepSlot {
    bells: Arc<BellPage>,
    slot: u32,
    /// Other processes have the bell page, too: they wake a thread that sleeps on its sleep word.
    is_shared: bool,
    watch: DescriptorWatch,
    /// By this the other threads of the process wake one that sleeps on descriptors. Made for the first such sleep; `None`: no descriptor
    /// was left.
    signal: OnceLock<Option<OwnedFd>>,
    /// The last sleep was on descriptors. Changed and read in the guard.
    is_on_descriptors: AtomicBool,
}

/// What a process sleeps on, and memory for the system call. Kept from one sleep to the next.
#[derive(Debug, Default)]
pub struct SleepSet {
    /// What the engine adds.
    pub wake: WakeSet,
    poll_set: PollSet,
}

/// A sleep that has begun.
#[derive(Debug)]
pub struct Sleep {
    announced: AnnouncedSleep,
    place: Place,
    span: SleepSpan,
    /// It may be that nothing wakes the process: each part of the sleep is short.
    is_polled: bool,
    /// The parts that have begun.
    parts: u32,
    /// A network's descriptor has ended it, and nothing else.
    by_network: bool,
}

/// On what a thread sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// On the sleep word.
    Word,
    /// On descriptors.
    Descriptors,
    /// On the sleep word, which the watcher thread rings when a descriptor is readable.
    Both,
}

impl SleepSlot {
    /// Slot `slot` of `bells`, which other processes have, too.
    pub fn new(bells: Arc<BellPage>, slot: u32) -> Self {
        SleepSlot {
            is_shared: true,
            watch: DescriptorWatch::new(Arc::clone(&bells), slot),
            bells,
            slot,
            signal: OnceLock::new(),
            is_on_descriptors: AtomicBool::new(false),
        }
    }

    /// Slot `slot` of `bells`, which no other process has.
    pub fn of_one_process(bells: Arc<BellPage>, slot: u32) -> Self {
        SleepSlot { is_shared: false, ..Self::new(bells, slot) }
    }

    /// Whether other processes wake this one at its sleep word.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// The watcher thread.
    pub fn descriptor_watch(&self) -> &DescriptorWatch {
        &self.watch
    }

    /// Announces a sleep: from now until [`end_sleep`](SleepSlot::end_sleep), a process that sends to this one wakes it.
    pub fn announce(&self) -> AnnouncedSleep {
        self.bells.set_processor(self.slot, None);
        self.bells.announce_sleep(self.slot)
    }

    /// Begins the sleep that was announced, on what `set` names, first for this long. In the guard.
    pub fn begin(&self, announced: AnnouncedSleep, set: &SleepSet, span: SleepSpan) -> Sleep {
        let WakeSet { futex, ref descriptors, must_poll } = set.wake;
        let (place, is_woken) = match (futex, descriptors.is_empty()) {
            (_, true) => (Place::Word, true),
            (false, false) => (Place::Descriptors, self.signal().is_some()),
            (true, false) => (Place::Both, self.watch.watch(WakeRequest::Sleeper, descriptors)),
        };
        self.is_on_descriptors.store(place == Place::Descriptors, Ordering::Relaxed);
        let is_polled = must_poll || !is_woken;
        Sleep { announced, place, span, is_polled, parts: 0, by_network: false }
    }

    /// Sleeps on, for longer than before, unless this sleep has ended meanwhile. Without the guard.
    pub fn sleep(&self, sleep: &mut Sleep, set: &mut SleepSet) -> Woken {
        let part = sleep.next_part();
        match sleep.place {
            Place::Word | Place::Both => self.bells.sleep(self.slot, sleep.announced, part),
            Place::Descriptors => self.sleep_on_descriptors(sleep, part, set),
        }
    }

    /// Another thread that ends this sleep, and begins one of its own before this one is in the system call, may take the signal away from
    /// it: then this thread sleeps until the time is over.
    fn sleep_on_descriptors(&self, sleep: &mut Sleep, part: Duration, set: &mut SleepSet) -> Woken {
        let SleepSet { wake, poll_set } = set;
        poll_set.clear();
        wake.descriptors.iter().for_each(|&descriptor| poll_set.add(descriptor));
        let signal = self.signal();
        signal.iter().for_each(|signal| poll_set.add(signal.as_raw_fd()));
        if !self.bells.is_asleep(self.slot, sleep.announced) {
            return Woken::Rung;
        }
        let woken = if poll_set.wait(Some(part)) { Woken::Rung } else { Woken::TimedOut };
        let is_signalled = poll_set.is_readable(wake.descriptors.len());
        if let Some(signal) = signal.filter(|_| is_signalled) {
            // Empty if another thread was faster.
            let _ = rustix::io::read(signal, &mut [0; 8]);
        }
        sleep.by_network = woken == Woken::Rung && !is_signalled;
        woken
    }

    fn signal(&self) -> Option<&OwnedFd> {
        let made = self.signal.get_or_init(|| {
            let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
            mend_segment::above_standard_streams(signal).ok()
        });
        made.as_ref()
    }

    /// There was an event, and nothing has woken this sleep.
    pub fn on_late_wake(&self, sleep: &Sleep) {
        if sleep.place == Place::Both {
            self.watch.restart();
        }
    }

    /// Ends the announced sleep.
    pub fn end_sleep(&self) {
        self.bells.end_sleep(self.slot);
    }

    /// Wakes the thread of this process that sleeps here.
    pub fn wake(&self) {
        self.bells.wake(self.slot);
        if self.is_on_descriptors.load(Ordering::Relaxed)
            && let Some(signal) = self.signal()
        {
            // The counter cannot overflow: a sleeper clears it.
            let _ = rustix::io::write(signal, &1_u64.to_ne_bytes());
        }
    }

    /// Calls the helper thread when one of `descriptors` is readable. `false`: nothing watches them.
    pub fn watch_for_helper(&self, descriptors: &[i32]) -> bool {
        !descriptors.is_empty() && self.watch.watch(WakeRequest::Helper, descriptors)
    }

    /// Notes in the bell page that no thread of this process waits, so that no rank yields to it.
    pub fn clear_processor(&self) {
        self.bells.set_processor(self.slot, None);
    }

    /// The observer of the running thread's processor, for the spin policy. `observed` is what it found before.
    pub fn processor<'a>(&'a self, observed: &'a mut Observed) -> Processor<'a> {
        Processor { sleep_slot: self, observed }
    }
}

impl Sleep {
    /// Whether a descriptor of a network has ended it, and nothing else.
    pub fn is_ended_by_network(&self) -> bool {
        self.by_network
    }

    /// With how long parts a sleep after this one begins.
    pub fn span(&self) -> SleepSpan {
        self.span
    }

    /// Whether the part that has ended was too short for a timed look after it.
    pub fn was_short(&self) -> bool {
        self.is_polled && self.parts <= SHORT_PARTS
    }

    /// How long the next part is. Those of a sleep that is polled become longer, too, as polling uses a processor, but less.
    fn next_part(&mut self) -> Duration {
        let part = self.span;
        self.parts = self.parts.saturating_add(1);
        if !self.is_polled {
            self.span = self.span.next();
        } else if self.parts <= SHORT_PARTS {
            return SHORT_PART;
        } else if self.parts.is_multiple_of(PARTS_OF_A_SPAN) {
            self.span = self.span.next().min(SleepSpan::LONGEST_POLLED);
        }
        part.0
    }
}

/// So many parts of a sleep that is polled have one length.
const PARTS_OF_A_SPAN: u32 = 64;

/// The first parts of a sleep that is polled are this short, since the other end of a transfer may be at work.
const SHORT_PART: Duration = Duration::from_micros(100);
const SHORT_PARTS: u32 = 16;

/// The length of one sleep. It is bounded because a bell can be lost; the poll after the time-out finds what the bell was for (design
/// "Shared memory").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SleepSpan(Duration);

impl SleepSpan {
    /// The length of the first sleep.
    pub const FIRST: SleepSpan = SleepSpan(Duration::from_millis(1));

    /// The greatest length.
    const LONGEST: SleepSpan = SleepSpan(Duration::from_millis(100));

    /// The greatest length where nothing wakes the process.
    const LONGEST_POLLED: SleepSpan = SleepSpan(Duration::from_millis(8));

    /// The length of the sleep after this one.
    pub fn next(self) -> SleepSpan {
        SleepSpan(Duration(self.0.0 * 2).min(Self::LONGEST.0))
    }
}

/// See [`SleepSlot::processor`].
pub struct Processor<'a> {
    sleep_slot: &'a SleepSlot,
    observed: &'a mut Observed,
}

/// The results of the last observations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observed {
    /// The number of preemptions of this process at the last observation.
    preemptions: u64,
    /// The slot of a rank that was found on this processor, or the slot where the search goes on.
    next: u32,
}

/// Slots that one observation reads, so that its cost does not grow with the ranks of the node.
const SLOTS_PER_OBSERVATION: u32 = 32;

impl ProcessorObserver for Processor<'_> {
    fn shares_with_rank(&mut self) -> bool {
        let Some(processor) = processors::current() else { return false };
        let SleepSlot { bells, slot, .. } = self.sleep_slot;
        bells.set_processor(*slot, Some(processor));
        let found = bells.next_on_processor(*slot, processor, self.observed.next, SLOTS_PER_OBSERVATION);
        self.observed.next = found.unwrap_or((self.observed.next + SLOTS_PER_OBSERVATION) % bells.slots());
        found.is_some()
    }

    fn was_preempted(&mut self) -> bool {
        let before = core::mem::replace(&mut self.observed.preemptions, processors::preemptions());
        self.observed.preemptions != before
    }

    fn time_run(&mut self) -> Duration {
        processors::time_run()
    }
}

#[cfg(test)]
mod tests {
    use super::{Observed, SHORT_PART, SHORT_PARTS, SleepSet, SleepSlot, SleepSpan};
    use crate::spin_policy::ProcessorObserver;
    use mend_base::Duration;
    use mend_segment::BellPage;
    use std::sync::Arc;

    #[test]
    fn a_sleep_lasts_1_ms_at_first_and_100_ms_at_last() {
        let mut span = SleepSpan::FIRST;
        assert_eq!(span.0, Duration::from_millis(1));
        for _ in 0..3 {
            span = span.next();
        }
        assert_eq!(span.0, Duration::from_millis(8));
        for _ in 0..10 {
            span = span.next();
        }
        assert_eq!(span.0, Duration::from_millis(100));
    }

    #[test]
    fn only_a_sleep_that_is_polled_begins_with_short_parts_without_timed_looks() {
        let slot = SleepSlot::new(Arc::new(BellPage::create(1).unwrap().0), 0);
        let mut set = SleepSet::default();
        let mut sleep = slot.begin(slot.announce(), &set, SleepSpan::FIRST);
        let parts = [1, 2, 4].map(Duration::from_millis);
        assert_eq!(core::array::from_fn(|_| sleep.next_part()), parts);
        assert!(!sleep.was_short());
        set.wake.must_poll = true;
        let mut sleep = slot.begin(slot.announce(), &set, SleepSpan::FIRST);
        for _ in 0..SHORT_PARTS {
            assert_eq!((sleep.next_part(), sleep.was_short()), (SHORT_PART, true));
        }
        assert_eq!((sleep.next_part(), sleep.was_short()), (Duration::from_millis(1), false));
    }

    #[test]
    fn one_of_many_ranks_on_the_same_processor_is_found_in_some_observations_and_then_in_each() {
        let bells = Arc::new(BellPage::create(200).unwrap().0);
        let mine = SleepSlot::new(Arc::clone(&bells), 3);
        let mut observed = Observed::default();
        let mut found = || {
            // The kernel may move this thread between two observations.
            bells.set_processor(150, crate::processors::current());
            mine.processor(&mut observed).shares_with_rank()
        };
        assert!((0..1_000).any(|_| found()));
        assert!((0..1_000).filter(|_| found()).count() > 500);
    }

    #[test]
    fn a_rank_that_waits_on_the_same_processor_is_seen_until_it_sleeps_or_waits_no_more() {
        let bells = Arc::new(BellPage::create(2).unwrap().0);
        let (mine, other) = (SleepSlot::new(Arc::clone(&bells), 0), SleepSlot::new(bells, 1));
        let mut observed = [Observed::default(); 2];
        let [ours, theirs] = &mut observed;
        // One thread plays both ranks. The kernel may move it to another processor between two observations.
        let mut both_seen = || {
            (0..1_000).any(|_| {
                other.processor(theirs).shares_with_rank();
                mine.processor(ours).shares_with_rank()
            })
        };
        assert!(both_seen());
        other.clear_processor();
        assert!(!mine.processor(&mut Observed::default()).shares_with_rank());
        assert!(both_seen());
        let _ = other.announce();
        assert!(!mine.processor(&mut Observed::default()).shares_with_rank());
        other.end_sleep();
    }
}
