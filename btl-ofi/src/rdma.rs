// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Remote memory access.

use crate::classify::Class;
use crate::connection::State;
use crate::exposures::{RAILS_MAX, read_key, write_key};
use crate::family::Family;
use crate::keys_taken_back::ANSWER_MAX;
use crate::ofi::{Ofi, Reader, TRANSFER_BYTES_MAX};
use crate::transfers::{Wanted, What};
use mend_transport::{
    Atomic, Cookie, Exposure, Rdma, Region, RegisterError, Remote, RemoteAccess, RemoteKey, SendError, Span,
    UserMemory,
};

impl Rdma for Ofi {
    fn register(&mut self, _with: u32, memory: &UserMemory) -> Result<Region, RegisterError> {
        self.transfers.regions.register(memory)
    }

    fn unregister(&mut self, region: Region, done: Cookie) {
        let result =
            if self.transfers.regions.unregister(region) { Ok(()) } else { Err(SendError::LocalFault) };
        self.transfers.ended.push_back((done, result));
    }

    fn expose(
        &mut self,
        to: u32,
        local: Span,
        access: RemoteAccess,
    ) -> Result<(Exposure, RemoteKey), RegisterError> {
        let exposure = self.transfers.regions.expose(to, local, access)?;
        let mut keys = [(0, 0); RAILS_MAX];
        if access.read && self.gets_natively() {
            let memory = self.transfers.regions.local(local).ok_or(RegisterError::NoSuchRegion)?;
            match self.keys.add(&self.rails, exposure, to, &memory) {
                Ok(of_devices) => keys = of_devices,
                Err(error) => {
                    self.transfers.regions.unexpose(exposure);
                    return Err(error);
                }
            }
        }
        Ok((exposure, write_key(local.bytes, exposure, access, keys)))
    }

    fn unexpose(&mut self, exposure: Exposure, done: Cookie) {
        self.end_exposure(exposure, done, true);
    }

    fn unexpose_unused(&mut self, exposure: Exposure, done: Cookie) {
        self.end_exposure(exposure, done, false);
    }

    fn import(&mut self, _from: u32, key: &[u8]) -> Result<Remote, RegisterError> {
        read_key(key)
    }

    fn put(
        &mut self,
        to: u32,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        self.begin(Wanted { connection: to, what: What::Put, local, remote, remote_offset, done }, None)
    }

    fn get(
        &mut self,
        from: u32,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        let what = if self.gets_natively() { What::DeviceGet } else { What::Get };
        self.begin(Wanted { connection: from, what, local, remote, remote_offset, done }, None)
    }

    fn atomic(
        &mut self,
        to: u32,
        operation: Atomic,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        if local.bytes != 8 || !remote_offset.is_multiple_of(8) {
            return Err(SendError::LocalFault);
        }
        let wanted = Wanted { connection: to, what: What::Atomic, local, remote, remote_offset, done };
        self.begin(wanted, Some(operation))
    }

    fn flush(&mut self, to: u32, done: Cookie) -> Result<(), SendError> {
        self.check_open(to)?;
        let begun = self.transfers.flush(to, done);
        self.note_busy(to, begun)
    }
}

impl Ofi {
    fn begin(&mut self, wanted: Wanted, atomic: Option<Atomic>) -> Result<(), SendError> {
        let to = wanted.connection;
        self.check_open(to)?;
        if wanted.local.bytes > TRANSFER_BYTES_MAX {
            return Err(SendError::LocalFault);
        }
        if wanted.local.bytes == 0 {
            return self.begin_empty(wanted);
        }
        let begun = self.transfers.begin(wanted, atomic);
        self.note_busy(to, begun)?;
        match wanted.what {
            What::DeviceGet => self.post_transfers(),
            _ => {
                self.run_jobs(to);
                self.post_frames(to);
            }
        }
        Ok(())
    }

    /// Nothing moves, but the ranges and rights are checked as always.
    fn begin_empty(&mut self, wanted: Wanted) -> Result<(), SendError> {
        self.transfers.check(wanted)?;
        self.transfers.ended.push_back((wanted.done, Ok(())));
        Ok(())
    }

    /// Takes a key back. `is_used`: the peer may be reading by it.
    fn end_exposure(&mut self, exposure: Exposure, done: Cookie, is_used: bool) {
        for index in self.transfers.end_access(exposure) {
            self.list(index);
        }
        if !self.transfers.regions.unexpose(exposure) {
            self.transfers.ended.push_back((done, Err(SendError::LocalFault)));
            return;
        }
        let Some((index, closed)) = self.keys.remove(exposure) else {
            self.transfers.ended.push_back((done, Ok(())));
            return;
        };
        self.note_read(index, Reader::Peer);
        let state = self.connections[index as usize].state;
        let may_read = is_used && self.reads_outlive_keys() && state != State::Severed;
        match closed {
            Ok(()) if !may_read => self.transfers.ended.push_back((done, Ok(()))),
            Ok(()) => {
                self.transfers.keys_taken_back.begin(index, exposure, done, self.now + ANSWER_MAX);
                self.transfers.ask_for_end_of_reads(index, exposure);
                self.list(index);
            }
            Err(code) => {
                // The peer may begin reads until the endpoint is closed.
                self.report(Class::LocalFault, 0, "closing a registration", Some(index), (code, 0));
                self.transfers.keys_taken_back.begin(index, exposure, done, self.now);
            }
        }
    }

    /// Whether peers may go on with reads whose keys were taken back.
    pub(crate) fn reads_outlive_keys(&self) -> bool {
        self.entry.rails.iter().any(|(provider, _)| Family::of(provider) == Family::Sockets)
    }

    fn check_open(&mut self, to: u32) -> Result<(), SendError> {
        let connection = &mut self.connections[to as usize];
        match connection.state {
            State::Connected => Ok(()),
            State::Severing { .. } | State::Severed => Err(SendError::Severed),
            State::Connecting | State::Quarantined { .. } | State::Garbage => {
                connection.refused = true;
                Err(SendError::Busy)
            }
        }
    }

    fn note_busy(&mut self, to: u32, begun: Result<(), SendError>) -> Result<(), SendError> {
        if begun == Err(SendError::Busy) {
            self.connections[to as usize].refused = true;
        }
        begun
    }
}
