// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures ranks while they run: memory, descriptors, processor time and mappings, from /proc.

use std::time::Duration;

/// The proportional set size (PSS) of the process: its private pages, and its part of shared pages.
pub fn pss_bytes(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    field_kib(&text, "Pss:").map(|kib| kib * 1024)
}

/// Open descriptors.
pub fn descriptors(pid: u32) -> Option<usize> {
    Some(std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count())
}

/// Processor time of all threads since their start, to the nanosecond. `None`: the kernel does not count it.
pub fn processor_time(pid: u32) -> Option<Duration> {
    let mut total = Duration::ZERO;
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        total += Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?);
    }
    Some(total)
}

/// Why a test that needs [`processor_time`] is skipped.
pub const NOT_COUNTED: &str = "this kernel does not count processor time in schedstat";

/// One mapping of shared memory.
#[derive(Debug)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// The name in /proc/PID/maps.
    pub name: String,
    /// Whether it stays out of core dumps (`dd` among its flags).
    pub left_out_of_dumps: bool,
}

/// The mappings of memory files (memfd): outboxes, bell page, notice page, its own and the others'.
pub fn memory_files(pid: u32) -> Vec<Mapping> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
    parse_memory_files(&text)
}

fn parse_memory_files(text: &str) -> Vec<Mapping> {
    let mut found: Vec<Mapping> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if let Some((start, end)) = range(line) {
            let name = line.split_whitespace().skip(5).collect::<Vec<_>>().join(" ");
            inside = name.contains("memfd:");
            if inside {
                found.push(Mapping { start, end, name, left_out_of_dumps: false });
            }
        } else if let (true, Some(flags)) = (inside, line.strip_prefix("VmFlags:")) {
            let mapping = found.last_mut().expect("flags come after their mapping");
            mapping.left_out_of_dumps = flags.split_whitespace().any(|flag| flag == "dd");
        }
    }
    found
}

fn range(line: &str) -> Option<(u64, u64)> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

fn field_kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{descriptors, parse_memory_files, processor_time, pss_bytes};

    #[test]
    fn flags_belong_to_the_mapping_before_them() {
        let text = "7f00-7f10 rw-s 00000000 00:01 5 /memfd:outbox (deleted)\nPss: 4 kB\nVmFlags: rd wr dc dd \n\
                    7f10-7f20 rw-p 00000000 00:00 0 \nVmFlags: rd wr\n\
                    7f20-7f30 r--s 00000000 00:01 6 /memfd:bells (deleted)\nVmFlags: rd\n";
        let found = parse_memory_files(text);
        let flags: Vec<_> = found.iter().map(|mapping| mapping.left_out_of_dumps).collect();
        assert_eq!(flags, [true, false]);
        assert_eq!((found[1].start, found[1].end), (0x7f20, 0x7f30));
    }

    #[test]
    fn this_process_can_look_at_itself() {
        let me = std::process::id();
        assert!(pss_bytes(me).unwrap() > 0);
        assert!(descriptors(me).unwrap() >= 3);
        assert!(processor_time(me).is_some_and(|time| !time.is_zero()));
    }
}
