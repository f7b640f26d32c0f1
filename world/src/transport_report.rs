// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What this process says for `MEND_REPORT=transports` when it leaves MPI: the transport to each peer, and why better ones are not used. The
//! node daemon makes one table of what all ranks say. A process without a node daemon prints its own.

use mend_base::PeerIndex;
use mend_runtime::transport_matrix::{SELF, SHM, heading, lines};
use mend_runtime::transport_view::TransportView;
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

/// What a rank of a job of `size` ranks says. `connections`: what the `Bml` has connected; the index of a peer that the launcher started is
/// its rank.
pub fn view(size: u32, connections: &[(PeerIndex, Via)], chosen: &ChosenTransports) -> TransportView {
    let connected: BTreeMap<u32, Via> =
        connections.iter().map(|&(peer, via)| (peer.0, via)).filter(|&(rank, _)| rank < size).collect();
    let mut by_transport: BTreeMap<Via, Vec<u32>> = BTreeMap::new();
    for (rank, via) in connected {
        by_transport.entry(via).or_default().push(rank);
    }
    let mut view = TransportView::default();
    for (via, ranks) in by_transport {
        let name = match via {
            Via::Loopback => SELF,
            Via::Shm => SHM,
            Via::Network(index) => {
                chosen.networks.get(usize::from(index)).map_or("a network", String::as_str)
            }
        };
        view.add_reached(name, ranks);
    }
    view.add_not_used(&chosen.refusals);
    view
}

/// What a process without a node daemon prints: what it says itself, of rank `rank` in a job of `size` ranks.
pub fn own_lines(rank: u32, size: u32, view: TransportView) -> String {
    let heading = format!("mend: {}\n", heading(size));
    let body = lines(size, &BTreeMap::from([(rank, view)]), &[]);
    body.into_iter().fold(heading, |text, line| text + "mend:   " + &line + "\n")
}

#[cfg(test)]
mod tests {
    use super::{ChosenTransports, own_lines, view};
    use mend_base::PeerIndex;
    use mend_runtime::transport_view::TransportView;
    use mend_transport::Via;

    fn reached(view: &TransportView) -> Vec<(&str, Vec<(u32, u32)>)> {
        let ranges = |ranks: &[mend_runtime::rank_ranges::RankRange]| {
            ranks.iter().map(|range| (range.first, range.last)).collect()
        };
        view.reached().iter().map(|each| (each.transport.as_str(), ranges(&each.ranks))).collect()
    }

    #[test]
    fn each_rank_is_named_once_with_its_transport() {
        let connections = [
            (5, Via::Network(0)),
            (1, Via::Loopback),
            (3, Via::Shm),
            (0, Via::Shm),
            (2, Via::Shm),
            (2, Via::Shm),
        ]
        .map(|(peer, via)| (PeerIndex(peer), via));
        let refusals = vec!["ofi: it cannot be opened".to_owned(), "shm: left out".to_owned()];
        let chosen = ChosenTransports { networks: vec!["ofi (net over lo)".to_owned()], refusals };
        let view = view(8, &connections, &chosen);
        assert_eq!(
            reached(&view),
            [("self", vec![(1, 1)]), ("shm", vec![(0, 0), (2, 3)]), ("ofi (net over lo)", vec![(5, 5)])]
        );
        assert_eq!(view.not_used(), chosen.refusals);
    }

    #[test]
    fn a_process_that_was_not_started_with_the_job_has_no_column() {
        let connections = [(0, Via::Loopback), (4, Via::Shm)].map(|(peer, via)| (PeerIndex(peer), via));
        assert_eq!(reached(&view(4, &connections, &ChosenTransports::default())), [("self", vec![(0, 0)])]);
    }

    #[test]
    fn a_process_without_a_node_daemon_prints_a_matrix_of_its_own() {
        let chosen = ChosenTransports {
            networks: Vec::new(),
            refusals: vec!["device mlx5_0: it is alone".to_owned()],
        };
        let text = own_lines(0, 1, view(1, &[(PeerIndex(0), Via::Loopback)], &chosen));
        assert_eq!(
            text,
            "mend: by which transport ranks (rows) have reached ranks (columns)\nmend:       0\nmend:    0  -\nmend:   \
             -: self\nmend:   not used by rank 0: device mlx5_0: it is alone\n"
        );
    }
}
