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

/// What a provider says by giving a buffer back that receives several messages (`receive_blocks`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GivenBack {
    /// That it has done with all messages: so the documentation of libfabric has it. Messages may be aligned in the buffer (efa, cxi, psm3, opx, and
    /// what nobody has measured), so bytes are not counted.
    AllReported,
    /// That it has done with the message that took the last slice, which need not be the last to end: `ofi_rxm` of 1.17, over any provider. Messages lie
    /// one behind the other without gaps. The same is assumed of `sockets` and `shm`, and of newer versions, which do as the
    /// documentation says, and have no gaps, either.
    LastSlice,
    /// The same; and the buffers are used in the order in which they were posted: `net` of 1.17, which is `tcp` before 1.20.
    LastSliceInOrder,
}

impl GivenBack {
    /// What this provider says.
    pub fn of(provider: &str) -> GivenBack {
        match provider {
            "tcp" | "net" => GivenBack::LastSliceInOrder,
            _ if over_messages(provider) || Family::of(provider) != Family::Device => GivenBack::LastSlice,
            _ => GivenBack::AllReported,
        }
    }
}

/// Whether it is the utility provider that makes datagrams of connections.
pub fn over_messages(provider: &str) -> bool {
    provider.split(';').any(|part| part == "ofi_rxm")
}

#[cfg(test)]
mod tests {
    use super::{Family, GivenBack};

    #[test]
    fn bytes_are_counted_where_the_last_message_need_not_be_the_last_to_end() {
        for provider in ["tcp;ofi_rxm", "verbs;ofi_rxm", "sockets", "shm"] {
            assert_eq!(GivenBack::of(provider), GivenBack::LastSlice);
        }
        assert_eq!(GivenBack::of("net"), GivenBack::LastSliceInOrder);
        assert_eq!(GivenBack::of("efa"), GivenBack::AllReported);
    }

    #[test]
    fn only_tcp_of_1_17_must_not_close_an_endpoint_whose_reads_are_under_way() {
        for provider in ["net", "tcp", "tcp;ofi_rxm"] {
            assert!(!Family::closes_reads(provider, (1, 17)));
            assert!(Family::closes_reads(provider, (1, 18)) && Family::closes_reads(provider, (2, 5)));
        }
        assert!(Family::closes_reads("sockets", (1, 17)) && Family::closes_reads("verbs;ofi_rxm", (1, 17)));
    }
}
