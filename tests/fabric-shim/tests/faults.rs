// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults other than a code that is returned: each is seen by the caller as its rule says.

use mend_fabric_shim::{Shim, Site};
use mend_ffi_ofi::{Code, Completion, Hints, Ofi, ReadError};
use pair::{Pair, child};
use std::os::unix::process::ExitStatusExt;

#[path = "rig/pair.rs"]
mod pair;

#[test]
fn a_dropped_message_completes_and_does_not_arrive() {
    let Some(rig) = pair::rig("a_dropped_message_completes_and_does_not_arrive") else { return };
    for provider in rig.providers() {
        rig.shim.set("");
        let mut pair = rig.pair(provider);
        pair.exchange(b"connected");
        rig.shim.set("site=send+inject,fault=drop,count=2");
        pair.receive(1, 1).unwrap();
        pair.send(0, b"dropped", 2).unwrap();
        pair.inject(0, b"dropped, too").unwrap();
        pair.until("the completion", |pair| pair.ends[0].has(2));
        pair.start(|pair| pair.send(0, b"arrives", 3));
        pair.until("the message after it", |pair| pair.ends[1].has(1));
        assert_eq!(pair.ends[1].received(7), b"arrives");
        assert_eq!((rig.shim.injected(Site::Send), rig.shim.injected(Site::Inject)), (1, 1));
        drop(pair);
        rig.assert_all_closed();
    }
}

#[test]
fn a_delayed_completion_needs_so_many_reads() {
    let Some(rig) = pair::rig("a_delayed_completion_needs_so_many_reads") else { return };
    let mut pair = rig.pair(rig.providers()[0]);
    pair.exchange(b"connected");
    rig.shim.set("site=send,fault=delay,reads=1000");
    pair.receive(1, 1).unwrap();
    pair.start(|pair| pair.send(0, b"late", 2));
    pair.until("the message", |pair| pair.ends[1].has(1));
    pair.until("the queue has taken the completion", |_| rig.shim.injected(Site::Send) == 1);
    assert!(!pair.ends[0].has(2));
    assert_eq!(pair.ends[0].device.try_wait(), Err(Code::AGAIN), "nobody sleeps over it");
    let before = rig.shim.calls(Site::CqRead);
    pair.until("the completion", |pair| pair.ends[0].has(2));
    // Both ends read.
    assert!(rig.shim.calls(Site::CqRead) - before >= 1_900, "{}", rig.shim.report());
}

#[test]
fn completions_of_two_operations_are_swapped() {
    let Some(rig) = pair::rig("completions_of_two_operations_are_swapped") else { return };
    let mut pair = rig.pair(rig.providers()[0]);
    pair.exchange(b"connected");
    rig.shim.set("site=send,fault=reorder,count=1");
    pair.receive(1, 1).unwrap();
    pair.start(|pair| pair.send(0, b"first", 2));
    // Taken from the real queue, and held back.
    pair.until("the first completion", |_| rig.shim.injected(Site::Send) == 1);
    assert!(!pair.ends[0].has(2));
    pair.start(|pair| pair.read(0, 8, 3));
    pair.until("both completions", |pair| pair.ends[0].has(2) && pair.ends[0].has(3));
    let tokens: Vec<_> = pair.ends[0].completions.iter().filter_map(|completion| completion.token).collect();
    assert_eq!(tokens, [3, 2]);
}

#[test]
fn a_truncated_message_is_shorter_than_it_was_sent() {
    let Some(rig) = pair::rig("a_truncated_message_is_shorter_than_it_was_sent") else { return };
    let mut pair = rig.pair(rig.providers()[0]);
    pair.exchange(b"connected");
    rig.shim.set("fault=truncate,bytes=3,count=1");
    for (token, bytes) in [(1, 17), (3, 20)] {
        pair.receive(1, token).unwrap();
        pair.start(|pair| pair.send(0, b"of twenty characters", 2));
        pair.until("the message", |pair| pair.ends[1].has(token));
        let found =
            pair.ends[1].completions.iter().find(|completion| completion.token == Some(token)).unwrap();
        assert_eq!(found.bytes, bytes);
    }
}

#[test]
fn a_broken_connection_fails_until_it_can_be_made_again() {
    let Some(rig) = pair::rig("a_broken_connection_fails_until_it_can_be_made_again") else { return };
    let mut pair = rig.pair(rig.providers()[0]);
    pair.exchange(b"connected");
    rig.shim.set("site=send,fault=break,code=ECONNRESET,calls=3,peer=0");
    let reset = Err(Code::all().find(|code| code.name() == "ECONNRESET").unwrap());
    let results =
        [pair.send(0, b"lost", 2), pair.read(0, 8, 2), pair.inject(0, b"lost"), pair.write(0, b"gained", 4)];
    assert_eq!(results, [reset, reset, reset, Ok(())]);
    pair.until("the first that succeeds", |pair| pair.ends[0].has(4));
    // The address goes and comes back, under the same number.
    let name = pair.ends[1].endpoint.name().unwrap();
    pair.ends[0].endpoint.remove(pair.peers[0]).unwrap();
    pair.peers[0] = pair.ends[0].endpoint.insert(&name).unwrap();
    rig.shim.set("site=inject,fault=break,mode=completion,code=ECONNRESET,calls=1,peer=0");
    pair.inject(0, b"lost").unwrap();
    pair.until("the error", |pair| !pair.ends[0].errors.is_empty());
    assert_eq!(Err(pair.ends[0].errors[0].code), reset);
    // The other end's connection is not touched by a rule for another peer.
    rig.shim.set("site=send,fault=break,code=ECONNRESET,peer=5");
    pair.exchange(b"as if nothing had been");
    drop(pair);
    rig.assert_all_closed();
}

#[test]
fn an_injected_completion_wakes_who_sleeps_on_the_descriptor() {
    let Some(rig) = pair::rig("an_injected_completion_wakes_who_sleeps_on_the_descriptor") else { return };
    for provider in rig.providers().into_iter().filter(|name| pair::HAVE_DESCRIPTORS.contains(name)) {
        rig.shim.set("");
        let mut pair = rig.pair(provider);
        pair.exchange(b"connected");
        pair.until("nothing is left to do", |pair| pair.ends[0].device.try_wait().is_ok());
        rig.shim.set("site=send,mode=completion,code=EIO");
        pair.send(0, b"lost", 2).unwrap();
        let descriptor = pair.ends[0].device.descriptor().unwrap();
        let mut polled = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure; the descriptor belongs to the open device.
        let ready = unsafe { libc::poll(&mut polled, 1, 30_000) };
        assert_eq!(ready, 1, "{provider}: nobody wakes within 30 s");
        assert_eq!(pair.ends[0].device.read(&mut [Completion::EMPTY]), Err(ReadError::Failed));
    }
}

#[test]
fn completions_of_a_closed_endpoint_are_gone() {
    let Some(rig) = pair::rig("completions_of_a_closed_endpoint_are_gone") else { return };
    let Pair { ends: [one, other], .. } = {
        let mut pair = rig.pair(rig.providers()[0]);
        pair.exchange(b"connected");
        rig.shim.set("site=send,mode=completion,code=EIO,count=1;site=send,fault=drop");
        pair.send(0, b"lost", 2).unwrap();
        pair.send(0, b"dropped", 3).unwrap();
        pair
    };
    drop(other);
    let device = one.device.clone();
    drop(one);
    assert_eq!(device.read(&mut [Completion::EMPTY; 4]), Ok(0));
    drop(device);
    rig.assert_all_closed();
}

/// What the child does: it asks for providers twice.
fn asks_twice() -> [Result<(), Code>; 2] {
    let ofi = Ofi::open(&Shim::path().to_string_lossy()).unwrap();
    [(); 2].map(|()| ofi.infos(&Hints { remote_memory: true }).map(drop))
}

#[test]
fn a_crash_ends_the_process_as_a_provider_would() {
    if pair::is_child() {
        let _ = asks_twice();
        return;
    }
    let test = "a_crash_ends_the_process_as_a_provider_would";
    let Some(_rig) = pair::rig(test) else { return };
    let output = child(test, &[("MEND_FABRIC_SHIM_FAULTS", "site=getinfo,fault=crash")]);
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{}", output.status);
}

#[test]
fn a_call_that_hangs_does_not_return_and_holds_up_no_other() {
    if pair::is_child() {
        // The thread ends with this process.
        let caller = std::thread::spawn(asks_twice);
        let shim = Shim::open().unwrap();
        while shim.injected(Site::GetInfo) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(asks_twice(), [Ok(()); 2]);
        assert!(!caller.is_finished());
        return;
    }
    let test = "a_call_that_hangs_does_not_return_and_holds_up_no_other";
    let Some(_rig) = pair::rig(test) else { return };
    let output = child(test, &[("MEND_FABRIC_SHIM_FAULTS", "site=getinfo,fault=hang,count=1")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn rules_of_the_environment_apply_and_the_report_is_printed_at_exit() {
    if pair::is_child() {
        assert_eq!(asks_twice(), [Ok(()), Err(Code(5))]);
        return;
    }
    let test = "rules_of_the_environment_apply_and_the_report_is_printed_at_exit";
    let Some(_rig) = pair::rig(test) else { return };
    let rules = ("MEND_FABRIC_SHIM_FAULTS", "site=getinfo,code=EIO,after=1");
    let output = child(test, &[rules, ("MEND_FABRIC_SHIM_REPORT", "1")]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("site getinfo      calls         2 injected         1"), "{text}");
}

#[test]
fn misspelled_rules_of_the_environment_are_said_and_nothing_is_opened() {
    if pair::is_child() {
        assert_eq!(asks_twice(), [Err(Code::INVALID); 2]);
        return;
    }
    let test = "misspelled_rules_of_the_environment_are_said_and_nothing_is_opened";
    let Some(_rig) = pair::rig(test) else { return };
    let output = child(test, &[("MEND_FABRIC_SHIM_FAULTS", "site=sent,code=EIO")]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("mend-fabric-shim: MEND_FABRIC_SHIM_FAULTS: 'sent' is no site"), "{text}");
}
