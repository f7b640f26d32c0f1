// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file that every rank of a job maps, with a seat of 16 words for each: how ranks and harness tell each other where they are
//! without MPI, which is what is being tried out. `tests/deaths/board.h` is the ranks' side.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::job::Running;
use crate::prefix;

/// What a word of a seat says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// A rank's process, once it may be let go.
    Pid,
    /// Rank 0's seat: which rank its next call depends on.
    Called,
    /// Rank 0's seat: for how many ranks its calls have ended. Others: how far they are.
    Ended,
    /// What the call returned, and one; 0 before that.
    Class,
    /// Bytes that were neither right nor untouched.
    ArgumentError,
    /// Whether get_failed named the dead once an error had.
    Known,
    /// Ours: this rank is dead.
    Dead,
    /// Ours, in rank 0's seat: no more rounds.
    Stop,
    /// What came first returned, and one.
    First,
    /// How many had failed at the end, and one.
    Failed,
    /// How long a call took.
    Micros,
}

/// The file. It is removed with the board.
#[derive(Debug)]
pub struct Board {
    file: File,
    path: PathBuf,
}

impl Board {
    /// A fresh one, all zeros.
    pub fn new() -> Board {
        let path = prefix::folder("boards").join(mend_testing::unique());
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.expect("the target folder can be written");
        file.set_len(SEATS * SEAT_BYTES).expect("a small file fits");
        Board { file, path }
    }

    /// Its name, which the ranks are told.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What stands there.
    pub fn get(&self, rank: u32, word: Word) -> u32 {
        let mut bytes = [0; 4];
        self.file.read_exact_at(&mut bytes, offset(rank, word)).expect("a seat lies within the board");
        u32::from_ne_bytes(bytes)
    }

    /// Tells the ranks.
    pub fn set(&self, rank: u32, word: Word, value: u32) {
        self.file
            .write_all_at(&value.to_ne_bytes(), offset(rank, word))
            .expect("a seat lies within the board");
    }

    /// Waits until `holds`; `false`: in vain, because it took too long or the job has ended before.
    pub fn until(&self, job: &Running, at_most: Duration, mut holds: impl FnMut(&Board) -> bool) -> bool {
        let begun = Instant::now();
        while !holds(self) {
            if begun.elapsed() > at_most || job.is_over() {
                return holds(self);
            }
            // Sleeps: between two looks at a file, so that the ranks have the processors.
            std::thread::sleep(LOOK_EVERY);
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
        // If it is gone already, so much the better.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn offset(rank: u32, word: Word) -> u64 {
    u64::from(rank) * SEAT_BYTES + 4 * word as u64
}

const SEATS: u64 = 1024;
const SEAT_BYTES: u64 = 64;
const LOOK_EVERY: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests {
    use super::{Board, Word};

    #[test]
    fn a_word_that_was_set_is_read_and_its_neighbours_stay() {
        let board = Board::new();
        board.set(3, Word::Class, 7);
        assert_eq!(board.get(3, Word::Class), 7);
        assert_eq!(
            board.get(3, Word::ArgumentError) + board.get(2, Word::Class) + board.get(4, Word::Class),
            0
        );
    }
}
