// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the whole engine, in scripted jobs: the test makes each step.

mod collectives;
mod crossed;
mod deaths;
mod detection;
mod early;
mod finish;
mod freed;
mod identities;
mod interrupted;
mod news;
mod properties;
mod results;
mod wake_ups;
mod without_ft;
