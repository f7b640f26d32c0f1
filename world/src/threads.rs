// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads of this process, as the kernel counts them: for rare looks, as each reads a file.

/// What one look at the process table told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Threads {
    /// Threads that have not ended.
    pub living: u32,
    /// The first one, with which the process began, has ended. It is the only one that stays to be seen then.
    pub first_has_ended: bool,
}

/// The threads of this process, ours among them; `None` where /proc does not say.
pub fn look() -> Option<Threads> {
    parse(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// `pid (name) state ...`; the name may hold blanks and parentheses. The state is that of the first thread, which counts as
/// long as there are others; how many there are is the 17th of what stands behind it.
fn parse(stat: &str) -> Option<Threads> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_whitespace();
    let first_has_ended = fields.next()? == "Z";
    let seen: u32 = fields.nth(16)?.parse().ok()?;
    Some(Threads { living: seen.checked_sub(u32::from(first_has_ended))?, first_has_ended })
}

#[cfg(test)]
mod tests {
    use super::{Threads, look, parse};

    #[test]
    fn threads_are_counted_whatever_the_program_is_called() {
        let stat = |front: &str| format!("{front} 3 7 7 0 -1 4194560 1 0 0 0 2 3 0 0 20 0 5 0 9");
        assert_eq!(parse(&stat("7 (a) Z 99 (b)) S")), Some(Threads { living: 5, first_has_ended: false }));
        assert_eq!(parse(&stat("7 (a) Z")), Some(Threads { living: 4, first_has_ended: true }));
        assert_eq!((parse("7 (a) Z 3"), parse("")), (None, None));
    }

    #[test]
    fn a_thread_that_waits_is_counted() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || ended.recv().is_err());
        assert!(look().is_some_and(|threads| threads.living >= 2 && !threads.first_has_ended));
        drop(end);
        assert!(thread.join().unwrap());
    }
}
