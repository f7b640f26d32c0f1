// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which connections close on exec, and which are broken. In a process of its own, as other tests set the flag of whatever is opened meanwhile.

use mend_ffi_ofi::{StuckConnections, close_connections_on_exec};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, listen, socket_with, sockopt};
use std::io::{ErrorKind, Write};
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

#[test]
fn a_connection_that_is_not_answered_is_broken_and_those_that_are_acknowledged_or_unrelated_are_not() {
    let [own, peer, other] = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let mut kept: Vec<TcpStream> = [&own, &peer].into_iter().flat_map(connection).collect();
    // Their peers read nothing: they have no room any more, and acknowledge.
    for stream in &mut kept {
        stream.set_nonblocking(true).unwrap();
        while stream.write(&[0; 1 << 16]).is_ok() {}
    }
    // They have room for one more.
    let _last = [&peer, &other].map(|listener| {
        listen(listener, 0).unwrap();
        begin(listener)
    });
    let unrelated = begin(&other);
    let names = [&own, &peer].map(name);
    let mut stuck = StuckConnections::default();
    let mut broken = || stuck.break_all([&names[0][..]], [&names[1][..], b"fi_shm://1"]);
    for turn in 1..=4 {
        let asking = begin(&peer);
        assert_eq!(broken(), 0, "it may be answered until the next call");
        if turn == 4 {
            assert_eq!(broken(), 0, "it is given time until its first packet was sent again");
            while broken() == 0 {
                std::thread::yield_now();
            }
        } else {
            assert_eq!(broken(), 1);
        }
        assert_eq!(sockopt::socket_error(&asking).unwrap(), Err(Errno::CONNRESET));
    }
    // It has begun before all of them.
    assert_eq!(sockopt::socket_error(&unrelated).unwrap(), Ok(()));
    for stream in &mut kept {
        let error = stream.write(&[0]).err().map(|error| error.kind());
        assert!(matches!(error, None | Some(ErrorKind::WouldBlock)), "{error:?}");
    }
}

/// A connection that begins.
fn begin(listener: &TcpListener) -> OwnedFd {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    assert_eq!(connect(&socket, &listener.local_addr().unwrap()), Err(Errno::INPROGRESS));
    socket
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
