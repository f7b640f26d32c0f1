// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Endpoints: sending, receiving, reading and writing remote memory.

use crate::bindings as fi;
use crate::descriptors::closing_on_exec;
use crate::device::{Device, Opened, close, control};
use crate::error::Code;
use crate::info::Info;
use core::ffi::{c_int, c_void};
use core::ptr;
use std::sync::Arc;

/// The longest address of an endpoint, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 128;

/// A peer in the address vector of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address(u64);

/// Where in a peer's memory a transfer begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// Whose memory it is.
    pub peer: Address,
    /// The address of the first byte: an offset, unless the device uses virtual addresses.
    pub address: u64,
    /// The key of the registration.
    pub key: u64,
}

/// An endpoint. Its operations end in the completion queue of its device, each with its token. Closing it ends all of them without a
/// completion; after that, the device does not access their memory. Dropping it closes it; whether that succeeded,
/// [`Device::is_silent`] tells.
#[derive(Debug)]
pub struct Endpoint {
    endpoint: *mut fi::fid_ep,
    device: Arc<Opened>,
}

// SAFETY: as for `Device`.
unsafe impl Send for Endpoint {}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if close(self.endpoint.cast()).is_err() {
            self.device.keep_endpoint();
        }
    }
}

/// Where the device finds the descriptor of registered memory; null where it needs none.
type Descriptor = *mut c_void;

impl Endpoint {
    /// Opens an endpoint. `buffer_rest`: a buffer for several messages is given back when less than this number of bytes is left of it.
    pub fn open(device: &Device, buffer_rest: usize) -> Result<Endpoint, Code> {
        closing_on_exec(|| Endpoint::open_with(device, &device.0.info, buffer_rest))
    }

    /// The same, with the address that an earlier endpoint had, which is closed: what its [`name`](Endpoint::name) returned.
    pub fn open_at(device: &Device, name: &[u8], buffer_rest: usize) -> Result<Endpoint, Code> {
        let info = device.0.info.at(name).ok_or(Code::INVALID)?;
        closing_on_exec(|| Endpoint::open_with(device, &info, buffer_rest))
    }

    fn open_with(device: &Device, info: &Info, buffer_rest: usize) -> Result<Endpoint, Code> {
        let opened = &device.0;
        // SAFETY: an open domain.
        let domain = unsafe { &*opened.domain };
        // SAFETY: the table of functions lives as long as the object.
        let open = unsafe { domain.ops.as_ref() }.and_then(|ops| ops.endpoint).ok_or(Code::NO_FUNCTION)?;
        let mut endpoint = ptr::null_mut();
        // SAFETY: an open domain, an fi_info of it, a writable pointer.
        let result = unsafe { open(opened.domain, info.as_ptr(), &mut endpoint, ptr::null_mut()) };
        Code::check(result)?;
        let mut endpoint = Endpoint { endpoint, device: Arc::clone(opened) };
        // First, because the providers of 1.17 end the process when an endpoint without addresses is closed. So it stays open then.
        if let Err(code) = endpoint.bind(opened.addresses.cast(), 0) {
            endpoint.endpoint = ptr::null_mut();
            return Err(code);
        }
        endpoint.bind(opened.completions.cast(), u64::from(fi::FI_TRANSMIT | fi::FI_RECV))?;
        let enable = || control(endpoint.endpoint.cast(), fi::FI_ENABLE as c_int, ptr::null_mut());
        // The provider `shm` of 1.17 has its receive queue only from then on, and ends the process before; others read the option then.
        if opened.info.provider() == "shm" {
            enable()?;
            endpoint.set_option(fi::FI_OPT_MIN_MULTI_RECV as c_int, buffer_rest)?;
        } else {
            endpoint.set_option(fi::FI_OPT_MIN_MULTI_RECV as c_int, buffer_rest)?;
            enable()?;
        }
        Ok(endpoint)
    }

    /// Closes the endpoint. After an error the device may go on accessing the memory of its operations, for ever; those that it still ends have
    /// completions.
    pub fn close(mut self) -> Result<(), Code> {
        let endpoint = core::mem::replace(&mut self.endpoint, ptr::null_mut());
        let closed = close(endpoint.cast());
        if closed.is_err() {
            self.device.keep_endpoint();
        }
        closed
    }

    fn bind(&self, object: *mut fi::fid, flags: u64) -> Result<(), Code> {
        let fid: *mut fi::fid = self.endpoint.cast();
        // SAFETY: open; every object begins with its fid.
        let endpoint = unsafe { &*fid };
        // SAFETY: the table of functions lives as long as the object.
        let bind = unsafe { endpoint.ops.as_ref() }.and_then(|ops| ops.bind).ok_or(Code::NO_FUNCTION)?;
        // SAFETY: two open objects of one device.
        Code::check(unsafe { bind(fid, object, flags) })
    }

    fn set_option(&self, option: c_int, value: usize) -> Result<(), Code> {
        // SAFETY: open.
        let endpoint = unsafe { &*self.endpoint };
        // SAFETY: the table of functions lives as long as the object.
        let set = unsafe { endpoint.ops.as_ref() }.and_then(|ops| ops.setopt).ok_or(Code::NO_FUNCTION)?;
        let value: *const usize = &value;
        // SAFETY: an open endpoint, and a readable value of the given length.
        let result = unsafe {
            set(self.endpoint.cast(), fi::FI_OPT_ENDPOINT as c_int, option, value.cast(), size_of::<usize>())
        };
        Code::check(result)
    }

    /// The address of this endpoint, for peers.
    pub fn name(&self) -> Result<Vec<u8>, Code> {
        // SAFETY: open.
        let endpoint = unsafe { &*self.endpoint };
        // SAFETY: the table of functions lives as long as the object.
        let getname = unsafe { endpoint.cm.as_ref() }.and_then(|ops| ops.getname).ok_or(Code::NO_FUNCTION)?;
        let mut name = vec![0_u8; ADDRESS_BYTES_MAX];
        let mut len = name.len();
        // SAFETY: an open endpoint, and `len` writable bytes.
        Code::check(unsafe { getname(self.endpoint.cast(), name.as_mut_ptr().cast(), &mut len) })?;
        if len > name.len() {
            return Err(Code::INVALID);
        }
        name.truncate(len);
        Ok(name)
    }

    /// Adds the address of a peer, which its [`name`](Endpoint::name) returned there, to the address vector.
    pub fn insert(&self, name: &[u8]) -> Result<Address, Code> {
        // SAFETY: open.
        let addresses = unsafe { &*self.device.addresses };
        // SAFETY: the table of functions lives as long as the object.
        let insert = unsafe { addresses.ops.as_ref() }.and_then(|ops| ops.insert).ok_or(Code::NO_FUNCTION)?;
        // Providers read an address of fixed length, or a string, so a name from a peer must not end in foreign memory.
        let mut padded = [0_u8; ADDRESS_BYTES_MAX + 1];
        padded[..ADDRESS_BYTES_MAX].get_mut(..name.len()).ok_or(Code::INVALID)?.copy_from_slice(name);
        let mut address = u64::MAX;
        // SAFETY: an open address vector, one address in readable memory of the greatest length, a writable result.
        let inserted = unsafe {
            insert(self.device.addresses, padded.as_ptr().cast(), 1, &mut address, 0, ptr::null_mut())
        };
        match inserted {
            1 if address != u64::MAX => Ok(Address(address)),
            code if code < 0 => Err(Code(-code)),
            _ => Err(Code::INVALID),
        }
    }

    /// Removes a peer from the address vector.
    pub fn remove(&self, peer: Address) -> Result<(), Code> {
        // SAFETY: open.
        let addresses = unsafe { &*self.device.addresses };
        // SAFETY: the table of functions lives as long as the object.
        let remove = unsafe { addresses.ops.as_ref() }.and_then(|ops| ops.remove).ok_or(Code::NO_FUNCTION)?;
        let mut address = peer.0;
        // SAFETY: an open address vector, and one address of it.
        Code::check(unsafe { remove(self.device.addresses, &mut address, 1, 0) })
    }

    fn messages(&self) -> Result<&fi::fi_ops_msg, Code> {
        // SAFETY: open.
        let endpoint = unsafe { &*self.endpoint };
        // SAFETY: null, or a table of functions that lives as long as the object.
        unsafe { endpoint.msg.as_ref() }.ok_or(Code::NO_FUNCTION)
    }

    fn remote_memory(&self) -> Result<&fi::fi_ops_rma, Code> {
        // SAFETY: open.
        let endpoint = unsafe { &*self.endpoint };
        // SAFETY: null, or a table of functions that lives as long as the object.
        unsafe { endpoint.rma.as_ref() }.ok_or(Code::NO_FUNCTION)
    }

    /// Sends `bytes` bytes at `start`, which must be at most as many as the device copies at once. There is no completion, unless it fails.
    pub fn inject(&self, message: &[u8], to: Address) -> Result<(), Code> {
        let inject = self.messages()?.inject.ok_or(Code::NO_FUNCTION)?;
        // SAFETY: an open endpoint; the device copies the readable bytes before it returns.
        let result = unsafe { inject(self.endpoint, message.as_ptr().cast(), message.len(), to.0) };
        Code::check(result as i64)
    }

    /// Sends a message.
    ///
    /// # Safety
    /// The range stays readable, and nobody writes it, until the token comes back or the endpoint is dropped. No other outstanding
    /// operation of the device has this token.
    pub unsafe fn send(
        &self,
        start: *const u8,
        bytes: usize,
        descriptor: Descriptor,
        to: Address,
        token: u32,
    ) -> Result<(), Code> {
        let send = self.messages()?.send.ok_or(Code::NO_FUNCTION)?;
        let context = self.device.context(token);
        // SAFETY: an open endpoint; the caller vouches for the range and the token.
        let result = unsafe { send(self.endpoint, start.cast(), bytes, descriptor, to.0, context) };
        Code::check(result as i64)
    }

    /// Posts a buffer for messages; for several, if `several`: then each has a completion, and the last one gives the buffer back.
    ///
    /// # Safety
    /// The range stays writable until the provider has given the buffer back or the endpoint is dropped; nobody else accesses what no
    /// completion has reported yet. No other outstanding operation of the device has this token.
    pub unsafe fn receive(
        &self,
        start: *mut u8,
        bytes: usize,
        descriptor: Descriptor,
        several: bool,
        token: u32,
    ) -> Result<(), Code> {
        let receive = self.messages()?.recvmsg.ok_or(Code::NO_FUNCTION)?;
        let mut range = fi::iovec { iov_base: start.cast(), iov_len: bytes };
        let mut descriptor = descriptor;
        let message = fi::fi_msg {
            msg_iov: &raw mut range,
            desc: &raw mut descriptor,
            iov_count: 1,
            addr: u64::MAX,
            context: self.device.context(token),
            data: 0,
        };
        let flags = if several { u64::from(fi::FI_MULTI_RECV) } else { 0 };
        // SAFETY: an open endpoint and a complete description; the caller vouches for the range and the token.
        let result = unsafe { receive(self.endpoint, &message, flags) };
        Code::check(result as i64)
    }

    /// Reads remote memory into `bytes` bytes at `start`.
    ///
    /// # Safety
    /// The range stays writable, and nobody else accesses it, until the token comes back or the endpoint is dropped. No other outstanding
    /// operation of the device has this token.
    pub unsafe fn read(
        &self,
        start: *mut u8,
        bytes: usize,
        descriptor: Descriptor,
        from: Target,
        token: u32,
    ) -> Result<(), Code> {
        let read = self.remote_memory()?.read.ok_or(Code::NO_FUNCTION)?;
        let context = self.device.context(token);
        let Target { peer, address, key } = from;
        // SAFETY: an open endpoint; the caller vouches for the range and the token.
        let result =
            unsafe { read(self.endpoint, start.cast(), bytes, descriptor, peer.0, address, key, context) };
        Code::check(result as i64)
    }

    /// Writes `bytes` bytes at `start` to remote memory.
    ///
    /// # Safety
    /// The range stays readable, and nobody writes it, until the token comes back or the endpoint is dropped. No other outstanding
    /// operation of the device has this token.
    pub unsafe fn write(
        &self,
        start: *const u8,
        bytes: usize,
        descriptor: Descriptor,
        to: Target,
        token: u32,
    ) -> Result<(), Code> {
        let write = self.remote_memory()?.write.ok_or(Code::NO_FUNCTION)?;
        let context = self.device.context(token);
        let Target { peer, address, key } = to;
        // SAFETY: an open endpoint; the caller vouches for the range and the token.
        let result =
            unsafe { write(self.endpoint, start.cast(), bytes, descriptor, peer.0, address, key, context) };
        Code::check(result as i64)
    }
}
