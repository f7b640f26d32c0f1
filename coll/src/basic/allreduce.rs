// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Allreduce by recursive doubling (Thakur, Rabenseifner, Gropp, 2005, section 4.3). Where the number of ranks is not a
//! power of two, the first ranks form pairs: the even rank of a pair sends its data to the odd one, and receives the result at the end
//! (the folded ranks).
//!
//! All ranks get the same result, bit for bit: in each exchange both partners compute `lower op higher`.

use crate::Error;
use crate::schedule::{Builder, check_operation, check_same_elements, scratch};
use mend_datatype::{Op, TypedBuffer};
use std::mem::swap;

pub(crate) fn build(
    builder: &mut Builder,
    send: Option<TypedBuffer>,
    receive: TypedBuffer,
    op: Op,
) -> Result<(), Error> {
    check_same_elements(send.as_ref(), &receive)?;
    check_operation(op, receive.datatype())?;
    if receive.packed_bytes() == 0 {
        return Ok(());
    }
    if let Some(send) = send {
        builder.copy(&send, &receive);
    }
    if builder.size == 1 {
        return Ok(());
    }
    let doubling = 1 << builder.size.ilog2();
    let folded = 2 * (builder.size - doubling);
    let me = builder.me;
    if me < folded && me.is_multiple_of(2) {
        builder.send(me + 1, &receive);
        builder.wait_all();
        builder.receive(me + 1, &receive);
        builder.wait_all();
        return Ok(());
    }
    exchange(builder, &receive, op, doubling, folded)?;
    if me < folded {
        builder.send(me - 1, &receive);
        builder.wait_all();
    }
    Ok(())
}

/// Adds the recursive doubling of a rank that takes part in it. `result` has the rank's data before, and the result afterwards.
fn exchange(
    builder: &mut Builder,
    result: &TypedBuffer,
    op: Op,
    doubling: u32,
    folded: u32,
) -> Result<(), Error> {
    let (mut mine, mut theirs) = (result.share(), scratch(result)?);
    let me = builder.me;
    let place = if me < folded {
        builder.receive(me - 1, &theirs);
        builder.wait_all();
        builder.reduce(op, &theirs, &mine);
        me / 2
    } else {
        me - folded / 2
    };
    let mut mask = 1;
    while mask < doubling {
        let other = place ^ mask;
        let partner = if other < folded / 2 { 2 * other + 1 } else { other + folded / 2 };
        builder.receive(partner, &theirs);
        builder.send(partner, &mine);
        builder.wait_all();
        if other > place {
            swap(&mut mine, &mut theirs);
        }
        builder.reduce(op, &theirs, &mine);
        mask *= 2;
    }
    // Each exchange with a higher partner swapped the two buffers; after an odd number the result is in the other one.
    if (!place & (doubling - 1)).count_ones() % 2 == 1 {
        builder.copy(&mine, result);
    }
    Ok(())
}
