// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fatal signals: a process that a signal is about to end marks its life word first. The kernel would mark the word only after it has
//! written the core, which may take long.
//!
//! MPI_Init installs a handler for each fatal signal for which the program has none, and MPI_Finalize removes the handlers that are still
//! installed. The handler marks the life word, and then lets the default action happen on the thread that got the signal, with a complete
//! core. It prints nothing.
//!
//! After a stack overflow on a thread without an alternate signal stack, no handler can run: such a death shows when its core is
//! written.

use crate::life;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

/// The signals whose default action is a core: all that signal(7) lists. The last three come from outside: from a user who wants a core, or
/// because a limit was exceeded.
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

/// Which of [`SIGNALS`] have our handler, a bit each. A static, because handlers belong to the process.
static INSTALLED: AtomicU32 = AtomicU32::new(0);

/// Installs the handler for each fatal signal that has the default action.
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

/// Removes our handlers. A handler that the program installed after MPI_Init stays.
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

/// The handler. Async-signal-safe: it uses only atomics and system calls. It also works if a handler that the program installed later
/// calls it.
extern "C" fn on_fatal(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    life::mark_dying();
    set(signal, libc::SIG_DFL, 0);
    if !comes_again(signal, info) {
        // SAFETY: queues the same signal with the same record to this thread. The signal is not blocked here (SA_NODEFER), so
        // this call returns only if the kernel refuses it.
        let refused = unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid(), tid(), signal, info) };
        if refused != 0 {
            // SAFETY: takes numbers only.
            unsafe { libc::syscall(libc::SYS_tgkill, pid(), tid(), signal) };
        }
    }
}

/// Whether the signal comes again when the handler returns, because the instruction that faulted is repeated. A signal that was sent does
/// not come again. Nor do a breakpoint or a refused system call, after which the program would go on.
fn comes_again(signal: c_int, info: *const libc::siginfo_t) -> bool {
    // SAFETY: null, or the record that the kernel made; a handler of the program that calls ours may pass null.
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

/// The current action of a signal.
fn current(signal: c_int) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: changes nothing; `action` is writable.
    let asked = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the call succeeded, so it has written `action`.
    (asked == 0).then(|| unsafe { action.assume_init() })
}

/// The actions of all signals, as they were: some libraries of devices replace handlers when they are opened.
pub struct KeptSignals(Vec<(c_int, libc::sigaction)>);

impl KeptSignals {
    /// Notes the current actions.
    pub fn keep() -> Self {
        KeptSignals((1..=LAST_SIGNAL).filter_map(|signal| Some((signal, current(signal)?))).collect())
    }

    /// Sets them again.
    pub fn restore(self) {
        for (signal, action) in self.0 {
            // SAFETY: the action was that of this signal before. Signals whose action cannot be set refuse it.
            unsafe { libc::sigaction(signal, &action, ptr::null_mut()) };
        }
    }
}

/// The last of the signals that have names.
const LAST_SIGNAL: c_int = 31;

fn set(signal: c_int, handler: libc::sighandler_t, flags: c_int) {
    // SAFETY: zeros are a valid action: the default, no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    // SAFETY: the handler is SIG_DFL, or a function of the type that `flags` requires.
    unsafe { libc::sigaction(signal, &action, ptr::null_mut()) };
}

/// Sets all signals to their default action: the Rust runtime of a test handles two of them.
#[cfg(test)]
pub(crate) fn default_all() {
    SIGNALS.into_iter().for_each(|signal| set(signal, libc::SIG_DFL, 0));
}

#[cfg(test)]
mod tests {
    use super::{SIGNALS, current, install, pid, restore, set};
    use crate::forked::{Forked, wait_for_state};
    use crate::helper::tests::helper;
    use crate::life::register;
    use core::ffi::c_int;
    use mend_segment::{Life, LifeState};

    fn live(life: Life) -> &'static crate::life::RegisteredLife {
        let helper = Box::leak(Box::new(helper()));
        life.begin().unwrap();
        register(life, helper.successor()).unwrap()
    }

    /// Functions that end the process, each with the signal that ends it.
    fn faults() -> Vec<(fn(), c_int)> {
        fn raised<const SIGNAL: c_int>() {
            // SAFETY: a number.
            unsafe { libc::raise(SIGNAL) };
        }
        fn wild_pointer() {
            // SAFETY: no memory is mapped at this address: the write faults, which is what the test needs.
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
    fn every_fatal_signal_marks_the_life_word_and_ends_the_process_by_the_same_signal() {
        for (fault, signal) in faults() {
            let forked = Forked::start(|life, _| {
                live(life);
                fault();
            });
            wait_for_state(&forked.view, LifeState::Dying);
            let (how, which) = forked.wait_status();
            assert!(how == libc::CLD_KILLED || how == libc::CLD_DUMPED, "{how}");
            assert_eq!(which, signal);
        }
    }

    /// The length of a core file according to its program headers, and its real length.
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
    fn a_core_is_written_after_the_mark_and_is_complete() {
        const BYTES: usize = 256 << 20;
        let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Core).maximum;
        if pattern.trim() != "core" || limit.is_some_and(|limit| limit < 2 * BYTES as u64) {
            let test = "a_core_is_written_after_the_mark_and_is_complete";
            return mend_testing::skip(test, "this system writes no core file that a test can find");
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
        wait_for_state(&forked.view, LifeState::Dying);
        let ending = forked.wait_status();
        assert_eq!(forked.view.state(), LifeState::Dying);
        let core = std::fs::read_dir(folder.path()).unwrap().next().map(|entry| entry.unwrap().path());
        let bytes = core.map(|path| core_bytes(&path));
        assert_eq!(ending, (libc::CLD_DUMPED, libc::SIGABRT));
        let (promised, there) = bytes.expect("the core was written here");
        // The core does not contain the outbox, which is sparse and larger.
        assert!(promised == there && (BYTES as u64..2 * BYTES as u64).contains(&there), "{promised} {there}");
    }

    #[test]
    fn a_fatal_signal_from_another_process_marks_the_life_word() {
        let mut forked = Forked::start(|life, steps| {
            live(life);
            steps.step();
        });
        forked.wait_for_step();
        forked.signal(libc::SIGABRT);
        wait_for_state(&forked.view, LifeState::Dying);
        assert_eq!(forked.wait_status().1, libc::SIGABRT);
    }

    #[test]
    fn a_fatal_signal_on_another_thread_marks_the_life_word() {
        let forked = Forked::start(|life, _| {
            live(life);
            // SAFETY: raises SIGABRT.
            std::thread::spawn(|| unsafe { libc::abort() }).join().unwrap();
        });
        wait_for_state(&forked.view, LifeState::Dying);
        assert_eq!(forked.wait_status().1, libc::SIGABRT);
    }

    extern "C" fn theirs(_: c_int) {}

    #[test]
    fn handlers_of_the_program_stay_and_finalize_removes_ours() {
        let handler: extern "C" fn(c_int) = theirs;
        let ours = |signal| current(signal).unwrap().sa_sigaction;
        let forked = Forked::start(|life, _| {
            let theirs = handler as libc::sighandler_t;
            set(libc::SIGFPE, theirs, 0);
            set(libc::SIGILL, libc::SIG_IGN, 0);
            let registered_life = live(life);
            assert_eq!(ours(libc::SIGFPE), theirs);
            assert_eq!(ours(libc::SIGILL), libc::SIG_IGN);
            assert_ne!(ours(libc::SIGSEGV), libc::SIG_DFL);
            // Installed after Init, so Finalize must not remove it.
            set(libc::SIGBUS, theirs, 0);
            registered_life.end();
            assert_eq!([ours(libc::SIGSEGV), ours(libc::SIGABRT)], [libc::SIG_DFL; 2]);
            assert_eq!([ours(libc::SIGFPE), ours(libc::SIGBUS)], [theirs; 2]);
            assert_eq!(ours(libc::SIGILL), libc::SIG_IGN);
            // SAFETY: ends the process with a code that no panic has.
            unsafe { libc::_exit(7) };
        });
        assert_eq!(forked.wait_status(), (libc::CLD_EXITED, 7));
    }

    #[test]
    fn a_program_whose_handler_calls_ours_ends_by_the_same_signal() {
        static OURS: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
        extern "C" fn passes_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut core::ffi::c_void) {
            let ours = OURS.load(core::sync::atomic::Ordering::Relaxed);
            // SAFETY: stored below: what sigaction returned for a handler with SA_SIGINFO.
            let ours: extern "C" fn(c_int, *mut libc::siginfo_t, *mut core::ffi::c_void) =
                unsafe { core::mem::transmute(ours) };
            ours(signal, info, context);
        }
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut core::ffi::c_void) = passes_on;
        let forked = Forked::start(|life, _| {
            live(life);
            OURS.store(current(libc::SIGSEGV).unwrap().sa_sigaction, core::sync::atomic::Ordering::Relaxed);
            set(libc::SIGSEGV, handler as libc::sighandler_t, libc::SA_SIGINFO);
            // SAFETY: faults, as above.
            unsafe { core::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
        });
        wait_for_state(&forked.view, LifeState::Dying);
        assert_eq!(forked.wait_status().1, libc::SIGSEGV);
    }

    #[test]
    fn a_fault_in_a_child_by_vfork_is_not_the_death_of_its_parent() {
        let mut forked = Forked::start(|life, steps| {
            live(life);
            // As vfork, the child shares our memory and has its own process number; unlike vfork, it has its own stack.
            let flags = libc::CLONE_VM | libc::SIGCHLD;
            let mut stack = vec![0_u128; 4096];
            extern "C" fn child(_: *mut core::ffi::c_void) -> c_int {
                // Not `raise`, which would use the thread number of the parent.
                // SAFETY: takes numbers only.
                unsafe { libc::kill(pid(), libc::SIGSEGV) };
                0
            }
            // SAFETY: only the child uses the stack, which outlives the child, as we wait for its end.
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
        forked.wait_for_step();
        assert_eq!(forked.view.state(), LifeState::Alive);
    }

    #[test]
    fn handlers_that_were_installed_and_removed_twice_leave_the_default_action() {
        let forked = Forked::start(|_, _| {
            for _ in 0..2 {
                install();
                restore();
            }
            let left = SIGNALS
                .into_iter()
                .filter(|&signal| current(signal).is_none_or(|action| action.sa_sigaction != libc::SIG_DFL));
            // SAFETY: ends the process.
            unsafe { libc::_exit(10 + left.count() as c_int) };
        });
        assert_eq!(forked.wait_status(), (libc::CLD_EXITED, 10));
    }
}
