// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Barrier by dissemination (Hensgen, Finkel, Manber, 1988): in round k everybody tells the rank 2^k after it, so that
//! after ceil(log2 n) rounds everybody has heard of everybody.

use crate::schedule::Builder;
use mend_datatype::Typed;

pub(crate) fn build(builder: &mut Builder) {
    let mut distance = 1;
    while distance < builder.size {
        let (to, from) = (builder.after(distance), builder.before(distance));
        builder.receive(from, &Typed::empty());
        builder.send(to, &Typed::empty());
        builder.settle();
        distance = distance.saturating_mul(2);
    }
}
