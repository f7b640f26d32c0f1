// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The instructions at which ranks were killed in earlier runs: a file in the target folder for each operation, so that long operations are
//! tried at every different instruction over several runs. A file counts for the library with which it was made.

use std::collections::BTreeSet;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::PathBuf;

use crate::prefix;

/// The places that were tried, and went well.
#[derive(Debug)]
pub struct Tried {
    file: PathBuf,
    places: BTreeSet<String>,
}

impl Tried {
    /// Reads the file of an operation, or begins a new one.
    pub fn open(operation: &str) -> Tried {
        Tried::read(prefix::folder("points").join(format!("{operation}.tried")), &library())
    }

    fn read(file: PathBuf, library: &str) -> Tried {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let mut lines = text.lines();
        if lines.next() == Some(library) {
            return Tried { file, places: lines.map(str::to_owned).collect() };
        }
        std::fs::write(&file, format!("{library}\n")).expect("the target folder can be written");
        Tried { file, places: BTreeSet::new() }
    }

    /// Whether a rank was killed at this place.
    pub fn contains(&self, place: &str) -> bool {
        self.places.contains(place)
    }

    /// Ranks were killed at these places. The file has them at once: a run may be interrupted.
    pub fn extend<'a>(&mut self, places: impl IntoIterator<Item = &'a str>) {
        let new: Vec<&str> = places.into_iter().filter(|place| !self.places.contains(*place)).collect();
        let text: String = new.iter().map(|place| format!("{place}\n")).collect();
        let mut file = File::options().append(true).open(&self.file).expect("the file was made");
        file.write_all(text.as_bytes()).expect("the target folder can be written");
        self.places.extend(new.into_iter().map(str::to_owned));
    }
}

/// Which library is tried.
fn library() -> String {
    let mut hasher = DefaultHasher::new();
    let library = prefix::prefix().join("lib/libmpi_abi.so");
    std::fs::read(library).expect("the library is installed").hash(&mut hasher);
    format!("library {:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::Tried;
    use mend_testing::Scratch;

    #[test]
    fn places_are_remembered_from_run_to_run_of_one_library() {
        let folder = Scratch::new("tried");
        let open = |library| Tried::read(folder.path().join("send.tried"), library);
        open("one").extend(["a+0x1", "a+0x2"]);
        open("one").extend(["a+0x2", "b+0x3"]);
        let tried = open("one");
        assert!(["a+0x1", "a+0x2", "b+0x3"].iter().all(|place| tried.contains(place)));
        assert!(!open("another").contains("a+0x1"));
        assert!(!open("one").contains("a+0x1"));
    }
}
