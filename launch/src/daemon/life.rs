// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Watches the life words of all ranks, in threads of its own, and tells the node daemon's loop which of them are marked.
//!
//! One thread sleeps on the words of up to 127 ranks (futex_waitv); where the system has no such call, one thread on each.
//! A mark is said once: a descriptor becomes readable, and [`LifeWatch::marked`] gives the ranks. No call here waits for a
//! thread.
//!
//! Where no thread can be started (a limit on them, `ulimit -u`), the words are looked at by whoever calls
//! [`LifeWatch::marked`], as [`LifeWatch::must_look`] asks for; [`LifeWatch::add`] says so, and tries again with each rank that
//! comes.

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
    means: Means,
    watched: HashMap<u32, Watching>,
    /// For whom there was no thread.
    unposted: Vec<Watched>,
    next: u64,
}

/// With how many threads lives are watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Means {
    /// One sleeps on many (futex_waitv).
    Together,
    /// One for each.
    Apart,
    /// With none, as if none could be started.
    Nothing,
}

impl Means {
    /// The best that this system has.
    pub fn here() -> Self {
        if can_sleep_on_lives() { Means::Together } else { Means::Apart }
    }

    /// As the test hook [`LIFE_WATCH`](mend_runtime::environment::LIFE_WATCH) says, or else the best.
    pub fn chosen(hook: Option<&str>) -> Self {
        match hook {
            Some("apart") => Means::Apart,
            Some("none") => Means::Nothing,
            _ => Means::here(),
        }
    }

    /// How many ranks a post takes.
    fn per_post(self) -> usize {
        if self == Means::Together { LIVES_AT_ONCE } else { 1 }
    }
}

/// What the node daemon knows of one rank that is watched.
#[derive(Debug)]
struct Watching {
    /// Its post, if there is a thread for it.
    place: Option<usize>,
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
    /// There is no thread for it: [`LifeWatch::must_look`].
    #[error("no thread can be started to watch it: {0}")]
    Thread(io::Error),
}

/// What the threads have seen, and the node daemon has not heard.
#[derive(Debug)]
struct News {
    marked: Mutex<Vec<(u64, Mark)>>,
    /// Readable while there is something in it.
    ready: OwnedFd,
}

/// One thread, as the node daemon sees it: it ends when this is dropped.
#[derive(Debug)]
struct Post {
    desk: Arc<Desk>,
    ranks: usize,
}

/// What the node daemon tells one thread.
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

#[derive(Clone, Debug)]
struct Watched {
    number: u64,
    rank: u32,
    view: Arc<LifeView>,
}

impl LifeWatch {
    /// Watches nobody yet.
    pub fn new(means: Means) -> io::Result<Self> {
        let ready = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let news = Arc::new(News { marked: Mutex::default(), ready });
        Ok(LifeWatch { news, posts: vec![], means, watched: HashMap::new(), unposted: vec![], next: 0 })
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
        self.unposted.push(Watched { number, rank, view: Arc::clone(&view) });
        self.watched.insert(rank, Watching { place: None, number, view });
        self.post_all().map_err(WatchError::Thread)
    }

    /// Gives each rank that has none a thread, as far as there are any.
    fn post_all(&mut self) -> io::Result<()> {
        while let Some(next) = self.unposted.last().cloned() {
            let rank = next.rank;
            let place = match self.posts.iter().position(|post| post.ranks < self.means.per_post()) {
                Some(place) => {
                    self.posts[place].ranks += 1;
                    self.posts[place].order(Order::Watch(next));
                    place
                }
                None => {
                    self.posts.push(Post::start(&self.news, self.means, next)?);
                    self.posts.len() - 1
                }
            };
            self.unposted.pop();
            if let Some(watching) = self.watched.get_mut(&rank) {
                watching.place = Some(place);
            }
        }
        Ok(())
    }

    /// Nothing more is heard of `rank`.
    pub fn remove(&mut self, rank: u32) {
        let Some(Watching { place, number, .. }) = self.watched.remove(&rank) else { return };
        let Some(place) = place else { return self.unposted.retain(|each| each.number != number) };
        let post = &mut self.posts[place];
        post.order(Order::Forget(number));
        // Who sleeps on one life alone would hear of another one late: it gets no other.
        if self.means == Means::Together {
            post.ranks -= 1;
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

    /// Whether somebody is watched by no thread: then [`marked`](LifeWatch::marked) has to be asked now and then.
    pub fn must_look(&self) -> bool {
        !self.unposted.is_empty()
    }

    /// Who was marked since the last time; each once. Their places are taken until they are removed.
    pub fn marked(&mut self) -> Vec<Mark> {
        // Emptied before the list is taken: what comes in between is at worst said twice by the descriptor.
        let _ = rustix::io::read(&self.news.ready, &mut [0; 8]);
        look_at_all(&mut self.unposted, &self.news);
        let marked = std::mem::take(&mut *lock(&self.news.marked));
        let current = |(number, mark): (u64, Mark)| {
            let watched = self.watched.get(&mark.rank).is_some_and(|watching| watching.number == number);
            watched.then_some(mark)
        };
        marked.into_iter().filter_map(current).collect()
    }
}

impl Post {
    fn start(news: &Arc<News>, means: Means, first: Watched) -> io::Result<Self> {
        if means == Means::Nothing {
            return Err(rustix::io::Errno::AGAIN.into());
        }
        let alone = means == Means::Apart;
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
    use super::{LifeWatch, Mark, Means, WatchError};
    use mend_segment::{Life, LifeState, Outbox};
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
        let mut means = vec![Means::here(), Means::Apart];
        means.dedup();
        means.into_iter().map(|means| LifeWatch::new(means).unwrap()).collect()
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
    fn whom_no_thread_watches_is_looked_at_and_gets_one_as_soon_as_there_is_one() {
        let mut watch = LifeWatch::new(Means::Nothing).unwrap();
        let ranks: Vec<Rank> = (0..4).map(Rank::start).collect();
        for (slot, rank) in (0..3).zip(&ranks) {
            let added = watch.add(slot, rank.outbox.descriptor().as_fd(), slot, SLOTS);
            assert!(matches!(added, Err(WatchError::Thread(_))) && watch.must_look());
        }
        watch.remove(2);
        let mut ranks = ranks.into_iter();
        ranks.next().unwrap().end(false);
        assert_eq!((watch.look(0), watch.look(1)), (Some(LifeState::Dead), Some(LifeState::Lives)));
        assert_eq!(watch.marked(), [Mark { rank: 0, dying: false }]);
        assert!(watch.marked().is_empty());
        // A thread can be started again when the next one comes: it watches all.
        watch.means = Means::here();
        let (first, gone, last) = (ranks.next().unwrap(), ranks.next().unwrap(), ranks.next().unwrap());
        add(&mut watch, 3, &last);
        assert!(!watch.must_look());
        gone.end(false);
        first.end(false);
        assert_eq!(wait(&mut watch), [Mark { rank: 1, dying: false }]);
        last.end(false);
        assert_eq!(wait(&mut watch), [Mark { rank: 3, dying: false }]);
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
