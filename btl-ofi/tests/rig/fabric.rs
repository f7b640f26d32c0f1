// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A fixture of the conformance suite: the "processes" are BTLs of this process, each with a device of its own, that exchange what processes
//! would exchange.
#![allow(dead_code, unused_macros, unused_imports, reason = "each test program uses a part")]

use core::marker::PhantomData;
use mend_base::{Duration, Instant};
use mend_btl_ofi::{Choice, Class, Ofi, Options, candidates, choose};
use mend_fabric_shim::Shim;
use mend_ffi_ofi::Ofi as Library;
use mend_transport::conformance::Fixture;
use mend_transport::{Btl, Card, TransportId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// A library and a provider of it.
pub trait Provider: 'static {
    const NAME: &str;
    /// The variable with the path of the library; `None`: the system's.
    const VARIABLE: Option<&str> = None;
    /// The transport's connections are sockets.
    const HAS_SOCKETS: bool = true;
    /// The rules of the shim, which stands before the library; `None`: it does not.
    const RULES: Option<Rules> = None;
}

/// Rules of the shim (docs/fabric-shim.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    pub text: &'static str,
    /// Operations fail, so the BTL has evidence, answers `Busy`, or connects again at times that no test expects.
    pub breaks: bool,
}

/// Whether operations of this provider fail.
const fn breaks<P: Provider>() -> bool {
    matches!(P::RULES, Some(Rules { breaks: true, .. }))
}

const fn is_sockets(name: &str) -> bool {
    matches!(name.as_bytes(), b"sockets")
}

/// BTLs over a provider.
pub struct Fabric<P> {
    /// Where each process listens, if it has sockets.
    ports: Vec<u16>,
    _provider: PhantomData<P>,
    started: std::time::Instant,
    /// Rounds without a callback.
    waits: u32,
    /// The rules that hold while the test runs.
    _turn: Option<Turn>,
}

/// So many waits only yield: the kernel moves bytes within microseconds.
const YIELDS: u32 = 20_000;

/// The use of the shim by a test. Its rules are those of this process: tests with the same rules run at once, others take turns.
struct Turn;

struct Users {
    rules: &'static str,
    count: usize,
}

static USERS: Mutex<Users> = Mutex::new(Users { rules: "", count: 0 });
static LEFT: Condvar = Condvar::new();

impl Turn {
    fn wait(rules: &'static str) -> Turn {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        while users.count > 0 && users.rules != rules {
            users = LEFT.wait(users).unwrap_or_else(PoisonError::into_inner);
        }
        if users.count == 0 {
            Shim::open().expect("cargo builds the shim for this test").set(rules);
        }
        *users = Users { rules, count: users.count + 1 };
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        USERS.lock().unwrap_or_else(PoisonError::into_inner).count -= 1;
        LEFT.notify_all();
    }
}

fn library<P: Provider>() -> Result<Arc<Library>, String> {
    let path = match P::VARIABLE {
        None => Library::DEFAULT_NAME.to_owned(),
        Some(variable) => std::env::var(variable).map_err(|_| format!("{variable} names no library"))?,
    };
    let path = if P::RULES.is_some() { Shim::path().to_string_lossy().into_owned() } else { path };
    Library::open(&path).map_err(|error| format!("{error} (Debian: apt-get install libfabric1)"))
}

fn choice<P: Provider>() -> Choice {
    let interfaces = if P::HAS_SOCKETS { "lo" } else { "" };
    Choice { providers: P::NAME.to_owned(), interfaces: interfaces.to_owned(), rails: 1, one_host: true }
}

fn open<P: Provider>(library: &Arc<Library>) -> Ofi {
    static INSTANCES: AtomicU64 = AtomicU64::new(1);
    let infos = choose(candidates(library, &choice::<P>()).expect("a list of providers"));
    let options = Options {
        instance: INSTANCES.fetch_add(1, Ordering::Relaxed) << 32 | u64::from(std::process::id()),
        eager_bytes: Some(4096),
        chunk_bytes: Some(4096),
        reconnect: Duration::from_millis(10_000),
        report: Box::new(|report| assert!(report.class != Class::LocalFault, "{report}")),
    };
    Ofi::open(infos, options).expect("a device for a test")
}

impl<P: Provider> Fixture for Fabric<P> {
    type Btl = Ofi;
    const EXACT: bool = !breaks::<P>();
    const READY_IS_EXACT: bool = false;
    const CLASSES_SHARE_A_WAY: bool = true;
    const ROUNDS_TO_LEAVE: usize = 50;
    // `sockets` closes a connection without reading on.
    const KEEPS_WHAT_THE_DEAD_SENT: bool = !is_sockets(P::NAME);
    const QUIET_ROUNDS: usize = 200;
    const LOSES: bool = breaks::<P>();

    fn unavailable() -> Option<String> {
        // Seen with 2.5: its completion queue reads memory that is not mapped while emulated gets are under way.
        if P::VARIABLE.is_some() && !P::HAS_SOCKETS {
            return Some("the provider shm of libfabric 2 ends the process".to_owned());
        }
        let library = match library::<P>() {
            Ok(library) => library,
            Err(why) => return Some(why),
        };
        match candidates(&library, &choice::<P>()) {
            Ok(all) if all.iter().any(|candidate| candidate.refused.is_none()) => None,
            _ => Some(format!("libfabric has no provider {}", P::NAME)),
        }
    }

    fn start(count: usize) -> (Self, Vec<Ofi>) {
        let turn = P::RULES.map(|rules| Turn::wait(rules.text));
        let library = library::<P>().expect("it was there before");
        let btls: Vec<Ofi> = (0..count).map(|_| open::<P>(&library)).collect();
        let ports = btls.iter().map(port).collect();
        let started = std::time::Instant::now();
        (Fabric { ports, _provider: PhantomData, started, waits: 0, _turn: turn }, btls)
    }

    fn abandon(&mut self, _index: usize, btl: Ofi) {
        if P::HAS_SOCKETS {
            drop(btl);
        } else {
            // The memory that the provider shares stays after a kill; after an orderly end the provider `shm` would end this process.
            core::mem::forget(btl);
        }
    }

    fn now(&mut self, _call: u64) -> Instant {
        Instant(self.started.elapsed().as_nanos() as u64)
    }

    fn wait(&mut self) {
        self.waits += 1;
        if breaks::<P>() || self.waits > YIELDS {
            // Sleeps: lets time pass, so that a bound of rounds is long enough for probes, which are milliseconds apart.
            std::thread::sleep(std::time::Duration::from_micros(20));
        } else {
            std::thread::yield_now();
        }
    }

    fn is_settled(&mut self, btl: &mut Ofi) -> bool {
        btl.is_settled()
    }

    fn break_connection(&mut self, btl: &mut Ofi, endpoint: u32, from: usize, to: usize) -> bool {
        let _ = btl.limits(endpoint);
        P::HAS_SOCKETS && reset_connections(self.ports[from], self.ports[to])
    }

    fn is_readable(&mut self, descriptors: &[i32]) -> bool {
        // SAFETY: descriptors of a device that lives as long as the BTL, which the caller has.
        let borrow = |&descriptor: &i32| unsafe { BorrowedFd::borrow_raw(descriptor) };
        let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(borrow).collect();
        let mut polled: Vec<PollFd<'_>> =
            borrowed.iter().map(|descriptor| PollFd::new(descriptor, PollFlags::IN)).collect();
        let most = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        poll(&mut polled, Some(&most)).expect("descriptors can be polled") > 0
    }
}

/// Resets the TCP connections between two processes, which listen at these ports, at the end of the first. `false`: the kernel or the
/// privileges of this process do not allow it.
fn reset_connections(from: u16, to: u16) -> bool {
    let filter = format!("( dport = :{to} or sport = :{from} )");
    let destroyed = Command::new("ss").args(["-HK", "state", "established", &filter]).output();
    destroyed.is_ok_and(|output| output.status.success())
}

/// The port at the end of the entry of a BTL with one rail over sockets.
fn port(btl: &Ofi) -> u16 {
    let mut card = Card::default();
    btl.advertise(&mut card);
    let entry = card.entry(TransportId::OFI).expect("every BTL advertises itself");
    // The last 16 bytes are a sockaddr_in: family, port, address.
    entry.len().checked_sub(14).map_or(0, |at| u16::from_be_bytes([entry[at], entry[at + 1]]))
}

/// The suite over a provider, as a module.
macro_rules! provider {
    ($module:ident, $name:literal, $variable:expr, $sockets:literal) => {
        mod $module {
            use crate::fabric::{Fabric, Provider};

            struct This;

            impl Provider for This {
                const NAME: &str = $name;
                const VARIABLE: Option<&str> = $variable;
                const HAS_SOCKETS: bool = $sockets;
            }

            mod plain {
                mend_transport::conformance!(super::Fabric<super::This>);
            }

            mod injected {
                mend_transport::conformance!(
                    mend_transport::conformance::Injected<super::Fabric<super::This>>
                );
            }

            mod counted {
                mend_transport::conformance!(
                    mend_transport::conformance::Counted<super::Fabric<super::This>>
                );
            }
        }
    };
}
pub(crate) use provider;

/// The suite over a provider behind the shim, as a module.
macro_rules! behind_the_shim {
    ($module:ident, $name:literal, $sockets:literal, $rules:expr) => {
        mod $module {
            use crate::fabric::{Provider, Rules};

            struct This;

            impl Provider for This {
                const NAME: &str = $name;
                const HAS_SOCKETS: bool = $sockets;
                const RULES: Option<Rules> = Some($rules);
            }

            mend_transport::conformance!(mend_transport::conformance::Counted<crate::fabric::Fabric<This>>);
        }
    };
}
pub(crate) use behind_the_shim;
