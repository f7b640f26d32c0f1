// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Info objects (MPI-5.0 chapter 10), which are allowed at any time (§11.4.1). The calls check lengths of keys and values.

use crate::argument_error::ArgumentError;
use crate::call_error::CallError;
use crate::generated::constants::{INFO_NULL, MAX_INFO_KEY, MAX_INFO_VAL};
use crate::handle::Handle;
use crate::info::{self, Info};
use crate::pointer::{Array, Out, OutText, Text};
use core::ffi::{c_char, c_int};

/// Gives the program a handle of an info object.
pub(super) fn give(made: Info, out: Out<Handle>) -> Result<(), CallError> {
    out.set(INFO_NULL);
    out.set(info::insert(made)?);
    Ok(())
}

/// The bytes of a key. `MPI_MAX_INFO_KEY` counts the zero at the end.
fn key_bytes(key: Text) -> Result<Vec<u8>, CallError> {
    let key = key.bytes(MAX_INFO_KEY as usize);
    if key.is_empty() || key.len() >= MAX_INFO_KEY as usize {
        Err(ArgumentError::InfoKey.into())
    } else {
        Ok(key)
    }
}

/// The bytes of a value, which may be empty. `MPI_MAX_INFO_VAL` counts the zero at the end.
fn value_bytes(value: Text) -> Result<Vec<u8>, CallError> {
    let value = value.bytes(MAX_INFO_VAL as usize);
    if value.len() >= MAX_INFO_VAL as usize { Err(ArgumentError::InfoValue.into()) } else { Ok(value) }
}

/// A copy of the value of a key.
fn value_of(handle: Handle, key: Text) -> Result<Option<Vec<u8>>, CallError> {
    let key = key_bytes(key)?;
    Ok(info::read(handle, |info| info.get(&key).map(<[u8]>::to_vec))?)
}

fn buffer_length(length: c_int) -> Result<usize, CallError> {
    usize::try_from(length).map_err(|_| ArgumentError::BufferLength.into())
}

pub(crate) fn create(out: Out<Handle>) -> Result<(), CallError> {
    give(Info::default(), out)
}

/// A null `argv` is allowed with any `argc`, as for MPI_Init.
pub(crate) fn create_env(argc: c_int, argv: *mut *mut c_char, out: Out<Handle>) -> Result<(), CallError> {
    let count = if argv.is_null() { 0 } else { usize::try_from(argc).unwrap_or(0) };
    let arguments = Array::new(argv.cast_const()).copy(count)?;
    let bytes = arguments.into_iter().map(|argument| Ok(Text::new(argument)?.bytes(usize::MAX)));
    let arguments: Vec<Vec<u8>> = bytes.collect::<Result<_, CallError>>()?;
    give(info::of_arguments(&arguments), out)
}

pub(crate) fn dup(handle: Handle, out: Out<Handle>) -> Result<(), CallError> {
    give(info::read(handle, Info::try_clone)??, out)
}

pub(crate) fn free(handle: Out<Handle>) -> Result<(), CallError> {
    info::free(handle.get())?;
    handle.set(INFO_NULL);
    Ok(())
}

pub(crate) fn set(handle: Handle, key: Text, value: Text) -> Result<(), CallError> {
    let (key, value) = (key_bytes(key)?, value_bytes(value)?);
    Ok(info::change(handle, |info| info.set(&key, &value))??)
}

pub(crate) fn delete(handle: Handle, key: Text) -> Result<(), CallError> {
    let key = key_bytes(key)?;
    Ok(info::change(handle, |info| info.remove(&key))?.ok_or(ArgumentError::InfoNoKey)?)
}

pub(crate) fn get_nkeys(handle: Handle, count: Out<c_int>) -> Result<(), CallError> {
    count.set(info::read(handle, Info::len)? as c_int);
    Ok(())
}

pub(crate) fn get_nthkey(handle: Handle, n: c_int, key: OutText) -> Result<(), CallError> {
    let nth = |info: &Info| Some(info.pairs().nth(usize::try_from(n).ok()?)?.0.to_vec());
    key.set_bytes(&info::read(handle, nth)?.ok_or(ArgumentError::InfoIndex)?);
    Ok(())
}

/// A length of 0 asks for the length alone; the buffer may be null then.
pub(crate) fn get_string(
    handle: Handle,
    key: Text,
    length: Out<c_int>,
    buffer: *mut c_char,
    flag: Out<c_int>,
) -> Result<(), CallError> {
    flag.set(0);
    let room = buffer_length(length.get())?;
    let Some(value) = value_of(handle, key)? else { return Ok(()) };
    if room > 0 {
        OutText::new(buffer)?.set_bytes(&value[..value.len().min(room - 1)]);
    }
    length.set(value.len() as c_int + 1);
    flag.set(1);
    Ok(())
}

/// Deprecated: its length does not count the zero.
pub(crate) fn get(
    handle: Handle,
    key: Text,
    length: c_int,
    buffer: OutText,
    flag: Out<c_int>,
) -> Result<(), CallError> {
    flag.set(0);
    let room = buffer_length(length)?;
    let Some(value) = value_of(handle, key)? else { return Ok(()) };
    buffer.set_bytes(&value[..value.len().min(room)]);
    flag.set(1);
    Ok(())
}

/// Deprecated.
pub(crate) fn get_valuelen(
    handle: Handle,
    key: Text,
    length: Out<c_int>,
    flag: Out<c_int>,
) -> Result<(), CallError> {
    flag.set(0);
    let Some(value) = value_of(handle, key)? else { return Ok(()) };
    length.set(value.len() as c_int);
    flag.set(1);
    Ok(())
}
