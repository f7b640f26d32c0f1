// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of the providers and interfaces of a host are used, and why others are not.

use core::fmt;
use mend_ffi_ofi::bindings::{FI_CONTEXT, FI_CONTEXT2, FI_MR_RAW, FI_SOCKADDR_IN6};
use mend_ffi_ofi::{Code, Hints, Info, Ofi as Library};
use std::sync::Arc;

/// What a user has said about providers and interfaces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Choice {
    /// `btl_ofi.provider`.
    pub providers: String,
    /// `btl_ofi.interface`.
    pub interfaces: String,
    /// `btl_ofi.rails`.
    pub rails: usize,
    /// All processes are on this host, so the loopback interface is best.
    pub one_host: bool,
}

/// A provider over an interface.
#[derive(Debug)]
pub struct Candidate {
    /// The provider.
    pub provider: String,
    /// The interface.
    pub interface: String,
    /// Why it is not used; `None`: it is.
    pub refused: Option<NotChosen>,
    info: Info,
}

/// Why a provider is not used over an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotChosen {
    /// The user has excluded the provider, or has named others.
    Provider,
    /// The user has excluded the interface, or has named others.
    Interface,
    /// It lacks what the BTL needs.
    Lacks(&'static str),
    /// Another one is fitter.
    Fitter {
        /// The provider of the other.
        provider: String,
        /// Its interface.
        interface: String,
    },
}

impl fmt::Display for NotChosen {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotChosen::Provider => out.write_str("excluded by btl_ofi.provider"),
            NotChosen::Interface => out.write_str("excluded by btl_ofi.interface"),
            NotChosen::Lacks(what) => write!(out, "the provider lacks {what}"),
            NotChosen::Fitter { provider, interface } => {
                write!(out, "provider {provider} over {interface} is fitter")
            }
        }
    }
}

/// What the providers of this host offer, the fittest first, each with the reason why it is not used, if it is not.
pub fn candidates(library: &Arc<Library>, choice: &Choice) -> Result<Vec<Candidate>, Code> {
    let infos = library.infos(&Hints { remote_memory: true })?;
    let mut all: Vec<Candidate> = infos
        .into_iter()
        .map(|info| Candidate {
            provider: info.provider(),
            interface: info.domain(),
            refused: lacks(&info).map(NotChosen::Lacks),
            info,
        })
        .collect();
    for candidate in &mut all {
        if !allows(&choice.providers, &candidate.provider) {
            candidate.refused = Some(NotChosen::Provider);
        } else if !allows(&choice.interfaces, &candidate.interface) {
            candidate.refused = Some(NotChosen::Interface);
        }
    }
    // Stable: what libfabric prefers among equals comes first.
    all.sort_by_key(|candidate| fitness(candidate, choice));
    refuse_the_less_fit(&mut all, choice.rails.max(1));
    Ok(all)
}

/// The infos of the candidates that are used.
pub fn choose(candidates: Vec<Candidate>) -> Vec<Info> {
    candidates
        .into_iter()
        .filter(|candidate| candidate.refused.is_none())
        .map(|candidate| candidate.info)
        .collect()
}

/// Keeps the first candidate of each provider and interface, as many as there are to be rails.
fn refuse_the_less_fit(all: &mut [Candidate], rails: usize) {
    let mut chosen: Vec<(String, String)> = Vec::new();
    for candidate in all.iter_mut().filter(|candidate| candidate.refused.is_none()) {
        let name = (candidate.provider.clone(), candidate.interface.clone());
        match chosen.last() {
            Some((provider, interface)) if chosen.len() >= rails || chosen.contains(&name) => {
                let (provider, interface) = (provider.clone(), interface.clone());
                candidate.refused = Some(NotChosen::Fitter { provider, interface });
            }
            _ => chosen.push(name),
        }
    }
}

/// What the BTL needs and the provider has not.
fn lacks(info: &Info) -> Option<&'static str> {
    if !info.keeps_order() {
        return Some("messages in order");
    }
    if info.mode() & !(FI_CONTEXT | FI_CONTEXT2) != 0 {
        return Some("a mode without message prefixes");
    }
    if info.registration_mode() & FI_MR_RAW != 0 {
        return Some("registration keys of 64 bits");
    }
    if info.inject_bytes_max() < crate::frame::HEADER_BYTES {
        return Some("messages of 32 bytes that are copied at once");
    }
    None
}

/// Whether a list allows a name: empty allows all, a leading `^` all but those that follow.
fn allows(list: &str, name: &str) -> bool {
    let (excludes, names) = match list.strip_prefix('^') {
        Some(names) => (true, names),
        None => (false, list),
    };
    if list.is_empty() {
        return true;
    }
    names.split(',').any(|each| is_named(each.trim(), name)) != excludes
}

/// `tcp` names the provider `tcp`, and also the `net` of libfabric 1.17, which is the same one under an earlier name; a core provider under
/// a utility provider has its whole name, such as `tcp;ofi_rxm`.
fn is_named(word: &str, name: &str) -> bool {
    word == name || (word == "tcp" && name == "net")
}

/// The place of a candidate in the order: lower is better.
fn fitness(candidate: &Candidate, choice: &Choice) -> (usize, usize, bool, bool) {
    let position = |list: &str, name: &str| {
        let names = if list.starts_with('^') { "" } else { list };
        names.split(',').position(|each| is_named(each.trim(), name)).unwrap_or(usize::MAX)
    };
    let provider = match position(&choice.providers, &candidate.provider) {
        usize::MAX => {
            let known = ORDER.iter().position(|provider| *provider == candidate.provider);
            ORDER.len() + known.unwrap_or(UNKNOWN)
        }
        place => place,
    };
    let wants_loopback = choice.one_host == (candidate.interface == "lo");
    let is_ipv6 = candidate.info.address_format() == FI_SOCKADDR_IN6;
    (provider, position(&choice.interfaces, &candidate.interface), !wants_loopback, is_ipv6)
}

/// Providers by fitness: devices first, then sockets by speed. The shared memory of libfabric is last: Mend's own outlives the death of a
/// process at any instruction, and that one does not.
const ORDER: &[&str] = &[
    "cxi",
    "verbs;ofi_rxm",
    "efa",
    "psm3",
    "opx",
    "tcp",
    "net",
    "tcp;ofi_rxm",
    "net;ofi_rxm",
    "udp;ofi_rxd",
    "sockets",
    "shm",
];

/// An unknown provider comes before those over sockets.
const UNKNOWN: usize = 5;

#[cfg(test)]
mod tests {
    use super::{allows, is_named};

    #[test]
    fn a_list_allows_what_it_names_and_with_a_caret_all_others() {
        assert!(allows("", "tcp"));
        assert!(allows("sockets, tcp", "tcp") && !allows("sockets", "tcp"));
        assert!(!allows("^tcp,shm", "shm") && allows("^tcp,shm", "sockets"));
        assert!(!allows("tcp", "tcp;ofi_rxm"), "a utility provider has its whole name");
    }

    #[test]
    fn the_two_names_of_one_provider_are_the_same() {
        assert!(is_named("tcp", "net") && !is_named("net", "tcp"));
    }
}
