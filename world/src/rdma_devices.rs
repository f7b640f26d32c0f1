// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The devices for remote memory access that this host has, as the kernel lists them: whoever has one wants to know if it is not used.

use std::fs::read_dir;
use std::path::Path;

/// Their names, such as `mlx5_0`, in order.
pub fn rdma_devices() -> Vec<String> {
    devices_under(Path::new("/sys/class"))
}

/// Verbs, EFA and Omni-Path; Slingshot.
const CLASSES: [&str; 2] = ["infiniband", "cxi"];

fn devices_under(classes: &Path) -> Vec<String> {
    // A class that is not there has no device.
    let listed = CLASSES.iter().filter_map(|class| read_dir(classes.join(class)).ok()).flatten().flatten();
    let mut names: Vec<String> =
        listed.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Whether a provider of libfabric uses such a device.
pub fn is_of_device(provider: &str) -> bool {
    let core = provider.split(';').next().unwrap_or(provider);
    !matches!(core, "tcp" | "net" | "sockets" | "udp" | "shm")
}

/// What a report says about devices that are not used: one line, or none.
pub fn unused_devices(devices: &[String], providers: &[String], why: &str) -> Option<String> {
    let is_used = providers.iter().any(|provider| is_of_device(provider));
    (!devices.is_empty() && !is_used).then(|| format!("device {}: {why}", devices.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::{devices_under, unused_devices};

    #[test]
    fn the_devices_of_all_classes_are_listed_and_a_class_that_is_absent_has_none() {
        let classes = std::env::temp_dir().join(format!("mend-devices-{}", std::process::id()));
        for device in ["infiniband/mlx5_1", "infiniband/mlx5_0", "net/eth0"] {
            std::fs::create_dir_all(classes.join(device)).unwrap();
        }
        let devices = devices_under(&classes);
        std::fs::remove_dir_all(&classes).unwrap();
        assert_eq!(devices, ["mlx5_0", "mlx5_1"]);
        assert!(devices_under(&classes).is_empty());
    }

    #[test]
    fn a_device_that_no_provider_uses_is_named_with_the_reason() {
        let devices = ["mlx5_0".to_owned()];
        let providers = |name: &str| [name.to_owned()];
        let why = "libfabric uses net over eth0";
        let line = unused_devices(&devices, &providers("net"), why);
        assert_eq!(line, Some("device mlx5_0: libfabric uses net over eth0".to_owned()));
        assert_eq!(unused_devices(&devices, &providers("verbs;ofi_rxm"), why), None);
        assert_eq!(unused_devices(&[], &[], why), None, "there is none");
    }
}
