// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of the shared-memory transport (`docs/parameters.md`).

use crate::connect::{CHUNK_BYTES_MAX, EAGER_BYTES_MAX};
use mend_base::parameter::{Parameter, ParameterKind};

/// The parameters of this component.
pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "btl_shm.chunk_bytes",
        kind: ParameterKind::Number(2 << 10, CHUNK_BYTES_MAX as u64),
        unit: "bytes",
        default: "16k",
        description: "The longest chunk in which this process receives a large message through shared memory.",
    },
    Parameter {
        name: "btl_shm.eager_bytes",
        kind: ParameterKind::Number(0, EAGER_BYTES_MAX as u64),
        unit: "bytes",
        default: "4096",
        description: "The eager limit of shared memory: the longest message that this process accepts through it before a receive has matched it.",
    },
    Parameter {
        name: "btl_shm.memory_reserve_bytes",
        kind: ParameterKind::Number(0, 1 << 40),
        unit: "bytes",
        default: "4m",
        description: "Memory that must stay free under the memory limit after shared memory has been reserved.",
    },
];
