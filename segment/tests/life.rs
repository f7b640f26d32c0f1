// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Life words of real processes, read by another process: which events mark them, and which do not.
#![cfg(not(loom))]

use mend_base::{Duration, Job, Peer};
use mend_segment::{
    Interrupt, Life, LifeState, LifeView, Outbox, can_sleep_on_life_words, memory_left, sleep_on_life,
    sleep_on_life_words,
};

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

const OWNER: Peer = Peer::new(Job(7), 1);

/// A forked process that has a life page and holds its life word, with pipes by which the test controls it. Killed when dropped.
struct Owner {
    pid: libc::pid_t,
    view: LifeView,
    words: PipeReader,
    orders: PipeWriter,
}

/// The forked process's own side.
struct Inside {
    life: &'static Life,
    words: PipeWriter,
    orders: PipeReader,
}

impl Inside {
    /// Reports a step to the test, and waits for the order to go on.
    fn step(&mut self) {
        self.words.write_all(b".").unwrap();
        // The end of the pipe: the test is over, or failed.
        if self.orders.read(&mut [0]).unwrap_or(0) == 0 {
            exit(0);
        }
    }
}

fn exit(code: i32) -> ! {
    // SAFETY: ends the process, as a forked child must: without what the test harness would do at exit.
    unsafe { libc::_exit(code) }
}

impl Owner {
    /// Forks; the child lives, on the thread that runs `body`, unless that begins by itself.
    fn start(begins: bool, body: impl FnOnce(&mut Inside)) -> Self {
        let ((words, mut their_words), (their_orders, orders)) =
            (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        // The cgroups are found once. If another thread is finding them at the fork, the child would wait for it for ever.
        let _ = memory_left();
        // SAFETY: the child runs `body`, which takes no lock that another thread of the harness may hold (the C library
        // sees to its own), and leaves by `_exit`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            drop((words, orders));
            // The child must not outlive a test that fails.
            // SAFETY: two numbers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            let (life, page) = Life::create(OWNER).unwrap();
            let life: &'static Life = Box::leak(Box::new(life));
            if begins {
                life.begin().unwrap();
            }
            their_words.write_all(&page.as_raw_fd().to_ne_bytes()).unwrap();
            let mut inside = Inside { life, words: their_words, orders: their_orders };
            if inside.orders.read(&mut [0]).unwrap_or(0) == 0 {
                exit(0);
            }
            body(&mut inside);
            exit(0);
        }
        drop((their_words, their_orders));
        let mut words = words;
        let mut number = [0; 4];
        words.read_exact(&mut number).unwrap();
        let file = File::open(format!("/proc/{pid}/fd/{}", i32::from_ne_bytes(number))).unwrap();
        let mut owner = Owner { pid, view: LifeView::map(file.as_fd(), OWNER).unwrap(), words, orders };
        owner.go_on();
        owner
    }

    /// Waits until the process has reported its next step.
    fn await_step(&mut self) {
        self.words.read_exact(&mut [0]).unwrap();
    }

    fn go_on(&mut self) {
        self.orders.write_all(b".").unwrap();
    }

    fn kill(&self, signal: i32) {
        // SAFETY: two numbers; the process is our child, and not waited for before it is dropped.
        unsafe { libc::kill(self.pid, signal) };
    }

    fn has_ended(&self) -> bool {
        // SAFETY: an empty record is a value of this type.
        let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: `info` is ours to be written.
        unsafe { libc::waitid(libc::P_PID, self.pid as libc::id_t, &mut info, flags) };
        // SAFETY: filled in, or still zero.
        unsafe { info.si_pid() != 0 }
    }

    fn wait_for_end(&self) {
        // SAFETY: an empty record is a value of this type.
        let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
        // SAFETY: `info` is ours to be written.
        unsafe {
            libc::waitid(libc::P_PID, self.pid as libc::id_t, &mut info, libc::WEXITED | libc::WNOWAIT)
        };
    }

    /// Sleeps on the word, through the read-only mapping, until its state is `wanted`.
    fn until(&self, wanted: LifeState) {
        let give_up = Instant::now() + std::time::Duration::from_secs(60);
        loop {
            let (state, seen) = self.view.read();
            if state == wanted {
                return;
            }
            assert!(Instant::now() < give_up, "{state:?} instead of {wanted:?}");
            sleep_on_life(&self.view, seen, Duration::from_millis(1_000));
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.kill(libc::SIGKILL);
        // SAFETY: our child; nobody wants its status.
        unsafe { libc::waitpid(self.pid, core::ptr::null_mut(), 0) };
    }
}

#[test]
fn a_killed_process_is_marked_dead() {
    let mut owner = Owner::start(true, Inside::step);
    owner.await_step();
    assert_eq!(owner.view.state(), LifeState::Alive);
    owner.kill(libc::SIGKILL);
    owner.until(LifeState::Dead);
}

#[test]
fn a_process_that_exits_is_marked_dead_unless_it_has_left() {
    let mut owner = Owner::start(true, |_| exit(0));
    owner.until(LifeState::Dead);
    owner = Owner::start(true, |inside| {
        inside.life.end();
        inside.step();
    });
    owner.await_step();
    assert_eq!(owner.view.state(), LifeState::Left);
    owner.go_on();
    owner.wait_for_end();
    assert_eq!(owner.view.state(), LifeState::Left);
}

#[test]
fn a_process_killed_after_leaving_and_before_the_release_has_left() {
    // Another thread holds the word: it is marked when the process ends, but leaving came first.
    let owner = Owner::start(true, |inside| {
        let life = inside.life;
        std::thread::spawn(|| life.end()).join().unwrap();
    });
    owner.wait_for_end();
    assert_eq!(owner.view.state(), LifeState::Left);
}

#[test]
fn a_thread_that_ends_while_it_holds_the_word_marks_it() {
    let mut owner = Owner::start(false, |inside| {
        let life = inside.life;
        std::thread::spawn(|| life.begin().unwrap()).join().unwrap();
        inside.step();
    });
    owner.await_step();
    owner.until(LifeState::Dead);
    assert!(!owner.has_ended());
}

#[test]
fn exec_marks_it() {
    let owner = Owner::start(true, |_| {
        use std::os::unix::process::CommandExt;
        let error = std::process::Command::new("sleep").arg("1000").exec();
        panic!("{error}");
    });
    owner.until(LifeState::Dead);
    assert!(!owner.has_ended());
}

#[test]
fn the_end_of_a_forked_or_vforked_child_does_not_mark_it() {
    let mut owner = Owner::start(true, |inside| {
        // SAFETY: the child ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            exit(0);
        }
        // SAFETY: our own child.
        unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) };
        // The C library starts it by a clone that shares memory, as vfork does.
        assert!(std::process::Command::new("true").status().unwrap().success());
        assert!(std::process::Command::new("there is no such program").status().is_err());
        inside.step();
    });
    owner.await_step();
    assert_eq!(owner.view.state(), LifeState::Alive);
    owner.kill(libc::SIGKILL);
    owner.until(LifeState::Dead);
}

#[test]
fn a_handed_over_word_lives_on_with_its_new_holder() {
    let mut owner = Owner::start(true, |inside| {
        let (life, first) = (inside.life, std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                first.wait();
                life.take().unwrap();
                assert!(life.is_mine());
                inside.step();
            });
            life.release();
            assert!(!life.is_mine());
            first.wait();
            // The thread that began ends by itself, without the scope's end.
            // SAFETY: ends this thread alone; what it had borrowed to the other is leaked with its stack.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        });
    });
    owner.await_step();
    let main_thread = format!("/proc/{0}/task/{0}/stat", owner.pid);
    while !std::fs::read_to_string(&main_thread).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    assert_eq!(owner.view.state(), LifeState::Alive);
    owner.kill(libc::SIGKILL);
    owner.until(LifeState::Dead);
}

#[test]
fn a_word_without_a_holder_is_no_death() {
    let mut owner = Owner::start(false, |inside| {
        inside.step();
        inside.life.begin().unwrap();
        inside.step();
        inside.life.release();
        inside.step();
        inside.life.take().unwrap();
        inside.step();
    });
    for state in [LifeState::Unheld, LifeState::Alive, LifeState::Unheld, LifeState::Alive] {
        owner.await_step();
        assert_eq!(owner.view.state(), state);
        assert!(!state.is_marked());
        owner.go_on();
    }
    owner.until(LifeState::Dead);
}

#[test]
fn a_process_that_reports_its_death_is_marked_before_it_ends() {
    let mut owner = Owner::start(true, |inside| {
        inside.life.mark_dying();
        inside.step();
    });
    owner.until(LifeState::Dying);
    owner.await_step();
    assert!(!owner.has_ended());
    owner.kill(libc::SIGKILL);
    owner.wait_for_end();
    assert_eq!(owner.view.state(), LifeState::Dying);
}

#[test]
fn much_touched_memory_does_not_delay_the_mark() {
    const BYTES: usize = 1 << 30;
    if memory_left().is_some_and(|left| left < 2 * BYTES as u64) {
        let test = "much_touched_memory_does_not_delay_the_mark";
        return mend_testing::skip(test, "too little memory is left");
    }
    // The mark comes before the end of the process; on a loaded machine this test may not run in between.
    for _ in 0..20 {
        let mut owner = Owner::start(true, |inside| {
            let (protection, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: a new mapping, where the kernel likes.
            let memory = unsafe { libc::mmap(core::ptr::null_mut(), BYTES, protection, flags, -1, 0) };
            assert_ne!(memory, libc::MAP_FAILED);
            // SAFETY: the range was mapped above.
            unsafe { libc::madvise(memory, BYTES, libc::MADV_NOHUGEPAGE) };
            for page in (0..BYTES).step_by(4096) {
                // SAFETY: inside the mapping.
                let place = unsafe { memory.cast::<u8>().add(page) };
                // SAFETY: mapped writable, and nobody else's.
                unsafe { place.write_volatile(1) };
            }
            inside.step();
        });
        owner.await_step();
        owner.kill(libc::SIGKILL);
        owner.until(LifeState::Dead);
        if !owner.has_ended() {
            return;
        }
    }
    panic!("the mark never came before the end of a process of 1 GiB");
}

#[test]
fn one_thread_sleeps_on_many_lives_and_a_call_interrupts_it() {
    if !can_sleep_on_life_words() {
        let test = "one_thread_sleeps_on_many_lives_and_a_call_interrupts_it";
        return mend_testing::skip(test, "this system has no futex_waitv");
    }
    let mut owners: Vec<Owner> = (0..5).map(|_| Owner::start(true, Inside::step)).collect();
    owners.iter_mut().for_each(Owner::await_step);
    let (interrupt, give_up) = (Interrupt::default(), Instant::now() + std::time::Duration::from_secs(60));
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            while interrupt.count() < 1_000 {
                let counted = interrupt.count();
                sleep_on_life_words(
                    owners.iter().map(|owner| (&owner.view, owner.view.read().1)),
                    &interrupt,
                    counted,
                );
            }
        });
        while !sleeper.is_finished() {
            interrupt.notify();
            assert!(Instant::now() < give_up);
            std::thread::yield_now();
        }
    });
    let counted = interrupt.count();
    owners[3].kill(libc::SIGKILL);
    while owners[3].view.state() != LifeState::Dead {
        assert!(Instant::now() < give_up);
        sleep_on_life_words(
            owners.iter().map(|owner| (&owner.view, owner.view.read().1)),
            &interrupt,
            counted,
        );
    }
    assert!([0, 1, 2, 4].iter().all(|&other| owners[other].view.state() == LifeState::Alive));
}

#[test]
fn a_life_dropped_while_another_thread_holds_its_word_stays_where_that_thread_needs_it() {
    let other = |began: &std::sync::Barrier, life: &Life| {
        life.begin().unwrap();
        began.wait();
        began.wait();
        // The list of its locked mutexes leads through the first one.
        let (life, _page) = Life::create(OWNER).unwrap();
        life.begin().unwrap();
        life.end();
    };
    let began = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let (life, page) = Life::create(Peer::new(Job(7), 0)).unwrap();
        let life = std::sync::Arc::new(life);
        let theirs = std::sync::Arc::clone(&life);
        let began = &began;
        scope.spawn(move || {
            // The other thread's reference is dropped first, so that ours is the last.
            let borrowed: &Life = &theirs;
            other(began, borrowed);
        });
        began.wait();
        drop((page, life));
        began.wait();
    });
}

#[test]
fn a_life_page_of_another_process_and_what_is_none_are_refused() {
    let (_life, page) = Life::create(OWNER).unwrap();
    assert!(LifeView::map(page.as_fd(), OWNER).is_ok());
    assert!(LifeView::map(page.as_fd(), Peer::new(Job(7), 2)).is_err());
    assert!(LifeView::map(page.as_fd(), Peer::new(Job(8), 1)).is_err());
    let outbox = Outbox::create(1, 4, 0).unwrap();
    assert!(LifeView::map(outbox.descriptor().as_fd(), OWNER).is_err());
    let null = File::open("/dev/null").unwrap();
    assert!(LifeView::map(null.as_fd(), OWNER).is_err());
}

#[test]
fn only_its_owner_can_write_a_life_page() {
    let (_life, page) = Life::create(OWNER).unwrap();
    assert!(rustix::io::pwrite(&page, b"x", 0).is_err());
    let writable = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    // SAFETY: the kernel chooses the address, and the mapping, if there is one, is never used.
    let mapped = unsafe {
        rustix::mm::mmap(core::ptr::null_mut(), 4096, writable, rustix::mm::MapFlags::SHARED, &page, 0)
    };
    assert!(mapped.is_err());
}
