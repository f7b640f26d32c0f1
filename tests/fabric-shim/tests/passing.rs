// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Without rules the shim changes nothing.

use mend_fabric_shim::{Shim, Site};
use mend_ffi_dl::Library;

#[path = "rig/pair.rs"]
mod pair;

#[test]
fn messages_and_remote_memory_pass_through() {
    let Some(rig) = pair::rig("messages_and_remote_memory_pass_through") else { return };
    for provider in rig.providers() {
        rig.shim.set("");
        let mut pair = rig.pair(provider);
        for length in [0, 1, 100, 2_000] {
            pair.exchange(&vec![length as u8; length]);
        }
        pair.receive(1, 3).unwrap();
        pair.start(|pair| pair.inject(0, b"injected"));
        pair.until("an injected message", |pair| pair.ends[1].has(3));
        assert_eq!(pair.ends[1].received(8), b"injected");
        pair.start(|pair| pair.read(0, 8, 4));
        pair.until("a read", |pair| pair.ends[0].has(4));
        assert_eq!(pair.ends[0].received(8), b"injected");
        pair.start(|pair| pair.write(0, b"written", 5));
        pair.until("a write", |pair| pair.ends[0].has(5) && pair.ends[1].received(7) == b"written");
        assert_eq!(rig.shim.calls(Site::Recv), 5);
        // A provider may ask for another try.
        for (site, calls) in [(Site::Send, 4), (Site::Inject, 1), (Site::Read, 1), (Site::Write, 1)] {
            assert!(rig.shim.calls(site) >= calls, "{provider}: {}", rig.shim.report());
        }
        assert!(Site::ALL.iter().all(|&site| rig.shim.injected(site) == 0));
        drop(pair);
        rig.assert_all_closed();
    }
}

/// A provider calls functions of libfabric, too, which must not find those of the shim.
#[test]
fn a_program_that_is_linked_to_the_shim_is_served() {
    let test = "a_program_that_is_linked_to_the_shim_is_served";
    let Some(rig) = pair::rig(test) else { return };
    if pair::is_child() {
        let mut pair = rig.pair(rig.providers()[0]);
        pair.exchange(b"through a provider on a provider");
        drop(pair);
        rig.assert_all_closed();
        return;
    }
    let output = pair::child(test, &[("LD_PRELOAD", &Shim::path().to_string_lossy())]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_symbols_have_the_versions_of_libfabric() {
    let library = Library::open(&Shim::path().to_string_lossy()).unwrap();
    let versions = [
        (c"fi_getinfo", c"FABRIC_1.3"),
        (c"fi_freeinfo", c"FABRIC_1.3"),
        (c"fi_dupinfo", c"FABRIC_1.3"),
        (c"fi_fabric", c"FABRIC_1.1"),
        (c"fi_version", c"FABRIC_1.0"),
        (c"fi_strerror", c"FABRIC_1.0"),
        (c"fi_tostr", c"FABRIC_1.0"),
        (c"fi_tostr_r", c"FABRIC_1.4"),
        (c"mend_fabric_shim_set", c"MEND_1"),
    ];
    for (name, version) in versions {
        assert!(library.symbol(name, version).is_some(), "{name:?} {version:?}");
    }
    // Structures of earlier versions differ, so their functions are not there.
    assert!(library.symbol(c"fi_getinfo", c"FABRIC_1.2").is_none());
}
