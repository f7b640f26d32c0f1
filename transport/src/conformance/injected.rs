// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fixtures with a fault injector or a counter around each BTL.

use super::Fixture;
use crate::{Btl, Counter, FaultInjector, Faults, InFlight};
use core::marker::PhantomData;
use mend_base::Instant;

/// The BTLs of `F`, each with a [`FaultInjector`] around it; `P` says how often each fault happens.
#[derive(Debug)]
pub struct Injected<F, P = Often> {
    inner: F,
    plan: PhantomData<P>,
}

/// How often to inject faults, as a type, because a fixture is a type.
pub trait Plan {
    /// How often each fault happens.
    const FAULTS: Faults;
}

/// [`Faults::OFTEN`].
#[derive(Debug)]
pub struct Often;

/// Wrong evidence in every second call of progress, and no other fault.
#[derive(Debug)]
pub struct FalseErrors;

impl Plan for Often {
    const FAULTS: Faults = Faults::OFTEN;
}

impl Plan for FalseErrors {
    const FAULTS: Faults = Faults { error: crate::OneIn(2), ..Faults::NONE };
}

impl<F: Fixture, P: Plan> Fixture for Injected<F, P> {
    type Btl = FaultInjector<F::Btl>;
    const ALONE: bool = F::ALONE;
    const EXACT: bool = false;
    const SEES_DEATHS: bool = F::SEES_DEATHS;
    const READY_IS_EXACT: bool = F::READY_IS_EXACT;
    const CLASSES_SHARE_A_WAY: bool = F::CLASSES_SHARE_A_WAY;
    const KEYS_ARE_PERSONAL: bool = F::KEYS_ARE_PERSONAL;
    const KEEPS_WHAT_THE_DEAD_SENT: bool = F::KEEPS_WHAT_THE_DEAD_SENT;
    const ROUNDS_TO_LEAVE: usize = F::ROUNDS_TO_LEAVE;
    const QUIET_ROUNDS: usize = F::QUIET_ROUNDS;
    const LOSES: bool = F::LOSES;

    fn unavailable() -> Option<String> {
        F::unavailable()
    }

    fn start(count: usize) -> (Self, Vec<Self::Btl>) {
        let (inner, btls) = F::start(count);
        let btls = (1..).zip(btls).map(|(seed, btl)| FaultInjector::new(btl, P::FAULTS, seed)).collect();
        (Injected { inner, plan: PhantomData }, btls)
    }

    fn abandon(&mut self, index: usize, btl: Self::Btl) {
        self.inner.abandon(index, btl.into_inner());
    }

    fn now(&mut self, call: u64) -> Instant {
        self.inner.now(call)
    }

    fn wait(&mut self) {
        self.inner.wait();
    }

    fn is_settled(&mut self, btl: &mut Self::Btl) -> bool {
        self.inner.is_settled(btl.inner_mut())
    }

    fn break_connection(
        &mut self,
        btl: &mut Self::Btl,
        endpoint: <F::Btl as Btl>::Endpoint,
        from: usize,
        to: usize,
    ) -> bool {
        self.inner.break_connection(btl.inner_mut(), endpoint, from, to)
    }

    fn is_readable(&mut self, descriptors: &[i32]) -> bool {
        self.inner.is_readable(descriptors)
    }

    fn announce_sleep(&mut self, index: usize) {
        self.inner.announce_sleep(index);
    }

    fn was_woken(&mut self, index: usize) -> Option<bool> {
        self.inner.was_woken(index)
    }
}

/// The BTLs of `F`, each with a [`Counter`] around it and one [`InFlight`] for all: a test of the suite fails if a message arrives that
/// was not sent, or twice, or after `on_severed`.
#[derive(Debug)]
pub struct Counted<F> {
    inner: F,
}

impl<F: Fixture> Fixture for Counted<F> {
    type Btl = Counter<F::Btl>;
    const ALONE: bool = F::ALONE;
    const EXACT: bool = F::EXACT;
    const SEES_DEATHS: bool = F::SEES_DEATHS;
    const READY_IS_EXACT: bool = F::READY_IS_EXACT;
    const CLASSES_SHARE_A_WAY: bool = F::CLASSES_SHARE_A_WAY;
    const KEYS_ARE_PERSONAL: bool = F::KEYS_ARE_PERSONAL;
    const KEEPS_WHAT_THE_DEAD_SENT: bool = F::KEEPS_WHAT_THE_DEAD_SENT;
    const ROUNDS_TO_LEAVE: usize = F::ROUNDS_TO_LEAVE;
    const QUIET_ROUNDS: usize = F::QUIET_ROUNDS;
    const LOSES: bool = F::LOSES;

    fn unavailable() -> Option<String> {
        F::unavailable()
    }

    fn start(count: usize) -> (Self, Vec<Self::Btl>) {
        let (inner, btls) = F::start(count);
        let in_flight = InFlight::new();
        let btls = btls.into_iter().map(|btl| Counter::new(btl, &in_flight)).collect();
        (Counted { inner }, btls)
    }

    fn abandon(&mut self, index: usize, btl: Self::Btl) {
        self.inner.abandon(index, btl.into_inner());
    }

    fn now(&mut self, call: u64) -> Instant {
        self.inner.now(call)
    }

    fn wait(&mut self) {
        self.inner.wait();
    }

    fn is_settled(&mut self, btl: &mut Self::Btl) -> bool {
        self.inner.is_settled(btl.inner_mut())
    }

    fn break_connection(
        &mut self,
        btl: &mut Self::Btl,
        endpoint: <F::Btl as Btl>::Endpoint,
        from: usize,
        to: usize,
    ) -> bool {
        self.inner.break_connection(btl.inner_mut(), endpoint, from, to)
    }

    fn is_readable(&mut self, descriptors: &[i32]) -> bool {
        self.inner.is_readable(descriptors)
    }

    fn announce_sleep(&mut self, index: usize) {
        self.inner.announce_sleep(index);
    }

    fn was_woken(&mut self, index: usize) -> Option<bool> {
        self.inner.was_woken(index)
    }
}
