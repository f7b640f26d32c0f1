// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Core dumps: whether and where a system writes them, and which address ranges they hold, by the few fields of 64-bit ELF
//! files that say so.

use std::path::{Path, PathBuf};

/// Why no process of this machine writes a core into its current folder, if so.
pub fn no_cores() -> Option<String> {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let pattern = pattern.trim();
    if pattern.is_empty() || pattern.contains(['|', '/', '%']) {
        return Some(format!("core dumps go to '{pattern}', not into the current folder"));
    }
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max core file size"))?;
    let most = line.split_whitespace().nth(1)?;
    (most != "unlimited").then(|| format!("core dumps may have {most} bytes at most"))
}

/// The core files in a folder.
pub fn cores_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("core"));
    files.map(|entry| entry.path()).collect()
}

/// The ranges `(start, bytes)` of memory whose contents the core file holds; `None` if it is no 64-bit ELF file.
pub fn dumped(core: &[u8]) -> Option<Vec<(u64, u64)>> {
    if core.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let first = word(core, 32, 8)?;
    let size = word(core, 54, 2)?;
    let number = word(core, 56, 2)?;
    let mut ranges = Vec::new();
    for index in 0..number {
        let header = usize::try_from(first + index * size).ok()?;
        let (kind, start, bytes) =
            (word(core, header, 4)?, word(core, header + 16, 8)?, word(core, header + 32, 8)?);
        if kind == LOAD && bytes > 0 {
            ranges.push((start, bytes));
        }
    }
    Some(ranges)
}

fn word(file: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let mut word = [0; 8];
    word[..bytes].copy_from_slice(file.get(at..at + bytes)?);
    Some(u64::from_le_bytes(word))
}

const LOAD: u64 = 1;

#[cfg(test)]
mod tests {
    use super::dumped;

    #[test]
    fn this_program_has_loaded_ranges_and_a_text_has_none() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(!dumped(&program).unwrap().is_empty());
        assert_eq!(dumped(b"a text, and no ELF file"), None);
    }
}
