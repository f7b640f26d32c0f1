// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Buffers for frames that are sent: of two sizes, in blocks that grow with use.
//!
//! A buffer has several holders: the class, until the frame is acknowledged, and each operation of the device that sends it. It is free when
//! the last one has released it.

use crate::memory::Memory;
use core::ffi::c_void;
use mend_ffi_ofi::{Code, Device, Registration};

/// A buffer: the class in the highest bit, and its number there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct BufferKey(pub u32);

/// All buffers, usable with every rail.
#[derive(Debug)]
pub struct SendBuffers {
    classes: [Class; 2],
    /// By rail.
    devices: Vec<Device>,
    /// An endpoint of an earlier device could not be closed, so it may read the buffers for ever.
    is_lent: bool,
}

/// The registrations of all blocks with one device, in the order of the blocks.
#[derive(Debug)]
pub struct Prepared(Vec<Option<Registration>>);

impl Drop for SendBuffers {
    fn drop(&mut self) {
        if self.is_lent || !self.devices.iter().all(Device::is_silent) {
            for class in &mut self.classes {
                core::mem::forget(core::mem::take(&mut class.blocks));
            }
        }
    }
}

#[derive(Debug)]
struct Class {
    bytes: usize,
    blocks: Vec<Memory>,
    /// By number: how many hold the buffer.
    holders: Vec<u16>,
    free: Vec<u32>,
}

/// The size of small frames, in bytes: most control messages and small data.
const SMALL_BYTES: usize = 256;

/// Buffers of a block.
const BUFFERS_PER_BLOCK: usize = 32;

const CLASS_BIT: u32 = 1 << 31;

impl SendBuffers {
    /// No buffers yet; the longest frame has `frame_bytes_max` bytes.
    pub fn new(frame_bytes_max: usize) -> Self {
        let class = |bytes| Class { bytes, blocks: Vec::new(), holders: Vec::new(), free: Vec::new() };
        SendBuffers {
            classes: [class(SMALL_BYTES), class(frame_bytes_max)],
            devices: Vec::new(),
            is_lent: false,
        }
    }

    /// Registers all blocks with a new device, or none.
    pub fn prepare(&self, device: &Device) -> Result<Prepared, Code> {
        let blocks = self.classes.iter().flat_map(|class| &class.blocks);
        Ok(Prepared(blocks.map(|block| block.registration(device)).collect::<Result<_, Code>>()?))
    }

    /// The device of a rail, the next one or a new one for this rail, with which the blocks were [prepared](SendBuffers::prepare). Returns the
    /// registrations with the device before: they are dropped after its endpoints, whose sends may be reading the blocks.
    pub fn set_device(&mut self, rail: usize, device: &Device, prepared: Prepared) -> Prepared {
        match self.devices.get_mut(rail) {
            Some(old) => *old = device.clone(),
            None => self.devices.push(device.clone()),
        }
        let blocks = self.classes.iter_mut().flat_map(|class| &mut class.blocks);
        Prepared(blocks.zip(prepared.0).map(|(block, new)| block.set_registration(rail, new)).collect())
    }

    /// A device that was replaced may read the buffers for ever: their memory is never freed.
    pub fn keep_lent(&mut self) {
        self.is_lent = true;
    }

    fn class(&self, key: BufferKey) -> (&Class, usize) {
        let class = &self.classes[usize::from(key.0 & CLASS_BIT != 0)];
        (class, (key.0 & !CLASS_BIT) as usize)
    }

    fn class_mut(&mut self, key: BufferKey) -> (&mut Class, usize) {
        let class = &mut self.classes[usize::from(key.0 & CLASS_BIT != 0)];
        (class, (key.0 & !CLASS_BIT) as usize)
    }

    // Hot: per message.
    /// A buffer for a frame of `bytes` bytes, with one holder.
    pub fn take(&mut self, bytes: usize) -> Result<BufferKey, Code> {
        let large = bytes > SMALL_BYTES;
        let class = &mut self.classes[usize::from(large)];
        if class.free.is_empty() {
            class.grow(&self.devices)?;
        }
        let number = class.free.pop().ok_or(Code(mend_ffi_ofi::bindings::FI_ENOMEM as i32))?;
        class.holders[number as usize] = 1;
        Ok(BufferKey(number | if large { CLASS_BIT } else { 0 }))
    }

    // Hot: per message.
    /// Another operation holds the buffer.
    pub fn hold(&mut self, key: BufferKey) {
        let (class, number) = self.class_mut(key);
        class.holders[number] += 1;
    }

    // Hot: per message.
    /// A holder does not need the buffer any more.
    pub fn release(&mut self, key: BufferKey) {
        let (class, number) = self.class_mut(key);
        class.holders[number] -= 1;
        if class.holders[number] == 0 {
            class.free.push(number as u32);
        }
    }

    // Hot: per message.
    /// Whether the class alone holds the buffer, so that the device does not read it now.
    pub fn is_idle(&self, key: BufferKey) -> bool {
        let (class, number) = self.class(key);
        class.holders[number] == 1
    }

    // Hot: per message.
    /// The first `bytes` bytes, to write to: before the frame is posted, or while it [`is_idle`](SendBuffers::is_idle).
    pub fn bytes_mut(&mut self, key: BufferKey, bytes: usize) -> &mut [u8] {
        let (class, number) = self.class_mut(key);
        let offset = number % BUFFERS_PER_BLOCK * class.bytes;
        class.blocks[number / BUFFERS_PER_BLOCK].bytes_mut(offset, bytes)
    }

    // Hot: per message.
    /// The first `bytes` bytes.
    pub fn bytes(&self, key: BufferKey, bytes: usize) -> &[u8] {
        let (class, number) = self.class(key);
        class.blocks[number / BUFFERS_PER_BLOCK].bytes(number % BUFFERS_PER_BLOCK * class.bytes, bytes)
    }

    // Hot: per message.
    /// What the device of a rail names the buffer by.
    pub fn descriptor(&self, key: BufferKey, rail: usize) -> *mut c_void {
        let (class, number) = self.class(key);
        class.blocks[number / BUFFERS_PER_BLOCK].descriptor(rail)
    }
}

impl Class {
    #[cold]
    fn grow(&mut self, devices: &[Device]) -> Result<(), Code> {
        let no_memory = Code(mend_ffi_ofi::bindings::FI_ENOMEM as i32);
        let mut block = Memory::new(self.bytes * BUFFERS_PER_BLOCK).ok_or(no_memory)?;
        for (rail, device) in devices.iter().enumerate() {
            block.register(rail, device)?;
        }
        let first = self.holders.len() as u32;
        self.blocks.push(block);
        self.holders.resize(self.holders.len() + BUFFERS_PER_BLOCK, 0);
        self.free.extend((first..first + BUFFERS_PER_BLOCK as u32).rev());
        Ok(())
    }
}
