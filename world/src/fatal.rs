// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fatal signals: a process that is about to end by one says so first, as a core dump would come before the kernel's mark
//! on its life word, and may take long.
//!
//! Handlers stand only where the program had none when it called MPI_Init, and go at MPI_Finalize where they still are
//! ours. Each says that the process dies and then lets happen what would have happened without it: the default action, on
//! the thread that it hit, with a whole core. Nothing is printed.
//!
//! A stack that overflows on a thread without an alternate one leaves no room for a handler: such a death shows when its
//! core is written.

use crate::life;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

/// What ends a process with a core unless it is handled: all that signal(7) names. The last three come from outside, by a user
/// who wants the core or a limit that was passed.
const SIGNALS: [c_int; 10] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGABRT,
    libc::SIGSYS,
    libc::SIGTRAP,
    libc::SIGQUIT,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];

/// Which of [`SIGNALS`] we handle, a bit each. The handlers are the process's, so this is too.
static INSTALLED: AtomicU32 = AtomicU32::new(0);

/// Handles what the program leaves to the default.
pub fn install() {
    for (signal, bit) in SIGNALS.into_iter().zip(0..) {
        if current(signal).is_some_and(|action| action.sa_sigaction == libc::SIG_DFL) {
            let flags = libc::SA_SIGINFO | libc::SA_RESETHAND | libc::SA_NODEFER | libc::SA_ONSTACK;
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_fatal;
            set(signal, handler as libc::sighandler_t, flags);
            INSTALLED.fetch_or(1 << bit, Ordering::Relaxed);
        }
    }
}

/// Handles nothing any more; what the program has handled since stays.
pub fn restore() {
    let installed = INSTALLED.swap(0, Ordering::Relaxed);
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_fatal;
    for (signal, bit) in SIGNALS.into_iter().zip(0..) {
        let ours =
            || current(signal).is_some_and(|action| action.sa_sigaction == handler as libc::sighandler_t);
        if installed & (1 << bit) != 0 && ours() {
            set(signal, libc::SIG_DFL, 0);
        }
    }
}

/// Async-signal-safe: atomics and system calls alone. A program that installed a handler of its own later, and passes on to
/// ours, gets the default action as well.
extern "C" fn on_fatal(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    life::say_dying();
    set(signal, libc::SIG_DFL, 0);
    if !comes_again(signal, info) {
        // SAFETY: queues the same signal, with the same record, to this thread of this process. It is not blocked here
        // (SA_NODEFER), so this call does not return unless it is refused.
        let refused = unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid(), tid(), signal, info) };
        if refused != 0 {
            // SAFETY: numbers alone.
            unsafe { libc::syscall(libc::SYS_tgkill, pid(), tid(), signal) };
        }
    }
}

/// Whether the fault happens again when the handler returns: where it was one, and the instruction is repeated. What was
/// sent does not come again, nor do a breakpoint and a refused system call, behind which the program would go on.
fn comes_again(signal: c_int, info: *const libc::siginfo_t) -> bool {
    // SAFETY: the kernel gave the record; a handler of the program's that passes on to us may have lost it.
    let code = unsafe { info.as_ref() }.map_or(libc::SI_USER, |info| info.si_code);
    let repeated = matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE);
    let memory_elsewhere = signal == libc::SIGBUS && code == libc::BUS_MCEERR_AO;
    repeated && code > 0 && !memory_elsewhere
}

fn pid() -> libc::pid_t {
    // SAFETY: reads a number.
    unsafe { libc::getpid() }
}

fn tid() -> libc::c_long {
    // SAFETY: reads a number.
    unsafe { libc::syscall(libc::SYS_gettid) }
}

/// What is done about a signal now.
fn current(signal: c_int) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: changes nothing; `action` is ours to be written.
    let asked = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: written, as the call says that it succeeded.
    (asked == 0).then(|| unsafe { action.assume_init() })
}

fn set(signal: c_int, handler: libc::sighandler_t, flags: c_int) {
    // SAFETY: zeros are an action: the default, no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    // SAFETY: the handler is SIG_DFL, or our function of the type that SA_SIGINFO wants; every signal of ours can be set.
    unsafe { libc::sigaction(signal, &action, ptr::null_mut()) };
}

/// Every signal of ours back to its default: the Rust runtime of a test handles two of them.
#[cfg(test)]
pub(crate) fn default_all() {
    SIGNALS.into_iter().for_each(|signal| set(signal, libc::SIG_DFL, 0));
}

#[cfg(test)]
mod tests {
    use super::{SIGNALS, current, install, pid, restore, set};
    use crate::forked::{Forked, until};
    use crate::helper::Helper;
    use crate::life::look_after;
    use core::ffi::c_int;
    use mend_segment::{Life, LifeState};

    fn live(life: Life) -> &'static crate::life::LivenessOwner {
        let helper = Box::leak(Box::new(Helper::start().unwrap()));
        life.begin().unwrap();
        look_after(life, helper.successor()).unwrap()
    }

    /// Something that ends a process, and by which signal.
    fn faults() -> Vec<(fn(), c_int)> {
        fn raised<const SIGNAL: c_int>() {
            // SAFETY: a number.
            unsafe { libc::raise(SIGNAL) };
        }
        fn wild_pointer() {
            // SAFETY: none: it is what the test is about; nothing is mapped at such an address.
            unsafe { core::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
        }
        fn aborted() {
            // SAFETY: ends the process.
            unsafe { libc::abort() };
        }
        let mut faults: Vec<(fn(), c_int)> = vec![
            (wild_pointer, libc::SIGSEGV),
            (aborted, libc::SIGABRT),
            (raised::<{ libc::SIGSEGV }>, libc::SIGSEGV),
            (raised::<{ libc::SIGBUS }>, libc::SIGBUS),
            (raised::<{ libc::SIGILL }>, libc::SIGILL),
            (raised::<{ libc::SIGFPE }>, libc::SIGFPE),
            (raised::<{ libc::SIGSYS }>, libc::SIGSYS),
            (raised::<{ libc::SIGTRAP }>, libc::SIGTRAP),
            (raised::<{ libc::SIGQUIT }>, libc::SIGQUIT),
            (raised::<{ libc::SIGXCPU }>, libc::SIGXCPU),
            (raised::<{ libc::SIGXFSZ }>, libc::SIGXFSZ),
        ];
        #[cfg(target_arch = "x86_64")]
        {
            fn undefined() {
                // SAFETY: raises SIGILL, and does nothing else.
                unsafe { core::arch::asm!("ud2") };
            }
            fn breakpoint() {
                // SAFETY: raises SIGTRAP, and does nothing else.
                unsafe { core::arch::asm!("int3") };
            }
            fn division() {
                // SAFETY: divides by zero, which raises SIGFPE.
                unsafe { core::arch::asm!("div {0:e}", in(reg) 0, inout("eax") 1 => _, inout("edx") 0 => _) };
            }
            faults.extend([
                (undefined as fn(), libc::SIGILL),
                (breakpoint as fn(), libc::SIGTRAP),
                (division as fn(), libc::SIGFPE),
            ]);
        }
        faults
    }

    #[test]
    fn whatever_fatal_signal_ends_it_a_process_says_so_and_ends_by_that_very_signal() {
        for (fault, signal) in faults() {
            let forked = Forked::start(|life, _| {
                live(life);
                fault();
            });
            until(&forked.view, LifeState::Dying);
            let (how, which) = forked.ending();
            assert!(how == libc::CLD_KILLED || how == libc::CLD_DUMPED, "{how}");
            assert_eq!(which, signal);
        }
    }

    /// The bytes that the program headers of a core file promise, and those that are there.
    fn core_bytes(path: &std::path::Path) -> (u64, u64) {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::open(path).unwrap();
        let word = |at: u64| {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, at).unwrap();
            u64::from_le_bytes(bytes)
        };
        // ELF-64: e_phoff at 32, e_phnum at 56; of each header p_offset at 8, p_filesz at 32, of 56 bytes.
        let (headers, count) = (word(32), word(56) & 0xffff);
        let ends = (0..count).map(|index| headers + 56 * index).map(|at| word(at + 8) + word(at + 32));
        (ends.max().unwrap(), file.metadata().unwrap().len())
    }

    #[test]
    fn a_core_comes_after_the_word_and_is_whole() {
        const BYTES: usize = 256 << 20;
        let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Core).maximum;
        if pattern.trim() != "core" || limit.is_some_and(|limit| limit < 2 * BYTES as u64) {
            let test = "a_core_comes_after_the_word_and_is_whole";
            return mend_testing::skip(test, "this system writes no core where a test could find it");
        }
        let folder = mend_testing::Scratch::new("core");
        let forked = Forked::start(|life, _| {
            live(life);
            std::env::set_current_dir(folder.path()).unwrap();
            let all = rustix::process::Rlimit { current: limit, maximum: limit };
            rustix::process::setrlimit(rustix::process::Resource::Core, all).unwrap();
            // SAFETY: a number.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1) };
            let _kept = core::hint::black_box(vec![7_u8; BYTES]);
            // SAFETY: ends the process, by a signal that it sends to itself.
            unsafe { libc::abort() };
        });
        until(&forked.view, LifeState::Dying);
        let ending = forked.ending();
        assert_eq!(forked.view.state(), LifeState::Dying);
        let core = std::fs::read_dir(folder.path()).unwrap().next().map(|entry| entry.unwrap().path());
        let bytes = core.map(|path| core_bytes(&path));
        assert_eq!(ending, (libc::CLD_DUMPED, libc::SIGABRT));
        let (promised, there) = bytes.expect("it was dumped here");
        // The outbox, which is sparse and larger, is left out.
        assert!(promised == there && (BYTES as u64..2 * BYTES as u64).contains(&there), "{promised} {there}");
    }

    #[test]
    fn a_fatal_signal_from_outside_ends_it_too() {
        let mut forked = Forked::start(|life, steps| {
            live(life);
            steps.step();
        });
        forked.hear();
        forked.signal(libc::SIGABRT);
        until(&forked.view, LifeState::Dying);
        assert_eq!(forked.ending().1, libc::SIGABRT);
    }

    #[test]
    fn another_thread_than_that_of_init_may_be_hit() {
        let forked = Forked::start(|life, _| {
            live(life);
            // SAFETY: raises SIGABRT.
            std::thread::spawn(|| unsafe { libc::abort() }).join().unwrap();
        });
        until(&forked.view, LifeState::Dying);
        assert_eq!(forked.ending().1, libc::SIGABRT);
    }

    extern "C" fn theirs(_: c_int) {}

    #[test]
    fn handlers_of_the_program_stay_and_ours_go_at_finalize() {
        let handler: extern "C" fn(c_int) = theirs;
        let ours = |signal| current(signal).unwrap().sa_sigaction;
        let forked = Forked::start(|life, _| {
            let theirs = handler as libc::sighandler_t;
            set(libc::SIGFPE, theirs, 0);
            set(libc::SIGILL, libc::SIG_IGN, 0);
            let liveness_owner = live(life);
            assert_eq!(ours(libc::SIGFPE), theirs);
            assert_eq!(ours(libc::SIGILL), libc::SIG_IGN);
            assert_ne!(ours(libc::SIGSEGV), libc::SIG_DFL);
            // Set after Init: not ours to take away.
            set(libc::SIGBUS, theirs, 0);
            liveness_owner.end();
            assert_eq!([ours(libc::SIGSEGV), ours(libc::SIGABRT)], [libc::SIG_DFL; 2]);
            assert_eq!([ours(libc::SIGFPE), ours(libc::SIGBUS)], [theirs; 2]);
            assert_eq!(ours(libc::SIGILL), libc::SIG_IGN);
            // SAFETY: leaves with a code that no panic has.
            unsafe { libc::_exit(7) };
        });
        assert_eq!(forked.ending(), (libc::CLD_EXITED, 7));
    }

    #[test]
    fn a_program_that_passes_on_to_our_handler_ends_as_it_would_have() {
        static OURS: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
        extern "C" fn passes_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut core::ffi::c_void) {
            let ours = OURS.load(core::sync::atomic::Ordering::Relaxed);
            // SAFETY: stored below, as what sigaction said of a handler with SA_SIGINFO.
            let ours: extern "C" fn(c_int, *mut libc::siginfo_t, *mut core::ffi::c_void) =
                unsafe { core::mem::transmute(ours) };
            ours(signal, info, context);
        }
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut core::ffi::c_void) = passes_on;
        let forked = Forked::start(|life, _| {
            live(life);
            OURS.store(current(libc::SIGSEGV).unwrap().sa_sigaction, core::sync::atomic::Ordering::Relaxed);
            set(libc::SIGSEGV, handler as libc::sighandler_t, libc::SA_SIGINFO);
            // SAFETY: none, as above.
            unsafe { core::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
        });
        until(&forked.view, LifeState::Dying);
        assert_eq!(forked.ending().1, libc::SIGSEGV);
    }

    #[test]
    fn a_fault_in_a_child_by_vfork_is_not_the_death_of_its_parent() {
        let mut forked = Forked::start(|life, steps| {
            live(life);
            // What vfork does, but in a process of which this test knows the frames: the child shares our memory, and has
            // a process number of its own.
            let flags = libc::CLONE_VM | libc::SIGCHLD;
            let mut stack = vec![0_u128; 4096];
            extern "C" fn child(_: *mut core::ffi::c_void) -> c_int {
                // By hand: `raise` would ask the C library for the parent's thread.
                // SAFETY: two numbers.
                unsafe { libc::kill(pid(), libc::SIGSEGV) };
                0
            }
            // SAFETY: the stack is the child's alone and outlives it, as we wait for it.
            let pid = unsafe {
                libc::clone(child, stack.as_mut_ptr_range().end.cast(), flags, core::ptr::null_mut())
            };
            assert!(pid > 0);
            let mut status = 0;
            // SAFETY: our own child.
            unsafe { libc::waitpid(pid, &mut status, 0) };
            assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV);
            steps.step();
        });
        forked.hear();
        assert_eq!(forked.view.state(), LifeState::Lives);
    }

    #[test]
    fn nothing_is_left_of_handlers_that_came_and_went_twice() {
        let forked = Forked::start(|_, _| {
            for _ in 0..2 {
                install();
                restore();
            }
            let left = SIGNALS
                .into_iter()
                .filter(|&signal| current(signal).is_none_or(|action| action.sa_sigaction != libc::SIG_DFL));
            // SAFETY: leaves.
            unsafe { libc::_exit(10 + left.count() as c_int) };
        });
        assert_eq!(forked.ending(), (libc::CLD_EXITED, 10));
    }
}
