// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The exit code of what MPI ends.

/// The exit code for `MPI_Abort(code)`, or an error of that number that is fatal: what fits into a byte, as the system
/// keeps no more, but never 0, which would say that nothing failed. Of the process itself and of its job.
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
