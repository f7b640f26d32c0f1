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

    /// Whether an endpoint may be closed while reads that it began are under way, and the device goes on. `tcp` and `net` of 1.17.0 give the
    /// entry of a read whose answer has partly come back to the device's pool twice then (mended in 1.17.1 and 1.18, pull requests 8656
    /// and 8660 of ofiwg/libfabric): two later operations get one entry, and bytes of the program count as headers of the protocol.
    pub fn closes_reads(provider: &str, (major, minor): (u32, u32)) -> bool {
        let is_tcp = matches!(provider.split(';').next(), Some("tcp" | "net"));
        !is_tcp || (major, minor) > (1, 17)
    }
}

#[cfg(test)]
mod tests {
    use super::Family;

    #[test]
    fn only_tcp_of_1_17_must_not_close_an_endpoint_whose_reads_are_under_way() {
        for provider in ["net", "tcp", "tcp;ofi_rxm"] {
            assert!(!Family::closes_reads(provider, (1, 17)));
            assert!(Family::closes_reads(provider, (1, 18)) && Family::closes_reads(provider, (2, 5)));
        }
        assert!(Family::closes_reads("sockets", (1, 17)) && Family::closes_reads("verbs;ofi_rxm", (1, 17)));
    }
}
