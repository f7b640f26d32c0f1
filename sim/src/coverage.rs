// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What jobs of recoveries have reached, compared with all that could be reached: the branches that the code names
//! ([`mend_base::reach`]), the MPI calls of the programs, and the points at which ranks die. Whatever is never visited has a reason here.

use crate::killer::Point;
use crate::recoveries::Tally;
use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

/// So many jobs reach everything that has no reason here.
pub const JOBS_MIN: u64 = 100_000;

/// Every branch that the sources name, in the crates whose code a simulated process runs. Empty where there are no sources.
pub fn named_branches() -> BTreeSet<String> {
    let texts = ["mpi", "pml", "proto", "coll", "sim"].map(sources);
    let texts = texts.iter().flatten();
    texts.flat_map(|text| quoted_after(text, "reach!(")).filter(|name| name.contains(": ")).collect()
}

/// Every MPI call that the programs of recoveries name.
pub fn named_calls() -> BTreeSet<String> {
    let texts = sources("sim");
    let of_recoveries = texts.iter().filter(|text| text.contains("impl Survivor"));
    of_recoveries
        .flat_map(|text| quoted_after(text, "call("))
        .filter(|name| name.starts_with("MPI"))
        .collect()
}

/// What the jobs have not reached: its name, and the reason if there is one.
pub fn unvisited(tally: &Tally) -> Vec<(String, Option<&'static str>)> {
    let branches = named_branches().into_iter().filter(|name| !tally.branches.contains_key(&**name));
    let calls = named_calls().into_iter().filter(|name| !tally.calls.contains_key(&**name));
    let died_at = |wanted: Point| tally.deaths.keys().any(|(_, point)| *point == wanted);
    let points = Point::ALL.into_iter().filter(|point| !died_at(*point));
    let died_in = |wanted: &str| tally.deaths.keys().any(|(call, _)| *call == wanted);
    let deaths = tally.calls.keys().filter(|call| !died_in(call)).map(|call| format!("deaths in {call}"));
    let names = branches.chain(calls).chain(points.map(|point| format!("deaths at {point:?}"))).chain(deaths);
    names.map(|name| (reason(&name), name)).map(|(reason, name)| (name, reason)).collect()
}

/// Why jobs of recoveries do not reach this.
fn reason(name: &str) -> Option<&'static str> {
    let group = REASONS.iter().find(|(_, names)| names.iter().any(|prefix| name.starts_with(prefix)));
    group.map(|(reason, _)| *reason)
}

/// The texts of all sources of a crate.
fn sources(package: &str) -> Vec<String> {
    fn collect(folder: &Path, texts: &mut Vec<String>) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                collect(&path, texts)?;
            } else {
                texts.push(fs::read_to_string(&path)?);
            }
        }
        Ok(())
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(package).join("src");
    let mut texts = vec![];
    // Without the sources nothing is compared.
    if collect(&folder, &mut texts).is_err() {
        texts.clear();
    }
    texts
}

/// The string literals that follow `word` immediately.
fn quoted_after(text: &str, word: &str) -> Vec<String> {
    let rests = text.split(word).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
    rests.filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect()
}

/// What is not reached, by reason. A name stands for all that begin with it.
const REASONS: &[(&str, &[&str])] = &[
    (
        "jobs of recoveries create no intercommunicators; `--test inter` does",
        &[
            "mpi.collective: about both groups",
            "mpi.intercomm: ",
            "mpi.repair: one group of an intercommunicator has failed",
        ],
    ),
    (
        "members give the same group and tag to each creation of a group, and no leader leaves a note behind",
        &["mpi.announcement: of another group", "mpi.leader_exchange: of an earlier call"],
    ),
    (
        "all members recover in the same order; in `--test crossed` they do not",
        &[
            "mpi.crossing: ",
            "proto.agreement: a member contributes in absentia",
            "proto.agreement: the list of ",
            "proto.crossing: a check ",
            "proto.crossing: a conclusion ",
            "proto.crossing: a search comes back ",
            "proto.crossing: a search meets a program again",
            "proto.crossing: the conclusion ",
            "sim.crossed: ",
            "mpi.collective: asked again, after an earlier query",
        ],
    ),
    (
        "a cycle of so many programs, or so many searches at once, needs larger jobs; units of `proto`",
        &[
            "proto.crossing: a search has met too many programs",
            "proto.crossing: the oldest visit is forgotten",
        ],
    ),
    (
        "hardly any rank leaves while others vote, agree or have items; `--test crossed`, `model`",
        &[
            "proto.agreement: a departed member had the decision",
            "proto.agreement: the node daemon has still to answer",
            "proto.spread: a departure meets a freed part",
            "proto.spread: a departure meets a part that is over",
            "proto.vote: a departed member had the result",
            "proto.vote: a root by succession must ask the node daemon",
            "proto.vote: no departed member had the result",
        ],
    ),
    (
        "few agreements are uniform, and hardly any job has these orders of messages; units of `proto` try all orders",
        &[
            "proto.agreement: a departure meets a member that has confirmed",
            "proto.agreement: a departure meets a member that has stored",
            "proto.agreement: a release meets a member that has stored",
        ],
    ),
    (
        "no creation fails at one member for a reason of that member alone; `--test inter` and `model` have such votes",
        &[
            "proto.vote: a ballot meets a member that has sent a no",
            "proto.vote: a member that gathers sends a no",
            "proto.vote: a member that has sent a no refuses",
            "proto.vote: a no without a permanent reason meets a member that has sent a no",
            "proto.vote: a permanent no comes after the result of its round",
            "proto.vote: a permanent no comes down",
        ],
    ),
    (
        "about one job in 50,000 has this order of messages; `model` tries all orders",
        &["proto.vote: a ballot for the next round comes up"],
    ),
    (
        "the node daemon gives notices; in `--test detector` ranks detect failures",
        &["mpi.detection: ", "proto.detector: ", "sim.detection: "],
    ),
    (
        "nobody writes garbage; in `--test seeds` a rank does, and in units of `pml` and `mpi`",
        &[
            "mpi.member_protocols: a communicator of a process that does not exist",
            "pml.arrival: not its rank",
            "pml.arrival: out of sequence",
            "pml.operations: garbage",
            "pml.gets: a key that no correct peer writes",
            "pml.peers: garbage",
        ],
    ),
    ("the node daemon gives each contact once", &["mpi.contact: notice again"]),
    (
        "no allocation fails; in `--test no_memory` some do, and units of `pml` and `mpi`, and `tests/c/no_memory.c`, limit memory",
        &[
            "mpi.announcement: no memory for the receive",
            "mpi.announcement: the children get no number",
            "mpi.collective: no memory",
            "mpi.creation: no memory for a leader's note",
            "mpi.creation: the second broadcast is skipped",
            "mpi.peer_reports: unreachable for itself",
            "pml.arrival: no memory for a remote key",
            "pml.budget: a reserved buffer",
            "pml.flush: no memory for reserved places",
            "pml.gets: no memory for a transfer",
            "pml.peers: no memory for what it wrote",
            "pml.send: no memory for a stream yet",
        ],
    ),
    (
        "no connection is refused, so no peer is unreachable; `--test seeds` has refusals, units of `mpi` the rest",
        &[
            "mpi.contact: refused by this process",
            "mpi.peer_reports: an unreachable peer is needed",
            "mpi.peer_reports: unreachable, then failed",
            "pml.end: unreachable, and then failed",
        ],
    ),
    (
        "evidence comes only while nobody knows of an end; in `--test seeds` garbage of an ended peer is found",
        &["mpi.peer_reports: evidence too late"],
    ),
    (
        "who sees an error revokes, so nobody waits when all others have ended; `--test waits`, `--test deaths`",
        &[
            "mpi.completion: an unsatisfiable wait ends",
            "pml.end: all others have ended",
            "pml.end: an unsatisfiable",
        ],
    ),
    (
        "the programs cancel no send; units of `pml` (`ob1/tests/cancel.rs`)",
        &[
            "pml.arrival: a matched RTS is cancelled",
            "pml.arrival: an unexpected RTS is cancelled",
            "pml.end: the cancellation of an RTS",
            "pml.receive: cancelled by both ends",
            "pml.receive: matched anew",
            "pml.receive: without its match on a revoked channel",
        ],
    ),
    (
        "each receive has room for its whole message; `--test waits`, `--test deaths`",
        &["pml.streams: nothing wanted"],
    ),
    (
        "an error ends the steps of a round, so no rank receives or probes again; `--test deaths`, units of `pml`",
        &[
            "pml.end: a posted wildcard receive takes what a lost message had hidden",
            "pml.probe: the RTS of an ended peer",
        ],
    ),
    (
        "it needs thousands of unanswered sends, or communicators",
        &["pml.channels: no id left", "pml.send: too many without"],
    ),
    ("no MPI_Init fails; in `--test deaths` some do", &["sim.cluster: MPI_Init fails"]),
    (
        "the call only asks the engine, or begins what a later call waits for: few or no calls to transports and runtime",
        &[
            "deaths in MPIX_Comm_iagree",
            "deaths in MPIX_Comm_revoke",
            "deaths in MPI_Comm_ack_failed",
            "deaths in MPI_Comm_get_failed",
            "deaths in MPI_Comm_idup",
            "deaths in MPI_Comm_set_info",
            "deaths in MPI_Irecv",
            "deaths in MPI_Isend",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::{REASONS, named_branches, named_calls};

    #[test]
    fn a_reason_is_given_only_for_what_the_code_names() {
        let (branches, calls) = (named_branches(), named_calls());
        assert!(branches.len() > 100 && calls.len() > 20, "{branches:?} {calls:?}");
        let calls = calls.iter().map(|call| format!("deaths in {call}"));
        let all: Vec<String> = branches.into_iter().chain(calls).collect();
        let prefixes = REASONS.iter().flat_map(|(_, prefixes)| *prefixes);
        let stale: Vec<_> =
            prefixes.filter(|prefix| !all.iter().any(|name| name.starts_with(**prefix))).collect();
        assert!(stale.is_empty(), "reasons for what does not exist: {stale:?}");
    }
}
