// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Error classes and codes (MPI-5.0 §9.4, §9.5): the predefined ones, whose codes are their classes (Trap 3), and those that the
//! program added. The table of added ones is one for the process, legal to use before Init and after Finalize.

use crate::generated::constants::{
    ERR_LASTCODE, ERR_PROC_FAILED, ERR_PROC_FAILED_PENDING, ERR_REVOKED, ERR_UNKNOWN,
};
use core::ffi::c_int;
use mend_mpi::ErrorClass;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Classes and codes that users added: all above `MPI_ERR_LASTCODE`.
#[derive(Debug)]
pub(crate) struct Codes {
    added: BTreeMap<c_int, Added>,
}

#[derive(Debug, Default)]
struct Added {
    /// The class of the code; the code itself, if it is a class.
    class: c_int,
    string: Option<String>,
}

impl Codes {
    const fn new() -> Self {
        Codes { added: BTreeMap::new() }
    }

    /// `MPI_LASTUSEDCODE`.
    pub(crate) fn last_used(&self) -> c_int {
        self.added.last_key_value().map_or(ERR_LASTCODE, |(&code, _)| code)
    }

    /// The class of a predefined or added code.
    pub(crate) fn class(&self, code: c_int) -> Option<c_int> {
        match ErrorClass::from_number(code) {
            Some(_) => Some(code),
            None => self.added.get(&code).map(|added| added.class),
        }
    }

    /// Adds a code of `class`, or a new class.
    pub(crate) fn add(&mut self, class: Option<c_int>) -> c_int {
        let code = self.last_used() + 1;
        self.added.insert(code, Added { class: class.unwrap_or(code), string: None });
        code
    }

    /// The text of a predefined or added code.
    pub(crate) fn string(&self, code: c_int) -> Option<String> {
        match ErrorClass::from_number(code) {
            Some(class) => Some(format!("{}: {}", class.name(), class.description())),
            None => self.added.get(&code).map(|added| added.string.clone().unwrap_or_default()),
        }
    }

    /// Sets the text of an added code. Returns whether the code exists.
    pub(crate) fn set_string(&mut self, code: c_int, string: Option<String>) -> bool {
        self.added.get_mut(&code).map(|added| added.string = string).is_some()
    }

    /// Removes an added class without codes, or an added code. Returns whether it was removed.
    pub(crate) fn remove(&mut self, code: c_int, is_class: bool) -> bool {
        let in_use = self.added.iter().any(|(&other, added)| added.class == code && other != code);
        let fits = self.added.get(&code).is_some_and(|added| (added.class == code) == is_class);
        fits && !in_use && self.added.remove(&code).is_some()
    }
}

static CODES: Mutex<Codes> = Mutex::new(Codes::new());

/// Runs `work` on the table of added codes.
pub(crate) fn with_codes<R>(work: impl FnOnce(&mut Codes) -> R) -> R {
    // A panic under the lock was a bug that was reported; the table is consistent, since every change of it is one step.
    work(&mut CODES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The class of any code.
pub(crate) fn class_of(code: c_int) -> c_int {
    with_codes(|codes| codes.class(code)).unwrap_or(ERR_UNKNOWN)
}

/// Whether a class is that of a failed process or of a revoked communicator.
pub(crate) fn is_fault_tolerance_error(class: c_int) -> bool {
    matches!(class, ERR_PROC_FAILED | ERR_PROC_FAILED_PENDING | ERR_REVOKED)
}

#[cfg(test)]
mod tests {
    use super::Codes;
    use crate::generated::constants::{ERR_LASTCODE, ERR_RANK};

    #[test]
    fn added_codes_are_above_the_last_predefined_one_and_know_their_class() {
        let mut codes = Codes::new();
        assert_eq!(codes.last_used(), ERR_LASTCODE);
        let class = codes.add(None);
        let code = codes.add(Some(class));
        let of_rank = codes.add(Some(ERR_RANK));
        assert!(class > ERR_LASTCODE && code > class && of_rank > code);
        assert_eq!(codes.class(class), Some(class));
        assert_eq!(codes.class(code), Some(class));
        assert_eq!(codes.class(of_rank), Some(ERR_RANK));
        assert_eq!(codes.last_used(), of_rank);
        assert_eq!(codes.string(code).as_deref(), Some(""));
    }

    #[test]
    fn what_is_in_use_or_predefined_is_not_removed() {
        let mut codes = Codes::new();
        let class = codes.add(None);
        let code = codes.add(Some(class));
        assert!(!codes.remove(class, true));
        assert!(!codes.remove(code, true));
        assert!(!codes.remove(ERR_RANK, true));
        assert!(codes.remove(code, false));
        assert!(codes.remove(class, true));
        assert_eq!(codes.class(class), None);
    }

    #[test]
    fn every_predefined_class_has_a_string_and_is_its_own_class() {
        let codes = Codes::new();
        for code in (0..63).chain(101..=103) {
            assert_eq!(codes.class(code), Some(code));
            assert!(codes.string(code).unwrap().starts_with("MPI_"));
        }
        assert_eq!(codes.class(77), None);
    }
}
