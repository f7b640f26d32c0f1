// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rank's end of the connection to its node daemon.
//!
//! ```text
//!            connect            Welcome
//!   (none) ──────────▶ hello ──────────▶ Open ── the daemon closes, or writes garbage ──▶ Lost ── notice ──▶ LostAndReported
//! ```
//!
//! A [`Client`] that is dropped before `finalize` means that MPI_Init failed: the node daemon is told by `GiveUp`, and does not
//! kill the process.

use crate::carried::Carried;
use crate::daemon_protocol::{
    ABORT_SOME_MAX, DaemonMessage, Hello, Namespaces, Place, RankMessage, Welcome, decode, encode,
};
use crate::emergency_channel::EmergencyChannel;
use crate::environment::Address;
use crate::packet::{MayBlock, ReceiveResult, ReceivedPacket, Sent, receive, send};
use crate::peer_lives::PeerLives;
use crate::runtime::{Membership, Notice, ResultKey, Runtime, RuntimeError};
use crate::start_error::StartError;
use crate::transport_view::TransportView;
use mend_base::Peer;
use mend_segment::{BellPage, Life, LifeView, NoticeView, above_standard_streams};
use mend_transport::{Card, Cause};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The rank's end of the connection to its node daemon. Blocks only in [`connect`](Client::connect), and in `finalize`, `abort`
/// and `abort_some` while the socket has no room.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    membership: Membership,
    notice_page: NoticeView,
    /// The life page of this process, until it is published; `None`, too, where the system gives none.
    life_page: Option<OwnedFd>,
    peer_lives: PeerLives,
    state: State,
    published: bool,
    finalized: bool,
    /// Packets for which the socket had no room yet, in order.
    unsent: VecDeque<Unsent>,
    /// Peers that have left, from one packet; each becomes a separate notice.
    left: VecDeque<Peer>,
    /// A check found that the socket is readable: there are packets, or the node daemon has ended.
    readable: bool,
    /// Added to the version, and incremented at each read of it, while something is unsent or readable: so the engine sees
    /// another version and calls `notice`.
    extra_versions: AtomicU32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open,
    /// The daemon is gone; the engine has no notice of it yet.
    Lost,
    LostAndReported,
}

#[derive(Debug)]
struct Unsent {
    bytes: Vec<u8>,
    descriptors: Vec<Arc<OwnedFd>>,
}

/// The memory that a process shares with others, besides its outbox. `None` where the system refuses memory files.
#[derive(Debug)]
pub struct NodePages {
    /// The node's bell page.
    pub bells: Option<BellPage>,
    /// The life of this process, which has not begun.
    pub life: Option<Life>,
}

impl Client {
    /// Joins the job at `address`, and maps the node's pages. Waits for the daemon's welcome, which depends on no other
    /// rank.
    pub fn connect(address: &Address) -> Result<(Self, NodePages), StartError> {
        let socket = open(address)?;
        let hello = Hello {
            layout: Card::LAYOUT,
            secret: address.secret,
            rank: address.rank,
            namespaces: namespaces(),
        };
        // Even if the node daemon has closed the connection already, it may have sent the reason.
        let _ = send(socket.as_fd(), &encode(&RankMessage::Hello(hello)), &[], MayBlock::Yes);
        let packet = match receive(socket.as_fd(), MayBlock::Yes) {
            ReceiveResult::Packet(packet) => packet,
            ReceiveResult::Nothing | ReceiveResult::Closed => return Err(StartError::Closed),
        };
        let (welcome, bells, notice_page) = welcomed(packet).inspect_err(|_| give_up(&socket))?;
        let membership = Membership {
            peer: welcome.peer,
            size: welcome.size,
            node_slot: welcome.node_slot,
            node_slots: welcome.node_slots,
            local_ranks: welcome.local_ranks,
            fault_tolerant: welcome.fault_tolerant,
        };
        // Without a life word the node daemon sees the death of this process by its process descriptor, somewhat later.
        let (life, life_page) = Life::create(membership.peer).ok().unzip();
        let client = Client {
            socket,
            membership,
            notice_page,
            life_page,
            peer_lives: PeerLives::default(),
            state: State::Open,
            published: false,
            finalized: false,
            unsent: VecDeque::new(),
            left: VecDeque::new(),
            readable: false,
            extra_versions: AtomicU32::new(0),
        };
        Ok((client, NodePages { bells, life }))
    }

    /// A second descriptor of the socket, for the emergency channel. `None`: the process has no descriptor left.
    pub fn emergency_channel(&self) -> Option<EmergencyChannel> {
        Some(EmergencyChannel::new(self.socket.try_clone().ok()?, self.membership.peer))
    }

    fn say(&mut self, message: &RankMessage) -> Result<(), RuntimeError> {
        self.say_with(message, Vec::new())
    }

    fn say_with(
        &mut self,
        message: &RankMessage,
        descriptors: Vec<Arc<OwnedFd>>,
    ) -> Result<(), RuntimeError> {
        self.unsent.push_back(Unsent { bytes: encode(message), descriptors });
        self.flush(MayBlock::No);
        if self.state == State::Open { Ok(()) } else { Err(RuntimeError::Lost) }
    }

    /// Sends unsent packets, in order, as far as there is room.
    fn flush(&mut self, may_block: MayBlock) {
        while self.state == State::Open {
            let Some(first) = self.unsent.front() else { return };
            let with: Vec<_> = first.descriptors.iter().map(|descriptor| descriptor.as_fd()).collect();
            match send(self.socket.as_fd(), &first.bytes, &with, may_block) {
                Sent::Yes => drop(self.unsent.pop_front()),
                Sent::Busy => return,
                Sent::Closed => self.lose(),
            }
        }
    }

    fn lose(&mut self) {
        self.state = State::Lost;
        self.readable = false;
        self.unsent.clear();
    }

    fn in_job(&self, peer: Peer) -> bool {
        peer.job() == self.membership.peer.job() && peer != self.membership.peer
    }

    /// One packet names many that have left: the first is returned, the others are queued.
    fn read_left(&mut self, peers: Vec<Peer>) -> Option<Notice> {
        if !peers.iter().all(|&peer| self.in_job(peer)) {
            self.lose();
            return None;
        }
        peers.iter().for_each(|&peer| self.peer_lives.remove(peer));
        self.left.extend(peers);
        self.left.pop_front().map(Notice::Finalized)
    }

    /// From now on the life word of `peer` is read. Without it only the node daemon knows of its death.
    fn begin_contact(&mut self, peer: Peer, life_page: Option<Arc<OwnedFd>>) {
        let life = life_page.and_then(|page| LifeView::map(page.as_fd(), peer).ok());
        if let Some(life) = life.filter(|_| self.in_job(peer)) {
            self.peer_lives.add(peer, life);
        }
    }

    /// The daemon's packets are checked like any peer's: garbage ends the connection.
    fn read(&mut self, packet: ReceivedPacket) -> Option<Notice> {
        let message = if packet.whole { decode(&packet.bytes) } else { None };
        let notice = match message {
            Some(DaemonMessage::Contact(peer, mut card, carried)) => {
                // If this process has no descriptor left for the outbox, the engine refuses the contact, and both ends are told.
                carried.give(&mut card, packet.descriptors);
                self.begin_contact(peer, card.life.take());
                Some((peer, Notice::Contact { peer, card }))
            }
            Some(DaemonMessage::Refused(peer, cause)) => {
                self.peer_lives.remove(peer);
                Some((peer, Notice::Refused { peer, cause }))
            }
            Some(DaemonMessage::Finalized(peers)) => return self.read_left(peers),
            Some(DaemonMessage::Failed(peer)) => {
                self.peer_lives.remove(peer);
                Some((peer, Notice::Failed(peer)))
            }
            Some(DaemonMessage::Alive(peer)) => Some((peer, Notice::Alive(peer))),
            Some(DaemonMessage::Running(peer)) => Some((peer, Notice::Running(peer))),
            // That the engine asks for notices is the answer.
            Some(DaemonMessage::AreYouRunning(peer)) => {
                let _ = self.say(&RankMessage::Running);
                Some((peer, Notice::Unheard(peer)))
            }
            Some(DaemonMessage::Recalled(key, result)) => return Some(Notice::Recalled { key, result }),
            Some(DaemonMessage::WhereAreYou) => return Some(Notice::WhereAreYou),
            Some(DaemonMessage::JobAborted(code)) => return Some(Notice::JobAborted { code }),
            Some(DaemonMessage::Welcome(_) | DaemonMessage::HelloRefused(_)) | None => None,
        };
        match notice {
            Some((peer, notice)) if self.in_job(peer) => Some(notice),
            _ => {
                self.lose();
                None
            }
        }
    }
}

impl Runtime for Client {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn publish(&mut self, card: &Card) -> Result<(), RuntimeError> {
        if self.published {
            return Err(RuntimeError::PublishedTwice);
        }
        self.published = true;
        let card = Card { life: self.life_page.take().map(Arc::new), ..card.clone() };
        let descriptors = Carried::descriptors(&card).cloned().collect();
        let carried = Carried::of(&card);
        self.say_with(&RankMessage::Publish(card, carried), descriptors)
    }

    fn lookup(&mut self, peer: Peer) -> Result<(), RuntimeError> {
        if !self.in_job(peer) {
            return Err(RuntimeError::NoSuchPeer);
        }
        self.say(&RankMessage::Lookup(peer))
    }

    fn refuse(&mut self, peer: Peer, cause: Cause) {
        // The end of the node daemon is reported by `notice`, once.
        let _ = self.say(&RankMessage::Refuse(peer, cause));
    }

    fn ask(&mut self, peer: Peer, cause: Cause) {
        let _ = self.say(&RankMessage::Ask(peer, cause));
    }

    // Hot: per call of progress.
    /// Also changes when a call or a [`check`](Runtime::check) found that the node daemon has ended, and at every call while a
    /// packet waits for room in the socket: then `notice` has something to do.
    #[inline]
    fn notice_version(&self) -> u32 {
        let version = self.notice_page.version(self.membership.node_slot);
        if self.state != State::Lost && !self.readable && self.unsent.is_empty() {
            return version;
        }
        // Far from every version that the page reaches soon, so that it equals none of the page; and never the same twice,
        // however many threads read it.
        let extra = self.extra_versions.fetch_add(1, Ordering::Relaxed) & (u32::MAX >> 2);
        version.wrapping_add(1 << 31).wrapping_add(extra)
    }

    /// A node daemon that was killed changes no version: only the closed socket shows its end.
    fn check(&mut self) {
        if self.state != State::Open {
            return;
        }
        let look = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let seen = rustix::net::recv(&self.socket, &mut [0; 1], look);
        self.readable = !matches!(seen, Err(Errno::AGAIN | Errno::INTR));
    }

    fn check_peers(&mut self, on_exited: &mut dyn FnMut(Peer)) {
        self.peer_lives.check(on_exited);
    }

    /// Each notice is a packet in the socket before the version changes.
    fn notice_descriptor(&self) -> Option<i32> {
        Some(self.socket.as_raw_fd())
    }

    fn notice(&mut self) -> Option<Notice> {
        self.flush(MayBlock::No);
        if let Some(peer) = self.left.pop_front() {
            return Some(Notice::Finalized(peer));
        }
        while self.state == State::Open {
            match receive(self.socket.as_fd(), MayBlock::No) {
                ReceiveResult::Nothing => {
                    self.readable = false;
                    return None;
                }
                ReceiveResult::Closed => self.lose(),
                // Not each packet is a notice.
                ReceiveResult::Packet(packet) => {
                    if let Some(notice) = self.read(packet) {
                        return Some(notice);
                    }
                }
            }
        }
        if self.state == State::Lost {
            self.state = State::LostAndReported;
            return Some(Notice::JobAborted { code: 1 });
        }
        None
    }

    /// Sent before the finalize, through the same socket, so the node daemon reads it first.
    fn leave_result(&mut self, key: ResultKey, result: &[u8]) {
        let _ = self.say(&RankMessage::LeaveResult(key, result.to_vec()));
    }

    fn sits(&mut self, place: Place) {
        let _ = self.say(&RankMessage::Sits(place));
    }

    fn report_transports(&mut self, view: &TransportView) {
        view.parts().for_each(|part| _ = self.say(&RankMessage::Transport(part)));
    }

    fn recall_result(&mut self, key: ResultKey) {
        let _ = self.say(&RankMessage::RecallResult(key));
    }

    fn finalize(&mut self) {
        self.finalized = true;
        let _ = self.say(&RankMessage::Finalize);
        self.flush(MayBlock::Yes);
    }

    fn abort(&mut self, code: i32) {
        let _ = self.say(&RankMessage::Abort(code));
        self.flush(MayBlock::Yes);
    }

    /// Names this process last, as the node daemon may kill it before it has named the others.
    fn abort_some(&mut self, code: i32, peers: &[Peer]) {
        let me = self.membership.peer;
        let mut named: Vec<Peer> = peers.iter().copied().filter(|&peer| self.in_job(peer)).collect();
        named.extend(peers.contains(&me).then_some(me));
        for part in named.chunks(ABORT_SOME_MAX) {
            let _ = self.say(&RankMessage::AbortSome(code, part.to_vec()));
        }
        self.flush(MayBlock::Yes);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !self.finalized && self.state == State::Open {
            self.flush(MayBlock::Yes);
            give_up(&self.socket);
        }
    }
}

/// Tells the node daemon that this process goes on without MPI. An error is ignored: then the node daemon has ended.
fn give_up(socket: &OwnedFd) {
    send(socket.as_fd(), &encode(&RankMessage::GiveUp), &[], MayBlock::Yes);
}

fn open(address: &Address) -> Result<OwnedFd, StartError> {
    let failed = |errno: Errno| {
        let error = std::io::Error::from(errno);
        match namespace("net") {
            here if here != 0 && here != address.network => StartError::OtherNetwork,
            _ => StartError::NoDaemon(error.kind()),
        }
    };
    let name = SocketAddrUnix::new_abstract_name(address.socket_name().as_bytes()).map_err(failed)?;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .and_then(above_standard_streams)
            .map_err(failed)?;
    loop {
        match rustix::net::connect(&socket, &name) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(failed(errno)),
        }
    }
}

/// Without pages, notices are found by a [`check`](Runtime::check), and wake by the descriptor of the socket.
fn welcomed(packet: ReceivedPacket) -> Result<(Welcome, Option<BellPage>, NoticeView), StartError> {
    let message = if packet.whole { decode(&packet.bytes) } else { None };
    let welcome = match message {
        Some(DaemonMessage::Welcome(welcome)) => welcome,
        Some(DaemonMessage::HelloRefused(why)) => return Err(StartError::HelloRefused(why)),
        _ => return Err(StartError::Garbage),
    };
    match (&packet.descriptors[..], welcome.has_pages) {
        ([bells, notice_page], true) => {
            let bells = BellPage::map(bells.as_fd(), welcome.node_slots)?;
            let notice_page = NoticeView::map(notice_page.as_fd(), welcome.node_slots)?;
            Ok((welcome, Some(bells), notice_page))
        }
        ([], false) => Ok((welcome, None, NoticeView::without_page(welcome.node_slots)?)),
        _ => Err(StartError::Garbage),
    }
}

fn namespaces() -> Namespaces {
    Namespaces { user: namespace("user"), pid: namespace("pid"), ipc: namespace("ipc") }
}

/// The inode number of this process's namespace of that kind; 0 if /proc cannot be read.
pub fn namespace(kind: &str) -> u64 {
    let link = std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap_or_default();
    let number = link.to_str().and_then(|text| text.split(['[', ']']).nth(1));
    number.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Client, namespace};
    use crate::carried::Carried;
    use crate::daemon_protocol::{
        ABORT_SOME_MAX, DaemonMessage, HelloRefused, RankMessage, Welcome, decode, encode,
    };
    use crate::environment::Address;
    use crate::packet::{MayBlock, ReceiveResult, receive, send};
    use crate::transport_view::TransportView;
    use crate::{Notice, RESULT_BYTES_MAX, ResultKey, Runtime, RuntimeError, StartError, entropy};
    use mend_base::{Identity, Job, Peer};
    use mend_segment::{BellPage, Life, LifeView, NoticePage};
    use mend_transport::Card;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
    use std::os::fd::{AsFd, AsRawFd, OwnedFd};
    use std::sync::Arc;
    use std::thread::JoinHandle;

    const JOB: Job = Job(9);

    /// A listening socket that answers one hello with `message`. The thread returns the connection, which the test then uses.
    fn daemon(message: DaemonMessage) -> (Address, JoinHandle<(OwnedFd, NoticePage)>) {
        let address =
            Address { socket: entropy::random_bytes(), network: namespace("net"), secret: [3; 16], rank: 0 };
        let name = SocketAddrUnix::new_abstract_name(address.socket_name().as_bytes()).unwrap();
        let listener = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        rustix::net::bind(&listener, &name).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        let daemon = std::thread::spawn(move || {
            let socket = rustix::net::accept(&listener).unwrap();
            let ReceiveResult::Packet(hello) = receive(socket.as_fd(), MayBlock::Yes) else {
                panic!("no hello")
            };
            assert!(
                matches!(decode(&hello.bytes), Some(RankMessage::Hello(hello)) if hello.secret == [3; 16])
            );
            let ((_, bells), (notice_page, notice_file)) =
                (BellPage::create(17).unwrap(), NoticePage::create(17).unwrap());
            let pages = [bells.as_fd(), notice_file.as_fd()];
            let has_pages = !matches!(message, DaemonMessage::Welcome(Welcome { has_pages: false, .. }));
            let pages = if has_pages { &pages[..] } else { &[] };
            send(socket.as_fd(), &encode(&message), pages, MayBlock::Yes);
            (socket, notice_page)
        });
        (address, daemon)
    }

    fn welcome() -> Welcome {
        let peer = Peer::new(JOB, 0);
        Welcome {
            peer,
            size: 2,
            node_slot: 0,
            node_slots: 17,
            local_ranks: 2,
            fault_tolerant: true,
            has_pages: true,
        }
    }

    fn joined() -> (Client, OwnedFd, NoticePage) {
        let (address, daemon) = daemon(DaemonMessage::Welcome(welcome()));
        let (client, _) = Client::connect(&address).unwrap();
        let (socket, notice_page) = daemon.join().unwrap();
        (client, socket, notice_page)
    }

    fn say(socket: &OwnedFd, bytes: &[u8]) {
        send(socket.as_fd(), bytes, &[], MayBlock::No);
    }

    #[test]
    fn the_version_changes_with_a_notice_and_the_end_of_the_daemon_is_reported_once() {
        let (mut client, socket, notice_page) = joined();
        let before = client.notice_version();
        assert!(client.notice().is_none());
        say(&socket, &encode(&DaemonMessage::Finalized(vec![Peer::new(JOB, 1), Peer::new(JOB, 1)])));
        notice_page.bump(0);
        assert_ne!(client.notice_version(), before);
        assert!(matches!(client.notice(), Some(Notice::Finalized(peer)) if peer.number() == 1));
        assert!(matches!(client.notice(), Some(Notice::Finalized(_))));
        assert!(client.notice().is_none());
        drop(socket);
        assert!(matches!(client.notice(), Some(Notice::JobAborted { .. })));
        assert!(client.notice().is_none());
        assert_eq!(client.publish(&Card::default()), Err(RuntimeError::Lost));
    }

    #[test]
    fn a_check_finds_that_the_daemon_was_killed_and_its_last_packets_are_read() {
        let (mut client, socket, _faults) = joined();
        let before = client.notice_version();
        client.check();
        assert_eq!(client.notice_version(), before);
        // The node daemon was killed before it changed the version.
        say(&socket, &encode(&DaemonMessage::Finalized(vec![Peer::new(JOB, 1)])));
        drop(socket);
        assert_eq!(client.notice_version(), before);
        client.check();
        assert_ne!(client.notice_version(), before);
        assert!(matches!(client.notice(), Some(Notice::Finalized(_))));
        assert!(matches!(client.notice(), Some(Notice::JobAborted { .. })));
        client.check();
        assert!(client.notice().is_none());
        assert_eq!(client.notice_version(), before);
    }

    #[test]
    fn without_pages_a_check_finds_each_notice_and_its_descriptor_is_readable() {
        let (address, daemon) = daemon(DaemonMessage::Welcome(Welcome { has_pages: false, ..welcome() }));
        let (mut client, pages) = Client::connect(&address).unwrap();
        let (socket, _) = daemon.join().unwrap();
        assert!(pages.bells.is_none());
        for _ in 0..3 {
            let before = client.notice_version();
            client.check();
            assert!(client.notice_version() == before && !is_readable(&client));
            say(&socket, &encode(&DaemonMessage::Alive(Peer::new(JOB, 1))));
            assert!(is_readable(&client));
            client.check();
            assert_ne!(client.notice_version(), before);
            assert!(matches!(client.notice(), Some(Notice::Alive(_))));
            assert!(client.notice().is_none());
        }
    }

    #[test]
    fn the_question_whether_it_runs_is_answered_when_notices_are_taken_and_hides_none_behind_it() {
        let (mut client, socket, _notices) = joined();
        say(&socket, &encode(&DaemonMessage::AreYouRunning(Peer::new(JOB, 1))));
        say(&socket, &encode(&DaemonMessage::Running(Peer::new(JOB, 1))));
        let answered = |socket: &OwnedFd| match receive(socket.as_fd(), MayBlock::No) {
            ReceiveResult::Packet(packet) => matches!(decode(&packet.bytes), Some(RankMessage::Running)),
            _ => false,
        };
        assert!(!answered(&socket), "a process that is stopped takes no notice");
        assert!(matches!(client.notice(), Some(Notice::Unheard(peer)) if peer.number() == 1));
        assert!(answered(&socket) && !answered(&socket));
        assert!(matches!(client.notice(), Some(Notice::Running(peer)) if peer.number() == 1));
        assert!(client.notice().is_none());
    }

    fn is_readable(client: &Client) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        assert_eq!(client.notice_descriptor(), Some(client.socket.as_raw_fd()));
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&client.socket, PollFlags::IN)], Some(&at_once)) == Ok(1)
    }

    /// The node daemon reads the card of a rank, with its descriptors.
    fn published(socket: &OwnedFd) -> Card {
        let ReceiveResult::Packet(packet) = receive(socket.as_fd(), MayBlock::No) else { panic!("no card") };
        let Some(RankMessage::Publish(mut card, carried)) = decode(&packet.bytes) else { panic!("no card") };
        carried.give(&mut card, packet.descriptors);
        card
    }

    #[test]
    fn a_marked_life_word_of_a_peer_in_contact_is_named_until_the_peer_ends() {
        let (mut client, socket, _notices) = joined();
        client.publish(&Card::default()).unwrap();
        let own = published(&socket).life.expect("the runtime adds the life page of its process");
        assert!(LifeView::map(own.as_fd(), Peer::new(JOB, 0)).is_ok());
        let peer = Peer::new(JOB, 1);
        let exited = |client: &mut Client| {
            let mut count = 0;
            client.check_peers(&mut |exited| count += u32::from(exited == peer));
            count
        };
        let (life, page) = Life::create(peer).unwrap();
        life.begin().unwrap();
        let card = Card { life: Some(Arc::new(page)), ..Card::default() };
        let contact = encode(&DaemonMessage::Contact(peer, card.clone(), Carried::of(&card)));
        let page = card.life.as_ref().unwrap();
        for end in [DaemonMessage::Failed(peer), DaemonMessage::Finalized(vec![peer])] {
            send(socket.as_fd(), &contact, &[page.as_fd()], MayBlock::No);
            let Some(Notice::Contact { card, .. }) = client.notice() else { panic!("silence") };
            assert!(card.life.is_none() && card.descriptor.is_none());
            assert_eq!(exited(&mut client), u32::from(matches!(end, DaemonMessage::Finalized(_))));
            life.mark_dying();
            assert_eq!((exited(&mut client), exited(&mut client)), (1, 1));
            say(&socket, &encode(&end));
            client.notice().unwrap();
            assert_eq!(exited(&mut client), 0);
        }
    }

    #[test]
    fn no_extra_version_equals_one_of_the_page() {
        let (mut client, socket, notice_page) = joined();
        client.readable = true;
        let extra_versions: Vec<u32> = (0..64).map(|_| client.notice_version()).collect();
        client.readable = false;
        for number in 0..64 {
            let version = client.notice_version();
            assert!(!extra_versions.contains(&version), "bump {number}");
            notice_page.bump(0);
        }
        drop(socket);
    }

    #[test]
    fn a_check_that_finds_a_packet_makes_the_version_change_until_it_is_read() {
        let (mut client, socket, _faults) = joined();
        let before = client.notice_version();
        say(&socket, &encode(&DaemonMessage::Alive(Peer::new(JOB, 1))));
        client.check();
        assert_ne!(client.notice_version(), before);
        assert!(matches!(client.notice(), Some(Notice::Alive(_))));
        assert!(client.notice().is_none());
        client.check();
        assert_eq!(client.notice_version(), before);
    }

    #[test]
    fn a_daemon_that_writes_garbage_is_not_trusted() {
        let other_job = encode(&DaemonMessage::Alive(Peer::new(Job(8), 1)));
        let ourselves = encode(&DaemonMessage::Failed(Peer::new(JOB, 0)));
        for bytes in [&b"garbage"[..], &[255; 4096], &other_job, &ourselves] {
            let (mut client, socket, _) = joined();
            say(&socket, bytes);
            say(&socket, &encode(&DaemonMessage::Alive(Peer::new(JOB, 1))));
            assert!(matches!(client.notice(), Some(Notice::JobAborted { .. })), "{bytes:?}");
            assert!(client.notice().is_none());
        }
    }

    #[test]
    fn a_slow_daemon_blocks_no_rank_and_gets_everything_in_order() {
        let (mut client, socket, _faults) = joined();
        let quiet = client.notice_version();
        let mut asked = 0;
        while client.notice_version() == quiet {
            client.lookup(Peer::new(JOB, 1)).unwrap();
            asked += 1;
        }
        client.lookup(Peer::new(JOB, 1)).unwrap();
        asked += 1;
        let mut received = 0;
        while received < asked {
            assert!(client.notice().is_none());
            while let ReceiveResult::Packet(packet) = receive(socket.as_fd(), MayBlock::No) {
                assert!(matches!(decode(&packet.bytes), Some(RankMessage::Lookup(_))));
                received += 1;
            }
        }
        assert_eq!(client.notice_version(), client.notice_version());
    }

    fn key(sequence: u32) -> ResultKey {
        ResultKey { identity: Identity { creator: Peer::new(JOB, 1), number: 20 }, protocol: 1, sequence }
    }

    #[test]
    fn results_reach_the_daemon_before_the_finalize_even_if_it_was_slow() {
        let (mut client, socket, _faults) = joined();
        let quiet = client.notice_version();
        let mut left = 0;
        while client.notice_version() == quiet {
            client.leave_result(key(left), &[7; RESULT_BYTES_MAX]);
            left += 1;
        }
        client.leave_result(key(left), b"the last");
        let rank = std::thread::spawn(move || client.finalize());
        for sequence in 0..left {
            let ReceiveResult::Packet(packet) = receive(socket.as_fd(), MayBlock::Yes) else {
                panic!("silence")
            };
            let Some(RankMessage::LeaveResult(read, result)) = decode(&packet.bytes) else {
                panic!("{packet:?}")
            };
            assert_eq!((read, result), (key(sequence), vec![7; RESULT_BYTES_MAX]));
        }
        let next = || match receive(socket.as_fd(), MayBlock::Yes) {
            ReceiveResult::Packet(packet) => decode::<RankMessage>(&packet.bytes),
            _ => None,
        };
        assert!(
            matches!(next(), Some(RankMessage::LeaveResult(read, result)) if read == key(left) && result == b"the last")
        );
        assert!(matches!(next(), Some(RankMessage::Finalize)));
        rank.join().unwrap();
    }

    #[test]
    fn what_a_process_says_of_its_transports_reaches_the_daemon_before_the_finalize() {
        let (mut client, socket, _faults) = joined();
        let mut view = TransportView::default();
        view.add_reached("self", [0]);
        view.add_not_used(&["shm: left out".to_owned()]);
        client.report_transports(&view);
        client.finalize();
        let mut read = TransportView::default();
        let next = || match receive(socket.as_fd(), MayBlock::No) {
            ReceiveResult::Packet(packet) => decode::<RankMessage>(&packet.bytes),
            _ => None,
        };
        while !read.is_complete() {
            let Some(RankMessage::Transport(part)) = next() else { panic!("{read:?}") };
            assert!(read.take(part, 2));
        }
        assert_eq!((read.reached(), read.not_used()), (view.reached(), view.not_used()));
        assert!(matches!(next(), Some(RankMessage::Finalize)));
    }

    #[test]
    fn a_recalled_result_is_a_notice() {
        let (mut client, socket, _faults) = joined();
        client.recall_result(key(3));
        let ReceiveResult::Packet(packet) = receive(socket.as_fd(), MayBlock::No) else { panic!("silence") };
        assert!(matches!(decode(&packet.bytes), Some(RankMessage::RecallResult(asked)) if asked == key(3)));
        for answer in [Some(vec![5; RESULT_BYTES_MAX]), None] {
            say(&socket, &encode(&DaemonMessage::Recalled(key(3), answer.clone())));
            let Some(Notice::Recalled { key: read, result }) = client.notice() else { panic!("silence") };
            assert_eq!((read, result), (key(3), answer));
        }
    }

    #[test]
    fn abort_some_names_each_peer_once_in_packets_of_bounded_size_and_the_caller_last() {
        let (mut client, socket, _faults) = joined();
        let others = (1..=300).map(|number| Peer::new(JOB, number));
        let peers: Vec<Peer> = [Peer::new(JOB, 0), Peer::new(Job(8), 1)].into_iter().chain(others).collect();
        client.abort_some(7, &peers);
        client.abort_some(7, &[]);
        let mut received = vec![];
        while let ReceiveResult::Packet(packet) = receive(socket.as_fd(), MayBlock::No) {
            let Some(RankMessage::AbortSome(7, part)) = decode(&packet.bytes) else { panic!("{packet:?}") };
            assert!((1..=ABORT_SOME_MAX).contains(&part.len()));
            received.extend(part.iter().map(|peer| (peer.job(), peer.number())));
        }
        let wanted: Vec<_> = (1..=300).chain([0]).map(|number| (JOB, number)).collect();
        assert_eq!(received, wanted);
    }

    #[test]
    fn a_client_that_is_dropped_before_finalize_gives_up_and_no_other_does() {
        for finalizes in [true, false] {
            let (mut client, socket, _faults) = joined();
            if finalizes {
                client.finalize();
            }
            drop(client);
            let received = || match receive(socket.as_fd(), MayBlock::No) {
                ReceiveResult::Packet(packet) => decode::<RankMessage>(&packet.bytes),
                _ => None,
            };
            let first = received();
            let well = if finalizes {
                matches!(first, Some(RankMessage::Finalize))
            } else {
                matches!(first, Some(RankMessage::GiveUp))
            };
            assert!(well && received().is_none());
        }
        let (address, daemon) = daemon(DaemonMessage::Welcome(Welcome { node_slots: 900, ..welcome() }));
        assert!(matches!(Client::connect(&address), Err(StartError::Pages(_))));
        let (socket, _) = daemon.join().unwrap();
        let ReceiveResult::Packet(packet) = receive(socket.as_fd(), MayBlock::No) else { panic!("silence") };
        assert!(matches!(decode(&packet.bytes), Some(RankMessage::GiveUp)));
    }

    #[test]
    fn a_process_whose_hello_is_refused_is_told_why() {
        let (address, daemon) = daemon(DaemonMessage::HelloRefused(HelloRefused::LayoutDiffers(77)));
        let refused = Client::connect(&address).unwrap_err();
        assert!(matches!(refused, StartError::HelloRefused(HelloRefused::LayoutDiffers(77))));
        assert!(refused.to_string().contains("layout 77"));
        drop(daemon.join().unwrap());
    }

    #[test]
    fn questions_about_peers_of_other_jobs_are_not_passed_on() {
        let (mut client, _socket, _faults) = joined();
        for foreign in [Peer::new(Job(8), 1), Peer::new(JOB, 0)] {
            assert_eq!(client.lookup(foreign), Err(RuntimeError::NoSuchPeer));
        }
        assert_eq!(client.publish(&Card::default()), Ok(()));
        assert_eq!(client.publish(&Card::default()), Err(RuntimeError::PublishedTwice));
    }
}
