// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The endpoints from which a waiting call expects a message. The waiter polls their rings between two calls of progress.

use mend_base::Key;

/// Some endpoints, or all.
#[derive(Debug)]
pub(crate) struct ExpectedSenders<E> {
    endpoints: [Option<E>; ENDPOINTS_MAX],
    /// The number of endpoints; 0: a message from any peer is expected.
    count: usize,
    /// More endpoints were added than fit into `endpoints`, or one that is not known.
    any: bool,
    /// A collective operation for which the call waits: each of its rounds expects messages from other peers.
    collective: Option<Key>,
}

/// More are not polled one by one: a call of progress polls all rings.
const ENDPOINTS_MAX: usize = 8;

impl<E: Copy + Eq> ExpectedSenders<E> {
    /// A message from any peer is expected.
    pub const ANY: ExpectedSenders<E> =
        ExpectedSenders { endpoints: [None; ENDPOINTS_MAX], count: 0, any: false, collective: None };

    /// Expects a message from any peer, until endpoints are added.
    #[inline]
    pub fn clear(&mut self) {
        (self.count, self.any, self.collective) = (0, false, None);
    }

    // Hot: per blocking call.
    /// Expects a message from one endpoint; `None`: from any peer.
    #[inline]
    pub fn only(&mut self, endpoint: Option<E>) {
        self.clear();
        self.endpoints[0] = endpoint;
        self.count = usize::from(endpoint.is_some());
    }

    /// Adds the endpoint from which one of several requests expects a message; `None`: any peer.
    pub fn add(&mut self, endpoint: Option<E>) {
        if self.any || endpoint.is_some() && self.endpoints[..self.count].contains(&endpoint) {
            return;
        }
        if endpoint.is_none() || self.count == ENDPOINTS_MAX {
            self.any = true;
            self.count = 0;
            return;
        }
        self.endpoints[self.count] = endpoint;
        self.count += 1;
    }

    /// Sets the collective operation for which the call waits.
    pub fn follow(&mut self, collective: Key) {
        self.collective = Some(collective);
    }

    /// The collective operation for which the call waits.
    pub fn collective(&self) -> Option<Key> {
        self.collective
    }

    // Hot: per poll of a waiter.
    /// Whether the ring of an expected sender holds a message; true if a message from any peer is expected.
    #[inline]
    pub fn is_ready(&self, ready: impl Fn(E) -> bool) -> bool {
        self.count == 0 || self.endpoints[..self.count].iter().flatten().any(|&endpoint| ready(endpoint))
    }
}

#[cfg(test)]
mod tests {
    use super::ExpectedSenders;
    use mend_base::Key;

    fn expecting(endpoints: &[Option<u32>]) -> ExpectedSenders<u32> {
        let mut senders = ExpectedSenders::ANY;
        endpoints.iter().for_each(|&endpoint| senders.add(endpoint));
        senders
    }

    #[test]
    fn the_waiter_is_ready_when_one_of_the_expected_rings_holds_a_message() {
        let two = expecting(&[Some(3), Some(5), Some(3)]);
        assert!(two.is_ready(|endpoint| endpoint == 5));
        assert!(!two.is_ready(|endpoint| endpoint == 4));
    }

    #[test]
    fn an_unknown_sender_or_too_many_mean_any() {
        assert!(expecting(&[Some(3), None, Some(4)]).is_ready(|_| false));
        assert!(expecting(&(0..9).map(Some).collect::<Vec<_>>()).is_ready(|_| false));
        assert!(!expecting(&(0..8).map(Some).collect::<Vec<_>>()).is_ready(|_| false));
        assert!(expecting(&[]).is_ready(|_| false));
    }

    #[test]
    fn expecting_one_replaces_what_was_expected_before() {
        let mut senders = ExpectedSenders::ANY;
        senders.add(Some(1));
        senders.follow(Key { index: 0, generation: 1 });
        assert!(senders.collective().is_some());
        senders.only(Some(7));
        assert!(senders.collective().is_none() && !senders.is_ready(|endpoint| endpoint == 1));
        senders.only(None);
        assert!(senders.is_ready(|_| false));
    }
}
