// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A comparison over one provider of libfabric: Mend and the others told to use it, beside the provider alone and a plain TCP connection
//! (`bench/c/raw_fabric.c`, `bench/c/raw_socket.c`).

use super::Outcome;
use super::cell::{Cell, rate, time};
use super::mpi::Mpi;
use std::path::Path;

/// The cells.
pub const CELLS: &[Cell] = &[
    time("latency", "8", 2),
    time("latency", "64K", 2),
    rate("bandwidth", "1M", 2),
    rate("bandwidth", "4M", 2),
    rate("message_rate", "8", 2),
    time("wake", "8", 2),
];

/// The MPIs told to use the provider, with these C programs compiled; and what lies below.
pub fn prepare(
    mpis: Vec<Mpi>,
    provider: &str,
    library: Option<&str>,
    programs: &[&str],
    folder: &Path,
) -> Outcome<Vec<Mpi>> {
    let mut all = Vec::new();
    for mpi in mpis {
        if mpi.name == "Mend" || mpi.name == "before" {
            let mend = of_mend(&mpi, provider, library);
            mend.compile(programs, &[], folder)?;
            let is_first = all.is_empty();
            all.push(mend);
            if is_first {
                all.extend(below(&mpi, provider, library, folder)?);
            }
        } else {
            for variant in of_another(&mpi, provider) {
                variant.compile(programs, &[], folder)?;
                all.push(variant);
            }
        }
    }
    Ok(all)
}

fn of_mend(mpi: &Mpi, provider: &str, library: Option<&str>) -> Mpi {
    let mut variables =
        vec![("MEND_BTL", "ofi,self".to_owned()), ("MEND_BTL_OFI_PROVIDER", provider.to_owned())];
    variables.extend(library.map(|path| ("MEND_BTL_OFI_LIBRARY", path.to_owned())));
    mpi.variant(&mpi.name, &[], &variables)
}

/// The provider alone, where the headers of libfabric are installed, and a TCP connection, where the provider uses them. Mend starts the
/// processes.
fn below(mpi: &Mpi, provider: &str, library: Option<&str>, folder: &Path) -> Outcome<Vec<Mpi>> {
    let mut variables = vec![("RAW_PROVIDER", provider.to_owned())];
    let directory = library.and_then(|path| Path::new(path).parent());
    variables.extend(directory.map(|directory| ("LD_LIBRARY_PATH", directory.display().to_string())));
    let mut alone = mpi.variant("provider", &[], &variables);
    alone.below = Some("raw_fabric");
    let mut all = Vec::new();
    match alone.compile(&["raw_fabric"], &["-lfabric"], folder) {
        Ok(()) => all.push(alone),
        Err(why) => println!("without the provider alone: {why} (Debian: apt install libfabric-dev)"),
    }
    if provider != "shm" {
        let mut socket = mpi.variant("socket", &[], &[]);
        socket.below = Some("raw_socket");
        socket.compile(&["raw_socket"], &[], folder)?;
        all.push(socket);
    }
    Ok(all)
}

/// The ways in which another MPI uses the provider. They bring a libfabric 2.x of their own, in which 1.17's `net` is called `tcp`.
fn of_another(mpi: &Mpi, provider: &str) -> Vec<Mpi> {
    let is_shm = provider == "shm";
    let fabric = if is_shm { "shm" } else { "tcp" };
    let fi_provider = ("FI_PROVIDER", fabric.to_owned());
    if mpi.version.contains("Open MPI") || mpi.version.contains("OpenRTE") {
        let name = |way: &str| format!("{} {way}", mpi.name);
        let matching =
            ["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", fabric];
        let transfer =
            ["--mca", "pml", "ob1", "--mca", "btl", "ofi,self", "--mca", "btl_ofi_provider_include", fabric];
        let sockets = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"];
        let mut ways = vec![mpi.variant(&name("mtl/ofi"), &matching, &[])];
        if !is_shm {
            ways.push(mpi.variant(&name("btl/ofi"), &transfer, &[]));
            ways.push(mpi.variant(&name("btl/tcp"), &sockets, &[]));
        }
        return ways;
    }
    let variables = if mpi.version.contains("Intel") {
        vec![("I_MPI_FABRICS", "ofi".to_owned()), ("I_MPI_PIN", "0".to_owned()), fi_provider]
    } else {
        vec![("MPIR_CVAR_CH4_NETMOD", "ofi".to_owned()), ("MPIR_CVAR_NOLOCAL", "1".to_owned()), fi_provider]
    };
    vec![mpi.variant(&mpi.name, &[], &variables)]
}
