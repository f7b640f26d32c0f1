// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of point-to-point communication (`docs/parameters.md`).

use mend_base::parameter::{Parameter, ParameterKind};

/// The parameters of this component.
pub const PARAMETERS: &[Parameter] = &[Parameter {
    name: "pml.eager_bytes",
    kind: ParameterKind::Number(0, 4096),
    unit: "bytes",
    default: "4096",
    description: "The eager limit: the longest message that this process accepts before a receive has matched it.",
}];
