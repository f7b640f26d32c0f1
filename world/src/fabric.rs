// SPDX-License-Identifier: Apache-2.0 OR MIT
//! libfabric in this process: whether it may be opened, and the BTL over it.
//!
//! Opening libfabric runs code of every provider of the host, some of which end the process. So a child tries it first.

mod shown_faults;
mod trial;

use crate::fatal::KeptSignals;
use mend_base::Duration;
use mend_base::parameter::{Origin, Settings};
use mend_btl_ofi::{Candidate, Choice, Class, NotChosen, Ofi, Options, Report, candidates, choose};
use mend_ffi_ofi::Ofi as Library;
use shown_faults::ShownFaults;
use std::io::Write;
use std::sync::Arc;
use trial::try_in_a_child;

/// Why there is no BTL over libfabric.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoFabric {
    /// The library was not opened.
    #[error("{0}")]
    Library(#[from] mend_ffi_ofi::LoadError),
    /// A child that opened it ended with a signal, or did not end.
    #[error(
        "{library}: a child that looked for its providers {how}; choose another library (btl_ofi.library)"
    )]
    Crashes {
        /// The library.
        library: String,
        /// What happened to the child.
        how: String,
    },
    /// It lists no providers.
    #[error("libfabric lists no providers: {0}")]
    NoList(mend_ffi_ofi::Code),
    /// No provider fits.
    #[error("no provider of libfabric can be used{0}")]
    NoProvider(String),
    /// The BTL was not opened.
    #[error("{0}")]
    Open(#[from] mend_btl_ofi::OpenError),
}

/// The BTL over libfabric, and how it was chosen.
pub struct Fabric {
    pub ofi: Ofi,
    /// The rails, each as `PROVIDER over INTERFACE`.
    pub rails: String,
    /// The providers of the rails.
    pub providers: Vec<String>,
    /// Why other candidates were not chosen, but that one of the chosen is fitter.
    pub refusals: Vec<String>,
}

/// What libfabric offers on this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FabricSurvey {
    /// The version of the library: major and minor number.
    pub version: (u32, u32),
    /// The candidates, the fittest first.
    pub offers: Vec<FabricOffer>,
}

/// A provider over an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FabricOffer {
    /// The provider.
    pub provider: String,
    /// The interface.
    pub interface: String,
    /// Why it would not be used; `None`: it would.
    pub refused: Option<String>,
}

/// Opens the BTL over libfabric as the parameters say. `one_host`: all processes of the job are on this host.
pub fn open(settings: &Settings, one_host: bool) -> Result<Fabric, NoFabric> {
    with_library(settings, |library| open_here(settings, library, one_host))
}

/// What libfabric offers on this host, for a job on this host alone. A child tries it first, as in Init.
pub fn survey(settings: &Settings) -> Result<FabricSurvey, NoFabric> {
    with_library(settings, |library| {
        let all = candidates(library, &choice(settings, true)).map_err(NoFabric::NoList)?;
        let mut offers: Vec<FabricOffer> = Vec::new();
        for each in all {
            let refused = each.refused.as_ref().map(ToString::to_string);
            let offer = FabricOffer { provider: each.provider, interface: each.interface, refused };
            // A provider has one entry for each of its address formats: what is said of the pair is that of the entry that is chosen, if one is.
            let is_same = |other: &&mut FabricOffer| {
                (&other.provider, &other.interface) == (&offer.provider, &offer.interface)
            };
            match offers.iter_mut().find(is_same) {
                None => offers.push(offer),
                Some(other) if offer.refused.is_none() => *other = offer,
                Some(_) => {}
            }
        }
        Ok(FabricSurvey { version: library.version(), offers })
    })
}

/// Runs `work` with the library, once a child has shown that it can be opened. Keeps the signal handlers of the process.
fn with_library<R>(
    settings: &Settings,
    work: impl FnOnce(&Arc<Library>) -> Result<R, NoFabric>,
) -> Result<R, NoFabric> {
    let name = settings.text("btl_ofi.library").0;
    try_in_a_child(name)?;
    let kept = KeptSignals::keep();
    let result = Library::open(name).map_err(NoFabric::Library).and_then(|library| work(&library));
    kept.restore();
    result
}

fn open_here(settings: &Settings, library: &Arc<Library>, one_host: bool) -> Result<Fabric, NoFabric> {
    let choice = choice(settings, one_host);
    let all = candidates(library, &choice).map_err(NoFabric::NoList)?;
    let refusals = refusals(&all);
    let infos = choose(all);
    if infos.is_empty() {
        let reasons = if refusals.is_empty() { String::new() } else { format!(" ({})", refusals.join("; ")) };
        return Err(NoFabric::NoProvider(reasons));
    }
    let shows_all = settings.has_word("report", "transports");
    let mut shown = ShownFaults::default();
    // 0: what suits the provider.
    let given = |name| Some(settings.number(name) as u32).filter(|&bytes| bytes > 0);
    let options = Options {
        instance: u64::from_le_bytes(mend_runtime::entropy::random_bytes()),
        eager_bytes: given("btl_ofi.eager_bytes"),
        chunk_bytes: given("btl_ofi.chunk_bytes"),
        reconnect: Duration::from_millis(settings.number("btl_ofi.reconnect_ms")),
        report: Box::new(move |report| show(report, shows_all, &mut shown)),
    };
    let ofi = Ofi::open(infos, options)?;
    let rails: Vec<String> =
        ofi.rails().map(|(provider, interface)| format!("{provider} over {interface}")).collect();
    let providers = ofi.rails().map(|(provider, _)| provider).collect();
    Ok(Fabric { ofi, rails: rails.join(" and "), providers, refusals })
}

/// What the user has said about providers.
fn choice(settings: &Settings, one_host: bool) -> Choice {
    Choice {
        providers: settings.text("btl_ofi.provider").0.to_owned(),
        interfaces: settings.text("btl_ofi.interface").0.to_owned(),
        rails: settings.number("btl_ofi.rails") as usize,
        one_host,
    }
}

/// Whether the user has named libfabric as a transport: then it is opened although shared memory reaches all ranks.
pub fn is_named(settings: &Settings) -> bool {
    let (list, origin) = settings.text("btl");
    origin != Origin::Default && !list.starts_with('^') && list.split(',').any(|name| name == "ofi")
}

/// The reasons why candidates are not used, each once for all interfaces of a provider. That another one is fitter is no reason here: the
/// other one is used.
fn refusals(all: &[Candidate]) -> Vec<String> {
    let mut reasons: Vec<(&str, &NotChosen, Vec<&str>)> = Vec::new();
    for candidate in all {
        let reason = match &candidate.refused {
            None | Some(NotChosen::Fitter { .. }) => continue,
            Some(reason) => reason,
        };
        let provider = candidate.provider.as_str();
        match reasons.iter_mut().find(|(of, why, _)| *of == provider && *why == reason) {
            Some((_, _, interfaces)) if interfaces.contains(&candidate.interface.as_str()) => {}
            Some((_, _, interfaces)) => interfaces.push(&candidate.interface),
            None => reasons.push((provider, reason, vec![&candidate.interface])),
        }
    }
    let line = |(provider, reason, interfaces): (&str, &NotChosen, Vec<&str>)| {
        format!("{provider} over {}: {reason}", interfaces.join(", "))
    };
    reasons.into_iter().map(line).collect()
}

/// Shows a fault of this process always, and what fault tolerance absorbs if the user asks for it.
fn show(report: &Report, shows_all: bool, shown: &mut ShownFaults) {
    if !shows_all && !matches!(report.class, Class::LocalFault | Class::Device) {
        return;
    }
    let text = match shown.count(report) {
        None => return,
        Some(1) => format!("mend: E-OFI-001: {report}"),
        Some(number) => format!("mend: E-OFI-001: {report} ({number} times so far)"),
    };
    // A closed stderr must not end the process.
    let _ = writeln!(std::io::stderr(), "{text}");
}
