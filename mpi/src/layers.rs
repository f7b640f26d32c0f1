// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The layers below the engine. The engine owns them, and its parts borrow them during a call (Rule 3).

use mend_pml::Ob1;
use mend_transport::Rdma;

/// The transports, the PML and the runtime.
#[derive(Debug)]
pub(crate) struct Layers<N: Rdma, R> {
    pub net: N,
    pub pml: Ob1<N::Endpoint>,
    pub runtime: R,
}
