// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Completion queues.

use crate::bindings as fi;
use crate::faults;
use crate::object::{NO_FUNCTION, Object, Ours, as_ours, fid_ops, forward, function, ours, table};
use crate::open::Kind;
use crate::pending::{Failed, Held, Pending};
use crate::site::Site;
use core::ffi::{c_char, c_int, c_void};
use core::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A completion queue, as its endpoints know it, too.
pub(crate) struct Queue {
    real: *mut fi::fid_cq,
    /// The length of an entry in the format of the queue.
    entry_bytes: usize,
    /// Whether threads sleep on it.
    waits: bool,
    pending: Mutex<Pending>,
}

// SAFETY: the pointer is used in calls of the real library alone, in whatever thread the program makes them.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

/// The length of an entry of this format. Each format is the beginning of the next.
pub(crate) fn entry_bytes(format: fi::fi_cq_format) -> Option<usize> {
    match format {
        fi::FI_CQ_FORMAT_CONTEXT => Some(size_of::<fi::fi_cq_entry>()),
        fi::FI_CQ_FORMAT_MSG => Some(size_of::<fi::fi_cq_msg_entry>()),
        fi::FI_CQ_FORMAT_DATA => Some(size_of::<fi::fi_cq_data_entry>()),
        fi::FI_CQ_FORMAT_TAGGED => Some(size_of::<fi::fi_cq_tagged_entry>()),
        _ => None,
    }
}

/// What we keep of a queue.
pub(crate) fn new(real: *mut fi::fid_cq, entry_bytes: usize, waits: bool) -> Arc<Queue> {
    Arc::new(Queue { real, entry_bytes, waits, pending: Mutex::default() })
}

/// Whether a queue of ours has a completion that the real one does not know, so that nobody may sleep on it.
///
/// # Safety
/// `fid` is an open object of libfabric or ours.
pub(crate) unsafe fn has_something(fid: *mut fi::fid) -> bool {
    // SAFETY: passed on.
    let queue = unsafe { as_ours::<fi::fid_cq>(fid) };
    queue.is_some_and(|ours| !ours.state.lock().is_empty())
}

impl Queue {
    /// Adds an injected completion.
    pub(crate) fn complete(&self, entry: fi::fi_cq_tagged_entry, endpoint: usize) {
        self.lock().add(Held::new(entry, u64::MAX, Some(endpoint)), None);
        self.wake();
    }

    /// Adds an injected error completion.
    pub(crate) fn fail(&self, entry: fi::fi_cq_err_entry, endpoint: usize) {
        self.lock().add_error(Failed { entry, endpoint });
        self.wake();
    }

    /// An endpoint is closed.
    pub(crate) fn forget(&self, endpoint: usize) {
        self.lock().forget(endpoint);
    }

    /// Wakes the threads that sleep on the real queue, which knows nothing of an injected completion.
    fn wake(&self) {
        if !self.waits {
            return;
        }
        if let Some(signal) = function!(self.real, ops, fi::fi_ops_cq, signal) {
            // SAFETY: open: an endpoint is closed before its queue. An error means that nobody can sleep there.
            unsafe { signal(self.real) };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes completions from the real queue, with the result of its call if there is none.
    fn fetch(&self, count: usize, how: Fetch) -> Result<(), isize> {
        let mut entries = [0_u64; WORDS_MAX * BATCH];
        let mut sources = [u64::MAX; BATCH];
        let count = count.min(BATCH);
        let result = how.call(self.real, entries.as_mut_ptr().cast(), count, sources.as_mut_ptr());
        // No more than asked for, whatever a broken provider answers.
        let fetched = usize::try_from(result).map_err(|_| result)?.min(count);
        let words = self.entry_bytes / size_of::<u64>();
        for (entry, source) in entries.chunks(words).zip(sources).take(fetched) {
            let held = Held::new(widened(entry), source, None);
            let change = held.site().and_then(faults::at_completion);
            self.lock().add(held, change);
        }
        if fetched == 0 { Err(result) } else { Ok(()) }
    }

    /// One read of the queue.
    fn read(&self, out: *mut c_void, count: usize, sources: *mut u64) -> isize {
        if let Some(code) = faults::refusal(Site::CqRead) {
            return -(code.0 as isize);
        }
        self.lock().on_read();
        if let Some(number) = self.deliver(out, count, sources) {
            return number;
        }
        if self.lock().has_error() {
            return -(fi::FI_EAVAIL as isize);
        }
        let how = if sources.is_null() { Fetch::Read } else { Fetch::ReadFrom };
        // A read of no completions only makes progress.
        match self.fetch(count, how) {
            Ok(()) => self.deliver(out, count, sources).unwrap_or(NOTHING),
            Err(result) => result,
        }
    }

    /// Reads until something comes or the time is over.
    fn blocking_read(&self, out: *mut c_void, count: usize, sources: *mut u64, how: Fetch) -> isize {
        loop {
            let result = self.read(out, count, sources);
            if result != NOTHING {
                return result;
            }
            // What is held back is due after some reads, so there is nothing to sleep for.
            if !self.lock().is_empty() {
                continue;
            }
            // An injected completion may have ended the sleep.
            if let Err(result) = self.fetch(count, how)
                && self.lock().is_empty()
            {
                return result;
            }
        }
    }

    /// Writes what is due to the program's array.
    fn deliver(&self, out: *mut c_void, count: usize, sources: *mut u64) -> Option<isize> {
        let taken = self.lock().take(count);
        for (index, held) in taken.iter().enumerate() {
            // SAFETY: the program gives `count` entries of the format of the queue.
            let to = unsafe { out.byte_add(index * self.entry_bytes) };
            let from: *const u8 = ptr::from_ref(&held.entry).cast();
            // SAFETY: as above; every format is the beginning of the longest one.
            unsafe { ptr::copy_nonoverlapping(from, to.cast(), self.entry_bytes) };
            if !sources.is_null() {
                // SAFETY: and `count` addresses, if any.
                let source = unsafe { sources.add(index) };
                // SAFETY: as above.
                unsafe { *source = held.source };
            }
        }
        (!taken.is_empty()).then_some(taken.len() as isize)
    }
}

/// An entry in the longest format.
fn widened(words: &[u64]) -> fi::fi_cq_tagged_entry {
    let word = |index: usize| words.get(index).copied().unwrap_or(0);
    let pointer = |index| ptr::with_exposed_provenance_mut(word(index) as usize);
    fi::fi_cq_tagged_entry {
        op_context: pointer(0),
        flags: word(1),
        len: word(2) as usize,
        buf: pointer(3),
        data: word(4),
        tag: word(5),
    }
}

/// Which function of the real queue is called.
#[derive(Clone, Copy)]
enum Fetch {
    Read,
    ReadFrom,
    Sread { condition: *const c_void, timeout: c_int },
    SreadFrom { condition: *const c_void, timeout: c_int },
}

impl Fetch {
    fn call(self, real: *mut fi::fid_cq, out: *mut c_void, count: usize, sources: *mut u64) -> isize {
        const NONE: isize = NO_FUNCTION as isize;
        match self {
            Fetch::Read => {
                let Some(read) = function!(real, ops, fi::fi_ops_cq, read) else { return NONE };
                // SAFETY: the real queue, and an array of so many entries of its format.
                unsafe { read(real, out, count) }
            }
            Fetch::ReadFrom => {
                let Some(read) = function!(real, ops, fi::fi_ops_cq, readfrom) else { return NONE };
                // SAFETY: as above, and as many addresses.
                unsafe { read(real, out, count, sources) }
            }
            Fetch::Sread { condition, timeout } => {
                let Some(read) = function!(real, ops, fi::fi_ops_cq, sread) else { return NONE };
                // SAFETY: as above, and the condition of the program.
                unsafe { read(real, out, count, condition, timeout) }
            }
            Fetch::SreadFrom { condition, timeout } => {
                let Some(read) = function!(real, ops, fi::fi_ops_cq, sreadfrom) else { return NONE };
                // SAFETY: as above.
                unsafe { read(real, out, count, sources, condition, timeout) }
            }
        }
    }
}

/// Most completions that are taken from the real queue at once.
const BATCH: usize = 64;
const WORDS_MAX: usize = size_of::<fi::fi_cq_tagged_entry>() / size_of::<u64>();
const NOTHING: isize = -(fi::FI_EAGAIN as isize);

impl Object for fi::fid_cq {
    type State = Arc<Queue>;
    const KIND: Kind = Kind::CompletionQueue;

    fn fid_ops() -> &'static fi::fi_ops {
        static OPS: fi::fi_ops = fid_ops::<fi::fid_cq>();
        &OPS
    }

    fn replace_tables(&mut self) {
        self.fid.ops = table(Self::fid_ops());
        self.ops = table(&OPS);
    }
}

static OPS: fi::fi_ops_cq = fi::fi_ops_cq {
    size: size_of::<fi::fi_ops_cq>(),
    read: Some(read),
    readfrom: Some(readfrom),
    readerr: Some(readerr),
    sread: Some(sread),
    sreadfrom: Some(sreadfrom),
    signal: Some(signal),
    strerror: Some(strerror),
};

forward!(signal, fi::fid_cq, ops: fi::fi_ops_cq, signal, () -> c_int, NO_FUNCTION);
forward!(strerror, fi::fid_cq, ops: fi::fi_ops_cq, strerror,
    (code: c_int, data: *const c_void, out: *mut c_char, bytes: usize) -> *const c_char, ptr::null());

unsafe extern "C" fn read(cq: *mut fi::fid_cq, out: *mut c_void, count: usize) -> isize {
    // SAFETY: a function of our tables gets our objects.
    let ours: &Ours<fi::fid_cq> = unsafe { ours(cq) };
    ours.state.read(out, count, ptr::null_mut())
}

unsafe extern "C" fn readfrom(
    cq: *mut fi::fid_cq,
    out: *mut c_void,
    count: usize,
    sources: *mut u64,
) -> isize {
    // SAFETY: a function of our tables gets our objects.
    let ours: &Ours<fi::fid_cq> = unsafe { ours(cq) };
    ours.state.read(out, count, sources)
}

unsafe extern "C" fn sread(
    cq: *mut fi::fid_cq,
    out: *mut c_void,
    count: usize,
    condition: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: a function of our tables gets our objects.
    let ours: &Ours<fi::fid_cq> = unsafe { ours(cq) };
    ours.state.blocking_read(out, count, ptr::null_mut(), Fetch::Sread { condition, timeout })
}

unsafe extern "C" fn sreadfrom(
    cq: *mut fi::fid_cq,
    out: *mut c_void,
    count: usize,
    sources: *mut u64,
    condition: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: a function of our tables gets our objects.
    let ours: &Ours<fi::fid_cq> = unsafe { ours(cq) };
    ours.state.blocking_read(out, count, sources, Fetch::SreadFrom { condition, timeout })
}

unsafe extern "C" fn readerr(cq: *mut fi::fid_cq, out: *mut fi::fi_cq_err_entry, flags: u64) -> isize {
    // SAFETY: a function of our tables gets our objects.
    let ours: &Ours<fi::fid_cq> = unsafe { ours(cq) };
    if let Some(code) = faults::refusal(Site::CqReadErr) {
        return -(code.0 as isize);
    }
    let injected = ours.state.lock().take_error();
    if let Some(Failed { entry, .. }) = injected {
        // SAFETY: the program gives an entry to write.
        unsafe { *out = entry };
        return 1;
    }
    let Some(readerr) = function!(ours.real, ops, fi::fi_ops_cq, readerr) else {
        return NO_FUNCTION as isize;
    };
    // SAFETY: the real queue, and the arguments of the program.
    unsafe { readerr(ours.real, out, flags) }
}
