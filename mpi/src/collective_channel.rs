// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a collective operation sees of the engine: messages to and from the ranks of its communicator, on the context kind that
//! no user's message enters.

use mend_base::{Rank, Source, Tag, TagSelector};
use mend_coll::PointToPoint;
use mend_datatype::Typed;
use mend_pml::{Channel, Error, Ob1, Request, SendMode, Started, State};
use mend_transport::Btl;

/// Transports and PML, lent to one operation for one turn.
pub(crate) struct CollectiveChannel<'a, N: Btl> {
    pub net: &'a mut N,
    pub pml: &'a mut Ob1<N::Endpoint>,
    pub channel: Channel,
    /// Which operation of the communicator. An operation that is far ahead here meets its own messages there alone.
    pub tag: Tag,
}

impl<N: Btl> PointToPoint for CollectiveChannel<'_, N> {
    fn send(&mut self, to: Rank, data: Typed) -> Result<Started, Error> {
        self.pml.send(self.net, self.channel, to, self.tag, SendMode::Standard, data)
    }

    fn receive(&mut self, from: Rank, data: Typed) -> Result<Started, Error> {
        self.pml.receive(self.net, self.channel, Source::Rank(from), TagSelector::Tag(self.tag), data)
    }

    fn poll(&self, request: Request) -> State {
        self.pml.poll(request)
    }

    fn release(&mut self, request: Request) {
        self.pml.release(request);
    }

    fn abandon(&mut self, request: Request) {
        self.pml.abandon(request);
    }
}
