// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two devices of this process over the loopback interface, with the shim in place of libfabric.
#![allow(dead_code, reason = "each test program uses a part")]

use mend_fabric_shim::Shim;
use mend_ffi_ofi::{
    Access, Address, Code, Completion, Device, Endpoint, ErrorCompletion, Hints, Info, Ofi, Options,
    ReadError, Registration, Target, bindings as fi,
};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The shim and the library that tests see through it. Rules and counts belong to the process, so one test has it at a time.
pub struct Rig {
    pub shim: Shim,
    pub ofi: Arc<Ofi>,
    /// What an earlier test left open or could not close, on purpose.
    open: i64,
    refused: i64,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

/// Runs a test of this program again as a process of its own, with these variables.
pub fn child(test: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(CHILD, "1").envs(variables.iter().copied());
    // A library that libfabric loads (libinfinipath) installs handlers for fatal signals, which write a file and exit, unless this is set.
    command.env("IPATH_NO_BACKTRACE", "1");
    command.output().unwrap()
}

const CHILD: &str = "MENDTEST_FABRIC_SHIM_CHILD";

/// Whether this process was started by [`child`].
pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// The rig without rules; or the test is skipped, since libfabric is not there.
pub fn rig(test: &str) -> Option<Rig> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let real = std::env::var("MEND_FABRIC_SHIM_LIBRARY").unwrap_or_else(|_| Ofi::DEFAULT_NAME.to_owned());
    // A child has been started because the parent could.
    if !is_child()
        && let Err(why) = Ofi::open(&real)
    {
        mend_testing::skip(test, &format!("{why} (Debian: apt install libfabric1)"));
        return None;
    }
    let shim = Shim::open().unwrap_or_else(|why| panic!("{why}"));
    let ofi = Ofi::open(&Shim::path().to_string_lossy()).unwrap();
    shim.set("");
    let (open, refused) = (shim.open_objects(), shim.refused_objects());
    Some(Rig { shim, ofi, open, refused, _turn: turn })
}

impl Rig {
    /// What the provider offers over the loopback interface; `None`: this library does not have it.
    pub fn info(&self, provider: &str) -> Option<Info> {
        let infos = self.ofi.infos(&Hints { remote_memory: true }).unwrap();
        infos.into_iter().find(|info| info.provider() == provider && is_local(info))
    }

    /// The providers of this library that tests use; at least one is there.
    pub fn providers(&self) -> Vec<&'static str> {
        let infos = self.ofi.infos(&Hints { remote_memory: true }).unwrap();
        let has = |name: &&str| infos.iter().any(|info| info.provider() == *name && is_local(info));
        let providers: Vec<_> = PROVIDERS.iter().copied().filter(has).collect();
        assert!(!providers.is_empty(), "libfabric has none of {PROVIDERS:?}");
        providers
    }

    pub fn pair(&self, provider: &str) -> Pair {
        let options = Options { wait_descriptor: HAVE_DESCRIPTORS.contains(&provider), ..OPTIONS };
        let open = || End::open_with(self.info(provider)?, options).ok();
        let (one, other) =
            (open().expect("the first device opens"), open().expect("the second device opens"));
        let [to_other, to_one] = [(&one, &other), (&other, &one)]
            .map(|(from, to)| from.endpoint.insert(&to.endpoint.name().unwrap()).unwrap());
        Pair { ends: [one, other], peers: [to_other, to_one] }
    }

    /// How many objects of this test are open that nobody has asked to close.
    pub fn open(&self) -> i64 {
        self.shim.open_objects() - self.open
    }

    /// How many closes of this test have failed.
    pub fn refused(&self) -> i64 {
        self.shim.refused_objects() - self.refused
    }

    /// Nothing is open, and no close failed.
    pub fn assert_all_closed(&self) {
        let report = self.shim.report();
        assert_eq!((self.open(), self.refused()), (0, 0), "{report}");
    }
}

/// Those of [`PROVIDERS`] whose queues have a descriptor to sleep on.
pub const HAVE_DESCRIPTORS: &[&str] = &["tcp;ofi_rxm", "net", "tcp"];

/// Whether it needs no network but that of this host.
fn is_local(info: &Info) -> bool {
    info.provider() == "shm" || info.domain() == "lo" && info.address_format() == fi::FI_SOCKADDR_IN
}

const PROVIDERS: &[&str] = &["tcp;ofi_rxm", "net", "tcp", "sockets", "shm"];

/// A device with an endpoint and memory that is registered. The fields are in the order in which they are to be dropped.
pub struct End {
    pub endpoint: Endpoint,
    registration: Registration,
    memory: Box<[u8]>,
    pub device: Device,
    pub completions: Vec<Completion>,
    pub errors: Vec<ErrorCompletion>,
}

pub const OPTIONS: Options = Options { tokens: 64, wait_descriptor: true };
pub const MEMORY_BYTES: usize = 4_096;
/// Half of the memory is for receiving, half for sending.
const HALF: usize = MEMORY_BYTES / 2;

impl End {
    pub fn open(info: Info) -> Result<End, Code> {
        End::open_with(info, OPTIONS)
    }

    fn open_with(info: Info, options: Options) -> Result<End, Code> {
        let device = Device::open(info, options)?;
        let mut memory = vec![0_u8; MEMORY_BYTES].into_boxed_slice();
        let registration = register(&device, &mut memory)?;
        let endpoint = Endpoint::open(&device, 64)?;
        Ok(End { endpoint, registration, memory, device, completions: Vec::new(), errors: Vec::new() })
    }

    pub fn register(&mut self) -> Result<Registration, Code> {
        register(&self.device, &mut self.memory)
    }

    /// Where peers find the memory, from the receiving half on.
    fn target(&self, peer: Address) -> Target {
        let uses_addresses = self.device.info().registration_mode() & fi::FI_MR_VIRT_ADDR != 0;
        let address = if uses_addresses { self.memory.as_ptr().addr() as u64 } else { 0 };
        Target { peer, address, key: self.registration.key() }
    }

    /// The device's memory from its beginning: the last message, or what the other end has written.
    pub fn received(&self, bytes: usize) -> &[u8] {
        &self.memory[..bytes]
    }

    /// Takes what has completed.
    pub fn progress(&mut self) {
        let mut completions = [Completion::EMPTY; 16];
        match self.device.read(&mut completions) {
            Ok(number) => self.completions.extend(&completions[..number]),
            Err(ReadError::Failed) => self.errors.extend(self.device.read_error().unwrap()),
            Err(ReadError::Broken(code)) => panic!("the queue is broken: {code}"),
        }
    }

    pub fn has(&self, token: u32) -> bool {
        self.completions.iter().any(|completion| completion.token == Some(token))
    }
}

fn register(device: &Device, memory: &mut [u8]) -> Result<Registration, Code> {
    let access = Access { source: true, target: true, remote_read: true, remote_write: true };
    // SAFETY: the caller keeps the memory longer than the registration, and reads it after completions alone.
    unsafe { Registration::new(device, memory.as_mut_ptr(), memory.len(), access, 77) }
}

/// Two devices that know each other.
pub struct Pair {
    pub ends: [End; 2],
    /// How each names the other.
    pub peers: [Address; 2],
}

impl Pair {
    pub fn receive(&mut self, end: usize, token: u32) -> Result<(), Code> {
        let End { endpoint, registration, memory, .. } = &mut self.ends[end];
        // SAFETY: the memory lives as long as the endpoint, and is read after the completion alone; tests use a token once at a time.
        unsafe { endpoint.receive(memory.as_mut_ptr(), HALF, registration.descriptor(), false, token) }
    }

    pub fn send(&mut self, end: usize, message: &[u8], token: u32) -> Result<(), Code> {
        let to = self.peers[end];
        let End { endpoint, registration, memory, .. } = &mut self.ends[end];
        memory[HALF..HALF + message.len()].copy_from_slice(message);
        let start = memory[HALF..].as_ptr();
        // SAFETY: as for `receive`; it is written again for the next message, after the completion of this one.
        unsafe { endpoint.send(start, message.len(), registration.descriptor(), to, token) }
    }

    pub fn inject(&mut self, end: usize, message: &[u8]) -> Result<(), Code> {
        self.ends[end].endpoint.inject(message, self.peers[end])
    }

    /// Reads the memory of the other end into that of this one.
    pub fn read(&mut self, end: usize, bytes: usize, token: u32) -> Result<(), Code> {
        let target = self.ends[1 - end].target(self.peers[end]);
        let End { endpoint, registration, memory, .. } = &mut self.ends[end];
        // SAFETY: as for `receive`.
        unsafe { endpoint.read(memory.as_mut_ptr(), bytes, registration.descriptor(), target, token) }
    }

    /// Writes the message into the memory of the other end.
    pub fn write(&mut self, end: usize, message: &[u8], token: u32) -> Result<(), Code> {
        let target = self.ends[1 - end].target(self.peers[end]);
        let End { endpoint, registration, memory, .. } = &mut self.ends[end];
        memory[HALF..HALF + message.len()].copy_from_slice(message);
        let start = memory[HALF..].as_ptr();
        // SAFETY: as for `send`.
        unsafe { endpoint.write(start, message.len(), registration.descriptor(), target, token) }
    }

    /// Starts an operation, again and again while there is no room or no connection yet.
    pub fn start(&mut self, operation: impl Fn(&mut Pair) -> Result<(), Code>) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while let Err(code) = operation(self) {
            assert!(code == Code::AGAIN && Instant::now() < deadline, "an operation does not start: {code}");
            self.ends.iter_mut().for_each(End::progress);
        }
    }

    /// Makes progress at both ends until the condition holds.
    pub fn until(&mut self, what: &str, condition: impl Fn(&Pair) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !condition(self) {
            assert!(Instant::now() < deadline, "{what}: not within 30 s");
            self.ends.iter_mut().for_each(End::progress);
        }
    }

    /// One message from the first end to the second. Its receive has the token 1, its send the token 2.
    pub fn exchange(&mut self, message: &[u8]) {
        self.receive(1, 1).unwrap();
        self.start(|pair| pair.send(0, message, 2));
        self.until("a message", |pair| pair.ends[1].has(1) && pair.ends[0].has(2));
        assert_eq!(self.ends[1].received(message.len()), message);
        self.forget();
    }

    /// Forgets the completions that have been looked at.
    pub fn forget(&mut self) {
        for end in &mut self.ends {
            end.completions.clear();
            end.errors.clear();
        }
    }
}
