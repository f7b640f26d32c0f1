// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `mend-info`: prints versions, facts of the host on which decisions of Mend depend, every parameter with its value and the place
//! where it was set, and every component with the reason why it can or cannot run. As text, or with `--json` as JSON. `--timeline FILE` draws a trace.
#![forbid(unsafe_code)]

mod collectives;
mod facts;
mod json;
mod text;
mod timeline;

use std::io::Write as _;
use std::process::ExitCode;

const USAGE: &str = "usage: mend-info [--json]
       mend-info --timeline FILE    draws the files of MEND_TRACE=FILE, as SVG";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let print = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => text::text,
        ["--json"] => json::json,
        ["--timeline", file] => return draw(file),
        ["--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let facts = facts::Facts::gather();
    // A reader that has closed the pipe (`| head`) is not an error.
    let mut stdout = std::io::stdout();
    let _ = stdout.write_all(print(&facts).as_bytes()).and_then(|()| stdout.flush());
    for problem in &facts.problems {
        let _ = writeln!(std::io::stderr(), "mend-info: {problem}");
    }
    // Not by returning: a fault in a destructor of libfabric's providers would look like one of mend-info.
    mend_world::exit_process_with(u8::from(facts.refused))
}

fn draw(file: &str) -> ExitCode {
    match timeline::Trace::read(file) {
        Ok(trace) => {
            let _ = std::io::stdout().write_all(trace.draw().as_bytes());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("mend-info: {why}");
            ExitCode::FAILURE
        }
    }
}
