// SPDX-License-Identifier: Apache-2.0 OR MIT
//! This process's one engine: what it is made of, who may enter, how threads wait.

pub mod cell;
pub mod clock;
pub mod guard;
pub mod helper;
pub mod processors;
pub mod settings;
pub mod wait;

pub use clock::now;
pub use processors::usable as usable_processors;
pub use settings::{OTHER_VARIABLES, SettingsError, from_environment as settings_from_environment};
pub use wait::Statistics;
