// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads of this process, as the kernel counts them: for rare looks, as each reads a file.

use mend_runtime::Stat;

/// What one look at the process table told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Threads {
    /// Threads that have not ended.
    pub liveness_owner: u32,
    /// The first one, with which the process began, has ended. It is the only one that stays to be seen then.
    pub first_has_ended: bool,
}

impl Threads {
    fn of(stat: Stat) -> Option<Self> {
        let Stat { first_has_ended, threads, .. } = stat;
        Some(Threads { liveness_owner: threads.checked_sub(u32::from(first_has_ended))?, first_has_ended })
    }
}

/// The threads of this process, ours among them; `None` where /proc does not say.
pub fn look() -> Option<Threads> {
    Threads::of(Stat::parse(&std::fs::read_to_string("/proc/self/stat").ok()?)?)
}

#[cfg(test)]
mod tests {
    use super::{Threads, look};
    use mend_runtime::Stat;

    #[test]
    fn a_first_thread_that_has_ended_is_seen_and_does_not_live() {
        let stat = |first_has_ended, threads| Stat { first_has_ended, parent: 3, flags: 0, threads };
        assert_eq!(Threads::of(stat(false, 5)), Some(Threads { liveness_owner: 5, first_has_ended: false }));
        assert_eq!(Threads::of(stat(true, 5)), Some(Threads { liveness_owner: 4, first_has_ended: true }));
        assert_eq!(Threads::of(stat(true, 0)), None);
    }

    #[test]
    fn a_thread_that_waits_is_counted() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || ended.recv().is_err());
        assert!(look().is_some_and(|threads| threads.liveness_owner >= 2 && !threads.first_has_ended));
        drop(end);
        assert!(thread.join().unwrap());
    }
}
