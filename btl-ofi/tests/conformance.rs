// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contract of a BTL, requirement by requirement, over each provider.
//!
//! `MENDTEST_FABRIC_2` names a libfabric 2.x, such as the one in the wheels of other MPIs.

#[path = "rig/fabric.rs"]
mod fabric;

use fabric::provider;

const VERSION_2: Option<&str> = Some("MENDTEST_FABRIC_2");

provider!(net, "net", None, true);
provider!(tcp_rxm, "tcp;ofi_rxm", None, true);
provider!(sockets, "sockets", None, true);
provider!(shm, "shm", None, false);
provider!(tcp_of_2, "tcp", super::VERSION_2, true);
provider!(shm_of_2, "shm", super::VERSION_2, false);
