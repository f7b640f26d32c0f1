// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The properties of a communicator: its name, its error handler and its hints. Not the attributes that a program attaches with a key.

use crate::{Detail, Error, ErrorHandler, Hints};
use std::borrow::Cow;

/// The properties of one communicator.
#[derive(Default, Debug)]
pub(crate) struct Properties {
    /// Bytes as the program gave them; the encoding is not known.
    name: Cow<'static, [u8]>,
    error_handler: ErrorHandler,
    hints: Hints,
}

impl Properties {
    /// The properties of a predefined communicator with this name.
    pub fn predefined(name: &'static str) -> Self {
        Properties { name: Cow::Borrowed(name.as_bytes()), ..Properties::default() }
    }

    /// The properties of a communicator that is created from this one: it inherits the error handler (MPI-5.0 §9.3.1), and has no
    /// name (§7.8). Its hints depend on the call.
    pub fn inherited(&self, hints: Hints) -> Self {
        Properties { name: Cow::default(), error_handler: self.error_handler.clone(), hints }
    }

    /// The name that was set last; else the name of a predefined communicator, or an empty name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Sets the name. `Err`: there is no memory for it, and the name is unchanged.
    pub fn set_name(&mut self, name: &[u8]) -> Result<(), Error> {
        let mut copy = Vec::new();
        copy.try_reserve_exact(name.len()).map_err(|_| Error::of(Detail::NoMemory))?;
        copy.extend_from_slice(name);
        self.name = Cow::Owned(copy);
        Ok(())
    }

    /// The error handler.
    pub fn error_handler(&self) -> &ErrorHandler {
        &self.error_handler
    }

    /// Sets the error handler.
    pub fn set_error_handler(&mut self, error_handler: ErrorHandler) {
        self.error_handler = error_handler;
    }

    /// The hints.
    pub fn hints(&self) -> Hints {
        self.hints
    }

    /// Sets the hints.
    pub fn set_hints(&mut self, hints: Hints) {
        self.hints = hints;
    }
}
