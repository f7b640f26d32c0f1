// SPDX-License-Identifier: Apache-2.0 OR MIT
//! This process's one engine: what it is made of, which threads may enter, how they wait, and what happens at fork. Start
//! with [`World`].
//!
//! Everything below is a value and knows no threads; everything above is a thin skin. So this is the one place with a
//! static, with mutual exclusion, with a clock and with the environment.
//!
//! | part          | owns                                                          | calls                            |
//! |---------------|---------------------------------------------------------------|----------------------------------|
//! | `world`       | the one `World`, from Init to Finalize; `MPI_Abort`           | all below                        |
//! | `guard`       | the engine's entry: one thread at a time                      | `cell`                           |
//! | `wait`        | the loop of polls, yields and sleeps                          | `guard`, `roles`, `pace`         |
//! | `polling`     | polls before a receive is posted                              | the engine                       |
//! | `roles`       | which waiting thread makes progress, which watches            | `blocked`                        |
//! | `blocked`     | the threads that sleep meanwhile, and what wakes each         | `cell`                           |
//! | `pace`        | when the clock is read and a check is due                     | `spin_policy`, `sleep_slot`      |
//! | `spin_policy` | poll, yield or sleep: a state machine without clock or system calls | nothing                    |
//! | `sleep_slot`  | this process's sleep word and published processor             | `processors`, the bell page      |
//! | `statistics`  | the counts of `MEND_REPORT=statistics`                        | nothing                          |
//! | `cell`        | one thread's own word to sleep on                             | the kernel                       |
//! | `processors`, `threads`, `clock` | what the kernel says                       | the kernel                       |
//! | `helper`      | the thread that is always there                               | `cell`, `life`                   |
//! | `life`, `fatal` | the life word; what a fatal signal says first               | `segment`'s life                 |
//! | `fork`        | what a forked child must not have                             | `world`, `life`                  |
//! | `parameters`  | the list of all parameters                                    | every component that declares some |

mod blocked;
mod cell;
mod clock;
mod fatal;
mod fork;
#[cfg(test)]
mod forked;
mod guard;
mod helper;
mod life;
mod pace;
mod parameters;
mod polling;
mod processors;
mod roles;
mod sleep_slot;
mod spin_policy;
mod statistics;
mod threads;
mod wait;
mod world;

pub use clock::now;
pub use guard::Threads;
pub use mend_runtime::exit_code;
pub use mend_runtime::settings::{OTHER_VARIABLES, SettingsError};
pub use parameters::DECLARED;
pub use processors::usable as usable_processors;
pub use statistics::Statistics;
pub use wait::Begun;
pub use world::{
    AbortScope, Engine, Net, Stage, StartError, World, get, leave_process, settings_from_environment, stage,
    start,
};
