// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Agreement on the bitwise AND of an int, for jobs without fault tolerance: an allreduce in place. On an intercommunicator the members of
//! both groups reduce two ints together, one for each group, and each member gets that of the other group.

use super::allreduce;
use crate::Error;
use crate::component::AgreeOn;
use crate::schedule::{Builder, buffer_of};
use mend_datatype::{Op, TypedBuffer};

pub(crate) fn build(builder: &mut Builder, flag: &TypedBuffer, on: AgreeOn) -> Result<(), Error> {
    let (own, other) = match on {
        AgreeOn::All => return allreduce::build(builder, None, flag.share(), Op::Band),
        AgreeOn::SecondGroup => (0, 1),
        AgreeOn::FirstGroup => (1, 0),
    };
    let both = buffer_of(&[0xff; 2 * size_of::<i32>()], flag.datatype(), 2)?;
    let slot = |at| both.elements(at, 1).expect("both has two elements");
    builder.copy(flag, &slot(own));
    allreduce::build(builder, None, both.share(), Op::Band)?;
    builder.copy(&slot(other), flag);
    Ok(())
}
