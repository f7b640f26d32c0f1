// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A rail: one device with its endpoints, buffers and outstanding operations.
//!
//! It has two endpoints. Messages and accesses of peers go through the first, whose address peers know. Transfers that this process begins go
//! through the second, which nobody needs to know: it can be closed and opened again, which is the one way to make sure that no outstanding
//! read writes a buffer any more (I7). Reads of other peers that were outstanding are begun again.

use crate::classify::{Class, classify};
use crate::frame::FrameHeader;
use crate::operations::{Operation, Operations, TOKENS};
use crate::receive_buffers::ReceiveBuffers;
use crate::send_buffers::{BufferKey, SendBuffers};
use core::ffi::c_void;
use mend_ffi_ofi::{
    Address, Code, Completion, Device, Endpoint, ErrorCompletion, Info, Options, ReadError, Target,
};
use std::collections::VecDeque;

/// A rail.
#[derive(Debug)]
pub struct Rail {
    // The order of the fields is the order in which they are dropped: endpoints before the memory that they use.
    endpoint: Endpoint,
    transfers: Option<Endpoint>,
    receive: ReceiveBuffers,
    pub(crate) operations: Operations,
    device: Device,
    frame_bytes_max: usize,
    inject_bytes_max: usize,
    /// What was read from the completion queue and not handled yet, in order.
    events: VecDeque<Event>,
    /// Memory for a batch of completions.
    batch: [Completion; BATCH],
    /// The first fault of this process in posting receive buffers, and whether it was reported.
    receive_fault: Option<(Code, bool)>,
    /// The device is not called but to be closed.
    pub(crate) is_unsound: bool,
    /// The device is broken, and is to be opened again.
    pub(crate) broken: Option<Code>,
}

/// How many completions are read at once.
const BATCH: usize = 16;

impl Rail {
    /// Opens the device that `info` describes, for frames of at most `frame_bytes_max` bytes; `name`: at this address.
    pub fn open(info: Info, name: Option<&[u8]>, frame_bytes_max: usize) -> Result<Rail, Code> {
        let device = open_device(info)?;
        let endpoint = match name {
            None => Endpoint::open(&device, frame_bytes_max)?,
            Some(name) => Endpoint::open_at(&device, name, frame_bytes_max)?,
        };
        let mut receive = ReceiveBuffers::new(&device, frame_bytes_max)?;
        // Buffers for which there was no room are posted by progress.
        if let Err(code) = receive.post(&endpoint)
            && classify(code) != Class::Again
        {
            // Before the buffers, some of which it may have.
            drop(endpoint);
            return Err(code);
        }
        let inject_bytes_max = device.info().inject_bytes_max();
        Ok(Rail {
            endpoint,
            transfers: None,
            receive,
            operations: Operations::new(),
            device,
            frame_bytes_max,
            inject_bytes_max,
            events: VecDeque::with_capacity(BATCH),
            batch: [Completion::EMPTY; BATCH],
            receive_fault: None,
            is_unsound: false,
            broken: None,
        })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The address at which peers reach this rail.
    pub fn name(&self) -> Result<Vec<u8>, Code> {
        self.endpoint.name()
    }

    /// Adds a peer's address.
    pub fn insert(&self, name: &[u8]) -> Result<Address, Code> {
        self.endpoint.insert(name)
    }

    /// Removes a peer's address.
    pub fn remove(&self, address: Address) {
        // An error means that the provider keeps the entry: some bytes, until the device closes.
        let _ = self.endpoint.remove(address);
    }

    /// Whether receive buffers that were given back are still to be posted.
    pub fn lacks_receives(&self) -> bool {
        self.receive.has_returned()
    }

    /// Posts receive buffers that were given back.
    pub fn post_receives(&mut self) {
        if self.receive.has_returned()
            && let Err(code) = self.receive.post(&self.endpoint)
        {
            self.on_receive_error(code);
        }
    }

    /// A receive buffer was not posted, or came back with an error; it is posted again in any case.
    pub fn on_receive_error(&mut self, code: Code) {
        match classify(code) {
            Class::Device => self.broken = Some(code),
            Class::LocalFault => _ = self.receive_fault.get_or_insert((code, false)),
            Class::Again | Class::Consequence | Class::Hint => {}
        }
    }

    /// A fault in posting receive buffers that is to be reported: once for each device, since it may come with each call.
    pub fn new_receive_fault(&mut self) -> Option<Code> {
        let (code, is_reported) = self.receive_fault.as_mut()?;
        (!core::mem::replace(is_reported, true)).then_some(*code)
    }

    // Hot: per message.
    /// Posts a frame. Frames that the device copies at once have no operation.
    pub fn send(
        &mut self,
        buffers: &mut SendBuffers,
        rail: usize,
        frame: (BufferKey, usize),
        to: Address,
        operation: Operation,
    ) -> Result<(), Code> {
        let (buffer, bytes) = frame;
        self.check_sound()?;
        if bytes <= self.inject_bytes_max {
            return self.endpoint.inject(buffers.bytes(buffer, bytes), to);
        }
        let token = self.operations.begin(operation).ok_or(Code::AGAIN)?;
        let start = buffers.bytes(buffer, bytes).as_ptr();
        let descriptor = buffers.descriptor(buffer, rail);
        // SAFETY: the buffer is held until its operation has ended (below), and the send buffers outlive the rails (the order of the fields
        // of `Ofi`). Nobody writes it while it is not idle. The token is of no other operation.
        let answer = unsafe { self.endpoint.send(start, bytes, descriptor, to, token) };
        match answer {
            Ok(()) => buffers.hold(buffer),
            Err(_) => _ = self.operations.end(token),
        }
        answer
    }

    // Hot: per message.
    fn check_sound(&self) -> Result<(), Code> {
        if self.is_unsound { Err(Code::AGAIN) } else { Ok(()) }
    }

    /// Sends a few bytes without a buffer, such as an answer.
    pub fn inject(&self, frame: &[u8], to: Address) -> Result<(), Code> {
        self.check_sound()?;
        self.endpoint.inject(frame, to)
    }

    /// Begins to read a peer's memory into `bytes` bytes at `start`.
    ///
    /// # Safety
    /// The range stays writable, and nobody else accesses it, until the operation has ended or the transfers were closed
    /// ([`close_transfers`](Rail::close_transfers)).
    pub unsafe fn read(
        &mut self,
        start: *mut u8,
        bytes: usize,
        descriptor: *mut c_void,
        from: Target,
        operation: Operation,
    ) -> Result<(), Code> {
        self.check_sound()?;
        if self.transfers.is_none() {
            self.transfers = Some(Endpoint::open(&self.device, self.frame_bytes_max)?);
        }
        let endpoint = self.transfers.as_ref().ok_or(Code::AGAIN)?;
        let token = self.operations.begin(operation).ok_or(Code::AGAIN)?;
        // SAFETY: the caller vouches for the range; the token is of no other operation.
        let answer = unsafe { endpoint.read(start, bytes, descriptor, from, token) };
        if answer.is_err() {
            self.operations.end(token);
        }
        answer
    }

    /// Closes the endpoint of transfers: from now on no outstanding transfer accesses memory of this process. After an error their memory stays
    /// lent until each has a completion.
    pub fn close_transfers(&mut self) -> Result<(), Code> {
        let closed = self.transfers.take().map_or(Ok(()), Endpoint::close);
        if closed.is_err() {
            self.operations.keep_transfers();
        }
        closed
    }

    /// After [`close_transfers`](Rail::close_transfers): the transfers that were outstanding, which have no completion any more.
    ///
    /// Some providers end them with errors meanwhile, and others may have ended just before. These completions are dropped before the
    /// tokens are free: a token that is used again must not end with the completion of its earlier operation.
    pub fn end_transfers(&mut self) -> Vec<Operation> {
        for _ in 0..TOKENS {
            let count = self.events.len();
            self.fill();
            let is_empty = self.events.len() == count;
            let operations = &self.operations;
            self.events.retain(|event| !event.token().is_some_and(|token| operations.is_transfer(token)));
            if is_empty {
                break;
            }
        }
        self.operations.end_all(|operation| matches!(operation, Operation::Transfer { .. }))
    }

    /// Closes all endpoints. Returns the operations that were outstanding, by whether their memory is silent: frames and transfers have an
    /// endpoint each, of which one may not close.
    pub fn close(self) -> Closed {
        let Rail { endpoint, transfers, mut operations, receive, .. } = self;
        let frames_closed = endpoint.close();
        let transfers_closed = transfers.map_or(Ok(()), Endpoint::close);
        // After the endpoint.
        drop(receive);
        if transfers_closed.is_err() {
            operations.keep_transfers();
        }
        let is_silent = |operation: &Operation| match operation {
            Operation::Frame { .. } => frames_closed.is_ok(),
            Operation::Transfer { .. } => true,
            Operation::Unclosed { .. } => false,
        };
        let error = frames_closed.err().or(transfers_closed.err());
        Closed { silent: operations.end_all(is_silent), error }
    }

    // Hot: per message.
    /// The next completion that was read. An error completion is [`Event::Failed`].
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Reads a batch of completions, if none is left, without handling it.
    pub fn look(&mut self) {
        if self.events.is_empty() {
            self.fill();
        }
    }

    // Hot: per call of progress.
    /// Reads a batch of completions, or one error completion. Returns whether there may be more.
    pub fn fill(&mut self) -> bool {
        if self.broken.is_some() || self.is_unsound {
            return false;
        }
        match self.device.read(&mut self.batch) {
            Ok(count) => {
                self.events.extend(self.batch[..count].iter().copied().map(Event::Completed));
                count == BATCH
            }
            Err(ReadError::Failed) => {
                let failure = self.read_failure();
                self.events.extend(failure);
                failure.is_some()
            }
            Err(ReadError::Broken(code)) => {
                self.on_queue_error(code);
                false
            }
        }
    }

    fn read_failure(&mut self) -> Option<Event> {
        match self.device.read_error() {
            Ok(failure) => failure.map(Event::Failed),
            Err(code) => {
                self.on_queue_error(code);
                None
            }
        }
    }

    /// A call of the completion queue failed. A lack of memory may pass; with any other error no completion comes any more.
    fn on_queue_error(&mut self, code: Code) {
        if classify(code) != Class::Again {
            self.broken = Some(code);
        }
    }

    /// What was read and not handled.
    pub fn unhandled(&self) -> &VecDeque<Event> {
        &self.events
    }

    /// Whether a frame with this tag was read and not handled.
    pub fn has_unhandled_of(&self, tag: u64) -> bool {
        let frames = self.events.iter().filter_map(|event| match event {
            Event::Completed(completion) => self.frame(completion),
            Event::Failed(_) => None,
        });
        frames.into_iter().any(|frame| FrameHeader::tag_of(frame) == Some(tag))
    }

    // Hot: per message.
    /// The frame that a completion of a receive buffer reported.
    pub fn frame(&self, completion: &Completion) -> Option<&[u8]> {
        let token = completion.token?;
        if completion.is_message() {
            self.receive.frame(token, completion.address, completion.bytes)
        } else {
            None
        }
    }

    /// A frame in a receive buffer failed, or the buffer itself, and it was not given back. Without buffers nothing arrives any more.
    pub fn on_lost(&mut self, token: u32, code: Code) {
        if self.receive.on_failed(token) {
            self.broken = Some(code);
        }
    }

    /// Whether opening the device again is the one way to receive more: too many frames were cut short, or are half received.
    pub fn is_starved(&self) -> bool {
        self.receive.is_starved()
    }

    /// The longest frame.
    pub fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    // Hot: per message.
    /// A receive buffer has a completion. If that gives it back, it is posted again in the next call of progress, after its frame was read.
    pub fn on_receive_completion(&mut self, token: u32, completion: &Completion) {
        self.receive.on_completion(token, completion);
    }

    /// A receive buffer was given back with an error.
    pub fn on_returned_with_error(&mut self, token: u32) {
        self.receive.on_given_back_with_error(token);
    }
}

/// What is left of a rail whose endpoints were closed.
#[derive(Debug)]
pub struct Closed {
    /// The operations that access no memory any more.
    pub(crate) silent: Vec<Operation>,
    /// An endpoint could not be closed: the memory of the other operations stays lent.
    pub(crate) error: Option<Code>,
}

/// What the completion queue reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// An operation succeeded.
    Completed(Completion),
    /// An operation failed.
    Failed(ErrorCompletion),
}

impl Event {
    fn token(&self) -> Option<u32> {
        match self {
            Event::Completed(completion) => completion.token,
            Event::Failed(failure) => failure.token,
        }
    }
}

/// Opens a device, with a descriptor to sleep on where the provider has one.
fn open_device(info: Info) -> Result<Device, Code> {
    let again = info.try_clone();
    let with = |wait_descriptor| Options { tokens: TOKENS, wait_descriptor };
    // The descriptor of this provider, of 1.17 only, stays readable for ever after the first connection of a peer.
    if info.provider() == "net" {
        return Device::open(info, with(false));
    }
    match Device::open(info, with(true)) {
        Ok(device) => Ok(device),
        // `sockets` and `shm` have none.
        Err(error) => Device::open(again.ok_or(error)?, with(false)),
    }
}
