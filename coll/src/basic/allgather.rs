// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Allgather in ceil(log2 n) rounds, after Bruck et al. (1997). In round k each rank sends all blocks that it has to the rank 2^k before
//! it. Blocks are received at their final positions, so the final rotation of the paper is not needed. A run of blocks that wraps around
//! after the last rank is sent as two messages; the receiver computes the same split.

use crate::Error;
use crate::schedule::{Blocks, Builder};
use mend_datatype::TypedBuffer;

pub(crate) fn build(
    builder: &mut Builder,
    send: Option<TypedBuffer>,
    receive: &TypedBuffer,
) -> Result<(), Error> {
    let blocks = Blocks::new(receive, builder.size)?;
    let own = blocks.of(builder.me);
    if send.as_ref().is_some_and(|send| send.packed_bytes() != own.packed_bytes()) {
        return Err(Error::Count);
    }
    if blocks.is_empty() {
        return Ok(());
    }
    if let Some(send) = send {
        builder.copy(&send, &own);
    }
    let mut held = 1;
    while held < builder.size {
        let ranks = held.min(builder.size - held);
        let (to, from) = (builder.before(held), builder.after(held));
        for run in runs(&blocks, from, ranks, builder.size) {
            builder.receive(from, &run);
        }
        for run in runs(&blocks, builder.me, ranks, builder.size) {
            builder.send(to, &run);
        }
        builder.wait_all();
        held = held.saturating_mul(2);
    }
    Ok(())
}

/// The blocks of `ranks` ranks from `first` on, modulo the size, as one run or two.
fn runs(blocks: &Blocks, first: u32, ranks: u32, size: u32) -> impl Iterator<Item = TypedBuffer> {
    let before_end = ranks.min(size - first);
    let rest = ranks - before_end;
    [Some(blocks.run(first, before_end)), (rest > 0).then(|| blocks.run(0, rest))].into_iter().flatten()
}
