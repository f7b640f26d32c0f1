// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the whole engine, in scripted jobs: the test makes each step.

mod collectives;
mod deaths;
mod identities;
mod interrupted;
mod properties;
mod results;
mod wake_ups;
