// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the bytes of a message mean: the predefined datatypes ([`Datatype`]), a buffer of them ([`TypedBuffer`]) with pack and
//! unpack, and the reduction operations ([`Op`], [`reduce`]).
//!
//! Not here: derived datatypes (they come with their constructors, and change no caller of [`TypedBuffer`]), communication.
//! Read [`TypedBuffer`] first.
#![forbid(unsafe_code)]

mod element;
mod half;
mod op;
mod pack;
mod predefined;
mod reduce;
mod soft;

pub use op::Op;
pub use pack::TypedBuffer;
pub use predefined::Datatype;
pub use reduce::reduce;
