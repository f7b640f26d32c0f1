// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a process in the kernel's table: a line of /proc/PID/stat (proc_pid_stat(5)).

/// The fields of that line that Mend uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// The first thread has ended. The process ends with its last thread (pthread_exit).
    pub first_has_ended: bool,
    /// The first thread is stopped, by a signal or by a tracer.
    pub is_stopped: bool,
    /// The number of the parent.
    pub parent: i32,
    /// The kernel's own flags (PF_...).
    pub flags: u64,
    /// How many threads the process has. The first thread counts until all have ended.
    pub threads: u32,
}

impl Stat {
    /// `pid (name) state parent ...`; the name may hold blanks and parentheses. Behind it, the flags stand as the seventh, the
    /// number of threads as the 18th; the state is that of the first thread.
    pub fn parse(line: &str) -> Option<Self> {
        let (_, behind_name) = line.rsplit_once(')')?;
        let mut fields = behind_name.split_whitespace();
        let state = fields.next()?;
        Some(Stat {
            first_has_ended: matches!(state, "Z" | "X"),
            is_stopped: matches!(state, "T" | "t"),
            parent: fields.next()?.parse().ok()?,
            flags: fields.nth(4)?.parse().ok()?,
            threads: fields.nth(10)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Stat;

    #[test]
    fn fields_are_counted_from_behind_the_name_whatever_it_holds() {
        let line = |front: &str| format!("{front} 3 7 7 0 -1 4194308 1 0 0 0 2 3 0 0 20 0 5 0 9");
        let lives =
            Stat { first_has_ended: false, is_stopped: false, parent: 3, flags: 4_194_308, threads: 5 };
        assert_eq!(Stat::parse(&line("7 (a) Z 99 (b)) S")), Some(lives));
        assert_eq!(Stat::parse(&line("7 (a) b) S")), Some(lives));
        assert_eq!(Stat::parse(&line("7 (a) Z")), Some(Stat { first_has_ended: true, ..lives }));
        for stopped in ["T", "t"] {
            let line = line(&format!("7 (a) {stopped}"));
            assert_eq!(Stat::parse(&line), Some(Stat { is_stopped: true, ..lives }));
        }
        for short in ["", "7 (a) Z", "7 (a) Z 3", "7 (a) S 3 7 7 0 -1 4194308"] {
            assert_eq!(Stat::parse(short), None);
        }
    }

    #[test]
    fn the_line_of_this_process_is_parsed() {
        let line = std::fs::read_to_string("/proc/self/stat").unwrap();
        let stat = Stat::parse(&line).unwrap();
        assert_eq!(stat.parent, rustix::process::getppid().unwrap().as_raw_nonzero().get());
        assert!(!stat.first_has_ended && stat.threads >= 1);
    }
}
