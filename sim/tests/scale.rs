// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many engines in one process: the memory of an idle engine, and a job of a thousand ranks.
//!
//! The memory is the growth of this process's data segment (`/proc/self/statm`) over a thousand engines, divided by their
//! number. So it contains all allocations of an engine, with spare capacity, and the granularity of the allocator is small.

use mend_base::{Job, Peer};
use mend_mpi::{Config, Engine};
use mend_sim::launcher::{Launcher, SimRuntime};
use mend_sim::network::{SimBtl, SimNetwork, Sizes};
use mend_sim::process::Transports;
use mend_sim::programs::program;
use mend_sim::{Cluster, Process};
use mend_transport::Loopback;

const IDLE_BYTES_MAX: u64 = 16 << 10;
const ENGINES: u32 = 1_000;
const PAGE_BYTES: u64 = 4_096;

fn data_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm.split_whitespace().nth(5).and_then(|field| field.parse::<u64>().ok());
    pages.expect("the sixth field of statm is a number") * PAGE_BYTES
}

#[test]
fn an_idle_engine_costs_at_most_16_kib_and_a_thousand_ranks_run_in_one_process() {
    idle_engines_are_small();
    a_thousand_ranks_complete_a_barrier();
}

fn idle_engines_are_small() {
    let job = Job(1);
    let (network, launcher) = (SimNetwork::new(1), Launcher::new(job, ENGINES));
    let sizes = Sizes::draw(&mut mend_base::Random(1));
    let before = data_bytes();
    let engines: Vec<Engine<Transports, SimRuntime>> = (0..ENGINES)
        .map(|number| {
            let own = Some(Loopback::new(Peer::new(job, number)));
            let net = Transports::new(own, Some(SimBtl::new(&network, number, sizes)), Vec::new());
            let runtime = SimRuntime::new(&launcher, number);
            Engine::with_config(net, runtime, Config::default()).expect("the launcher takes every card")
        })
        .collect();
    let each = (data_bytes() - before) / u64::from(ENGINES);
    println!("an idle engine of {ENGINES} ranks: {each} bytes, {} of them itself", size_of_val(&engines[0]));
    assert!(each <= IDLE_BYTES_MAX, "{each} bytes");
}

fn a_thousand_ranks_complete_a_barrier() {
    let barrier = program(|process: Process| async move {
        let world = process.mpi.engine().comm_world();
        process.mpi.barrier(world).await.expect("all members live");
    });
    let summary = Cluster::new(1, ENGINES, barrier).run().unwrap_or_else(|report| panic!("{report}"));
    println!("{ENGINES} ranks: {summary:?}");
}
