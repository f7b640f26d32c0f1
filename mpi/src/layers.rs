// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The layers below, which the engine owns and lends to its parts for the length of a call (Rule 3).

use mend_pml::Ob1;
use mend_transport::Btl;

/// Transports, point-to-point, runtime.
#[derive(Debug)]
pub(crate) struct Layers<N: Btl, R> {
    pub net: N,
    pub pml: Ob1<N::Endpoint>,
    pub runtime: R,
}
