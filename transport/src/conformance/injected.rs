// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fixtures with a fault injector or a counter around each BTL.

use super::Fixture;
use crate::{Counter, FaultInjector, Faults, InFlight};
use core::marker::PhantomData;

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

    fn start(count: usize) -> (Self, Vec<Self::Btl>) {
        let (inner, btls) = F::start(count);
        let btls = (1..).zip(btls).map(|(seed, btl)| FaultInjector::new(btl, P::FAULTS, seed)).collect();
        (Injected { inner, plan: PhantomData }, btls)
    }

    fn abandon(&mut self, index: usize, btl: Self::Btl) {
        self.inner.abandon(index, btl.into_inner());
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

    fn start(count: usize) -> (Self, Vec<Self::Btl>) {
        let (inner, btls) = F::start(count);
        let in_flight = InFlight::new();
        let btls = btls.into_iter().map(|btl| Counter::new(btl, &in_flight)).collect();
        (Counted { inner }, btls)
    }

    fn abandon(&mut self, index: usize, btl: Self::Btl) {
        self.inner.abandon(index, btl.into_inner());
    }

    fn announce_sleep(&mut self, index: usize) {
        self.inner.announce_sleep(index);
    }

    fn was_woken(&mut self, index: usize) -> Option<bool> {
        self.inner.was_woken(index)
    }
}
