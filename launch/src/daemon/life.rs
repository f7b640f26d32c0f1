// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Watches the life words of all ranks, in threads of its own, and tells the keeper's loop which of them are marked.
//!
//! One thread sleeps on the words of up to 127 ranks (futex_waitv); where the system has no such call, one thread on each.
//! A mark is said once: a descriptor becomes readable, and [`LifeWatch::marked`] gives the ranks. No call here waits for a
//! thread.

use mend_base::Duration;
use mend_segment::{
    Call, LIVES_AT_ONCE, LifeState, LifeView, Seen, SegmentError, can_sleep_on_lives, sleep_on_life,
    sleep_on_lives,
};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

/// The lives of all ranks whose outbox is known.
#[derive(Debug)]
pub struct LifeWatch {
    news: Arc<News>,
    posts: Vec<Post>,
    /// How many ranks a post takes.
    per_post: usize,
    watched: HashMap<u32, Watching>,
    next: u64,
}

/// What the keeper knows of one rank that is watched.
#[derive(Debug)]
struct Watching {
    /// Its post.
    place: usize,
    /// Never used again.
    number: u64,
    view: Arc<LifeView>,
}

/// A rank whose life word is marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// Which.
    pub rank: u32,
    /// It said so itself: it may be writing a core, and must not be killed before that is done.
    pub dying: bool,
}

/// Why a life cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// What the rank sent is no outbox of its own.
    #[error(transparent)]
    Outbox(#[from] SegmentError),
    /// There is no thread for it.
    #[error("no thread can be started to watch it: {0}")]
    Thread(io::Error),
}

/// What the threads have seen, and the keeper has not heard.
#[derive(Debug)]
struct News {
    marked: Mutex<Vec<(u64, Mark)>>,
    /// Readable while there is something in it.
    ready: OwnedFd,
}

/// One thread, as the keeper sees it: it ends when this is dropped.
#[derive(Debug)]
struct Post {
    desk: Arc<Desk>,
    ranks: usize,
}

/// What the keeper tells one thread.
#[derive(Debug, Default)]
struct Desk {
    orders: Mutex<Vec<Order>>,
    call: Call,
    over: AtomicBool,
}

#[derive(Debug)]
enum Order {
    Watch(Watched),
    /// The number of a watching.
    Forget(u64),
}

#[derive(Debug)]
struct Watched {
    number: u64,
    rank: u32,
    view: Arc<LifeView>,
}

impl LifeWatch {
    /// Watches nobody yet.
    pub fn new() -> io::Result<Self> {
        Self::with(if can_sleep_on_lives() { LIVES_AT_ONCE } else { 1 })
    }

    /// With so many ranks for each thread; with 1 the thread needs no futex_waitv.
    fn with(per_post: usize) -> io::Result<Self> {
        let ready = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let news = Arc::new(News { marked: Mutex::default(), ready });
        Ok(LifeWatch { news, posts: vec![], per_post, watched: HashMap::new(), next: 0 })
    }

    /// Watches the life of `rank`, whose outbox this is, at `slot` of a node with `slots`. The descriptor may be closed
    /// afterwards. A second outbox of the same rank takes the place of the first.
    pub fn add(
        &mut self,
        rank: u32,
        outbox: BorrowedFd<'_>,
        slot: u32,
        slots: u32,
    ) -> Result<(), WatchError> {
        let view = Arc::new(LifeView::map(outbox, slot, slots)?);
        self.remove(rank);
        let number = self.next;
        self.next += 1;
        let new = Watched { number, rank, view: Arc::clone(&view) };
        let place = match self.posts.iter().position(|post| post.ranks < self.per_post) {
            Some(place) => {
                self.posts[place].ranks += 1;
                self.posts[place].order(Order::Watch(new));
                place
            }
            None => {
                let post = Post::start(&self.news, self.per_post == 1, new).map_err(WatchError::Thread)?;
                self.posts.push(post);
                self.posts.len() - 1
            }
        };
        self.watched.insert(rank, Watching { place, number, view });
        Ok(())
    }

    /// Nothing more is heard of `rank`.
    pub fn remove(&mut self, rank: u32) {
        if let Some(Watching { place, number, .. }) = self.watched.remove(&rank) {
            let post = &mut self.posts[place];
            post.order(Order::Forget(number));
            // Who sleeps on one life alone would hear of another one late: it gets no other.
            if self.per_post > 1 {
                post.ranks -= 1;
            }
        }
    }

    /// How it stands with `rank` now; `None` where it is not watched.
    pub fn look(&self, rank: u32) -> Option<LifeState> {
        self.watched.get(&rank).map(|watching| watching.view.state())
    }

    /// Readable when [`marked`](LifeWatch::marked) has something.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.news.ready.as_fd()
    }

    /// Who was marked since the last time; each once. Their places are taken until they are removed.
    pub fn marked(&mut self) -> Vec<Mark> {
        // Emptied before the list is taken: what comes in between is at worst said twice by the descriptor.
        let _ = rustix::io::read(&self.news.ready, &mut [0; 8]);
        let marked = std::mem::take(&mut *lock(&self.news.marked));
        let current = |(number, mark): (u64, Mark)| {
            let watched = self.watched.get(&mark.rank).is_some_and(|watching| watching.number == number);
            watched.then_some(mark)
        };
        marked.into_iter().filter_map(current).collect()
    }
}

impl Post {
    fn start(news: &Arc<News>, alone: bool, first: Watched) -> io::Result<Self> {
        let desk = Arc::new(Desk { orders: Mutex::new(vec![Order::Watch(first)]), ..Desk::default() });
        let (theirs, news) = (Arc::clone(&desk), Arc::clone(news));
        Builder::new()
            .name("mend-life".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || theirs.watch(&news, alone))?;
        Ok(Post { desk, ranks: 1 })
    }

    fn order(&self, order: Order) {
        lock(&self.desk.orders).push(order);
        self.desk.call.ring();
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        self.desk.over.store(true, Ordering::Relaxed);
        self.desk.call.ring();
    }
}

impl Desk {
    /// The thread.
    fn watch(&self, news: &News, alone: bool) {
        let mut watched: Vec<Watched> = vec![];
        loop {
            let counted = self.call.count();
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            for order in std::mem::take(&mut *lock(&self.orders)) {
                match order {
                    Order::Watch(new) => watched.push(new),
                    Order::Forget(number) => watched.retain(|each| each.number != number),
                }
            }
            let seen = look_at_all(&mut watched, news);
            let lives = watched.iter().map(|each| &*each.view).zip(seen);
            match (alone, &watched[..]) {
                (true, []) => return,
                (true, _) => lives.for_each(|(view, seen)| sleep_on_life(view, seen, CALL_UNHEARD)),
                (false, _) => sleep_on_lives(lives, &self.call, counted),
            }
        }
    }
}

/// Tells of those who are marked, and forgets them and those who have left. What was seen of the others, in order.
fn look_at_all(watched: &mut Vec<Watched>, news: &News) -> Vec<Seen> {
    let mut seen = Vec::with_capacity(watched.len());
    watched.retain(|each| {
        let (state, now) = each.view.look();
        if state.is_marked() {
            news.tell(each.number, Mark { rank: each.rank, dying: state == LifeState::Dying });
        }
        let goes_on = !state.is_marked() && state != LifeState::Left;
        if goes_on {
            seen.push(now);
        }
        goes_on
    });
    seen
}

impl News {
    fn tell(&self, number: u64, mark: Mark) {
        lock(&self.marked).push((number, mark));
        // Its counter cannot be full: each mark adds one.
        let _ = rustix::io::write(&self.ready, &1_u64.to_ne_bytes());
    }
}

/// Nobody panics while holding one of these.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Its own frames are small.
const STACK_BYTES: usize = 64 << 10;

/// Who sleeps on one life alone hears no call meanwhile; so late does such a thread end, or forget.
const CALL_UNHEARD: Duration = Duration::from_millis(1_000);

#[cfg(test)]
mod tests {
    use super::{LIVES_AT_ONCE, LifeWatch, Mark, WatchError, can_sleep_on_lives};
    use mend_segment::{Life, Outbox};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::os::fd::AsFd;
    use std::sync::mpsc::{Sender, channel};
    use std::thread::JoinHandle;

    /// A thread that plays a rank: the mark of its word is the same, whether it ends or its process does.
    struct Rank {
        outbox: Outbox,
        life: &'static Life,
        end: Sender<bool>,
        thread: JoinHandle<()>,
    }

    impl Rank {
        fn start(slot: u32) -> Self {
            let outbox = Outbox::create(slot, SLOTS, 0).unwrap();
            let life: &'static Life = Box::leak(Box::new(outbox.life()));
            let ((end, leaves), (began, begun)) = (channel(), channel());
            let thread = std::thread::spawn(move || {
                life.begin().unwrap();
                began.send(()).unwrap();
                if leaves.recv() == Ok(true) {
                    life.end();
                }
            });
            begun.recv().unwrap();
            Rank { outbox, life, end, thread }
        }

        fn end(self, properly: bool) {
            self.end.send(properly).unwrap();
            self.thread.join().unwrap();
        }
    }

    const SLOTS: u32 = 300;

    fn watches() -> Vec<LifeWatch> {
        let many = can_sleep_on_lives().then(|| LifeWatch::with(LIVES_AT_ONCE).unwrap());
        many.into_iter().chain([LifeWatch::with(1).unwrap()]).collect()
    }

    fn add(watch: &mut LifeWatch, slot: u32, rank: &Rank) {
        watch.add(slot, rank.outbox.descriptor().as_fd(), slot, SLOTS).unwrap();
    }

    fn wait(watch: &mut LifeWatch) -> Vec<Mark> {
        loop {
            let (descriptor, at_most) = (watch.descriptor(), Timespec { tv_sec: 60, tv_nsec: 0 });
            assert_eq!(poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&at_most)), Ok(1));
            // It may have been a rank that was removed meanwhile.
            let marked = watch.marked();
            if !marked.is_empty() {
                return marked;
            }
        }
    }

    #[test]
    fn who_dies_is_told_once_and_who_leaves_or_is_removed_never() {
        for mut watch in watches() {
            let mut ranks: Vec<Rank> = (0..4).map(Rank::start).collect();
            (0..4).zip(&ranks).for_each(|(slot, rank)| add(&mut watch, slot, rank));
            watch.remove(3);
            assert!(watch.marked().is_empty());
            ranks.pop().unwrap().end(false);
            ranks.pop().unwrap().end(true);
            ranks.pop().unwrap().end(false);
            assert_eq!(wait(&mut watch), [Mark { rank: 1, dying: false }]);
            ranks.pop().unwrap().end(false);
            assert_eq!(wait(&mut watch), [Mark { rank: 0, dying: false }]);
            assert!(watch.marked().is_empty());
        }
    }

    #[test]
    fn who_says_that_it_dies_is_told_as_dying() {
        for mut watch in watches() {
            let rank = Rank::start(7);
            add(&mut watch, 7, &rank);
            rank.life.say_dying();
            assert_eq!(wait(&mut watch), [Mark { rank: 7, dying: true }]);
            rank.end(false);
            assert!(watch.marked().is_empty());
        }
    }

    #[test]
    fn a_word_that_passes_from_thread_to_thread_is_not_told_but_the_death_of_its_last_holder_is() {
        for mut watch in watches() {
            let outbox = Outbox::create(0, SLOTS, 0).unwrap();
            let life: &'static Life = Box::leak(Box::new(outbox.life()));
            watch.add(0, outbox.descriptor().as_fd(), 0, SLOTS).unwrap();
            life.begin().unwrap();
            life.release();
            let hold = || life.take().map(|()| life.release());
            (0..100).for_each(|_| std::thread::spawn(hold).join().unwrap().unwrap());
            assert!(watch.marked().is_empty());
            std::thread::spawn(|| life.take()).join().unwrap().unwrap();
            assert_eq!(wait(&mut watch), [Mark { rank: 0, dying: false }]);
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
            let mut told = vec![];
            while told.len() < count as usize {
                told.extend(wait(&mut watch).into_iter().map(|mark| mark.rank));
            }
            told.sort_unstable();
            assert!(told.into_iter().eq(0..count));
            assert!(watch.marked().is_empty());
        }
    }

    #[test]
    fn a_rank_that_was_dead_when_it_came_is_told_and_what_is_no_outbox_is_refused() {
        for mut watch in watches() {
            let rank = Rank::start(5);
            let descriptor = rank.outbox.descriptor();
            rank.end(false);
            assert!(matches!(watch.add(6, descriptor.as_fd(), 6, SLOTS), Err(WatchError::Outbox(_))));
            watch.add(5, descriptor.as_fd(), 5, SLOTS).unwrap();
            assert_eq!(wait(&mut watch), [Mark { rank: 5, dying: false }]);
        }
    }
}
