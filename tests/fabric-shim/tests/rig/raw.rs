// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An endpoint that sends to itself, through the functions of libfabric as a C program calls them: for calls that `ffi-ofi` does not
//! have.

use core::ffi::{c_int, c_void};
use core::mem::{transmute, zeroed};
use core::ptr::{self, NonNull};
use mend_fabric_shim::Shim;
use mend_ffi_dl::Library;
use mend_ffi_ofi::bindings as fi;

/// Calls a function of an object's table; panics if it has none.
macro_rules! call {
    ($object:expr, $table:ident, $function:ident $(, $argument:expr)*) => {{
        // SAFETY: an open object.
        let table = unsafe { (*$object).$table };
        // SAFETY: a table of functions that lives as long as the object.
        let function = unsafe { (*table).$function }.expect("the table has the function");
        // SAFETY: an open object, and arguments that fit.
        unsafe { function($object $(, $argument)*) }
    }};
}
pub(crate) use call;

/// Closes an object of any kind.
macro_rules! close {
    ($object:expr) => {{
        let fid: *mut fi::fid = $object.cast();
        assert_eq!(call!(fid, ops, close), 0);
    }};
}

pub struct Raw {
    pub fabric: *mut fi::fid_fabric,
    pub domain: *mut fi::fid_domain,
    pub addresses: *mut fi::fid_av,
    pub queue: *mut fi::fid_cq,
    pub endpoint: *mut fi::fid_ep,
    pub region: *mut fi::fid_mr,
    /// Its own address.
    pub to: u64,
    pub memory: Box<[u64; 8]>,
    contexts: Box<[fi::fi_context2; 8]>,
    /// By what remote operations name the memory.
    pub remote: u64,
}

type GetInfo =
    unsafe extern "C" fn(u32, *const i8, *const i8, u64, *const fi::fi_info, *mut *mut fi::fi_info) -> c_int;
type FreeInfo = unsafe extern "C" fn(*mut fi::fi_info);
type DupInfo = unsafe extern "C" fn(*const fi::fi_info) -> *mut fi::fi_info;
type OpenFabric =
    unsafe extern "C" fn(*mut fi::fi_fabric_attr, *mut *mut fi::fid_fabric, *mut c_void) -> c_int;

impl Raw {
    /// The endpoint; `None`: this library has no provider with messages with tags and atomic operations over lo.
    pub fn open() -> Option<Raw> {
        let library = Library::open(&Shim::path().to_string_lossy()).unwrap();
        let symbol = |name, version| -> NonNull<c_void> { library.symbol(name, version).unwrap() };
        // SAFETY: the function with this name and version has this type, here and below.
        let getinfo: GetInfo = unsafe { transmute(symbol(c"fi_getinfo", c"FABRIC_1.3")) };
        // SAFETY: as above.
        let freeinfo: FreeInfo = unsafe { transmute(symbol(c"fi_freeinfo", c"FABRIC_1.3")) };
        // SAFETY: as above.
        let dupinfo: DupInfo = unsafe { transmute(symbol(c"fi_dupinfo", c"FABRIC_1.3")) };
        // SAFETY: as above.
        let fabric: OpenFabric = unsafe { transmute(symbol(c"fi_fabric", c"FABRIC_1.1")) };
        // SAFETY: null makes an empty structure.
        let hints = unsafe { dupinfo(ptr::null()) };
        fill(hints);
        let mut list = ptr::null_mut();
        // SAFETY: complete hints, a writable pointer.
        let result = unsafe { getinfo(1 << 16 | 17, ptr::null(), ptr::null(), 0, hints, &mut list) };
        // SAFETY: made above.
        unsafe { freeinfo(hints) };
        let mut info = list;
        while !info.is_null() && !is_over_lo(info) {
            // SAFETY: an element of the list.
            info = unsafe { (*info).next };
        }
        if result != 0 || info.is_null() {
            // SAFETY: the list, or null.
            unsafe { freeinfo(list) };
            return None;
        }
        let raw = Raw::open_with(info, fabric);
        // SAFETY: the list, which nothing refers to.
        unsafe { freeinfo(list) };
        Some(raw)
    }

    fn open_with(info: *mut fi::fi_info, open: OpenFabric) -> Raw {
        let (mut fabric, mut domain, mut addresses) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let (mut queue, mut endpoint) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a complete fi_info.
        let attr = unsafe { (*info).fabric_attr };
        // SAFETY: the attributes of an fi_info, a writable pointer.
        assert_eq!(unsafe { open(attr, &mut fabric, ptr::null_mut()) }, 0);
        assert_eq!(call!(fabric, ops, domain, info, &mut domain, ptr::null_mut()), 0);
        // SAFETY: numbers and pointers, for which zero is the default, here and below.
        let mut av: fi::fi_av_attr = unsafe { zeroed() };
        av.type_ = fi::FI_AV_TABLE;
        assert_eq!(call!(domain, ops, av_open, &mut av, &mut addresses, ptr::null_mut()), 0);
        // SAFETY: as above.
        let mut cq: fi::fi_cq_attr = unsafe { zeroed() };
        (cq.format, cq.wait_obj) = (fi::FI_CQ_FORMAT_TAGGED, fi::FI_WAIT_UNSPEC);
        assert_eq!(call!(domain, ops, cq_open, &mut cq, &mut queue, ptr::null_mut()), 0);
        assert_eq!(call!(domain, ops, endpoint, info, &mut endpoint, ptr::null_mut()), 0);
        let fid: *mut fi::fid = endpoint.cast();
        assert_eq!(call!(fid, ops, bind, addresses.cast(), 0), 0);
        let both = u64::from(fi::FI_TRANSMIT | fi::FI_RECV);
        assert_eq!(call!(fid, ops, bind, queue.cast(), both), 0);
        assert_eq!(call!(fid, ops, control, fi::FI_ENABLE as c_int, ptr::null_mut()), 0);
        let mut memory = Box::new([0_u64; 8]);
        // SAFETY: an array of numbers.
        let contexts = Box::new(unsafe { zeroed() });
        let region = registered(domain, &mut memory);
        let to = inserted(endpoint, addresses);
        // SAFETY: a complete fi_info.
        let domain_attr = unsafe { (*info).domain_attr };
        // SAFETY: its attributes are not null.
        let mode = unsafe { (*domain_attr).mr_mode }.cast_unsigned();
        let remote = if mode & fi::FI_MR_VIRT_ADDR == 0 { 0 } else { memory.as_ptr().addr() as u64 };
        Raw { fabric, domain, addresses, queue, endpoint, region, to, memory, contexts, remote }
    }

    pub fn context(&mut self, index: usize) -> *mut c_void {
        ptr::from_mut(&mut self.contexts[index]).cast()
    }

    pub fn key(&self) -> u64 {
        // SAFETY: open.
        unsafe { (*self.region).key }
    }

    pub fn descriptor(&self) -> *mut c_void {
        // SAFETY: open.
        unsafe { (*self.region).mem_desc }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        close!(self.endpoint);
        close!(self.region);
        close!(self.queue);
        close!(self.addresses);
        close!(self.domain);
        close!(self.fabric);
    }
}

fn fill(hints: *mut fi::fi_info) {
    // SAFETY: made by fi_dupinfo for the caller alone.
    let hints = unsafe { &mut *hints };
    hints.caps = u64::from(fi::FI_MSG | fi::FI_TAGGED | fi::FI_RMA | fi::FI_ATOMIC);
    hints.mode = fi::FI_CONTEXT | fi::FI_CONTEXT2;
    hints.addr_format = fi::FI_SOCKADDR_IN;
    // SAFETY: attributes that fi_dupinfo made, here and below.
    unsafe { &mut *hints.ep_attr }.type_ = fi::FI_EP_RDM;
    let modes = fi::FI_MR_LOCAL | fi::FI_MR_VIRT_ADDR | fi::FI_MR_ALLOCATED | fi::FI_MR_PROV_KEY;
    // SAFETY: as above.
    unsafe { &mut *hints.domain_attr }.mr_mode = modes as c_int;
}

fn is_over_lo(info: *mut fi::fi_info) -> bool {
    // SAFETY: a complete fi_info.
    let info = unsafe { &*info };
    // SAFETY: its attributes are not null, here and below.
    let (domain, fabric) = (unsafe { &*info.domain_attr }, unsafe { &*info.fabric_attr });
    // SAFETY: C strings.
    let (domain, provider) = (unsafe { core::ffi::CStr::from_ptr(domain.name) }, unsafe {
        core::ffi::CStr::from_ptr(fabric.prov_name)
    });
    domain == c"lo" && provider == c"tcp;ofi_rxm"
}

fn registered(domain: *mut fi::fid_domain, memory: &mut [u64; 8]) -> *mut fi::fid_mr {
    let mut region = ptr::null_mut();
    let access =
        fi::FI_SEND | fi::FI_RECV | fi::FI_READ | fi::FI_WRITE | fi::FI_REMOTE_READ | fi::FI_REMOTE_WRITE;
    // SAFETY: an open domain.
    let table = unsafe { (*domain).mr };
    // SAFETY: the table of an open domain.
    let reg = unsafe { (*table).reg }.expect("a domain registers memory");
    let (start, bytes) = (memory.as_mut_ptr().cast(), size_of_val(memory));
    // SAFETY: memory that outlives the registration, a writable pointer.
    let result =
        unsafe { reg(domain.cast(), start, bytes, access.into(), 0, 77, 0, &mut region, ptr::null_mut()) };
    assert_eq!(result, 0);
    region
}

/// The endpoint's own address in the address vector.
fn inserted(endpoint: *mut fi::fid_ep, addresses: *mut fi::fid_av) -> u64 {
    let (mut name, mut bytes) = ([0_u8; 64], 64);
    // SAFETY: an open endpoint.
    let cm = unsafe { (*endpoint).cm };
    // SAFETY: its table.
    let getname = unsafe { (*cm).getname }.expect("an endpoint has a name");
    // SAFETY: so many writable bytes.
    assert_eq!(unsafe { getname(endpoint.cast(), name.as_mut_ptr().cast(), &mut bytes) }, 0);
    let mut to = u64::MAX;
    assert_eq!(call!(addresses, ops, insert, name.as_ptr().cast(), 1, &mut to, 0, ptr::null_mut()), 1);
    to
}
