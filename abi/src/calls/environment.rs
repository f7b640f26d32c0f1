// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Init, Finalize and Abort, versions, names and clocks (MPI-5.0 chapters 9 and 11).

use crate::argument_error::ArgumentError;
use crate::comm::Comm;
use crate::entry::{CallError, Why, world};
use crate::error_handlers;
use crate::generated::constants::{
    ABI_SUBVERSION, ABI_VERSION, COMM_WORLD, ERR_OTHER, MAX_LIBRARY_VERSION_STRING, MAX_PROCESSOR_NAME,
    SUBVERSION, THREAD_FUNNELED, THREAD_MULTIPLE, THREAD_SERIALIZED, THREAD_SINGLE, VERSION,
};
use crate::info;
use crate::pointer::{Out, OutText};
use crate::report::host_name;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use mend_world::{Stage, Threads, World};
use std::io::Write as _;

/// The level that Init_thread returned.
static PROVIDED: AtomicI32 = AtomicI32::new(THREAD_SINGLE);

/// The thread that called Init.
static MAIN_THREAD: AtomicU64 = AtomicU64::new(0);

/// The thread id of the calling thread.
fn this_thread() -> u64 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::gettid() as u64 }
}

fn start(required: c_int) -> Result<c_int, CallError> {
    if !matches!(required, THREAD_SINGLE | THREAD_FUNNELED | THREAD_SERIALIZED | THREAD_MULTIPLE) {
        return Err(ArgumentError::ThreadLevel.into());
    }
    let threads = if required == THREAD_MULTIPLE { Threads::Multiple } else { Threads::Serialized };
    match mend_world::start(threads) {
        Ok(world) => {
            PROVIDED.store(required, Ordering::Relaxed);
            MAIN_THREAD.store(this_thread(), Ordering::Relaxed);
            set_initial_error_handler(world);
            // MPI_INFO_ENV keeps the working directory of this moment.
            info::of_process();
            report_unknown_parameters(world);
            Ok(required)
        }
        // Leaked, so that the error is `Copy`; the process is about to end.
        Err(error) => {
            let message = Box::leak(error.to_string().into_boxed_str());
            Err(CallError::new(ERR_OTHER, Why::Start(message)))
        }
    }
}

fn set_initial_error_handler(world: &World) {
    world.with(|engine| {
        for comm in [engine.comm_world(), engine.comm_self()] {
            let set = engine.set_error_handler(comm, error_handlers::initial());
            debug_assert!(set.is_ok(), "predefined communicators exist from Init to Finalize");
        }
    });
}

/// Rank 0 warns about variables `MEND_...` that are not parameters, since the environment is the same in the whole job.
fn report_unknown_parameters(world: &World) {
    let is_first = || Comm(COMM_WORLD).read(world, |world| world.rank.0 == 0);
    if world.unknown_parameters().is_empty() || !is_first().unwrap_or(true) {
        return;
    }
    let text: String =
        world.unknown_parameters().iter().map(|unknown| format!("mend: {unknown}\n")).collect();
    // An error of stderr cannot be reported anywhere.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The arguments are not changed: the launcher adds none to those of the program.
pub(crate) fn init(_argc: *mut c_int, _argv: *mut *mut *mut c_char) -> Result<(), CallError> {
    start(THREAD_SINGLE).map(|_| ())
}

pub(crate) fn init_thread(
    _argc: *mut c_int,
    _argv: *mut *mut *mut c_char,
    required: c_int,
    provided: Out<c_int>,
) -> Result<(), CallError> {
    provided.set(start(required)?);
    Ok(())
}

pub(crate) fn initialized(flag: Out<c_int>) -> Result<(), CallError> {
    flag.set(c_int::from(mend_world::stage() != Stage::Before));
    Ok(())
}

pub(crate) fn finalize(world: &World) -> Result<(), CallError> {
    world.finish();
    Ok(())
}

pub(crate) fn finalized(flag: Out<c_int>) -> Result<(), CallError> {
    flag.set(c_int::from(mend_world::stage() == Stage::After));
    Ok(())
}

pub(crate) fn query_thread(_world: &World, provided: Out<c_int>) -> Result<(), CallError> {
    provided.set(PROVIDED.load(Ordering::Relaxed));
    Ok(())
}

pub(crate) fn is_thread_main(_world: &World, flag: Out<c_int>) -> Result<(), CallError> {
    flag.set(c_int::from(MAIN_THREAD.load(Ordering::Relaxed) == this_thread()));
    Ok(())
}

/// Ends the members of the communicator and this process; other processes go on (Row EH6). A process that a rank forked ends only
/// itself, since it is not a rank of the job.
pub(crate) fn abort(comm: Comm, code: c_int) -> Result<(), CallError> {
    if mend_world::stage() == Stage::Forked {
        mend_world::exit_process(code)
    }
    world()?.abort(comm.members(), code)
}

/// Seconds of the monotonic clock of the host. All processes of a host have the same clock; clocks of hosts are not synchronized.
pub(crate) fn wtime() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec of ours; with this clock and a good address the call does not fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// The clock's resolution is 1 ns.
pub(crate) fn wtick() -> f64 {
    1e-9
}

pub(crate) fn get_version(version: Out<c_int>, subversion: Out<c_int>) -> Result<(), CallError> {
    version.set(VERSION);
    subversion.set(SUBVERSION);
    Ok(())
}

pub(crate) fn abi_get_version(major: Out<c_int>, minor: Out<c_int>) -> Result<(), CallError> {
    major.set(ABI_VERSION);
    minor.set(ABI_SUBVERSION);
    Ok(())
}

pub(crate) fn get_library_version(version: OutText, length: Out<c_int>) -> Result<(), CallError> {
    let text = concat!("Mend ", env!("CARGO_PKG_VERSION"), " (MPI-5.0, standard ABI 1.0)");
    length.set(version.set(text, MAX_LIBRARY_VERSION_STRING));
    Ok(())
}

pub(crate) fn get_processor_name(_world: &World, name: OutText, length: Out<c_int>) -> Result<(), CallError> {
    length.set(name.set(&host_name(), MAX_PROCESSOR_NAME));
    Ok(())
}

/// Has no effect here. Tools override it.
pub(crate) fn pcontrol(_level: c_int) -> Result<(), CallError> {
    Ok(())
}

pub(crate) fn get_address(location: *const c_void, address: Out<i64>) -> Result<(), CallError> {
    address.set(location as i64);
    Ok(())
}

pub(crate) fn aint_add(base: isize, displacement: isize) -> isize {
    base.wrapping_add(displacement)
}

pub(crate) fn aint_diff(one: isize, other: isize) -> isize {
    one.wrapping_sub(other)
}
