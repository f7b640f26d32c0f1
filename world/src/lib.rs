// SPDX-License-Identifier: Apache-2.0 OR MIT
//! This process's one engine: what it is made of, who may enter, how threads wait, and what happens at fork. Start with
//! [`World`].
//!
//! Everything below is a value and knows no threads; everything above is a thin skin. So this is the one place with a
//! static, with mutual exclusion, with a clock and with the environment.

mod cell;
mod clock;
mod fatal;
mod fork;
#[cfg(test)]
mod forked;
mod guard;
mod helper;
mod life;
mod parameters;
mod processors;
mod threads;
mod wait;
mod world;

pub use clock::now;
pub use guard::Threads;
pub use mend_runtime::exit_code;
pub use mend_runtime::settings::{OTHER_VARIABLES, SettingsError};
pub use parameters::DECLARED;
pub use processors::usable as usable_processors;
pub use wait::{Begun, Statistics};
pub use world::{
    AbortScope, Engine, Net, Stage, StartError, World, get, leave_process, settings_from_environment, stage,
    start,
};
