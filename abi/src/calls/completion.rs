// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ends of requests: waiting, testing, freeing, cancelling (MPI-5.0 §3.7.3-3.8.4). What the eight calls of the first kind
//! answer stands in one table, `array_calls`; here is what they answer into.

use crate::array_calls::{Answers, Found, Look, Requests, Want, attempt};
use crate::check::ArgumentError;
use crate::entry::Failure;
use crate::generated::constants::{REQUEST_NULL, UNDEFINED};
use crate::handle::Handle;
use crate::pointer::{Out, OutArray};
use crate::requests::{Live, named};
use crate::status::{Status, Statuses};
use core::ffi::c_int;
use mend_world::{Engine, World};

/// The user's arrays.
struct Users {
    requests: OutArray<Handle>,
    statuses: Statuses,
    /// Of calls that return several statuses: each with its error.
    several: bool,
    indices: Option<OutArray<c_int>>,
}

impl Answers for Users {
    fn ended(&mut self, index: usize) {
        self.requests.set(index, REQUEST_NULL);
    }

    fn status(&mut self, place: usize, status: Status) {
        if self.several {
            self.statuses.set(place, status);
        } else {
            self.statuses.set_one(status);
        }
    }

    fn index(&mut self, place: usize, index: usize) {
        if let Some(indices) = self.indices {
            indices.set(place, index as c_int);
        }
    }
}

/// Copies of handles: the user's array is not read again.
#[expect(
    clippy::large_enum_variant,
    reason = "it lives in the call's frame, so that few handles need no heap"
)]
enum Copied {
    One(Handle),
    Few([Handle; FEW], usize),
    Many(Vec<Handle>),
}

/// As many handles as are copied without memory of the heap.
const FEW: usize = 64;

impl Copied {
    fn of(requests: OutArray<Handle>, count: usize) -> Result<Copied, Failure> {
        requests.check(count)?;
        if count > FEW {
            return Ok(Copied::Many((0..count).map(|index| requests.get(index)).collect()));
        }
        let mut few = [REQUEST_NULL; FEW];
        for (index, place) in few.iter_mut().enumerate().take(count) {
            *place = requests.get(index);
        }
        Ok(Copied::Few(few, count))
    }

    fn handles(&self) -> &[Handle] {
        match self {
            Copied::One(handle) => core::slice::from_ref(handle),
            Copied::Few(few, count) => &few[..*count],
            Copied::Many(many) => many,
        }
    }
}

/// Waits until the call has found what it is after.
fn waited(
    world: &World,
    want: Want,
    copied: &Copied,
    users: &mut Users,
) -> Result<(Found, Option<Failure>), Failure> {
    let mut watch = Watch { first: 0, looks: 0, news: None };
    world.wait(|engine| {
        if want == Want::All && watch.is_early(copied.handles(), engine) {
            return None;
        }
        let mut answer = attempt(want, copied.handles(), &mut Live::new(engine), users);
        if matches!(answer, Ok((Found::NotYet, _)))
            && engine.some_may_be_unsatisfiable()
            && end_unsatisfiable(world, want, copied.handles(), engine)
        {
            answer = attempt(want, copied.handles(), &mut Live::new(engine), users);
        }
        match answer {
            Ok((Found::NotYet, _)) => None,
            answer => Some(answer),
        }
    })
}

/// Where no other thread can begin anything meanwhile, receives that only this process could serve end. A call that another
/// request may still end waits for that one: its caller may go on and send to itself.
#[cold]
fn end_unsatisfiable(world: &World, want: Want, handles: &[Handle], engine: &mut Engine) -> bool {
    let mut requests = handles.iter().filter_map(|&handle| named(handle).ok().flatten());
    let is_unsatisfiable = |request| engine.is_unsatisfiable(request);
    let in_vain = match want {
        Want::All => requests.clone().any(is_unsatisfiable),
        Want::Any | Want::Some => requests.clone().all(is_unsatisfiable),
    };
    if !in_vain || !world.is_alone() {
        return false;
    }
    match want {
        Want::All => requests.filter(|&request| engine.end_unsatisfiable(request)).count() > 0,
        Want::Any | Want::Some => requests.next().is_some_and(|first| engine.end_unsatisfiable(first)),
    }
}

/// Spares Waitall a look at every request in every turn: while the first that was active still is, all are looked at every
/// 16th time only, and whenever a death was published (a fault at a later one must end the call too, and a thread that parks
/// is rung once for it). Few are looked at every time.
struct Watch {
    first: usize,
    looks: u32,
    /// The registry's version at the last look; `None` before the first.
    news: Option<u32>,
}

/// So many requests are looked at every time.
const ALWAYS: usize = 16;

impl Watch {
    // Hot: per turn of a waiting call.
    fn is_early(&mut self, handles: &[Handle], engine: &mut Engine) -> bool {
        self.looks = self.looks.wrapping_add(1);
        let news = engine.registry().version();
        let heard = self.news.replace(news) != Some(news);
        if handles.len() <= ALWAYS || heard || self.looks.is_multiple_of(16) {
            return false;
        }
        let mut live = Live::new(engine);
        while let Some(&handle) = handles.get(self.first) {
            match live.look(handle) {
                Look::Active => return true,
                Look::Null | Look::Over(_, None) => self.first += 1,
                Look::Over(_, Some(_)) | Look::Stalled(_) | Look::Stale(_) => return false,
            }
        }
        false
    }
}

/// Looks once, after a turn of the crank.
fn tested(
    world: &World,
    want: Want,
    copied: &Copied,
    users: &mut Users,
) -> Result<(Found, Option<Failure>), Failure> {
    world.with_progress(|engine| attempt(want, copied.handles(), &mut Live::new(engine), users))
}

fn outcome(failure: Option<Failure>) -> Result<(), Failure> {
    failure.map_or(Ok(()), Err)
}

// Hot: per message.
fn one(request: Out<Handle>, status: Statuses) -> (Copied, Users) {
    let users = Users { requests: request.as_array(), statuses: status, several: false, indices: None };
    (Copied::One(request.get()), users)
}

// Row WT1
pub(crate) fn wait(world: &World, request: Out<Handle>, status: Statuses) -> Result<(), Failure> {
    let (copied, mut users) = one(request, status);
    let (found, failure) = waited(world, Want::Any, &copied, &mut users)?;
    if found == Found::Nothing {
        status.set_one(Status::EMPTY);
    }
    outcome(failure)
}

// Row WT2
pub(crate) fn test(
    world: &World,
    request: Out<Handle>,
    flag: Out<c_int>,
    status: Statuses,
) -> Result<(), Failure> {
    flag.set(0);
    let (copied, mut users) = one(request, status);
    let (found, failure) = tested(world, Want::Any, &copied, &mut users)?;
    match found {
        Found::Nothing => {
            flag.set(1);
            status.set_one(Status::EMPTY);
        }
        Found::One { over, .. } => flag.set(c_int::from(over)),
        Found::NotYet | Found::All { .. } | Found::Several { .. } => {}
    }
    outcome(failure)
}

// Rows WT5, WT6
pub(crate) fn waitall(
    world: &World,
    count: usize,
    requests: OutArray<Handle>,
    statuses: Statuses,
) -> Result<(), Failure> {
    let copied = Copied::of(requests, count)?;
    let mut users = Users { requests, statuses, several: true, indices: None };
    outcome(waited(world, Want::All, &copied, &mut users)?.1)
}

// Row WT7
pub(crate) fn testall(
    world: &World,
    count: usize,
    requests: OutArray<Handle>,
    flag: Out<c_int>,
    statuses: Statuses,
) -> Result<(), Failure> {
    flag.set(0);
    let copied = Copied::of(requests, count)?;
    let mut users = Users { requests, statuses, several: true, indices: None };
    let (found, failure) = tested(world, Want::All, &copied, &mut users)?;
    flag.set(c_int::from(matches!(found, Found::Nothing | Found::All { over: true })));
    outcome(failure)
}

// Row WT3
pub(crate) fn waitany(
    world: &World,
    count: usize,
    requests: OutArray<Handle>,
    index: Out<c_int>,
    status: Statuses,
) -> Result<(), Failure> {
    index.set(UNDEFINED);
    let copied = Copied::of(requests, count)?;
    let mut users = Users { requests, statuses: status, several: false, indices: None };
    let (found, failure) = waited(world, Want::Any, &copied, &mut users)?;
    match found {
        Found::One { index: at, .. } => index.set(at as c_int),
        Found::Nothing | Found::NotYet | Found::All { .. } | Found::Several { .. } => {
            status.set_one(Status::EMPTY)
        }
    }
    outcome(failure)
}

// Row WT4
pub(crate) fn testany(
    world: &World,
    count: usize,
    requests: OutArray<Handle>,
    index: Out<c_int>,
    flag: Out<c_int>,
    status: Statuses,
) -> Result<(), Failure> {
    flag.set(0);
    index.set(UNDEFINED);
    let copied = Copied::of(requests, count)?;
    let mut users = Users { requests, statuses: status, several: false, indices: None };
    let (found, failure) = tested(world, Want::Any, &copied, &mut users)?;
    match found {
        Found::One { index: at, over } => {
            index.set(at as c_int);
            flag.set(c_int::from(over));
        }
        Found::Nothing => {
            flag.set(1);
            status.set_one(Status::EMPTY);
        }
        Found::NotYet | Found::All { .. } | Found::Several { .. } => {}
    }
    outcome(failure)
}

// Row WT8
pub(crate) fn waitsome(
    world: &World,
    count: usize,
    requests: OutArray<Handle>,
    out_count: Out<c_int>,
    indices: OutArray<c_int>,
    statuses: Statuses,
) -> Result<(), Failure> {
    let copied = Copied::of(requests, count)?;
    indices.check(count)?;
    let mut users = Users { requests, statuses, several: true, indices: Some(indices) };
    let (found, failure) = waited(world, Want::Some, &copied, &mut users)?;
    out_count.set(counted(found));
    outcome(failure)
}

// Row WT9
pub(crate) fn testsome(
    world: &World,
    count: usize,
    requests: OutArray<Handle>,
    out_count: Out<c_int>,
    indices: OutArray<c_int>,
    statuses: Statuses,
) -> Result<(), Failure> {
    let copied = Copied::of(requests, count)?;
    indices.check(count)?;
    let mut users = Users { requests, statuses, several: true, indices: Some(indices) };
    let (found, failure) = tested(world, Want::Some, &copied, &mut users)?;
    out_count.set(counted(found));
    outcome(failure)
}

fn counted(found: Found) -> c_int {
    match found {
        Found::Several { count } => count as c_int,
        Found::Nothing => UNDEFINED,
        Found::NotYet | Found::All { .. } | Found::One { .. } => 0,
    }
}

pub(crate) fn request_free(world: &World, request: Out<Handle>) -> Result<(), Failure> {
    let handle = request.get();
    world.with(|engine| {
        check_standing(handle, engine)?;
        if let Some(named) = named(handle)? {
            engine.detach(named);
        }
        Ok::<(), Failure>(())
    })?;
    request.set(REQUEST_NULL);
    Ok(())
}

/// Receives that nothing has matched are taken back; everything else goes on, and is not cancelled (MPI-5.0 §3.8.4).
pub(crate) fn cancel(world: &World, request: Out<Handle>) -> Result<(), Failure> {
    let handle = request.get();
    world.with(|engine| {
        check_standing(handle, engine)?;
        if let Some(named) = named(handle)? {
            engine.cancel(named);
        }
        Ok(())
    })
}

fn check_standing(handle: Handle, engine: &mut Engine) -> Result<(), Failure> {
    match Live::new(engine).look(handle) {
        Look::Null => Err(ArgumentError::Request.into()),
        Look::Stale(failure) => Err(failure),
        Look::Active | Look::Stalled(_) | Look::Over(..) => Ok(()),
    }
}
