// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which connections close on exec. In a process of its own, as other tests set the flag of whatever is opened meanwhile.

use mend_ffi_ofi::close_connections_on_exec;
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

#[test]
fn connections_of_named_endpoints_close_on_exec_and_others_do_not() {
    let [own, peer, other] = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [to_own, from_own] = connection(&own);
    let [to_peer, from_peer] = connection(&peer);
    let unrelated = connection(&other);
    let [own, peer] = [&own, &peer].map(name);
    close_connections_on_exec([&own[..]], [&peer[..], b"fi_shm://1"]);
    assert!(closes(&from_own) && closes(&to_peer));
    assert!(!closes(&to_own) && !closes(&from_peer), "the far ends, of which the names do not speak");
    assert!(!closes(&unrelated[0]) && !closes(&unrelated[1]));
}

/// Both ends, without the flag.
fn connection(listener: &TcpListener) -> [TcpStream; 2] {
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    for stream in [&near, &far] {
        fcntl_setfd(stream, FdFlags::empty()).unwrap();
    }
    [near, far]
}

fn closes(stream: &TcpStream) -> bool {
    fcntl_getfd(stream).unwrap().contains(FdFlags::CLOEXEC)
}

/// A `sockaddr_in`, as the name of an endpoint is.
fn name(listener: &TcpListener) -> Vec<u8> {
    let family = rustix::net::AddressFamily::INET.as_raw().to_ne_bytes();
    let port = listener.local_addr().unwrap().port().to_be_bytes();
    [&family[..], &port, &Ipv4Addr::LOCALHOST.octets(), &[0; 8]].concat()
}
