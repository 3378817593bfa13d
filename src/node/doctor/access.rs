//! What the user who runs `daemonlet doctor` may not read.
//!
//! Owns which paths each check reads. Must not judge them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::unistd;
use nix::unistd::AccessFlags;
use serde_json::Value;

use crate::config::Config;
use crate::core::doctor;
use crate::core::yaml;

/// The fields of a kubeconfig that name files.
const FILES: [&str; 4] = ["certificate-authority", "client-certificate", "client-key", "tokenFile"];

/// For each check that this user cannot make the path that is closed to it; `kubelet_config`: the file that the kubelet
/// reads. Empty for root.
pub(super) fn closed(config: &Config, kubelet_config: &Path) -> BTreeMap<&'static str, String> {
    let manifests = || {
        let entries = fs::read_dir(&config.manifest_dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| !path.is_dir()).collect::<Vec<_>>()
    };
    let manifest_dir = [config.manifest_dir.clone()];
    let checks: [(&'static str, AccessFlags, Vec<PathBuf>); 10] = [
        ("agent", AccessFlags::W_OK, vec![config.socket()]),
        ("kubelet configuration", AccessFlags::R_OK, vec![kubelet_config.to_owned()]),
        ("feature gates", AccessFlags::R_OK, vec![kubelet_config.to_owned()]),
        ("container runtime", AccessFlags::W_OK, config.runtime_endpoint.iter().cloned().collect()),
        ("manifest folder", AccessFlags::R_OK | AccessFlags::X_OK, manifest_dir.to_vec()),
        ("foreign manifests", AccessFlags::R_OK, manifest_dir.into_iter().chain(manifests()).collect()),
        (doctor::folders::CHECK, AccessFlags::R_OK | AccessFlags::X_OK, config.folders.clone()),
        ("disk of state-dir", AccessFlags::R_OK, vec![config.state_dir.clone()]),
        ("disk of manifest-dir", AccessFlags::R_OK, vec![config.manifest_dir.clone()]),
        ("API server", AccessFlags::R_OK, credentials(config)),
    ];
    let first = |flags, paths: Vec<PathBuf>| paths.into_iter().find(|path| denied(path, flags));
    checks
        .into_iter()
        .filter_map(|(check, flags, paths)| Some((check, first(flags, paths)?.display().to_string())))
        // A /proc that hides the processes of others (hidepid) shows no kubelet.
        .chain(fs::read("/proc/1/comm").is_err().then(|| ("kubelet", "/proc/1".to_owned())))
        .collect()
}

/// Whether `path` may be there and this user may not read it.
pub fn is_closed(path: &Path) -> bool {
    denied(path, AccessFlags::R_OK)
}

fn denied(path: &Path, flags: AccessFlags) -> bool {
    // What is no folder has nothing to be searched, for root neither.
    let searched =
        if fs::metadata(path).is_ok_and(|data| !data.is_dir()) { AccessFlags::X_OK } else { AccessFlags::empty() };
    matches!(unistd::access(path, flags - searched), Err(Errno::EACCES | Errno::EPERM))
}

/// The kubeconfig and the files that it names.
fn credentials(config: &Config) -> Vec<PathBuf> {
    let Some(kubeconfig) = &config.kubeconfig else { return Vec::new() };
    let text = crate::regular_file::read_text(kubeconfig).unwrap_or_default();
    let mut files = vec![kubeconfig.clone()];
    let mut todo: Vec<Value> = yaml::read_documents(&text).into_iter().filter_map(|one| one.value.ok()).collect();
    while let Some(value) = todo.pop() {
        match value {
            Value::Array(items) => todo.extend(items),
            Value::Object(fields) => {
                for (name, value) in fields {
                    match value.as_str() {
                        Some(file) if FILES.contains(&name.as_str()) => {
                            files.push(kubeconfig.parent().unwrap_or(Path::new("/")).join(file));
                        }
                        _ => todo.push(value),
                    }
                }
            }
            _ => {}
        }
    }
    files
}
