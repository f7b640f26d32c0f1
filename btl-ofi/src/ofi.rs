// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The BTL as a value: its parts, and how it is opened.

use crate::card::CardEntry;
use crate::classify::Class;
use crate::connection::Connection;
use crate::exposures::{DeviceKeys, RAILS_MAX};
use crate::frame::HEADER_BYTES;
use crate::rail::Rail;
use crate::send_buffers::SendBuffers;
use crate::sizes::Sizes;
use crate::transfers::Transfers;
use core::fmt;
use mend_base::{Duration, Instant, PeerIndex};
use mend_ffi_ofi::{Code, Info, StuckConnections};
use mend_transport::{Card, Cause, Limits};
use std::collections::{HashMap, HashSet, VecDeque};

/// The BTL over libfabric.
pub struct Ofi {
    // Dropped first: endpoints before the memory that they use.
    pub(crate) rails: Vec<Rail>,
    pub(crate) buffers: SendBuffers,
    pub(crate) connections: Vec<Connection>,
    /// By the tag of frames from the peer.
    pub(crate) by_tag: HashMap<u64, u32>,
    /// Tags of connections that were severed: a frame of one that is still under way must not be taken for one of a new connection.
    pub(crate) severed_tags: HashSet<u64>,
    pub(crate) transfers: Transfers,
    pub(crate) keys: DeviceKeys,
    pub(crate) callbacks: VecDeque<Callback>,
    /// Connections with something to post.
    pub(crate) listed: Vec<u32>,
    /// Connections that are severing.
    pub(crate) severing: Vec<u32>,
    /// Frames that wait for the end of a quarantine, or for their delivery after it.
    pub(crate) held: usize,
    /// Of the last call of progress.
    pub(crate) now: Instant,
    /// When probes are looked at next.
    pub(crate) next_timer: Instant,
    /// When reads that may stand still are looked at next.
    pub(crate) next_stall_look: Instant,
    /// When a broken device may be opened again.
    pub(crate) next_repair: Instant,
    /// When connections over sockets that stand still may be broken next.
    pub(crate) next_break: Instant,
    pub(crate) stuck: StuckConnections,
    /// An endpoint of transfers could not be closed, which was reported.
    pub(crate) keeps_transfers: bool,
    /// When sockets that peers have opened to read are looked for next.
    pub(crate) next_socket_look: Instant,
    /// This process is about to leave: unacknowledged frames are asked for at once.
    pub(crate) is_flushing: bool,
    /// The connection that `check_peers` probes next.
    pub(crate) checked: u32,
    /// The rail whose completions are read first.
    pub(crate) first_rail: usize,
    pub(crate) entry: CardEntry,
    /// By rail: the addresses of the business card, which peers know that had no contact yet.
    pub(crate) card_names: Vec<Vec<u8>>,
    pub(crate) reconnect: Duration,
    pub(crate) statistics: Statistics,
    report: Box<dyn FnMut(&Report) + Send>,
}

/// A callback that the next calls of progress make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Callback {
    Sendable(u32),
    Error(u32, Cause),
    Severed(u32),
}

/// Who has read memory of the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reader {
    Peer,
    Own,
}

/// How often sockets are looked for that were opened for reads.
const SOCKET_LOOK_PERIOD: Duration = Duration::from_millis(1_000);

/// An error of the provider, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// What it says about the peer. A local fault must be shown always, what fault tolerance absorbs only if somebody asks for it.
    pub class: Class,
    /// The provider.
    pub provider: String,
    /// The operation.
    pub operation: &'static str,
    /// The peer; `None`: the device itself, or the provider does not tell.
    pub peer: Option<PeerIndex>,
    /// The code.
    pub code: Code,
    /// The provider's own code; 0: none.
    pub provider_code: i32,
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "libfabric, provider {}: {} failed: {}", self.provider, self.operation, self.code)?;
        if self.provider_code != 0 {
            write!(out, ", its own code is {}", self.provider_code)?;
        }
        Ok(())
    }
}

/// What has happened, counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Statistics {
    /// Frames that were posted, those again included.
    pub posted: u64,
    /// How often unacknowledged frames were posted again.
    pub rewinds: u64,
    /// Frames that had come before.
    pub duplicates: u64,
    /// Frames for nobody: of peers that are severed, or of another life.
    pub strays: u64,
    /// Probes that were sent.
    pub probes: u64,
    /// How often the way to a peer was broken.
    pub troubles: u64,
    /// How many connections over sockets were broken, since they stood still.
    pub broken: u64,
    /// How often a device was opened again.
    pub reopened: u64,
    /// How often the endpoint of transfers was closed, to silence reads of a severed peer.
    pub transfers_closed: u64,
}

/// Why the BTL was not opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// A device was not opened.
    #[error("provider {provider} over {interface}: {code}")]
    Device {
        /// The provider.
        provider: String,
        /// The interface.
        interface: String,
        /// Why.
        code: Code,
    },
    /// The addresses of the rails do not fit into a business card.
    #[error("the addresses of {0} rails do not fit into a business card; choose fewer (btl_ofi.rails)")]
    TooManyRails(usize),
}

/// How the BTL is opened.
pub struct Options {
    /// A random number, another one in each life of a process.
    pub instance: u64,
    /// The eager limit, in bytes; `None`: one that suits the providers.
    pub eager_bytes: Option<u32>,
    /// The longest chunk of a stream, in bytes; `None`: one that suits the providers.
    pub chunk_bytes: Option<u32>,
    /// How long the way to a peer that runs may be broken before the two count as unreachable for each other.
    pub reconnect: Duration,
    /// Where reports go.
    pub report: Box<dyn FnMut(&Report) + Send>,
}

impl fmt::Debug for Ofi {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Ofi")
            .field("rails", &self.rails)
            .field("connections", &self.connections.len())
            .finish_non_exhaustive()
    }
}

/// Every receiver accepts messages of this length, which internal messages need.
pub(crate) const MESSAGE_BYTES_LEAST: u32 = 256;
/// Room for the bytes that upper layers add to an eager payload.
pub(crate) const HEADROOM_BYTES: u32 = 64;
/// The longest payload of a control message, in bytes: a key to remote memory is the longest.
pub(crate) const CONTROL_BYTES_MAX: u32 = 128;
/// The longest get or put, in bytes.
pub(crate) const TRANSFER_BYTES_MAX: u64 = 1 << 20;

impl Ofi {
    /// Opens a device for each of `infos`: a rail each.
    pub fn open(infos: Vec<Info>, options: Options) -> Result<Ofi, OpenError> {
        let providers: Vec<String> = infos.iter().take(RAILS_MAX).map(Info::provider).collect();
        let suitable = Sizes::of_providers(providers.iter().map(String::as_str));
        let sizes = Sizes {
            eager_bytes: options.eager_bytes.unwrap_or(suitable.eager_bytes),
            chunk_bytes: options.chunk_bytes.unwrap_or(suitable.chunk_bytes),
        };
        let message_bytes_max = sizes.frame_payload_bytes().max(MESSAGE_BYTES_LEAST) + HEADROOM_BYTES;
        let frame_bytes_max = HEADER_BYTES + Limits::HEADER_BYTES_MAX + message_bytes_max as usize;
        let mut buffers = SendBuffers::new(frame_bytes_max);
        let mut rails = Vec::new();
        let mut names = Vec::new();
        for info in infos.into_iter().take(RAILS_MAX) {
            let (provider, interface) = (info.provider(), info.domain());
            let opened = Rail::open(info, None, frame_bytes_max).and_then(|rail| {
                let prepared = buffers.prepare(rail.device())?;
                buffers.set_device(rails.len(), rail.device(), prepared);
                let name = rail.name()?;
                Ok((rail, name))
            });
            let (rail, name) =
                opened.map_err(|code| OpenError::Device { provider: provider.clone(), interface, code })?;
            rails.push(rail);
            names.push((provider, name));
        }
        let Sizes { eager_bytes, chunk_bytes } = sizes;
        let instance = options.instance;
        let entry = CardEntry { instance, message_bytes_max, eager_bytes, chunk_bytes, rails: names };
        if entry.bytes() > Card::ENTRY_BYTES_MAX {
            return Err(OpenError::TooManyRails(rails.len()));
        }
        Ok(Ofi {
            rails,
            buffers,
            connections: Vec::new(),
            by_tag: HashMap::new(),
            severed_tags: HashSet::new(),
            transfers: Transfers::default(),
            keys: DeviceKeys::default(),
            callbacks: VecDeque::new(),
            listed: Vec::new(),
            severing: Vec::new(),
            held: 0,
            now: Instant::default(),
            next_timer: Instant::default(),
            next_stall_look: Instant::default(),
            next_repair: Instant::default(),
            next_break: Instant::default(),
            stuck: StuckConnections::default(),
            keeps_transfers: false,
            next_socket_look: Instant::default(),
            is_flushing: false,
            checked: 0,
            first_rail: 0,
            card_names: entry.rails.iter().map(|(_, name)| name.clone()).collect(),
            entry,
            reconnect: options.reconnect,
            statistics: Statistics::default(),
            report: options.report,
        })
    }

    /// What has happened so far.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// The provider and the interface of each rail.
    pub fn rails(&self) -> impl Iterator<Item = (String, String)> + '_ {
        self.rails.iter().map(|rail| (rail.device().info().provider(), rail.device().info().domain()))
    }

    /// Unfinished transfers, regions and exposures, and operations that the devices have: all zero after everything has ended.
    pub fn held(&self) -> (usize, usize) {
        (self.transfers.held(), self.rails.iter().map(|rail| rail.operations.len()).sum())
    }

    /// Whether nothing is under way: all that was accepted has arrived at peers, no transfer is unfinished, and no way to a peer is broken.
    pub fn is_settled(&self) -> bool {
        let is_settled = |connection: &Connection| connection.trouble.is_none() && connection.is_flushed();
        self.transfers.entries.is_empty()
            && self.connections.iter().filter(|connection| connection.is_open()).all(is_settled)
    }

    pub(crate) fn report(
        &mut self,
        class: Class,
        rail: usize,
        operation: &'static str,
        connection: Option<u32>,
        codes: (Code, i32),
    ) {
        let report = Report {
            class,
            provider: self.rails[rail].device().info().provider(),
            operation,
            peer: connection.map(|index| self.connections[index as usize].peer),
            code: codes.0,
            provider_code: codes.1,
        };
        (self.report)(&report);
    }

    /// A provider has opened a connection with this peer: programs that this process starts must not inherit it.
    #[cold]
    pub(crate) fn close_connections_on_exec(&self, index: u32) {
        let own = self.entry.rails.iter().map(|(_, name)| &name[..]);
        let paths = self.connections[index as usize].paths.iter().flatten();
        mend_ffi_ofi::close_connections_on_exec(own, paths.map(|path| &path.name[..]));
    }

    // Hot: per large message.
    /// Reads have connections of their own, which no frame tells of. They are looked for after the first read, and from time to time, since endpoints
    /// of transfers are opened again.
    pub(crate) fn note_read(&mut self, index: u32, reader: Reader) {
        let known = &mut self.connections[index as usize].reads_known[reader as usize];
        if !core::mem::replace(known, true) || self.now >= self.next_socket_look {
            self.next_socket_look = self.now + SOCKET_LOOK_PERIOD;
            self.close_connections_on_exec(index);
        }
    }

    /// The connection has something to post in the next call of progress.
    pub(crate) fn list(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        if !connection.is_listed {
            connection.is_listed = true;
            self.listed.push(index);
        }
    }
}
