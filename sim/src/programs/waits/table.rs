// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls that complete requests (Wait and Test with All, Any and Some), on requests whose states are all known. The
//! results are compared with those that rows WT1 to WT9 require.

use super::{ANY, DATA, NEVER, OWN, Roles};
use crate::oracle::poisoned;
use crate::process::SimOperation;
use mend_base::{Source, TagSelector};
use mend_mpi::{CompletionReport, ErrorClass, Found, WaitMode};
use mend_transport::Buffer;

/// The state of a request when the call begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum State {
    /// Complete, with success.
    Good,
    /// A receive from the victim, whose failure is known.
    Failed,
    /// Complete; the message is longer than the buffer.
    Truncated,
    /// A wildcard receive with a pending failure.
    Pending,
    /// A receive from the partner, which has not sent yet.
    Active,
    Null,
}

use State::{Active, Failed, Good, Null, Pending, Truncated};

/// The result that the rows require.
#[derive(Debug, PartialEq)]
struct Expected {
    found: Found,
    /// The requests whose statuses are written, in order.
    reported: Vec<usize>,
    /// The request whose error the error handler gets.
    failure: Option<usize>,
}

fn class_of(state: State) -> ErrorClass {
    match state {
        Good | Null => ErrorClass::Success,
        Failed => ErrorClass::ProcFailed,
        Truncated => ErrorClass::Truncate,
        Pending => ErrorClass::ProcFailedPending,
        Active => ErrorClass::Pending,
    }
}

fn is(states: &[State], wanted: &[State]) -> Vec<usize> {
    (0..states.len()).filter(|&at| wanted.contains(&states[at])).collect()
}

fn expected(want: WaitMode, states: &[State]) -> Expected {
    let one = |at: usize| Expected {
        found: Found::One { index: at, complete: states[at] != Pending },
        reported: if states[at] == Pending { Vec::new() } else { vec![at] },
        failure: (states[at] != Good).then_some(at),
    };
    let not_yet = Expected { found: Found::NotYet, reported: Vec::new(), failure: None };
    let ready = is(states, &[Good, Failed, Truncated, Pending]);
    let failure = is(states, &[Failed, Truncated, Pending]).first().copied();
    if states.iter().all(|state| *state == Null) {
        let reported = if want == WaitMode::All { (0..states.len()).collect() } else { Vec::new() };
        return Expected { found: Found::Nothing, reported, failure: None };
    }
    match want {
        // Rows WT5 to WT7.
        WaitMode::All => {
            let (active, pending) = (is(states, &[Active]).len(), is(states, &[Pending]).len());
            let fault = pending > 0 || !is(states, &[Failed]).is_empty();
            if active > 0 && !fault {
                return not_yet;
            }
            let found = Found::All { complete: active + pending == 0 };
            Expected { found, reported: (0..states.len()).collect(), failure }
        }
        // Rows WT1 to WT4.
        WaitMode::Any => {
            let first = |wanted: &[State]| is(states, wanted).first().copied();
            first(&[Good]).or(first(&[Failed, Truncated])).or(first(&[Pending])).map_or(not_yet, one)
        }
        // Rows WT8, WT9.
        WaitMode::Some if ready.is_empty() => not_yet,
        WaitMode::Some => Expected { found: Found::Several { count: ready.len() }, reported: ready, failure },
    }
}

impl Roles {
    /// Makes one call, checks its results, and completes the requests that it left.
    pub(super) async fn call_of_the_table(&self) {
        let states: Vec<State> = {
            let mut shared_random = self.process.shared_random.borrow_mut();
            // One in six calls has so many requests that Waitall does not poll all of them each time.
            let count = if shared_random.once_in(6) {
                20 + shared_random.below(20)
            } else {
                1 + shared_random.below(6)
            };
            let all = [Good, Failed, Truncated, Pending, Active, Null];
            let kinds = [&all[..], &all[..5], &[Active, Failed], &[Active, Truncated], &[Active, Pending]];
            let kinds = kinds[shared_random.below(5) as usize];
            (0..count).map(|_| kinds[shared_random.below(kinds.len() as u64) as usize]).collect()
        };
        let (active, pending) = (is(&states, &[Active]).len(), is(&states, &[Pending]).len());
        if self.is_partner() {
            self.until_returned().await;
            for tag in std::iter::repeat_n(DATA, active).chain(std::iter::repeat_n(ANY, pending)) {
                let sent = self.process.mpi.send(self.world, self.caller, tag, &Buffer::zeroed(0));
                sent.await.expect("the caller lives");
            }
        }
        if !self.is_caller() {
            return;
        }
        let want = [WaitMode::All, WaitMode::Any, WaitMode::Some][self.process.below(3) as usize];
        let expected = expected(want, &states);
        let waits = expected.found != Found::NotYet && self.process.below(2) == 0;
        // Where only the failure can end the call, the failure may become known during the call.
        let only_failures =
            is(&states, &[Good, Truncated]).is_empty() && is(&states, &[Failed, Pending]).len() == 1;
        if !(waits && only_failures && self.process.below(2) == 0) {
            self.until_death_is_known().await;
        }
        let mut operations = Vec::new();
        for state in &states {
            operations.push(self.start(*state).await);
        }
        self.process.at("waits: the call", operations.len() as u64);
        let completed = if waits {
            self.process.mpi.wait_for(want, &mut operations).await
        } else {
            self.process.mpi.test_for(want, &mut operations)
        };
        self.check(want, &states, &expected, &completed, &operations);
        self.report_return().await;
        self.finish(&states, operations).await;
    }

    /// Creates a request in this state.
    async fn start(&self, state: State) -> SimOperation {
        let (mpi, me) = (&self.process.mpi, Source::Rank(self.caller));
        let receive = |from, tag, length: usize| {
            mpi.receive(self.world, from, TagSelector::Tag(tag), &poisoned(length))
        };
        match state {
            Failed => receive(Source::Rank(self.victim), NEVER, 8),
            Pending => receive(Source::Any, ANY, 8),
            Active => receive(Source::Rank(self.partner), DATA, 8),
            Good | Null | Truncated => {
                let bytes = if state == Truncated { 5 } else { 0 };
                let sent = mpi.send(self.world, self.caller, OWN, &Buffer::zeroed(bytes));
                let mut own = receive(me, OWN, 0);
                sent.await.expect("this process lives");
                while own.get_status().is_none() {
                    self.process.pause().await;
                }
                if state == Null {
                    (&mut own).await.expect("its buffer is long enough");
                }
                own
            }
        }
    }

    fn check(
        &self,
        want: WaitMode,
        states: &[State],
        expected: &Expected,
        report: &CompletionReport,
        operations: &[SimOperation],
    ) {
        let result = report.result.expect("the requests exist");
        let which: Vec<usize> = report.statuses.iter().map(|written| written.index).collect();
        let failure = result.first_error.map(|(index, _)| index);
        let seen = Expected { found: result.found, reported: which, failure };
        assert_eq!(seen, *expected, "{want:?} of {states:?}");
        let in_status = want != WaitMode::Any && expected.failure.is_some();
        assert_eq!(result.returned() == ErrorClass::InStatus, in_status, "{want:?} of {states:?}");
        for written in &report.statuses {
            let class = written.result.map_or_else(|error| error.class, |_| ErrorClass::Success);
            assert_eq!(class, class_of(states[written.index]), "{want:?} of {states:?}, {written:?}");
            assert_eq!(written.with_error, in_status, "MPI_ERROR is written with IN_STATUS alone");
        }
        for (at, operation) in operations.iter().enumerate() {
            let over = matches!(states[at], Good | Failed | Truncated) && expected.reported.contains(&at);
            assert_eq!(operation.is_null(), over || states[at] == Null, "{want:?} of {states:?}, {at}");
        }
        if let Some((index, error)) = result.first_error {
            assert_eq!(error.class, class_of(states[index]));
        }
    }

    /// Completes the requests that the call left. Those with a pending failure complete after the failure is acknowledged.
    async fn finish(&self, states: &[State], mut operations: Vec<SimOperation>) {
        for (at, state) in states.iter().enumerate() {
            if *state == Pending && self.process.below(2) == 0 {
                // Rows WT1, WT2: the request stays active.
                let error = (&mut operations[at]).await.err();
                assert!(error.is_none_or(|error| error.class == ErrorClass::ProcFailedPending));
            }
        }
        self.process.mpi.acknowledge(self.world, None).expect("the communicator exists");
        for (operation, state) in operations.into_iter().zip(states) {
            self.process.at("waits: what the call left", *state as u64);
            let class = operation.await.map_or_else(|error| error.class, |_| ErrorClass::Success);
            let ends = if matches!(state, Active | Pending) { ErrorClass::Success } else { class_of(*state) };
            assert_eq!(class, ends);
        }
    }
}
