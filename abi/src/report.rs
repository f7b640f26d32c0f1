// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report of a fatal error: rank and host, the call with its arguments, the cause, what to do, and a code that docs/errors.md
//! lists. The report is one write, so that lines of different ranks do not mix.

use crate::call_error::{ErrorObject, Raised, Why};
use crate::comm::Comm;
use crate::generated::constants::{
    ANY_SOURCE, ANY_TAG, COMM_NULL, COMM_SELF, COMM_WORLD, DATATYPE_NULL, ERR_UNSUPPORTED_OPERATION,
    GROUP_EMPTY, GROUP_NULL, INFO_NULL, PROC_NULL, REQUEST_NULL, ROOT, UNDEFINED,
};
use crate::handle::Handle;
use core::ffi::c_int;
use core::fmt::{self, Write as _};
use mend_base::Rank;
use mend_datatype::{Datatype, Op};
use mend_mpi::ErrorClass;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

/// The value of an argument, for reports. `Copy`: it is in the frame from which the error handler is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Argument {
    name: &'static str,
    value: Value,
}

#[derive(Clone, Copy, Debug)]
enum Value {
    Number(i64),
    Pointer(usize),
    Rank(c_int),
    Tag(c_int),
    Comm(Handle),
    Datatype(Handle),
    Op(Handle),
    Other(Handle),
}

macro_rules! arguments {
    ($($function:ident($type:ty) => $value:ident;)*) => { $(
        #[inline]
        pub(crate) fn $function(name: &'static str, value: $type) -> Argument {
            Argument { name, value: Value::$value(value) }
        }
    )* };
}

arguments! {
    argument_number(i64) => Number;
    argument_pointer(usize) => Pointer;
    argument_rank(c_int) => Rank;
    argument_tag(c_int) => Tag;
    argument_comm(Handle) => Comm;
    argument_datatype(Handle) => Datatype;
    argument_op(Handle) => Op;
    argument_handle(Handle) => Other;
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=", self.name)?;
        match self.value {
            Value::Number(i64::MIN..=-1) if self.value.number() == i64::from(UNDEFINED) => {
                f.write_str("MPI_UNDEFINED")
            }
            Value::Number(number) => write!(f, "{number}"),
            Value::Pointer(0) => f.write_str("NULL"),
            Value::Pointer(1) => f.write_str("MPI_IN_PLACE"),
            Value::Pointer(address) => write!(f, "{address:#x}"),
            Value::Rank(ANY_SOURCE) => f.write_str("MPI_ANY_SOURCE"),
            Value::Rank(PROC_NULL) => f.write_str("MPI_PROC_NULL"),
            Value::Rank(ROOT) => f.write_str("MPI_ROOT"),
            Value::Tag(ANY_TAG) => f.write_str("MPI_ANY_TAG"),
            Value::Rank(number) | Value::Tag(number) => write!(f, "{number}"),
            Value::Comm(COMM_WORLD) => f.write_str("MPI_COMM_WORLD"),
            Value::Comm(COMM_SELF) => f.write_str("MPI_COMM_SELF"),
            Value::Comm(COMM_NULL) => f.write_str("MPI_COMM_NULL"),
            Value::Datatype(DATATYPE_NULL) => f.write_str("MPI_DATATYPE_NULL"),
            Value::Datatype(handle) => match Datatype::from_handle(handle) {
                Some(datatype) => f.write_str(datatype.name()),
                None => write!(f, "{handle:#x}"),
            },
            Value::Op(handle) => match Op::from_handle(handle) {
                Some(op) => write!(f, "MPI_{}", op_name(op)),
                None => write!(f, "{handle:#x}"),
            },
            Value::Other(REQUEST_NULL) => f.write_str("MPI_REQUEST_NULL"),
            Value::Other(GROUP_NULL) => f.write_str("MPI_GROUP_NULL"),
            Value::Other(GROUP_EMPTY) => f.write_str("MPI_GROUP_EMPTY"),
            Value::Other(INFO_NULL) => f.write_str("MPI_INFO_NULL"),
            Value::Comm(handle) | Value::Other(handle) => write!(f, "{handle:#x}"),
        }
    }
}

impl Value {
    fn number(self) -> i64 {
        match self {
            Value::Number(number) => number,
            _ => 0,
        }
    }
}

fn op_name(op: Op) -> String {
    match op {
        Op::NoOp => "NO_OP".to_owned(),
        other => format!("{other:?}").to_ascii_uppercase(),
    }
}

/// The parts of a report.
struct ReportText {
    cause: String,
    advice: String,
    code: String,
}

/// `in_world`: the rank in MPI_COMM_WORLD of the process that an error of the engine names.
fn report_text(call: &str, why: Why, code: c_int, in_world: Option<Rank>) -> ReportText {
    let ours = |number: u16, cause: String, advice: &str| ReportText {
        cause,
        advice: advice.to_owned(),
        code: format!("E-ABI-{number:03}"),
    };
    match why {
        Why::Argument(wrong) => {
            let (_, number, cause, advice) = wrong.row();
            ReportText {
                cause: cause.to_owned(),
                advice: advice.to_owned(),
                code: format!("E-CALL-{number:03}"),
            }
        }
        Why::Engine(error) => ReportText {
            cause: error.detail.with_world_rank(in_world).to_string(),
            advice: error.advice().to_owned(),
            code: error.report_code().to_string(),
        },
        Why::Unsupported => ours(
            1,
            format!("{call} is not supported by this version of Mend"),
            "docs/abi.md lists the supported calls; the program may test for MPI_ERR_UNSUPPORTED_OPERATION",
        ),
        Why::TooEarly => {
            ours(2, format!("{call} was called before MPI_Init"), "call MPI_Init or MPI_Init_thread first")
        }
        Why::TooLate => ours(
            3,
            format!("{call} was called after MPI_Finalize"),
            "make MPI_Finalize the last MPI call of the program",
        ),
        Why::Forked => ours(
            4,
            format!("{call} was called in a process that a rank forked"),
            "leave MPI to the rank; the child may only exec or exit",
        ),
        Why::Start(message) => {
            ours(5, message.to_owned(), "mend-info shows what can run here, and why the rest cannot")
        }
        Why::Panic(message) => ours(
            6,
            format!("an error inside Mend: {message}"),
            "this should not happen: please report it with the program that shows it",
        ),
        Why::User => ours(
            7,
            format!("the program called the error handler with code {code}"),
            "this is the program's own decision",
        ),
    }
}

/// Prints the report on stderr.
pub(crate) fn print(call: &'static str, raised: Raised, arguments: &[Argument]) {
    let mut text = String::new();
    // Writing to a String does not fail; an error of stderr cannot be reported anywhere.
    let _ = write_report(&mut text, call, raised, arguments);
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Reports, once for each call, that this version does not support it. For calls whose errors no handler reports: calls on files, whose
/// initial handler returns, and calls of the tools interface, which has no handlers.
pub(crate) fn note_unsupported(call: &'static str) {
    static NOTED: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    if NOTED.lock().unwrap_or_else(PoisonError::into_inner).insert(call) {
        let text = report_text(call, Why::Unsupported, ERR_UNSUPPORTED_OPERATION, None);
        let line = format!(
            "mend: {}: {}, and returns MPI_ERR_UNSUPPORTED_OPERATION; {} [{}]\n",
            this_process(),
            text.cause,
            text.advice,
            text.code
        );
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

fn write_report(out: &mut String, call: &'static str, raised: Raised, arguments: &[Argument]) -> fmt::Result {
    let code = raised.error.code;
    let text = report_text(call, raised.error.why, code, rank_in_world(raised));
    let class = crate::error_class::class_of(code);
    let name = ErrorClass::from_number(class).map_or("a class that the program added", ErrorClass::name);
    let who = this_process();
    let arguments: Vec<String> = arguments.iter().map(Argument::to_string).collect();
    writeln!(out, "mend: {who}: {call}({}) failed: {}", arguments.join(", "), text.cause)?;
    writeln!(out, "mend: {who}: {name} ({code}); {} [{}]", text.advice, text.code)
}

/// The rank in MPI_COMM_WORLD of the process that an error names, where it is known.
fn rank_in_world(raised: Raised) -> Option<Rank> {
    let Why::Engine(error) = raised.error.why else { return None };
    let (ErrorObject::Comm(comm) | ErrorObject::Request(comm, _)) = raised.object else { return None };
    let rank = error.detail.process()?;
    mend_world::get()?.inspect(|engine| engine.rank_in_world(Comm(comm).key(engine).ok()?, rank))
}

/// The name of this host, from the kernel.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}

/// Rank in MPI_COMM_WORLD, host and process id of this process.
fn this_process() -> String {
    let rank = mend_world::get().and_then(|world| {
        world.inspect(|engine| {
            let key = Comm(COMM_WORLD).key(engine).ok()?;
            engine.communicator(key).map(|communicator| communicator.rank.0)
        })
    });
    let rank = rank.map_or("a process outside MPI".to_owned(), |rank| format!("rank {rank}"));
    format!("{rank} on {} (pid {})", host_name(), std::process::id())
}

#[cfg(test)]
mod tests {
    use super::{
        argument_comm, argument_datatype, argument_number, argument_op, argument_pointer, argument_rank,
        argument_tag, report_text,
    };
    use crate::argument_error::ArgumentError;
    use crate::call_error::Why;

    #[test]
    fn arguments_are_printed_by_name() {
        let all = [
            argument_pointer("buf", 0),
            argument_number("count", -1),
            argument_datatype("datatype", 0x209),
            argument_rank("dest", -3),
            argument_tag("tag", -2),
            argument_comm("comm", 0x101),
            argument_op("op", 0x21),
        ];
        let words: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(
            words.join(", "),
            "buf=NULL, count=-1, datatype=MPI_INT, dest=MPI_PROC_NULL, tag=MPI_ANY_TAG, comm=MPI_COMM_WORLD, op=MPI_SUM"
        );
    }

    #[test]
    fn every_code_of_the_engine_is_in_the_manual() {
        let sources = [
            include_str!("../../mpi/src/error.rs"),
            include_str!("../../world/src/world.rs"),
            include_str!("../../world/src/transports.rs"),
            include_str!("../../world/src/fabric.rs"),
            include_str!("../../coll/src/framework.rs"),
            include_str!("../../runtime/src/settings.rs"),
        ];
        let (manual, text) = (include_str!("../../docs/errors.md"), sources.concat());
        let rows = text.match_indices("Code(\"").map(|(at, _)| &text[at + 6..at + 20]).filter_map(|row| {
            let (letters, rest) = row.split_once("\", ")?;
            let number: u16 = rest.split(')').next()?.parse().ok()?;
            Some(format!("E-{letters}-{number:03}"))
        });
        let written = text.match_indices("E-").map(|(at, _)| &text[at..]).filter_map(|rest| {
            let end = rest
                .char_indices()
                .skip(2)
                .find(|(_, c)| !(c.is_ascii_uppercase() || c.is_ascii_digit() || *c == '-'));
            let code = &rest[..end?.0];
            (code.len() > 6 && code.ends_with(|last: char| last.is_ascii_digit())).then(|| code.to_owned())
        });
        for code in rows.chain(written).filter(|code| !code.starts_with("E-CLS")) {
            assert!(manual.contains(&code), "{code}");
        }
    }

    #[test]
    fn every_cause_has_a_code_and_an_advice() {
        let causes =
            [Why::Unsupported, Why::TooEarly, Why::TooLate, Why::Forked, Why::Start("x"), Why::Panic("x")];
        let causes = causes.into_iter().chain([Why::User, Why::Argument(ArgumentError::Tag)]);
        for why in causes {
            let text = report_text("MPI_Send", why, 16, None);
            assert!(!text.advice.is_empty() && text.code.starts_with("E-"), "{why:?}");
            assert!(include_str!("../../docs/errors.md").contains(&text.code), "{}", text.code);
        }
    }
}
