// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The model of the reliable broadcast about a communicator ([`mend_proto::spread`]).
//!
//! A [`Process`] does around the part of a member what its owner has to do. The communicator is created at each member at its own
//! time, or its creation fails there; what arrives before waits. Members learn items by themselves and free the communicator, at any
//! time or never. What is new leaves with a turn of progress, which comes sooner or later. At a crash any suffix of each channel of the
//! dead may be lost, and the news of it may overtake what is not.
//!
//! What must hold: each item is an outcome once, and somebody has learned it by itself. When nothing can happen any more but choices
//! and crashes, every living member that has not freed the communicator has every item that such a member has; it knows of the
//! revocation also if a member that lives and has freed it knows; and who has freed it has no part any more (BAR-2.2).

use super::model::{Effects, Model, Status, View};
use mend_base::Rank;
use mend_proto::protocol::{Output, Protocol};
use mend_proto::spread::{Item, Message, Spread};

/// Broadcasts among a few members, with a bounded number of crashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spreads {
    /// The number of members.
    pub size: u32,
    /// The most members that crash.
    pub crashes: u32,
    /// At so many members, those of the highest ranks, the communicator is not created at the start.
    pub late: u32,
    /// The most members that revoke the communicator by themselves.
    pub revokers: u32,
    /// The most members that learn by themselves of a failure of the last member that has not happened: evidence.
    pub suspecting: u32,
    /// Whether members may free the communicator.
    pub frees: bool,
    /// Whether the news of a crash may overtake messages of the dead.
    pub overtakes: bool,
    /// Whether what is new leaves with each event; otherwise a turn of progress may take any number of events.
    pub eager: bool,
}

/// One member's part, with what its owner does around it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Process {
    me: Rank,
    size: u32,
    eager: bool,
    existence: Existence,
    part: Option<Spread>,
    early: Vec<(Rank, Message)>,
    /// The members whose failure is published here.
    published: Vec<Rank>,
}

/// How the communicator exists at a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Existence {
    NotCreated,
    Open,
    /// Freed, or its creation has failed here.
    Retired {
        was_revoked: bool,
    },
}

/// What a member's owner remembers. Sets of items have a bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Owner {
    /// What this member has learned by itself.
    learned: u8,
    /// What it knows, its own failures apart.
    known: u8,
    /// A turn of progress would do something.
    is_due: bool,
}

/// What an owner does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// It learns an item by itself.
    Learn(Item),
    /// A turn of progress.
    Flush,
    /// The communicator is created here.
    Create,
    /// It frees the communicator, or the creation fails here.
    Retire,
}

impl Process {
    fn with(&mut self, out: &mut Effects<Spreads>, event: impl FnOnce(&mut Spread, &mut Effects<Spreads>)) {
        let Process { me, size, published, .. } = self;
        let part = self.part.get_or_insert_with(|| {
            let mut part = Spread::new(*me, *size);
            published.iter().for_each(|&failed| part.on_failure(failed, &mut Output::new()));
            part
        });
        event(part, out);
        if self.eager {
            part.flush(out);
        }
        self.drop_if_over();
    }

    fn drop_if_over(&mut self) {
        if let (Existence::Retired { was_revoked }, Some(part)) = (&mut self.existence, &self.part)
            && part.is_over()
        {
            *was_revoked = part.is_revoked();
            self.part = None;
            self.published.clear();
        }
    }

    fn create(&mut self, out: &mut Effects<Spreads>) {
        self.existence = Existence::Open;
        if !self.published.is_empty() {
            self.with(out, |_, _| {});
        }
        for (from, message) in std::mem::take(&mut self.early) {
            self.on_message(from, message, out);
        }
    }

    fn retire(&mut self, out: &mut Effects<Spreads>) {
        self.existence = Existence::Retired { was_revoked: false };
        if self.part.is_some() {
            self.with(out, |part, out| part.close(out));
        } else {
            self.published.clear();
        }
        for (from, message) in std::mem::take(&mut self.early) {
            self.on_message(from, message, out);
        }
    }

    /// Whether a turn of progress would do something.
    fn is_due(&self) -> bool {
        let Some(part) = &self.part else { return false };
        let (mut after, mut out) = (part.clone(), Output::new());
        after.flush(&mut out);
        after != *part || !out.sends.is_empty()
    }
}

impl Protocol for Process {
    type Message = Message;
    type Outcome = Item;

    fn on_message(&mut self, from: Rank, message: Message, out: &mut Effects<Spreads>) {
        match (self.existence, &self.part, message) {
            (Existence::NotCreated, _, _) => self.early.push((from, message)),
            (Existence::Retired { was_revoked }, None, Message::Items(_)) => {
                out.send(from, if was_revoked { Message::GoneRevoked } else { Message::Gone });
            }
            (Existence::Retired { .. }, None, _) | (Existence::Open, None, Message::Gone) => {}
            _ => self.with(out, |part, out| part.on_message(from, message, out)),
        }
    }

    fn on_failure(&mut self, failed: Rank, out: &mut Effects<Spreads>) {
        match (self.existence, &self.part) {
            (Existence::NotCreated, _) => {
                let at = self.published.partition_point(|&rank| rank < failed);
                self.published.insert(at, failed);
            }
            (Existence::Retired { .. }, None) => {}
            _ => self.with(out, |part, out| part.on_failure(failed, out)),
        }
    }
}

impl Model for Spreads {
    type Machine = Process;
    type Owner = Owner;
    type Command = Command;

    fn size(&self) -> u32 {
        self.size
    }

    fn crashes_max(&self) -> u32 {
        self.crashes
    }

    fn news_overtakes(&self) -> bool {
        self.overtakes
    }

    fn start(&self, rank: Rank) -> (Process, Owner) {
        let is_open = rank.0 < self.size - self.late;
        let existence = if is_open { Existence::Open } else { Existence::NotCreated };
        let (early, published) = (Vec::new(), Vec::new());
        let Spreads { size, eager, .. } = *self;
        (Process { me: rank, size, eager, existence, part: None, early, published }, Owner::default())
    }

    fn choices(&self, view: &View<'_, Self>, rank: Rank, choices: &mut Vec<Command>) {
        let member = view.member(rank);
        let Some(Process { existence: Existence::Open, .. }) = member.machine else { return };
        let suspect = Item::Failed(Rank(self.size - 1));
        for (item, most) in [(Item::Revoked, self.revokers), (suspect, self.suspecting)] {
            let is_of = |owner: &Owner| owner.learned & bit(item) != 0;
            let number = view.members().filter(|(_, other)| is_of(&other.owner)).count();
            let number = number as u32;
            // All members are neighbours of each other, and alike: those that revoke are numbered in their order.
            let may = self.suspecting + self.late > 0 || self.size > 5 || rank.0 == number;
            if may && number < most && member.owner.known & bit(item) == 0 && item != Item::Failed(rank) {
                choices.push(Command::Learn(item));
            }
        }
        if self.frees {
            choices.push(Command::Retire);
        }
    }

    fn obligations(&self, view: &View<'_, Self>, rank: Rank, obligations: &mut Vec<Command>) {
        let member = view.member(rank);
        if member.owner.is_due {
            obligations.push(Command::Flush);
        }
        if let Some(Process { existence: Existence::NotCreated, .. }) = member.machine {
            obligations.extend([Command::Create, Command::Retire]);
        }
    }

    fn command(
        &self,
        (process, owner): (&mut Process, &mut Owner),
        command: &Command,
        out: &mut Effects<Self>,
    ) {
        match *command {
            Command::Learn(item) => {
                owner.learned |= bit(item);
                process.with(out, |part, out| part.add(item, out));
            }
            Command::Flush => process.with(out, |part, out| part.flush(out)),
            Command::Create => process.create(out),
            Command::Retire => process.retire(out),
        }
    }

    fn after_event(&self, (process, owner): (&mut Process, &mut Owner), _told: u32, outcomes: &[Item]) {
        for &item in outcomes {
            assert!(owner.known & bit(item) == 0, "{item:?} is an outcome twice");
            owner.known |= bit(item);
        }
        if matches!(process.existence, Existence::Retired { .. }) {
            owner.known &= bit(Item::Revoked);
        }
        owner.is_due = process.is_due();
    }

    fn after_crash(&self, owner: &mut Owner) {
        *owner = Owner { learned: owner.learned, ..Owner::default() };
    }

    fn check_outcome(&self, view: &View<'_, Self>, rank: Rank, &item: &Item) -> Result<(), String> {
        let has_happened = match item {
            Item::Failed(failed) => view.member(failed).status == Status::Failed,
            Item::Revoked => false,
        };
        if has_happened || view.members().any(|(_, member)| member.owner.learned & bit(item) != 0) {
            return Ok(());
        }
        Err(format!("member {} learns {item:?}, which nobody has learned by itself", rank.0))
    }

    fn safety(&self, _view: &View<'_, Self>) -> Result<(), String> {
        Ok(())
    }

    fn liveness(&self, view: &View<'_, Self>) -> Result<(), String> {
        let revoked = bit(Item::Revoked);
        let (mut have, mut staying) = (0, Vec::new());
        for (rank, member) in view.members() {
            let Some(process) = &member.machine else { continue };
            // The failures that are published here are no outcomes.
            let known = member.owner.known | member.told as u8;
            match process.existence {
                Existence::Open => {
                    have |= known;
                    staying.push((rank, known));
                }
                Existence::Retired { .. } if process.part.is_some() => {
                    return Err(format!("the part of member {} never ends", rank.0));
                }
                Existence::Retired { .. } => have |= known & revoked,
                Existence::NotCreated => return Err("a creation never ends".to_owned()),
            }
        }
        match staying.into_iter().find(|(_, known)| have & !known != 0) {
            None => Ok(()),
            Some((rank, known)) => {
                Err(format!("member {} lacks items {:#x} that others have", rank.0, have & !known))
            }
        }
    }
}

/// The bit of an item: that of the rank, or the highest one.
fn bit(item: Item) -> u8 {
    match item {
        Item::Revoked => 1 << 7,
        Item::Failed(rank) => 1 << rank.0,
    }
}
