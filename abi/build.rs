// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the C library is linked: its SONAME is the standard ABI's; it is never unloaded, because threads of ours may run in
//! it; and all it needs is resolved when it is loaded, not at the first call of a hot path.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for argument in ["-soname,libmpi_abi.so.1", "-z,nodelete", "-z,now"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
}
