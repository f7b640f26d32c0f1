// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report: calls and injected faults of each site, and objects that are still open.

use crate::open::Kind;
use crate::site::Site;
use std::fmt::Write;

/// The environment variable that asks for the report when the process exits.
const VARIABLE: &str = "MEND_FABRIC_SHIM_REPORT";

/// The report; a line for each site that was called, and for each kind of which something is open.
pub(crate) fn text() -> String {
    let mut text = String::new();
    let mut line = |words: core::fmt::Arguments<'_>| {
        writeln!(text, "{words}").expect("writing to a String does not fail");
    };
    for site in Site::ALL.iter().filter(|site| site.calls() > 0 || site.injected() > 0) {
        let (name, calls, injected) = (site.name(), site.calls(), site.injected());
        line(format_args!("site {name:<12} calls {calls:>9} injected {injected:>9}"));
    }
    for (kind, name) in Kind::ALL.iter().filter(|(kind, _)| kind.open() != 0 || kind.refused() != 0) {
        let (open, refused) = (kind.open(), kind.refused());
        line(format_args!("open {name:<12} left  {open:>9} refused  {refused:>9}"));
    }
    text
}

/// Prints the report to stderr when the process exits, if the environment asks for it.
pub(crate) fn print_at_exit_if_asked() {
    if std::env::var_os(VARIABLE).is_none_or(|value| value == "0") {
        return;
    }
    // SAFETY: a function that may be called at exit; the library is never unloaded. Without memory there is no report.
    unsafe { libc::atexit(print) };
}

extern "C" fn print() {
    let process = std::process::id();
    // One write, so that the reports of several processes do not mix.
    let lines: String = text().lines().map(|line| format!("mend-fabric-shim[{process}]: {line}\n")).collect();
    eprint!("{lines}");
}
