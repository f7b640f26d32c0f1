// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The conformance suite of a BTL: each requirement of the contract of [`Btl`] is one test over the BTLs that a
//! [`Fixture`] makes.
//!
//! The crate of a BTL implements `Fixture` in its tests. `mend_transport::conformance!(MyFixture);` in a module makes one `#[test]` of
//! each requirement. `mend_transport::conformance!(Injected<MyFixture>);` in another module runs them again with a
//! [`FaultInjector`](crate::FaultInjector) around each BTL ([`Injected`]).
//!
//! No test sleeps or reads a clock: time is a number of rounds, and a test that exceeds its bound of rounds fails. Lost wake-ups
//! need threads that sleep, so the tests of the transport itself must look for them.

mod cluster;
pub mod control;
pub mod evidence;
pub mod fairness;
pub mod flow_control;
mod injected;
pub mod limits;
#[cfg(test)]
pub(crate) mod mock;
pub mod order;
pub mod quarantine;
pub mod sever;
pub mod sleep;
pub mod streams;

pub use cluster::{Callback, Cluster, Recorder};
pub use injected::{Counted, FalseErrors, Injected, Often, Plan};

use crate::Btl;

/// Makes the BTLs that a test connects. Each BTL plays a process.
pub trait Fixture: Sized {
    /// The BTL under test.
    type Btl: Btl;

    /// Whether the BTL connects a process only to itself. Then a test has one process.
    const ALONE: bool = false;

    /// Whether `ready`, `arm` and `Busy` are exact. False only behind a [`FaultInjector`](crate::FaultInjector).
    const EXACT: bool = true;

    /// Whether `check_peers` finds processes that ended by [`abandon`](Fixture::abandon). False if that needs communication.
    const SEES_DEATHS: bool = false;

    /// Makes `count` BTLs that can connect to each other; one BTL, if [`ALONE`](Fixture::ALONE).
    fn start(count: usize) -> (Self, Vec<Self::Btl>);

    /// Ends process `index` abruptly, as a kill does. `btl` is its BTL, which must not tell its peers.
    fn abandon(&mut self, index: usize, btl: Self::Btl) {
        let _ = index;
        drop(btl);
    }

    /// Process `index` is about to sleep: `arm` follows, and at the end [`was_woken`](Fixture::was_woken). For transports that wake a
    /// process at a sleep word.
    fn announce_sleep(&mut self, index: usize) {
        let _ = index;
    }

    /// Ends the sleep of process `index`, and tells whether the process was woken since [`announce_sleep`](Fixture::announce_sleep).
    /// `None`: the fixture cannot tell.
    fn was_woken(&mut self, index: usize) -> Option<bool> {
        let _ = index;
        None
    }
}

/// Makes one `#[test]` for each requirement of the contract, over BTLs that the [`Fixture`](crate::conformance::Fixture) makes.
#[macro_export]
macro_rules! conformance {
    ($fixture:ty) => {
        $crate::conformance! { @each $fixture;
            order: messages_arrive_whole_and_in_order;
            order: peers_do_not_disturb_each_others_order;
            order: ready_is_true_while_a_message_is_there;
            order: a_message_that_is_taken_comes_once_in_its_order;
            order: a_sink_that_panics_gets_each_message_once_in_order;
            flow_control: a_full_queue_is_busy_and_does_not_call_fill;
            flow_control: on_sendable_comes_after_busy_and_nothing_is_lost;
            flow_control: one_full_peer_does_not_stop_the_others;
            control: control_overtakes_data_that_waits;
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
            sleep: sendable_after_arm_wakes_and_is_reported;
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
