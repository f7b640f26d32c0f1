// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Identities and context ids of communicators, and messages for communicators that are not created yet (design "Context ids").
//!
//! Processes do not agree on context ids. Each *receiver* chooses an id for a context of a communicator, announces the id to the
//! senders, and reuses the id when every such sender has confirmed that it does not use the id any more:
//!
//! ```text
//!   sender                                         receiver
//!     │ ── message, full identity ─────────────────▶ │  open: deliver, announce once; not created: store; retired: refuse
//!     │ ◀───────────────────── Announce(name, id) ── │  a control message: may arrive at any time
//!     │ ── message, id ────────────────────────────▶ │  resolve(id) = Assigned
//!     │ ◀────────────────────── Retire(name, id) ─── │  closed here; resolve(id) = Retiring: drop or refuse
//!     │ ── Retired(id), after the last use of id ──▶ │  id may be reused
//! ```
//!
//! No id is reused while a message with it is in flight. This follows from two orders. First, `Announce` and `Retire` of one receiver are
//! control messages and arrive in the order in which they were sent, so a sender never learns an id after it was told to drop this id.
//! Second, `Retired` is sent in the queue of *data messages*, so it cannot overtake a message that carries the id. (With several rails it
//! must be sent after the last message of each.) A peer that has ended counts as having confirmed when nothing of it can arrive
//! any more. A sender that never confirms keeps one id from being reused, and delays nothing. If no id is free, a new
//! communicator gets none, and its messages carry the full identity, which is always correct.
//!
//! A context *name* is retired too, when the communicator is closed here (revoked before or not) or its creation has failed. A retired name is never used
//! again, but messages with the full identity may still come from a member that learned no id, and must be refused and not stored
//! as early. So every process stores the retired names for ever ([`EarlyMessages`]): as intervals of the numbers of each creator,
//! so that an unbroken run of retired numbers takes constant memory. A *gap* is a number between retired ones that is not retired
//! here; each gap costs memory (at most a word of 64 names).

mod contexts;
mod early_messages;
mod retired;

pub use contexts::{Contexts, Resolved};
pub use early_messages::{EarlyMessages, Retirement};
pub use retired::RetiredNames;

use mend_base::{ContextKind, Identity, Peer, Reader, Wire, Writer};

/// The name of one context: the scope of matching. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct ContextName {
    /// The communicator.
    pub identity: Identity,
    /// Which of the contexts of the communicator.
    pub context_kind: ContextKind,
}

impl Wire for ContextName {
    const BYTES_MAX: usize = ContextKind::BYTES_MAX + Identity::BYTES_MAX;

    fn write(&self, out: &mut Writer<'_>) {
        self.context_kind.write(out);
        self.identity.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let context_kind = ContextKind::read(from)?;
        Some(ContextName { context_kind, identity: Identity::read(from)? })
    }
}

/// Allocates identities with this process as creator. A process has one allocator, so that no identity is allocated twice (I5).
///
/// Numbers are allocated upwards without gaps, because a number that is never used would be a gap in the retired names of every
/// process, which costs memory (see the head of this file).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct IdentityAllocator {
    me: Peer,
    /// All numbers from `FIRST` to below this are allocated, except those in `returned`.
    next: u32,
    /// Numbers that were allocated and given back. At most as many as communicators were created at the same time.
    returned: Vec<u32>,
    /// All numbers from this on are of communicators whose only member is this process.
    alone: u32,
}

impl IdentityAllocator {
    /// The first number that is allocated. Numbers below it are for communicators that every process of a job has from the start (WORLD).
    pub const FIRST: u32 = 16;

    /// The allocator of process `me`.
    pub fn new(me: Peer) -> Self {
        Self::with_end(me, u32::MAX)
    }

    /// The same, of the numbers below `end`.
    pub fn with_end(me: Peer, end: u32) -> Self {
        IdentityAllocator { me, next: Self::FIRST, returned: Vec::new(), alone: end }
    }

    /// An identity that no communicator has had; `None`: all numbers are allocated.
    pub fn allocate(&mut self) -> Option<Identity> {
        if let Some(number) = self.returned.pop() {
            return Some(self.named(number));
        }
        if self.next == self.alone {
            return None;
        }
        self.next += 1;
        Some(self.named(self.next - 1))
    }

    /// As [`allocate`](Self::allocate), for a communicator whose only member is this process. Such numbers are allocated downwards, so they
    /// are no gaps in what other processes retire.
    pub fn allocate_alone(&mut self) -> Option<Identity> {
        if self.next == self.alone {
            return None;
        }
        self.alone -= 1;
        Some(self.named(self.alone))
    }

    /// Takes back an identity that no process has used, because another member chose the identity of the communicator. An identity that any
    /// process may have used, as after a creation that failed, must not be given back. One that was [allocated
    /// alone](Self::allocate_alone) leaves no gap and is not allocated again.
    pub fn give_back(&mut self, identity: Identity) {
        if identity.creator == self.me && identity.number >= self.alone {
            return;
        }
        let allocated = (Self::FIRST..self.next).contains(&identity.number);
        assert!(
            identity.creator == self.me && allocated && !self.returned.contains(&identity.number),
            "an identity is given back once, by the process that allocated it"
        );
        self.returned.push(identity.number);
    }

    fn named(&self, number: u32) -> Identity {
        Identity { creator: self.me, number }
    }
}

#[cfg(test)]
mod tests {
    use super::{ContextName, Contexts, EarlyMessages, IdentityAllocator, Resolved, Retirement};
    use mend_base::{ContextId, ContextKind, Identity, Job, Peer, PeerIndex, Random};
    use std::collections::{BTreeMap, BTreeSet, VecDeque};

    const PROCESSES: usize = 4;

    /// A data message. Data messages of one pair arrive in order.
    #[derive(Clone, Copy, Debug)]
    enum Message {
        Named { name: ContextName, serial: u32 },
        Short { id: ContextId, meant: ContextName, serial: u32 },
        Retired(ContextId),
    }

    /// A control message. Control messages of one pair arrive in order, before or after data messages.
    #[derive(Clone, Copy, Debug)]
    enum Control {
        Announce(ContextName, ContextId),
        Retire(ContextName, ContextId),
    }

    /// One process. The seed decides when it opens, uses and closes communicators.
    struct Process {
        contexts: Contexts<ContextName>,
        open: BTreeMap<ContextName, Option<ContextId>>,
        announced: BTreeSet<(ContextName, usize)>,
        early_messages: EarlyMessages<(ContextName, u32)>,
        names_of_peers: BTreeMap<(usize, ContextName), ContextId>,
        serial: BTreeMap<(usize, ContextName), u32>,
        seen: BTreeMap<(usize, ContextName), u32>,
    }

    struct World {
        processes: Vec<Process>,
        messages: Vec<Vec<VecDeque<Message>>>,
        control: Vec<Vec<VecDeque<Control>>>,
        delivered: u64,
        short: u64,
    }

    impl World {
        fn new(ids: usize) -> Self {
            let process = |_| Process {
                contexts: Contexts::with_ids(ids),
                open: BTreeMap::new(),
                announced: BTreeSet::new(),
                early_messages: EarlyMessages::new(),
                names_of_peers: BTreeMap::new(),
                serial: BTreeMap::new(),
                seen: BTreeMap::new(),
            };
            World {
                processes: (0..PROCESSES).map(process).collect(),
                messages: vec![vec![VecDeque::new(); PROCESSES]; PROCESSES],
                control: vec![vec![VecDeque::new(); PROCESSES]; PROCESSES],
                delivered: 0,
                short: 0,
            }
        }

        fn open(&mut self, at: usize, name: ContextName) {
            let process = &mut self.processes[at];
            if process.open.contains_key(&name) || process.early_messages.is_retired(name) {
                return;
            }
            let id = process.contexts.open(name);
            process.open.insert(name, id);
            for (from, (name, serial)) in process.early_messages.take(name) {
                self.deliver(at, from.index(), name, serial);
            }
        }

        fn close(&mut self, at: usize, name: ContextName) {
            let process = &mut self.processes[at];
            let Some(id) = process.open.remove(&name) else { return };
            process.early_messages.retire(name, Retirement::Closed);
            let Some(id) = id else { return };
            for peer in process.contexts.close(id) {
                self.control[at][peer.index()].push_back(Control::Retire(name, id));
            }
        }

        fn send(&mut self, from: usize, to: usize, name: ContextName) {
            let process = &mut self.processes[from];
            if !process.open.contains_key(&name) {
                return;
            }
            let next = process.serial.entry((to, name)).or_default();
            let serial = *next;
            *next += 1;
            let message = match process.names_of_peers.get(&(to, name)) {
                Some(&id) => Message::Short { id, meant: name, serial },
                None => Message::Named { name, serial },
            };
            self.messages[from][to].push_back(message);
        }

        fn deliver(&mut self, at: usize, from: usize, name: ContextName, serial: u32) {
            self.delivered += 1;
            let process = &mut self.processes[at];
            let seen = process.seen.entry((from, name)).or_default();
            assert_eq!(*seen, serial, "out of order");
            *seen += 1;
            if process.announced.insert((name, from))
                && let Some(id) = process.open[&name]
            {
                assert!(process.contexts.announce(id, PeerIndex(from as u32)));
                self.control[at][from].push_back(Control::Announce(name, id));
            }
        }

        fn take_message(&mut self, from: usize, at: usize) {
            let Some(message) = self.messages[from][at].pop_front() else { return };
            let process = &mut self.processes[at];
            let peer = PeerIndex(from as u32);
            match message {
                Message::Retired(id) => assert!(process.contexts.retirement_confirmed(id, peer)),
                Message::Named { name, serial } if process.open.contains_key(&name) => {
                    self.deliver(at, from, name, serial)
                }
                Message::Named { name, .. } if process.early_messages.is_retired(name) => {}
                Message::Named { name, serial } => {
                    process.early_messages.store(name, peer, (name, serial)).unwrap()
                }
                Message::Short { id, meant, serial } => match process.contexts.resolve(id, peer) {
                    Resolved::Assigned(name) => {
                        assert_eq!(name, meant, "an id was reused too early");
                        self.short += 1;
                        self.deliver(at, from, name, serial);
                    }
                    Resolved::Retiring => assert!(!process.open.contains_key(&meant)),
                    Resolved::Unknown => panic!("a correct sender's id is always known"),
                },
            }
        }

        fn take_control(&mut self, from: usize, at: usize) {
            match self.control[from][at].pop_front() {
                Some(Control::Announce(name, id)) => {
                    self.processes[at].names_of_peers.insert((from, name), id);
                }
                Some(Control::Retire(name, id)) => {
                    assert_eq!(self.processes[at].names_of_peers.remove(&(from, name)), Some(id));
                    self.messages[at][from].push_back(Message::Retired(id));
                }
                None => {}
            }
        }
    }

    fn name(creator: u64, number: u64, context_kind: u64) -> ContextName {
        let context_kind =
            if context_kind == 0 { ContextKind::PointToPoint } else { ContextKind::Collective };
        ContextName { identity: Identity { creator: Peer(creator), number: number as u32 }, context_kind }
    }

    fn history(seed: u64, ids: usize) -> World {
        let mut random = Random(seed);
        let mut world = World::new(ids);
        let mut created = 4;
        for step in 0..3_000 {
            let at = random.below(PROCESSES as u64) as usize;
            let other = random.below(PROCESSES as u64) as usize;
            let number = created - 1 - random.below(3);
            let name = name(number % 3, number, random.below(2));
            match random.below(12) {
                0 => world.open(at, name),
                1 if random.once_in(6) => world.close(at, name),
                2..=5 => world.send(at, other, name),
                6..=8 => world.take_message(at, other),
                _ => world.take_control(at, other),
            }
            if step % 250 == 249 {
                created += 1;
            }
        }
        for number in 0..created {
            for context_kind in 0..2 {
                for at in 0..PROCESSES {
                    world.close(at, self::name(number % 3, number, context_kind));
                }
            }
        }
        for _ in 0..3_000 {
            for (from, at) in (0..PROCESSES).flat_map(|from| (0..PROCESSES).map(move |at| (from, at))) {
                world.take_control(from, at);
                world.take_message(from, at);
            }
        }
        world
    }

    #[test]
    fn an_id_in_flight_is_never_reused_and_all_ids_become_free() {
        let (mut delivered, mut short) = (0, 0);
        for seed in 0..200 {
            let ids = if seed % 2 == 0 { 3 } else { 1 << 16 };
            let world = history(seed, ids);
            delivered += world.delivered;
            short += world.short;
            for process in &world.processes {
                assert_eq!(process.contexts.in_use(), 0, "seed {seed}");
            }
        }
        assert!(short > 8_000 && delivered > short + 10_000, "{short} of {delivered} by id");
    }

    #[test]
    fn no_identity_is_allocated_twice_and_none_after_the_last() {
        let mut identities = IdentityAllocator::new(Peer::new(Job(1), 2));
        let first = identities.allocate().unwrap();
        assert_ne!(identities.allocate(), Some(first));
        assert_eq!(identities.allocate_alone().unwrap().number, u32::MAX - 1);
        identities.next = u32::MAX - 3;
        assert!(identities.allocate().is_some() && identities.allocate_alone().is_some());
        assert_eq!((identities.allocate(), identities.allocate_alone()), (None, None));
    }

    #[test]
    fn an_identity_that_was_given_back_is_allocated_before_a_new_one() {
        let mut identities = IdentityAllocator::new(Peer::new(Job(1), 2));
        let [first, second] = [0; 2].map(|_| identities.allocate().unwrap());
        identities.give_back(first);
        assert_eq!(identities.allocate(), Some(first));
        let alone = identities.allocate_alone().unwrap();
        identities.give_back(alone);
        assert_eq!(identities.allocate().unwrap().number, second.number + 1);
    }

    #[test]
    #[should_panic(expected = "given back once")]
    fn an_identity_that_was_not_allocated_cannot_be_given_back() {
        let me = Peer::new(Job(1), 2);
        IdentityAllocator::new(me).give_back(Identity { creator: me, number: 16 });
    }
}
