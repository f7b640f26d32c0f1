// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters that the launcher and every process read (`docs/parameters.md`).

use mend_base::parameter::{Parameter, ParameterKind};

/// The parameters of this component.
pub const PARAMETERS: &[Parameter] = &[Parameter {
    name: "report",
    kind: ParameterKind::Words(&["failures", "statistics", "transports"]),
    unit: "",
    default: "",
    description: "What to print on stderr: nothing, or a list of subjects.",
}];
