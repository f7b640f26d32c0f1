// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linear gather: all ranks send to the root, which receives each block at its final position.

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
        let send = send.ok_or(Error::Buffer)?;
        if send.packed_bytes() > 0 {
            builder.send(root, &send);
            builder.wait_all();
        }
        return Ok(());
    }
    let blocks = Blocks::new(&receive.ok_or(Error::Buffer)?, builder.size)?;
    let own = blocks.of(root);
    if send.as_ref().is_some_and(|send| send.packed_bytes() != own.packed_bytes()) {
        return Err(Error::Count);
    }
    if blocks.is_empty() {
        return Ok(());
    }
    for from in (0..builder.size).filter(|&from| from != root) {
        builder.receive(from, &blocks.of(from));
    }
    if let Some(send) = send {
        builder.copy(&send, &own);
    }
    builder.wait_all();
    Ok(())
}
