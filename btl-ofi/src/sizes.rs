// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long messages of this BTL are, by provider.
//!
//! A message up to the eager limit is copied twice, into a frame and out of one; a longer one waits for an answer of its receiver, and is
//! then read without copies where the provider reads. So the limit is the length whose copies take as long as a round trip: with sockets tens
//! of microseconds, with devices and shared memory a few.

use crate::family::{Family, over_messages};

/// The longest payloads that a process takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Of a message that is sent before a match: the eager limit.
    pub eager_bytes: u32,
    /// Of a chunk of a stream, and of a piece of an emulated transfer.
    pub chunk_bytes: u32,
}

impl Sizes {
    /// The sizes that suit all of these providers: frames of one peer may take any rail.
    pub fn of_providers<'a>(providers: impl Iterator<Item = &'a str>) -> Sizes {
        let least = |one: Sizes, other: Sizes| Sizes {
            eager_bytes: one.eager_bytes.min(other.eager_bytes),
            chunk_bytes: one.chunk_bytes.min(other.chunk_bytes),
        };
        providers.map(of_provider).reduce(least).unwrap_or(DEVICE)
    }

    /// The longest payload of a frame.
    pub fn frame_payload_bytes(self) -> u32 {
        self.eager_bytes.max(self.chunk_bytes)
    }
}

/// Over sockets.
const SOCKETS: Sizes = Sizes { eager_bytes: 64 << 10, chunk_bytes: 64 << 10 };

/// Over sockets by `ofi_rxm`. It copies messages of less than 16 KiB. Longer ones it reads from the sender, and keeps a receive buffer for them until the
/// sender makes progress: one that is stopped, or computes, would take the receive buffers from all others.
const OVER_MESSAGES: Sizes = Sizes { eager_bytes: 15 << 10, chunk_bytes: 15 << 10 };

/// libfabric's shared memory: a round trip is short, and there are no reads.
const SHARED_MEMORY: Sizes = Sizes { eager_bytes: 8 << 10, chunk_bytes: 32 << 10 };

/// Devices, and providers that nobody has measured.
const DEVICE: Sizes = Sizes { eager_bytes: 8 << 10, chunk_bytes: 8 << 10 };

fn of_provider(provider: &str) -> Sizes {
    match Family::of(provider) {
        Family::Sockets if over_messages(provider) => OVER_MESSAGES,
        Family::Sockets => SOCKETS,
        Family::SharedMemory => SHARED_MEMORY,
        Family::Device => DEVICE,
    }
}

#[cfg(test)]
mod tests {
    use super::{DEVICE, OVER_MESSAGES, SHARED_MEMORY, SOCKETS, Sizes};

    fn sizes(providers: &[&str]) -> Sizes {
        Sizes::of_providers(providers.iter().copied())
    }

    #[test]
    fn a_provider_over_sockets_takes_longer_messages_than_one_over_memory() {
        for sockets in ["tcp", "net", "sockets"] {
            assert_eq!(sizes(&[sockets]), SOCKETS);
        }
        assert_eq!(sizes(&["tcp;ofi_rxm"]), OVER_MESSAGES);
        assert_eq!((sizes(&["shm"]), sizes(&["verbs;ofi_rxm"])), (SHARED_MEMORY, DEVICE));
    }

    #[test]
    fn rails_of_several_providers_take_what_all_of_them_take() {
        assert_eq!(sizes(&["net", "shm"]), SHARED_MEMORY);
        assert_eq!(sizes(&["shm", "efa"]), Sizes { eager_bytes: 8 << 10, chunk_bytes: 8 << 10 });
    }
}
