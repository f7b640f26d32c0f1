// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transports of this process: which ones it uses, and why it does without others that the user allows.

use crate::fabric::{self, NoFabric};
use crate::rdma_devices::{rdma_devices, unused_devices};
use crate::transport_report::ChosenTransports;
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
    /// Another transport would replace it, which the user has forbidden.
    #[error(
        "E-INIT-009: the transport {0} cannot be used, and btl_strict = 1 lets no other one replace it: {1}"
    )]
    Strict(&'static str, String),
}

/// The transports that this process uses.
pub struct Transports {
    pub own: Option<Loopback>,
    pub shm: Option<Shm>,
    pub networks: Networks,
    /// For the report about transports.
    pub chosen: ChosenTransports,
}

/// A transport that is allowed and cannot be used here.
struct Refused {
    /// Its name in the parameter `btl`.
    name: &'static str,
    /// Why, in a sentence without a full stop.
    reason: String,
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
    let mut chosen = ChosenTransports::default();
    let (shm, ofi) = match (shm, ofi) {
        (Err(error), None) => return Err(error),
        // What the user has excluded is no reason: that of libfabric is.
        (Ok(None), Some(Err(error))) => return Err(error.into()),
        (Err(error), Some(Err(_))) => return Err(error),
        (Err(error), ofi) => {
            refused.push(Refused { name: "shm", reason: error.to_string() });
            (None, ofi)
        }
        (Ok(shm), ofi) => (shm, ofi),
    };
    let mut providers = Vec::new();
    let mut why_no_device = match (has_shm, settings.allows("btl", "ofi")) {
        (true, true) => "shared memory reaches all ranks".to_owned(),
        (_, false) => format!("ofi: left out by btl = {}", settings.text("btl").0),
        (false, true) => "there is no other rank".to_owned(),
    };
    match ofi {
        Some(Ok(fabric)) => {
            why_no_device = format!("libfabric uses {}", fabric.rails);
            providers = fabric.providers;
            chosen.networks.push(format!("ofi ({})", fabric.rails));
            // A provider may have the name of a transport, such as shm.
            chosen.refusals = fabric.refusals.iter().map(|refusal| format!("ofi: {refusal}")).collect();
            networks.push(Box::new(fabric.ofi));
        }
        Some(Err(error)) => {
            why_no_device = "libfabric cannot be used".to_owned();
            refused.push(Refused { name: "ofi", reason: error.to_string() });
        }
        None => {}
    }
    if let Some(Refused { name, reason }) = refused.first().filter(|_| is_strict(settings)) {
        return Err(NoTransport::Strict(name, reason.clone()));
    }
    chosen.refusals.extend(refused.iter().map(|Refused { name, reason }| format!("{name}: {reason}")));
    chosen.refusals.extend(left_out(settings, &networks));
    if settings.has_word("report", "transports") {
        chosen.refusals.extend(unused_devices(&rdma_devices(), &providers, &why_no_device));
    }
    let own = settings.allows("btl", "self").then(|| Loopback::new(membership.peer));
    Ok(Transports { own, shm, networks, chosen })
}

fn is_strict(settings: &Settings) -> bool {
    settings.number("btl_strict") != 0
}

/// Shared memory comes before every network: if the user leaves it out and a network takes its place, that is the reason.
fn left_out(settings: &Settings, networks: &Networks) -> Option<String> {
    let is_left_out = !settings.allows("btl", "shm") && !networks.is_empty();
    is_left_out.then(|| format!("shm: left out by btl = {}", settings.text("btl").0))
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
    Ok(Some(Shm::new(node, settings)?))
}

#[cfg(test)]
mod tests {
    use super::{NoTransport, make};
    use crate::parameters::DECLARED;
    use mend_base::parameter::{Origin, Settings};
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
        let mut settings = Settings::new(DECLARED);
        // Where libfabric is installed it would stand in.
        settings.apply(Origin::CommandLine, &vec![("btl".to_owned(), "^ofi".to_owned())]).unwrap();
        let bells = Arc::new(BellPage::create(17).unwrap().0);
        assert!(make(&settings, &membership(2, 17), Some(&bells)).is_ok_and(|made| made.shm.is_some()));
        assert!(matches!(make(&settings, &membership(2, 17), None), Err(NoTransport::NoPages)));
        for alone in [membership(1, 17), membership(1, 1)] {
            assert!(make(&settings, &alone, None).is_ok_and(|made| made.shm.is_none()));
        }
    }

    #[test]
    fn what_is_named_and_cannot_be_used_is_an_error_only_if_the_user_is_strict() {
        let bells = Arc::new(BellPage::create(17).unwrap().0);
        let made = |values: &[(&str, &str)]| {
            let mut all = vec![("btl_ofi.library".to_owned(), "libfabric-that-nobody-has.so".to_owned())];
            all.extend(values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
            let mut settings = Settings::new(DECLARED);
            settings.apply(Origin::CommandLine, &all).unwrap();
            make(&settings, &membership(2, 17), Some(&bells))
        };
        let named = ("btl", "self,shm,ofi");
        let replaced = made(&[named]).unwrap().chosen;
        assert!(replaced.refusals[0].starts_with("ofi: libfabric-that-nobody-has.so"), "{replaced:?}");
        let strict = made(&[named, ("btl_strict", "1")]).err();
        assert!(matches!(strict, Some(NoTransport::Strict("ofi", _))), "{strict:?}");
        for unnamed in ["", "^ofi", "self,shm"] {
            let made = made(&[("btl", unnamed), ("btl_strict", "1")]);
            assert!(made.is_ok_and(|made| made.chosen.refusals.is_empty()), "{unnamed}");
        }
    }
}
