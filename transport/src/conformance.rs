// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What every BTL must pass: the contract of [`Btl`] sentence by sentence, as tests over whatever a [`Fixture`] makes.
//!
//! A BTL's crate implements `Fixture` in its tests and writes `mend_transport::conformance!(MyFixture);` in a module of
//! its own: each sentence becomes one `#[test]`. `mend_transport::conformance!(Injected<MyFixture>);` in another
//! module runs them again with a [`FaultInjector`](crate::FaultInjector) around it ([`Injected`]).
//!
//! Nothing here sleeps or reads a clock: time is a count of turns, and a bound on them ends what would hang. What only
//! real sleepers can show (lost wake-ups) is the business of the transport's own tests.

mod cluster;
pub mod control;
pub mod evidence;
pub mod fairness;
mod injected;
pub mod limits;
pub mod order;
#[cfg(test)]
pub(crate) mod paper;
pub mod quarantine;
pub mod room;
pub mod sever;
pub mod sleep;
pub mod streams;

pub use cluster::{Cluster, Heard, Recorder};
pub use injected::{Counted, Injected, Noisy, Often, Plan};

use crate::Btl;

/// Makes the BTLs that a test connects, each as if it were a process of its own.
pub trait Fixture: Sized {
    /// What is tested.
    type Btl: Btl;

    /// Whether there is but one process, which talks to itself.
    const ALONE: bool = false;

    /// Whether `ready`, `arm` and `Busy` mean what they say. Only a [`FaultInjector`](crate::FaultInjector) does not.
    const EXACT: bool = true;

    /// Whether `check_peers` finds who was [`abandon`](Fixture::abandon)ed. Not where it takes a network to know.
    const SEES_DEATHS: bool = false;

    /// `count` BTLs that can reach each other; one, if [`ALONE`](Fixture::ALONE).
    fn start(count: usize) -> (Self, Vec<Self::Btl>);

    /// The process number `index` ends in the midst of whatever it did: no call of its BTL comes after this.
    fn abandon(&mut self, index: usize, btl: Self::Btl) {
        let _ = index;
        drop(btl);
    }

    /// Process `index` says that it will sleep; `arm` follows, and in the end `was_woken`. For transports with a sleep
    /// word.
    fn announce_sleep(&mut self, index: usize) {
        let _ = index;
    }

    /// Whether process `index`, asleep since [`announce_sleep`](Fixture::announce_sleep), has been woken; and it is
    /// awake from now on. `None`: this transport cannot tell without sleeping.
    fn was_woken(&mut self, index: usize) -> Option<bool> {
        let _ = index;
        None
    }
}

/// One `#[test]` for each sentence of the contract, over BTLs that the [`Fixture`](crate::conformance::Fixture) makes.
#[macro_export]
macro_rules! conformance {
    ($fixture:ty) => {
        $crate::conformance! { @each $fixture;
            order: messages_arrive_whole_and_in_order;
            order: peers_do_not_disturb_each_others_order;
            order: ready_says_that_a_message_lies_there;
            order: a_message_that_is_taken_comes_once_in_its_order;
            order: a_sink_that_panics_gets_each_message_once_in_order;
            room: a_full_queue_is_busy_and_does_not_call_fill;
            room: room_comes_after_busy_and_nothing_is_lost;
            room: one_full_peer_does_not_stop_the_others;
            control: control_passes_data_that_waits;
            control: a_mailbox_holds_the_last_state;
            control: mailboxes_of_different_ids_are_different;
            streams: streams_interleave_each_in_order;
            streams: a_full_stream_is_busy_and_loses_nothing;
            streams: a_chunk_may_have_any_length_up_to_the_limit;
            limits: the_limits_agree_with_each_other;
            limits: every_length_up_to_the_limits_passes;
            evidence: evidence_decides_nothing;
            evidence: a_look_at_its_peers_finds_who_has_ended_and_nobody_else;
            quarantine: a_quarantined_way_is_busy_and_judges_nothing;
            quarantine: after_resume_everything_arrives_once_in_order;
            quarantine: a_quarantined_way_can_be_severed;
            sever: what_was_sent_whole_comes_before_the_certificate;
            sever: the_certificate_comes_once_then_silence;
            sever: a_severed_way_refuses_every_send;
            sever: the_dead_are_drained;
            sever: severing_with_a_budget_of_one_ends_too;
            sever: severing_one_peer_leaves_the_others_unharmed;
            sever: the_other_end_of_a_severed_way_lives_on;
            fairness: no_peer_starves_with_a_budget_of_one;
            fairness: seven_full_queues_are_served_alike;
            fairness: progress_keeps_its_budget;
            sleep: who_has_nothing_to_do_may_sleep;
            sleep: who_has_something_to_do_may_not_sleep;
            sleep: a_message_after_arm_wakes_and_is_reported;
            sleep: room_after_arm_wakes_and_is_reported;
        }
    };
    (@each $fixture:ty; $($part:ident: $sentence:ident;)*) => {
        $(
            #[test]
            fn $sentence() {
                $crate::conformance::$part::$sentence::<$fixture>();
            }
        )*
    };
}
