// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file that every rank of a job maps, with a row of 16 words for each: ranks and harness publish their stage in it, without MPI,
//! which is under test. `tests/deaths/board.h` is the ranks' side.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::prefix;
use crate::watched_command::Running;

/// The words of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// A rank's process id, once it may be released.
    Pid,
    /// Rank 0's row: which rank its next call depends on.
    Called,
    /// Rank 0's row: for how many ranks its calls have ended. Others: their stage.
    Ended,
    /// What the call returned, plus 1; 0 before that.
    Class,
    /// How many bytes were neither right nor untouched.
    WrongBytes,
    /// 1: get_failed named the dead rank after an error had been returned.
    Known,
    /// Set by the harness: this rank is dead.
    Dead,
    /// Set by the harness in rank 0's row: no more rounds.
    Stop,
    /// What the call for the earlier message returned, plus 1.
    First,
    /// How many ranks had failed at the end, plus 1.
    Failed,
    /// How long a call took.
    Micros,
}

/// The file; removed when this is dropped.
#[derive(Debug)]
pub struct Board {
    file: File,
    path: PathBuf,
}

impl Board {
    /// Makes a new file, all zeros.
    pub fn new() -> Board {
        let path = prefix::folder("boards").join(mend_testing::unique());
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.expect("the target folder can be written");
        file.set_len(ROWS * ROW_BYTES).expect("a small file fits");
        Board { file, path }
    }

    /// The name of the file, which the ranks get as an argument.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The value of a word.
    pub fn get(&self, rank: u32, word: Word) -> u32 {
        let mut bytes = [0; 4];
        self.file.read_exact_at(&mut bytes, offset(rank, word)).expect("a row lies within the board");
        u32::from_ne_bytes(bytes)
    }

    /// Sets a word, which the ranks read.
    pub fn set(&self, rank: u32, word: Word, value: u32) {
        self.file
            .write_all_at(&value.to_ne_bytes(), offset(rank, word))
            .expect("a row lies within the board");
    }

    /// Waits until `holds`; `false`: it took too long, or the job has ended before.
    pub fn until(&self, job: &Running, at_most: Duration, mut holds: impl FnMut(&Board) -> bool) -> bool {
        let begun = Instant::now();
        while !holds(self) {
            if begun.elapsed() > at_most || job.is_over() {
                return holds(self);
            }
            // Sleeps: between two looks at a file, so that the ranks have the processors.
            std::thread::sleep(CHECK_INTERVAL);
        }
        true
    }
}

impl Default for Board {
    fn default() -> Self {
        Board::new()
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // The file may have been removed already.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn offset(rank: u32, word: Word) -> u64 {
    u64::from(rank) * ROW_BYTES + 4 * word as u64
}

const ROWS: u64 = 1024;
const ROW_BYTES: u64 = 64;
const CHECK_INTERVAL: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests {
    use super::{Board, Word};

    #[test]
    fn a_word_that_was_set_is_read_and_its_neighbours_stay() {
        let board = Board::new();
        board.set(3, Word::Class, 7);
        assert_eq!(board.get(3, Word::Class), 7);
        assert_eq!(board.get(3, Word::WrongBytes) + board.get(2, Word::Class) + board.get(4, Word::Class), 0);
    }
}
