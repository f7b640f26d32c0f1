// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a provider moves bytes through, as far as this BTL must know.

/// A family of providers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// Sockets of the system. Reads of peers go on although the registration of the memory was closed meanwhile.
    Sockets,
    /// libfabric's shared memory. It checks no keys.
    SharedMemory,
    /// Devices, which check the key for each packet, and providers that nobody has measured.
    Device,
}

impl Family {
    /// The family of a provider; a utility provider has that of the one below it.
    pub fn of(provider: &str) -> Family {
        match provider.split(';').next() {
            Some("tcp" | "net" | "sockets" | "udp") => Family::Sockets,
            Some("shm") => Family::SharedMemory,
            _ => Family::Device,
        }
    }
}
