// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages of the manual: `docs/parameters.md`, made from the declarations of parameters, and the programs that a page shows.

use mend_base::parameter::{Parameter, ParameterKind, variable};

/// The whole page.
pub fn parameters() -> String {
    let mut page = String::from(OPENING);
    for row in mend_world::DECLARED.iter() {
        page.push_str(&section(row));
    }
    page
}

fn section(row: &Parameter) -> String {
    let default = if row.default.is_empty() { "(empty)".to_owned() } else { format!("`{}`", row.default) };
    let unit = if row.unit.is_empty() { String::new() } else { format!(", in {}", row.unit) };
    format!(
        "\n## `{}`\n\n{}\n\n* takes {}{unit}\n* default: {default}\n* in the environment: `{}`\n",
        row.name,
        row.description,
        takes(row.kind),
        variable(row),
    )
}

fn takes(kind: ParameterKind) -> String {
    let list = |words: &[&str]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    match kind {
        ParameterKind::Number(least, most) => format!("a number from {least} to {most}"),
        ParameterKind::Choice(words) => format!("one of {}", list(words)),
        ParameterKind::Names(words) => {
            format!("a list of {}, or `^` and a list of those to leave out", list(words))
        }
        ParameterKind::Words(words) => format!("a list of {}", list(words)),
        ParameterKind::Text => "any text".to_owned(),
    }
}

/// A program that a page shows: a block of C, followed by a block that says how it is compiled and run, and what it prints.
#[derive(Debug)]
pub struct Program<'a> {
    /// The program.
    pub text: &'a str,
    /// The file that `mpicc` compiles, from the project's root.
    pub source: &'a str,
    /// How many ranks `mpiexec` starts.
    pub ranks: u32,
    /// The words after the program's name.
    pub arguments: Vec<&'a str>,
    /// What they print.
    pub prints: &'a str,
}

/// The programs of a page. Panics if a block of C is not followed by the block that says how it is run.
pub fn programs(page: &str) -> Vec<Program<'_>> {
    let starts = page.split("```c\n").skip(1);
    starts.map(|rest| program(rest).unwrap_or_else(|| panic!("how is this run?\n{rest}"))).collect()
}

fn program(rest: &str) -> Option<Program<'_>> {
    let (text, rest) = rest.split_once("```\n")?;
    let (run, _) = rest.trim_start().strip_prefix("```console\n$ mpicc ")?.split_once("```")?;
    let (compiled, run) = run.split_once("\n$ mpiexec -n ")?;
    let (started, prints) = run.split_once('\n')?;
    let source = compiled.split(' ').find(|word| word.ends_with(".c"))?;
    let mut started = started.split(' ');
    let ranks = started.next()?.parse().ok()?;
    Some(Program { text, source, ranks, arguments: started.skip(1).collect(), prints })
}

const OPENING: &str = "\
<!-- SPDX-License-Identifier: Apache-2.0 OR MIT -->
<!-- Made by `cargo xtask docs` from the parameters.rs of each component; a test says when it is out of date. -->
# Parameters

A parameter `component.noun` is set, from the strongest place to the weakest,

* on the command line: `mpiexec --mca component.noun value` (or `component_noun`),
* in the environment: `MEND_COMPONENT_NOUN=value`,
* in the parameter file: a line `component.noun = value`.

Numbers may end in `k`, `m` or `g` (2^10, 2^20, 2^30). A value is obeyed or refused with the reason, never
changed. `mend-info` prints every parameter with its value and the place it came from.
";
