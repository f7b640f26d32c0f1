// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Start: finds the launcher of this process, and joins its job.

use crate::client::{Client, NodePages};
use crate::daemon_protocol::Place;
use crate::emergency_channel::EmergencyChannel;
use crate::environment::{self, Address, InitialErrorHandler};
use crate::runtime::{Membership, Notice, ResultKey, Runtime, RuntimeError};
use crate::singleton::Singleton;
use crate::start_error::StartError;
use crate::transport_view::TransportView;
use mend_base::Peer;
use mend_base::parameter::Assignments;
use mend_segment::{BellPage, Life};
use mend_transport::{Card, Cause};
use std::ffi::OsString;

/// A process that has joined its job.
#[derive(Debug)]
pub struct Launched {
    /// The connection to the launcher.
    pub runtime: AnyRuntime,
    /// What the node daemon told this process about its node and the command line.
    pub data: LaunchData,
}

/// What the node daemon tells a process that joins: its node slot, the settings of the command line, the first error handler.
#[derive(Debug)]
pub struct LaunchData {
    /// Index of bells and sleep words.
    pub node_slot: u32,
    /// How many node slots there are.
    pub node_slots: u32,
    /// The node's bell page; `None` for a singleton, and where the node daemon could make none. Then there is no shared memory.
    pub bells: Option<BellPage>,
    /// The life of this process, which must begin before its card is published; `None` for a singleton, and where the system refuses
    /// memory files.
    pub life: Option<Life>,
    /// The assignments of `mpiexec --mca`, whose origin is [`Origin::CommandLine`](mend_base::parameter::Origin::CommandLine).
    pub settings: Assignments,
    /// The error handler with which the program begins.
    pub error_handler: InitialErrorHandler,
}

/// The connection to the launcher, of either kind.
#[derive(Debug)]
pub enum AnyRuntime {
    /// The client of a node daemon of `mpiexec`.
    Daemon(Client),
    /// Without a launcher: a job of one.
    Singleton(Singleton),
}

/// Finds the launcher of this process from its environment, and joins its job: that of a node daemon if `mpiexec` started the
/// process, a job of one if no launcher did. A foreign launcher is refused.
///
/// Waits for the daemon's welcome, which depends on no other rank.
pub fn connect_from_environment() -> Result<Launched, StartError> {
    connect(|name| std::env::var_os(name))
}

fn connect(variable: impl Fn(&str) -> Option<OsString>) -> Result<Launched, StartError> {
    let settings =
        text(&variable, environment::COMMAND_LINE, environment::read_assignments)?.unwrap_or_default();
    let handler = text(&variable, environment::INITIAL_ERROR_HANDLER, InitialErrorHandler::from_name)?;
    let (runtime, pages) = match text(&variable, environment::DAEMON, Address::from_text)? {
        Some(address) => {
            let (client, pages) = Client::connect(&address)?;
            (AnyRuntime::Daemon(client), pages)
        }
        None => match environment::foreign_launcher(&variable) {
            Some(foreign) => return Err(StartError::Foreign(foreign)),
            None => (AnyRuntime::Singleton(Singleton::start()), NodePages { bells: None, life: None }),
        },
    };
    let Membership { node_slot, node_slots, .. } = *runtime.membership();
    let NodePages { bells, life } = pages;
    let error_handler = handler.unwrap_or_default();
    let data = LaunchData { node_slot, node_slots, bells, life, settings, error_handler };
    Ok(Launched { runtime, data })
}

/// Reads one of our variables; an empty value counts as unset.
fn text<T>(
    variable: impl Fn(&str) -> Option<OsString>,
    name: &'static str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, StartError> {
    let Some(value) = variable(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    value.to_str().and_then(read).map(Some).ok_or(StartError::Variable(name))
}

impl AnyRuntime {
    /// A second descriptor of the socket to the daemon; `None` for a singleton.
    pub fn emergency_channel(&self) -> Option<EmergencyChannel> {
        match self {
            AnyRuntime::Daemon(client) => client.emergency_channel(),
            AnyRuntime::Singleton(_) => None,
        }
    }

    fn any(&self) -> &dyn Runtime {
        match self {
            AnyRuntime::Daemon(client) => client,
            AnyRuntime::Singleton(singleton) => singleton,
        }
    }

    fn any_mut(&mut self) -> &mut dyn Runtime {
        match self {
            AnyRuntime::Daemon(client) => client,
            AnyRuntime::Singleton(singleton) => singleton,
        }
    }
}

impl Runtime for AnyRuntime {
    fn membership(&self) -> &Membership {
        self.any().membership()
    }

    fn publish(&mut self, card: &Card) -> Result<(), RuntimeError> {
        self.any_mut().publish(card)
    }

    fn lookup(&mut self, peer: Peer) -> Result<(), RuntimeError> {
        self.any_mut().lookup(peer)
    }

    fn refuse(&mut self, peer: Peer, cause: Cause) {
        self.any_mut().refuse(peer, cause);
    }

    fn ask(&mut self, peer: Peer, cause: Cause) {
        self.any_mut().ask(peer, cause);
    }

    // Called in each call of progress, so it branches and uses no `dyn`.
    #[inline]
    fn notice_version(&self) -> u32 {
        match self {
            AnyRuntime::Daemon(client) => client.notice_version(),
            AnyRuntime::Singleton(singleton) => singleton.notice_version(),
        }
    }

    fn check(&mut self) {
        self.any_mut().check();
    }

    fn check_peers(&mut self, on_exited: &mut dyn FnMut(Peer)) {
        self.any_mut().check_peers(on_exited);
    }

    fn notice_descriptor(&self) -> Option<i32> {
        self.any().notice_descriptor()
    }

    fn notice(&mut self) -> Option<Notice> {
        self.any_mut().notice()
    }

    fn leave_result(&mut self, key: ResultKey, result: &[u8]) {
        self.any_mut().leave_result(key, result);
    }

    fn sits(&mut self, place: Place) {
        self.any_mut().sits(place);
    }

    fn report_transports(&mut self, view: &TransportView) {
        self.any_mut().report_transports(view);
    }

    fn recall_result(&mut self, key: ResultKey) {
        self.any_mut().recall_result(key);
    }

    fn finalize(&mut self) {
        self.any_mut().finalize();
    }

    fn abort(&mut self, code: i32) {
        self.any_mut().abort(code);
    }

    fn abort_some(&mut self, code: i32, peers: &[Peer]) {
        self.any_mut().abort_some(code, peers);
    }
}

#[cfg(test)]
mod tests {
    use super::{AnyRuntime, StartError, connect};
    use crate::Runtime;
    use std::ffi::OsString;

    fn with(pairs: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        move |name| pairs.iter().find(|(each, _)| *each == name).map(|(_, value)| OsString::from(value))
    }

    #[test]
    fn a_process_without_a_launcher_is_a_job_of_one() {
        let launched = connect(with(&[("MEND_INITIAL_ERRHANDLER", "mpi_errors_return")])).unwrap();
        assert!(matches!(launched.runtime, AnyRuntime::Singleton(_)));
        assert_eq!(launched.runtime.membership().size, 1);
        assert_eq!(launched.data.node_slots, 1);
    }

    #[test]
    fn a_foreign_launcher_is_refused_with_the_right_command() {
        let refused = connect(with(&[("PMIX_RANK", "0")])).unwrap_err();
        assert!(matches!(refused, StartError::Foreign(_)));
        let message = refused.to_string();
        assert!(message.contains("PMIX_RANK") && message.contains("mpiexec -n"), "{message}");
    }

    #[test]
    fn a_daemon_that_is_gone_and_an_address_that_is_garbled_are_two_errors() {
        const GONE: &str = "1:00000000000000000000000000000001:0:00000000000000000000000000000002:0";
        assert!(matches!(connect(with(&[("MEND_DAEMON", "me")])), Err(StartError::Variable("MEND_DAEMON"))));
        assert!(matches!(
            connect(with(&[("MEND_DAEMON", GONE)])),
            Err(StartError::OtherNetwork | StartError::NoDaemon(_))
        ));
    }
}
