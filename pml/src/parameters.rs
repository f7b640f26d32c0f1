// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of point-to-point communication (`docs/parameters.md`).

use mend_base::parameter::{Parameter, ParameterKind};

/// The parameters of this component.
pub const PARAMETERS: &[Parameter] = &[Parameter {
    name: "pml.eager_bytes",
    kind: ParameterKind::Number(0, 1 << 20),
    unit: "bytes",
    default: "1m",
    description: "The longest message that this process accepts before a receive has matched it, over any transport; the transports have lower limits of their own.",
}];
