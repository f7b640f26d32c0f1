// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls that block for one operation, for a probe, for both halves of a Sendrecv, and those that nobody could satisfy.

use super::{ANY, DATA, NEVER, OWN, Roles};
use crate::oracle::{content, holds, poisoned, recycle, says};
use core::future::Future;
use core::pin::pin;
use core::task::Poll;
use mend_base::{Source, Tag, TagSelector};
use mend_mpi::{Detail, Want};
use mend_transport::Buffer;

/// Longer than every eager limit: it is not sent before its receive is posted.
const LONG: usize = 9_000;

impl Roles {
    /// Row PP9: it ends with PROC_FAILED, and leaves nothing posted, so what comes later is for the next receive.
    pub(super) async fn receive_with_a_pending_failure(&self) {
        if self.is_partner() {
            return self.answer(&[(ANY, 40)]).await;
        }
        if !self.is_caller() {
            return;
        }
        self.process.at("waits: blocking receive", 0);
        let (mpi, tag) = (&self.process.mpi, TagSelector::Tag(ANY));
        let left = poisoned(40);
        let result = mpi.blocking_receive(self.world, Source::Any, tag, &left).await;
        self.is_its_death(result.expect_err("nobody has sent anything"));
        self.process.silence.borrow_mut().watch(&left);
        self.go().await;
        let room = poisoned(40);
        mpi.acknowledge(self.world, None).expect("it stands");
        let result = mpi.blocking_receive(self.world, Source::Any, tag, &room).await;
        says(result.expect("the partner lives"), self.partner, ANY, 40);
        holds(&room, 1, 40);
    }

    /// Row PP14.
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
        self.is_its_death(found.expect_err("nobody has sent anything"));
        let looked = mpi.iprobe(self.world, Source::Any, tag);
        self.is_its_death(looked.expect_err("it is not acknowledged"));
        mpi.acknowledge(self.world, None).expect("it stands");
        assert_eq!(mpi.iprobe(self.world, Source::Any, tag), Ok(None));
        self.go().await;
        let found = mpi.probe(self.world, Source::Any, tag).await;
        says(found.expect("the partner lives"), self.partner, ANY, 40);
        let room = poisoned(40);
        let result = mpi.receive(self.world, Source::Rank(self.partner), tag, &room).await;
        says(result.expect("the partner lives"), self.partner, ANY, 40);
    }

    /// Row PP16: the send fails, and the receive, which nothing has matched, is cancelled.
    pub(super) async fn sendrecv_to_the_dead(&self) {
        if self.is_partner() {
            return self.answer(&[(DATA, 700)]).await;
        }
        if !self.is_caller() {
            return;
        }
        self.process.at("waits: sendrecv to the dead", 0);
        let (mpi, tag) = (&self.process.mpi, TagSelector::Tag(DATA));
        let (data, left, source) = (poisoned(LONG), poisoned(700), Source::Rank(self.partner));
        let call = mpi.sendrecv(self.world, Some((self.mortal, NEVER, &data)), Some((source, tag, &left)));
        let exchanged = call.await.expect("the arguments are right");
        self.is_its_death(exchanged.sent.expect("there was a send").expect_err("nobody received it"));
        let received = exchanged.received.expect("there was a receive").expect("it was cancelled");
        assert!(received.cancelled, "{received:?}");
        self.process.silence.borrow_mut().watch(&left);
        self.go().await;
        let room = poisoned(700);
        let result = mpi.receive(self.world, source, tag, &room).await;
        says(result.expect("the partner lives"), self.partner, DATA, 700);
        holds(&room, 1, 700);
    }

    /// Row PP16: the receive fails, and the send goes on from a copy: the living get what they were sent.
    pub(super) async fn sendrecv_from_the_dead(&self) {
        let (mpi, tag) = (&self.process.mpi, TagSelector::Tag(DATA));
        if self.is_partner() {
            self.until_go().await;
            let room = poisoned(LONG);
            let result = mpi.receive(self.world, Source::Rank(self.caller), tag, &room).await;
            says(result.expect("the caller lives"), self.caller, DATA, LONG);
            return holds(&room, 1, LONG);
        }
        if !self.is_caller() {
            return;
        }
        self.process.at("waits: sendrecv from the dead", 0);
        let (data, left) = (Buffer::from_bytes(&content(1, LONG)), poisoned(60));
        let source = if self.process.below(2) == 0 { Source::Rank(self.mortal) } else { Source::Any };
        let (send, receive) = ((self.partner, DATA, &data), (source, TagSelector::Tag(NEVER), &left));
        let exchanged = mpi.sendrecv(self.world, Some(send), Some(receive)).await.expect("right arguments");
        self.is_its_death(exchanged.received.expect("there was a receive").expect_err("nobody sent it"));
        assert_eq!(exchanged.sent, None, "the partner has posted nothing yet");
        recycle(&data);
        self.process.silence.borrow_mut().watch(&left);
        self.go().await;
    }

    /// Row PP13: what has come already is received first. A message to ourselves by loopback comes with the next progress,
    /// which the call makes itself before it answers that a failure is pending.
    pub(super) async fn own_message_comes_first(&self) {
        if !self.is_caller() {
            return;
        }
        self.death_is_known().await;
        self.process.at("waits: own message", 0);
        let (mpi, tag, room) = (&self.process.mpi, TagSelector::Tag(OWN), poisoned(0));
        // The loopback stands from the first message on.
        let first = mpi.send(self.world, self.caller, OWN, &Buffer::zeroed(0));
        mpi.receive(self.world, Source::Rank(self.caller), tag, &room).await.expect("we live");
        first.await.expect("we live");
        let sent = mpi.send(self.world, self.caller, OWN, &Buffer::zeroed(0));
        let which = self.process.below(3);
        let mut missed = match which {
            0 => mpi.blocking_receive(self.world, Source::Any, tag, &room).await.err(),
            1 => mpi.probe(self.world, Source::Any, tag).await.err(),
            _ => mpi.receive(self.world, Source::Any, tag, &room).await.err(),
        };
        assert!(missed.is_none() || !self.process.own_comes_next, "{}", missed.expect("asked"));
        // By the network it comes later.
        mpi.acknowledge(self.world, None).expect("it stands");
        if which == 1 || missed.take().is_some() {
            let result = mpi.blocking_receive(self.world, Source::Any, tag, &room).await;
            says(result.expect("we live"), self.caller, OWN, 0);
        }
        sent.await.expect("we live");
    }

    /// All others leave. A receive from any source can be served by the caller alone: a wait ends where no other task could
    /// send, and goes on where one can.
    pub(super) async fn wait_alone(&self) {
        self.process.at("waits: alone", 0);
        let (mpi, tag) = (&self.process.mpi, TagSelector::Tag(ANY));
        if self.process.below(2) == 0 {
            return self.two_tasks().await;
        }
        let room = poisoned(0);
        let error = match self.process.below(5) {
            0 => mpi.blocking_receive(self.world, Source::Any, tag, &room).await.err(),
            1 => mpi.probe(self.world, Source::Any, tag).await.err(),
            2 => mpi.receive(self.world, Source::Any, tag, &room).await.err(),
            3 => {
                let to_nobody = None;
                let receive = Some((Source::Any, tag, &room));
                let exchanged = mpi.sendrecv(self.world, to_nobody, receive).await.expect("right arguments");
                exchanged.received.expect("there was a receive").err()
            }
            _ => {
                let want = [Want::All, Want::Any, Want::Some][self.process.below(3) as usize];
                let mut both = [0, 1].map(|_| mpi.receive(self.world, Source::Any, tag, &room));
                let completed = mpi.wait_for(want, &mut both).await;
                let answered = completed.answered.expect("they stand");
                let ended = both.iter().filter(|each| each.is_null()).count();
                assert_eq!(ended, if want == Want::All { 2 } else { 1 });
                answered.failure.map(|(_, error)| error)
            }
        };
        let error = error.expect("nobody is left");
        assert!(matches!(error.detail, Detail::PeerLeft(_)), "{error}");
    }

    /// One task waits, the other sends to this rank in the end.
    async fn two_tasks(&self) {
        let (mpi, room) = (&self.process.mpi, poisoned(0));
        mpi.set_tasks(2);
        let mut receive = pin!(mpi.blocking_receive(self.world, Source::Any, TagSelector::Tag(ANY), &room));
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
        says(received.expect("both ended").expect("the other task sends"), self.caller, ANY, 0);
        sent.expect("both ended").expect("we live");
        mpi.set_tasks(1);
    }

    async fn all_others_have_left(&self) {
        for rank in (0..self.process.size).map(mend_base::Rank).filter(|rank| *rank != self.caller) {
            let (mpi, source, tag) = (&self.process.mpi, Source::Rank(rank), TagSelector::Tag(NEVER));
            let never = mpi.receive(self.world, source, tag, &poisoned(0)).await;
            assert_eq!(never.expect_err("it has left").detail, Detail::PeerLeft(rank));
            // Who tests is told nothing; who waits, why.
            assert_eq!(mpi.iprobe(self.world, source, tag), Ok(None));
            let never = mpi.probe(self.world, source, tag).await;
            assert_eq!(never.expect_err("it has left").detail, Detail::PeerLeft(rank));
        }
    }

    /// The partner's: these messages, once the call has returned.
    async fn answer(&self, messages: &[(Tag, usize)]) {
        self.until_go().await;
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
