// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The conformance suite of a BTL: each requirement of the contract of [`Btl`] is one test over the BTLs that a
//! [`Fixture`] makes.
//!
//! The crate of a BTL implements `Fixture` in its tests. `mend_transport::conformance!(MyFixture);` in a module makes one `#[test]` of
//! each requirement. `mend_transport::conformance!(Injected<MyFixture>);` in another module runs them again with a
//! [`FaultInjector`](crate::FaultInjector) around each BTL ([`Injected`]).
//!
//! No test sleeps or reads a clock: time is a number of rounds, and a test that exceeds its bound of rounds fails. The fixture of a
//! network, where bytes are in the kernel for a while, lets time pass between rounds ([`Fixture::wait`]), and says in its constants what
//! takes rounds there. Lost wake-ups need threads that sleep, so the tests of the transport itself must look for them.
//!
//! A requirement about an ability that the transport lacks counts as skipped: its test prints `skipped: REQUIREMENT: no ABILITY`.

pub mod atomics;
mod cluster;
pub mod control;
pub mod evidence;
pub mod fairness;
pub mod flow_control;
mod injected;
pub mod keys_taken_back;
pub mod limits;
#[cfg(test)]
pub(crate) mod mock;
pub mod operations_at_sever;
pub mod order;
pub mod put_get;
pub mod quarantine;
pub mod reconnection;
pub mod registration;
mod remote_memory;
pub mod sever;
pub mod sleep;
pub mod streams;

pub use cluster::{Callback, Cluster, Recorder};
pub use injected::{Counted, FalseErrors, Injected, Often, Plan};
pub use remote_memory::{Operation, Shared};

use crate::{Btl, Rdma};
use mend_base::Instant;
use std::io::Write;

/// Makes the BTLs that a test connects. Each BTL plays a process.
pub trait Fixture: Sized {
    /// The BTL under test.
    type Btl: Rdma;

    /// Whether the BTL connects a process only to itself. Then a test has one process.
    const ALONE: bool = false;

    /// Whether `ready`, `arm` and `Busy` are exact. False only behind a [`FaultInjector`](crate::FaultInjector).
    const EXACT: bool = true;

    /// Whether `check_peers` finds processes that ended by [`abandon`](Fixture::abandon). False if that needs communication.
    const SEES_DEATHS: bool = false;

    /// Whether `ready` and `arm` look for themselves. False for a network: `ready` answers what the last `progress` learnt, and `arm` may
    /// be pending for what makes no callback, such as a credit, until a `progress` has consumed it.
    const READY_IS_EXACT: bool = true;

    /// Whether all classes of messages travel on one way, in order. Then a control message cannot overtake data that has left before
    /// it; it overtakes what waits in the sender.
    const CLASSES_SHARE_A_WAY: bool = false;

    /// Whether a key gives access to the peer alone for which it was made. False where the device does not ask who uses a key.
    const KEYS_ARE_PERSONAL: bool = false;

    /// Whether what a process sent completely before it ended is delivered, as far as the kernel of the receiver had taken it (Row PP7). False
    /// where a device drops what it has not read when the connection ends.
    const KEEPS_WHAT_THE_DEAD_SENT: bool = true;

    /// The rounds of a sender after which a message that it sent is where the receiver finds it without the sender's help.
    const ROUNDS_TO_LEAVE: usize = 0;

    /// So many rounds without a callback mean that everything has arrived that was sent.
    const QUIET_ROUNDS: usize = 64;

    /// Whether messages are lost, or connections break, by themselves: the BTL then sends again, which takes rounds of both processes, and
    /// peers are not served alike. [`is_settled`](Fixture::is_settled) tells when it has.
    const LOSES: bool = false;

    /// Why no BTL can be made here, such as a library that is not installed: then each test counts as skipped.
    fn unavailable() -> Option<String> {
        None
    }

    /// Makes `count` BTLs that can connect to each other; one BTL, if [`ALONE`](Fixture::ALONE).
    fn start(count: usize) -> (Self, Vec<Self::Btl>);

    /// Ends process `index` abruptly, as a kill does. `btl` is its BTL, which must not tell its peers.
    fn abandon(&mut self, index: usize, btl: Self::Btl) {
        let _ = index;
        drop(btl);
    }

    /// The time of call number `call` of `progress`.
    fn now(&mut self, call: u64) -> Instant {
        Instant(call * NS_PER_CALL)
    }

    /// Called after each round without a callback: a network lets time pass, so that the kernel moves bytes.
    fn wait(&mut self) {}

    /// Whether nothing that the BTL has accepted is under way.
    fn is_settled(&mut self, btl: &mut Self::Btl) -> bool {
        let _ = btl;
        true
    }

    /// Breaks the connection to process `to` as process `from`, whose BTL and endpoint these are, has it: as a reset does, with both
    /// processes alive. The transport finds out by itself. `false`: this transport has no connection that can break.
    fn break_connection(
        &mut self,
        btl: &mut Self::Btl,
        endpoint: <Self::Btl as Btl>::Endpoint,
        from: usize,
        to: usize,
    ) -> bool {
        let _ = (btl, endpoint, from, to);
        false
    }

    /// Whether one of the descriptors of a [`WakeSet`](crate::WakeSet) is readable, or becomes so within some milliseconds. Called only on
    /// endpoints with [`Ability::SleepDescriptor`](crate::Ability::SleepDescriptor).
    fn is_readable(&mut self, descriptors: &[i32]) -> bool {
        let _ = descriptors;
        false
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

/// Runs a requirement, unless no BTL can be made here.
pub fn run<F: Fixture>(name: &str, requirement: fn()) {
    match F::unavailable() {
        Some(why) => skip(name, &why),
        None => requirement(),
    }
}

/// Reports that the transport lacks what a requirement is about: the test counts as skipped, as with `mend_testing::skip`.
fn skip(requirement: &str, why: &str) {
    // A line of its own, past libtest's capture. If stderr is closed, it cannot be shown.
    let _ = std::io::stderr().write_all(format!("\nskipped: {requirement}: {why}\n").as_bytes());
}

const NS_PER_CALL: u64 = 10_000;

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
            sleep: a_descriptor_becomes_readable_when_a_message_comes;
            sleep: a_process_that_is_armed_goes_on_and_can_be_armed_again;
            keys_taken_back: a_get_brings_nothing_that_was_written_after_its_key_was_taken_back;
            keys_taken_back: a_get_brings_nothing_that_was_written_after_its_peer_was_severed;
            registration: a_region_is_got_and_put_whole_and_in_part;
            registration: many_regions_are_used_at_once;
            registration: a_range_past_the_end_is_refused;
            registration: a_region_that_has_ended_is_refused;
            registration: a_key_that_was_taken_back_gives_no_access;
            registration: access_is_what_was_exposed_and_nothing_more;
            registration: a_key_of_another_length_is_garbage;
            registration: a_key_works_for_its_peer_alone;
            registration: registering_again_and_again_leaks_nothing;
            registration: memory_is_given_back_after_the_severed_report;
            put_get: remote_bytes_arrive_whole_at_every_length;
            put_get: bytes_beside_the_range_are_untouched;
            put_get: operations_in_flight_end_once_each;
            put_get: a_get_ends_when_its_bytes_are_there;
            put_get: a_flush_ends_when_earlier_puts_are_there;
            put_get: a_busy_operation_may_be_started_after_on_sendable;
            put_get: a_quarantined_endpoint_starts_no_operation;
            atomics: an_atomic_operation_returns_the_old_word_and_stores_the_new_one;
            atomics: additions_of_two_peers_add_up;
            atomics: compare_and_swap_of_two_peers_succeeds_once_for_each_value;
            operations_at_sever: each_operation_ends_once_before_the_severed_report;
            operations_at_sever: operations_with_a_dead_peer_end_when_it_is_severed;
            operations_at_sever: memory_is_silent_after_the_severed_report;
            reconnection: a_reset_at_one_end_loses_and_doubles_nothing;
            reconnection: a_reset_at_both_ends_loses_and_doubles_nothing;
            reconnection: a_reset_while_reconnecting_loses_and_doubles_nothing;
            reconnection: operations_across_a_reset_end_once;
        }
    };
    (@each $fixture:ty; $($part:ident: $requirement:ident;)*) => {
        $(
            #[test]
            fn $requirement() {
                let requirement = $crate::conformance::$part::$requirement::<$fixture>;
                $crate::conformance::run::<$fixture>(stringify!($requirement), requirement);
            }
        )*
    };
}
