// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Address vectors. Peers are numbered in the order in which their addresses were first inserted; an address that is inserted again
//! keeps its number, so that a rule for a peer outlives a reconnection.

use crate::bindings as fi;
use crate::faults;
use crate::object::{NO_FUNCTION, Object, fid_ops, forward, function, ours, refuse, table};
use crate::open::Kind;
use crate::site::Site;
use core::ffi::{c_char, c_int, c_void};
use core::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The peers of an address vector, by number.
#[derive(Default)]
pub(crate) struct Peers(Mutex<Vec<Peer>>);

struct Peer {
    name: Vec<u8>,
    /// By which operations name it.
    address: u64,
}

impl Peers {
    /// The number of the peer that operations name by this address. An unknown address is its own number.
    pub(crate) fn number(&self, address: u64) -> u64 {
        let number = self.lock().iter().position(|peer| peer.address == address);
        number.map_or(address, |number| number as u64)
    }

    fn insert(&self, name: Vec<u8>, address: u64) {
        let mut peers = self.lock();
        // The provider may have given the address of a removed peer to this one.
        peers.iter_mut().filter(|peer| peer.address == address).for_each(|peer| peer.address = u64::MAX);
        match peers.iter_mut().find(|peer| peer.name == name) {
            Some(peer) => peer.address = address,
            None => peers.push(Peer { name, address }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Peer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Object for fi::fid_av {
    type State = Arc<Peers>;
    const KIND: Kind = Kind::AddressVector;

    fn fid_ops() -> &'static fi::fi_ops {
        static OPS: fi::fi_ops = fid_ops::<fi::fid_av>();
        &OPS
    }

    fn replace_tables(&mut self) {
        self.fid.ops = table(Self::fid_ops());
        self.ops = table(&OPS);
    }
}

/// Sets of addresses are not provided: they are for collective operations.
static OPS: fi::fi_ops_av = fi::fi_ops_av {
    size: size_of::<fi::fi_ops_av>(),
    insert: Some(insert),
    insertsvc: Some(insertsvc),
    insertsym: Some(insertsym),
    remove: Some(remove),
    lookup: Some(lookup),
    straddr: Some(straddr),
    av_set: Some(av_set),
};

refuse!(av_set, (*mut fi::fid_av, *mut fi::fi_av_set_attr, *mut *mut fi::fid_av_set, *mut c_void));

forward!(lookup, fi::fid_av, ops: fi::fi_ops_av, lookup,
    (address: u64, out: *mut c_void, bytes: *mut usize) -> c_int, NO_FUNCTION);
forward!(straddr, fi::fid_av, ops: fi::fi_ops_av, straddr,
    (name: *const c_void, out: *mut c_char, bytes: *mut usize) -> *const c_char, ptr::null());

/// Notes the peers that a call has inserted.
///
/// # Safety
/// `inserted` and `addresses` are those of a call that inserts addresses into this vector.
unsafe fn note(av: *mut fi::fid_av, inserted: c_int, addresses: *const u64) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let ours = unsafe { ours(av) };
    let number = if addresses.is_null() { 0 } else { usize::try_from(inserted).unwrap_or(0) };
    for index in 0..number {
        // SAFETY: the call has written as many addresses as it inserted.
        let address = unsafe { addresses.add(index) };
        // SAFETY: as above.
        let address = unsafe { *address };
        let mut name = vec![0_u8; NAME_BYTES_MAX];
        let mut bytes = name.len();
        // SAFETY: our object, and a buffer of so many bytes.
        let result = unsafe { lookup(av, address, name.as_mut_ptr().cast(), &mut bytes) };
        if result == 0 && bytes <= name.len() {
            name.truncate(bytes);
            ours.state.insert(name, address);
        }
    }
    inserted
}

/// The longest address of a peer.
const NAME_BYTES_MAX: usize = 256;

unsafe extern "C" fn insert(
    av: *mut fi::fid_av,
    names: *const c_void,
    count: usize,
    addresses: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let real = unsafe { ours(av) }.real;
    if let Some(code) = faults::refusal(Site::AvInsert) {
        return -code.0;
    }
    let Some(insert) = function!(real, ops, fi::fi_ops_av, insert) else { return NO_FUNCTION };
    // SAFETY: the real object, and the arguments of the program.
    let inserted = unsafe { insert(real, names, count, addresses, flags, context) };
    // SAFETY: as the call left it.
    unsafe { note(av, inserted, addresses) }
}

unsafe extern "C" fn insertsvc(
    av: *mut fi::fid_av,
    node: *const c_char,
    service: *const c_char,
    addresses: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let real = unsafe { ours(av) }.real;
    if let Some(code) = faults::refusal(Site::AvInsert) {
        return -code.0;
    }
    let Some(insert) = function!(real, ops, fi::fi_ops_av, insertsvc) else { return NO_FUNCTION };
    // SAFETY: the real object, and the arguments of the program.
    let inserted = unsafe { insert(real, node, service, addresses, flags, context) };
    // SAFETY: as the call left it.
    unsafe { note(av, inserted, addresses) }
}

unsafe extern "C" fn insertsym(
    av: *mut fi::fid_av,
    node: *const c_char,
    nodes: usize,
    service: *const c_char,
    services: usize,
    addresses: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let real = unsafe { ours(av) }.real;
    if let Some(code) = faults::refusal(Site::AvInsert) {
        return -code.0;
    }
    let Some(insert) = function!(real, ops, fi::fi_ops_av, insertsym) else { return NO_FUNCTION };
    // SAFETY: the real object, and the arguments of the program.
    let inserted = unsafe { insert(real, node, nodes, service, services, addresses, flags, context) };
    // SAFETY: as the call left it.
    unsafe { note(av, inserted, addresses) }
}

unsafe extern "C" fn remove(av: *mut fi::fid_av, addresses: *mut u64, count: usize, flags: u64) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let real = unsafe { ours(av) }.real;
    if let Some(code) = faults::refusal(Site::AvRemove) {
        return -code.0;
    }
    let Some(remove) = function!(real, ops, fi::fi_ops_av, remove) else { return NO_FUNCTION };
    // SAFETY: the real object, and the arguments of the program.
    unsafe { remove(real, addresses, count, flags) }
}

#[cfg(test)]
mod tests {
    use super::Peers;

    #[test]
    fn a_peer_that_is_inserted_again_keeps_its_number() {
        let peers = Peers::default();
        peers.insert(b"one".to_vec(), 0);
        peers.insert(b"two".to_vec(), 1);
        // The first was removed, and comes back under another address.
        peers.insert(b"one".to_vec(), 7);
        assert_eq!([peers.number(7), peers.number(1)], [0, 1]);
        // A third gets the address of the second, which was removed.
        peers.insert(b"three".to_vec(), 1);
        assert_eq!([peers.number(1), peers.number(99)], [2, 99]);
    }
}
