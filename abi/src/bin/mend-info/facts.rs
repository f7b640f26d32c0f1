// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The facts that mend-info prints, before they are written as text or JSON.

use crate::collectives::{self, Choice, choices};
use mend_base::parameter::{Origin, Parameter, ParameterKind, Settings};
use mend_runtime::environment::{COMMAND_LINE, foreign_launcher, read_assignments};
use mend_segment::{NoticePage, NoticeView};
use mend_world::{FabricOffer, FabricSurvey};
use std::os::fd::AsFd as _;

/// All facts.
pub struct Facts {
    /// Names and values.
    pub versions: Vec<(&'static str, String)>,
    /// Names and values.
    pub host: Vec<(&'static str, String)>,
    /// Every parameter.
    pub parameters: Vec<Value>,
    /// Every component.
    pub components: Vec<Component>,
    /// The component that serves each collective operation.
    pub collectives: Vec<Choice>,
    /// Errors of the settings.
    pub problems: Vec<String>,
    /// Whether a rank would refuse to start with these errors.
    pub refused: bool,
}

/// A parameter with its value.
pub struct Value {
    /// Its row.
    pub row: &'static Parameter,
    /// Its value, as written.
    pub value: String,
    /// The place where it was set.
    pub origin: Origin,
}

/// A component of a framework.
pub struct Component {
    /// `btl`, `coll`, `runtime`.
    pub framework: &'static str,
    /// Its name in the parameter of the framework.
    pub name: &'static str,
    /// What it does.
    pub description: &'static str,
    /// `Ok`: why it can run here; `Err`: why it cannot.
    pub runs: Result<String, String>,
    /// What it could choose from on this host.
    pub offers: Vec<FabricOffer>,
}

impl Facts {
    /// Collects the facts of this host. Removes what its trials create. Starts one process, the child that opens libfabric first.
    pub fn gather() -> Facts {
        let (settings, mut problems, mut refused) = settings();
        let parameters = mend_world::DECLARED
            .iter()
            .map(|row| {
                let (value, origin) = settings.text(row.name);
                Value { row, value: value.to_owned(), origin }
            })
            .collect();
        let components = components(&settings);
        let mut host = host();
        host.push(("rdma_devices", rdma_devices(&components)));
        let (collectives, selected) = choices(&settings);
        if let Err(error) = selected {
            problems.push(error.to_string());
            refused = true;
        }
        Facts { versions: versions(), host, parameters, components, collectives, problems, refused }
    }
}

/// The values in force, as a rank that is started here would have them.
fn settings() -> (Settings, Vec<String>, bool) {
    let said = std::env::var(COMMAND_LINE).ok().and_then(|text| read_assignments(&text));
    match mend_world::settings_from_environment(&said.unwrap_or_default()) {
        Ok((settings, unknown_parameters)) => {
            (settings, unknown_parameters.iter().map(ToString::to_string).collect(), false)
        }
        Err(error) => (
            Settings::new(mend_world::DECLARED),
            vec![format!("{error}; the values shown are the defaults")],
            true,
        ),
    }
}

fn versions() -> Vec<(&'static str, String)> {
    vec![
        ("mend", env!("CARGO_PKG_VERSION").to_owned()),
        ("standard", "MPI-5.0".to_owned()),
        ("abi", "1.0, libmpi_abi.so.1".to_owned()),
        ("platform", format!("{} {}", std::env::consts::ARCH, std::env::consts::OS)),
    ]
}

fn host() -> Vec<(&'static str, String)> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let memory = match mend_segment::memory_left() {
        Some(bytes) => format!("{} MiB left under the tightest limit", bytes >> 20),
        None => "no limit".to_owned(),
    };
    let launcher = match foreign_launcher(|name| std::env::var_os(name)) {
        Some(foreign) => format!("{} ({} is set)", foreign.name, foreign.variable),
        None if std::env::var_os(mend_runtime::environment::DAEMON).is_some() => "mpiexec of Mend".to_owned(),
        None => "none: a program started like this is a job of one".to_owned(),
    };
    vec![
        ("name", read("/proc/sys/kernel/hostname")),
        ("kernel", read("/proc/sys/kernel/osrelease")),
        (
            "processors",
            format!("{} may be used (affinity mask and cgroup quota)", mend_world::usable_processors()),
        ),
        ("memory", memory),
        ("node_daemon", watching().to_owned()),
        ("launcher", launcher),
    ]
}

/// The devices for remote memory access of this host, and whether one would be used, or why not.
fn rdma_devices(components: &[Component]) -> String {
    let ofi = components.iter().find(|component| component.name == "ofi");
    devices_in_words(&mend_world::rdma_devices(), ofi)
}

fn devices_in_words(devices: &[String], ofi: Option<&Component>) -> String {
    if devices.is_empty() {
        return "none".to_owned();
    }
    let devices = devices.join(", ");
    let mut used = ofi.iter().flat_map(|ofi| &ofi.offers).filter(|offer| offer.refused.is_none());
    match (used.find(|offer| mend_world::is_of_device(&offer.provider)), ofi.map(|ofi| &ofi.runs)) {
        (Some(FabricOffer { provider, interface, .. }), _) => {
            format!("{devices} (libfabric would use {provider} over {interface})")
        }
        (None, Some(Err(why))) => format!("{devices}: not used, as libfabric cannot be used: {why}"),
        (None, _) => format!("{devices}: not used, as no provider of libfabric for devices is chosen"),
    }
}

/// How mpiexec's node daemon would watch the life words of its ranks here.
fn watching() -> &'static str {
    if mend_segment::can_sleep_on_life_words() {
        "watches up to 127 life words by one thread (futex_waitv)"
    } else {
        "watches each life word by a thread of its own: futex_waitv (Linux 5.16) is not there, or refused"
    }
}

fn components(settings: &Settings) -> Vec<Component> {
    let rows = [
        ("self", "messages of a process to itself", Ok("needs nothing".to_owned())),
        ("shm", "shared memory of one host", shared_memory()),
    ];
    let btl = |(name, description, runs)| Component {
        framework: "btl",
        name,
        description,
        runs,
        offers: Vec::new(),
    };
    let chosen = |component: Component| match settings.allows(component.framework, component.name) {
        true => component,
        false => Component { runs: Err(excluded(settings, component.framework)), ..component },
    };
    let rows = rows.into_iter().map(btl).chain([fabric(settings)]);
    rows.chain(collectives::components(settings)).map(chosen).collect()
}

/// What a rank would find that opens libfabric here. A library that the user has left out is not opened.
fn fabric(settings: &Settings) -> Component {
    let (runs, offers) =
        if settings.allows("btl", "ofi") { fabric_here(settings) } else { (Err(String::new()), Vec::new()) };
    let description = "libfabric, opened if btl names ofi or shared memory does not reach all ranks";
    Component { framework: "btl", name: "ofi", description, runs, offers }
}

fn fabric_here(settings: &Settings) -> (Result<String, String>, Vec<FabricOffer>) {
    let FabricSurvey { version: (major, minor), offers } = match mend_world::survey_fabric(settings) {
        Ok(survey) => survey,
        Err(error) => return (Err(error.to_string()), Vec::new()),
    };
    let used = offers.iter().filter(|offer| offer.refused.is_none());
    let used: Vec<String> =
        used.map(|offer| format!("{} over {}", offer.provider, offer.interface)).collect();
    let library = format!("libfabric {major}.{minor}");
    let runs = match (used.is_empty(), offers.is_empty()) {
        (false, _) => Ok(format!("{library}, provider {}", used.join(" and "))),
        (true, false) => Err(format!("{library}: none of its providers can be used")),
        (true, true) => {
            Err(format!("{library}: no provider offers reliable messages and remote memory access"))
        }
    };
    (runs, offers)
}

fn excluded(settings: &Settings, framework: &str) -> String {
    let (value, origin) = settings.text(framework);
    format!("left out by {framework} = {value} ({})", origin_words(origin))
}

/// Tries the parts of shared memory: creates a sealed memory file, maps it writable and read-only, and removes it.
fn shared_memory() -> Result<String, String> {
    let (page, descriptor) = NoticePage::create(1).map_err(|error| error.to_string())?;
    NoticeView::map(descriptor.as_fd(), 1).map_err(|error| error.to_string())?;
    drop(page);
    Ok("memory files can be made, sealed and mapped here".to_owned())
}

/// The place where a value was set, in words.
pub fn origin_words(origin: Origin) -> &'static str {
    match origin {
        Origin::Default => "default",
        Origin::File => "file",
        Origin::Environment => "environment",
        Origin::CommandLine => "command line",
    }
}

/// The values that a parameter accepts, in words.
pub fn kind_words(kind: ParameterKind) -> String {
    match kind {
        ParameterKind::Number(least, most) => format!("a number from {least} to {most}"),
        ParameterKind::Choice(words) => format!("one of {}", words.join(", ")),
        ParameterKind::Names(words) => format!("a list of {}, or ^ and a list", words.join(", ")),
        ParameterKind::Words(words) => format!("a list of {}", words.join(", ")),
        ParameterKind::Text => "any text".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Component, Facts, devices_in_words};
    use crate::{json, text};
    use mend_world::FabricOffer;

    #[test]
    fn every_parameter_and_component_is_in_both_forms() {
        let facts = Facts::gather();
        let (text, json) = (text::text(&facts), json::json(&facts));
        for row in mend_world::DECLARED.iter() {
            assert!(text.contains(row.name) && json.contains(row.name), "{}", row.name);
            assert!(text.contains(row.description), "{}", row.name);
        }
        for words in ["btl self", "btl ofi", "coll basic", "coll ftagree"] {
            assert!(text.contains(words), "{words}");
        }
        for words in ["allreduce", "agree, iagree", "basic bids with priority 10"] {
            assert!(text.contains(words) && json.contains(words), "{words}");
        }
        assert!(text.contains("life word") && json.contains("futex_waitv"));
        assert_eq!(json.matches('{').count(), json.matches('}').count());
    }
    #[test]
    fn a_device_that_would_not_be_used_is_named_with_the_reason() {
        let devices = ["mlx5_0".to_owned()];
        let offer = |provider: &str| FabricOffer {
            provider: provider.to_owned(),
            interface: "eth0".to_owned(),
            refused: None,
        };
        let words = |runs, offers| {
            let ofi = Component { framework: "btl", name: "ofi", description: "", runs, offers };
            devices_in_words(&devices, Some(&ofi))
        };
        assert_eq!(devices_in_words(&[], None), "none");
        let left_out = words(Err("left out by btl = ^ofi".to_owned()), vec![]);
        assert_eq!(left_out, "mlx5_0: not used, as libfabric cannot be used: left out by btl = ^ofi");
        let other = words(Ok(String::new()), vec![offer("tcp")]);
        assert_eq!(other, "mlx5_0: not used, as no provider of libfabric for devices is chosen");
        let used = words(Ok(String::new()), vec![offer("tcp"), offer("verbs;ofi_rxm")]);
        assert_eq!(used, "mlx5_0 (libfabric would use verbs;ofi_rxm over eth0)");
    }
}
