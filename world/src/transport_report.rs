// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `MEND_REPORT=transports` prints at MPI_Finalize: the transport to each peer, and why better ones are not used.

use mend_base::PeerIndex;
use mend_transport::Via;
use std::collections::BTreeMap;

/// The networks of this process by name, and what was not chosen.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ChosenTransports {
    /// In the order of the networks of the `Bml`.
    pub networks: Vec<String>,
    /// Each a name and the reason.
    pub refusals: Vec<String>,
}

/// The line of rank `rank` of `size`. `connections`: what the `Bml` has connected; the index of a peer that the launcher started is its rank.
pub fn line(rank: u32, size: u32, connections: &[(PeerIndex, Via)], chosen: &ChosenTransports) -> String {
    let mut by_transport: BTreeMap<Via, Vec<u32>> = BTreeMap::new();
    for &(peer, via) in connections {
        by_transport.entry(via).or_default().push(peer.0);
    }
    let without: Vec<u32> =
        (0..size).filter(|&peer| !connections.iter().any(|(connected, _)| connected.0 == peer)).collect();
    let mut parts: Vec<String> = Vec::new();
    for (via, peers) in by_transport {
        let name = match via {
            Via::Loopback => "self",
            Via::Shm => "shm",
            Via::Network(index) => {
                chosen.networks.get(usize::from(index)).map_or("a network", String::as_str)
            }
        };
        parts.push(format!("{name} to {}", ranks(peers)));
    }
    if !without.is_empty() {
        parts.push(format!("no contact with {}", ranks(without)));
    }
    if !chosen.refusals.is_empty() {
        parts.push(format!("not used: {}", chosen.refusals.join(", ")));
    }
    format!("transports of rank {rank}: {}", parts.join("; "))
}

/// `rank 3`, or `ranks 0-2, 5`.
fn ranks(mut all: Vec<u32>) -> String {
    all.sort_unstable();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for rank in all {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => ranges.push((rank, rank)),
        }
    }
    let word = if matches!(ranges[..], [(first, last)] if first == last) { "rank" } else { "ranks" };
    let texts = ranges.iter().map(|&(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    format!("{word} {}", texts.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::{ChosenTransports, line};
    use mend_base::PeerIndex;
    use mend_transport::Via;

    #[test]
    fn each_rank_is_named_once_with_its_transport() {
        let connections =
            [(5, Via::Network(0)), (1, Via::Loopback), (3, Via::Shm), (0, Via::Shm), (2, Via::Shm)]
                .map(|(peer, via)| (PeerIndex(peer), via));
        let networks = vec!["ofi (net over lo)".to_owned()];
        let chosen = ChosenTransports { networks, refusals: Vec::new() };
        assert_eq!(
            line(1, 8, &connections, &chosen),
            "transports of rank 1: self to rank 1; shm to ranks 0, 2-3; ofi (net over lo) to rank 5; no contact with ranks 4, 6-7"
        );
    }

    #[test]
    fn what_is_not_used_is_named_with_the_reason() {
        let refusals = vec!["ofi: it cannot be opened".to_owned(), "shm: left out".to_owned()];
        let chosen = ChosenTransports { networks: Vec::new(), refusals };
        assert_eq!(
            line(0, 1, &[(PeerIndex(0), Via::Loopback)], &chosen),
            "transports of rank 0: self to rank 0; not used: ofi: it cannot be opened, shm: left out"
        );
    }
}
