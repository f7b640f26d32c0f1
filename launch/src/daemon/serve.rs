// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hears ranks: the socket they come to, and their connections. Believes nothing: a packet that no correct rank writes is
//! evidence against the rank, and nothing more.
//!
//! ```text
//!   connect ──▶ Stranger ── hello, checked ──▶ Rank ── closes ──▶ gone
//!                  └── anything else: turned away, in one packet that every version reads
//! ```

use mend_runtime::daemon_protocol::{
    Answer, Hello, Request, Secret, TurnedAway, VERSION, Welcome, decode, encode,
};
use mend_runtime::environment::Address;
use mend_runtime::packet::{Arrival, Packet, Sent, Waiting, receive, send};
use mend_transport::Card;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Where ranks come to.
#[derive(Debug)]
pub struct Desk {
    listener: OwnedFd,
    /// By a number that is never used again.
    connections: HashMap<u32, Connection>,
    next: u32,
    /// Who has not been welcomed yet: so many, and at most so many; more are sent away.
    strangers: u32,
    strangers_max: u32,
    /// By rank: its connection.
    of_rank: HashMap<u32, u32>,
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    /// The process at the other end when it connected, as this process sees it; 0 where it cannot.
    process: i32,
    rank: Option<u32>,
}

/// What came from a connection.
#[derive(Debug)]
pub enum Heard {
    /// Nothing now.
    Nothing,
    /// It is closed, and forgotten.
    Closed(Option<u32>),
    /// What no correct rank writes.
    Garbage(Option<u32>),
    /// From one who has not been welcomed.
    FromStranger(Request),
    /// From this rank.
    FromRank(u32, Request),
}

impl Desk {
    /// Besides the ranks, so many processes of the same user may come and say nothing.
    const IDLERS_MAX: u32 = 64;

    /// Listens at `address` for so many ranks.
    pub fn open(address: &Address, ranks: u32) -> rustix::io::Result<Self> {
        let name = SocketAddrUnix::new_abstract_name(address.socket_name().as_bytes())?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        rustix::net::bind(&listener, &name)?;
        rustix::net::listen(&listener, 4096)?;
        Ok(Desk {
            listener,
            connections: HashMap::new(),
            next: 0,
            strangers: 0,
            strangers_max: ranks + Self::IDLERS_MAX,
            of_rank: HashMap::new(),
        })
    }

    /// Readable when somebody comes.
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Lets in those who wait; their numbers. Other users are sent away: they cannot know the secret.
    pub fn accept(&mut self) -> Vec<u32> {
        let mut come = vec![];
        loop {
            let socket = match rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC) {
                Ok(socket) => socket,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                // Nobody is left, or no descriptor is: who waits is let in at the next look.
                Err(_) => break,
            };
            let Ok(credentials) = sockopt::socket_peercred(&socket) else { continue };
            if credentials.uid != rustix::process::geteuid() || self.strangers >= self.strangers_max {
                continue;
            }
            // The kernel says 0 of a process in a pid name space that we do not see into.
            let process = credentials.pid.as_raw_pid();
            let connection = Connection { socket, process, rank: None };
            self.connections.insert(self.next, connection);
            self.strangers += 1;
            come.push(self.next);
            self.next += 1;
        }
        come
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
    pub fn connection_of(&self, rank: u32) -> Option<u32> {
        self.of_rank.get(&rank).copied()
    }

    /// The process that made a connection; 0 where we do not see it.
    pub fn process(&self, connection: u32) -> Option<i32> {
        self.connections.get(&connection).map(|connection| connection.process)
    }

    /// The next that a connection said.
    pub fn hear(&mut self, connection: u32) -> Heard {
        let Some(from) = self.connections.get(&connection) else { return Heard::Nothing };
        let rank = from.rank;
        match receive(from.socket.as_fd(), Waiting::Never) {
            Arrival::Nothing => Heard::Nothing,
            Arrival::Closed => {
                self.forget(connection);
                Heard::Closed(rank)
            }
            Arrival::Packet(packet) => match (read(packet), rank) {
                (None, rank) => {
                    // A rank that raves is not heard again.
                    if rank.is_some() {
                        self.forget(connection);
                    }
                    Heard::Garbage(rank)
                }
                (Some(request), None) => Heard::FromStranger(request),
                (Some(request), Some(rank)) => Heard::FromRank(rank, request),
            },
        }
    }

    /// Makes a stranger a rank.
    pub fn welcome(&mut self, connection: u32, rank: u32, welcome: &Welcome, pages: [BorrowedFd<'_>; 2]) {
        let Some(whose) = self.connections.get_mut(&connection) else { return };
        // The first packet always has room. If it has closed already, its end will be heard.
        let sent = send(whose.socket.as_fd(), &encode(&Answer::Welcome(*welcome)), &pages, Waiting::Never);
        debug_assert!(sent != Sent::Busy);
        whose.rank = Some(rank);
        self.of_rank.insert(rank, connection);
        self.strangers -= 1;
    }

    /// Tells a stranger why it may not come in, and forgets it.
    pub fn turn_away(&mut self, connection: u32, why: TurnedAway) {
        if let Some(socket) = self.socket(connection) {
            // It may be gone already.
            let _ = send(socket, &encode(&Answer::TurnedAway(why)), &[], Waiting::Never);
        }
        self.forget(connection);
    }

    fn forget(&mut self, connection: u32) {
        let Some(gone) = self.connections.remove(&connection) else { return };
        match gone.rank {
            Some(rank) => drop(self.of_rank.remove(&rank)),
            None => self.strangers -= 1,
        }
    }
}

/// A request, if it is one: with a descriptor beside it only where one belongs.
fn read(packet: Packet) -> Option<Request> {
    // We have room for as many descriptors as all ranks send.
    if !packet.whole || packet.without_descriptors {
        return None;
    }
    let mut descriptors = packet.descriptors;
    match decode(&packet.bytes)? {
        Request::Publish(mut card) if descriptors.len() <= 1 => {
            card.descriptor = descriptors.pop().map(Arc::new);
            Some(Request::Publish(card))
        }
        request if descriptors.is_empty() => Some(request),
        _ => None,
    }
}

/// Whether a stranger may come in, as far as its words say.
pub fn check_hello(request: &Request, secret: &Secret, size: u32) -> Result<Hello, TurnedAway> {
    match request {
        Request::Hello(hello) if hello.secret != *secret => Err(TurnedAway::WrongSecret),
        Request::Hello(hello) if hello.layout != Card::LAYOUT => Err(TurnedAway::LayoutDiffers(Card::LAYOUT)),
        Request::Hello(hello) if hello.rank >= size => Err(TurnedAway::NoSuchRank),
        Request::Hello(hello) => Ok(*hello),
        Request::OtherVersion(_) => Err(TurnedAway::VersionDiffers(u32::from(VERSION))),
        _ => Err(TurnedAway::Garbled),
    }
}
