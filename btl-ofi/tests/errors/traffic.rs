// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages both ways, a stream, gets, puts, atomic operations, and memory that is exposed again and again: everything must come or end once.

use super::pair::{End, Pair};
use mend_base::PeerIndex;
use mend_transport::conformance::Callback;
use mend_transport::{
    AmId, Atomic, Btl, Buffer, Cookie, Exposure, MessageClass, Rdma, Region, Remote, RemoteAccess, SendError,
    Span, Stream, UserMemory,
};
use std::sync::Arc;

/// So many that receive buffers are used up, and posted again.
const DATA: u32 = 64;
const CONTROL: u32 = 8;
/// Control messages have numbers from here on.
const FIRST_CONTROL: u32 = 1_000;
const CHUNKS: u32 = 8;
const CHUNK_BYTES: usize = 2_000;
const OPERATIONS: u64 = 16;
const PART: usize = 2_048;
const STREAM: Stream = Stream(5);
const ID: AmId = AmId(7);

/// What was sent and begun so far.
pub struct Traffic {
    data: [u32; 2],
    control: [u32; 2],
    chunks: [u32; 2],
    /// At the first end: memory of its own, and of the second end, which it accesses.
    own: Memory,
    there: Memory,
    remote: Remote,
    exposure: Exposure,
    /// Cookies of operations, which the first end began.
    begun: Vec<Cookie>,
    /// Cookies of both ends that end an exposure or a region.
    ending: [Vec<Cookie>; 2],
    cookies: u64,
    exposed: u32,
    /// Requests that ended in an error.
    pub failed: Vec<String>,
}

struct Memory {
    buffer: Arc<Buffer>,
    region: Region,
}

impl Memory {
    fn new(end: &mut End, byte: u8) -> Result<Memory, String> {
        let buffer = Buffer::from_bytes(&[byte; 16 * PART]);
        let region = end.btl.register(end.endpoint, &UserMemory::of_buffer(&buffer));
        Ok(Memory { buffer, region: region.map_err(|error| format!("register: {error:?}"))? })
    }

    fn part(&self, part: u64, bytes: usize) -> Span {
        Span { region: self.region, offset: part * PART as u64, bytes: bytes as u64 }
    }
}

impl Traffic {
    /// Exposes the memory of the second end to the first.
    pub fn new(pair: &mut Pair) -> Result<Traffic, String> {
        let own = Memory::new(&mut pair.ends[0], 1)?;
        let there = Memory::new(&mut pair.ends[1], 7)?;
        let end = &mut pair.ends[1];
        let (exposure, key) = end
            .btl
            .expose(end.endpoint, there.part(0, 16 * PART), ALL)
            .map_err(|error| format!("expose: {error:?}"))?;
        let endpoint = pair.ends[0].endpoint;
        let remote = pair.ends[0].btl.import(endpoint, key.as_bytes());
        Ok(Traffic {
            data: [0; 2],
            control: [0; 2],
            chunks: [0; 2],
            own,
            there,
            remote: remote.map_err(|error| format!("import: {error:?}"))?,
            exposure,
            begun: Vec::new(),
            ending: [Vec::new(), Vec::new()],
            cookies: 0,
            exposed: 0,
            failed: Vec::new(),
        })
    }

    fn cookie(&mut self) -> Cookie {
        self.cookies += 1;
        Cookie::new(ID, self.cookies).expect("the cookies of a test have few bits")
    }

    /// Sends and begins what it can now.
    pub fn step(&mut self, pair: &mut Pair) -> Result<(), String> {
        for at in 0..2 {
            self.send(&mut pair.ends[at], at)?;
        }
        if (self.begun.len() as u64) < OPERATIONS {
            self.operate(&mut pair.ends[0])?;
        }
        if self.exposed < self.data[1] / 4 {
            self.exposed += 1;
            self.expose_again(&mut pair.ends[1]);
        }
        Ok(())
    }

    fn send(&mut self, end: &mut End, at: usize) -> Result<(), String> {
        let endpoint = end.endpoint;
        let mut send = |class, number: u32, bytes: usize| {
            let fill = |mut out: mend_transport::PayloadWriter<'_>| out.put(&pattern(number, bytes));
            sent(end.btl.send(endpoint, class, ID, &number.to_le_bytes(), bytes, fill))
        };
        if self.data[at] < DATA {
            // Some are copied by the provider at once, and some are not.
            let bytes = if self.data[at].is_multiple_of(2) { 8 } else { 3_000 };
            self.data[at] += send(MessageClass::Data, self.data[at], bytes)?;
        }
        if self.control[at] < CONTROL.min(self.data[at]) {
            self.control[at] += send(MessageClass::Control, FIRST_CONTROL + self.control[at], 40)?;
        }
        if self.chunks[at] < CHUNKS.min(self.data[at]) {
            let number = self.chunks[at];
            let fill = |mut out: mend_transport::PayloadWriter<'_>| out.put(&pattern(number, CHUNK_BYTES));
            self.chunks[at] += sent(end.btl.send_chunk(endpoint, STREAM, CHUNK_BYTES, fill))?;
        }
        Ok(())
    }

    /// Begins the next operation: a get, a put, or an addition, each in a part of its own, and a flush at last.
    fn operate(&mut self, end: &mut End) -> Result<(), String> {
        let number = self.begun.len() as u64;
        let (done, part) = (self.cookie(), number % 16);
        let (endpoint, remote, offset) = (end.endpoint, self.remote, part * PART as u64);
        let begun = match number % 3 {
            _ if number == OPERATIONS - 1 => end.btl.flush(endpoint, done),
            0 => end.btl.get(endpoint, self.own.part(part, PART), remote, offset, done),
            1 => end.btl.put(endpoint, self.own.part(part, PART), remote, offset, done),
            _ => {
                // An offset of the buffer at which both have a word.
                end.btl.atomic(endpoint, Atomic::FetchAdd(1), self.own.part(part, 8), remote, offset, done)
            }
        };
        if sent(begun)? == 1 {
            self.begun.push(done);
        }
        Ok(())
    }

    /// A key is made and taken back.
    fn expose_again(&mut self, end: &mut End) {
        match end.btl.expose(end.endpoint, self.there.part(0, PART), ALL) {
            Ok((exposure, _)) => {
                let done = self.cookie();
                end.btl.unexpose(exposure, done);
                self.ending[1].push(done);
            }
            Err(error) => self.failed.push(format!("{error:?}")),
        }
    }

    /// Whether everything was sent and has arrived, and every operation has ended.
    pub fn is_over(&self, pair: &Pair) -> bool {
        let sent = self.data == [DATA; 2] && self.control == [CONTROL; 2] && self.chunks == [CHUNKS; 2];
        let begun = self.begun.len() as u64 == OPERATIONS;
        let arrived = pair.ends.iter().all(|end| {
            let arrivals = end
                .recorder
                .callbacks
                .iter()
                .filter(|callback| matches!(callback, Callback::Message(..) | Callback::Chunk(..)));
            arrivals.count() >= (DATA + CONTROL + CHUNKS) as usize
        });
        let ended = |at: usize, cookies: &[Cookie]| ends(&pair.ends[at]).count() >= cookies.len();
        sent && begun && arrived && ended(0, &self.begun) && ended(1, &self.ending[1])
    }

    /// Everything came once, in order, with its bytes, and every operation ended once. Notes the requests that ended in an error.
    pub fn check(&mut self, pair: &Pair) -> Result<(), String> {
        for (at, end) in pair.ends.iter().enumerate() {
            check_messages(end, 1 - at as u32)?;
            let cookies = if at == 0 { &self.begun } else { &self.ending[1] };
            for (number, cookie) in cookies.iter().enumerate() {
                let results: Vec<_> = ends(end).filter(|(ended, _)| ended == cookie).collect();
                let [(_, result)] = results[..] else {
                    return Err(format!("operation {number} of end {at} ended {} times", results.len()));
                };
                match result {
                    Ok(()) if at == 0 && number % 3 == 0 && number as u64 != OPERATIONS - 1 => {
                        let bytes = self.own.buffer.to_vec();
                        let start = number % 16 * PART;
                        let range = &bytes[start..start + PART];
                        if range.iter().any(|&byte| byte != 7) {
                            return Err(format!("get {number} ended without its bytes"));
                        }
                    }
                    Ok(()) => {}
                    Err(error) => self.failed.push(format!("{error:?}")),
                }
            }
        }
        Ok(())
    }

    /// Gives keys and regions back, before the endpoints are severed.
    pub fn end(&mut self, pair: &mut Pair) -> Result<(), String> {
        let cookies = [self.cookie(), self.cookie(), self.cookie()];
        pair.ends[1].btl.unexpose(self.exposure, cookies[0]);
        pair.ends[1].btl.unregister(self.there.region, cookies[1]);
        pair.ends[0].btl.unregister(self.own.region, cookies[2]);
        pair.until("keys and regions are given back", |pair| {
            cookies
                .iter()
                .all(|cookie| pair.ends.iter().any(|end| ends(end).any(|(ended, _)| ended == *cookie)))
        })
    }
}

fn ends(end: &End) -> impl Iterator<Item = (Cookie, Result<(), SendError>)> + '_ {
    end.recorder.callbacks.iter().filter_map(|callback| match callback {
        Callback::Done(cookie, result) => Some((*cookie, *result)),
        _ => None,
    })
}

fn check_messages(end: &End, from: u32) -> Result<(), String> {
    let (mut data, mut control, mut stream) = (Vec::new(), Vec::new(), Vec::new());
    for callback in &end.recorder.callbacks {
        match callback {
            Callback::Message(peer, id, header, payload) => {
                let number = u32::from_le_bytes(header[..].try_into().map_err(|_| "another header")?);
                if (*peer, *id) != (PeerIndex(from), ID) || *payload != pattern(number, payload.len()) {
                    return Err(format!("message {number} is not what was sent"));
                }
                if number < FIRST_CONTROL { data.push(number) } else { control.push(number) }
            }
            Callback::Chunk(_, STREAM, bytes) => stream.extend_from_slice(bytes),
            _ => {}
        }
    }
    let chunks: Vec<u8> = (0..CHUNKS).flat_map(|number| pattern(number, CHUNK_BYTES)).collect();
    let as_sent = data == (0..DATA).collect::<Vec<_>>()
        && control == (FIRST_CONTROL..FIRST_CONTROL + CONTROL).collect::<Vec<_>>()
        && stream == chunks;
    if as_sent { Ok(()) } else { Err(format!("arrived: {data:?} {control:?}, {} bytes", stream.len())) }
}

/// 1, if it was sent; 0, if it is busy.
fn sent(answer: Result<(), SendError>) -> Result<u32, String> {
    match answer {
        Ok(()) => Ok(1),
        Err(SendError::Busy) => Ok(0),
        Err(error) => Err(format!("a send ended with {error:?}")),
    }
}

fn pattern(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (number as usize * 31 + at * 7) as u8).collect()
}

const ALL: RemoteAccess = RemoteAccess { read: true, write: true, atomic: true };
