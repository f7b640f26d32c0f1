// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares Mend's figures with those of other MPIs. `bench/c` holds the benchmarks themselves, in C that any MPI compiles;
//! this program compiles them with each MPI's `mpicc`, runs them alternately, and prints medians and ratios.
//!
//! Usually called as `cargo bench-compare`, which installs Mend first. Figures depend on the machine and on what else
//! runs on it: they are printed, never asserted. Depends on std and on `rustix`, for
//! pinning.
#![forbid(unsafe_code)]

mod compare;
mod constants;
mod detect;
mod repair;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["compare", rest @ ..] => compare::command(rest),
        ["constants", rest @ ..] => constants::command(rest),
        ["detect", rest @ ..] => detect::command(rest),
        ["repair", rest @ ..] => repair::command(rest),
        [compare::busy::WORD] => compare::busy::be_busy(),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

const USAGE: &str =
    "usage: mend-bench compare [--mend PREFIX] [--before PREFIX] [--rounds N] [--only NAME] [--busy N] ...
  --mend PREFIX          where Mend is installed; without it only the others are measured
  --before PREFIX        an older Mend that is installed, as one more MPI
  --rounds N             how often each MPI runs each benchmark (default 7)
  --only NAME            only benchmarks whose name begins so, as in --only latency
  --busy N               beside N processes that are always busy, on the same two processors
  --pin A,B              the two processors (default 0,1)
  --rival NAME=PREFIX    another MPI that is installed already; may be repeated
  --fabric PROVIDER      over a provider of libfabric: each MPI, the provider alone, and a plain TCP connection
  --library PATH         the libfabric that Mend and the provider alone use (default: the system's)
  --without-open-mpi     otherwise Open MPI from PyPI is measured; at first it is downloaded into target/compare

       mend-bench detect [--mend PREFIX] [--kills N] [--ranks N] [--calls LIST] [--touched LIST] ...
  from SIGKILL of a rank to the return of every other's call
  --kills N              deaths for each line of the table, a job each (default 20)
  --ranks N              ranks of a job (default 8)
  --calls LIST           of receive, wildcard, probe, barrier, allreduce, waitall (default all)
  --touched LIST         MiB that the victim has touched (default 0,1024)
  --btl LIST             the transports of Mend, as in --btl ofi,self
  --muted                Mend's node daemon sends no notices of deaths by itself
  --asleep               all survivors are asleep when the victim dies
  --format F             text (default), csv, json
  --rival NAME=PREFIX    another MPI that is installed already; may be repeated
  --open-mpi             Open MPI from PyPI too

       mend-bench repair [--mend PREFIX] [--ranks LIST] [--rounds N] [--iterations N] ...
  agreement, shrink, revocation and the creation of communicators
  --ranks LIST           ranks of a job (default 2,4,8)
  --rounds N             how often each MPI runs each program (default 5)
  --iterations N         operations of a run (default 2000)
  --pin A,B              the processors of the ranks (default 0,1)
  --rival NAME=PREFIX    another MPI that is installed already; may be repeated
  --open-mpi             Open MPI from PyPI too
  --spinning             Mend also with ranks that poll for a second before they sleep

       mend-bench constants --mend PREFIX [--pin A,B]
  the constants of the cost model of cargo sim scale on this host";
