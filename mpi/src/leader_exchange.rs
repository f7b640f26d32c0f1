// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the leaders of two groups tell each other while their groups create an intercommunicator (MPI_INTERCOMM_CREATE), on the context
//! of leaders of the peer communicator.
//!
//! ```text
//!   leader of A                                    leader of B
//!     group of A ──────────────▶ ◀────────────── group of B
//!     ready: all of A have made it ─▶   ◀─ ready, or given up: the cause
//! ```
//!
//! Each leader sends its group first, unless it gives up at once, and then either that its group is ready or that it has given up: nothing
//! else, so after one of these the other one waits for nothing more. A leader that gives up at once has read nothing. Calls with the same peer communicator, leaders and tag pair in their order: each has a
//! number, and messages of earlier calls, which the other leader may have left unread when its call failed, are passed over.
//!
//! A value of a creation that runs.

use crate::layers::Layers;
use crate::{Detail, Error};
use mend_base::{Peer, Rank, Reader, Source, Tag, TagSelector, Writer};
use mend_datatype::TypedBuffer;
use mend_pml::{Channel, Ends, Error as PmlError, Lent, Request, SendMode, Started, State};
use mend_transport::{Buffer, Rdma, UserMemory};

use std::sync::Arc;

/// What a leader says, to the other leader or to its own group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Note {
    /// A group has so many processes, a list of which follows. `creator` has drawn `number` for the identity.
    Group { creator: Peer, number: u32, count: u32 },
    /// All members of the group have made the communicator.
    Ready,
    /// The communicator will not be created.
    GivenUp(WhyNot),
}

/// Why an intercommunicator is not created, in words that both groups understand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WhyNot {
    /// This process has failed.
    Failed(Peer),
    /// This process has left MPI.
    Left(Peer),
    /// The communicator of the group that gave up is revoked, or the peer communicator is.
    Revoked,
    /// The groups have a process in common.
    Overlap,
    /// Another reason of one member.
    Other,
}

impl WhyNot {
    /// The error at the processes that are told.
    pub fn error(self) -> Error {
        Error::of(match self {
            WhyNot::Failed(peer) => Detail::MemberFailed(peer),
            WhyNot::Left(peer) => Detail::MemberLeft(peer),
            WhyNot::Revoked => Detail::OtherRevoked,
            WhyNot::Overlap => Detail::GroupsOverlap,
            WhyNot::Other => Detail::CreationRefused,
        })
    }

    fn code(self) -> (u32, Peer) {
        match self {
            WhyNot::Failed(peer) => (FAILED, peer),
            WhyNot::Left(peer) => (LEFT, peer),
            WhyNot::Revoked => (REVOKED, Peer(0)),
            WhyNot::Overlap => (OVERLAP, Peer(0)),
            WhyNot::Other => (OTHER, Peer(0)),
        }
    }
}

const GROUP: u32 = 1;
const READY: u32 = 2;
const FAILED: u32 = 3;
const LEFT: u32 = 4;
const REVOKED: u32 = 5;
const OVERLAP: u32 = 6;
const OTHER: u32 = 7;

impl Note {
    /// On the wire: the number of the call u32, the kind u32, a process u64, number u32, count u32, zero u64.
    pub const BYTES: usize = 32;

    /// The note in its bytes.
    pub fn to_bytes(self, call: u32) -> [u8; Note::BYTES] {
        let (kind, peer, number, count) = match self {
            Note::Group { creator, number, count } => (GROUP, creator, number, count),
            Note::Ready => (READY, Peer(0), 0, 0),
            Note::GivenUp(why) => (why.code().0, why.code().1, 0, 0),
        };
        let mut bytes = [0; Note::BYTES];
        let mut out = Writer::new(&mut bytes);
        out.u32(call);
        out.u32(kind);
        out.u64(peer.0);
        out.u32(number);
        out.u32(count);
        bytes
    }

    /// The number of the call, and the note; `None`: no leader writes these bytes.
    pub fn read(bytes: &[u8]) -> Option<(u32, Note)> {
        let mut from = Reader::new(bytes);
        let (call, kind, peer) = (from.u32()?, from.u32()?, Peer(from.u64()?));
        let (number, count) = (from.u32()?, from.u32()?);
        let note = match kind {
            GROUP => Note::Group { creator: peer, number, count },
            READY => Note::Ready,
            FAILED => Note::GivenUp(WhyNot::Failed(peer)),
            LEFT => Note::GivenUp(WhyNot::Left(peer)),
            REVOKED => Note::GivenUp(WhyNot::Revoked),
            OVERLAP => Note::GivenUp(WhyNot::Overlap),
            OTHER => Note::GivenUp(WhyNot::Other),
            _ => return None,
        };
        (from.u64()? == 0).then_some((call, note))
    }
}

/// Processes in their bytes.
pub(crate) fn list_of(peers: impl Iterator<Item = Peer>, count: u32) -> Option<Arc<Buffer>> {
    let buffer = Buffer::try_zeroed(PEER_BYTES * count as usize)?;
    write_list(&buffer, 0, peers);
    Some(buffer)
}

fn write_list(buffer: &Arc<Buffer>, from: usize, peers: impl Iterator<Item = Peer>) {
    let memory = UserMemory::of_buffer(buffer);
    for (at, peer) in peers.enumerate() {
        memory.write(from + PEER_BYTES * at, &peer.0.to_le_bytes());
    }
}

/// The processes in bytes that begin at `from`.
pub(crate) fn processes_in(buffer: &Arc<Buffer>, from: usize) -> Vec<Peer> {
    let memory = UserMemory::of_buffer(buffer);
    let whole = buffer.len().saturating_sub(from) / PEER_BYTES;
    let process = |at| {
        let mut bytes = [0; PEER_BYTES];
        memory.read(from + PEER_BYTES * at, &mut bytes);
        Peer(u64::from_le_bytes(bytes))
    };
    (0..whole).map(process).collect()
}

const PEER_BYTES: usize = 8;
/// No correct leader sends a longer message.
const MESSAGE_BYTES_MAX: u64 = (Note::BYTES + PEER_BYTES * (1 << 24)) as u64;

/// What a leader has received from the other one.
#[derive(Debug)]
pub(crate) struct Received {
    pub note: Note,
    /// The processes of the group, with its note.
    pub processes: Vec<Peer>,
}

/// The part of one leader.
#[derive(Debug)]
pub(crate) struct LeaderExchange {
    channel: Channel,
    /// The other leader, by its rank in the peer communicator.
    other: Rank,
    tag: Tag,
    /// The number of this call.
    call: u32,
    /// What was said and has not left: the group, and then the last note, which gets its memory when it leaves.
    unsent_group: Option<Arc<Buffer>>,
    unsent_last: Option<Note>,
    receive: Option<(Request, Arc<Buffer>)>,
    is_concluded: bool,
}

impl LeaderExchange {
    /// Begins. This needs no memory: otherwise the other leader, which cannot be told, would wait.
    pub fn new((channel, other, tag): (Channel, Rank, Tag), call: u32) -> LeaderExchange {
        LeaderExchange {
            channel,
            other,
            tag,
            call,
            unsent_group: None,
            unsent_last: None,
            receive: None,
            is_concluded: false,
        }
    }

    /// Says the group of this leader. Nothing is sent yet.
    pub fn say_group(&mut self, group: Note, processes: impl Iterator<Item = Peer>) -> Result<(), Error> {
        let Note::Group { count, .. } = group else { return Err(Error::of(Detail::BadCreation)) };
        let first = Buffer::try_zeroed(Note::BYTES + PEER_BYTES * count as usize);
        let first = first.ok_or(Error::of(Detail::NoMemory))?;
        UserMemory::of_buffer(&first).write(0, &group.to_bytes(self.call));
        write_list(&first, Note::BYTES, processes);
        self.unsent_group = Some(first);
        Ok(())
    }

    /// Takes the first note back. Only before anything was sent or received: then the other leader never learns what it says.
    pub fn take_back_group(&mut self) {
        self.unsent_group = None;
    }

    /// The other leader, by its rank in the peer communicator, the tag, and the number of the call.
    pub fn call(&self) -> (Rank, Tag, u32) {
        (self.other, self.tag, self.call)
    }

    /// Says the last note. Does nothing if it was said.
    pub fn conclude(&mut self, note: Note) {
        if !core::mem::replace(&mut self.is_concluded, true) {
            self.unsent_last = Some(note);
        }
    }

    /// The next note of the other leader about this call. `Err`: none will come.
    pub fn progress<N: Rdma, R>(
        &mut self,
        layers: &mut Layers<N, R>,
        ends: &Ends,
    ) -> Option<Result<Received, Error>> {
        self.send(layers, ends);
        loop {
            let buffer = match self.next_message(layers, ends)? {
                Ok(buffer) => buffer,
                Err(error) => return Some(Err(error)),
            };
            match Note::read(&bytes_of(&buffer)) {
                Some((call, note)) if call == self.call => {
                    return Some(Ok(Received { note, processes: processes_in(&buffer, Note::BYTES) }));
                }
                Some(_) => mend_base::reach!("mpi.leader_exchange: of an earlier call"),
                None => return Some(Err(Error::of(Detail::BadCreation))),
            }
        }
    }

    /// The next message of the other leader on the context, whatever it is about.
    fn next_message<N: Rdma, R>(
        &mut self,
        layers: &mut Layers<N, R>,
        ends: &Ends,
    ) -> Option<Result<Arc<Buffer>, Error>> {
        if let Some((receive, buffer)) = &self.receive {
            let (receive, buffer) = (*receive, Arc::clone(buffer));
            let State::Done(result) = layers.pml.poll(receive, ends) else { return None };
            layers.pml.release(receive);
            self.receive = None;
            return Some(result.map(|_| buffer).map_err(Error::from));
        }
        let (from, tag) = (Source::Rank(self.other), TagSelector::Tag(self.tag));
        let found = match layers.pml.probe(self.channel, from, tag, ends) {
            Ok(found) => found?,
            Err(error) => return Some(Err(error.into())),
        };
        if found.bytes > MESSAGE_BYTES_MAX {
            return Some(Err(Error::of(Detail::BadCreation)));
        }
        let Some(buffer) = Buffer::try_zeroed(found.bytes as usize) else {
            return Some(Err(Error::of(Detail::NoMemory)));
        };
        let into = TypedBuffer::bytes(UserMemory::of_buffer(&buffer));
        let lent = Lent { net: &mut layers.net, ends };
        match layers.pml.receive(lent, self.channel, from, tag, into) {
            Ok(Started::Done(_)) => Some(Ok(buffer)),
            Ok(Started::Running(receive)) => {
                self.receive = Some((receive, buffer));
                None
            }
            Err(error) => Some(Err(error.into())),
        }
    }

    /// Sends what was said. A message for which there is no memory now has its turn later; to one that has ended nothing is sent.
    pub fn send<N: Rdma, R>(&mut self, layers: &mut Layers<N, R>, ends: &Ends) {
        if let Some(group) = &self.unsent_group {
            if !self.send_one(group, layers, ends) {
                return;
            }
            self.unsent_group = None;
        }
        if let Some(last) = self.unsent_last {
            let Some(message) = Buffer::try_zeroed(Note::BYTES) else { return };
            UserMemory::of_buffer(&message).write(0, &last.to_bytes(self.call));
            if self.send_one(&message, layers, ends) {
                self.unsent_last = None;
            }
        }
    }

    /// `false`: there is no memory for the message now.
    fn send_one<N: Rdma, R>(&self, message: &Arc<Buffer>, layers: &mut Layers<N, R>, ends: &Ends) -> bool {
        let data = TypedBuffer::bytes(UserMemory::of_buffer(message));
        let lent = Lent { net: &mut layers.net, ends };
        match layers.pml.send(lent, self.channel, self.other, self.tag, SendMode::Standard, data) {
            Ok(Started::Done(_)) => true,
            Ok(Started::Running(send)) => {
                layers.pml.release(send);
                true
            }
            Err(error) => error != PmlError::NoMemory,
        }
    }

    /// Whether all that was said has left.
    pub fn has_sent_all(&self) -> bool {
        self.unsent_group.is_none() && self.unsent_last.is_none()
    }

    /// Receives nothing any more.
    pub fn stop_receiving<N: Rdma, R>(&mut self, layers: &mut Layers<N, R>) {
        if let Some((receive, _)) = self.receive.take() {
            layers.pml.abandon(receive);
        }
    }
}

fn bytes_of(buffer: &Arc<Buffer>) -> Vec<u8> {
    let mut bytes = vec![0; buffer.len().min(Note::BYTES)];
    UserMemory::of_buffer(buffer).read(0, &mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::{Note, WhyNot, list_of, processes_in};
    use mend_base::{Job, Peer};

    fn peer(number: u32) -> Peer {
        Peer::new(Job(1), number)
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_nothing_else_is_a_note() {
        let whys = [WhyNot::Failed(peer(3)), WhyNot::Left(peer(4)), WhyNot::Revoked, WhyNot::Overlap];
        let given_up = whys.into_iter().chain([WhyNot::Other]).map(Note::GivenUp);
        let group = Note::Group { creator: peer(1), number: 77, count: 5 };
        for note in [group, Note::Ready].into_iter().chain(given_up) {
            assert_eq!(Note::read(&note.to_bytes(9)), Some((9, note)));
        }
        assert_eq!(Note::read(&[0; 12]), None);
        assert_eq!(Note::read(&[0; Note::BYTES]), None);
        let mut longer = Note::Ready.to_bytes(1);
        longer[Note::BYTES - 1] = 1;
        assert_eq!(Note::read(&longer), None);
    }

    #[test]
    fn a_list_of_processes_keeps_its_order() {
        let all = [5, 0, 3].map(peer);
        let list = list_of(all.into_iter(), 3).expect("memory for a list");
        assert_eq!(processes_in(&list, 0), all);
        assert_eq!(processes_in(&list, 8), all[1..]);
        assert_eq!(processes_in(&list, 30), [], "no whole process");
    }
}
