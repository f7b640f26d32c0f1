// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Alltoall by pairwise exchange, with a bounded number of partners at the same time.
//!
//! In place, a block can be overwritten only after it was sent, so two ranks exchange their blocks in the same round: in round k, rank r
//! exchanges with rank (k - r) mod n.

use crate::Error;
use crate::schedule::{Blocks, Builder, scratch};
use mend_datatype::TypedBuffer;

/// Partners of one round.
const WINDOW: u32 = 8;

pub(crate) fn build(
    builder: &mut Builder,
    send: Option<TypedBuffer>,
    receive: &TypedBuffer,
) -> Result<(), Error> {
    let into = Blocks::new(receive, builder.size)?;
    let Some(send) = send else {
        return in_place(builder, &into);
    };
    let from = Blocks::new(&send, builder.size)?;
    if send.packed_bytes() != receive.packed_bytes() {
        return Err(Error::Count);
    }
    if into.is_empty() {
        return Ok(());
    }
    builder.copy(&from.of(builder.me), &into.of(builder.me));
    for distance in 1..builder.size {
        let (to, source) = (builder.after(distance), builder.before(distance));
        builder.receive(source, &into.of(source));
        builder.send(to, &from.of(to));
        if distance % WINDOW == 0 {
            builder.wait_all();
        }
    }
    builder.wait_all();
    Ok(())
}

fn in_place(builder: &mut Builder, blocks: &Blocks) -> Result<(), Error> {
    if blocks.is_empty() || builder.size == 1 {
        return Ok(());
    }
    let arriving = scratch(&blocks.of(0))?;
    for round in 0..builder.size {
        let partner = builder.size + round - builder.me;
        let partner = if partner >= builder.size { partner - builder.size } else { partner };
        if partner != builder.me {
            builder.receive(partner, &arriving);
            builder.send(partner, &blocks.of(partner));
            builder.wait_all();
            builder.copy(&arriving, &blocks.of(partner));
        }
    }
    Ok(())
}
