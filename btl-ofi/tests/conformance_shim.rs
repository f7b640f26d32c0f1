// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contract of a BTL, requirement by requirement, with the fabric shim in place of libfabric (docs/fabric-shim.md): first it only passes
//! calls on, then it injects what a BTL must survive while both processes live.

#[path = "rig/fabric.rs"]
mod fabric;

use fabric::{Rules, behind_the_shim};
use std::process::Command;

/// Nothing is injected.
const PASSING: Rules = Rules { text: "", breaks: false };

/// Completions come late and in another order.
const LATE: Rules = Rules {
    text: "seed=1;site=send+read,fault=reorder,one_in=3;fault=delay,reads=9,one_in=5",
    breaks: false,
};

/// Resources are short again and again.
const SHORT: Rules = Rules {
    text: "seed=2;site=send+inject+recv+read+cq_read,code=EAGAIN,one_in=3;site=cq_readerr+trywait,code=EAGAIN,one_in=3",
    breaks: true,
};

/// Operations fail, and messages are lost.
const FAILING: Rules = Rules {
    text: "seed=3;\
           site=send+inject+read,mode=completion,code=ETIMEDOUT,one_in=300;\
           site=send+inject+read,mode=completion,code=ECANCELED,one_in=100;\
           site=recv,mode=completion,code=ECANCELED,one_in=50;\
           site=send+inject+read,code=ECONNRESET,one_in=300;\
           site=send+inject,fault=drop,one_in=100;\
           fault=truncate,bytes=20,one_in=100",
    breaks: true,
};

/// Connections break for a while, and devices for good, which are then opened again.
const BREAKING: Rules = Rules {
    text: "seed=4;\
           site=send+inject+read,fault=break,code=ECONNABORTED,calls=5,one_in=400,count=1000000;\
           site=send+inject+read,fault=break,mode=completion,code=ECONNRESET,calls=3,one_in=1000,count=1000000;\
           site=cq_read,code=EOVERRUN,one_in=40000;\
           fault=delay,reads=5,one_in=9",
    breaks: true,
};

behind_the_shim!(passing_tcp, "tcp", true, crate::PASSING);
behind_the_shim!(passing_tcp_rxm, "tcp;ofi_rxm", true, crate::PASSING);
behind_the_shim!(passing_sockets, "sockets", true, crate::PASSING);
behind_the_shim!(passing_shm, "shm", false, crate::PASSING);
behind_the_shim!(late_tcp, "tcp", true, crate::LATE);
behind_the_shim!(late_sockets, "sockets", true, crate::LATE);
behind_the_shim!(short_tcp, "tcp", true, crate::SHORT);
behind_the_shim!(failing_tcp, "tcp", true, crate::FAILING);
behind_the_shim!(breaking_tcp, "tcp", true, crate::BREAKING);

/// Which library the shim opens is said once for a process.
#[test]
fn the_suite_holds_over_a_library_2_behind_the_shim() {
    let Ok(library) = std::env::var("MENDTEST_FABRIC_2") else {
        let test = "the_suite_holds_over_a_library_2_behind_the_shim";
        return mend_testing::skip(test, "MENDTEST_FABRIC_2 names no library");
    };
    let program = std::env::current_exe().expect("a running program has a name");
    let mut command = Command::new(program);
    command.args(["passing_tcp::", "late_tcp::"]).env("MEND_FABRIC_SHIM_LIBRARY", library);
    let output = command.output().expect("this program starts again");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains(" 0 passed"), "nothing ran: {text}");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("no provider"), "{output:?}");
}
