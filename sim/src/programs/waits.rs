// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The results of calls that wait while a rank dies, or while all other ranks finalize. Each job makes one such call. The
//! caller makes the call. The victim dies. The partner sends the messages for which the caller has posted receives, but
//! only after the caller has told it that the call has returned. So a call that waits for the partner's messages, where it
//! must return because of the death, never returns, and the seed fails.

mod blocking;
mod table;

use crate::Process;
use crate::oracle::poisoned;
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_mpi::{CommKey, Detail, Error};
use mend_transport::Buffer;

/// Of the message from the caller to the partner after the call has returned.
const RETURNED: Tag = Tag(1);
/// Of messages from the partner to the caller, for receives that name the partner.
const DATA: Tag = Tag(2);
/// Of messages from the partner to the caller, for wildcard receives.
const ANY: Tag = Tag(3);
/// Of messages from the caller to itself.
const OWN: Tag = Tag(4);
/// Of messages that no rank sends.
const NEVER: Tag = Tag(5);

/// The ranks of one job.
struct Roles {
    process: Process,
    world: CommKey,
    caller: Rank,
    partner: Rank,
    victim: Rank,
}

/// One job.
pub async fn run(process: Process) {
    let world = process.mpi.engine().comm_world();
    let (first, scenario) = {
        let mut shared_random = process.shared_random.borrow_mut();
        (shared_random.below(u64::from(process.size)) as u32, shared_random.below(12))
    };
    let role = |offset: u32| Rank((first + offset) % process.size);
    let (caller, partner, victim) = (role(0), role(1), role(2));
    let me = process.rank;
    let roles = Roles { process, world, caller, partner, victim };
    if scenario == 11 {
        return if me == caller {
            roles.wait_alone().await
        };
    }
    if me == victim {
        roles.process.pause().await;
        roles.process.die().await;
    }
    match scenario {
        0..6 => roles.call_of_the_table().await,
        6 => roles.receive_with_a_pending_failure().await,
        7 => roles.probe_with_a_pending_failure().await,
        8 => roles.sendrecv_to_the_dead().await,
        9 => roles.sendrecv_from_the_dead().await,
        _ => roles.own_message_is_received_first().await,
    }
}

impl Roles {
    fn is_caller(&self) -> bool {
        self.process.rank == self.caller
    }

    fn is_partner(&self) -> bool {
        self.process.rank == self.partner
    }

    /// Waits until this rank knows that the victim has failed.
    async fn until_death_is_known(&self) {
        self.process.at("waits: until the death is known", 0);
        while !self.process.mpi.failed(self.world).expect("the communicator exists").contains(&self.victim) {
            self.process.pause().await;
        }
    }

    /// The caller tells the partner that the call has returned.
    async fn report_return(&self) {
        self.process.at("waits: report the return", 0);
        let sent = self.process.mpi.send(self.world, self.partner, RETURNED, &Buffer::zeroed(0));
        sent.await.expect("the partner lives");
    }

    /// The partner waits until the call of the caller has returned.
    async fn until_returned(&self) {
        self.process.at("waits: until the call has returned", 0);
        let (source, tag) = (Source::Rank(self.caller), TagSelector::Tag(RETURNED));
        let mpi = &self.process.mpi;
        mpi.receive(self.world, source, tag, &poisoned(0)).await.expect("the caller lives");
    }

    /// Asserts that an error means that the victim has failed.
    fn assert_victim_failed(&self, error: Error) {
        assert_eq!(error, Error::of(Detail::ProcFailed(self.victim)), "{error}");
    }
}
