// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Broadcast down a binomial tree over ranks relative to the root. A rank that is `d` after its parent sends to the ranks `d/2`, `d/4`, ...,
//! 1 after it.

use crate::Error;
use crate::schedule::Builder;
use mend_base::Rank;
use mend_datatype::TypedBuffer;

pub(crate) fn build(builder: &mut Builder, data: &TypedBuffer, root: Rank) -> Result<(), Error> {
    let root = builder.root(root)?;
    if data.packed_bytes() == 0 {
        return Ok(());
    }
    // The rank relative to the root. Its lowest set bit is the distance to its parent.
    let place = builder.before(root);
    let mut reach = 1;
    while reach < builder.size && place & reach == 0 {
        reach *= 2;
    }
    if place != 0 {
        builder.receive(builder.before(reach), data);
        builder.wait_all();
    }
    while reach > 1 {
        reach /= 2;
        if place + reach < builder.size {
            builder.send(builder.after(reach), data);
        }
    }
    builder.wait_all();
    Ok(())
}
