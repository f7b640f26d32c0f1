// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each code at each call site reaches the caller as injected, and nothing stays open.

use mend_fabric_shim::Site;
use mend_ffi_ofi::{Code, Completion, Device, Endpoint, ErrorCompletion, Hints, ReadError};
use pair::{End, OPTIONS, Pair, Rig};

#[path = "rig/pair.rs"]
mod pair;

#[test]
fn every_code_of_every_call_that_opens_reaches_the_caller() {
    let Some(rig) = pair::rig("every_code_of_every_call_that_opens_reaches_the_caller") else { return };
    let provider = rig.providers()[0];
    let sites = [
        Site::GetInfo,
        Site::Fabric,
        Site::Domain,
        Site::AvOpen,
        Site::CqOpen,
        Site::MrReg,
        Site::Endpoint,
        Site::Bind,
        Site::SetOpt,
        Site::Enable,
    ];
    for site in sites {
        for code in Code::all() {
            rig.shim.set("");
            let info = rig.info(provider).unwrap();
            // The address vector is bound first; the queue fails.
            set(&rig, site, code, if site == Site::Bind { "call,after=1" } else { "call" });
            let found = match site {
                Site::GetInfo => {
                    drop(info);
                    rig.ofi.infos(&Hints { remote_memory: true }).map(drop)
                }
                _ => End::open(info).map(drop),
            };
            // No provider fits: that is an empty answer.
            let expected = if site == Site::GetInfo && code.name() == "ENODATA" { Ok(()) } else { Err(code) };
            assert_eq!(found, expected, "{}", site.name());
            assert_eq!(rig.shim.injected(site), 1);
            rig.assert_all_closed();
        }
    }
    figure(&sites);
}

#[test]
fn every_code_of_every_call_on_open_objects_reaches_the_caller() {
    let Some(rig) = pair::rig("every_code_of_every_call_on_open_objects_reaches_the_caller") else { return };
    let mut pair = rig.pair(rig.providers()[0]);
    pair.exchange(b"connected");
    let name = pair.ends[1].endpoint.name().unwrap();
    type Call<'a> = &'a dyn Fn(&mut Pair) -> Result<(), Code>;
    let calls: [(Site, Call<'_>); 10] = [
        (Site::GetName, &|pair| pair.ends[0].endpoint.name().map(drop)),
        (Site::AvInsert, &|pair| pair.ends[0].endpoint.insert(&name).map(drop)),
        (Site::AvRemove, &|pair| pair.ends[0].endpoint.remove(pair.peers[0])),
        (Site::MrReg, &|pair| pair.ends[0].register().map(drop)),
        (Site::Send, &|pair| pair.send(0, b"lost", 9)),
        (Site::Inject, &|pair| pair.inject(0, b"lost")),
        (Site::Recv, &|pair| pair.receive(0, 9)),
        (Site::Read, &|pair| pair.read(0, 8, 9)),
        (Site::Write, &|pair| pair.write(0, b"lost", 9)),
        (Site::TryWait, &|pair| pair.ends[0].device.try_wait()),
    ];
    for (site, call) in calls {
        for code in Code::all() {
            set(&rig, site, code, "call");
            assert_eq!(call(&mut pair), Err(code), "{}", site.name());
            assert_eq!(rig.shim.injected(site), 1);
        }
    }
    rig.shim.set("");
    pair.exchange(b"as if nothing had been");
    drop(pair);
    rig.assert_all_closed();
    figure(&calls.map(|(site, _)| site));
}

#[test]
fn every_code_of_every_operation_comes_as_a_completion() {
    let Some(rig) = pair::rig("every_code_of_every_operation_comes_as_a_completion") else { return };
    let mut pair = rig.pair(rig.providers()[0]);
    pair.exchange(b"connected");
    type Call<'a> = &'a dyn Fn(&mut Pair) -> Result<(), Code>;
    let calls: [(Site, Call<'_>); 5] = [
        (Site::Send, &|pair| pair.send(0, b"lost", 9)),
        (Site::Inject, &|pair| pair.inject(0, b"lost")),
        (Site::Recv, &|pair| pair.receive(0, 9)),
        (Site::Read, &|pair| pair.read(0, 8, 9)),
        (Site::Write, &|pair| pair.write(0, b"lost", 9)),
    ];
    for (site, call) in calls {
        for code in Code::all() {
            set(&rig, site, code, "completion,provider_code=-4");
            assert_eq!(call(&mut pair), Ok(()), "{}", site.name());
            assert_eq!(pair.ends[0].device.try_wait(), Err(Code::AGAIN), "something can be read");
            assert_eq!(pair.ends[0].device.read(&mut [Completion::EMPTY]), Err(ReadError::Failed));
            let ErrorCompletion { token, code: found, provider_code, .. } =
                pair.ends[0].device.read_error().unwrap().unwrap();
            // An operation without a context has none in its completion.
            let expected = (site != Site::Inject).then_some(9);
            assert_eq!((found, token, provider_code), (code, expected, -4), "{}", site.name());
        }
    }
    rig.shim.set("");
    pair.exchange(b"as if nothing had been");
    drop(pair);
    rig.assert_all_closed();
    figure(&calls.map(|(site, _)| site));
}

#[test]
fn every_code_of_the_queue_reaches_the_caller() {
    let Some(rig) = pair::rig("every_code_of_the_queue_reaches_the_caller") else { return };
    let mut pair = rig.pair(rig.providers()[0]);
    pair.exchange(b"connected");
    for code in Code::all() {
        set(&rig, Site::CqRead, code, "call");
        let expected = match code {
            Code::AGAIN => Ok(0),
            Code::AVAILABLE => Err(ReadError::Failed),
            code => Err(ReadError::Broken(code)),
        };
        assert_eq!(pair.ends[0].device.read(&mut [Completion::EMPTY]), expected);
        set(&rig, Site::CqReadErr, code, "call");
        let expected = if code == Code::AGAIN { Ok(None) } else { Err(code) };
        assert_eq!(pair.ends[0].device.read_error(), expected);
    }
    rig.shim.set("");
    pair.exchange(b"as if nothing had been");
    drop(pair);
    rig.assert_all_closed();
    figure(&[Site::CqRead, Site::CqReadErr]);
}

#[test]
fn a_close_that_reports_any_code_closes_all_the_same() {
    let Some(rig) = pair::rig("a_close_that_reports_any_code_closes_all_the_same") else { return };
    let provider = rig.providers()[0];
    for code in Code::all() {
        rig.shim.set(&format!("site=close,mode=made,code={}", code.0));
        let info = rig.info(provider).unwrap();
        let device = Device::open(info, OPTIONS).unwrap();
        drop(Endpoint::open(&device, 64).unwrap());
        drop(device);
        assert_eq!(rig.shim.injected(Site::Close), 5);
        rig.assert_all_closed();
    }
    figure(&[Site::Close]);
}

#[test]
fn what_cannot_be_closed_is_told_from_what_was_left_open() {
    let Some(rig) = pair::rig("what_cannot_be_closed_is_told_from_what_was_left_open") else { return };
    let device = Device::open(rig.info(rig.providers()[0]).unwrap(), OPTIONS).unwrap();
    let endpoint = Endpoint::open(&device, 64).unwrap();
    rig.shim.set("site=close,code=EBUSY,count=1");
    assert_eq!(rig.open(), 6, "{}", rig.shim.report());
    drop(endpoint);
    assert_eq!((rig.open(), rig.refused()), (5, 1), "{}", rig.shim.report());
    // What the endpoint uses is refused by the real library.
    drop(device);
    assert_eq!(rig.open(), 0, "{}", rig.shim.report());
    assert!(rig.refused() > 1, "{}", rig.shim.report());
}

/// With 1.17 closing it would end the process.
#[test]
fn an_endpoint_without_addresses_is_left_open() {
    let Some(rig) = pair::rig("an_endpoint_without_addresses_is_left_open") else { return };
    let device = Device::open(rig.info(rig.providers()[0]).unwrap(), OPTIONS).unwrap();
    rig.shim.set("site=bind,code=EIO,count=1");
    assert_eq!(Endpoint::open(&device, 64).map(drop), Err(Code(5)));
    assert_eq!(rig.shim.calls(Site::Close), 0);
    rig.shim.set("site=bind,code=EIO,mode=made,count=1");
    assert_eq!(Endpoint::open(&device, 64).map(drop), Err(Code(5)));
    assert!(Endpoint::open(&device, 64).is_ok(), "the device can be used");
}

fn set(rig: &Rig, site: Site, code: Code, mode: &str) {
    rig.shim.set(&format!("site={},code={},mode={mode},count=1", site.name(), code.0));
}

fn figure(sites: &[Site]) {
    let names: Vec<_> = sites.iter().map(|site| site.name()).collect();
    mend_testing::say(&format!("figure: {} codes at each of {}", Code::all().count(), names.join(", ")));
}
