// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of collective communication (`docs/parameters.md`).

use mend_base::parameter::{Parameter, ParameterKind};

/// The parameters of this component.
pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "coll",
        kind: ParameterKind::Names(&["basic", "ftagree"]),
        unit: "",
        default: "",
        description: "Collective components that may be used: a list, or ^ and a list of those that may not.",
    },
    Parameter {
        name: "coll.basic_priority",
        kind: ParameterKind::Number(0, 100),
        unit: "",
        default: "10",
        description: "Where several components offer an operation, the one with the highest priority serves it: that of basic.",
    },
    Parameter {
        name: "coll.ftagree_priority",
        kind: ParameterKind::Number(0, 100),
        unit: "",
        default: "50",
        description: "The priority of ftagree, whose agreements survive failures.",
    },
];
