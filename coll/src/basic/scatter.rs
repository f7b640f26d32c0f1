// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linear scatter: the root sends each rank its block.

use crate::Error;
use crate::schedule::{Blocks, Builder};
use mend_base::Rank;
use mend_datatype::TypedBuffer;

pub(crate) fn build(
    builder: &mut Builder,
    send: Option<TypedBuffer>,
    receive: Option<TypedBuffer>,
    root: Rank,
) -> Result<(), Error> {
    let root = builder.root(root)?;
    if builder.me != root {
        let receive = receive.ok_or(Error::Buffer)?;
        if receive.packed_bytes() > 0 {
            builder.receive(root, &receive);
            builder.wait_all();
        }
        return Ok(());
    }
    let blocks = Blocks::new(&send.ok_or(Error::Buffer)?, builder.size)?;
    let own = blocks.of(root);
    if receive.as_ref().is_some_and(|receive| receive.packed_bytes() != own.packed_bytes()) {
        return Err(Error::Count);
    }
    if blocks.is_empty() {
        return Ok(());
    }
    for to in (0..builder.size).filter(|&to| to != root) {
        builder.send(to, &blocks.of(to));
    }
    if let Some(receive) = receive {
        builder.copy(&own, &receive);
    }
    builder.wait_all();
    Ok(())
}
