// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a provider offers, and what is asked of it.

use crate::bindings as fi;
use crate::library::Ofi;
use core::ffi::{CStr, c_char};
use core::ptr::NonNull;
use std::sync::Arc;

/// What is asked of providers: reliable datagrams with messages and, if wanted, remote memory access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hints {
    /// Remote reads and writes are needed.
    pub remote_memory: bool,
}

impl Hints {
    /// The structure of libfabric; `None` without memory.
    pub(crate) fn build(&self, ofi: &Arc<Ofi>) -> Option<Info> {
        // SAFETY: fi_dupinfo of null makes an empty fi_info with all attributes (fi_getinfo(3)).
        let info = NonNull::new(unsafe { (ofi.dup_info)(core::ptr::null()) })?;
        let hints = Info { info, ofi: Arc::clone(ofi) };
        // SAFETY: made above, with nobody else's reference.
        let raw = unsafe { &mut *info.as_ptr() };
        raw.caps = u64::from(fi::FI_MSG);
        if self.remote_memory {
            raw.caps |= u64::from(fi::FI_RMA);
        }
        raw.mode = fi::FI_CONTEXT | fi::FI_CONTEXT2;
        // SAFETY: attributes of an fi_info that fi_dupinfo made are not null.
        let ep = unsafe { &mut *raw.ep_attr };
        ep.type_ = fi::FI_EP_RDM;
        // SAFETY: as above.
        let domain = unsafe { &mut *raw.domain_attr };
        domain.threading = fi::FI_THREAD_DOMAIN;
        domain.control_progress = fi::FI_PROGRESS_MANUAL;
        domain.data_progress = fi::FI_PROGRESS_MANUAL;
        domain.resource_mgmt = fi::FI_RM_ENABLED;
        domain.mr_mode =
            (fi::FI_MR_LOCAL | fi::FI_MR_VIRT_ADDR | fi::FI_MR_ALLOCATED | fi::FI_MR_PROV_KEY) as i32;
        let order = u64::from(fi::FI_ORDER_SAS);
        // SAFETY: as above.
        unsafe { &mut *raw.tx_attr }.msg_order = order;
        // SAFETY: as above.
        unsafe { &mut *raw.rx_attr }.msg_order = order;
        Some(hints)
    }
}

/// What one provider offers over one interface.
#[derive(Debug)]
pub struct Info {
    info: NonNull<fi::fi_info>,
    ofi: Arc<Ofi>,
}

// SAFETY: the structure belongs to this value alone, and libfabric keeps no pointer to it.
unsafe impl Send for Info {}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: made by fi_dupinfo for this value, and freed once.
        unsafe { (self.ofi.free_info)(self.info.as_ptr()) };
    }
}

impl Info {
    /// A copy; `None` without memory.
    pub(crate) fn copy_of(ofi: &Arc<Ofi>, info: NonNull<fi::fi_info>) -> Option<Info> {
        // SAFETY: a complete fi_info.
        let copy = NonNull::new(unsafe { (ofi.dup_info)(info.as_ptr()) })?;
        Some(Info { info: copy, ofi: Arc::clone(ofi) })
    }

    /// A copy; `None` without memory.
    pub fn try_clone(&self) -> Option<Info> {
        Info::copy_of(&self.ofi, self.info)
    }

    /// A copy for an endpoint with this address, which an endpoint of this provider had; `None`: such addresses cannot be asked for, or there is no
    /// memory.
    pub(crate) fn at(&self, name: &[u8]) -> Option<Info> {
        let copy = self.try_clone()?;
        let source = copy.raw().src_addr;
        if source.is_null() || copy.raw().src_addrlen != name.len() {
            return None;
        }
        // SAFETY: `src_addrlen` bytes that belong to the copy, to which nobody else has a reference.
        unsafe { core::ptr::copy_nonoverlapping(name.as_ptr(), source.cast(), name.len()) };
        Some(copy)
    }

    pub(crate) fn ofi(&self) -> &Arc<Ofi> {
        &self.ofi
    }

    pub(crate) fn as_ptr(&self) -> *mut fi::fi_info {
        self.info.as_ptr()
    }

    fn raw(&self) -> &fi::fi_info {
        // SAFETY: lives as long as this value, and nobody changes it.
        unsafe { self.info.as_ref() }
    }

    pub(crate) fn fabric_attr(&self) -> *mut fi::fi_fabric_attr {
        self.raw().fabric_attr
    }

    fn fabric(&self) -> Option<&fi::fi_fabric_attr> {
        // SAFETY: null, or an attribute that belongs to the fi_info.
        unsafe { self.raw().fabric_attr.as_ref() }
    }

    fn domain_attr(&self) -> Option<&fi::fi_domain_attr> {
        // SAFETY: as in `fabric`.
        unsafe { self.raw().domain_attr.as_ref() }
    }

    fn ep(&self) -> Option<&fi::fi_ep_attr> {
        // SAFETY: as in `fabric`.
        unsafe { self.raw().ep_attr.as_ref() }
    }

    fn tx(&self) -> Option<&fi::fi_tx_attr> {
        // SAFETY: as in `fabric`.
        unsafe { self.raw().tx_attr.as_ref() }
    }

    fn rx(&self) -> Option<&fi::fi_rx_attr> {
        // SAFETY: as in `fabric`.
        unsafe { self.raw().rx_attr.as_ref() }
    }

    /// The version of the library that the provider is part of.
    pub fn library_version(&self) -> (u32, u32) {
        self.ofi.version()
    }

    /// The provider, such as `tcp;ofi_rxm`.
    pub fn provider(&self) -> String {
        self.fabric().map_or_else(String::new, |fabric| words(fabric.prov_name))
    }

    /// The fabric: for IP providers the network, such as `127.0.0.1/32`.
    pub fn fabric_name(&self) -> String {
        self.fabric().map_or_else(String::new, |fabric| words(fabric.name))
    }

    /// The domain: for IP providers the interface, such as `lo`.
    pub fn domain(&self) -> String {
        self.domain_attr().map_or_else(String::new, |domain| words(domain.name))
    }

    /// The format of addresses, a constant `FI_SOCKADDR_IN` and so on.
    pub fn address_format(&self) -> u32 {
        self.raw().addr_format
    }

    /// Capabilities: bits such as `FI_RMA`.
    pub fn capabilities(&self) -> u64 {
        self.raw().caps
    }

    /// Whether each transmitting or receiving operation needs a context structure that stays in place.
    pub fn mode(&self) -> u64 {
        self.raw().mode
    }

    /// How memory is registered: bits such as `FI_MR_LOCAL`.
    pub fn registration_mode(&self) -> u32 {
        self.domain_attr().map_or(0, |domain| domain.mr_mode as u32)
    }

    /// The longest message, in bytes.
    pub fn message_bytes_max(&self) -> usize {
        self.ep().map_or(0, |ep| ep.max_msg_size)
    }

    /// The longest message that the provider copies before the call returns.
    pub fn inject_bytes_max(&self) -> usize {
        self.tx().map_or(0, |tx| tx.inject_size)
    }

    /// How many operations may be outstanding at once: transmitting and receiving ones.
    pub fn queue_lengths(&self) -> (usize, usize) {
        (self.tx().map_or(0, |tx| tx.size), self.rx().map_or(0, |rx| rx.size))
    }

    /// Whether the provider keeps messages of one sender in order.
    pub fn keeps_order(&self) -> bool {
        let order = u64::from(fi::FI_ORDER_SAS);
        self.tx().is_some_and(|tx| tx.msg_order & order != 0)
            && self.rx().is_some_and(|rx| rx.msg_order & order != 0)
    }
}

fn words(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, so a C string of the fi_info, which the caller borrows.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}
