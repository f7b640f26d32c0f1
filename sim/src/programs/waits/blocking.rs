// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocking receives, probes and Sendrecvs, and calls that no remaining rank can satisfy.

use super::{ANY, DATA, NEVER, OWN, Roles};
use crate::oracle::{assert_content, assert_status, content, overwrite, poisoned};
use core::future::Future;
use core::pin::pin;
use core::task::Poll;
use mend_base::{Source, Tag, TagSelector};
use mend_mpi::{Detail, WaitMode};
use mend_transport::Buffer;

/// In bytes. Longer than every eager limit, so the send does not complete before its receive is posted.
const LONG: usize = 9_000;

impl Roles {
    /// Row PP9: the receive ends with PROC_FAILED, and is not posted any more: a later message is matched by the next receive.
    pub(super) async fn receive_with_a_pending_failure(&self) {
        if self.is_partner() {
            return self.answer(&[(ANY, 40)]).await;
        }
        if !self.is_caller() {
            return;
        }
        self.process.at("waits: blocking receive", 0);
        let (mpi, tag) = (&self.process.mpi, TagSelector::Tag(ANY));
        let ended_buffer = poisoned(40);
        let result = mpi.blocking_receive(self.world, Source::Any, tag, &ended_buffer).await;
        self.assert_victim_failed(result.expect_err("no rank has sent a message"));
        self.process.ended_buffers.borrow_mut().add(&ended_buffer);
        self.report_return().await;
        let buffer = poisoned(40);
        mpi.acknowledge(self.world, None).expect("the communicator exists");
        let result = mpi.blocking_receive(self.world, Source::Any, tag, &buffer).await;
        assert_status(result.expect("the partner lives"), self.partner, ANY, 40);
        assert_content(&buffer, 1, 40);
    }

    /// Row PP14: the probe ends with PROC_FAILED until the failure is acknowledged.
    pub(super) async fn probe_with_a_pending_failure(&self) {
        if self.is_partner() {
            return self.answer(&[(ANY, 40)]).await;
        }
        if !self.is_caller() {
            return;
        }
        self.process.at("waits: blocking probe", 0);
        let (mpi, tag) = (&self.process.mpi, TagSelector::Tag(ANY));
        let found = mpi.probe(self.world, Source::Any, tag).await;
        self.assert_victim_failed(found.expect_err("no rank has sent a message"));
        let looked = mpi.iprobe(self.world, Source::Any, tag);
        self.assert_victim_failed(looked.expect_err("the failure is not acknowledged"));
        mpi.acknowledge(self.world, None).expect("the communicator exists");
        assert_eq!(mpi.iprobe(self.world, Source::Any, tag), Ok(None));
        self.report_return().await;
        let found = mpi.probe(self.world, Source::Any, tag).await;
        assert_status(found.expect("the partner lives"), self.partner, ANY, 40);
        let buffer = poisoned(40);
        let result = mpi.receive(self.world, Source::Rank(self.partner), tag, &buffer).await;
        assert_status(result.expect("the partner lives"), self.partner, ANY, 40);
    }

    /// Row PP16: the send fails, and the receive, which no message has matched, is cancelled.
    pub(super) async fn sendrecv_to_the_dead(&self) {
        if self.is_partner() {
            return self.answer(&[(DATA, 700)]).await;
        }
        if !self.is_caller() {
            return;
        }
        self.process.at("waits: sendrecv to the dead", 0);
        let (mpi, tag) = (&self.process.mpi, TagSelector::Tag(DATA));
        let (data, ended_buffer, source) = (poisoned(LONG), poisoned(700), Source::Rank(self.partner));
        let call =
            mpi.sendrecv(self.world, Some((self.victim, NEVER, &data)), Some((source, tag, &ended_buffer)));
        let exchanged = call.await.expect("the arguments are right");
        self.assert_victim_failed(
            exchanged.sent.expect("there was a send").expect_err("the victim received nothing"),
        );
        let received = exchanged.received.expect("there was a receive").expect("it was cancelled");
        assert!(received.cancelled, "{received:?}");
        self.process.ended_buffers.borrow_mut().add(&ended_buffer);
        self.report_return().await;
        let buffer = poisoned(700);
        let result = mpi.receive(self.world, source, tag, &buffer).await;
        assert_status(result.expect("the partner lives"), self.partner, DATA, 700);
        assert_content(&buffer, 1, 700);
    }

    /// Row PP16: the receive fails, and the send goes on from a copy, so the partner gets the message.
    pub(super) async fn sendrecv_from_the_dead(&self) {
        let (mpi, tag) = (&self.process.mpi, TagSelector::Tag(DATA));
        if self.is_partner() {
            self.until_returned().await;
            let buffer = poisoned(LONG);
            let result = mpi.receive(self.world, Source::Rank(self.caller), tag, &buffer).await;
            assert_status(result.expect("the caller lives"), self.caller, DATA, LONG);
            return assert_content(&buffer, 1, LONG);
        }
        if !self.is_caller() {
            return;
        }
        self.process.at("waits: sendrecv from the dead", 0);
        let (data, ended_buffer) = (Buffer::from_bytes(&content(1, LONG)), poisoned(60));
        let source = if self.process.below(2) == 0 { Source::Rank(self.victim) } else { Source::Any };
        let (send, receive) = ((self.partner, DATA, &data), (source, TagSelector::Tag(NEVER), &ended_buffer));
        let exchanged = mpi.sendrecv(self.world, Some(send), Some(receive)).await.expect("right arguments");
        self.assert_victim_failed(
            exchanged.received.expect("there was a receive").expect_err("the victim sent nothing"),
        );
        assert_eq!(exchanged.sent, None, "the partner has posted nothing yet");
        overwrite(&data);
        self.process.ended_buffers.borrow_mut().add(&ended_buffer);
        self.report_return().await;
    }

    /// Row PP13: a message that has arrived is received before a pending failure ends the call. A message of this rank to
    /// itself by loopback arrives at the next call of progress, and the waiting call makes progress before it returns.
    pub(super) async fn own_message_is_received_first(&self) {
        if !self.is_caller() {
            return;
        }
        self.until_death_is_known().await;
        self.process.at("waits: own message", 0);
        let (mpi, tag, buffer) = (&self.process.mpi, TagSelector::Tag(OWN), poisoned(0));
        // The first message connects the loopback.
        let first = mpi.send(self.world, self.caller, OWN, &Buffer::zeroed(0));
        mpi.receive(self.world, Source::Rank(self.caller), tag, &buffer).await.expect("this process lives");
        first.await.expect("this process lives");
        let sent = mpi.send(self.world, self.caller, OWN, &Buffer::zeroed(0));
        let which = self.process.below(3);
        let mut missed = match which {
            0 => mpi.blocking_receive(self.world, Source::Any, tag, &buffer).await.err(),
            1 => mpi.probe(self.world, Source::Any, tag).await.err(),
            _ => mpi.receive(self.world, Source::Any, tag, &buffer).await.err(),
        };
        assert!(
            missed.is_none() || !self.process.receives_own_messages_at_once,
            "{}",
            missed.expect("some error")
        );
        // By the network the message may arrive later.
        mpi.acknowledge(self.world, None).expect("the communicator exists");
        if which == 1 || missed.take().is_some() {
            let result = mpi.blocking_receive(self.world, Source::Any, tag, &buffer).await;
            assert_status(result.expect("this process lives"), self.caller, OWN, 0);
        }
        sent.await.expect("this process lives");
    }

    /// All other ranks finalize. Then only the caller itself can send what a wildcard receive of the caller waits for. The
    /// wait ends if no other task of the caller could send, and goes on if one can.
    pub(super) async fn wait_alone(&self) {
        self.process.at("waits: alone", 0);
        let (mpi, tag) = (&self.process.mpi, TagSelector::Tag(ANY));
        if self.process.below(2) == 0 {
            return self.two_tasks().await;
        }
        let buffer = poisoned(0);
        let error = match self.process.below(5) {
            0 => mpi.blocking_receive(self.world, Source::Any, tag, &buffer).await.err(),
            1 => mpi.probe(self.world, Source::Any, tag).await.err(),
            2 => mpi.receive(self.world, Source::Any, tag, &buffer).await.err(),
            3 => {
                let to_nobody = None;
                let receive = Some((Source::Any, tag, &buffer));
                let exchanged = mpi.sendrecv(self.world, to_nobody, receive).await.expect("right arguments");
                exchanged.received.expect("there was a receive").err()
            }
            _ => {
                let want = [WaitMode::All, WaitMode::Any, WaitMode::Some][self.process.below(3) as usize];
                let mut both = [0, 1].map(|_| mpi.receive(self.world, Source::Any, tag, &buffer));
                let report = mpi.wait_for(want, &mut both).await;
                let result = report.result.expect("the requests exist");
                let ended = both.iter().filter(|each| each.is_null()).count();
                assert_eq!(ended, if want == WaitMode::All { 2 } else { 1 });
                result.first_error.map(|(_, error)| error)
            }
        };
        let error = error.expect("no other rank is left");
        assert!(matches!(error.detail, Detail::PeerLeft(_)), "{error}");
    }

    /// One task waits in a receive; the other task sends to this rank after all other ranks have left.
    async fn two_tasks(&self) {
        let (mpi, buffer) = (&self.process.mpi, poisoned(0));
        mpi.set_tasks(2);
        let mut receive = pin!(mpi.blocking_receive(self.world, Source::Any, TagSelector::Tag(ANY), &buffer));
        let mut send = pin!(async {
            self.all_others_have_left().await;
            for _ in 0..self.process.below(20) {
                self.process.pause().await;
            }
            mpi.send(self.world, self.caller, ANY, &Buffer::zeroed(0)).await
        });
        let (mut received, mut sent) = (None, None);
        core::future::poll_fn(|context| {
            if received.is_none() {
                received = ready(receive.as_mut().poll(context));
            }
            if sent.is_none() {
                sent = ready(send.as_mut().poll(context));
            }
            if received.is_some() && sent.is_some() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        assert_status(received.expect("both ended").expect("the other task sends"), self.caller, ANY, 0);
        sent.expect("both ended").expect("this process lives");
        mpi.set_tasks(1);
    }

    async fn all_others_have_left(&self) {
        for rank in (0..self.process.size).map(mend_base::Rank).filter(|rank| *rank != self.caller) {
            let (mpi, source, tag) = (&self.process.mpi, Source::Rank(rank), TagSelector::Tag(NEVER));
            let never = mpi.receive(self.world, source, tag, &poisoned(0)).await;
            assert_eq!(never.expect_err("that rank has left").detail, Detail::PeerLeft(rank));
            // A test finds no message; a wait ends with the reason.
            assert_eq!(mpi.iprobe(self.world, source, tag), Ok(None));
            let never = mpi.probe(self.world, source, tag).await;
            assert_eq!(never.expect_err("that rank has left").detail, Detail::PeerLeft(rank));
        }
    }

    /// The partner sends these messages after the call of the caller has returned.
    async fn answer(&self, messages: &[(Tag, usize)]) {
        self.until_returned().await;
        for &(tag, bytes) in messages {
            let data = Buffer::from_bytes(&content(1, bytes));
            self.process.mpi.send(self.world, self.caller, tag, &data).await.expect("the caller lives");
        }
    }
}

fn ready<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
