// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transports of this process: which ones it uses, and why it does without others that the user allows.

use crate::fabric::{self, NoFabric};
use mend_base::parameter::Settings;
use mend_btl_shm::{NodeSlot, Shm, ShmError};
use mend_runtime::Membership;
use mend_segment::BellPage;
use mend_transport::{Loopback, Network};
use std::sync::Arc;

/// The networks of this process.
pub type Networks = Vec<Box<dyn Network>>;

/// Why this process has no transport to other ranks.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoTransport {
    /// The transport could not be made.
    #[error("E-INIT-005: {0}")]
    Shm(#[from] ShmError),
    /// The node daemon could not make the memory that its ranks share.
    #[error(
        "E-INIT-007: the node daemon could not make the pages that its ranks share, as mpiexec says; without them there is no shared \
         memory, and no other transport reaches other ranks"
    )]
    NoPages,
    /// libfabric cannot be used, and nothing else reaches other ranks.
    #[error("E-INIT-008: no transport reaches other ranks; libfabric cannot be used: {0}")]
    Fabric(#[from] NoFabric),
}

/// The transports that this process uses.
pub struct Transports {
    pub own: Option<Loopback>,
    pub shm: Option<Shm>,
    pub networks: Networks,
    /// Those that are allowed and cannot be used.
    pub refused: Vec<RefusedTransport>,
}

/// A transport that is allowed and cannot be used here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefusedTransport {
    /// Its name in the parameter `btl`.
    pub name: &'static str,
    /// Why, in a sentence without a full stop.
    pub reason: String,
}

/// Makes the transports. `bells`: the bell page of the node, if the node daemon could make one. An error if no transport that is allowed
/// reaches other ranks.
pub fn make(
    settings: &Settings,
    membership: &Membership,
    bells: Option<&Arc<BellPage>>,
) -> Result<Transports, NoTransport> {
    let shm = shared_memory(settings, membership, bells);
    let has_shm = matches!(shm, Ok(Some(_)));
    let wants_fabric = settings.allows("btl", "ofi") && membership.size > 1;
    let ofi = if wants_fabric && (!has_shm || fabric::is_named(settings)) {
        Some(fabric::open(settings, membership.local_ranks == membership.size))
    } else {
        None
    };
    let mut refused = vec![];
    let mut networks = Networks::new();
    let (shm, ofi) = match (shm, ofi) {
        (Err(error), None) => return Err(error),
        // What the user has excluded is no reason: that of libfabric is.
        (Ok(None), Some(Err(error))) => return Err(error.into()),
        (Err(error), Some(Err(_))) => return Err(error),
        (Err(error), ofi) => {
            refused.push(RefusedTransport { name: "shm", reason: error.to_string() });
            (None, ofi)
        }
        (Ok(shm), ofi) => (shm, ofi),
    };
    match ofi {
        Some(Ok(ofi)) => networks.push(Box::new(ofi)),
        Some(Err(error)) => refused.push(RefusedTransport { name: "ofi", reason: error.to_string() }),
        None => {}
    }
    let own = settings.allows("btl", "self").then(|| Loopback::new(membership.peer));
    Ok(Transports { own, shm, networks, refused })
}

/// `None`: not allowed, or not needed because there is no other process.
fn shared_memory(
    settings: &Settings,
    membership: &Membership,
    bells: Option<&Arc<BellPage>>,
) -> Result<Option<Shm>, NoTransport> {
    let &Membership { node_slot: slot, node_slots: slots, .. } = membership;
    if !settings.allows("btl", "shm") || slots == 1 {
        return Ok(None);
    }
    let bells = match bells {
        Some(bells) => Arc::clone(bells),
        None if membership.size == 1 => return Ok(None),
        None => return Err(NoTransport::NoPages),
    };
    let node = NodeSlot { slot, slots, bells };
    Ok(Some(Shm::new(node, settings.number("pml.eager_bytes") as u32, settings)?))
}

#[cfg(test)]
mod tests {
    use super::{NoTransport, make};
    use crate::parameters::DECLARED;
    use mend_base::parameter::Settings;
    use mend_base::{Job, Peer};
    use mend_runtime::Membership;
    use mend_segment::BellPage;
    use std::sync::Arc;

    fn membership(size: u32, node_slots: u32) -> Membership {
        let peer = Peer::new(Job(1), 0);
        Membership { peer, size, node_slot: 0, node_slots, local_ranks: size, fault_tolerant: true }
    }

    #[test]
    fn without_a_bell_page_shared_memory_is_refused_where_it_is_needed() {
        let settings = Settings::new(DECLARED);
        let bells = Arc::new(BellPage::create(17).unwrap().0);
        assert!(make(&settings, &membership(2, 17), Some(&bells)).is_ok_and(|made| made.shm.is_some()));
        assert!(matches!(make(&settings, &membership(2, 17), None), Err(NoTransport::NoPages)));
        for alone in [membership(1, 17), membership(1, 1)] {
            assert!(make(&settings, &alone, None).is_ok_and(|made| made.shm.is_none()));
        }
    }
}
