// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the helper thread looks whether the program is outside MPI, so that the descriptors of networks must be watched for it (R-5).
//!
//! ```text
//!                  the program is outside: armed                     readable, and there were events
//!   looking ───────────────────────────────────▶ watching ──────────────────────────────────────────▶ watching
//!     ▲  └── in MPI: again after twice the pause    │
//!     └────────── readable, but the program is in MPI, or there was no event: after twice the pause
//! ```
//!
//! A program in MPI makes progress itself. If its messages woke the helper thread, each would cost a change of context. So the helper
//! thread stops watching when it finds the program there, and looks at intervals that double up to 64 ms. They are short again after the
//! helper thread was of use. A descriptor that stays readable without an event counts as one that was of no use.

use mend_base::{Duration, Instant};

/// When the next look is due.
#[derive(Debug)]
pub struct DescriptorSchedule {
    state: State,
    pause: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The process has no descriptors.
    Off,
    Looking {
        due: Instant,
    },
    /// The watcher thread calls the helper thread when a descriptor is readable.
    Watching,
}

/// What a look found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watched {
    /// The program is in MPI, or threads wait there.
    InMpi,
    /// The program is outside, progress had events or none, and the descriptors are watched.
    Armed {
        /// Whether there were events.
        events: bool,
    },
    /// The program is outside, and nothing watches: events come without end, a device has no descriptor, or there is no watcher thread.
    NotArmed {
        /// Whether there were events.
        events: bool,
    },
}

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(64);

impl DescriptorSchedule {
    /// `has_descriptors`: the process has networks, or gets notices through a descriptor alone.
    pub fn new(now: Instant, has_descriptors: bool) -> Self {
        let state = if has_descriptors { State::Looking { due: now + FIRST_PAUSE } } else { State::Off };
        DescriptorSchedule { state, pause: FIRST_PAUSE }
    }

    /// The time until the next look; `None`: there is none before a descriptor is readable.
    pub fn pause(&self, now: Instant) -> Option<Duration> {
        match self.state {
            State::Looking { due } => Some(if due > now { due - now } else { Duration(0) }),
            State::Off | State::Watching => None,
        }
    }

    /// Whether a look is due. `readable`: a descriptor has become readable.
    pub fn is_due(&self, now: Instant, readable: bool) -> bool {
        match self.state {
            State::Off => false,
            State::Looking { due } => due <= now,
            State::Watching => readable,
        }
    }

    /// A look at this time has found this.
    pub fn on_look(&mut self, now: Instant, watched: Watched) {
        let (was_readable, is_of_use) = (
            self.state == State::Watching,
            matches!(watched, Watched::Armed { events: true } | Watched::NotArmed { events: true }),
        );
        self.state = match watched {
            Watched::Armed { events } if events || !was_readable => {
                if events {
                    self.pause = FIRST_PAUSE;
                }
                State::Watching
            }
            _ => {
                self.pause =
                    if is_of_use { FIRST_PAUSE } else { Duration(self.pause.0 * 2).min(LONGEST_PAUSE) };
                State::Looking { due: now + self.pause }
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::{DescriptorSchedule, LONGEST_PAUSE, Watched};
    use mend_base::{Duration, Instant};

    const IDLE: Watched = Watched::Armed { events: false };
    const SERVED: Watched = Watched::Armed { events: true };

    fn at(ms: u64) -> Instant {
        Instant(0) + Duration::from_millis(ms)
    }

    /// Looks for so long, while each look finds this and a descriptor is readable all the time; returns how often.
    fn looks(schedule: &mut DescriptorSchedule, from_ms: u64, ms: u64, found: Watched) -> u32 {
        let mut looks = 0;
        for now in (from_ms * 100..(from_ms + ms) * 100).map(|time| Instant(time * 10_000)) {
            if schedule.is_due(now, true) {
                schedule.on_look(now, found);
                looks += 1;
            }
        }
        looks
    }

    #[test]
    fn a_process_without_descriptors_never_looks() {
        let mut schedule = DescriptorSchedule::new(at(0), false);
        assert_eq!((schedule.pause(at(9)), looks(&mut schedule, 0, 1_000, IDLE)), (None, 0));
    }

    #[test]
    fn a_program_in_mpi_is_looked_at_every_64_ms_at_last() {
        let mut schedule = DescriptorSchedule::new(at(0), true);
        let begin = looks(&mut schedule, 0, 200, Watched::InMpi);
        assert!((7..=9).contains(&begin), "{begin}");
        assert!((15..=16).contains(&looks(&mut schedule, 200, 1_000, Watched::InMpi)));
        assert!(schedule.pause(at(1_200)).is_some_and(|pause| pause <= LONGEST_PAUSE));
    }

    #[test]
    fn while_the_program_computes_each_readable_descriptor_is_served_at_once() {
        let mut schedule = DescriptorSchedule::new(at(0), true);
        assert!(schedule.is_due(at(1), false));
        schedule.on_look(at(1), IDLE);
        assert_eq!(schedule.pause(at(2)), None);
        assert!(!schedule.is_due(at(1_000), false));
        for time in 2..100 {
            assert!(schedule.is_due(at(time), true));
            schedule.on_look(at(time), SERVED);
        }
    }

    #[test]
    fn a_descriptor_that_stays_readable_without_events_does_not_spin() {
        let mut schedule = DescriptorSchedule::new(at(0), true);
        let count = looks(&mut schedule, 0, 10_000, IDLE);
        // Two looks for each pause: one that arms, and one because the descriptor is readable.
        assert!((300..=340).contains(&count), "{count}");
    }

    #[test]
    fn a_program_that_communicates_and_computes_by_turns_is_looked_at_ever_less() {
        let mut schedule = DescriptorSchedule::new(at(0), true);
        let mut wakes = 0;
        for time in 0..10_000 {
            // It computes for one millisecond, and then communicates for one.
            if schedule.is_due(at(time), time % 2 == 0) {
                schedule.on_look(at(time), if time % 2 == 0 { Watched::InMpi } else { IDLE });
                wakes += 1;
            }
        }
        assert!(wakes < 400, "{wakes}");
    }

    #[test]
    fn without_a_watcher_events_are_looked_for_at_short_intervals_while_they_come() {
        let mut schedule = DescriptorSchedule::new(at(0), true);
        looks(&mut schedule, 0, 1_000, Watched::NotArmed { events: false });
        let busy = looks(&mut schedule, 1_000, 1_000, Watched::NotArmed { events: true });
        assert!(busy > 900, "{busy}");
    }
}
