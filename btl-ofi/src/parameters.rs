// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of this component.

use mend_base::parameter::{Parameter, ParameterKind};

/// The parameters of this component.
pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "btl_ofi.library",
        kind: ParameterKind::Text,
        unit: "",
        default: "libfabric.so.1",
        description: "File name or path of libfabric.",
    },
    Parameter {
        name: "btl_ofi.provider",
        kind: ParameterKind::Text,
        unit: "",
        default: "",
        description: "Providers of libfabric that may be used, the best first: a list, or ^ and a list of those that may not; empty: by fitness.",
    },
    Parameter {
        name: "btl_ofi.interface",
        kind: ParameterKind::Text,
        unit: "",
        default: "",
        description: "Interfaces that may be used, as libfabric calls their domains: a list, or ^ and a list of those that may not; empty: by fitness.",
    },
    Parameter {
        name: "btl_ofi.rails",
        kind: ParameterKind::Number(1, 4),
        unit: "rails",
        default: "1",
        description: "How many interfaces or providers are used at once; large messages take turns over them.",
    },
    Parameter {
        name: "btl_ofi.eager_bytes",
        kind: ParameterKind::Number(0, 1 << 20),
        unit: "bytes",
        default: "0",
        description: "The eager limit over libfabric: the longest message that is sent before a receive has matched it; 0: one that suits the provider.",
    },
    Parameter {
        name: "btl_ofi.chunk_bytes",
        kind: ParameterKind::Number(0, 1 << 20),
        unit: "bytes",
        default: "0",
        description: "The longest chunk of a large message that libfabric does not read from memory; 0: one that suits the provider.",
    },
    Parameter {
        name: "btl_ofi.reconnect_ms",
        kind: ParameterKind::Number(100, 3_600_000),
        unit: "milliseconds",
        default: "10000",
        description: "How long the way to a peer that runs may be broken before the two count as unreachable for each other.",
    },
];
