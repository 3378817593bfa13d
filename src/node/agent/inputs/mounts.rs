//! How the mounts of this process differ from the machine's at the folders that it writes to.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;

use crate::config::Config;
use crate::core::mounts::MountDifference;
use crate::core::mounts::MountTable;
use crate::node::fsx::Shared;

/// What the folders are compared with: the machine's first process is in the kubelet's mount namespace.
const MACHINE: &str = "/proc/1/mountinfo";

/// The manifest folder and the kubelet's, each with its difference. A folder that is not there, or tables that cannot be
/// read, give none.
pub(super) fn compare(files: &Shared, config: &Config) -> BTreeMap<PathBuf, Option<MountDifference>> {
    let (Ok(own), Ok(machine)) = (files.text("/proc/self/mountinfo"), files.text(MACHINE)) else {
        return BTreeMap::new();
    };
    let (own, machine) = (MountTable::parse(&own), MountTable::parse(&machine));
    let compared = |path: &PathBuf| {
        let difference = own.difference(&machine, &resolved(files, path)?);
        Some((path.clone(), difference))
    };
    [&config.manifest_dir, &config.kubelet_root].into_iter().filter_map(compared).collect()
}

fn resolved(files: &Shared, path: &Path) -> Option<PathBuf> {
    files.resolve(path).ok()
}
