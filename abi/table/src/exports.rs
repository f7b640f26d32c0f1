// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The exported functions: each converts and checks its arguments by their kinds, runs the call's own code, and leaves
//! errors to the error handler; or says that it is not supported.

use crate::model::{Argument, Call, Legal, Table};
use core::fmt::Write as _;

/// The text of `abi/src/generated/exports.rs`.
pub fn exports(table: &Table) -> String {
    let mut text = String::from(BEGIN);
    for call in &table.calls {
        for (name, large) in call.forms() {
            export(table, call, &name, large, &mut text);
        }
    }
    text.push_str("}\n");
    text
}

fn export(table: &Table, call: &Call, name: &str, large: bool, text: &mut String) {
    let result = rust_type(&call.result);
    let list: Vec<String> = named(call)
        .map(|argument| {
            format!("{}: {}", safe(&argument.name), rust_type(table.kind(argument).c_type(large)))
        })
        .collect();
    let body = match (&call.implementation, call.legal) {
        (None, _) => unsupported(call, name),
        (Some(path), Legal::Plain) => {
            let names: Vec<String> = named(call).map(|argument| safe(&argument.name)).collect();
            format!("{path}({})", names.join(", "))
        }
        (Some(path), legal) => supported(call, large, path, legal, name),
    };
    writeln!(text, "    fn {name} P{name}({}) -> {result} {{ {body} }}", list.join(", "))
        .expect("a String takes everything");
}

/// Parameters that have a name in C.
fn named(call: &Call) -> impl Iterator<Item = &Argument> {
    call.arguments.iter().filter(|argument| argument.name != "...")
}

/// The object whose error handler hears of it, if the call names one.
fn unsupported(call: &Call, name: &str) -> String {
    if call.stem.starts_with("T_") {
        return format!("unsupported_tool(\"{name}\")");
    }
    // What goes wrong with a file that is not open goes to the null file's handler (MPI-5.0 §14.7).
    let is_file = call.stem.starts_with("File_");
    let object = call.arguments.iter().filter(|each| !is_file || each.kind == "file").find_map(|argument| {
        let name = safe(&argument.name);
        Some(match argument.kind.as_str() {
            "comm" => format!("ErrorObject::Comm({name})"),
            "file" => "ErrorObject::File".to_owned(),
            "win" => "ErrorObject::Win".to_owned(),
            "session" => "ErrorObject::Session".to_owned(),
            "errhandler" => format!("ErrorObject::Errhandler({name})"),
            _ => return None,
        })
    });
    let fallback = if is_file { "ErrorObject::File" } else { "ErrorObject::Process" };
    format!("unsupported(\"{name}\", {})", object.unwrap_or(fallback.to_owned()))
}

fn supported(call: &Call, large: bool, path: &str, legal: Legal, name: &str) -> String {
    let mut arguments: Vec<String> = Vec::new();
    if legal == Legal::Initialized {
        arguments.push("world".to_owned());
    }
    arguments.extend(named(call).map(|argument| checked(argument, large)));
    let world = if legal == Legal::Initialized { "let world = world()?; " } else { "" };
    // The communicator is looked at first, so that errors of other arguments reach its handler.
    let object = call.arguments.iter().find(|argument| argument.kind == "comm");
    let closure = if object.is_some() { "|object|" } else { "|_|" };
    let object =
        object.map(|comm| format!("object.set(ErrorObject::Comm({})); ", comm.name)).unwrap_or_default();
    let reported: Vec<String> = named(call)
        .map(|argument| format!("{}(\"{}\", {})", word(argument), argument.name, shown(argument)))
        .collect();
    format!(
        "match outcome({closure} {{ {object}{world}{path}({}) }}) {{ Ok(()) => SUCCESS, Err(raised) => raise(\"{name}\", raised, &[{}]) }}",
        arguments.join(", "),
        reported.join(", "),
    )
}

/// The argument as the call's own code wants it: converted and checked.
fn checked(argument: &Argument, large: bool) -> String {
    let name = safe(&argument.name);
    let check = match argument.kind.as_str() {
        "count" | "large_count" => return format!("check::count({name} as i64)?"),
        "role_count" | "number64" => return format!("{name} as i64"),
        "out_count" if large => return format!("check::out_large({name})?"),
        "out_count" => return format!("check::out_small({name})?"),
        "out_number64" | "out_aint" | "out_aint_large" => {
            return format!("check::out({name}.cast::<i64>())?");
        }
        "out_pointer" => return format!("check::out({name}.cast::<*mut c_void>())?"),
        "comm" => return format!("Comm({name})"),
        "datatype" | "role_datatype" => return format!("DatatypeHandle({name})"),
        "op" => return format!("OpHandle({name})"),
        "length" => "length",
        "bytes" => "bytes",
        "dest" => "dest",
        "source" => "source",
        "root" => "root",
        "tag" => "tag",
        "recv_tag" => "recv_tag",
        "info" => "info",
        "in_status" => "in_status",
        "text" => "text",
        "out_text" => "out_text",
        "out_status" | "out_statuses" => return format!("statuses({name})"),
        "numbers" | "ranges" => return format!("array({name})"),
        "out_numbers" | "requests" => return format!("out_array({name})"),
        kind if kind.starts_with("out_") && !kind.ends_with("buffer") => "out",
        kind if kind.starts_with("inout_") && !kind.ends_with("buffer") => "out",
        _ => return name,
    };
    format!("check::{check}({name})?")
}

/// How a report words the argument: a function of `abi/src/report.rs`.
fn word(argument: &Argument) -> &'static str {
    match argument.kind.as_str() {
        "comm" => "argument_comm",
        "datatype" | "role_datatype" => "argument_datatype",
        "op" => "argument_op",
        "dest" | "source" | "root" => "argument_rank",
        "recv_tag" | "tag" => "argument_tag",
        "count" | "role_count" | "large_count" | "length" | "number" | "number64" | "bytes" | "level" => {
            "argument_number"
        }
        "group" | "request" | "errhandler" | "info" => "argument_handle",
        _ => "argument_pointer",
    }
}

fn shown(argument: &Argument) -> String {
    let name = safe(&argument.name);
    match word(argument) {
        "argument_number" => format!("{name} as i64"),
        "argument_pointer" => format!("{name} as usize"),
        _ => name,
    }
}

/// An argument's name where Rust keeps the word for itself.
fn safe(name: &str) -> String {
    if matches!(name, "type" | "in" | "ref" | "move" | "fn") { format!("r#{name}") } else { name.to_owned() }
}

/// How Rust passes a value of a C type.
fn rust_type(c_type: &str) -> String {
    let simple = match c_type {
        "int" | "const int" => "c_int",
        "double" => "f64",
        "MPI_Aint" => "isize",
        "MPI_Count" | "MPI_Offset" => "i64",
        "MPI_T_cb_safety" => "c_int",
        "MPI_T_source_order *" => "*mut c_int",
        "int [][3]" => "*const [c_int; 3]",
        "char ***" => "*mut *mut *mut c_char",
        _ => "",
    };
    if !simple.is_empty() {
        return simple.to_owned();
    }
    if c_type.contains("function") {
        return "*const c_void".to_owned();
    }
    let Some(at) = c_type.find(['*', '[']) else { return "Handle".to_owned() };
    let (target, stars) = c_type.split_at(at);
    let (constant, target) = match target.trim().strip_prefix("const ") {
        Some(target) => (true, target),
        None => (false, target.trim()),
    };
    let target = match target {
        "void" => "c_void".to_owned(),
        "char" => "c_char".to_owned(),
        "MPI_Status" => "Status".to_owned(),
        other => rust_type(other),
    };
    let depth = stars.matches(['*', '[']).count();
    format!("{}{target}", if constant { "*const " } else { "*mut " }.repeat(depth))
}

const BEGIN: &str = "// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C functions. Made from abi/table by mend-abi-generate.

use super::constants::SUCCESS;
use crate::calls::{
    collective, communicator, completion, datatype, environment, errors, failures, group, info, integer,
    memory, operation, point_to_point, repair, status,
};
use crate::check::{self, array, out_array, statuses};
use crate::comm::Comm;
use crate::entry::{ErrorObject, export, outcome, raise, unsupported, unsupported_tool, world};
use crate::handle::Handle;
use crate::report::{
    argument_comm, argument_datatype, argument_handle, argument_number, argument_op, argument_pointer,
    argument_rank, argument_tag,
};
use crate::status::Status;
use core::ffi::{c_char, c_int, c_void};
use mend_mpi::{DatatypeHandle, OpHandle};

export! {
";
