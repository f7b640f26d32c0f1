// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `mpi.h` from the table: clean C99 and C++ without extensions.

use crate::model::{Constant, Table, Type};
use core::fmt::Write as _;

/// The text of `mpi.h`.
pub fn header(table: &Table) -> String {
    let mut text = String::from(BEGIN);
    for each in &table.types {
        text.push_str(&declared(each));
    }
    for each in &table.constants {
        text.push_str(&defined(each));
    }
    text.push_str("\n/* Calls */\n");
    prototypes(table, "", &mut text);
    text.push_str("\n/* The same under the names that profiling tools call */\n");
    prototypes(table, "P", &mut text);
    text.push_str(FORTRAN);
    for name in CONVERTED {
        text.push_str(&conversions(name));
    }
    text.push_str(END);
    text
}

/// The text of `mpi-ext.h`: a program that knows extensions by such macros finds which of them there are (Row CN4).
pub fn extensions(table: &Table) -> String {
    let mut text = String::from(EXTENSIONS_BEGIN);
    let names =
        table.calls.iter().filter(|call| call.is_extension).map(|call| call.stem.to_ascii_uppercase());
    for name in names {
        writeln!(text, "#define MEND_HAVE_MPIX_{name} 1\n#define OMPI_HAVE_MPIX_{name} 1")
            .expect("a String takes everything");
    }
    text.push_str("\n#endif\n");
    text
}

fn prototypes(table: &Table, prefix: &str, text: &mut String) {
    for call in &table.calls {
        for (name, large) in call.forms() {
            let (result, parameters) = (&call.result, table.argument_list(call, large));
            writeln!(text, "{result} {prefix}{name}({parameters});").expect("a String takes everything");
        }
    }
}

fn declared(each: &Type) -> String {
    match each {
        Type::Handle(name) => {
            format!("typedef struct MPI_ABI_{} *{name};\n", name.trim_start_matches("MPI_"))
        }
        Type::Integer(name, meaning) | Type::Alias(name, meaning) => format!("typedef {meaning} {name};\n"),
        Type::Record(name, members) => {
            let lines = members.replace("; ", ";\n    ");
            format!("typedef struct MPI_ABI_Status {{\n    {lines}\n}} {name};\n")
        }
        Type::Callback(name, result, parameters) => format!("typedef {result} {name}({parameters});\n"),
        Type::Words(name, words) => {
            format!("typedef enum MPI_ABI_{} {{ {words} }} {name};\n", name.trim_start_matches("MPI_"))
        }
    }
}

fn defined(each: &Constant) -> String {
    let heading = each.heading.as_ref().map(|text| format!("\n/* {text} */\n")).unwrap_or_default();
    let Constant { name, c_type, written, .. } = each;
    match c_type.as_str() {
        "int" if written.starts_with('-') => format!("{heading}#define {name} ({written})\n"),
        "int" => format!("{heading}#define {name} {written}\n"),
        _ => format!("{heading}#define {name} (({c_type}) {written})\n"),
    }
}

/// Old programs and language layers convert handles by names that the standard ABI leaves out: here they are, over
/// toint and fromint, which it has.
fn conversions(name: &str) -> String {
    format!(
        "MPI_ABI_INLINE MPI_Fint MPI_{name}_c2f(MPI_{handle} handle) {{ return MPI_{name}_toint(handle); }}\n\
         MPI_ABI_INLINE MPI_{handle} MPI_{name}_f2c(MPI_Fint handle) {{ return MPI_{name}_fromint(handle); }}\n",
        handle = if name == "Type" { "Datatype" } else { name },
    )
}

const CONVERTED: &[&str] =
    &["Comm", "Errhandler", "File", "Group", "Info", "Message", "Op", "Request", "Session", "Type", "Win"];

const BEGIN: &str = "/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The C interface of MPI-5.0 with its standard ABI, as Mend has it. Made from abi/table by mend-abi-generate. */
#ifndef MPI_H_ABI
#define MPI_H_ABI

#include <stdint.h>

#if defined(__cplusplus)
extern \"C\" {
#endif

/* Types */
";

const EXTENSIONS_BEGIN: &str = "/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Which extensions this MPI has. They are declared in mpi.h, each under an MPI_ and an MPIX_ name; here are the macros by which
 * programs ask for them: Mend's own, and those that programs written for Open MPI know. Made from abi/table by
 * mend-abi-generate. */
#ifndef MEND_MPI_EXT_H
#define MEND_MPI_EXT_H

#include \"mpi.h\"

/* There are extensions, those of fault tolerance (ULFM) among them */
#define MEND_HAVE_MPI_EXT 1
#define OMPI_HAVE_MPI_EXT 1
#define MEND_HAVE_MPI_EXT_FTMPI 1
#define OMPI_HAVE_MPI_EXT_FTMPI 1

/* Their calls */
";

const FORTRAN: &str = "
/* Handles and statuses as Fortran integers: not part of the standard ABI, made of what is */
typedef int MPI_Fint;
#define MPI_F_STATUS_IGNORE ((MPI_Fint *) 0)
#define MPI_F_STATUSES_IGNORE ((MPI_Fint *) 0)
/* C89 has no inline; compilers that know GNU C have it under this name in every dialect */
#if defined(__GNUC__)
#define MPI_ABI_INLINE static __inline__
#elif defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L)
#define MPI_ABI_INLINE static inline
#else
#define MPI_ABI_INLINE static
#endif
MPI_ABI_INLINE int MPI_Status_c2f(const MPI_Status *c_status, MPI_Fint *f_status)
{
    const int *from = (const int *) c_status;
    int i;
    for (i = 0; i < MPI_F_STATUS_SIZE; i++) f_status[i] = from[i];
    return MPI_SUCCESS;
}
MPI_ABI_INLINE int MPI_Status_f2c(const MPI_Fint *f_status, MPI_Status *c_status)
{
    int *to = (int *) c_status;
    int i;
    for (i = 0; i < MPI_F_STATUS_SIZE; i++) to[i] = f_status[i];
    return MPI_SUCCESS;
}
";

const END: &str = "
#if defined(__cplusplus)
}
#endif

#endif
";
