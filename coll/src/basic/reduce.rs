// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reduce up the binomial tree of the broadcast. Predefined operations are commutative, so the tree may be over ranks relative to the root.
//! The order of operations depends only on size and root, so the same input gives the same bits every time (MPI-5.0 §6.9.1).

use crate::Error;
use crate::schedule::{Builder, check_operation, check_same_elements, scratch};
use mend_base::Rank;
use mend_datatype::{Op, TypedBuffer};

pub(crate) fn build(
    builder: &mut Builder,
    send: Option<TypedBuffer>,
    receive: Option<TypedBuffer>,
    op: Op,
    root: Rank,
) -> Result<(), Error> {
    let root = builder.root(root)?;
    let place = builder.before(root);
    let children = children(place, builder.size);
    // The buffer of the partial result, and the data to copy there first.
    let (total, first) = if place == 0 {
        let receive = receive.ok_or(Error::Buffer)?;
        check_same_elements(send.as_ref(), &receive)?;
        (receive, send)
    } else {
        let send = send.ok_or(Error::Buffer)?;
        // A leaf sends the buffer of the user.
        if children == 0 { (send, None) } else { (scratch(&send)?, Some(send)) }
    };
    check_operation(op, total.datatype())?;
    if total.packed_bytes() == 0 {
        return Ok(());
    }
    if let Some(first) = first {
        builder.copy(&first, &total);
    }
    if children > 0 {
        let theirs = scratch(&total)?;
        for child in 0..children {
            builder.receive(builder.after(1 << child), &theirs);
            builder.wait_all();
            builder.reduce(op, &theirs, &total);
        }
    }
    if place != 0 {
        builder.send(builder.before(1 << place.trailing_zeros()), &total);
        builder.wait_all();
    }
    Ok(())
}

/// How many children a relative rank has: the ranks 1, 2, 4, ... after it, for powers of two below its lowest set bit.
fn children(place: u32, size: u32) -> u32 {
    let levels = if place == 0 { 32 } else { place.trailing_zeros() };
    (0..levels).take_while(|&level| u64::from(place) + (1 << level) < u64::from(size)).count() as u32
}
