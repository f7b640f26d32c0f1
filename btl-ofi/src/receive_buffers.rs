// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Buffers that receive the frames of all peers, each of them several frames.

use crate::memory::Memory;
use mend_ffi_ofi::{Code, Device, Endpoint};

/// The buffers of one rail.
#[derive(Debug)]
pub struct ReceiveBuffers {
    buffers: Vec<Memory>,
    /// The device that writes to them.
    device: Device,
    /// Buffers that the provider has given back. A buffer is posted again after its last frame was read.
    returned: Vec<u32>,
}

/// How many buffers take turns.
pub const COUNT: u32 = 4;

/// A buffer holds this many of the longest frames, unless these are very long.
const FRAMES_PER_BUFFER: usize = 16;

/// It holds so many in any case.
const FRAMES_PER_BUFFER_MIN: usize = 4;

/// Receive buffers belong to one rail, so they are registered once.
const OWN_RAIL: usize = 0;

/// The shortest buffer, in bytes.
const BYTES_MIN: usize = 64 << 10;

/// The longest buffer, in bytes, where it holds enough frames.
const BYTES_MAX: usize = 512 << 10;

impl Drop for ReceiveBuffers {
    fn drop(&mut self) {
        if !self.device.is_silent() {
            // An endpoint could not be closed, so the device may still write.
            core::mem::forget(core::mem::take(&mut self.buffers));
        }
    }
}

impl ReceiveBuffers {
    /// Allocates the buffers; none is posted yet.
    pub fn new(device: &Device, frame_bytes_max: usize) -> Result<Self, Code> {
        let most = BYTES_MAX.max(frame_bytes_max * FRAMES_PER_BUFFER_MIN);
        let bytes = (frame_bytes_max * FRAMES_PER_BUFFER).clamp(BYTES_MIN, most);
        let make = |_| {
            let no_memory = Code(mend_ffi_ofi::bindings::FI_ENOMEM as i32);
            let mut memory = Memory::new(bytes).ok_or(no_memory)?;
            memory.register(OWN_RAIL, device)?;
            Ok(memory)
        };
        let buffers = (0..COUNT).map(make).collect::<Result<_, Code>>()?;
        Ok(ReceiveBuffers { buffers, device: device.clone(), returned: (0..COUNT).collect() })
    }

    /// Posts the buffers that were given back. The token of a buffer is its number. An error leaves them for the next call.
    pub fn post(&mut self, endpoint: &Endpoint) -> Result<(), Code> {
        while let Some(&number) = self.returned.last() {
            let buffer = &self.buffers[number as usize];
            // SAFETY: the buffer lives until the endpoint is closed (the order of fields of `Rail`). Nobody accesses it before a
            // completion reports a frame. It was given back, so no operation has its token.
            unsafe {
                endpoint.receive(buffer.at(0), buffer.len(), buffer.descriptor(OWN_RAIL), true, number)
            }?;
            self.returned.pop();
        }
        Ok(())
    }

    /// Whether buffers are to be posted.
    pub fn has_returned(&self) -> bool {
        !self.returned.is_empty()
    }

    /// The provider has given a buffer back.
    pub fn on_returned(&mut self, number: u32) {
        self.returned.push(number);
    }

    // Hot: per message.
    /// The frame of `bytes` bytes that a completion reported at `address`; `None`: that is not inside the buffer.
    pub fn frame(&self, number: u32, address: usize, bytes: usize) -> Option<&[u8]> {
        let buffer = self.buffers.get(number as usize)?;
        let offset = address.checked_sub(buffer.at(0).addr())?;
        let inside = offset <= buffer.len() && bytes <= buffer.len() - offset;
        inside.then(|| buffer.bytes(offset, bytes))
    }
}
