// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two halves of MPI_Sendrecv. Where one fails, nothing of the other goes on in the program's buffers when the call
//! returns, and what the living have matched already they get (row PP16):
//!
//! | one half                   | the other, still running                                                        |
//! |----------------------------|---------------------------------------------------------------------------------|
//! | the send fails             | a receive that nothing has matched is cancelled; one that has ends               |
//! | the receive ends by a fault| the send continues from a copy; where no memory is left for one, it is waited for|
//! | the receive is truncated   | the send is waited for                                                          |

use crate::{Blocking, CommKey, Engine, Error, Started};
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_datatype::TypedBuffer;
use mend_pml::{SendMode, Status};
use mend_runtime::Runtime;
use mend_transport::Btl;

/// The two operations.
#[derive(Debug)]
pub struct Sendrecv {
    send: Half,
    receive: Half,
}

/// How both ended; `None`: to or from `MPI_PROC_NULL`, or a send that continues from a copy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Exchanged {
    /// The send.
    pub sent: Option<Result<Status, Error>>,
    /// The receive.
    pub received: Option<Result<Status, Error>>,
}

#[derive(Debug)]
enum Half {
    NoOperation,
    Running(Blocking),
    Over(Result<Status, Error>),
}

impl Sendrecv {
    /// Starts both; `None`: `MPI_PROC_NULL`. The receive is first, so that two ranks that exchange long messages need no memory
    /// in between. `Err`: an argument of the receive, and nothing was started.
    pub fn start<N: Btl, R: Runtime>(
        engine: &mut Engine<N, R>,
        comm: CommKey,
        send: Option<(Rank, Tag, TypedBuffer)>,
        receive: Option<(Source, TagSelector, TypedBuffer)>,
    ) -> Result<Sendrecv, Error> {
        let receive = match receive {
            None => Half::NoOperation,
            Some((from, tag, data)) => Half::begun(engine.receive(comm, from, tag, data)?),
        };
        let send = match send {
            None => Half::NoOperation,
            Some((to, tag, data)) => match engine.send(comm, to, tag, SendMode::Standard, data) {
                Ok(started) => Half::begun(started),
                Err(error) => Half::Over(Err(error)),
            },
        };
        Ok(Sendrecv { send, receive })
    }

    /// How both ended, once nothing goes on in the program's buffers. `threads`: as
    /// [`Completion::poll`](crate::Completion::poll) asks.
    pub fn poll<N: Btl, R: Runtime>(
        &mut self,
        engine: &mut Engine<N, R>,
        threads: impl Fn() -> Option<u32>,
    ) -> Option<Exchanged> {
        self.send.advance(engine, &threads);
        self.receive.advance(engine, &threads);
        if self.send.error().is_some()
            && let Half::Running(receive) = &self.receive
        {
            mend_base::reach!("mpi.sendrecv: the receive is cancelled");
            engine.cancel(receive.request());
            self.receive.advance(engine, &threads);
        }
        if self.receive.error().is_some_and(|error| error.class.is_fault())
            && let Half::Running(send) = &self.send
            && engine.continue_from_copy(send.request())
        {
            mend_base::reach!("mpi.sendrecv: the send continues from a copy");
            self.send = Half::NoOperation;
        }
        Some(Exchanged { sent: self.send.result()?, received: self.receive.result()? })
    }

    /// Nobody waits any more.
    pub(crate) fn give_up<N: Btl, R: Runtime>(&self, engine: &mut Engine<N, R>) {
        for half in [&self.send, &self.receive] {
            if let Half::Running(blocking) = half {
                blocking.give_up(engine);
            }
        }
    }
}

impl Half {
    fn begun(started: Started) -> Half {
        match started {
            Started::Done(status) => Half::Over(Ok(status)),
            Started::Running(request) => Half::Running(Blocking::new(request)),
        }
    }

    fn advance<N: Btl, R: Runtime>(
        &mut self,
        engine: &mut Engine<N, R>,
        threads: impl FnOnce() -> Option<u32>,
    ) {
        if let Half::Running(blocking) = self
            && let Some(result) = blocking.poll(engine, threads)
        {
            *self = Half::Over(result);
        }
    }

    fn error(&self) -> Option<Error> {
        if let Half::Over(Err(error)) = self { Some(*error) } else { None }
    }

    /// `None` while it runs.
    fn result(&self) -> Option<Option<Result<Status, Error>>> {
        match self {
            Half::NoOperation => Some(None),
            Half::Running(_) => None,
            Half::Over(result) => Some(Some(*result)),
        }
    }
}
