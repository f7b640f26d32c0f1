// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looking without taking (MPI-5.0 §3.8.1).

use crate::{Channel, Error, Ob1, Status};
use mend_base::{Source, TagSelector};
use mend_transport::Btl;

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// The message that such a receive would take, if one has come. `Err`: it never will, since whom it names is gone,
    /// or nobody knows whether it will, since somebody failed who is not acknowledged (Row PP9): what is here comes first.
    /// Looks at what `progress` has brought, and moves nothing itself.
    pub fn probe<N: Btl<Endpoint = E>>(
        &mut self,
        _net: &mut N,
        on: Channel,
        from: Source,
        tag: TagSelector,
    ) -> Result<Option<Status>, Error> {
        let open = self.channels.get(on.0).ok_or(Error::NoSuchChannel)?;
        if let Source::Rank(rank) = from
            && rank.index() >= open.members.len()
        {
            return Err(Error::NoSuchRank(rank));
        }
        if let Some(arrived) = self.find_unexpected(open, from, tag).and_then(|key| self.arrived.get(key)) {
            if self.is_orphaned_rts(open, arrived)
                && let Some(error) = self.why_never(on.0, from)
            {
                mend_base::reach!("pml.probe: the offer of one who is gone");
                return Err(error);
            }
            mend_base::reach!("pml.probe: found");
            let bytes = arrived.bytes();
            return Ok(Some(Status {
                source: Some(arrived.source),
                tag: arrived.tag,
                bytes,
                cancelled: false,
            }));
        }
        let never = match from {
            Source::Rank(_) => self.why_never(on.0, from),
            Source::Any => self.why_in_doubt(on.0),
        };
        if never.is_none() {
            self.awaited.probed = Some((on.0, from));
        }
        never.map_or(Ok(None), Err)
    }
}
