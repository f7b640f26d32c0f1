// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory files and their mappings: made, sized once, sealed, reserved before use, and seen only through atomics.
//!
//! Nothing here has a name in /dev/shm, so nothing is left behind by a process that dies, and its size and mount options
//! do not matter.

use crate::SegmentError;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The unit of mapping and reserving. Larger pages (aarch64 has them) are multiples of it, see [`page_bytes`].
pub(crate) const PAGE_BYTES: usize = 4096;

/// What may lie in shared memory.
///
/// # Safety
/// Every bit pattern is a value, all of it is atomics (so that a peer's writes are no data race), and nothing is dropped.
pub unsafe trait Shared {}

// SAFETY: an atomic; any byte is a value.
unsafe impl Shared for AtomicU8 {}
// SAFETY: an atomic; any 32 bits are a value.
unsafe impl Shared for AtomicU32 {}
// SAFETY: an atomic; any 64 bits are a value.
unsafe impl Shared for AtomicU64 {}
// SAFETY: eight atomics, with alignment and no padding (64 bytes).
unsafe impl Shared for crate::line::Line {}
// SAFETY: four lines, without padding.
unsafe impl Shared for crate::mailbox::Mailbox {}
// SAFETY: nothing but values of a shared type, one after the other.
unsafe impl<T: Shared, const N: usize> Shared for [T; N] {}

/// What this process may do to a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Read only.
    Read,
    /// Read and write.
    Write,
}

/// A piece of a memory file in this process's address space, unmapped when dropped. A forked child does not have it, and
/// a core dump leaves it out.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is reached through atomics only, and the mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes of `file` from `offset` on, both multiples of the page. Reserves nothing.
    pub(crate) fn new(
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
        access: Access,
    ) -> Result<Self, SegmentError> {
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::Write => ProtFlags::READ | ProtFlags::WRITE,
        };
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses the address, so nothing that exists is replaced.
        let mapped = unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, protection, flags, file, offset) };
        let start = mapped.map_err(SegmentError::NoMapping)?.cast::<u8>();
        let start = NonNull::new(start).ok_or(SegmentError::NoMapping(Errno::INVAL))?;
        let mapping = Mapping { start, bytes };
        mapping.advise(Advice::LinuxDontFork)?;
        mapping.advise(Advice::LinuxDontDump)?;
        Ok(mapping)
    }

    /// Memory of this process alone, all zero.
    pub(crate) fn of_one_process(bytes: usize) -> Result<Self, SegmentError> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so nothing that exists is replaced.
        let mapped =
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) };
        let start = mapped.map_err(SegmentError::NoMapping)?.cast::<u8>();
        let start = NonNull::new(start).ok_or(SegmentError::NoMapping(Errno::INVAL))?;
        let mapping = Mapping { start, bytes };
        mapping.advise(Advice::LinuxDontFork)?;
        Ok(mapping)
    }

    fn advise(&self, advice: Advice) -> Result<(), SegmentError> {
        // SAFETY: the range is ours, just mapped, and neither advice changes what it holds.
        let done = unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), self.bytes, advice) };
        done.map_err(SegmentError::NoMapping)
    }

    /// The `T` at `offset`. Out of range, or not aligned, is our own mistake and panics.
    pub(crate) fn at<T: Shared>(&self, offset: usize) -> &T {
        // SAFETY: `pointer` checked bounds and alignment; the mapping lives as long as `self`; `Shared` says that any
        // bytes are a `T` and that others may write them.
        unsafe { self.pointer::<T>(offset, 1).as_ref() }
    }

    /// The `count` values of `T` from `offset` on.
    pub(crate) fn slice<T: Shared>(&self, offset: usize, count: usize) -> &[T] {
        let start = NonNull::slice_from_raw_parts(self.pointer::<T>(offset, count), count);
        // SAFETY: as in `at`, for `count` of them.
        unsafe { start.as_ref() }
    }

    /// How long it is.
    #[cfg(feature = "broken_peer")]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn pointer<T: Shared>(&self, offset: usize, count: usize) -> NonNull<T> {
        let bytes = count.checked_mul(size_of::<T>()).expect("a count of what fits into an address space");
        assert!(offset <= self.bytes && bytes <= self.bytes - offset, "a place outside a mapping");
        assert!(offset.is_multiple_of(align_of::<T>()), "a place that is not aligned");
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.start.add(offset) }.cast::<T>()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and references into it cannot outlive `self`.
        let done = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(done.is_ok(), "a mapping of ours can be unmapped");
    }
}

/// A `T` in a mapping that it keeps alive. A holder of one whose mapping was made with [`Access::Read`] must not store to
/// it: nothing outside this crate can make one or see into one.
#[derive(Debug)]
pub struct View<T> {
    at: NonNull<T>,
    _mapping: Arc<Mapping>,
}

// SAFETY: a `View` is a shared reference to atomics, and the mapping that keeps them may be dropped by any thread.
unsafe impl<T: Shared> Send for View<T> {}
// SAFETY: as above.
unsafe impl<T: Shared> Sync for View<T> {}

impl<T: Shared> View<T> {
    pub(crate) fn new(mapping: &Arc<Mapping>, offset: usize) -> Self {
        View { at: mapping.pointer(offset, 1), _mapping: Arc::clone(mapping) }
    }
}

impl<T: Shared> Deref for View<T> {
    type Target = T;

    // Hot: per message.
    fn deref(&self) -> &T {
        // SAFETY: checked when made, and the mapping is alive because of `_mapping`.
        unsafe { self.at.as_ref() }
    }
}

/// The page size of this machine.
pub(crate) fn page_bytes() -> usize {
    rustix::param::page_size().max(PAGE_BYTES)
}

/// `bytes`, rounded up to whole pages.
pub(crate) fn whole_pages(bytes: usize) -> usize {
    bytes.next_multiple_of(page_bytes())
}

/// Moves `descriptor` above the numbers of standard input, output and error. If the program was started with one of those
/// closed, the kernel gives its number to the next descriptor, and the program's output would be written into our file.
pub fn above_standard_streams(descriptor: OwnedFd) -> rustix::io::Result<OwnedFd> {
    match descriptor.as_raw_fd() {
        0..FIRST_DESCRIPTOR => rustix::io::fcntl_dupfd_cloexec(&descriptor, FIRST_DESCRIPTOR),
        _ => Ok(descriptor),
    }
}

/// The first number behind standard input, output and error.
const FIRST_DESCRIPTOR: i32 = 3;

/// A new memory file of `bytes` bytes, all holes. Closed on exec.
pub(crate) fn make_file(name: &str, bytes: usize) -> Result<OwnedFd, SegmentError> {
    // Beyond a limit on file sizes the kernel sends SIGXFSZ; the limit is checked first, so that it is an error instead.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    if let Some(limit) = limit.filter(|limit| *limit < bytes as u64) {
        return Err(SegmentError::FileSizeLimit { wanted: bytes as u64, limit });
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create(name, flags))
        .map_err(SegmentError::NoMemfd)?;
    let file = above_standard_streams(file).map_err(SegmentError::NoDescriptor)?;
    rustix::fs::ftruncate(&file, bytes as u64)
        .map_err(|_| SegmentError::NoMemory { wanted: bytes as u64, free: 0 })?;
    Ok(file)
}

/// Seals `file` for ever: its size, and, if `one_writer`, against every writable mapping made after those that exist.
pub(crate) fn seal(file: &OwnedFd, one_writer: bool) -> Result<(), SegmentError> {
    rustix::fs::fcntl_add_seals(file, seals(one_writer)).map_err(SegmentError::NoSeals)
}

/// Whether a descriptor from another process is a memory file of at least `bytes` bytes whose size is sealed (a file
/// that could be shortened under us would raise SIGBUS), and, if `one_writer`, that only its maker can write. A file of huge
/// pages can be sealed as well, but a page of it that cannot be had raises SIGBUS: refused.
pub(crate) fn check_file(file: BorrowedFd<'_>, bytes: usize, one_writer: bool) -> Result<(), SegmentError> {
    let found = rustix::fs::fcntl_get_seals(file).map_err(|_| SegmentError::LayoutDiffers)?;
    let size = rustix::fs::fstat(file).map_err(|_| SegmentError::LayoutDiffers)?.st_size;
    let long_enough = u64::try_from(size).is_ok_and(|size| size >= bytes as u64);
    let system = rustix::fs::fstatfs(file).map_err(|_| SegmentError::LayoutDiffers)?;
    let small_pages = system.f_type as u64 == TMPFS_MAGIC;
    if long_enough && small_pages && found.contains(seals(one_writer)) {
        Ok(())
    } else {
        Err(SegmentError::LayoutDiffers)
    }
}

/// File system type that statfs(2) reports for memory files of ordinary pages.
const TMPFS_MAGIC: u64 = 0x0102_1994;

fn seals(one_writer: bool) -> SealFlags {
    let size = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    if one_writer { size | SealFlags::FUTURE_WRITE } else { size }
}

/// Has the kernel set aside memory for a range, so that touching it later cannot fail.
pub(crate) fn allocate(file: impl AsFd, offset: u64, bytes: u64) -> Result<(), SegmentError> {
    loop {
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), offset, bytes) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(_) => return Err(SegmentError::NoMemory { wanted: bytes, free: 0 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, Mapping, allocate, check_file, make_file, page_bytes, seal};
    use crate::SegmentError;
    use core::sync::atomic::{AtomicU32, Ordering};
    use rustix::fs::FallocateFlags;
    use std::os::fd::AsFd;

    #[test]
    fn what_one_mapping_writes_the_other_sees() {
        let file = make_file("mend-test", page_bytes()).unwrap();
        allocate(&file, 0, page_bytes() as u64).unwrap();
        let mine = Mapping::new(file.as_fd(), 0, page_bytes(), Access::Write).unwrap();
        seal(&file, true).unwrap();
        let theirs = Mapping::new(file.as_fd(), 0, page_bytes(), Access::Read).unwrap();
        mine.at::<AtomicU32>(8).store(7, Ordering::Release);
        assert_eq!(theirs.at::<AtomicU32>(8).load(Ordering::Acquire), 7);
        check_file(file.as_fd(), page_bytes(), true).unwrap();
    }

    #[test]
    fn the_kernel_refuses_to_write_or_shorten_what_is_sealed() {
        let file = make_file("mend-test", page_bytes()).unwrap();
        let _mine = Mapping::new(file.as_fd(), 0, page_bytes(), Access::Write).unwrap();
        seal(&file, true).unwrap();
        assert!(matches!(
            Mapping::new(file.as_fd(), 0, page_bytes(), Access::Write),
            Err(SegmentError::NoMapping(_))
        ));
        assert!(rustix::fs::ftruncate(&file, 0).is_err());
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert!(rustix::fs::fallocate(&file, hole, 0, page_bytes() as u64).is_err());
        assert!(rustix::io::pwrite(&file, b"x", 0).is_err());
        assert!(rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::WRITE).is_err());
        allocate(&file, 0, page_bytes() as u64).unwrap();
    }

    #[test]
    fn a_file_that_could_be_shortened_or_is_too_short_is_refused() {
        let file = make_file("mend-test", page_bytes()).unwrap();
        assert_eq!(check_file(file.as_fd(), page_bytes(), false), Err(SegmentError::LayoutDiffers));
        seal(&file, false).unwrap();
        check_file(file.as_fd(), page_bytes(), false).unwrap();
        assert_eq!(check_file(file.as_fd(), page_bytes(), true), Err(SegmentError::LayoutDiffers));
        assert_eq!(check_file(file.as_fd(), page_bytes() + 1, false), Err(SegmentError::LayoutDiffers));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(check_file(null.as_fd(), 0, false), Err(SegmentError::LayoutDiffers));
    }

    #[test]
    fn a_file_of_huge_pages_is_refused_although_it_is_sealed() {
        use rustix::fs::MemfdFlags;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        let made = rustix::fs::memfd_create("mend-test", flags)
            .and_then(|file| rustix::fs::ftruncate(&file, 1 << 30).map(|()| file));
        let file = match made {
            Ok(file) => file,
            Err(error) => {
                let test = "a_file_of_huge_pages_is_refused_although_it_is_sealed";
                return mend_testing::skip(
                    test,
                    &format!("this machine gives no file of huge pages ({error})"),
                );
            }
        };
        seal(&file, true).unwrap();
        assert_eq!(check_file(file.as_fd(), page_bytes(), true), Err(SegmentError::LayoutDiffers));
    }
}
