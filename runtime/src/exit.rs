// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The exit code of processes and jobs that MPI ends.

/// The exit code of a process and of its job after `MPI_Abort(code)`, or after a fatal error of that number: the code limited to
/// one byte, as the system stores no more, but never 0, which would mean success.
pub fn exit_code(code: i32) -> u8 {
    match code as u8 {
        0 => 1,
        low => low,
    }
}

#[cfg(test)]
mod tests {
    use super::exit_code;

    #[test]
    fn a_failure_never_looks_like_success() {
        assert_eq!([0, 256, -1, 3, 257].map(exit_code), [1, 1, 255, 3, 1]);
    }
}
