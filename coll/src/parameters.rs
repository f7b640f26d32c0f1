// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of collective communication (`docs/parameters.md`).

use mend_base::parameter::{Parameter, ParameterKind};

/// The parameters of this component.
pub const PARAMETERS: &[Parameter] = &[Parameter {
    name: "coll",
    kind: ParameterKind::Names(&["basic"]),
    unit: "",
    default: "",
    description: "Collective components that may be used: a list, or ^ and a list of those that may not.",
}];
