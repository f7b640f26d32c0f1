// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where this process sleeps: its sleep word in the node's bell page, and how long each sleep is.

use crate::processors;
use crate::spin_policy::Surroundings;
use mend_base::Duration;
use mend_segment::{BellPage, Woken};
use std::sync::Arc;

/// This process's slot in the bell page.
#[derive(Debug)]
pub struct SleepSlot {
    bells: Arc<BellPage>,
    slot: u32,
}

impl SleepSlot {
    /// Slot `slot` of `bells`.
    pub fn new(bells: Arc<BellPage>, slot: u32) -> Self {
        SleepSlot { bells, slot }
    }

    /// From now on a process that has something for this one wakes it.
    pub fn announce(&self) {
        self.bells.publish_processor(self.slot, None);
        self.bells.announce_sleep(self.slot);
    }

    /// Sleeps after an announcement.
    pub fn sleep(&self, span: SleepSpan) -> Woken {
        self.bells.sleep(self.slot, span.0)
    }

    /// Awake again.
    pub fn leave(&self) {
        self.bells.leave_sleep(self.slot);
    }

    /// Wakes the thread of this process that sleeps here.
    pub fn wake(&self) {
        self.bells.wake(self.slot);
    }

    /// This process does not wait any more: its processor says nothing to others.
    pub fn withdraw(&self) {
        self.bells.publish_processor(self.slot, None);
    }

    /// The processor of the running thread, as the spin policy observes it.
    pub fn processor<'a>(&'a self, observed: &'a mut Observed) -> Processor<'a> {
        Processor { sleep_slot: self, observed }
    }
}

/// How long one sleep is: a bell can be lost to a store that was still in the sender's store buffer, and the poll after
/// the first time-out finds what it rang for (design "Shared memory").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SleepSpan(Duration);

impl SleepSpan {
    /// Of the first sleep.
    pub const FIRST: SleepSpan = SleepSpan(Duration::from_millis(1));

    /// Without a poll in between.
    const LONGEST: SleepSpan = SleepSpan(Duration::from_millis(100));

    /// Of the next sleep.
    pub fn next(self) -> SleepSpan {
        SleepSpan(Duration(self.0.0 * 2).min(Self::LONGEST.0))
    }
}

/// See [`SleepSlot::processor`].
pub struct Processor<'a> {
    sleep_slot: &'a SleepSlot,
    observed: &'a mut Observed,
}

/// What the last observations came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observed {
    /// Preemptions of this process when they were last asked for.
    preemptions: u64,
    /// The slot that was found on this processor, or where the search goes on.
    next: u32,
}

/// Slots for each observation: with many ranks one takes no longer than with few.
const SLOTS_PER_OBSERVATION: u32 = 32;

impl Surroundings for Processor<'_> {
    fn is_beside_rank(&mut self) -> bool {
        let Some(processor) = processors::current() else { return false };
        let SleepSlot { bells, slot } = self.sleep_slot;
        bells.publish_processor(*slot, Some(processor));
        let found = bells.next_on_processor(*slot, processor, self.observed.next, SLOTS_PER_OBSERVATION);
        self.observed.next = found.unwrap_or((self.observed.next + SLOTS_PER_OBSERVATION) % bells.slots());
        found.is_some()
    }

    fn was_preempted(&mut self) -> bool {
        let before = core::mem::replace(&mut self.observed.preemptions, processors::preemptions());
        self.observed.preemptions != before
    }
}

#[cfg(test)]
mod tests {
    use super::{Observed, SleepSlot, SleepSpan};
    use crate::spin_policy::Surroundings;
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
    fn one_of_many_ranks_on_the_same_processor_is_found_in_some_observations_and_then_in_each() {
        let bells = Arc::new(BellPage::create(200).unwrap().0);
        let mine = SleepSlot::new(Arc::clone(&bells), 3);
        let mut observed = Observed::default();
        let mut found = || {
            // The kernel may move this thread between two observations.
            bells.publish_processor(150, crate::processors::current());
            mine.processor(&mut observed).is_beside_rank()
        };
        assert!((0..1_000).any(|_| found()));
        assert!((0..1_000).filter(|_| found()).count() > 500);
    }

    #[test]
    fn a_rank_that_waits_on_the_same_processor_is_seen_until_it_sleeps_or_withdraws() {
        let bells = Arc::new(BellPage::create(2).unwrap().0);
        let (mine, other) = (SleepSlot::new(Arc::clone(&bells), 0), SleepSlot::new(bells, 1));
        let mut observed = [Observed::default(); 2];
        let [ours, theirs] = &mut observed;
        // One thread plays both ranks; it is moved to another processor between two observations now and then.
        let mut both_seen = || {
            (0..1_000).any(|_| {
                other.processor(theirs).is_beside_rank();
                mine.processor(ours).is_beside_rank()
            })
        };
        assert!(both_seen());
        other.withdraw();
        assert!(!mine.processor(&mut Observed::default()).is_beside_rank());
        assert!(both_seen());
        other.announce();
        assert!(!mine.processor(&mut Observed::default()).is_beside_rank());
        other.leave();
    }
}
