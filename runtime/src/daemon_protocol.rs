// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages between a rank and its node daemon, as bytes.
//!
//! ```text
//!   rank ── Hello ─────────────────────▶ daemon      version, layout, secret, rank, namespaces
//!        ◀─ Welcome + bells, notices ──              or HelloRefused, whose bytes never change with the version
//!        ── Publish + outbox, life ────▶             Lookup, Refuse, Ask, RecallResult, Abort, AbortSome, GiveUp: in any order
//!        ◀─ Contact + outbox, life ────              Refused, Finalized, Failed, Alive, Running, Recalled, JobAborted
//!        ◀─ AreYouRunning ─────────────
//!        ── Running ───────────────────▶             once it takes notices: not while it is stopped
//!        ── Transport ... ─────────────▶             only where the user asks for the report about transports
//!        ── LeaveResult ... Finalize ──▶             for each result that others may ask for, then the last message
//! ```
//!
//! One packet a message ([`crate::packet`]). Every field is checked when it is read: `None` is evidence against the
//! writer.

use crate::carried::Carried;
use crate::runtime::{RESULT_BYTES_MAX, ResultKey};
use crate::transport_view::{PART_BYTES_MAX, TransportPart};
use mend_base::{Identity, Peer, Reader, Wire, Writer};
use mend_transport::{Card, Cause};

/// The version of these messages. A hello of another version is refused.
pub const VERSION: u16 = 9;

/// The secret of a job, which only its ranks' environments hold.
pub type Secret = [u8; 16];

/// How many peers one [`DaemonMessage::Finalized`] names at most.
pub const FINALIZED_MAX: usize = 250;

/// How many peers one [`RankMessage::AbortSome`] names at most.
pub const ABORT_SOME_MAX: usize = 250;

/// The longest message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 4 + ResultKey::BYTES_MAX + RESULT_BYTES_MAX;

const _: () = assert!(16 + Card::BYTES_MAX <= MESSAGE_BYTES_MAX);
const _: () = assert!(PART_BYTES_MAX < MESSAGE_BYTES_MAX);
const _: () = assert!(MESSAGE_BYTES_MAX <= crate::packet::PACKET_BYTES_MAX);

/// The first message of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// [`Card::LAYOUT`] of the rank.
    pub layout: u32,
    /// The secret of the job.
    pub secret: Secret,
    /// The rank that the process claims to be.
    pub rank: u32,
    /// Its namespaces.
    pub namespaces: Namespaces,
}

/// The namespaces of a process, by their inode numbers; 0 if /proc cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Namespaces {
    /// The user namespace.
    pub user: u64,
    /// The PID namespace.
    pub pid: u64,
    /// The IPC namespace.
    pub ipc: u64,
}

/// What a rank sends.
#[derive(Clone, Debug)]
pub enum RankMessage {
    /// The first message of a process.
    Hello(Hello),
    /// A hello of another version; the rest of it cannot be read.
    OtherVersion(u16),
    /// Publishes the rank's card, with the descriptors of its outbox and life page in the same packet, if it has them.
    Publish(Card, Carried),
    /// Requests a contact with a peer.
    Lookup(Peer),
    /// Reports that the rank could not connect to a peer.
    Refuse(Peer, Cause),
    /// Reports evidence against a peer, and asks whether it has failed.
    Ask(Peer, Cause),
    /// Leaves a result with the node daemon, for others to recall: at most [`RESULT_BYTES_MAX`] bytes.
    LeaveResult(ResultKey, Vec<u8>),
    /// Asks for a result that a rank has left.
    RecallResult(ResultKey),
    /// Says in which call the rank sits.
    Sits(Place),
    /// Answers [`DaemonMessage::AreYouRunning`].
    Running,
    /// A part of what the rank says for the report about transports.
    Transport(TransportPart),
    /// Leaves MPI.
    Finalize,
    /// Ends the job.
    Abort(i32),
    /// Ends these peers, which may include the rank: one or more, at most [`ABORT_SOME_MAX`].
    AbortSome(i32, Vec<Peer>),
    /// Reports that MPI_Init failed after the welcome: the process goes on without MPI.
    GiveUp,
}

/// Where the program of a rank is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// It says so because it has been blocked for longer than the parameter `hang_report_s` allows; else because it was asked.
    pub is_blocked: bool,
    /// For how long it has been there; 0: not known.
    pub seconds: u32,
    /// The call, in words: at most [`PLACE_BYTES_MAX`] bytes. The reader checks them before it prints them.
    pub what: String,
}

/// The bytes of the words of a [`Place`].
pub const PLACE_BYTES_MAX: usize = 160;

/// Which process of the job the rank is, and the sizes of job and node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// This incarnation of the process.
    pub peer: Peer,
    /// How many ranks the job has.
    pub size: u32,
    /// The rank's node slot.
    pub node_slot: u32,
    /// How many node slots there are.
    pub node_slots: u32,
    /// How many ranks the node has.
    pub local_ranks: u32,
    /// Whether the job outlives deaths.
    pub fault_tolerant: bool,
    /// Whether the node daemon could make bell page and notice page. Without them a rank reads its notices from the socket alone.
    pub has_pages: bool,
}

/// Why a hello is refused. The encoding is the same in every version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HelloRefused {
    /// The daemon speaks this version.
    VersionDiffers(u32),
    /// The daemon's job has this layout.
    LayoutDiffers(u32),
    /// The secret is not that of the job.
    WrongSecret,
    /// No rank has that number.
    NoSuchRank,
    /// The process with this id is that rank already.
    Taken(u32),
    /// That rank has left MPI.
    Over,
    /// That rank is known to have failed: final.
    Failed,
    /// The process is not visible in the node daemon's PID namespace, so the node daemon could not watch it.
    NotVisible,
    /// The first message of the process was not a correct hello.
    Garbled,
    /// The process runs as another user than the node daemon, whose user id this is.
    OtherUser(u32),
}

/// What the daemon sends.
#[derive(Clone, Debug)]
pub enum DaemonMessage {
    /// Accepts a hello; the descriptors of bell page and notice page are in the same packet, if there are any.
    Welcome(Welcome),
    /// Refuses a hello.
    HelloRefused(HelloRefused),
    /// How to connect to a peer; the descriptors of its outbox and life page are in the same packet, if it has them.
    Contact(Peer, Card, Carried),
    /// There is no connection to a peer.
    Refused(Peer, Cause),
    /// These peers have left: one or more, at most [`FINALIZED_MAX`].
    Finalized(Vec<Peer>),
    /// A peer has failed.
    Failed(Peer),
    /// A peer, about which the rank asked, lives.
    Alive(Peer),
    /// A peer, about which the rank asked because of [`Cause::Silent`], has answered [`DaemonMessage::AreYouRunning`] since.
    Running(Peer),
    /// Asks for [`RankMessage::Running`]: this peer hears nothing of the rank.
    AreYouRunning(Peer),
    /// The result that a rank has left under that key, if there is one: at most [`RESULT_BYTES_MAX`] bytes.
    Recalled(ResultKey, Option<Vec<u8>>),
    /// Asks in which call the rank sits.
    WhereAreYou,
    /// The job is being ended, with this exit code.
    JobAborted(i32),
}

/// The bytes of a message.
pub fn encode(message: &impl Wire) -> Vec<u8> {
    let mut bytes = [0; MESSAGE_BYTES_MAX];
    let mut out = Writer::new(&mut bytes);
    message.write(&mut out);
    let used = out.used();
    // A copy of exactly this size: thousands of short messages may wait for room in the socket.
    bytes[..used].to_vec()
}

/// Decodes a message; `None` unless the bytes are exactly one correct message.
pub fn decode<M: Wire>(bytes: &[u8]) -> Option<M> {
    let mut from = Reader::new(bytes);
    let message = M::read(&mut from)?;
    from.rest().is_empty().then_some(message)
}

/// The first four bytes of a hello in every version; the version's two follow.
const MAGIC: u32 = u32::from_le_bytes(*b"Mend");

mod kind {
    pub const HELLO: u8 = 1;
    pub const PUBLISH: u8 = 2;
    pub const LOOKUP: u8 = 3;
    pub const REFUSE: u8 = 4;
    pub const ASK: u8 = 5;
    pub const FINALIZE: u8 = 6;
    pub const ABORT: u8 = 7;
    pub const ABORT_SOME: u8 = 8;
    pub const GIVE_UP: u8 = 9;
    pub const LEAVE_RESULT: u8 = 10;
    pub const RECALL_RESULT: u8 = 11;
    pub const SITS: u8 = 12;
    pub const RUNNING: u8 = 13;
    pub const TRANSPORT: u8 = 14;
    pub const WELCOME: u8 = 64;
    pub const HELLO_REFUSED: u8 = 65;
    pub const CONTACT: u8 = 66;
    pub const REFUSED: u8 = 67;
    pub const FINALIZED: u8 = 68;
    pub const FAILED: u8 = 69;
    pub const ALIVE: u8 = 70;
    pub const JOB_ABORTED: u8 = 71;
    pub const RECALLED: u8 = 72;
    pub const WHERE_ARE_YOU: u8 = 73;
    pub const PEER_RUNNING: u8 = 74;
    pub const ARE_YOU_RUNNING: u8 = 75;
}

impl Wire for RankMessage {
    const BYTES_MAX: usize = MESSAGE_BYTES_MAX;

    fn write(&self, out: &mut Writer<'_>) {
        match self {
            RankMessage::Hello(hello) => hello.write(out),
            RankMessage::OtherVersion(version) => {
                out.u8(kind::HELLO);
                out.u32(MAGIC);
                out.u16(*version);
            }
            RankMessage::Publish(card, carried) => {
                out.u8(kind::PUBLISH);
                carried.write(out);
                card.write(out);
            }
            RankMessage::Lookup(peer) => peer_message(out, kind::LOOKUP, *peer),
            RankMessage::Refuse(peer, cause) => evidence_message(out, kind::REFUSE, *peer, *cause),
            RankMessage::Ask(peer, cause) => evidence_message(out, kind::ASK, *peer, *cause),
            RankMessage::LeaveResult(key, result) => {
                out.u8(kind::LEAVE_RESULT);
                key.write(out);
                write_result(out, result);
            }
            RankMessage::RecallResult(key) => {
                out.u8(kind::RECALL_RESULT);
                key.write(out);
            }
            RankMessage::Sits(place) => place.write(out),
            RankMessage::Running => out.u8(kind::RUNNING),
            RankMessage::Transport(part) => {
                out.u8(kind::TRANSPORT);
                part.write(out);
            }
            RankMessage::Finalize => out.u8(kind::FINALIZE),
            RankMessage::GiveUp => out.u8(kind::GIVE_UP),
            RankMessage::Abort(code) => {
                out.u8(kind::ABORT);
                out.u32(*code as u32);
            }
            RankMessage::AbortSome(code, peers) => write_abort_some(out, *code, peers),
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(match from.u8()? {
            kind::HELLO => return read_hello(from),
            kind::PUBLISH => {
                let carried = Carried::read(from)?;
                RankMessage::Publish(Card::read(from)?, carried)
            }
            kind::LOOKUP => RankMessage::Lookup(Peer(from.u64()?)),
            kind::REFUSE => RankMessage::Refuse(Peer(from.u64()?), read_cause(from)?),
            kind::ASK => RankMessage::Ask(Peer(from.u64()?), read_cause(from)?),
            kind::LEAVE_RESULT => RankMessage::LeaveResult(ResultKey::read(from)?, read_result(from)?),
            kind::RECALL_RESULT => RankMessage::RecallResult(ResultKey::read(from)?),
            kind::SITS => RankMessage::Sits(Place::read(from)?),
            kind::RUNNING => RankMessage::Running,
            kind::TRANSPORT => RankMessage::Transport(TransportPart::read(from)?),
            kind::FINALIZE => RankMessage::Finalize,
            kind::GIVE_UP => RankMessage::GiveUp,
            kind::ABORT => RankMessage::Abort(from.u32()? as i32),
            kind::ABORT_SOME => RankMessage::AbortSome(from.u32()? as i32, read_peers(from, ABORT_SOME_MAX)?),
            _ => return None,
        })
    }
}

impl Place {
    fn write(&self, out: &mut Writer<'_>) {
        out.u8(kind::SITS);
        out.u8(u8::from(self.is_blocked));
        out.u32(self.seconds);
        // Never cut within a character: the words are ASCII, but for names that the program chose.
        let end = (0..=PLACE_BYTES_MAX).rev().find(|&end| self.what.is_char_boundary(end)).unwrap_or(0);
        let words = self.what.get(..end).unwrap_or(&self.what).as_bytes();
        out.u8(words.len() as u8);
        out.bytes(words);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let is_blocked = match from.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let seconds = from.u32()?;
        let length = usize::from(from.u8()?);
        if length > PLACE_BYTES_MAX {
            return None;
        }
        let words = core::str::from_utf8(from.bytes(length)?).ok()?;
        Some(Place { is_blocked, seconds, what: words.to_owned() })
    }
}

impl Hello {
    fn write(&self, out: &mut Writer<'_>) {
        out.u8(kind::HELLO);
        out.u32(MAGIC);
        out.u16(VERSION);
        out.u32(self.layout);
        out.bytes(&self.secret);
        out.u32(self.rank);
        out.u64(self.namespaces.user);
        out.u64(self.namespaces.pid);
        out.u64(self.namespaces.ipc);
    }
}

/// Of a hello of another version, the bytes after the version are ignored.
fn read_hello(from: &mut Reader<'_>) -> Option<RankMessage> {
    if from.u32()? != MAGIC {
        return None;
    }
    let version = from.u16()?;
    if version != VERSION {
        from.bytes(from.rest().len())?;
        return Some(RankMessage::OtherVersion(version));
    }
    let layout = from.u32()?;
    let secret = from.bytes(16)?.try_into().ok()?;
    let rank = from.u32()?;
    let namespaces = Namespaces { user: from.u64()?, pid: from.u64()?, ipc: from.u64()? };
    Some(RankMessage::Hello(Hello { layout, secret, rank, namespaces }))
}

impl Wire for DaemonMessage {
    const BYTES_MAX: usize = MESSAGE_BYTES_MAX;

    fn write(&self, out: &mut Writer<'_>) {
        match self {
            DaemonMessage::Welcome(welcome) => welcome.write(out),
            DaemonMessage::HelloRefused(why) => {
                let (reason, number) = why.to_numbers();
                out.u8(kind::HELLO_REFUSED);
                out.u8(reason);
                out.u32(number);
            }
            DaemonMessage::Contact(peer, card, carried) => {
                peer_message(out, kind::CONTACT, *peer);
                carried.write(out);
                card.write(out);
            }
            DaemonMessage::Refused(peer, cause) => evidence_message(out, kind::REFUSED, *peer, *cause),
            DaemonMessage::Finalized(peers) => {
                assert!(peers.len() <= FINALIZED_MAX);
                out.u8(kind::FINALIZED);
                write_peers(out, peers);
            }
            DaemonMessage::Failed(peer) => peer_message(out, kind::FAILED, *peer),
            DaemonMessage::Alive(peer) => peer_message(out, kind::ALIVE, *peer),
            DaemonMessage::Running(peer) => peer_message(out, kind::PEER_RUNNING, *peer),
            DaemonMessage::AreYouRunning(peer) => peer_message(out, kind::ARE_YOU_RUNNING, *peer),
            DaemonMessage::Recalled(key, result) => {
                out.u8(kind::RECALLED);
                key.write(out);
                out.u8(u8::from(result.is_some()));
                if let Some(result) = result {
                    write_result(out, result);
                }
            }
            DaemonMessage::WhereAreYou => out.u8(kind::WHERE_ARE_YOU),
            DaemonMessage::JobAborted(code) => {
                out.u8(kind::JOB_ABORTED);
                out.u32(*code as u32);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(match from.u8()? {
            kind::WELCOME => DaemonMessage::Welcome(Welcome::read(from)?),
            kind::HELLO_REFUSED => {
                DaemonMessage::HelloRefused(HelloRefused::from_numbers(from.u8()?, from.u32()?)?)
            }
            kind::CONTACT => {
                let (peer, carried) = (Peer(from.u64()?), Carried::read(from)?);
                DaemonMessage::Contact(peer, Card::read(from)?, carried)
            }
            kind::REFUSED => DaemonMessage::Refused(Peer(from.u64()?), read_cause(from)?),
            kind::FINALIZED => DaemonMessage::Finalized(read_peers(from, FINALIZED_MAX)?),
            kind::FAILED => DaemonMessage::Failed(Peer(from.u64()?)),
            kind::ALIVE => DaemonMessage::Alive(Peer(from.u64()?)),
            kind::PEER_RUNNING => DaemonMessage::Running(Peer(from.u64()?)),
            kind::ARE_YOU_RUNNING => DaemonMessage::AreYouRunning(Peer(from.u64()?)),
            kind::RECALLED => {
                let key = ResultKey::read(from)?;
                let result = if read_bool(from)? { Some(read_result(from)?) } else { None };
                DaemonMessage::Recalled(key, result)
            }
            kind::WHERE_ARE_YOU => DaemonMessage::WhereAreYou,
            kind::JOB_ABORTED => DaemonMessage::JobAborted(from.u32()? as i32),
            _ => return None,
        })
    }
}

impl Wire for ResultKey {
    const BYTES_MAX: usize = Identity::BYTES_MAX + 5;

    fn write(&self, out: &mut Writer<'_>) {
        self.identity.write(out);
        out.u8(self.protocol);
        out.u32(self.sequence);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(ResultKey { identity: Identity::read(from)?, protocol: from.u8()?, sequence: from.u32()? })
    }
}

impl Welcome {
    fn write(&self, out: &mut Writer<'_>) {
        peer_message(out, kind::WELCOME, self.peer);
        out.u32(self.size);
        out.u32(self.node_slot);
        out.u32(self.node_slots);
        out.u32(self.local_ranks);
        out.u8(u8::from(self.fault_tolerant));
        out.u8(u8::from(self.has_pages));
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let welcome = Welcome {
            peer: Peer(from.u64()?),
            size: from.u32()?,
            node_slot: from.u32()?,
            node_slots: from.u32()?,
            local_ranks: from.u32()?,
            fault_tolerant: read_bool(from)?,
            has_pages: read_bool(from)?,
        };
        (welcome.peer.number() < welcome.size && welcome.node_slot < welcome.node_slots).then_some(welcome)
    }
}

impl HelloRefused {
    fn to_numbers(self) -> (u8, u32) {
        match self {
            HelloRefused::VersionDiffers(version) => (1, version),
            HelloRefused::LayoutDiffers(layout) => (2, layout),
            HelloRefused::WrongSecret => (3, 0),
            HelloRefused::NoSuchRank => (4, 0),
            HelloRefused::Taken(pid) => (5, pid),
            HelloRefused::Over => (6, 0),
            HelloRefused::NotVisible => (7, 0),
            HelloRefused::Garbled => (8, 0),
            HelloRefused::Failed => (9, 0),
            HelloRefused::OtherUser(user) => (10, user),
        }
    }

    fn from_numbers(reason: u8, number: u32) -> Option<Self> {
        Some(match reason {
            1 => HelloRefused::VersionDiffers(number),
            2 => HelloRefused::LayoutDiffers(number),
            3 => HelloRefused::WrongSecret,
            4 => HelloRefused::NoSuchRank,
            5 => HelloRefused::Taken(number),
            6 => HelloRefused::Over,
            7 => HelloRefused::NotVisible,
            8 => HelloRefused::Garbled,
            9 => HelloRefused::Failed,
            10 => HelloRefused::OtherUser(number),
            _ => return None,
        })
    }
}

fn peer_message(out: &mut Writer<'_>, kind: u8, peer: Peer) {
    out.u8(kind);
    out.u64(peer.0);
}

/// Writes [`RankMessage::AbortSome`] without allocating memory for the list.
pub(crate) fn write_abort_some(out: &mut Writer<'_>, code: i32, peers: &[Peer]) {
    assert!(peers.len() <= ABORT_SOME_MAX);
    out.u8(kind::ABORT_SOME);
    out.u32(code as u32);
    write_peers(out, peers);
}

fn write_peers(out: &mut Writer<'_>, peers: &[Peer]) {
    let count = u8::try_from(peers.len()).ok().filter(|&count| count > 0);
    out.u8(count.expect("some peers are named, and no more than a message holds"));
    peers.iter().for_each(|peer| out.u64(peer.0));
}

fn read_peers(from: &mut Reader<'_>, at_most: usize) -> Option<Vec<Peer>> {
    let count = usize::from(from.u8()?);
    if !(1..=at_most).contains(&count) {
        return None;
    }
    (0..count).map(|_| from.u64().map(Peer)).collect()
}

fn write_result(out: &mut Writer<'_>, result: &[u8]) {
    assert!(result.len() <= RESULT_BYTES_MAX);
    out.u16(result.len() as u16);
    out.bytes(result);
}

fn read_result(from: &mut Reader<'_>) -> Option<Vec<u8>> {
    let len = usize::from(from.u16()?);
    if len > RESULT_BYTES_MAX {
        return None;
    }
    from.bytes(len).map(<[u8]>::to_vec)
}

fn read_bool(from: &mut Reader<'_>) -> Option<bool> {
    match from.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn evidence_message(out: &mut Writer<'_>, kind: u8, peer: Peer, cause: Cause) {
    peer_message(out, kind, peer);
    out.u8(CAUSES.iter().position(|&each| each == cause).expect("CAUSES has every cause") as u8);
}

fn read_cause(from: &mut Reader<'_>) -> Option<Cause> {
    CAUSES.get(usize::from(from.u8()?)).copied()
}

/// Causes by their number on the wire.
const CAUSES: [Cause; 9] = [
    Cause::Exited,
    Cause::LinkDown,
    Cause::Silent,
    Cause::Refused,
    Cause::Garbage,
    Cause::LayoutDiffers,
    Cause::NoMemory,
    Cause::NoEvidence,
    Cause::Unreachable,
];

#[cfg(test)]
mod tests {
    use super::{
        ABORT_SOME_MAX, CAUSES, DaemonMessage, FINALIZED_MAX, Hello, HelloRefused, Namespaces, Place,
        RESULT_BYTES_MAX, RankMessage, ResultKey, VERSION, Welcome, decode, encode, kind,
    };
    use crate::carried::Carried;
    use crate::rank_ranges::RankRange;
    use crate::transport_view::{RANGES_MAX, REASON_BYTES_MAX, Reached, TransportPart};
    use mend_base::{Identity, Job, Peer, Random, Wire};
    use mend_transport::{Card, TransportId};

    const PEER: Peer = Peer::new(Job(7), 3);

    const KEY: ResultKey =
        ResultKey { identity: Identity { creator: PEER, number: 8 }, protocol: 2, sequence: u32::MAX };

    fn card() -> Card {
        let entries = vec![(TransportId::SHM, vec![9; 40]), (TransportId::SELF, vec![])];
        Card { layout: Card::LAYOUT, entries, ..Card::default() }
    }

    const CARRIED: Carried = Carried { outbox: false, life: true };

    fn hello() -> Hello {
        let namespaces = Namespaces { user: 1, pid: 2, ipc: 3 };
        Hello { layout: Card::LAYOUT, secret: [5; 16], rank: 3, namespaces }
    }

    fn rank_messages() -> Vec<RankMessage> {
        let mut all: Vec<_> = CAUSES.iter().map(|&cause| RankMessage::Refuse(PEER, cause)).collect();
        all.extend([
            RankMessage::Hello(hello()),
            RankMessage::Publish(card(), CARRIED),
            RankMessage::Lookup(PEER),
        ]);
        all.extend([RankMessage::Ask(PEER, CAUSES[0]), RankMessage::Finalize, RankMessage::Abort(-1)]);
        all.extend([RankMessage::AbortSome(i32::MIN, vec![PEER; ABORT_SOME_MAX]), RankMessage::GiveUp]);
        all.extend(
            [vec![], vec![1, 2, 3], vec![4; RESULT_BYTES_MAX]].map(|r| RankMessage::LeaveResult(KEY, r)),
        );
        for (is_blocked, what) in [(true, "MPI_Barrier on MPI_COMM_WORLD".to_owned()), (false, String::new())]
        {
            all.push(RankMessage::Sits(Place { is_blocked, seconds: 7, what }));
        }
        all.extend([RankMessage::RecallResult(KEY), RankMessage::Running]);
        all.extend(transport_parts().map(RankMessage::Transport));
        all
    }

    fn transport_parts() -> [TransportPart; 4] {
        let reached = |transport: &str, count: u32| Reached {
            transport: transport.to_owned(),
            ranks: (0..count).map(|at| RankRange { first: 2 * at, last: 2 * at }).collect(),
        };
        [
            TransportPart::Reached(reached("", 1)),
            TransportPart::Reached(reached("ofi (tcp;ofi_rxm over lo)", RANGES_MAX as u32)),
            TransportPart::NotUsed("é".repeat(REASON_BYTES_MAX / 2)),
            TransportPart::End,
        ]
    }

    fn daemon_messages() -> Vec<DaemonMessage> {
        let welcome = Welcome {
            peer: PEER,
            size: 4,
            node_slot: 3,
            node_slots: 20,
            local_ranks: 4,
            fault_tolerant: false,
            has_pages: true,
        };
        let mut all: Vec<_> = (1..=10)
            .filter_map(|n| HelloRefused::from_numbers(n, 0))
            .map(DaemonMessage::HelloRefused)
            .collect();
        all.extend([
            DaemonMessage::Welcome(welcome),
            DaemonMessage::Contact(PEER, card(), CARRIED),
            DaemonMessage::Refused(PEER, CAUSES[4]),
        ]);
        all.extend([
            DaemonMessage::Finalized(vec![PEER; FINALIZED_MAX]),
            DaemonMessage::Failed(PEER),
            DaemonMessage::Alive(PEER),
            DaemonMessage::Running(PEER),
            DaemonMessage::AreYouRunning(PEER),
            DaemonMessage::JobAborted(3),
            DaemonMessage::WhereAreYou,
        ]);
        let results = [None, Some(vec![]), Some(vec![4; RESULT_BYTES_MAX])];
        all.extend(results.map(|result| DaemonMessage::Recalled(KEY, result)));
        all
    }

    fn check_round_trip<M: Wire + core::fmt::Debug>(all: &[M]) {
        for message in all {
            let bytes = encode(message);
            let read: M = decode(&bytes).unwrap_or_else(|| panic!("{message:?} is not read back"));
            assert_eq!(format!("{read:?}"), format!("{message:?}"));
            for short in 0..bytes.len() {
                assert!(decode::<M>(&bytes[..short]).is_none(), "{message:?} cut to {short} bytes is read");
            }
            let longer = [bytes.as_slice(), &[0]].concat();
            assert!(decode::<M>(&longer).is_none(), "{message:?} with a byte behind it is read");
        }
    }

    #[test]
    fn every_message_is_decoded_as_it_was_encoded_and_a_byte_more_or_less_is_refused() {
        check_round_trip(&rank_messages());
        check_round_trip(&daemon_messages());
    }

    #[test]
    fn a_result_that_is_too_long_is_refused_in_both_directions() {
        let result = vec![7; RESULT_BYTES_MAX];
        let left = encode(&RankMessage::LeaveResult(KEY, result.clone()));
        let recalled = encode(&DaemonMessage::Recalled(KEY, Some(result)));
        let longer = |bytes: &[u8], length_at: usize| {
            let mut bytes = [bytes, &[7]].concat();
            let len = (RESULT_BYTES_MAX as u16 + 1).to_le_bytes();
            bytes[length_at..length_at + 2].copy_from_slice(&len);
            bytes
        };
        let length_at = 1 + ResultKey::BYTES_MAX;
        assert!(decode::<RankMessage>(&left).is_some() && decode::<DaemonMessage>(&recalled).is_some());
        assert!(decode::<RankMessage>(&longer(&left, length_at)).is_none());
        assert!(decode::<DaemonMessage>(&longer(&recalled, length_at + 1)).is_none());
        let mut neither = encode(&DaemonMessage::Recalled(KEY, None));
        assert_eq!((neither[0], neither.len()), (kind::RECALLED, length_at + 1));
        neither[length_at] = 2;
        assert!(decode::<DaemonMessage>(&neither).is_none(), "2 is neither yes nor no");
    }

    #[test]
    fn a_part_about_transports_with_ranges_or_texts_that_no_correct_rank_writes_is_refused() {
        let of = |ranges: &[(u32, u32)]| {
            let ranks = ranges.iter().map(|&(first, last)| RankRange { first, last }).collect();
            encode(&RankMessage::Transport(TransportPart::Reached(Reached {
                transport: "shm".to_owned(),
                ranks,
            })))
        };
        let is_read = |bytes: &[u8]| decode::<RankMessage>(bytes).is_some();
        assert!(is_read(&of(&[(0, 0), (1, u32::MAX)])));
        for wrong in [&of(&[(1, 0)]), &of(&[(0, 3), (3, 4)]), &of(&[(4, 5), (0, 1)])] {
            assert!(!is_read(wrong), "{wrong:?}");
        }
        // Behind kind and number of the part: the length of the text.
        let reason = encode(&RankMessage::Transport(TransportPart::NotUsed("a".repeat(REASON_BYTES_MAX))));
        let mut longer = [&reason[..], b"a"].concat();
        longer[2..4].copy_from_slice(&(REASON_BYTES_MAX as u16 + 1).to_le_bytes());
        assert!(is_read(&reason) && !is_read(&longer));
        let mut no_text = reason;
        no_text[4] = 0xff;
        assert!(!is_read(&no_text));
        let mut no_ranges = of(&[(0, 0)]);
        no_ranges.truncate(9);
        no_ranges[7..9].copy_from_slice(&[0, 0]);
        assert!(!is_read(&no_ranges));
    }

    #[test]
    fn a_hello_of_another_version_is_recognized_whatever_follows() {
        let mut bytes = encode(&RankMessage::OtherVersion(VERSION + 1));
        bytes.extend([1, 2, 3]);
        assert!(matches!(decode(&bytes), Some(RankMessage::OtherVersion(v)) if v == VERSION + 1));
    }

    #[test]
    fn garbage_is_refused_or_decodes_to_a_message_with_the_same_bytes() {
        let mut random = Random(11);
        let seeds: Vec<_> = rank_messages().iter().map(encode).collect();
        for round in 0..100_000_u64 {
            let mut bytes = seeds[(round % seeds.len() as u64) as usize].clone();
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.bits() as u8;
            }
            match decode::<RankMessage>(&bytes) {
                None | Some(RankMessage::OtherVersion(_)) => {}
                Some(read) => assert_eq!(encode(&read), bytes),
            }
        }
    }
}
