// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The model of context ids and early messages ([`mend_proto::identity`]).
//!
//! The names of two communicators are known to all members, which is what agreement and vote have decided. Each member opens each of
//! them at its own time, frees it, revoked before or not, or its creation fails there. Meanwhile the members send numbered messages
//! to each other: by full name, or by the id that the receiver has announced. A [`Process`] does with [`Contexts`] and
//! [`EarlyMessages`] what `mend-pml` does. Each pair of members has a channel for data messages and one for control messages, with no
//! order between the two.
//!
//! What must hold: an id stands for the communicator that the sender means, also when it is used again; nothing is reused while
//! anybody may use it. The messages of each sender are delivered once and in order. What comes before the communicator is created
//! waits, and arrives when it is. A name that is retired is refused, with the reason for which it was retired. When nothing can happen any
//! more but choices and crashes: nothing that was sent between living members that have the communicator is missing; and of a
//! member that has retired all communicators, all ids are free and no early message is left.

use super::model::{Effects, Model, Status, View};
use mend_base::{ContextId, ContextKind, Identity, Peer, PeerIndex, Rank};
use mend_proto::identity::{ContextName, Contexts, EarlyMessages, Resolved, Retirement};
use mend_proto::protocol::Protocol;

/// Communicators of a few members, with a bounded number of messages and crashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identities {
    /// The number of members.
    pub size: u32,
    /// The most members that crash.
    pub crashes: u32,
    /// The ids of each member.
    pub ids: usize,
    /// The most messages of the program of one member.
    pub sends: u8,
    /// So many members, those of the lowest ranks, send messages.
    pub senders: u32,
}

/// The number of communicators.
pub const COMMUNICATORS: usize = 2;

/// The contexts of one member, with what its owner does around them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Process {
    contexts: Contexts<u8>,
    early: EarlyMessages<(u8, u8)>,
    communicators: [Communicator; COMMUNICATORS],
    /// The ids that other members have announced: member, communicator, id.
    announced: Vec<(Rank, u8, ContextId)>,
    /// The members whose failure is published here, a bit for each: they are announced nothing.
    ended: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Communicator {
    existence: Existence,
    /// For each member: the number of messages to it, and from it; whether our id was announced to it.
    sent: Vec<u8>,
    received: Vec<u8>,
    has_announced: Vec<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Existence {
    NotCreated,
    Open(Option<ContextId>),
    Retired(Retirement),
}

/// What members send to each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Message {
    /// A message of the program, by full name or by id.
    Data {
        /// The communicator that the sender means. The receiver looks at it only if there is no id.
        communicator: u8,
        /// The id that the receiver has announced.
        id: Option<ContextId>,
        /// The number of this message among those of the communicator from the sender to the receiver.
        number: u8,
    },
    /// The id is used no more: behind all data messages that carry it.
    Retired(ContextId),
    /// Messages for this communicator may carry the id.
    Announce(u8, ContextId),
    /// Messages must not carry the id any more.
    Retire(u8, ContextId),
}

/// What an owner does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// The communicator is created.
    Open(u8),
    /// It is freed, or its creation has failed.
    Retire(u8, Retirement),
    /// The program sends a message.
    Send(u8, Rank),
}

impl Process {
    fn open(&mut self, communicator: u8, out: &mut Effects<Identities>) {
        let id = self.contexts.open(communicator);
        self.at(communicator).existence = Existence::Open(id);
        for (from, (communicator, number)) in self.early.take(name(communicator)) {
            self.deliver(Rank(from.0), communicator, number, out);
        }
    }

    fn retire(&mut self, communicator: u8, why: Retirement, out: &mut Effects<Identities>) {
        let before = std::mem::replace(&mut self.at(communicator).existence, Existence::Retired(why));
        self.early.retire(name(communicator), why);
        let Existence::Open(Some(id)) = before else { return };
        for peer in self.contexts.close(id) {
            out.send(Rank(peer.0), Message::Retire(communicator, id));
        }
    }

    fn send(&mut self, communicator: u8, to: Rank, out: &mut Effects<Identities>) {
        let known = self.announced.iter().find(|known| (known.0, known.1) == (to, communicator));
        let id = known.map(|known| known.2);
        let sent = &mut self.at(communicator).sent[to.index()];
        *sent += 1;
        let number = *sent;
        out.send(to, Message::Data { communicator, id, number });
    }

    fn on_named(&mut self, from: Rank, communicator: u8, number: u8, out: &mut Effects<Identities>) {
        match (self.at(communicator).existence, self.early.retirement(name(communicator))) {
            (Existence::Open(_), None) => self.deliver(from, communicator, number, out),
            (Existence::NotCreated, None) => {
                let stored = self.early.store(name(communicator), PeerIndex(from.0), (communicator, number));
                assert!(stored.is_ok(), "there is memory");
            }
            (Existence::Retired(why), Some(reason)) => assert_eq!(why, reason, "the reason of a refusal"),
            (existence, reason) => panic!("{existence:?} is taken for {reason:?}"),
        }
    }

    fn deliver(&mut self, from: Rank, communicator: u8, number: u8, out: &mut Effects<Identities>) {
        let own = self.at(communicator);
        own.received[from.index()] += 1;
        assert_eq!(own.received[from.index()], number, "messages arrive once and in order");
        let is_first = !std::mem::replace(&mut own.has_announced[from.index()], true);
        let Existence::Open(id) = own.existence else { panic!("only what is open receives") };
        let has_ended = self.ended & 1 << from.0 != 0;
        if let (true, false, Some(id)) = (is_first, has_ended, id) {
            assert!(self.contexts.announce(id, PeerIndex(from.0)), "announced once");
            out.send(from, Message::Announce(communicator, id));
        }
    }

    fn at(&mut self, communicator: u8) -> &mut Communicator {
        &mut self.communicators[usize::from(communicator)]
    }

    fn has_retired_all(&self) -> bool {
        self.communicators.iter().all(|own| matches!(own.existence, Existence::Retired(_)))
    }
}

impl Protocol for Process {
    type Message = Message;
    type Outcome = ();

    fn on_message(&mut self, from: Rank, message: Message, out: &mut Effects<Identities>) {
        match message {
            Message::Data { communicator, id: None, number } => {
                self.on_named(from, communicator, number, out);
            }
            Message::Data { communicator, id: Some(id), number } => {
                match self.contexts.resolve(id, PeerIndex(from.0)) {
                    Resolved::Assigned(assigned) => {
                        assert_eq!(assigned, communicator, "an id stands for another communicator");
                        self.deliver(from, communicator, number, out);
                    }
                    Resolved::Retiring => {
                        let existence = self.at(communicator).existence;
                        assert!(matches!(existence, Existence::Retired(_)), "an id is refused too early");
                    }
                    Resolved::Unknown => panic!("the id of a correct sender is known"),
                }
            }
            Message::Retired(id) => {
                let was_asked = self.contexts.retirement_confirmed(id, PeerIndex(from.0));
                assert!(was_asked, "only what was asked for is confirmed");
            }
            Message::Announce(communicator, id) => {
                if matches!(self.at(communicator).existence, Existence::Open(_)) {
                    self.announced.push((from, communicator, id));
                    self.announced.sort_unstable();
                }
            }
            Message::Retire(communicator, id) => {
                self.announced.retain(|&known| known != (from, communicator, id));
                out.send(from, Message::Retired(id));
            }
        }
    }

    fn on_failure(&mut self, failed: Rank, _out: &mut Effects<Identities>) {
        self.ended |= 1 << failed.0;
        self.contexts.ended(PeerIndex(failed.0));
        self.announced.retain(|known| known.0 != failed);
    }
}

impl Model for Identities {
    type Machine = Process;
    /// The number of messages that the program has sent.
    type Owner = u8;
    type Command = Command;

    fn size(&self) -> u32 {
        self.size
    }

    fn crashes_max(&self) -> u32 {
        self.crashes
    }

    fn streams(&self) -> usize {
        2
    }

    fn stream(&self, message: &Message) -> usize {
        match message {
            Message::Data { .. } | Message::Retired(_) => 0,
            Message::Announce(..) | Message::Retire(..) => 1,
        }
    }

    fn start(&self, _rank: Rank) -> (Process, u8) {
        let size = self.size as usize;
        let communicator = || Communicator {
            existence: Existence::NotCreated,
            sent: vec![0; size],
            received: vec![0; size],
            has_announced: vec![false; size],
        };
        let (contexts, early) = (Contexts::with_ids(self.ids), EarlyMessages::new());
        let communicators = [communicator(), communicator()];
        (Process { contexts, early, communicators, announced: Vec::new(), ended: 0 }, 0)
    }

    fn choices(&self, view: &View<'_, Self>, rank: Rank, choices: &mut Vec<Command>) {
        let member = view.member(rank);
        let Some(process) = &member.machine else { return };
        for (communicator, own) in (0u8..).zip(&process.communicators) {
            // The communicators are alike: each member creates the second one when it has retired or created the first.
            let is_next = communicator == 0 || process.communicators[0].existence != Existence::NotCreated;
            match own.existence {
                Existence::NotCreated if is_next => {
                    choices.push(Command::Open(communicator));
                    choices.push(Command::Retire(communicator, Retirement::NeverOpened));
                }
                Existence::Open(_) => {
                    choices.push(Command::Retire(communicator, Retirement::Closed));
                    choices.push(Command::Retire(communicator, Retirement::Revoked));
                    if member.owner < self.sends && rank.0 < self.senders {
                        let others = (0..self.size).map(Rank).filter(|&to| to != rank);
                        let living = others.filter(|&to| view.member(to).status == Status::Living);
                        choices.extend(living.map(|to| Command::Send(communicator, to)));
                    }
                }
                Existence::NotCreated | Existence::Retired(_) => {}
            }
        }
    }

    fn command(&self, (process, sent): (&mut Process, &mut u8), command: &Command, out: &mut Effects<Self>) {
        match *command {
            Command::Open(communicator) => process.open(communicator, out),
            Command::Retire(communicator, why) => process.retire(communicator, why, out),
            Command::Send(communicator, to) => {
                *sent += 1;
                process.send(communicator, to, out);
            }
        }
    }

    fn after_event(&self, _member: (&mut Process, &mut u8), _told: u32, _outcomes: &[()]) {}

    fn after_crash(&self, sent: &mut u8) {
        *sent = 0;
    }

    fn check_outcome(&self, _view: &View<'_, Self>, _rank: Rank, (): &()) -> Result<(), String> {
        Ok(())
    }

    fn safety(&self, _view: &View<'_, Self>) -> Result<(), String> {
        Ok(())
    }

    fn liveness(&self, view: &View<'_, Self>) -> Result<(), String> {
        let living = || view.members().filter_map(|(rank, member)| Some((rank, member.machine.as_ref()?)));
        for (rank, process) in living() {
            if process.has_retired_all() && (process.contexts.in_use() > 0 || !process.early.is_empty()) {
                return Err(format!("member {} keeps ids or early messages of what is retired", rank.0));
            }
            for (from, sender) in living() {
                let pairs = process.communicators.iter().zip(&sender.communicators);
                let lacks = |(own, other): (&Communicator, &Communicator)| {
                    matches!(own.existence, Existence::Open(_))
                        && own.received[from.index()] != other.sent[rank.index()]
                };
                if pairs.into_iter().any(lacks) {
                    return Err(format!("member {} lacks a message of member {}", rank.0, from.0));
                }
            }
        }
        Ok(())
    }
}

fn name(communicator: u8) -> ContextName {
    let identity = Identity { creator: Peer(7), number: u32::from(communicator) };
    ContextName { identity, context_kind: ContextKind::PointToPoint }
}
