// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The few fields of 64-bit ELF files that tests look at: which address ranges a core dump holds.

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
