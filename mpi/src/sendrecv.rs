// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MPI_Sendrecv, whose halves are a send and a receive. If one half fails, the other does not use the buffers of the program any
//! more when the call returns, and a living peer still gets a message that it has matched (row PP16):
//!
//! | one half                                        | the other half, which still runs                                                |
//! |-------------------------------------------------|---------------------------------------------------------------------------------|
//! | the send fails                                  | a receive that no message has matched is cancelled; else it is waited for        |
//! | the receive ends with a fault-tolerance error   | the send continues from a copy; if there is no memory for one, it is waited for |
//! | the receive is truncated                        | the send is waited for                                                          |

use crate::{BlockingOperation, CommKey, Engine, Error, Started};
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_datatype::TypedBuffer;
use mend_pml::{SendMode, Status};
use mend_runtime::Runtime;
use mend_transport::Rdma;

/// A call of MPI_Sendrecv.
#[derive(Debug)]
pub struct Sendrecv {
    send: Half,
    receive: Half,
}

/// The results of both halves. `None`: the half is to or from `MPI_PROC_NULL`, or is a send that continues from a copy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Exchanged {
    /// The send.
    pub sent: Option<Result<Status, Error>>,
    /// The receive.
    pub received: Option<Result<Status, Error>>,
}

#[derive(Debug)]
enum Half {
    /// With `MPI_PROC_NULL`, or continued from a copy.
    NoOperation,
    Running(BlockingOperation),
    Over(Result<Status, Error>),
}

impl Sendrecv {
    /// Starts both halves; `None`: `MPI_PROC_NULL`. The receive is started first, so that the message of a rank that does the same
    /// finds it posted. `Err`: an argument of the receive is invalid, and nothing was started.
    pub fn start<N: Rdma, R: Runtime>(
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

    /// The results, once both halves have ended. `threads`: as for [`CompletionCall::poll`](crate::CompletionCall::poll).
    pub fn poll<N: Rdma, R: Runtime>(
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
        if self.receive.error().is_some_and(|error| error.class.is_fault_tolerance_error())
            && let Half::Running(send) = &self.send
            && engine.continue_from_copy(send.request())
        {
            mend_base::reach!("mpi.sendrecv: the send continues from a copy");
            self.send = Half::NoOperation;
        }
        Some(Exchanged { sent: self.send.result()?, received: self.receive.result()? })
    }

    /// Ends the wait before both halves have ended.
    pub(crate) fn give_up<N: Rdma, R: Runtime>(&self, engine: &mut Engine<N, R>) {
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
            Started::Running(request) => Half::Running(BlockingOperation::new(request)),
        }
    }

    fn advance<N: Rdma, R: Runtime>(
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

    /// `None`: the half still runs.
    fn result(&self) -> Option<Option<Result<Status, Error>>> {
        match self {
            Half::NoOperation => Some(None),
            Half::Running(_) => None,
            Half::Over(result) => Some(Some(*result)),
        }
    }
}
