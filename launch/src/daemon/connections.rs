// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connections of ranks: the socket that they connect to, and the packets that they send. Nothing that arrives is trusted: a
//! packet that no correct rank writes is evidence against its rank, and has no other effect.
//!
//! ```text
//!   connect ──▶ Unidentified ── hello, checked ──▶ Rank ── closes ──▶ forgotten
//!                   └── anything else: refused, in one packet that every version reads
//! ```

use mend_runtime::daemon_protocol::{
    DaemonMessage, Hello, HelloRefused, RankMessage, Secret, VERSION, Welcome, decode, encode,
};
use mend_runtime::environment::Address;
use mend_runtime::packet::{self, MayBlock, ReceiveResult, ReceivedPacket, Sent, send};
use mend_transport::Card;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustix::process::Uid;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// All connections, and the socket that accepts them.
#[derive(Debug)]
pub struct Connections {
    listener: OwnedFd,
    /// By connection number, which is never reused.
    connections: HashMap<u32, Connection>,
    next: u32,
    /// How many connections are unidentified, and how many may be; further ones are closed.
    unidentified: u32,
    unidentified_max: u32,
    address: Address,
    ranks: u32,
    /// Only processes of this user may join.
    user: Uid,
    /// By rank: its connection.
    of_rank: HashMap<u32, u32>,
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    /// Process id of the peer when it connected; 0 if it is in a PID namespace that is not visible here.
    process: i32,
    rank: Option<u32>,
}

/// What came from a connection.
#[derive(Debug)]
pub enum ConnectionEvent {
    /// No packet is here now.
    Nothing,
    /// The connection was closed, and has been removed.
    Closed(Option<u32>),
    /// A packet that no correct rank writes. The connection of a rank has then been removed.
    Garbage(Option<u32>),
    /// The first packet of an unidentified process.
    Hello(RankMessage),
    /// A message of this rank.
    FromRank(u32, RankMessage),
}

impl Connections {
    /// How many processes of the same user may be connected besides the ranks without having sent hello.
    const IDLE_MAX: u32 = 64;

    /// Listens at `address` for `ranks` ranks.
    pub fn open(address: &Address, ranks: u32) -> rustix::io::Result<Self> {
        let name = SocketAddrUnix::new_abstract_name(address.socket_name().as_bytes())?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        rustix::net::bind(&listener, &name)?;
        rustix::net::listen(&listener, 4096)?;
        Ok(Connections {
            listener,
            connections: HashMap::new(),
            next: 0,
            unidentified: 0,
            unidentified_max: ranks + Self::IDLE_MAX,
            address: *address,
            user: rustix::process::geteuid(),
            ranks,
            of_rank: HashMap::new(),
        })
    }

    /// The address that ranks connect to.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Readable when a process connects.
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Accepts all waiting processes, and returns the numbers of their connections. Processes of other users are refused: they
    /// cannot know the secret.
    pub fn accept(&mut self) -> Vec<u32> {
        let mut accepted = vec![];
        loop {
            let socket = match rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC) {
                Ok(socket) => socket,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                // No process is waiting, or no descriptor is left: then those that wait are accepted with the next one.
                Err(_) => break,
            };
            let Ok(credentials) = sockopt::socket_peercred(&socket) else { continue };
            if credentials.uid != self.user {
                let why = HelloRefused::OtherUser(self.user.as_raw());
                // The process is told why; it may have gone.
                let _ = send(socket.as_fd(), &encode(&DaemonMessage::HelloRefused(why)), &[], MayBlock::No);
                continue;
            }
            if self.unidentified >= self.unidentified_max {
                continue;
            }
            // The kernel reports 0 for a process in a PID namespace that is not visible here.
            let process = credentials.pid.as_raw_pid();
            let connection = Connection { socket, process, rank: None };
            self.connections.insert(self.next, connection);
            self.unidentified += 1;
            accepted.push(self.next);
            self.next += 1;
        }
        accepted
    }

    /// The socket of a connection.
    pub fn socket(&self, connection: u32) -> Option<BorrowedFd<'_>> {
        self.connections.get(&connection).map(|connection| connection.socket.as_fd())
    }

    /// The socket of a rank.
    pub fn socket_of(&self, rank: u32) -> Option<BorrowedFd<'_>> {
        self.socket(*self.of_rank.get(&rank)?)
    }

    /// The connection of a rank, if it has one.
    pub fn of_rank(&self, rank: u32) -> Option<u32> {
        self.of_rank.get(&rank).copied()
    }

    /// The process that made a connection; 0 where it is not visible here.
    pub fn process(&self, connection: u32) -> Option<i32> {
        self.connections.get(&connection).map(|connection| connection.process)
    }

    /// Takes the next packet of a connection.
    pub fn receive(&mut self, connection: u32) -> ConnectionEvent {
        let Some(from) = self.connections.get(&connection) else { return ConnectionEvent::Nothing };
        let rank = from.rank;
        match packet::receive(from.socket.as_fd(), MayBlock::No) {
            ReceiveResult::Nothing => ConnectionEvent::Nothing,
            ReceiveResult::Closed => {
                self.forget(connection);
                ConnectionEvent::Closed(rank)
            }
            ReceiveResult::Packet(packet) => match (read(packet), rank) {
                (None, rank) => {
                    // Nothing more is read from a rank that wrote garbage.
                    if rank.is_some() {
                        self.forget(connection);
                    }
                    ConnectionEvent::Garbage(rank)
                }
                (Some(message), None) => ConnectionEvent::Hello(message),
                (Some(message), Some(rank)) => ConnectionEvent::FromRank(rank, message),
            },
        }
    }

    /// Makes an unidentified connection that of a rank.
    pub fn welcome(&mut self, connection: u32, rank: u32, welcome: &Welcome, pages: &[BorrowedFd<'_>]) {
        let Some(whose) = self.connections.get_mut(&connection) else { return };
        // The first packet always has room. If the connection has closed already, the next receive reports that.
        let sent =
            send(whose.socket.as_fd(), &encode(&DaemonMessage::Welcome(*welcome)), pages, MayBlock::No);
        debug_assert!(sent != Sent::Busy);
        whose.rank = Some(rank);
        self.of_rank.insert(rank, connection);
        self.unidentified -= 1;
    }

    /// Tells an unidentified process why it may not join, and closes its connection.
    pub fn refuse_hello(&mut self, connection: u32, why: HelloRefused) {
        if let Some(socket) = self.socket(connection) {
            // It may be gone already.
            let _ = send(socket, &encode(&DaemonMessage::HelloRefused(why)), &[], MayBlock::No);
        }
        self.forget(connection);
    }

    /// Checks the first packet of an unidentified process; whether its rank may join is decided later.
    pub fn check_hello(&self, message: &RankMessage) -> Result<Hello, HelloRefused> {
        check_hello(message, &self.address.secret, self.ranks)
    }

    fn forget(&mut self, connection: u32) {
        let Some(gone) = self.connections.remove(&connection) else { return };
        match gone.rank {
            Some(rank) => drop(self.of_rank.remove(&rank)),
            None => self.unidentified -= 1,
        }
    }
}

/// Decodes a message; `None` for anything else, also for a message with or without a descriptor against its kind.
fn read(packet: ReceivedPacket) -> Option<RankMessage> {
    // Enough descriptors are reserved for all that correct ranks send.
    if !packet.whole || packet.without_descriptors {
        return None;
    }
    let descriptors = packet.descriptors;
    match decode(&packet.bytes)? {
        RankMessage::Publish(mut card, carried) if descriptors.len() == carried.count() => {
            carried.give(&mut card, descriptors);
            Some(RankMessage::Publish(card, carried))
        }
        message if descriptors.is_empty() => Some(message),
        _ => None,
    }
}

/// See [`Connections::check_hello`].
fn check_hello(message: &RankMessage, secret: &Secret, size: u32) -> Result<Hello, HelloRefused> {
    match message {
        RankMessage::Hello(hello) if hello.secret != *secret => Err(HelloRefused::WrongSecret),
        RankMessage::Hello(hello) if hello.layout != Card::LAYOUT => {
            Err(HelloRefused::LayoutDiffers(Card::LAYOUT))
        }
        RankMessage::Hello(hello) if hello.rank >= size => Err(HelloRefused::NoSuchRank),
        RankMessage::Hello(hello) => Ok(*hello),
        RankMessage::OtherVersion(_) => Err(HelloRefused::VersionDiffers(u32::from(VERSION))),
        _ => Err(HelloRefused::Garbled),
    }
}

#[cfg(test)]
mod tests {
    use super::Connections;
    use mend_runtime::environment::Address;
    use mend_runtime::{Client, StartError, entropy, namespace};
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::process::Uid;

    #[test]
    fn a_process_of_another_user_is_told_that_it_is_one() {
        let address = Address {
            socket: entropy::random_bytes(),
            network: namespace("net"),
            secret: entropy::random_bytes(),
            rank: 0,
        };
        let mut connections = Connections::open(&address, 1).unwrap();
        let own = connections.user.as_raw();
        connections.user = Uid::from_raw(own + 1);
        let rank = std::thread::spawn(move || Client::connect(&address));
        poll(&mut [PollFd::new(&connections.listener, PollFlags::IN)], None).unwrap();
        assert!(connections.accept().is_empty());
        let refused = rank.join().unwrap().unwrap_err();
        assert!(matches!(refused, StartError::HelloRefused(_)), "{refused:?}");
        let message = refused.to_string();
        assert!(
            message.contains(&format!("uid {}", own + 1)) && message.ends_with("[E-START-020]"),
            "{message}"
        );
    }
}
