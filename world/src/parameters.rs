// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of waiting and of the choice of transports, and the list of all components that declare parameters.

use mend_base::parameter::{Declared, Parameter, ParameterKind};

/// The parameters of this component.
pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "btl",
        kind: ParameterKind::Names(&["self", "shm", "ofi"]),
        unit: "",
        default: "",
        description: "Transports that may be used: a list, or ^ and a list of those that may not.",
    },
    Parameter {
        name: "btl_strict",
        kind: ParameterKind::Number(0, 1),
        unit: "",
        default: "0",
        description: "1: MPI_Init fails if a transport cannot be used that btl names, or for which another one would have to stand in; 0: the others are used.",
    },
    Parameter {
        name: "hang_report_s",
        kind: ParameterKind::Number(0, 1_000_000),
        unit: "seconds",
        default: "0",
        description: "A rank that is blocked in one MPI call for so long has mpiexec print, once for the job, in which call each rank is. 0: never.",
    },
    Parameter {
        name: "world.spin_us",
        kind: ParameterKind::Number(0, 1_000_000),
        unit: "microseconds",
        default: "1000",
        description: "How long a waiting thread polls before it yields, where it shares its processor with no other rank.",
    },
    Parameter {
        name: "world.yield_us",
        kind: ParameterKind::Number(1_000, 10_000_000),
        unit: "microseconds",
        default: "2000",
        description: "How long a waiting thread yields its processor before it sleeps.",
    },
];

/// Every parameter of Mend. A component that declares parameters is listed here.
pub const DECLARED: Declared = Declared(&[
    PARAMETERS,
    mend_btl_ofi::PARAMETERS,
    mend_btl_shm::PARAMETERS,
    mend_coll::PARAMETERS,
    mend_mpi::PARAMETERS,
    mend_pml::PARAMETERS,
    mend_runtime::PARAMETERS,
]);

#[cfg(test)]
mod tests {
    use super::DECLARED;
    use mend_base::parameter::{Origin, Settings};
    use std::collections::BTreeSet;

    #[test]
    fn every_default_is_a_value_that_its_parameter_accepts() {
        for row in DECLARED.iter() {
            let default = vec![(row.name.to_owned(), row.default.to_owned())];
            assert_eq!(Settings::new(DECLARED).apply(Origin::File, &default), Ok(()), "{}", row.name);
        }
    }

    #[test]
    fn every_name_is_declared_once() {
        let names: BTreeSet<&str> = DECLARED.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), DECLARED.iter().count());
    }
}
