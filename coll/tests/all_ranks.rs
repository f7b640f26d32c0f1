// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The schedules of all ranks in one thread, without a network: for 1 to 17 ranks, every root, zero and other counts, in place and not. The
//! result equals a sequential model, every message is received, and no request is left. A seed determines the order in which ranks
//! execute steps and messages arrive.

use mend_base::{Key, Random, Rank};
use mend_coll::{AgreeOn, Collective, Error, Framework, MessageLayer, Schedule, Selection};
use mend_datatype::{Datatype, Op, TypedBuffer};
use mend_pml::{Error as PmlError, Request, Started, State, Status};
use mend_transport::{Buffer, PayloadWriter, UserMemory};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

const SIZES: std::ops::RangeInclusive<u32> = 1..=17;

/// A message that was sent, or a posted receive.
struct Transfer {
    data: TypedBuffer,
    request: Option<u32>,
    /// The sender has abandoned its request: the message completes no receive.
    cancelled: bool,
}

/// The messages and requests of all ranks. Messages and receives are keyed by sender and receiver.
struct Fabric {
    random: Random,
    sent: BTreeMap<(u32, u32), VecDeque<Transfer>>,
    posted: BTreeMap<(u32, u32), VecDeque<Transfer>>,
    /// The owner and the state of each request, by number.
    requests: BTreeMap<u32, (u32, State)>,
    next: u32,
    /// The number of the request that shall fail, if there is one, and its error.
    failing: Option<(u32, PmlError)>,
    /// The dead rank.
    dead: Option<u32>,
    /// The ranks that are notified of the death.
    notified: BTreeSet<u32>,
    /// Sender and receiver of each poison.
    poison: BTreeSet<(u32, u32)>,
    /// The ranks that have given the operation up: they refuse sends.
    gave_up: BTreeSet<u32>,
    /// The ranks of which a send was never received.
    failed_sends: BTreeSet<u32>,
    always_eager: bool,
}

impl Fabric {
    fn new(seed: u64) -> Self {
        Fabric {
            random: Random(seed),
            sent: BTreeMap::new(),
            posted: BTreeMap::new(),
            requests: BTreeMap::new(),
            next: 0,
            failing: None,
            dead: None,
            notified: BTreeSet::new(),
            poison: BTreeSet::new(),
            gave_up: BTreeSet::new(),
            failed_sends: BTreeSet::new(),
            always_eager: false,
        }
    }

    fn request(&mut self, owner: u32) -> u32 {
        self.next += 1;
        self.requests.insert(self.next, (owner, State::Running));
        self.next
    }

    /// The error of a message between `other` and `me` that was not sent.
    fn why_never(&self, other: u32, me: u32) -> Option<PmlError> {
        if self.dead == Some(other) && self.notified.contains(&me) {
            return Some(PmlError::ProcFailed(Rank(other)));
        }
        let failed = self.dead.map(Rank);
        self.poison.contains(&(other, me)).then_some(PmlError::Poisoned { by: Rank(other), failed })
    }

    /// The sends of `from` to `to` end, which has given the operation up.
    fn refuse(&mut self, from: u32, to: u32) {
        for request in
            self.sent.remove(&(from, to)).unwrap_or_default().into_iter().filter_map(|sent| sent.request)
        {
            self.failed_sends.insert(from);
            let error = PmlError::Poisoned { by: Rank(to), failed: self.dead.map(Rank) };
            self.requests.get_mut(&request).unwrap().1 = State::Done(Err(error));
        }
    }

    /// Ends the requests between `other` and `me` that nothing can complete.
    fn end_waiting(&mut self, other: u32, me: u32) {
        while self.deliver_from(other, me) {}
        let Some(error) = self.why_never(other, me) else { return };
        let posted = self.posted.remove(&(other, me)).unwrap_or_default();
        let unread = self.sent.remove(&(me, other)).unwrap_or_default();
        self.failed_sends.extend(unread.iter().filter(|sent| sent.request.is_some()).map(|_| me));
        for request in posted.into_iter().chain(unread).filter_map(|transfer| transfer.request) {
            self.requests.get_mut(&request).unwrap().1 = State::Done(Err(error));
        }
    }

    /// Delivers one message for which a receive is posted. Returns whether there was one.
    fn deliver(&mut self) -> bool {
        let posted = &self.posted;
        let ready: Vec<_> = self
            .sent
            .iter()
            .filter(|(pair, queue)| {
                !queue.is_empty() && posted.get(pair).is_some_and(|queue| !queue.is_empty())
            })
            .map(|(&pair, _)| pair)
            .collect();
        if ready.is_empty() {
            return false;
        }
        let pair = ready[self.random.below(ready.len() as u64) as usize];
        self.deliver_from(pair.0, pair.1)
    }

    /// Delivers the next message between two ranks. Returns whether there was one, and a receive for it.
    fn deliver_from(&mut self, from: u32, to: u32) -> bool {
        let pair = (from, to);
        let (Some(sent), Some(posted)) = (self.sent.get_mut(&pair), self.posted.get_mut(&pair)) else {
            return false;
        };
        if sent.is_empty() || posted.is_empty() {
            return false;
        }
        let message = sent.pop_front().unwrap();
        if message.cancelled {
            return true;
        }
        let receive = posted.pop_front().unwrap();
        let same = message.data.packed_bytes() == receive.data.packed_bytes();
        // Of two messages of a sender that gave up, the first may be cancelled: its receive takes the second, and no other comes.
        assert!(same || self.gave_up.contains(&from), "sender and receiver expect the same length");
        if same {
            receive.data.copy_from(&message.data);
        }
        for request in [message.request, receive.request].into_iter().flatten() {
            let error = self.failing.filter(|(failing, _)| *failing == request).map(|(_, error)| error);
            let result = error.map_or(Ok(Status::EMPTY), Err);
            self.requests.get_mut(&request).unwrap().1 = State::Done(result);
        }
        true
    }
}

/// The access of one rank to the fabric.
struct RankPort<'a>(&'a mut Fabric, u32);

impl MessageLayer for RankPort<'_> {
    fn send(&mut self, to: Rank, data: TypedBuffer) -> Result<Started, PmlError> {
        let refused = PmlError::Poisoned { by: to, failed: self.0.dead.map(Rank) };
        let refused = self.0.gave_up.contains(&to.0).then_some(refused);
        if let Some(error) = refused.or(self.0.why_never(to.0, self.1)) {
            self.0.failed_sends.insert(self.1);
            let request = self.0.request(self.1);
            self.0.requests.insert(request, (self.1, State::Done(Err(error))));
            return Ok(Started::Running(Request(key(request))));
        }
        // Eager: copied from the buffer now. Rendezvous: copied on delivery.
        let eager = self.0.always_eager || self.0.random.once_in(2);
        let (request, data) = if eager {
            let mut packed = vec![0; data.packed_bytes()];
            data.pack(0, packed.len(), &mut PayloadWriter::from(&mut packed[..]));
            (None, TypedBuffer::bytes(UserMemory::of_buffer(&Buffer::from_bytes(&packed))))
        } else {
            (Some(self.0.request(self.1)), data)
        };
        self.0.sent.entry((self.1, to.0)).or_default().push_back(Transfer {
            data,
            request,
            cancelled: false,
        });
        Ok(match request {
            Some(number) => Started::Running(Request(key(number))),
            None => Started::Done(Status::EMPTY),
        })
    }

    fn receive(&mut self, from: Rank, data: TypedBuffer) -> Result<Started, PmlError> {
        let request = self.0.request(self.1);
        let waiting = self.0.posted.get(&(from.0, self.1)).map_or(0, VecDeque::len);
        if self.whole_messages(from) <= waiting
            && let Some(error) = self.0.why_never(from.0, self.1)
        {
            self.0.requests.insert(request, (self.1, State::Done(Err(error))));
            return Ok(Started::Running(Request(key(request))));
        }
        let transfer = Transfer { data, request: Some(request), cancelled: false };
        self.0.posted.entry((from.0, self.1)).or_default().push_back(transfer);
        Ok(Started::Running(Request(key(request))))
    }

    fn whole_messages(&self, from: Rank) -> usize {
        self.0
            .sent
            .get(&(from.0, self.1))
            .map_or(0, |queue| queue.iter().filter(|sent| !sent.cancelled).count())
    }

    fn poll(&self, request: Request) -> State {
        self.0.requests[&number(request)].1
    }

    fn release(&mut self, request: Request) {
        let (owner, state) = self.0.requests.remove(&number(request)).expect("a request is released once");
        assert!(
            owner == self.1 && matches!(state, State::Done(_)),
            "a request is released by its owner, when it is done"
        );
    }

    fn has_ended(&self, _request: Request) -> bool {
        true
    }
    fn abandon(&mut self, request: Request) {
        for queue in self.0.posted.values_mut() {
            queue.retain(|transfer| transfer.request != Some(number(request)));
        }
        let sent =
            self.0.sent.values_mut().flatten().filter(|transfer| transfer.request == Some(number(request)));
        sent.for_each(|transfer| {
            (transfer.data, transfer.request, transfer.cancelled) = (TypedBuffer::empty(), None, true)
        });
        let (owner, _) = self.0.requests.remove(&number(request)).expect("a request is abandoned once");
        assert_eq!(owner, self.1, "a request is abandoned by its owner");
        self.0.gave_up.insert(owner);
    }
}

/// The components of a communicator of this size, with the defaults of all parameters.
fn selection(size: u32) -> Arc<Selection> {
    Framework::with_defaults(false).select(size)
}

fn schedule(me: Rank, size: u32, call: Collective) -> Result<Schedule, Error> {
    selection(size).schedule(me, size, call)
}

fn key(number: u32) -> Key {
    Key { index: number, generation: 1 }
}

fn number(request: Request) -> u32 {
    request.0.index
}

/// Executes all schedules, and returns their results. Panics if all ranks wait and no message can arrive.
fn run(fabric: &mut Fabric, schedules: &mut [Schedule]) -> Vec<Result<(), PmlError>> {
    let mut results = vec![None; schedules.len()];
    while results.iter().any(Option::is_none) {
        let (first, started) = (fabric.random.below(schedules.len() as u64) as usize, fabric.next);
        let mut moved = false;
        for rank in (first..schedules.len()).chain(0..first) {
            if results[rank].is_none() && !fabric.random.once_in(3) {
                results[rank] = schedules[rank].progress(&mut RankPort(fabric, rank as u32));
                moved |= results[rank].is_some();
            } else {
                moved |= results[rank].is_none();
            }
            moved |= fabric.random.once_in(2) && fabric.deliver();
        }
        assert!(
            moved || fabric.next != started || fabric.deliver(),
            "all ranks wait, and no message can arrive"
        );
    }
    results.into_iter().flatten().collect()
}

/// Asserts that every message was received, and no request is left.
fn assert_nothing_left(fabric: &Fabric) {
    assert!(fabric.sent.values().all(VecDeque::is_empty), "a message was not received");
    assert!(fabric.posted.values().all(VecDeque::is_empty), "a receive got no message");
    assert!(fabric.requests.is_empty(), "a request was not released");
}

fn run_successfully(seed: u64, calls: Vec<Collective>) {
    let size = calls.len() as u32;
    let schedules = calls.into_iter().enumerate();
    let schedules =
        schedules.map(|(me, call)| schedule(Rank(me as u32), size, call).expect("the call is correct"));
    run_all_successfully(seed, schedules.collect());
}

fn run_all_successfully(seed: u64, mut schedules: Vec<Schedule>) {
    let mut fabric = Fabric::new(seed);
    let results = run(&mut fabric, &mut schedules);
    assert!(results.iter().all(Result::is_ok));
    assert_nothing_left(&fabric);
}

fn buffer(values: &[i32]) -> Arc<Buffer> {
    Buffer::from_bytes(&values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>())
}

fn ints(buffer: &Arc<Buffer>) -> TypedBuffer {
    TypedBuffer::new(UserMemory::of_buffer(buffer), Datatype::INT, buffer.len() as u64 / 4)
}

fn values(buffer: &Buffer) -> Vec<i32> {
    buffer.to_vec().chunks_exact(4).map(|bytes| i32::from_ne_bytes(bytes.try_into().unwrap())).collect()
}

/// The `count` numbers that `rank` contributes.
fn own(rank: u32, count: usize) -> Vec<i32> {
    (0..count).map(|i| (rank as i32 + 1) * 1000 + i as i32).collect()
}

/// Calls `each` with every size, count and root.
fn cases(mut each: impl FnMut(u32, usize, u32)) {
    for size in SIZES {
        for count in [0, 1, 5] {
            for root in 0..size {
                each(size, count, root);
            }
        }
    }
}

#[test]
fn no_rank_leaves_a_barrier_before_all_have_entered() {
    for size in SIZES {
        for late in 0..size {
            let mut fabric = Fabric::new(u64::from(late));
            let start = |me| schedule(Rank(me), size, Collective::Barrier).unwrap();
            let mut schedules: Vec<Schedule> = (0..size).map(start).collect();
            loop {
                let mut over = false;
                let before = fabric.next;
                for me in (0..size).filter(|&me| me != late) {
                    over |= schedules[me as usize].progress(&mut RankPort(&mut fabric, me)).is_some();
                }
                assert!(!over, "a rank left before rank {late} of {size} entered");
                if !fabric.deliver() && fabric.next == before {
                    break;
                }
            }
            assert!(run(&mut fabric, &mut schedules).iter().all(Result::is_ok));
            assert_nothing_left(&fabric);
        }
    }
}

#[test]
fn a_broadcast_copies_the_data_of_the_root_to_all_ranks() {
    cases(|size, count, root| {
        let buffers: Vec<_> = (0..size).map(|me| buffer(&own(me, count))).collect();
        let call = |each| Collective::Bcast { data: ints(each), root: Rank(root) };
        run_successfully(u64::from(root), buffers.iter().map(call).collect());
        buffers.iter().for_each(|each| assert_eq!(values(each), own(root, count)));
    });
}

#[test]
fn a_reduction_gives_the_sum_at_the_root_and_changes_no_other_buffer() {
    cases(|size, count, root| {
        for in_place in [false, true] {
            let sends: Vec<_> = (0..size).map(|me| buffer(&own(me, count))).collect();
            let result = buffer(&own(root, count));
            let call = |me: u32| Collective::Reduce {
                send: (!(in_place && me == root)).then(|| ints(&sends[me as usize])),
                receive: (me == root).then(|| ints(&result)),
                op: Op::Sum,
                root: Rank(root),
            };
            run_successfully(1, (0..size).map(call).collect());
            let sum: Vec<i32> = (0..count).map(|i| (0..size).map(|me| own(me, count)[i]).sum()).collect();
            assert_eq!(values(&result), sum);
            sends.iter().zip(0..).for_each(|(send, me)| assert_eq!(values(send), own(me, count)));
        }
    });
}

#[test]
fn an_allreduce_gives_the_maximum_at_all_ranks() {
    for (size, count, in_place) in SIZES.flat_map(|n| [(n, 0, false), (n, 5, false), (n, 5, true)]) {
        let sends: Vec<_> = (0..size).map(|me| buffer(&own(me, count))).collect();
        let results: Vec<_> = (0..size).map(|me| buffer(&own(me, count))).collect();
        let call = |me: usize| Collective::Allreduce {
            send: (!in_place).then(|| ints(&sends[me])),
            receive: ints(&results[me]),
            op: Op::Max,
        };
        run_successfully(3, (0..size as usize).map(call).collect());
        results.iter().for_each(|each| assert_eq!(values(each), own(size - 1, count)));
    }
}

#[test]
fn an_allreduce_of_doubles_gives_all_ranks_the_same_bits() {
    for size in SIZES {
        for seed in 0..20 {
            let mut random = Random(seed);
            let mut draw = || f64::from_bits(random.bits() >> 2 | 0x3000_0000_0000_0000).to_ne_bytes();
            let buffers: Vec<_> = (0..size)
                .map(|_| Buffer::from_bytes(&[draw(), draw(), f64::NAN.to_ne_bytes()].concat()))
                .collect();
            let call = |each| Collective::Allreduce {
                send: None,
                receive: TypedBuffer::new(UserMemory::of_buffer(each), Datatype::DOUBLE, 3),
                op: Op::Sum,
            };
            run_successfully(seed, buffers.iter().map(call).collect());
            buffers.iter().for_each(|each| assert_eq!(each.to_vec(), buffers[0].to_vec()));
        }
    }
}

#[test]
fn an_allreduce_of_pairs_finds_the_least_and_where_it_is() {
    let two_int = Datatype::from_handle(0x22b).unwrap();
    for size in SIZES {
        // Every second rank has the same value: the lowest of these ranks must win.
        let buffers: Vec<_> = (0..size as i32).map(|me| buffer(&[5 - me % 2, me])).collect();
        let call = |each| Collective::Allreduce {
            send: None,
            receive: TypedBuffer::new(UserMemory::of_buffer(each), two_int, 1),
            op: Op::Minloc,
        };
        run_successfully(9, buffers.iter().map(call).collect());
        let least = if size == 1 { vec![5, 0] } else { vec![4, 1] };
        buffers.iter().for_each(|each| assert_eq!(values(each), least));
    }
}

fn all_blocks(size: u32, count: usize) -> Vec<i32> {
    (0..size).flat_map(|me| own(me, count)).collect()
}

#[test]
fn a_gather_puts_the_blocks_in_the_order_of_ranks() {
    cases(|size, count, root| {
        for in_place in [false, true] {
            let sends: Vec<_> = (0..size).map(|me| buffer(&own(me, count))).collect();
            let mut before = vec![-1; size as usize * count];
            if in_place {
                before[root as usize * count..][..count].copy_from_slice(&own(root, count));
            }
            let all = buffer(&before);
            let call = |me: u32| Collective::Gather {
                send: (!(in_place && me == root)).then(|| ints(&sends[me as usize])),
                receive: (me == root).then(|| ints(&all)),
                root: Rank(root),
            };
            run_successfully(4, (0..size).map(call).collect());
            assert_eq!(values(&all), all_blocks(size, count));
        }
    });
}

#[test]
fn a_scatter_gives_each_rank_its_block() {
    cases(|size, count, root| {
        for in_place in [false, true] {
            let all = buffer(&all_blocks(size, count));
            let blocks: Vec<_> = (0..size).map(|_| buffer(&vec![-1; count])).collect();
            let call = |me: u32| Collective::Scatter {
                send: (me == root).then(|| ints(&all)),
                receive: (!(in_place && me == root)).then(|| ints(&blocks[me as usize])),
                root: Rank(root),
            };
            run_successfully(5, (0..size).map(call).collect());
            for (block, me) in blocks.iter().zip(0..) {
                let untouched = in_place && me == root;
                assert_eq!(values(block), if untouched { vec![-1; count] } else { own(me, count) });
            }
            assert_eq!(values(&all), all_blocks(size, count));
        }
    });
}

#[test]
fn an_allgather_gives_all_ranks_all_blocks() {
    for (size, count, in_place) in SIZES.flat_map(|n| [(n, 0, false), (n, 3, false), (n, 3, true)]) {
        let sends: Vec<_> = (0..size).map(|me| buffer(&own(me, count))).collect();
        let results: Vec<_> = (0..size)
            .map(|me| {
                let mut before = vec![-1; size as usize * count];
                if in_place {
                    before[me as usize * count..][..count].copy_from_slice(&own(me, count));
                }
                buffer(&before)
            })
            .collect();
        let call = |me: usize| Collective::Allgather {
            send: (!in_place).then(|| ints(&sends[me])),
            receive: ints(&results[me]),
        };
        run_successfully(6, (0..size as usize).map(call).collect());
        results.iter().for_each(|each| assert_eq!(values(each), all_blocks(size, count)));
    }
}

#[test]
fn an_alltoall_is_a_transposition() {
    let block = |from: u32, to: u32, count: usize| -> Vec<i32> {
        (0..count).map(|i| (from * 100_000 + to * 1000) as i32 + i as i32).collect()
    };
    for (size, count, in_place) in SIZES.flat_map(|n| [(n, 0, false), (n, 3, false), (n, 3, true)]) {
        let row = |me: u32| -> Vec<i32> { (0..size).flat_map(|to| block(me, to, count)).collect() };
        let column = |me: u32| -> Vec<i32> { (0..size).flat_map(|from| block(from, me, count)).collect() };
        let sends: Vec<_> = (0..size).map(|me| buffer(&row(me))).collect();
        let blank = |me| if in_place { row(me) } else { vec![-1; size as usize * count] };
        let results: Vec<_> = (0..size).map(|me| buffer(&blank(me))).collect();
        let call = |me: usize| Collective::Alltoall {
            send: (!in_place).then(|| ints(&sends[me])),
            receive: ints(&results[me]),
        };
        run_successfully(7, (0..size as usize).map(call).collect());
        results.iter().zip(0..).for_each(|(each, me)| assert_eq!(values(each), column(me)));
        sends.iter().zip(0..).for_each(|(each, me)| assert_eq!(values(each), row(me)));
    }
}

/// Executes an alltoall of five ranks in which request number `failing`, if there is one, ends with this error. Returns the results of the
/// ranks.
fn with_error(failing: u32, error: PmlError) -> (Fabric, Vec<Option<Result<(), PmlError>>>) {
    let (size, count) = (5, 4);
    let buffers: Vec<_> = (0..size).map(|_| buffer(&vec![1; size as usize * count])).collect();
    let mut fabric = Fabric::new(failing.into());
    fabric.failing = Some((failing, error));
    let call = |each| Collective::Alltoall { send: None, receive: ints(each) };
    let mut schedules: Vec<Schedule> =
        (0..size).zip(&buffers).map(|(me, each)| schedule(Rank(me), size, call(each)).unwrap()).collect();
    let mut over = vec![None; size as usize];
    for _ in 0..2000 {
        for me in 0..size {
            let result = schedules[me as usize].progress(&mut RankPort(&mut fabric, me));
            let left = fabric.requests.values().any(|&(owner, _)| owner == me);
            assert!(result.is_none() || !left, "the schedule is over, but a request is left");
            over[me as usize] = result;
        }
        fabric.deliver();
    }
    (fabric, over)
}

#[test]
fn an_error_ends_the_schedule_with_no_request_left_behind() {
    for failing in 1..200 {
        let (fabric, over) = with_error(failing, PmlError::PeerLeft(Rank(0)));
        let failed = over.iter().flatten().filter(|result| result.is_err()).count();
        assert_eq!(failed, usize::from(failing <= fabric.next), "the one whose request failed says so");
    }
}

#[test]
fn a_truncated_message_is_reported_and_no_rank_waits_for_ever() {
    for failing in 1..200 {
        let (fabric, over) = with_error(failing, PmlError::Truncated(Status::EMPTY));
        assert!(over.iter().all(Option::is_some), "a rank waits");
        let failed = over.iter().flatten().filter(|result| result.is_err()).count();
        assert_eq!(failed, usize::from(failing <= fabric.next), "the one whose request failed says so");
        assert_nothing_left(&fabric);
    }
}

/// Makes the call of a rank over its buffer.
type Call = Box<dyn Fn(Rank, &Arc<Buffer>) -> Collective>;

/// The calls of `size` ranks, for every kind of collective operation.
fn kinds(size: u32) -> Vec<Call> {
    let root = Rank(size / 2);
    let block = |of: &Arc<Buffer>| ints(of).elements(0, 2).expect("the buffer has two elements");
    let op = Op::Sum;
    vec![
        Box::new(|_, _| Collective::Barrier),
        Box::new(move |_, all| Collective::Allreduce { send: None, receive: ints(all), op }),
        Box::new(|_, all| Collective::Alltoall { send: None, receive: ints(all) }),
        Box::new(|_, all| Collective::Allgather { send: None, receive: ints(all) }),
        Box::new(move |_, all| Collective::Bcast { data: ints(all), root }),
        Box::new(move |me, all| Collective::Reduce {
            send: (me != root).then(|| ints(all)),
            receive: (me == root).then(|| ints(all)),
            op,
            root,
        }),
        Box::new(move |me, all| Collective::Gather {
            send: (me != root).then(|| block(all)),
            receive: (me == root).then(|| ints(all)),
            root,
        }),
        Box::new(move |me, all| Collective::Scatter {
            send: (me == root).then(|| ints(all)),
            receive: (me != root).then(|| block(all)),
            root,
        }),
    ]
}

/// The first kinds are those in which every rank needs data of every rank.
const SYMMETRIC_KINDS: usize = 4;

/// An operation in which one member dies after it has made progress a number of times.
struct Job {
    random: Random,
    fabric: Fabric,
    buffers: Vec<Arc<Buffer>>,
    schedules: Vec<Schedule>,
    over: Vec<Option<Result<(), PmlError>>>,
    /// The content of each buffer when the schedule was over.
    final_bytes: Vec<Option<Vec<u8>>>,
    victim: u32,
}

impl Job {
    /// Runs until the member is dead. The same arguments give the same job.
    fn until_death(seed: u64, size: u32, kind: usize, victim: u32, steps: u64) -> Job {
        let mut random = Random(seed);
        let fabric = Fabric::new(random.bits());
        let buffers: Vec<_> = (0..size).map(|me| buffer(&own(me, 2 * size as usize))).collect();
        let call = &kinds(size)[kind];
        let start = |me: u32| schedule(Rank(me), size, call(Rank(me), &buffers[me as usize])).unwrap();
        let schedules = (0..size).map(start).collect();
        let (over, final_bytes) = (vec![None; size as usize], vec![None; size as usize]);
        let mut job = Job { random, fabric, buffers, schedules, over, final_bytes, victim };
        let mut taken = 0;
        while taken < steps {
            let me = job.random.below(size.into()) as u32;
            job.progress(me);
            taken += u64::from(me == victim);
            job.fabric.deliver();
        }
        job.fabric.dead = Some(victim);
        job
    }

    /// One rank makes progress. If its schedule ends with an error, it poisons those that expect its messages.
    fn progress(&mut self, me: u32) {
        let at = me as usize;
        if self.over[at].is_some() {
            return;
        }
        let schedule = &mut self.schedules[at];
        self.over[at] = schedule.progress(&mut RankPort(&mut self.fabric, me));
        let Some(result) = self.over[at] else { return };
        let left = self.fabric.requests.values().any(|&(owner, _)| owner == me);
        assert!(!left, "the schedule is over, but a request is left");
        self.final_bytes[at] = Some(self.buffers[at].to_vec());
        if result.is_err() {
            let owed: Vec<u32> = self.schedules[at].owed().map(|rank| rank.0).collect();
            self.fabric.poison.extend(owed.into_iter().map(|to| (me, to)));
            self.fabric.gave_up.insert(me);
            (0..self.schedules.len() as u32).for_each(|other| self.fabric.refuse(other, me));
        }
    }

    /// A rank is notified of the death.
    fn notify(&mut self, me: u32) {
        if self.fabric.notified.insert(me) {
            self.fabric.end_waiting(self.victim, me);
            let (port, error) =
                (&mut RankPort(&mut self.fabric, me), PmlError::ProcFailed(Rank(self.victim)));
            self.schedules[me as usize].on_death(port, Rank(self.victim), error);
        }
    }

    /// One step of the survivors. Returns whether all are over.
    fn step(&mut self) -> bool {
        let size = self.schedules.len() as u32;
        let me = self.random.below(size.into()) as u32;
        if me != self.victim {
            self.progress(me);
        }
        self.fabric.deliver();
        for (from, to) in self.fabric.poison.clone() {
            self.fabric.end_waiting(from, to);
        }
        (0..size).all(|me| me == self.victim || self.over[me as usize].is_some())
    }
}

/// The ranks that succeed if nobody is notified of the death and no send waits for its receiver: those that do not need what the dead
/// has not sent.
fn independent(mut job: Job) -> Vec<bool> {
    job.fabric.always_eager = true;
    for _ in 0..4_000 {
        if job.step() {
            break;
        }
    }
    job.over.iter().map(|over| *over == Some(Ok(()))).collect()
}

/// One member dies, and the others are notified one by one.
fn with_death(seed: u64, size: u32, kind: usize, victim: u32, steps: u64) {
    let independent = independent(Job::until_death(seed, size, kind, victim, steps));
    let mut job = Job::until_death(seed, size, kind, victim, steps);
    // Some are never notified: poison ends what they wait for.
    let never = Random(seed).below(2);
    let mut first = None;
    for step in 0.. {
        let me = job.random.below(size.into()) as u32;
        let needs = job.over[me as usize].is_none() && job.random.once_in(40);
        let may = never == 0 || first.is_none_or(|first| first == me) || step > 10_000;
        if me != victim && needs && may {
            first.get_or_insert(me);
            job.notify(me);
        }
        if job.step() {
            break;
        }
        assert!(step < 40_000, "seed {seed}: a survivor waits for ever");
    }
    while job.fabric.deliver() {}
    for me in (0..size as usize).filter(|&me| me != victim as usize) {
        let result = job.over[me].expect("the schedule is over");
        match result {
            Ok(()) => {
                assert!(independent[me], "seed {seed}: kind {kind}: {me} lacks what the dead never sent")
            }
            // Row CO1: success, or the failure of the dead member.
            Err(PmlError::ProcFailed(rank) | PmlError::Poisoned { failed: Some(rank), .. }) => {
                assert_eq!(rank, Rank(victim), "seed {seed}");
                // Where all need the dead, a rank gives up as soon as it knows that a later round will fail.
                let exact = kind >= SYMMETRIC_KINDS || job.over[victim as usize] == Some(Ok(()));
                let sent_all = !job.fabric.failed_sends.contains(&(me as u32));
                let needless = exact && independent[me] && sent_all;
                assert!(!needless, "seed {seed}: kind {kind}: {me} did not need the dead");
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
        // Row CO2: no rank has a result that needs data which the dead member never sent.
        assert!(
            result.is_err() || steps > 0 || kind >= SYMMETRIC_KINDS,
            "seed {seed}: kind {kind} succeeded without a member"
        );
        // Row CO11.
        assert_eq!(
            job.final_bytes[me].as_ref(),
            Some(&job.buffers[me].to_vec()),
            "seed {seed}: a buffer was written after the end of the schedule"
        );
    }
}

#[test]
fn a_survivor_of_a_death_at_any_step_returns_the_failure_exactly_if_it_needs_the_dead_and_writes_nothing_after()
 {
    for seed in 0..2000 {
        let mut random = Random(seed);
        let size = 2 + random.below(8) as u32;
        let (kind, victim) = (random.below(8) as usize, random.below(size.into()) as u32);
        with_death(seed, size, kind, victim, random.below(8));
    }
}

#[test]
fn without_fault_tolerance_the_members_agree_by_a_schedule_on_the_bitwise_and() {
    for size in SIZES {
        for seed in 0..8 {
            let mut random = Random(seed);
            let flags: Vec<i32> =
                (0..size).map(|_| (random.bits() | random.bits() | random.bits()) as i32).collect();
            let buffers: Vec<_> = flags.iter().map(|&flag| buffer(&[flag])).collect();
            let agree = |(me, flag)| selection(size).agree(Rank(me), size, &ints(flag), AgreeOn::All);
            let schedules = (0..size).zip(&buffers).map(agree);
            let schedules =
                schedules.map(|built| built.expect("by a schedule").expect("the call is correct"));
            run_all_successfully(seed, schedules.collect());
            let all = flags.iter().fold(-1, |all, flag| all & flag);
            assert!(buffers.iter().all(|flag| values(flag) == [all]), "{size} ranks, seed {seed}");
        }
    }
}

// Row AG9
#[test]
fn without_fault_tolerance_each_group_of_an_intercommunicator_gets_the_and_of_the_other_one() {
    for (size, first) in SIZES.flat_map(|size| (1..size).map(move |first| (size, first))) {
        let mut random = Random(u64::from(size * first));
        let flags: Vec<i32> =
            (0..size).map(|_| (random.bits() | random.bits() | random.bits()) as i32).collect();
        let buffers: Vec<_> = flags.iter().map(|&flag| buffer(&[flag])).collect();
        let on = |me| if me < first { AgreeOn::SecondGroup } else { AgreeOn::FirstGroup };
        let agree = |(me, flag)| selection(size).agree(Rank(me), size, &ints(flag), on(me));
        let schedules = (0..size).zip(&buffers).map(agree);
        let schedules = schedules.map(|built| built.expect("by a schedule").expect("the call is correct"));
        run_all_successfully(u64::from(first), schedules.collect());
        let (low, high) = flags.split_at(first as usize);
        let all = |flags: &[i32]| flags.iter().fold(-1, |all, flag| all & flag);
        for (me, flag) in (0..size).zip(&buffers) {
            let expected = if me < first { all(high) } else { all(low) };
            assert_eq!(values(flag), [expected], "rank {me} of {size}, {first} in the first group");
        }
    }
}

#[test]
fn wrong_calls_are_refused_before_anything_is_sent() {
    let five = buffer(&[0; 5]);
    let six = buffer(&[0; 6]);
    let refused = |me, size, call| schedule(Rank(me), size, call).err();
    let data = || ints(&five);
    assert_eq!(refused(0, 2, Collective::Bcast { data: data(), root: Rank(2) }), Some(Error::Root));
    let gather = Collective::Gather { send: None, receive: Some(data()), root: Rank(0) };
    assert_eq!(refused(0, 2, gather), Some(Error::Count));
    let gather = Collective::Gather { send: None, receive: None, root: Rank(0) };
    assert_eq!(refused(1, 2, gather), Some(Error::Buffer));
    let differ = Collective::Allreduce { send: Some(ints(&six)), receive: data(), op: Op::Sum };
    assert_eq!(refused(0, 2, differ), Some(Error::Count));
    for op in [Op::Minloc, Op::Replace, Op::NoOp] {
        assert_eq!(
            refused(0, 2, Collective::Allreduce { send: None, receive: data(), op }),
            Some(Error::Operation)
        );
    }
}
