// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program attaches to a communicator: a name, and an error handler.

use crate::{Detail, Error, ErrorHandler};
use std::borrow::Cow;

/// The attributes of one communicator.
#[derive(Default, Debug)]
pub(crate) struct Attributes {
    /// In whatever encoding.
    name: Cow<'static, [u8]>,
    error_handler: ErrorHandler,
}

impl Attributes {
    /// Of a predefined communicator.
    pub fn predefined(name: &'static str) -> Self {
        Attributes { name: Cow::Borrowed(name.as_bytes()), error_handler: ErrorHandler::default() }
    }

    /// Of a communicator that is made from this one: it gets the error handler (MPI-5.0 §9.3.1), and no name (§7.8).
    pub fn inherited(&self) -> Self {
        Attributes { name: Cow::default(), error_handler: self.error_handler.clone() }
    }

    /// The name that was set last; that of a predefined communicator, or none.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Sets the name, unless it needs memory and there is none.
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
}
