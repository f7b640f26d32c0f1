// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the C library is linked. Its symbols have versions, which rustc's own version script cannot express: they are in the
//! assembler lines of `src/exports.rs`, and a second script declares them. LLD accepts two scripts, and GNU ld does not; so LLD
//! it is, the one of the toolchain where there is one. The library is never unloaded, because libfabric calls into it.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=symbols.map");
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={folder}/symbols.map");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    if let Some(linkers) = linkers_of_toolchain().filter(|folder| Path::new(folder).is_dir()) {
        println!("cargo:rustc-cdylib-link-arg=-B{linkers}");
    }
    println!("cargo:rustc-cdylib-link-arg=-fuse-ld=lld");
}

/// The folder where the toolchain has LLD under the name by which a C compiler looks for it.
fn linkers_of_toolchain() -> Option<String> {
    let rustc = std::env::var("RUSTC").ok()?;
    let output = Command::new(rustc).args(["--print", "sysroot"]).output().ok()?;
    let sysroot = String::from_utf8(output.stdout).ok()?;
    let host = std::env::var("HOST").ok()?;
    Some(format!("{}/lib/rustlib/{host}/bin/gcc-ld", sysroot.trim_end()))
}
