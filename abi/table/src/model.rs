// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table as values.

use std::collections::BTreeMap;

/// Everything the four files say.
#[derive(Debug)]
pub struct Table {
    /// Types, in the order in which C needs them.
    pub types: Vec<Type>,
    /// Constants, in sections with headings.
    pub constants: Vec<Constant>,
    /// Kinds of arguments, by name.
    pub kinds: BTreeMap<String, ArgumentKind>,
    /// The calls, without their large-count forms.
    pub calls: Vec<Call>,
}

/// A type of the interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// A pointer to a struct that nobody completes.
    Handle(String),
    /// Another name of a C integer type.
    Integer(String, String),
    /// A struct with these members.
    Record(String, String),
    /// A function type: result and parameters.
    Callback(String, String, String),
    /// Another name of a type of ours.
    Alias(String, String),
    /// An enumeration.
    Words(String, String),
}

/// A constant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constant {
    /// As in C.
    pub name: String,
    /// Its C type.
    pub c_type: String,
    /// Its value; of pointers, the address.
    pub value: i64,
    /// The value as the table writes it.
    pub written: String,
    /// What stands above it as a heading, if it is the first below one.
    pub heading: Option<String>,
}

/// Which way an argument goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The call reads it.
    In,
    /// The call writes it.
    Out,
    /// Both.
    InOut,
}

/// What an argument means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentKind {
    /// Which way it goes.
    pub direction: Direction,
    /// Its C type; `[]` stands for what follows the name.
    pub small: String,
    /// In the large-count form.
    pub large: String,
}

/// An argument of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// As in C; `...` for what follows unnamed.
    pub name: String,
    /// The name of its kind.
    pub kind: String,
}

/// When a call may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Legal {
    /// Between Init and Finalize.
    Initialized,
    /// Always.
    Anytime,
    /// Always, and it cannot fail.
    Plain,
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Without `MPI_`.
    pub stem: String,
    /// Whether there is a form with `_c`.
    pub has_large: bool,
    /// Whether it is an extension, with an `MPIX_` name too.
    pub is_extension: bool,
    /// Its C type.
    pub result: String,
    /// In order.
    pub arguments: Vec<Argument>,
    /// `module::function` below `abi/src/calls`; `None`: unsupported.
    pub implementation: Option<String>,
    /// When it may be made.
    pub legal: Legal,
}

impl Call {
    /// The forms there are, by their names in C, and whether each is one with large counts.
    pub fn forms(&self) -> impl Iterator<Item = (String, bool)> + '_ {
        let prefixes = [Some("MPI_"), self.is_extension.then_some("MPIX_")].into_iter().flatten();
        let counts = || [Some(("", false)), self.has_large.then_some(("_c", true))].into_iter().flatten();
        prefixes.flat_map(move |prefix| {
            counts().map(move |(ending, large)| (format!("{prefix}{}{ending}", self.stem), large))
        })
    }
}

impl ArgumentKind {
    /// The C type in one of the forms.
    pub fn c_type(&self, large: bool) -> &str {
        if large { &self.large } else { &self.small }
    }
}

impl Table {
    /// The kind of an argument; the parser has seen to it that there is one.
    pub fn kind(&self, argument: &Argument) -> &ArgumentKind {
        &self.kinds[&argument.kind]
    }

    /// The argument list of a form, as C writes it.
    pub fn argument_list(&self, call: &Call, large: bool) -> String {
        if call.arguments.is_empty() {
            return "void".to_owned();
        }
        let written = |argument: &Argument| declare(self.kind(argument).c_type(large), &argument.name);
        call.arguments.iter().map(written).collect::<Vec<_>>().join(", ")
    }
}

/// `int *` and `x` to `int *x`; `const int []` and `x` to `const int x[]`; `...` alone.
fn declare(c_type: &str, name: &str) -> String {
    if name == "..." {
        return name.to_owned();
    }
    let (before, after) = match c_type.find('[') {
        Some(at) => c_type.split_at(at),
        None => (c_type, ""),
    };
    let before = before.trim_end();
    let space = if before.ends_with('*') { "" } else { " " };
    format!("{before}{space}{name}{after}")
}
