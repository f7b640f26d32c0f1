// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The conformance suite of a BTL: each requirement of the contract of [`Btl`] is one test over the BTLs that a
//! [`Fixture`] makes.
//!
//! A BTL's crate implements `Fixture` in its tests and writes `mend_transport::conformance!(MyFixture);` in a module of
//! its own: each requirement becomes one `#[test]`. `mend_transport::conformance!(Injected<MyFixture>);` in another
//! module runs them again with a [`FaultInjector`](crate::FaultInjector) around it ([`Injected`]).
//!
//! No test sleeps or reads a clock: time is a count of rounds, and a bound on them ends what would hang. Lost
//! wake-ups can only be seen with threads that sleep, in the transport's own tests.

mod cluster;
pub mod control;
pub mod evidence;
pub mod fairness;
mod injected;
pub mod limits;
#[cfg(test)]
pub(crate) mod mock;
pub mod order;
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

    /// Whether `check_peers` finds processes that were [`abandon`](Fixture::abandon)ed. Not where that takes a network.
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

/// One `#[test]` for each requirement of the contract, over BTLs that the [`Fixture`](crate::conformance::Fixture) makes.
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
            evidence: an_error_report_changes_nothing;
            evidence: check_peers_finds_the_peers_that_have_ended_and_no_others;
            quarantine: a_quarantined_endpoint_is_busy_and_reports_no_error;
            quarantine: after_resume_everything_arrives_once_in_order;
            quarantine: a_quarantined_endpoint_can_be_severed;
            sever: complete_messages_come_before_the_severed_report;
            sever: the_severed_report_comes_once_and_nothing_after_it;
            sever: a_severed_endpoint_refuses_every_send;
            sever: complete_messages_of_a_dead_peer_are_delivered;
            sever: severing_with_a_budget_of_one_ends_too;
            sever: severing_one_peer_leaves_the_others_unharmed;
            sever: the_other_end_of_a_severed_endpoint_goes_on;
            fairness: no_peer_starves_with_a_budget_of_one;
            fairness: seven_full_queues_are_served_alike;
            fairness: progress_keeps_its_budget;
            sleep: arm_succeeds_where_nothing_is_pending;
            sleep: arm_is_pending_where_something_is;
            sleep: a_message_after_arm_wakes_and_is_delivered;
            sleep: room_after_arm_wakes_and_is_reported;
        }
    };
    (@each $fixture:ty; $($part:ident: $requirement:ident;)*) => {
        $(
            #[test]
            fn $requirement() {
                $crate::conformance::$part::$requirement::<$fixture>();
            }
        )*
    };
}
