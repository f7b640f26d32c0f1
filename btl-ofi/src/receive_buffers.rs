// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Buffers that receive the frames of all peers, each of them several frames.

use crate::family::GivenBack;
use crate::memory::Memory;
use crate::receive_blocks::Blocks;
use mend_ffi_ofi::{Code, Completion, Device, Endpoint};

pub use crate::receive_blocks::COUNT;

/// The buffers of one rail.
#[derive(Debug)]
pub struct ReceiveBuffers {
    blocks: Blocks,
    /// The length of each, in bytes.
    bytes: usize,
    /// The device that writes to them.
    device: Device,
}

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
            self.blocks.forget();
        }
    }
}

impl ReceiveBuffers {
    /// Allocates the buffers; none is posted yet.
    pub fn new(device: &Device, frame_bytes_max: usize) -> Result<Self, Code> {
        let most = BYTES_MAX.max(frame_bytes_max * FRAMES_PER_BUFFER_MIN);
        let bytes = (frame_bytes_max * FRAMES_PER_BUFFER).clamp(BYTES_MIN, most);
        let blocks = (0..COUNT).map(|_| make(bytes, device)).collect::<Result<_, Code>>()?;
        let given_back = GivenBack::of(&device.info().provider());
        Ok(ReceiveBuffers { blocks: Blocks::new(blocks, given_back), bytes, device: device.clone() })
    }

    /// Posts the buffers that were given back. The token of a buffer is its number. An error leaves them for the next call, as does a lack of
    /// memory.
    pub fn post(&mut self, endpoint: &Endpoint) -> Result<(), Code> {
        let (bytes, device) = (self.bytes, &self.device);
        let post = |number, memory: &Memory| {
            // SAFETY: the block lives until the endpoint is closed (the order of fields of `Rail`). Nobody accesses it before a completion
            // reports a frame. It is complete, so the provider does not access it any more. Frames of an earlier block of this buffer may
            // still come with its token. Such providers hold no state in the token's memory, and the address tells the blocks apart.
            unsafe { endpoint.receive(memory.at(0), memory.len(), memory.descriptor(OWN_RAIL), true, number) }
        };
        self.blocks.post(|| make(bytes, device).ok(), post)
    }

    /// Whether buffers are to be posted.
    pub fn has_returned(&self) -> bool {
        self.blocks.has_returned()
    }

    /// Whether no buffer can be posted before the device is opened again.
    pub fn is_starved(&self) -> bool {
        self.blocks.is_starved()
    }

    // Hot: per message.
    /// A buffer has a completion.
    pub fn on_completion(&mut self, number: u32, completion: &Completion) {
        self.blocks.on_completion(number, completion);
    }

    /// The provider has given a buffer back with an error.
    pub fn on_given_back_with_error(&mut self, number: u32) {
        self.blocks.on_given_back_with_error(number);
    }

    /// A buffer has failed and was not given back. Returns whether all are in this state.
    pub fn on_failed(&mut self, number: u32) -> bool {
        self.blocks.on_failed(number)
    }

    // Hot: per message.
    /// The frame of `bytes` bytes that a completion reported at `address`; `None`: that is not inside a block.
    pub fn frame(&self, number: u32, address: usize, bytes: usize) -> Option<&[u8]> {
        self.blocks.frame(number, address, bytes)
    }
}

fn make(bytes: usize, device: &Device) -> Result<Memory, Code> {
    let no_memory = Code(mend_ffi_ofi::bindings::FI_ENOMEM as i32);
    let mut memory = Memory::new(bytes).ok_or(no_memory)?;
    memory.register(OWN_RAIL, device)?;
    Ok(memory)
}
