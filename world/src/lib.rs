// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one engine of this process: its transports and runtime, which threads may use it, how threads wait, and what happens at fork. Read
//! [`World`] first.
//!
//! The engine and its parts, in the crates below, are values without threads. So what a process has once for its engine is here:
//! the static with the `World`, the mutual exclusion of threads, the clock, the choice of transports and runtime (Rules 2 and 5
//! have the exceptions below `world`, such as the clock of `btl-shm`). The crate above checks arguments, and has what C alone
//! needs, such as handles of groups.
//!
//! | part                             | owns                                                                | calls                              |
//! |----------------------------------|---------------------------------------------------------------------|------------------------------------|
//! | `world`                          | the one `World`, from Init to Finalize; `MPI_Abort`                 | all below                          |
//! | `transports`                     | which transports this process uses, and why not others              | the transports                     |
//! | `fabric`                         | whether libfabric may be opened here, and the BTL over it           | `btl-ofi`                          |
//! | `rdma_devices`                   | the devices for remote memory access of this host                   | the kernel                         |
//! | `transport_report`               | what this process says for `MEND_REPORT=transports`                 | nothing                            |
//! | `guard`                          | the entry to the engine: one thread at a time                       | `bias`, `semaphore`                |
//! | `bias`                           | the words by which program and helper thread exclude each other     | nothing                            |
//! | `wait`                           | the loop of polls, yields and sleeps                                | `guard`, `roles`, `blocked`, `semaphore`, `wait_timing`, `sleep_slot`, `clock` |
//! | `unsatisfiable_waits`            | the threads whose wait only another thread of this process could end | nothing                           |
//! | `polling`                        | polls before a receive is posted                                    | the engine                         |
//! | `roles`                          | which waiting thread makes progress, which is standby               | `blocked`                          |
//! | `blocked`                        | the blocked threads, and what wakes each                            | `semaphore`                        |
//! | `wait_timing`                    | when the clock is read and a check is due                           | `spin_policy`, `sleep_slot`        |
//! | `spin_policy`                    | poll, yield or sleep: a state machine without clock or system calls | nothing                            |
//! | `sleep_slot`                     | the sleep word and waiting processor of this process, and on what it sleeps | `processors`, `descriptor_watch`, `poll_set`, the bell page |
//! | `descriptor_watch`               | the watcher thread: it polls descriptors for sleepers on a futex    | `poll_set`, `threads`, the bell page |
//! | `poll_set`                       | descriptors to poll                                                 | the kernel                         |
//! | `statistics`                     | the counts of `MEND_REPORT=statistics`                              | nothing                            |
//! | `semaphore`                      | a binary semaphore for each thread                                  | the kernel                         |
//! | `processors`, `clock`            | what the kernel reports                                             | the kernel                         |
//! | `threads`                        | threads of the process: how many there are, and how ours are started | the kernel                        |
//! | `helper`                         | the helper thread                                                   | `watch_schedule`, `descriptor_schedule`, `semaphore`, `life`, `threads`, the bell page |
//! | `descriptor_schedule`            | when the helper thread looks whether the program computes, and descriptors must be watched | nothing     |
//! | `watch_schedule`                 | when the helper thread looks whether control messages were consumed | `btl-shm`'s control watch          |
//! | `life`, `fatal`                  | the life word; handlers for fatal signals                           | `segment`'s life                   |
//! | `fork`                           | what is removed in a forked child                                   | `world`, `life`                    |
//! | `parameters`                     | the list of all parameters                                          | every component that declares some |

mod atomic;
mod bias;
mod blocked;
mod clock;
mod descriptor_schedule;
mod descriptor_watch;
mod fabric;
mod fatal;
mod fork;
#[cfg(test)]
mod forked;
mod guard;
mod helper;
mod life;
mod parameters;
mod poll_set;
mod polling;
mod processors;
mod rdma_devices;
mod roles;
mod semaphore;
mod sleep_slot;
mod spin_policy;
mod statistics;
mod threads;
mod transport_report;
mod transports;
mod unsatisfiable_waits;
mod wait;
mod wait_timing;
mod watch_schedule;
mod world;

pub use clock::now;
pub use fabric::{FabricOffer, FabricSurvey, NoFabric, survey as survey_fabric};
pub use guard::Threads;
pub use mend_runtime::exit_code;
pub use mend_runtime::settings::{OTHER_VARIABLES, SettingsError};
pub use parameters::DECLARED;
pub use processors::usable as usable_processors;
pub use rdma_devices::{is_of_device, rdma_devices};
pub use statistics::Statistics;
pub use transports::{Networks, NoTransport};
pub use wait::StartResult;
pub use world::{
    AbortScope, Engine, InitError, Net, Stage, World, exit_process, exit_process_with, get,
    settings_from_environment, stage, start,
};
