// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Watches the life words of all ranks in separate threads, and passes the marks to the node daemon's loop.
//!
//! One thread sleeps on the words of up to 127 ranks (futex_waitv); where the system has no such call, one thread on each.
//! Each mark is passed on once: a descriptor becomes readable, and [`LifeWatch::marked`] returns the ranks. No call here waits for
//! a thread.
//!
//! Where no thread can be started (a limit on them, `ulimit -u`), [`LifeWatch::marked`] polls the words, and
//! [`LifeWatch::must_poll`] asks for that. [`LifeWatch::add`] reports the failure, and tries again with each rank that joins.

use mend_base::{Duration, Peer};
use mend_segment::{
    Interrupt, LIFE_WORDS_AT_ONCE, LifeState, LifeView, Seen, SegmentError, can_sleep_on_life_words,
    sleep_on_life, sleep_on_life_words,
};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

/// The life words of all ranks whose life page is known.
#[derive(Debug)]
pub struct LifeWatch {
    marks: Arc<MarkQueue>,
    threads: Vec<WatchThread>,
    mode: WatchMode,
    watched: HashMap<u32, Watching>,
    /// Life words for which no thread could be started.
    without_thread: Vec<WatchedLife>,
    next: u64,
}

/// How many threads watch life words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WatchMode {
    /// One thread sleeps on many words (futex_waitv).
    Shared,
    /// One thread for each word.
    PerRank,
    /// No thread: the words are polled.
    Polled,
}

impl WatchMode {
    /// The best mode of this system.
    pub fn here() -> Self {
        if can_sleep_on_life_words() { WatchMode::Shared } else { WatchMode::PerRank }
    }

    /// The mode named by the test hook [`LIFE_WATCH`](mend_runtime::environment::LIFE_WATCH), or else the best.
    pub fn chosen(hook: Option<&str>) -> Self {
        match hook {
            Some("apart") => WatchMode::PerRank,
            Some("none") => WatchMode::Polled,
            _ => WatchMode::here(),
        }
    }

    /// How many ranks one thread watches.
    fn per_thread(self) -> usize {
        if self == WatchMode::Shared { LIFE_WORDS_AT_ONCE } else { 1 }
    }
}

/// What the node daemon knows of one rank that is watched.
#[derive(Debug)]
struct Watching {
    /// Its thread, if there is one for it.
    thread: Option<usize>,
    /// Number of the watched life; never reused.
    number: u64,
    view: Arc<LifeView>,
}

/// A marked life word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarkedLife {
    /// Whose life word it is.
    pub rank: u32,
    /// The rank's own signal handler marked the word: the rank may be writing a core, and must not be killed before that is done.
    pub dying: bool,
}

/// Why a life cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// What the rank sent is no life page of its own.
    #[error(transparent)]
    Page(#[from] SegmentError),
    /// No thread could be started; see [`LifeWatch::must_poll`].
    #[error("no thread can be started to watch it: {0}")]
    Thread(io::Error),
}

/// The marks that the threads have seen, and the node daemon has not taken.
#[derive(Debug)]
struct MarkQueue {
    marked: Mutex<Vec<(u64, MarkedLife)>>,
    /// Readable while `marked` is not empty.
    ready: OwnedFd,
}

/// The node daemon's side of one thread; the thread ends when this is dropped.
#[derive(Debug)]
struct WatchThread {
    inbox: Arc<CommandInbox>,
    ranks: usize,
}

/// Commands for one thread.
#[derive(Debug, Default)]
struct CommandInbox {
    commands: Mutex<Vec<Command>>,
    interrupt: Interrupt,
    over: AtomicBool,
}

#[derive(Debug)]
enum Command {
    Watch(WatchedLife),
    /// The number of a watched life.
    Forget(u64),
}

#[derive(Clone, Debug)]
struct WatchedLife {
    number: u64,
    rank: u32,
    view: Arc<LifeView>,
}

impl LifeWatch {
    /// Watches no rank yet.
    pub fn new(mode: WatchMode) -> io::Result<Self> {
        let ready = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let marks = Arc::new(MarkQueue { marked: Mutex::default(), ready });
        Ok(LifeWatch {
            marks,
            threads: vec![],
            mode,
            watched: HashMap::new(),
            without_thread: vec![],
            next: 0,
        })
    }

    /// Watches the life word of `rank`, which is `peer`, in its life page. The descriptor may be closed afterwards. A second life of the
    /// same rank replaces the first.
    pub fn add(&mut self, rank: u32, life_page: BorrowedFd<'_>, peer: Peer) -> Result<(), WatchError> {
        let view = Arc::new(LifeView::map(life_page, peer)?);
        self.remove(rank);
        let number = self.next;
        self.next += 1;
        self.without_thread.push(WatchedLife { number, rank, view: Arc::clone(&view) });
        self.watched.insert(rank, Watching { thread: None, number, view });
        self.give_threads().map_err(WatchError::Thread)
    }

    /// Gives each rank without a thread one, as far as threads can be started.
    fn give_threads(&mut self) -> io::Result<()> {
        while let Some(next) = self.without_thread.last().cloned() {
            let rank = next.rank;
            let thread = match self.threads.iter().position(|thread| thread.ranks < self.mode.per_thread()) {
                Some(thread) => {
                    self.threads[thread].ranks += 1;
                    self.threads[thread].send(Command::Watch(next));
                    thread
                }
                None => {
                    self.threads.push(WatchThread::start(&self.marks, self.mode, next)?);
                    self.threads.len() - 1
                }
            };
            self.without_thread.pop();
            if let Some(watching) = self.watched.get_mut(&rank) {
                watching.thread = Some(thread);
            }
        }
        Ok(())
    }

    /// Stops watching `rank`: no mark of it is returned any more.
    pub fn remove(&mut self, rank: u32) {
        let Some(Watching { thread, number, .. }) = self.watched.remove(&rank) else { return };
        let Some(thread) = thread else { return self.without_thread.retain(|each| each.number != number) };
        let thread = &mut self.threads[thread];
        thread.send(Command::Forget(number));
        // In mode PerRank the thread sleeps on one word, and would notice a second command late: it is not reused.
        if self.mode == WatchMode::Shared {
            thread.ranks -= 1;
        }
    }

    /// The state of the life word of `rank`; `None` where it is not watched.
    pub fn poll(&self, rank: u32) -> Option<LifeState> {
        self.watched.get(&rank).map(|watching| watching.view.state())
    }

    /// Readable when [`marked`](LifeWatch::marked) has something.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.marks.ready.as_fd()
    }

    /// Whether no thread watches some life word: then [`marked`](LifeWatch::marked) must be called from time to time.
    pub fn must_poll(&self) -> bool {
        !self.without_thread.is_empty()
    }

    /// The marks since the last call, each once. A marked rank keeps its place in its thread until it is removed.
    pub fn marked(&mut self) -> Vec<MarkedLife> {
        // The counter is cleared before the list is taken: a mark in between only makes the descriptor readable needlessly.
        let _ = rustix::io::read(&self.marks.ready, &mut [0; 8]);
        poll_all(&mut self.without_thread, &self.marks);
        let marked = std::mem::take(&mut *lock(&self.marks.marked));
        let current = |(number, mark): (u64, MarkedLife)| {
            let watched = self.watched.get(&mark.rank).is_some_and(|watching| watching.number == number);
            watched.then_some(mark)
        };
        marked.into_iter().filter_map(current).collect()
    }
}

impl WatchThread {
    fn start(marks: &Arc<MarkQueue>, mode: WatchMode, first: WatchedLife) -> io::Result<Self> {
        if mode == WatchMode::Polled {
            return Err(rustix::io::Errno::AGAIN.into());
        }
        let alone = mode == WatchMode::PerRank;
        let inbox = Arc::new(CommandInbox {
            commands: Mutex::new(vec![Command::Watch(first)]),
            ..CommandInbox::default()
        });
        let (theirs, marks) = (Arc::clone(&inbox), Arc::clone(marks));
        Builder::new()
            .name("mend-life".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || theirs.watch(&marks, alone))?;
        Ok(WatchThread { inbox, ranks: 1 })
    }

    fn send(&self, command: Command) {
        lock(&self.inbox.commands).push(command);
        self.inbox.interrupt.notify();
    }
}

impl Drop for WatchThread {
    fn drop(&mut self) {
        self.inbox.over.store(true, Ordering::Relaxed);
        self.inbox.interrupt.notify();
    }
}

impl CommandInbox {
    /// The thread.
    fn watch(&self, marks: &MarkQueue, alone: bool) {
        let mut watched: Vec<WatchedLife> = vec![];
        loop {
            let counted = self.interrupt.count();
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            for command in std::mem::take(&mut *lock(&self.commands)) {
                match command {
                    Command::Watch(new) => watched.push(new),
                    Command::Forget(number) => watched.retain(|each| each.number != number),
                }
            }
            let seen = poll_all(&mut watched, marks);
            let lives = watched.iter().map(|each| &*each.view).zip(seen);
            match (alone, &watched[..]) {
                (true, []) => return,
                (true, _) => lives.for_each(|(view, seen)| sleep_on_life(view, seen, SLEEP_AT_MOST)),
                (false, _) => sleep_on_life_words(lives, &self.interrupt, counted),
            }
        }
    }
}

/// Reports marks, and removes ranks that are marked or have left. Returns the state seen of the remaining words, in order.
fn poll_all(watched: &mut Vec<WatchedLife>, marks: &MarkQueue) -> Vec<Seen> {
    let mut seen = Vec::with_capacity(watched.len());
    watched.retain(|each| {
        let (state, now) = each.view.read();
        if state.is_marked() {
            marks.push(each.number, MarkedLife { rank: each.rank, dying: state == LifeState::Dying });
        }
        let goes_on = !state.is_marked() && state != LifeState::Left;
        if goes_on {
            seen.push(now);
        }
        goes_on
    });
    seen
}

impl MarkQueue {
    fn push(&self, number: u64, mark: MarkedLife) {
        lock(&self.marked).push((number, mark));
        // The eventfd's counter cannot overflow: each mark adds one.
        let _ = rustix::io::write(&self.ready, &1_u64.to_ne_bytes());
    }
}

/// No thread panics while it holds one of these locks, so a poisoned lock cannot occur.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stack of a watcher thread, whose frames are small.
const STACK_BYTES: usize = 64 << 10;

/// A thread that sleeps on one word gets no commands meanwhile; it obeys a command after this time at the latest.
const SLEEP_AT_MOST: Duration = Duration::from_millis(1_000);

#[cfg(test)]
mod tests {
    use super::{LifeWatch, MarkedLife, WatchError, WatchMode};
    use mend_base::{Job, Peer};
    use mend_segment::{Life, LifeState};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::os::fd::{AsFd, OwnedFd};
    use std::sync::mpsc::{Sender, channel};
    use std::thread::JoinHandle;

    /// A thread in the role of a rank. The kernel marks its life word when the thread ends, as it does for a process.
    struct Rank {
        page: OwnedFd,
        life: &'static Life,
        end: Sender<bool>,
        thread: JoinHandle<()>,
    }

    impl Rank {
        fn start(slot: u32) -> Self {
            let (life, page) = Life::create(peer(slot)).unwrap();
            let life: &'static Life = Box::leak(Box::new(life));
            let ((end, leaves), (began, begun)) = (channel(), channel());
            let thread = std::thread::spawn(move || {
                life.begin().unwrap();
                began.send(()).unwrap();
                if leaves.recv() == Ok(true) {
                    life.end();
                }
            });
            begun.recv().unwrap();
            Rank { page, life, end, thread }
        }

        fn end(self, properly: bool) {
            self.end.send(properly).unwrap();
            self.thread.join().unwrap();
        }
    }

    fn peer(rank: u32) -> Peer {
        Peer::new(Job(5), rank)
    }

    fn watches() -> Vec<LifeWatch> {
        let mut mode = vec![WatchMode::here(), WatchMode::PerRank];
        mode.dedup();
        mode.into_iter().map(|mode| LifeWatch::new(mode).unwrap()).collect()
    }

    fn add(watch: &mut LifeWatch, slot: u32, rank: &Rank) {
        watch.add(slot, rank.page.as_fd(), peer(slot)).unwrap();
    }

    fn wait(watch: &mut LifeWatch) -> Vec<MarkedLife> {
        loop {
            let (descriptor, at_most) = (watch.descriptor(), Timespec { tv_sec: 60, tv_nsec: 0 });
            assert_eq!(poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&at_most)), Ok(1));
            // The mark may have been that of a rank that was removed meanwhile.
            let marked = watch.marked();
            if !marked.is_empty() {
                return marked;
            }
        }
    }

    #[test]
    fn a_death_is_handed_over_once_and_a_rank_that_left_or_was_removed_never() {
        for mut watch in watches() {
            let mut ranks: Vec<Rank> = (0..4).map(Rank::start).collect();
            (0..4).zip(&ranks).for_each(|(slot, rank)| add(&mut watch, slot, rank));
            watch.remove(3);
            assert!(watch.marked().is_empty());
            ranks.pop().unwrap().end(false);
            ranks.pop().unwrap().end(true);
            ranks.pop().unwrap().end(false);
            assert_eq!(wait(&mut watch), [MarkedLife { rank: 1, dying: false }]);
            ranks.pop().unwrap().end(false);
            assert_eq!(wait(&mut watch), [MarkedLife { rank: 0, dying: false }]);
            assert!(watch.marked().is_empty());
        }
    }

    #[test]
    fn a_rank_that_says_that_it_dies_is_handed_over_as_dying() {
        for mut watch in watches() {
            let rank = Rank::start(7);
            add(&mut watch, 7, &rank);
            rank.life.mark_dying();
            assert_eq!(wait(&mut watch), [MarkedLife { rank: 7, dying: true }]);
            rank.end(false);
            assert!(watch.marked().is_empty());
        }
    }

    #[test]
    fn a_word_that_passes_from_thread_to_thread_is_no_mark_but_the_death_of_its_last_holder_is() {
        for mut watch in watches() {
            let (life, page) = Life::create(peer(0)).unwrap();
            let life: &'static Life = Box::leak(Box::new(life));
            watch.add(0, page.as_fd(), peer(0)).unwrap();
            life.begin().unwrap();
            life.release();
            let hold = || life.take().map(|()| life.release());
            (0..100).for_each(|_| std::thread::spawn(hold).join().unwrap().unwrap());
            assert!(watch.marked().is_empty());
            std::thread::spawn(|| life.take()).join().unwrap().unwrap();
            assert_eq!(wait(&mut watch), [MarkedLife { rank: 0, dying: false }]);
            assert!(watch.marked().is_empty());
        }
    }

    #[test]
    fn more_ranks_than_one_thread_can_watch_are_all_watched() {
        for mut watch in watches() {
            let count = 140;
            let ranks: Vec<Rank> = (0..count).map(Rank::start).collect();
            (0..count).zip(&ranks).for_each(|(slot, rank)| add(&mut watch, slot, rank));
            ranks.into_iter().rev().for_each(|rank| rank.end(false));
            let mut handed_over = vec![];
            while handed_over.len() < count as usize {
                handed_over.extend(wait(&mut watch).into_iter().map(|mark| mark.rank));
            }
            handed_over.sort_unstable();
            assert!(handed_over.into_iter().eq(0..count));
            assert!(watch.marked().is_empty());
        }
    }

    #[test]
    fn a_life_without_a_thread_is_polled_and_gets_a_thread_as_soon_as_one_can_be_started() {
        let mut watch = LifeWatch::new(WatchMode::Polled).unwrap();
        let ranks: Vec<Rank> = (0..4).map(Rank::start).collect();
        for (slot, rank) in (0..3).zip(&ranks) {
            let added = watch.add(slot, rank.page.as_fd(), peer(slot));
            assert!(matches!(added, Err(WatchError::Thread(_))) && watch.must_poll());
        }
        watch.remove(2);
        let mut ranks = ranks.into_iter();
        ranks.next().unwrap().end(false);
        assert_eq!((watch.poll(0), watch.poll(1)), (Some(LifeState::Dead), Some(LifeState::Alive)));
        assert_eq!(watch.marked(), [MarkedLife { rank: 0, dying: false }]);
        assert!(watch.marked().is_empty());
        // A thread can be started again when the next rank is added; that thread watches all ranks.
        watch.mode = WatchMode::here();
        let (first, gone, last) = (ranks.next().unwrap(), ranks.next().unwrap(), ranks.next().unwrap());
        add(&mut watch, 3, &last);
        assert!(!watch.must_poll());
        gone.end(false);
        first.end(false);
        assert_eq!(wait(&mut watch), [MarkedLife { rank: 1, dying: false }]);
        last.end(false);
        assert_eq!(wait(&mut watch), [MarkedLife { rank: 3, dying: false }]);
    }

    #[test]
    fn a_rank_that_was_dead_when_it_was_added_is_handed_over_and_what_is_no_life_page_of_it_is_refused() {
        for mut watch in watches() {
            let rank = Rank::start(5);
            let page = rank.page.try_clone().unwrap();
            rank.end(false);
            assert!(matches!(watch.add(6, page.as_fd(), peer(6)), Err(WatchError::Page(_))));
            watch.add(5, page.as_fd(), peer(5)).unwrap();
            assert_eq!(wait(&mut watch), [MarkedLife { rank: 5, dying: false }]);
        }
    }
}
