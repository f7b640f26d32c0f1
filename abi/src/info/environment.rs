// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `MPI_INFO_ENV`: how the process was started (MPI-5.0 §11.2.1). A key is left out where nobody gave a value: `soft`, `file` and
//! `thread_level`, as `mpiexec` has no such options, `maxprocs` without `mpiexec`, `argv` without arguments.

use super::Info;
use crate::error_handlers;
use crate::generated::constants::MAX_INFO_VAL;
use crate::report::host_name;
use mend_mpi::ErrorHandler;
use mend_runtime::environment::{APP_SIZE, InitialErrorHandler};
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;

/// `MPI_INFO_ENV`. Its values are those of the first call, which MPI_Init makes at the latest.
pub(crate) fn of_process() -> &'static Info {
    static ENVIRONMENT: OnceLock<Info> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| of_arguments(&[]))
}

/// MPI_Info_create_env: the same with these arguments; without any, with those of the process.
pub(crate) fn of_arguments(arguments: &[Vec<u8>]) -> Info {
    let of_process: Vec<Vec<u8>> = std::env::args_os().map(OsStringExt::into_vec).collect();
    let arguments = if arguments.is_empty() { &of_process[..] } else { arguments };
    let mut info = Info::default();
    let mut add = |key: &str, value: Option<Vec<u8>>| {
        let Some(mut value) = value.filter(|value| !value.is_empty()) else { return };
        value.truncate(MAX_INFO_VAL as usize - 1);
        // Without memory for it the key is left out, as the standard allows.
        let _ = info.set(key.as_bytes(), &value);
    };
    add("command", arguments.first().cloned());
    add("argv", Some(arguments.get(1..).unwrap_or_default().join(&b' ')));
    add("maxprocs", std::env::var_os(APP_SIZE).map(OsStringExt::into_vec));
    add("host", Some(host_name().into_bytes()));
    add("arch", Some(std::env::consts::ARCH.into()));
    add("wdir", std::env::current_dir().ok().map(|directory| directory.into_os_string().into_vec()));
    add("mpi_initial_errhandler", Some(initial_error_handler().into()));
    info
}

/// Row CN7: the name of the initial error handler.
fn initial_error_handler() -> &'static str {
    match error_handlers::initial() {
        ErrorHandler::Abort => InitialErrorHandler::Abort.name(),
        ErrorHandler::Return => InitialErrorHandler::Return.name(),
        ErrorHandler::Fatal | ErrorHandler::User(_) => InitialErrorHandler::AreFatal.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::of_arguments;

    #[test]
    fn arguments_are_separated_by_blanks_and_overlong_ones_are_cut() {
        let info = of_arguments(&[b"ocean".to_vec(), b"-n".to_vec(), b"a b".to_vec()]);
        assert_eq!((info.get(b"command"), info.get(b"argv")), (Some(&b"ocean"[..]), Some(&b"-n a b"[..])));
        assert_eq!(info.get(b"mpi_initial_errhandler"), Some(&b"mpi_errors_are_fatal"[..]));
        assert!(info.get(b"wdir").is_some_and(|directory| directory[0] == b'/'));
        assert!(info.get(b"soft").is_none());
        let long = of_arguments(&[b"ocean".to_vec(), vec![b'x'; 2000]]);
        assert_eq!(long.get(b"argv").map(<[u8]>::len), Some(1023));
        assert!(of_arguments(&[b"ocean".to_vec()]).get(b"argv").is_none());
    }

    #[test]
    fn without_arguments_the_program_of_the_process_is_named() {
        let program = std::env::args().next().unwrap();
        assert_eq!(of_arguments(&[]).get(b"command"), Some(program.as_bytes()));
    }
}
