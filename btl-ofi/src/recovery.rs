// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors, ways that are broken, probes that are due, and devices that are broken.

use crate::classify::{Class, classify};
use crate::connection::{ROUNDS, State};
use crate::family::Family;
use crate::ofi::{Callback, Ofi};
use crate::operations::{Operation, TOKENS};
use crate::rail::Rail;
use mend_base::Duration;
use mend_ffi_ofi::{Code, ErrorCompletion};
use mend_transport::Cause;

/// How often timers are looked at.
const TIMER_PERIOD: Duration = Duration::from_millis(1);

/// How many peers one call of `check_peers` probes.
const CHECKED_AT_ONCE: u32 = 8;

/// A peer that was heard of within this time is not probed by `check_peers`.
const HEARD_LATELY: Duration = Duration::from_millis(20);

/// How often connections that stand still are looked for, and so how long one that begins has at least until it is broken.
const BREAK_PERIOD: Duration = Duration::from_millis(200);

impl Ofi {
    /// An operation on a rail to the peer of a connection failed.
    pub(crate) fn on_error_of(
        &mut self,
        index: u32,
        rail: usize,
        operation: &'static str,
        codes: (Code, i32),
    ) {
        let class = classify(codes.0);
        match class {
            Class::Again => {}
            Class::Hint | Class::Consequence => {
                self.report(class, rail, operation, Some(index), codes);
                self.suspect(index, Cause::LinkDown);
            }
            Class::LocalFault if self.connections[index as usize].state == State::Connecting => {
                self.refuse_connection(index, codes.0);
            }
            Class::LocalFault => {
                let is_new = self.connections[index as usize].trouble.is_none();
                if is_new {
                    self.report(class, rail, operation, Some(index), codes);
                }
                // The peer is not to blame. The frame is tried again as after a break.
                self.begin_trouble(index);
            }
            Class::Device => {
                self.report(class, rail, operation, Some(index), codes);
                self.rails[rail].broken.get_or_insert(codes.0);
                self.begin_trouble(index);
            }
        }
    }

    /// This process lacks what a new connection needs. The layer above tells both ends; the program gets an error that says so.
    fn refuse_connection(&mut self, index: u32, code: Code) {
        const FI_ENOMEM: i32 = mend_ffi_ofi::bindings::FI_ENOMEM as i32;
        let connection = &mut self.connections[index as usize];
        if !connection.is_reported {
            connection.is_reported = true;
            let cause = if code.0 == FI_ENOMEM { Cause::NoMemory } else { Cause::Refused };
            self.callbacks.push_back(Callback::Error(index, cause));
        }
    }

    /// A frame that the device had copied was lost: which one, the provider does not tell. All peers that have not acknowledged everything
    /// are asked.
    pub(crate) fn on_anonymous_error(&mut self, rail: usize, codes: (Code, i32)) {
        let class = classify(codes.0);
        self.report(class, rail, "send", None, codes);
        if class == Class::Device {
            self.rails[rail].broken.get_or_insert(codes.0);
        }
        for connection in &mut self.connections {
            if connection.rail == rail && connection.is_open() && connection.has_unacknowledged() {
                connection.hurry_probe(self.now);
            }
        }
        self.next_timer = self.now;
    }

    /// A receive buffer failed, or a frame in it. If the provider has given it back, it is posted again. Else it may be lost, until it is given
    /// back: the rest of it is still posted where a broken connection has cut one frame short. A rail whose buffers are all lost is broken.
    pub(crate) fn on_receive_failed(&mut self, rail: usize, token: u32, failure: ErrorCompletion) {
        const FI_MULTI_RECV: u64 = mend_ffi_ofi::bindings::FI_MULTI_RECV as u64;
        let codes = (failure.code, failure.provider_code);
        if failure.flags & FI_MULTI_RECV != 0 {
            self.rails[rail].on_returned_with_error(token);
            if failure.code != Code::TRUNCATED {
                self.rails[rail].on_receive_error(failure.code);
            }
        } else if failure.code != Code::TRUNCATED {
            self.report(classify(failure.code), rail, "receive", None, codes);
            self.rails[rail].on_lost(token, failure.code);
        }
    }

    fn begin_trouble(&mut self, index: u32) -> bool {
        let connection = &mut self.connections[index as usize];
        let is_new = connection.is_open() && connection.begin_trouble(self.now);
        self.statistics.troubles += u64::from(is_new);
        self.next_timer = self.now;
        is_new
    }

    /// There is evidence that the peer has failed, or that the way to it is broken. Reported once, and once more after each `resume`.
    pub(crate) fn suspect(&mut self, index: u32, cause: Cause) {
        self.begin_trouble(index);
        let connection = &mut self.connections[index as usize];
        connection.forget_stalls();
        if connection.is_open() && !connection.is_reported {
            connection.is_reported = true;
            self.callbacks.push_back(Callback::Error(index, cause));
        }
    }

    /// Sends the probes that are due.
    pub(crate) fn run_timers(&mut self) {
        if self.now < self.next_timer && !self.is_flushing {
            return;
        }
        self.next_timer = self.now + TIMER_PERIOD;
        for index in 0..self.connections.len() as u32 {
            let Some(due) = self.connections[index as usize].probe_due(self.is_flushing) else { continue };
            self.judge_silence(index);
            if due <= self.now {
                self.send_probe(index);
            } else if self.connections[index as usize].probe.again.is_some_and(|again| again <= self.now) {
                self.post_probe(index);
            }
        }
    }

    /// A peer that answers no probe: evidence, and questions whether it runs, in rounds.
    fn judge_silence(&mut self, index: u32) {
        let (now, round) = (self.now, Duration(self.reconnect.0 / u64::from(ROUNDS)));
        let connection = &mut self.connections[index as usize];
        if connection.take_unreachable() {
            connection.is_reported = true;
            self.callbacks.push_back(Callback::Error(index, Cause::Unreachable));
        } else if connection.asks_whether_it_runs(now, round) {
            connection.is_reported = true;
            self.callbacks.push_back(Callback::Error(index, Cause::Silent));
        } else if connection.is_silent(now) {
            self.suspect(index, Cause::Silent);
        }
    }

    /// Breaks the connections over sockets that stand still, of all ways that are broken at once, so that the next probes make new ones: the kernel would
    /// wait for up to as long again as the wire was cut. Those that were accepted do not tell their peer, but no sound one stands still.
    pub(crate) fn break_stuck(&mut self) {
        if self.now < self.next_break {
            return;
        }
        self.next_break = self.now + BREAK_PERIOD;
        let has_sockets = |rail: &usize| Family::of(&self.entry.rails[*rail].0) == Family::Sockets;
        let rails: Vec<usize> = (0..self.rails.len()).filter(has_sockets).collect();
        let own = rails.iter().map(|&rail| &self.entry.rails[rail].1[..]);
        let paths = self.connections.iter().flat_map(|connection| {
            let paths = rails.iter().filter_map(|&rail| connection.paths[rail].as_ref());
            paths.filter(|path| connection.trouble.is_some() || path.is_broken)
        });
        let broken = self.stuck.break_all(own, paths.map(|path| &path.name[..]));
        self.statistics.broken += broken as u64;
    }

    /// Probes some peers that were not heard of lately: a dead one shows by an error of the probe.
    pub(crate) fn probe_some(&mut self) {
        let count = self.connections.len() as u32;
        for _ in 0..CHECKED_AT_ONCE.min(count) {
            let index = self.checked % count;
            self.checked = index + 1;
            let connection = &self.connections[index as usize];
            let is_due = connection.state == State::Connected
                && connection.trouble.is_none()
                && connection.probe.unanswered_since.is_none()
                && self.now - connection.heard >= HEARD_LATELY;
            if is_due {
                self.send_probe(index);
            }
        }
    }

    /// Opens broken devices again.
    pub(crate) fn repair_rails(&mut self) {
        for rail in 0..self.rails.len() {
            if let Some(code) = self.rails[rail].new_receive_fault() {
                self.report(Class::LocalFault, rail, "receive", None, (code, 0));
            }
            if self.now < self.next_repair {
                continue;
            }
            if self.rails[rail].broken.is_some() {
                self.repair(rail);
            } else if self.rails[rail].is_starved() {
                let _ = self.reopen(rail);
            } else if self.rails[rail].operations.were_many_refused() {
                self.reclaim_tokens(rail);
            }
        }
    }

    /// Providers drop sends without a completion when the address of their peer is removed, so that their tokens never come back. If most are
    /// of that kind, the device is opened again, which ends all.
    fn reclaim_tokens(&mut self, rail: usize) {
        let connections = &self.connections;
        let is_late = |operation: &Operation| match *operation {
            Operation::Frame { connection, epoch, .. } => {
                let connection = &connections[connection as usize];
                connection.state == State::Severed || connection.epoch != epoch
            }
            Operation::Transfer { .. } | Operation::Unclosed { .. } => false,
        };
        if self.rails[rail].operations.count(is_late) >= TOKENS as usize / 2 {
            let _ = self.reopen(rail);
        }
    }

    fn repair(&mut self, rail: usize) {
        if let Some(code) = self.rails[rail].broken {
            self.report(Class::Device, rail, "the completion queue", None, (code, 0));
        }
        // Nothing comes by it, even if it cannot be opened again now.
        self.break_ways(rail);
        let _ = self.reopen(rail);
    }

    /// Opens the devices of all rails again, so that no peer reads memory of this process any more. `false`: it is tried again later.
    ///
    /// An endpoint that could not be closed counts at the second try no more: its device is not polled any longer, and a provider that needs
    /// that sends nothing new, and one that does not has checked the key.
    pub(crate) fn reopen_all(&mut self) -> bool {
        if self.now < self.next_repair {
            return false;
        }
        // Each is opened, also after an error.
        let results: Vec<bool> = (0..self.rails.len()).map(|rail| self.reopen(rail).is_ok()).collect();
        results.into_iter().all(|reopened| reopened)
    }

    /// Opens the device of a rail again, and closes the old one. `Err`: peers may still access memory through the old one, which could not
    /// be replaced, or not be closed.
    pub(crate) fn reopen(&mut self, rail: usize) -> Result<(), Code> {
        // Tried again after a while if it fails.
        self.next_repair = self.now + REPAIR_PERIOD;
        let before = self.entry.rails[rail].1.clone();
        let unclosed = self.replace(rail, None)?;
        self.break_ways(rail);
        // The earlier address is free now. With it peers find this process, even those that have a new address themselves; else they learn
        // the new one from the probes that follow. That of the card is tried first, also if it was not free the last time.
        let card = self.card_names[rail].clone();
        if self.replace(rail, Some(&card)).is_err() && before != card {
            let _ = self.replace(rail, Some(&before));
        }
        self.statistics.reopened += 1;
        self.reinsert_paths(rail);
        unclosed.map_or(Ok(()), Err)
    }

    /// The ways over this rail are broken, also those on which nothing is sent now.
    fn break_ways(&mut self, rail: usize) {
        for index in 0..self.connections.len() as u32 {
            if self.connections[index as usize].rail == rail {
                self.begin_trouble(index);
            }
        }
    }

    /// Replaces a device by a new one, at this address or at any. Returns why the old one could not be closed, if that is so; `Err`: the new one
    /// could not be opened, and the old one stays.
    fn replace(&mut self, rail: usize, at: Option<&[u8]>) -> Result<Option<Code>, Code> {
        let frame_bytes_max = self.rails[rail].frame_bytes_max();
        let info = self.rails[rail].device().info().try_clone().ok_or(Code::AGAIN)?;
        let new = Rail::open(info, at, frame_bytes_max)?;
        let name = new.name()?;
        let prepared = self.buffers.prepare(new.device())?;
        // The old device and the sends that it has use the old registrations until its endpoints are closed.
        let before = self.buffers.set_device(rail, new.device(), prepared);
        let closed = core::mem::replace(&mut self.rails[rail], new).close();
        drop(before);
        self.entry.rails[rail].1 = name;
        for operation in closed.silent {
            match operation {
                Operation::Frame { buffer, .. } => self.release(buffer),
                Operation::Transfer { key, .. } | Operation::Unclosed { key, .. } => {
                    self.transfers.repost(key)
                }
            }
        }
        if let Some(code) = closed.error {
            // Buffers of frames and memory of transfers that the device may still access are never given back.
            self.buffers.keep_lent();
            self.report(Class::LocalFault, rail, "closing an endpoint", None, (code, 0));
        }
        Ok(closed.error)
    }

    fn reinsert_paths(&mut self, rail: usize) {
        for index in 0..self.connections.len() as u32 {
            let connection = &mut self.connections[index as usize];
            let Some(path) = &mut connection.paths[rail] else { continue };
            path.address = self.rails[rail].insert(&path.name).ok();
            self.begin_trouble(index);
        }
    }
}

/// How long to wait after a device could not be opened again.
const REPAIR_PERIOD: Duration = Duration::from_millis(100);
