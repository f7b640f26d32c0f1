// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The limits of an endpoint are consistent, and every length up to them can be sent.

use super::cluster::{Endpoint, ID, pattern};
use super::{Callback, Cluster, Fixture};
use crate::{Ability, Btl, Limits, MessageClass, SendError};
use mend_base::PeerIndex;

/// The limits are consistent, and do not change.
pub fn the_limits_agree_with_each_other<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let endpoint = cluster.endpoint(sender, receiver);
    let limits = cluster.btl(sender).limits(endpoint).clone();
    assert!(limits.control_bytes_max <= limits.message_bytes_max, "{limits:?}");
    assert!(limits.eager_bytes <= limits.message_bytes_max, "{limits:?}");
    assert!(limits.control_bytes_max >= 64, "control messages need 64 bytes: {limits:?}");
    assert_eq!(limits.can(Ability::Streams), limits.chunk_bytes > 0, "{limits:?}");
    assert_eq!(
        limits.can(Ability::Put) || limits.can(Ability::Get),
        limits.transfer_bytes_max > 0,
        "{limits:?}"
    );
    assert_eq!(limits.emulated & !limits.abilities, 0, "what is emulated is an ability: {limits:?}");
    cluster.send(sender, receiver, MessageClass::Data, 0, 8);
    cluster.settle();
    assert_eq!(*cluster.btl(sender).limits(endpoint), limits);
}

/// Messages of each class, with headers and payloads from zero bytes to the longest, arrive as they were sent.
pub fn every_length_up_to_the_limits_passes<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (message, _, control) = cluster.sizes();
    let lengths = [0, 1, 7, 8, 9, 63, 64, 65, control - 1, control, control + 1, message - 1, message];
    for class in [MessageClass::Data, MessageClass::Control, MessageClass::Mailbox] {
        let most = if class == MessageClass::Data { message } else { control };
        for len in lengths.into_iter().filter(|&len| len <= most) {
            for header_bytes in [0, 1, 7, 8, 31, 32, 39, Limits::HEADER_BYTES_MAX] {
                one_passes::<F>(&mut cluster, class, header_bytes, len);
            }
        }
    }
}

fn one_passes<F: Fixture>(cluster: &mut Cluster<F>, class: MessageClass, header_bytes: usize, len: usize) {
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let endpoint = cluster.endpoint(sender, receiver);
    let (header, payload) = (pattern(1, header_bytes), pattern(2, len));
    cluster.clear_callbacks(receiver);
    while let Err(error) =
        cluster.btl(sender).send(endpoint, class, ID, &header, len, |mut slot| slot.put(&payload))
    {
        assert_eq!(error, SendError::Busy);
        cluster.progress_all();
    }
    let arrived: Callback<Endpoint<F>> = Callback::Message(PeerIndex(sender as u32), ID, header, payload);
    cluster.until("the message arrives as it was sent", |cluster| {
        cluster.callbacks(receiver).contains(&arrived)
    });
}
