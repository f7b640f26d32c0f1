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
    use super::GivenBack;

    #[test]
    fn bytes_are_counted_where_the_last_message_need_not_be_the_last_to_end() {
        for provider in ["tcp;ofi_rxm", "verbs;ofi_rxm", "sockets", "shm"] {
            assert_eq!(GivenBack::of(provider), GivenBack::LastSlice);
        }
        assert_eq!(GivenBack::of("net"), GivenBack::LastSliceInOrder);
        assert_eq!(GivenBack::of("efa"), GivenBack::AllReported);
    }
}
