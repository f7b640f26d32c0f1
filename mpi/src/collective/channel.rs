// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface of a collective operation to the engine: messages to and from the ranks of its communicator, on its
//! collective context, which has no messages of the program.

use crate::layers::Layers;
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_coll::MessageLayer;
use mend_datatype::TypedBuffer;
use mend_pml::{Channel, Ends, Error, Lent, Ob1, Request, SendMode, Started, State};
use mend_transport::Rdma;

/// Transports, ends of peers and PML, borrowed by one operation for one call of progress.
pub(super) struct CollectiveChannel<'a, N: Rdma> {
    net: &'a mut N,
    ends: &'a Ends,
    pml: &'a mut Ob1<N::Endpoint>,
    channel: Channel,
    /// The number of the operation on its communicator: its messages match receives of the same operation only, also at members that
    /// are several operations behind.
    tag: Tag,
}

impl<'a, N: Rdma> CollectiveChannel<'a, N> {
    /// The channel of an operation for one call of progress.
    pub fn new<R>(layers: &'a mut Layers<N, R>, ends: &'a Ends, channel: Channel, tag: Tag) -> Self {
        CollectiveChannel { net: &mut layers.net, ends, pml: &mut layers.pml, channel, tag }
    }
}

impl<N: Rdma> MessageLayer for CollectiveChannel<'_, N> {
    fn send(&mut self, to: Rank, data: TypedBuffer) -> Result<Started, Error> {
        let lent = Lent { net: &mut *self.net, ends: self.ends };
        self.pml.send(lent, self.channel, to, self.tag, SendMode::Standard, data)
    }

    fn receive(&mut self, from: Rank, data: TypedBuffer) -> Result<Started, Error> {
        let lent = Lent { net: &mut *self.net, ends: self.ends };
        self.pml.receive(lent, self.channel, Source::Rank(from), TagSelector::Tag(self.tag), data)
    }

    fn whole_messages(&self, from: Rank) -> usize {
        self.pml.whole_messages(self.channel, from, self.tag)
    }

    fn poll(&self, request: Request) -> State {
        self.pml.poll(request, self.ends)
    }

    fn release(&mut self, request: Request) {
        self.pml.release(request);
    }

    fn has_ended(&self, request: Request) -> bool {
        self.pml.has_ended(request)
    }

    fn abandon(&mut self, request: Request) {
        self.pml.abandon(request);
    }
}
