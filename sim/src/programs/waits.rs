// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What calls that wait answer when a rank has died, or when all others have left: each job is one call, made by one rank
//! (the caller), while another (the mortal) dies for certain and a third (the partner) sends what the caller waits for only
//! after it was told that the call has returned. So a call that waits for what it must not wait for never ends, and the seed
//! fails.

mod blocking;
mod table;

use crate::Process;
use crate::oracle::poisoned;
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_mpi::{CommKey, Detail, Error};
use mend_transport::Buffer;

/// From the caller to the partner: the call has returned.
const GO: Tag = Tag(1);
/// From the partner to the caller, after that.
const DATA: Tag = Tag(2);
/// What the caller receives from any source.
const ANY: Tag = Tag(3);
/// From the caller to itself.
const OWN: Tag = Tag(4);
/// What the mortal never sends.
const NEVER: Tag = Tag(5);

/// The ranks of one job.
struct Roles {
    process: Process,
    world: CommKey,
    caller: Rank,
    partner: Rank,
    mortal: Rank,
}

/// One job.
pub async fn run(process: Process) {
    let world = process.mpi.engine().world();
    let (first, scenario) = {
        let mut together = process.together.borrow_mut();
        (together.below(u64::from(process.size)) as u32, together.below(12))
    };
    let role = |offset: u32| Rank((first + offset) % process.size);
    let (caller, partner, mortal) = (role(0), role(1), role(2));
    let me = process.rank;
    let roles = Roles { process, world, caller, partner, mortal };
    if scenario == 11 {
        return if me == caller {
            roles.wait_alone().await
        };
    }
    if me == mortal {
        roles.process.pause().await;
        roles.process.die().await;
    }
    match scenario {
        0..6 => roles.call_of_the_table().await,
        6 => roles.receive_with_a_pending_failure().await,
        7 => roles.probe_with_a_pending_failure().await,
        8 => roles.sendrecv_to_the_dead().await,
        9 => roles.sendrecv_from_the_dead().await,
        _ => roles.own_message_comes_first().await,
    }
}

impl Roles {
    fn is_caller(&self) -> bool {
        self.process.rank == self.caller
    }

    fn is_partner(&self) -> bool {
        self.process.rank == self.partner
    }

    /// Waits until the mortal's death is known here.
    async fn death_is_known(&self) {
        self.process.at("waits: until the death is known", 0);
        while !self.process.mpi.failed(self.world).expect("it stands").contains(&self.mortal) {
            self.process.pause().await;
        }
    }

    /// The caller's: the call has returned.
    async fn go(&self) {
        self.process.at("waits: go", 0);
        let sent = self.process.mpi.send(self.world, self.partner, GO, &Buffer::zeroed(0));
        sent.await.expect("the partner lives");
    }

    /// The partner's.
    async fn until_go(&self) {
        self.process.at("waits: until go", 0);
        let (source, tag) = (Source::Rank(self.caller), TagSelector::Tag(GO));
        let mpi = &self.process.mpi;
        mpi.receive(self.world, source, tag, &poisoned(0)).await.expect("the caller lives");
    }

    /// Asserts that an error says that the mortal has failed.
    fn is_its_death(&self, error: Error) {
        assert_eq!(error, Error::of(Detail::ProcFailed(self.mortal)), "{error}");
    }
}
