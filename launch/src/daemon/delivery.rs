// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends notices to ranks. A notice is sent when the rank's socket has room; after the packet is in the socket, the rank's version
//! on the notice page is incremented, and the rank is woken.

use super::connections::Connections;
use mend_daemon::NodeDaemon;
use mend_runtime::carried::Carried;
use mend_runtime::daemon_protocol::{DaemonMessage, encode};
use mend_runtime::packet::{MayBlock, Sent, send};
use mend_segment::{BellPage, HelperCalls, NoticePage, SegmentError};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The shared pages of the node, and the time of the next retry.
#[derive(Debug)]
pub struct Delivery {
    /// `None` where the system gives none: then ranks see notices at their sockets alone.
    pages: Option<Pages>,
    slots: u32,
    /// Set while some socket has no room: when to try again, and the pause before that time.
    retry: Option<(Instant, Duration)>,
}

#[derive(Debug)]
struct Pages {
    bells: BellPage,
    bells_file: OwnedFd,
    notice_page: NoticePage,
    notice_file: OwnedFd,
}

impl Pages {
    fn create(slots: u32) -> Result<Self, SegmentError> {
        let (bells, bells_file) = BellPage::create(slots)?;
        let (notice_page, notice_file) = NoticePage::create(slots)?;
        Ok(Pages { bells, bells_file, notice_page, notice_file })
    }
}

/// Result of an attempt to send one rank all its notices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Sent,
    NoRoom,
}

impl Delivery {
    /// For a node with `slots` slots.
    pub fn new(slots: u32) -> Result<Self, SegmentError> {
        Ok(Delivery { pages: Some(Pages::create(slots)?), slots, retry: None })
    }

    /// For a node that has no memory to share.
    pub fn without_pages(slots: u32) -> Self {
        Delivery { pages: None, slots, retry: None }
    }

    /// How many slots the node has.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The descriptors of bell page and notice page, if there are any.
    pub fn pages(&self) -> Vec<BorrowedFd<'_>> {
        let Some(Pages { bells_file, notice_file, .. }) = &self.pages else { return vec![] };
        vec![bells_file.as_fd(), notice_file.as_fd()]
    }

    /// When to try again, if some socket had no room.
    pub fn retry_at(&self) -> Option<Instant> {
        self.retry.map(|(at, _)| at)
    }

    /// Ranks yield to a rank that waits on their processor: notes in the bell page that `rank`, which has ended, waits no more.
    pub fn clear_processor(&self, rank: u32) {
        if let Some(pages) = &self.pages {
            pages.bells.set_processor(rank, None);
        }
    }

    /// Sends each rank its notices, as far as there is room.
    pub fn send_all(&mut self, node_daemon: &mut NodeDaemon, connections: &Connections) {
        let mut without_room = false;
        for rank in node_daemon.due() {
            let Some(socket) = connections.socket_of(rank) else { continue };
            without_room |= self.send(node_daemon, rank, socket) == Outcome::NoRoom;
        }
        let pause = self.retry.map_or(PAUSE_MIN, |(_, pause)| (2 * pause).min(PAUSE_MAX));
        self.retry = without_room.then(|| (Instant::now() + pause, pause));
    }

    fn send(&self, node_daemon: &mut NodeDaemon, rank: u32, socket: BorrowedFd<'_>) -> Outcome {
        let mut outcome = Outcome::Sent;
        let mut any = false;
        while let Some((message, step)) = node_daemon.next_notice(rank) {
            let with: Vec<_> = match &message {
                DaemonMessage::Contact(_, card, _) => Carried::descriptors(card).map(AsFd::as_fd).collect(),
                _ => vec![],
            };
            match send(socket, &encode(&message), &with, MayBlock::No) {
                Sent::Yes => {
                    any = true;
                    node_daemon.on_sent(rank, step);
                }
                Sent::Busy => {
                    outcome = Outcome::NoRoom;
                    break;
                }
                // The rank's connection has failed, and the loop will be told.
                Sent::Closed => break,
            }
        }
        if let Some(pages) = self.pages.as_ref().filter(|_| any) {
            // The node slot of a rank is its number (`Membership::node_slots`).
            pages.notice_page.bump(rank);
            pages.bells.wake(rank);
            pages.bells.call_helper(rank, HelperCalls::SERVE);
        }
        outcome
    }
}

const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::Delivery;
    use mend_segment::BellPage;

    #[test]
    fn no_rank_yields_to_one_that_has_ended() {
        let delivery = Delivery::new(4).unwrap();
        let rank = BellPage::map(delivery.pages()[0], 4).unwrap();
        rank.set_processor(1, Some(7));
        assert_eq!(rank.next_on_processor(0, 7, 0, 4), Some(1));
        delivery.clear_processor(1);
        assert_eq!(rank.next_on_processor(0, 7, 0, 4), None);
    }
}
