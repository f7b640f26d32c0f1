// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading the completion queue.

use crate::bindings as fi;
use crate::device::Opened;
use crate::error::Code;
use core::ffi::c_void;
use core::ptr;

/// How an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The token of the operation; `None`: the provider named none, or one that is not ours.
    pub token: Option<u32>,
    /// Bits such as `FI_RECV` and `FI_MULTI_RECV`.
    pub flags: u64,
    /// The length of a message that was received, in bytes.
    pub bytes: usize,
    /// The address at which a message lies that was received into a buffer for several.
    pub address: usize,
}

impl Completion {
    /// None.
    pub const EMPTY: Completion = Completion { token: None, flags: 0, bytes: 0, address: 0 };

    /// Whether a message was received.
    pub fn is_message(&self) -> bool {
        self.flags & u64::from(fi::FI_RECV) != 0
    }

    /// Whether the provider has given the buffer for several messages back.
    pub fn releases_buffer(&self) -> bool {
        self.flags & u64::from(fi::FI_MULTI_RECV) != 0
    }
}

/// How an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorCompletion {
    /// The token of the operation; `None`: the provider named none, or one that is not ours.
    pub token: Option<u32>,
    /// Bits as in [`Completion::flags`].
    pub flags: u64,
    /// Why.
    pub code: Code,
    /// The code of the provider, which only its documentation explains.
    pub provider_code: i32,
}

/// Why no completion was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadError {
    /// The next completion is one with an error: [`Device::read_error`](crate::Device::read_error).
    Failed,
    /// The queue itself is broken: it has overrun, or the device has failed.
    Broken(Code),
}

/// Most completions that one call reads.
const BATCH: usize = 16;

pub(crate) fn read(opened: &Opened, out: &mut [Completion]) -> Result<usize, ReadError> {
    // SAFETY: an open completion queue.
    let queue = unsafe { &*opened.completions };
    // SAFETY: the table of functions lives as long as the object.
    let ops = unsafe { queue.ops.as_ref() };
    let read = ops.and_then(|ops| ops.read).ok_or(ReadError::Broken(Code::NO_FUNCTION))?;
    const NOTHING: fi::fi_cq_data_entry =
        fi::fi_cq_data_entry { op_context: ptr::null_mut(), flags: 0, len: 0, buf: ptr::null_mut(), data: 0 };
    let mut entries = [NOTHING; BATCH];
    let count = out.len().min(BATCH);
    // SAFETY: an open queue whose entries have this format, and an array of at least `count` of them.
    let result = unsafe { read(opened.completions, entries.as_mut_ptr().cast::<c_void>(), count) };
    match result {
        0.. => {}
        code if code == -(fi::FI_EAGAIN as isize) => return Ok(0),
        code if code == -(fi::FI_EAVAIL as isize) => return Err(ReadError::Failed),
        code => return Err(ReadError::Broken(Code(i32::try_from(-code).unwrap_or(i32::MAX)))),
    }
    // No more than asked for, whatever a broken provider answers.
    let read = usize::try_from(result).unwrap_or(0).min(count);
    for (entry, completion) in entries[..read].iter().zip(out) {
        *completion = Completion {
            token: opened.token(entry.op_context),
            flags: entry.flags,
            bytes: entry.len,
            address: entry.buf.addr(),
        };
    }
    Ok(read)
}

pub(crate) fn read_error(opened: &Opened) -> Result<Option<ErrorCompletion>, Code> {
    // SAFETY: an open completion queue.
    let queue = unsafe { &*opened.completions };
    // SAFETY: the table of functions lives as long as the object.
    let read = unsafe { queue.ops.as_ref() }.and_then(|ops| ops.readerr).ok_or(Code::NO_FUNCTION)?;
    // SAFETY: all fields are numbers and pointers, for which zero is "none": the provider keeps its error data.
    let mut entry: fi::fi_cq_err_entry = unsafe { core::mem::zeroed() };
    // SAFETY: an open queue and a writable entry.
    let result = unsafe { read(opened.completions, &mut entry, 0) };
    match result {
        0 => return Ok(None),
        code if code == -(fi::FI_EAGAIN as isize) => return Ok(None),
        code => Code::check(code as i64)?,
    }
    Ok(Some(ErrorCompletion {
        token: opened.token(entry.op_context),
        flags: entry.flags,
        code: Code(entry.err),
        provider_code: entry.prov_errno,
    }))
}
