// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Error handlers, classes, codes and strings (MPI-5.0 §9.3-9.5). Codes of Mend are classes, so that `code == class` holds for
//! all of them (the fault classes in particular: Trap 3); users may add their own.

use crate::books;
use crate::check::ArgumentError;
use crate::entry::{Failure, Why};
use crate::error_handler::Function;
use crate::generated::constants::{ERR_LASTCODE, ERR_UNKNOWN, ERRHANDLER_NULL, MAX_ERROR_STRING};
use crate::handle::{Comm, Handle};
use crate::pointer::{Out, OutText, Text};
use core::ffi::{c_int, c_void};
use mend_mpi::Class;
use mend_world::World;
use std::collections::BTreeMap;

/// Classes and codes that users added: all above `MPI_ERR_LASTCODE`.
#[derive(Debug, Default)]
pub(crate) struct Codes {
    added: BTreeMap<c_int, Added>,
}

#[derive(Debug, Default)]
struct Added {
    /// Its class; itself, if it is one.
    class: c_int,
    string: Option<String>,
}

impl Codes {
    /// `MPI_LASTUSEDCODE`.
    pub(crate) fn last_used(&self) -> c_int {
        self.added.last_key_value().map_or(ERR_LASTCODE, |(&code, _)| code)
    }

    fn class(&self, code: c_int) -> Option<c_int> {
        match Class::from_number(code) {
            Some(_) => Some(code),
            None => self.added.get(&code).map(|added| added.class),
        }
    }

    fn add(&mut self, class: Option<c_int>) -> c_int {
        let code = self.last_used() + 1;
        self.added.insert(code, Added { class: class.unwrap_or(code), string: None });
        code
    }

    fn string(&self, code: c_int) -> Option<String> {
        match Class::from_number(code) {
            Some(class) => Some(format!("{}: {}", class.name(), class.sentence())),
            None => self.added.get(&code).map(|added| added.string.clone().unwrap_or_default()),
        }
    }

    /// A class whose codes are gone, or a code, that a user added.
    fn remove(&mut self, code: c_int, is_class: bool) -> bool {
        let in_use = self.added.iter().any(|(&other, added)| added.class == code && other != code);
        let fits = self.added.get(&code).is_some_and(|added| (added.class == code) == is_class);
        fits && !in_use && self.added.remove(&code).is_some()
    }
}

/// The class of any code.
pub(crate) fn class_of(code: c_int) -> c_int {
    books::with(|books| books.codes.class(code)).unwrap_or(ERR_UNKNOWN)
}

pub(crate) fn error_class(code: c_int, class: Out<c_int>) -> Result<(), Failure> {
    class.set(class_of(code));
    Ok(())
}

pub(crate) fn error_string(code: c_int, string: OutText, length: Out<c_int>) -> Result<(), Failure> {
    let text = books::with(|books| books.codes.string(code));
    let text = text.unwrap_or_else(|| format!("there is no error code {code}"));
    length.set(string.set(&text, MAX_ERROR_STRING));
    Ok(())
}

pub(crate) fn add_error_class(class: Out<c_int>) -> Result<(), Failure> {
    class.set(books::with(|books| books.codes.add(None)));
    Ok(())
}

pub(crate) fn add_error_code(class: c_int, code: Out<c_int>) -> Result<(), Failure> {
    let added =
        books::with(|books| (books.codes.class(class) == Some(class)).then(|| books.codes.add(Some(class))));
    code.set(added.ok_or(ArgumentError::ErrorCode)?);
    Ok(())
}

pub(crate) fn add_error_string(code: c_int, string: Text) -> Result<(), Failure> {
    let string = string.copy(MAX_ERROR_STRING as usize - 1);
    set_string(code, Some(string))
}

pub(crate) fn remove_error_string(code: c_int) -> Result<(), Failure> {
    set_string(code, None)
}

fn set_string(code: c_int, string: Option<String>) -> Result<(), Failure> {
    let set = |added: &mut Added| added.string = string;
    books::with(|books| books.codes.added.get_mut(&code).map(set))
        .ok_or_else(|| ArgumentError::ErrorCode.into())
}

pub(crate) fn remove_error_class(class: c_int) -> Result<(), Failure> {
    removed(books::with(|books| books.codes.remove(class, true)))
}

pub(crate) fn remove_error_code(code: c_int) -> Result<(), Failure> {
    removed(books::with(|books| books.codes.remove(code, false)))
}

fn removed(removed: bool) -> Result<(), Failure> {
    if removed { Ok(()) } else { Err(ArgumentError::ErrorCode.into()) }
}

pub(crate) fn comm_create_errhandler(function: *const c_void, handler: Out<Handle>) -> Result<(), Failure> {
    if function.is_null() {
        return Err(ArgumentError::NullPointer.into());
    }
    // SAFETY: not null; the user passed a function of this type, as the prototype in mpi.h has it.
    let function = unsafe { core::mem::transmute::<*const c_void, Function>(function) };
    handler.set(books::with(|books| books.handlers.create(function)));
    Ok(())
}

pub(crate) fn errhandler_free(handler: Out<Handle>) -> Result<(), Failure> {
    let named = handler.get();
    books::with(|books| books.handlers.free(named))?;
    handler.set(ERRHANDLER_NULL);
    Ok(())
}

pub(crate) fn comm_set_errhandler(world: &World, comm: Comm, handler: Handle) -> Result<(), Failure> {
    super::communicator::look(world, comm, |_| ())?;
    books::with(|books| {
        let handler = books.handlers.named(handler)?;
        books.handlers.attach(comm.0, handler);
        Ok(())
    })
}

pub(crate) fn comm_get_errhandler(world: &World, comm: Comm, out: Out<Handle>) -> Result<(), Failure> {
    super::communicator::look(world, comm, |_| ())?;
    out.set(books::with(|books| {
        let handler = books.handlers.of_comm(comm.0);
        books.handlers.give(handler)
    }));
    Ok(())
}

/// Success, if the handler comes back (MPI-5.0 §9.3.4).
pub(crate) fn comm_call_errhandler(world: &World, comm: Comm, code: c_int) -> Result<(), Failure> {
    super::communicator::look(world, comm, |_| ())?;
    Err(Failure { returned: crate::generated::constants::SUCCESS, ..Failure::new(code, Why::User) })
}

#[cfg(test)]
mod tests {
    use super::Codes;
    use crate::generated::constants::{ERR_LASTCODE, ERR_RANK};

    #[test]
    fn added_codes_are_above_the_last_predefined_one_and_know_their_class() {
        let mut codes = Codes::default();
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
        let mut codes = Codes::default();
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
        let codes = Codes::default();
        for code in (0..63).chain(101..=103) {
            assert_eq!(codes.class(code), Some(code));
            assert!(codes.string(code).unwrap().starts_with("MPI_"));
        }
        assert_eq!(codes.class(77), None);
    }
}
