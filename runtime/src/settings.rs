// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The values of all parameters for this process, from the file, the environment and mpiexec's command line.

use crate::environment::VARIABLES;
use mend_base::parameter::{Assignments, Declared, Origin, ParameterError, Settings};
use std::{env, fs};

/// Names the parameter file: lines `component.noun = value`, `#` begins a comment.
pub const FILE_VARIABLE: &str = "MEND_PARAMETERS";

/// Variables that begin with `MEND_` and are no parameters, besides those that the launcher sets. The last three are of the fabric shim.
pub const OTHER_VARIABLES: [&str; 6] = [
    FILE_VARIABLE,
    "MEND_CC",
    "MEND_CXX",
    "MEND_FABRIC_SHIM_LIBRARY",
    "MEND_FABRIC_SHIM_FAULTS",
    "MEND_FABRIC_SHIM_REPORT",
];

/// Why the settings are refused.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file that the environment names cannot be read.
    #[error("E-PARAM-001: the parameter file {path} named by MEND_PARAMETERS cannot be read: {cause}")]
    File {
        /// As named.
        path: String,
        /// The error of the system.
        cause: std::io::Error,
    },
    /// A line of it is not an assignment.
    #[error("E-PARAM-002: line {line} of {path} is not 'component.noun = value'")]
    Line {
        /// The file.
        path: String,
        /// Counted from 1.
        line: usize,
    },
    /// Some parameters do not exist or do not take the value.
    #[error("E-PARAM-003: {}", list(.0))]
    Parameters(Vec<ParameterError>),
}

fn list(errors: &[ParameterError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The values of the declared parameters in this process, and the `MEND_` variables that are not parameters, which the caller
/// reports once. `command_line`: the assignments of `mpiexec --mca`.
pub fn from_environment(
    declared: Declared,
    command_line: &Assignments,
) -> Result<(Settings, Vec<ParameterError>), SettingsError> {
    let variables: Vec<_> =
        env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect();
    let file = match variables.iter().find(|(name, _)| name == FILE_VARIABLE) {
        Some((_, path)) => {
            let text = fs::read_to_string(path)
                .map_err(|cause| SettingsError::File { path: path.clone(), cause })?;
            parse_file(path, &text)?
        }
        None => Assignments::new(),
    };
    resolve(declared, command_line, &variables, &file)
}

fn parse_file(path: &str, text: &str) -> Result<Assignments, SettingsError> {
    let meaning = |line: &str| line.split('#').next().unwrap_or_default().trim().to_owned();
    (1..)
        .zip(text.lines().map(meaning))
        .filter(|(_, line)| !line.is_empty())
        .map(|(number, line)| match line.split_once('=') {
            Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
            None => Err(SettingsError::Line { path: path.to_owned(), line: number }),
        })
        .collect()
}

fn resolve(
    declared: Declared,
    command_line: &Assignments,
    variables: &[(String, String)],
    file: &Assignments,
) -> Result<(Settings, Vec<ParameterError>), SettingsError> {
    let mut settings = Settings::new(declared);
    let mut refused = Vec::new();
    let mut unknown = Vec::new();
    refused.extend(settings.apply(Origin::File, file).err().unwrap_or_default());
    let others = |name: &str| OTHER_VARIABLES.contains(&name) || VARIABLES.contains(&name);
    let environment: Assignments = variables
        .iter()
        .filter(|(name, _)| !others(name))
        .filter_map(|(name, value)| Some((name.strip_prefix("MEND_")?.to_owned(), value.clone())))
        .collect();
    for error in settings.apply(Origin::Environment, &environment).err().unwrap_or_default() {
        match error {
            // A variable of another program may begin with MEND_, so this is a warning and no error.
            ParameterError::Unknown { .. } => unknown.push(error),
            ParameterError::BadValue { .. } => refused.push(error),
        }
    }
    refused.extend(settings.apply(Origin::CommandLine, command_line).err().unwrap_or_default());
    if refused.is_empty() { Ok((settings, unknown)) } else { Err(SettingsError::Parameters(refused)) }
}

#[cfg(test)]
mod tests {
    use super::{parse_file, resolve};
    use mend_base::parameter::{Declared, Origin, Parameter, ParameterKind};

    const DECLARED: Declared = Declared(&[&[
        Parameter {
            name: "btl",
            kind: ParameterKind::Names(&["self", "shm"]),
            unit: "",
            default: "",
            description: "",
        },
        Parameter {
            name: "pml.eager_bytes",
            kind: ParameterKind::Number(0, 4096),
            unit: "bytes",
            default: "4096",
            description: "",
        },
    ]]);

    fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_command_line_wins_over_the_environment_and_that_over_the_file() {
        let file = parse_file("f", "# mine\npml.eager_bytes = 100\nbtl = self # only\n").unwrap();
        let typed = variables(&[("pml.eager_bytes", "300")]);
        let environment = variables(&[("MEND_RANK", "0"), ("MEND_PML_EAGER_BYTES", "200")]);
        let (settings, unknown) = resolve(DECLARED, &typed, &environment, &file).unwrap();
        assert_eq!(settings.text("pml.eager_bytes"), ("300", Origin::CommandLine));
        assert_eq!(settings.text("btl"), ("self", Origin::File));
        assert!(unknown.is_empty());
    }

    #[test]
    fn an_unknown_variable_is_reported_and_a_bad_value_refused() {
        let (_, unknown) =
            resolve(DECLARED, &vec![], &variables(&[("MEND_PML_EAGER_BYTE", "1")]), &vec![]).unwrap();
        assert_eq!(unknown.len(), 1);
        let refused = resolve(DECLARED, &vec![], &variables(&[("MEND_BTL", "tcp")]), &vec![]).unwrap_err();
        assert!(refused.to_string().contains("btl does not take 'tcp'"), "{refused}");
        assert!(parse_file("f", "nonsense").is_err());
    }
}
