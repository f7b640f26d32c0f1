// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much of what one peer sends may wait here unmatched: flow control on the receiver's side, and the buffers.
//!
//! Every message that no receive has taken costs [`MESSAGE_COST`] and its bytes on its sender's account, the early ones of
//! communicators that are not created here included.
//!
//! ```text
//!   held bytes  0 ────────────── held_bytes_max ─────────────────── + excess ──▶
//!                  eager             │  XOFF sent; the peer reads it      │  no memory for it
//!                       XON at half ─┘  and sends RTSes alone
//! ```
//!
//! - After an XOFF a correct peer sends eager messages only until it reads it. It starts [`STARTS_PER_PROGRESS`] messages at most
//!   between two calls of progress, where each [`AT_ONCE_BYTES_MAX`] bytes of a longer one count as one, and the transport delivers control messages within a few calls. The *excess* is what it sends
//!   in [`PROGRESSES_MAX`] calls. A peer that sends more may have read the XOFF late, since the XOFF may wait for room here:
//!   a delay is no proof of garbage (Trap 19). So it is not treated as garbage; its message is refused as if memory had run out
//!   (`BudgetError::NoMemory`).
//! - RTSes and synchronous messages, which XOFF does not stop, are bounded by their sender: it has at most
//!   [`RTS_MAX`](crate::rendezvous::RTS_MAX) without an answer at each receiver. A peer that sends more writes garbage.
//!
//! The most that one peer can make this process hold is so `held_bytes_max` + excess + twice `RTS_MAX` times the cost of a
//! message, and `RTS_MAX` remote keys: 4 MiB + 16.5 MiB + 64 MiB + 24 MiB by default, and 16 of the longest eager messages if these are
//! longer than 4 KiB.
//!
//! Where memory runs out before that, XOFF is sent at once, and the message takes one of the buffers that were reserved
//! for this case. Where these are used up too, the message cannot be stored: the caller gives up the connection
//! (`Cause::NoMemory`), and both ends are notified that they cannot reach each other.

use crate::paged::Paged;
use crate::rendezvous::RTS_MAX;
use crate::routes::AT_ONCE_BYTES_MAX;
use crate::send_queues::STARTS_PER_PROGRESS;
use mend_base::PeerIndex;
use mend_transport::{Payload, RemoteKey};

/// The accounts of all peers.
#[derive(Debug)]
pub(crate) struct ReceiveBudget {
    held_bytes_max: u64,
    /// The longest eager message of any peer, and so the length of a reserved buffer. Peers may write before they are connected here.
    eager_bytes: usize,
    accounts: Paged<Account>,
    /// Buffers of messages that were taken, for the next. The first [`RESERVE`] are for when there is no memory.
    spare: Vec<Vec<u8>>,
    /// The last message that was stored passed its sender's limit, or memory was short.
    over: bool,
    #[cfg(test)]
    refuses: bool,
}

/// What one peer has here.
#[derive(Default, Debug)]
struct Account {
    held_bytes: u64,
    /// Messages whose sender waits for an answer.
    unanswered: u32,
    xoff_sent: bool,
}

/// Why a message was not stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BudgetError {
    /// No correct peer sends so many messages that wait for an answer.
    TooMany,
    /// There is no memory, or the peer has its share of it.
    NoMemory,
}

/// What a message costs besides its bytes.
const MESSAGE_COST: u64 = 128;

/// The calls of progress that a peer may need to read an XOFF. The transport for shared memory needs 4 for a bell, and one
/// for each 32 other peers that send control messages to that peer at the same time.
const PROGRESSES_MAX: u64 = 16;

/// How much longer than twice its message a spare buffer may be, in bytes; below [`MESSAGE_COST`].
const WASTE_MAX: usize = 64;

/// The most spare buffers.
const SPARE_MAX: usize = 64;

/// The spare buffers reserved for when there is no memory.
const RESERVE: usize = 16;

/// What a peer may send after an XOFF until it has read it, with this eager limit. The last message of each call of progress may be a
/// long one.
fn excess(eager_bytes: usize) -> u64 {
    let eager_bytes = eager_bytes as u64;
    let start = MESSAGE_COST + eager_bytes.min(AT_ONCE_BYTES_MAX.into());
    PROGRESSES_MAX * (u64::from(STARTS_PER_PROGRESS) * start + eager_bytes)
}

impl ReceiveBudget {
    /// `eager_bytes`: what this process accepts before a match. Until a peer is connected, its transport may have such a limit, up to
    /// [`AT_ONCE_BYTES_MAX`].
    pub(crate) fn new(held_bytes_max: u64, eager_bytes: u32) -> Self {
        ReceiveBudget {
            held_bytes_max,
            eager_bytes: eager_bytes.min(AT_ONCE_BYTES_MAX.into()) as usize,
            accounts: Paged::default(),
            spare: Vec::new(),
            over: false,
            #[cfg(test)]
            refuses: false,
        }
    }

    /// Makes room for what is known of a peer, which sends so many bytes at most before a match.
    pub(crate) fn add_peer(&mut self, peer: PeerIndex, eager_bytes: u32) {
        self.accounts.at(peer.index());
        if eager_bytes as usize > self.eager_bytes {
            self.eager_bytes = eager_bytes as usize;
            // Reserved buffers are as long as the longest message: new ones take their places.
            self.spare.clear();
        }
    }

    /// Keeps the bytes of a message, on its sender's account. `unanswered`: the sender waits for an answer; `short`: memory
    /// runs out elsewhere.
    pub(crate) fn store(
        &mut self,
        from: PeerIndex,
        payload: Payload<'_>,
        unanswered: bool,
        short: bool,
    ) -> Result<Vec<u8>, BudgetError> {
        let cost = MESSAGE_COST + payload.len() as u64;
        let account = self.accounts.at(from.index());
        let held_bytes = account.held_bytes + cost;
        self.over = short || held_bytes > self.held_bytes_max;
        if self.over || unanswered {
            account.check(held_bytes, unanswered, self.held_bytes_max + excess(self.eager_bytes))?;
        }
        account.held_bytes = held_bytes;
        account.unanswered += u32::from(unanswered);
        let buffer = match self.buffer(payload.len()) {
            Some(buffer) => Some(buffer),
            None => self.reserved(payload.len()),
        };
        let Some(mut bytes) = buffer else {
            let account = self.accounts.at(from.index());
            account.held_bytes -= cost;
            account.unanswered -= u32::from(unanswered);
            return Err(BudgetError::NoMemory);
        };
        payload.copy_to_slice(&mut bytes);
        Ok(bytes)
    }

    /// Whether the sender of the message that was stored last may need an XOFF.
    #[inline]
    pub(crate) fn is_exceeded(&self) -> bool {
        self.over
    }

    /// Whether an XOFF is to be sent to the peer: once until an XON.
    pub(crate) fn needs_xoff(&mut self, from: PeerIndex) -> bool {
        !core::mem::replace(&mut self.accounts.at(from.index()).xoff_sent, true)
    }

    /// A buffer of so many bytes: a spare one above the reserve, or a new one. A spare one that is too short is freed, and so is one
    /// that is so long that the message would cost much more than its account says.
    #[inline]
    fn buffer(&mut self, bytes: usize) -> Option<Vec<u8>> {
        // Of a buffer that is too short the difference wraps around, and is too great.
        let fits = |buffer: &Vec<u8>| buffer.capacity().wrapping_sub(bytes) <= bytes + WASTE_MAX;
        let spare = if self.spare.len() > RESERVE { self.spare.pop() } else { None };
        let mut buffer = match spare {
            Some(buffer) if fits(&buffer) => buffer,
            Some(_) | None => self.new_buffer(bytes)?,
        };
        buffer.resize(bytes, 0);
        Some(buffer)
    }

    #[cold]
    fn new_buffer(&mut self, bytes: usize) -> Option<Vec<u8>> {
        #[cfg(test)]
        if self.refuses && bytes > 0 {
            return None;
        }
        if bytes > 0 && mend_base::allocation_fails() {
            return None;
        }
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(bytes).ok()?;
        if self.spare.len() < RESERVE {
            let mut reserved = Vec::new();
            if self.spare.try_reserve(SPARE_MAX).is_ok()
                && reserved.try_reserve_exact(self.eager_bytes).is_ok()
            {
                self.spare.push(reserved);
            }
        }
        Some(buffer)
    }

    #[cold]
    fn reserved(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let at = self.spare.iter().position(|buffer| buffer.capacity() >= bytes)?;
        mend_base::reach!("pml.budget: a reserved buffer");
        self.over = true;
        let mut buffer = self.spare.swap_remove(at);
        buffer.resize(bytes, 0);
        Some(buffer)
    }

    /// A message has been taken, or dropped: its cost leaves its sender's account. Whether the sender is to be sent an XON.
    pub(crate) fn release(&mut self, from: PeerIndex, bytes: usize, unanswered: bool) -> bool {
        let account = self.accounts.at(from.index());
        account.held_bytes -= MESSAGE_COST + bytes as u64;
        account.unanswered -= u32::from(unanswered);
        account.held_bytes <= self.held_bytes_max / 2 && core::mem::replace(&mut account.xoff_sent, false)
    }

    /// The buffer of a message that has been taken.
    #[inline]
    pub(crate) fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < self.spare.capacity().min(SPARE_MAX) && buffer.capacity() > 0 {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// What all messages that are here cost, in bytes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.accounts.iter().map(|account| account.held_bytes).sum()
    }

    /// From now on there is no memory for a buffer.
    #[cfg(test)]
    pub(crate) fn refuse(&mut self, refuses: bool) {
        self.refuses = refuses;
    }
}

impl Account {
    /// Whether the peer may hold `held_bytes` here with one more message. The limit `most` is raised by two message costs and a
    /// remote key for each unanswered message: one cost for the message, one for the message that may cancel it.
    fn check(&self, held_bytes: u64, unanswered: bool, most: u64) -> Result<(), BudgetError> {
        let waiting = self.unanswered + u32::from(unanswered);
        if waiting > RTS_MAX {
            return Err(BudgetError::TooMany);
        }
        if held_bytes > most + u64::from(waiting) * (2 * MESSAGE_COST + RemoteKey::BYTES_MAX as u64) {
            return Err(BudgetError::NoMemory);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{BudgetError, MESSAGE_COST, ReceiveBudget};
    use crate::rendezvous::RTS_MAX;
    use mend_base::PeerIndex;
    use mend_transport::Payload;

    const PEER: PeerIndex = PeerIndex(1);

    fn store(budget: &mut ReceiveBudget, bytes: &[u8], unanswered: bool) -> Result<bool, BudgetError> {
        let stored = budget.store(PEER, Payload::from(bytes), unanswered, false)?;
        assert_eq!(stored, bytes);
        budget.recycle(stored);
        Ok(budget.is_exceeded() && budget.needs_xoff(PEER))
    }

    #[test]
    fn an_xoff_goes_once_above_the_most_and_an_xon_once_at_half_of_it() {
        let mut budget = ReceiveBudget::new(1000, 64);
        let answers: Vec<_> = (0..5).map(|_| store(&mut budget, &[7; 172], false)).collect();
        assert_eq!(answers, [Ok(false), Ok(false), Ok(false), Ok(true), Ok(false)]);
        assert_eq!(budget.held_bytes(), 1500);
        let answers: Vec<_> = (0..5).map(|_| budget.release(PEER, 172, false)).collect();
        assert_eq!(answers, [false, false, false, true, false]);
        assert_eq!(budget.held_bytes(), 0);
    }

    #[test]
    fn there_is_no_memory_for_a_peer_that_goes_on_for_long_after_an_xoff() {
        let mut budget = ReceiveBudget::new(10_000, 64);
        let mut stored = 0;
        while stored < 100_000 && store(&mut budget, &[1; 64], false).is_ok() {
            stored += 1;
        }
        assert_eq!(store(&mut budget, &[1; 64], false), Err(BudgetError::NoMemory));
        let most = (10_000 + 16 * (256 * (64 + MESSAGE_COST) + 64)) / (64 + MESSAGE_COST);
        assert_eq!(stored, most);
        assert!(budget.store(PeerIndex(2), Payload::from(&[1][..]), false, false).is_ok(), "another peer");
    }

    #[test]
    fn messages_that_are_here_take_no_more_than_twice_what_their_account_says() {
        for short in [0, 1, 100] {
            let mut budget = ReceiveBudget::new(1 << 20, 4096);
            let mut stored = vec![];
            while !budget.is_exceeded() {
                // A long message that a receive takes, then a short one that stays.
                let long = budget.store(PEER, Payload::from(&[1; 4096][..]), false, false).unwrap();
                budget.release(PEER, long.len(), false);
                budget.recycle(long);
                let short = vec![2; short];
                stored.push(budget.store(PEER, Payload::from(&short[..]), false, false).unwrap());
            }
            let bytes: usize = stored.iter().map(Vec::capacity).sum();
            assert!(bytes as u64 <= 2 * budget.held_bytes(), "{bytes} of {}", budget.held_bytes());
        }
    }

    #[test]
    fn the_buffer_of_a_message_serves_the_next_one_of_its_length() {
        let mut budget = ReceiveBudget::new(1 << 20, 64);
        let first: Vec<_> =
            (0..20).map(|_| budget.store(PEER, Payload::from(&[1; 8][..]), false, false).unwrap()).collect();
        first.into_iter().for_each(|bytes| budget.recycle(bytes));
        budget.refuse(true);
        for _ in 0..100 {
            let bytes = budget.store(PEER, Payload::from(&[1; 8][..]), false, false).unwrap();
            assert!(bytes.capacity() < 100 && !budget.is_exceeded());
            budget.release(PEER, 8, false);
            budget.recycle(bytes);
        }
    }

    #[test]
    fn messages_that_wait_for_an_answer_are_bounded_by_their_number() {
        let mut budget = ReceiveBudget::new(10_000, 64);
        (0..RTS_MAX).for_each(|_| assert!(store(&mut budget, &[], true).is_ok()));
        assert_eq!(store(&mut budget, &[], true), Err(BudgetError::TooMany));
        budget.release(PEER, 0, true);
        assert!(store(&mut budget, &[], true).is_ok());
    }

    #[test]
    fn without_memory_an_xoff_goes_at_once_and_reserved_buffers_last_for_a_while() {
        let mut budget = ReceiveBudget::new(4 << 20, 64);
        let stored: Vec<_> =
            (0..40).map(|_| budget.store(PEER, Payload::from(&[1; 64][..]), false, false).unwrap()).collect();
        budget.refuse(true);
        let mut xoffs = vec![];
        while xoffs.len() < 100 && budget.store(PEER, Payload::from(&[2; 64][..]), false, false).is_ok() {
            xoffs.push(budget.is_exceeded() && budget.needs_xoff(PEER));
        }
        assert_eq!((xoffs.len(), xoffs[0], xoffs[1]), (16, true, false));
        let held = budget.held_bytes();
        assert_eq!(budget.store(PEER, Payload::from(&[2; 64][..]), false, false), Err(BudgetError::NoMemory));
        assert_eq!(budget.held_bytes(), held);
        // What is taken becomes the reserve again.
        let taken = stored.into_iter().next().unwrap();
        assert!(budget.release(PEER, 64, false), "an XON: little is held");
        budget.recycle(taken);
        assert!(budget.store(PEER, Payload::from(&[2; 64][..]), false, false).is_ok());
    }

    #[test]
    fn reserved_buffers_are_as_long_as_the_longest_eager_message_of_a_peer_that_is_connected() {
        let mut budget = ReceiveBudget::new(4 << 20, 64);
        budget.add_peer(PEER, 64);
        let fill = |budget: &mut ReceiveBudget| {
            (0..16).for_each(|_| _ = budget.store(PEER, Payload::from(&[1; 8][..]), false, false).unwrap());
        };
        fill(&mut budget);
        budget.add_peer(PeerIndex(2), 10_000);
        fill(&mut budget);
        budget.refuse(true);
        let long = [2; 10_000];
        assert!(budget.store(PeerIndex(2), Payload::from(&long[..]), false, false).is_ok());
    }

    #[test]
    fn where_memory_is_short_elsewhere_an_xoff_goes_too() {
        let mut budget = ReceiveBudget::new(4 << 20, 64);
        assert!(budget.store(PEER, Payload::from(&[2; 8][..]), false, true).is_ok());
        assert!(budget.is_exceeded() && budget.needs_xoff(PEER) && !budget.needs_xoff(PEER));
    }
}
