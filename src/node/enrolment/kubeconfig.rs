//! The kubeconfig of the new identity: the server of the source kubeconfig, and our own files.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::Cluster;
use serde_json::json;

use crate::core::yaml;
use crate::node::api::KubeconfigError;
use crate::node::api::cluster_of_kubeconfig;
use crate::node::api::read_kubeconfig;
use crate::node::fsx::Dir;
use crate::node::fsx::Real;
use crate::regular_file;

use super::EnrolmentError;
use super::files;

/// Whether the kubeconfig at `path` uses the identity in `state_dir`; `None`: the file does not exist.
pub(super) fn is_ours(path: &Path, state_dir: &Path) -> Option<bool> {
    let text = regular_file::read_text(path).ok()?;
    Some(text.contains(&files::path(state_dir).display().to_string()))
}

/// Writes the kubeconfig at `path` for the server that `source` names. An existing one is replaced only if it is ours.
pub(super) fn write(path: &Path, source: &Path, state_dir: &Path) -> Result<(), EnrolmentError> {
    let (cluster, _) = cluster_of_kubeconfig(source, &read_kubeconfig(source)?)?;
    let identity = files::path(state_dir).display().to_string();
    let mut server = json!({"server": cluster.server});
    if let Some(ca) = authority(source, &cluster)? {
        server["certificate-authority-data"] = json!(ca);
    }
    if let Some(name) = &cluster.tls_server_name {
        server["tls-server-name"] = json!(name);
    }
    if let Some(insecure) = cluster.insecure_skip_tls_verify {
        server["insecure-skip-tls-verify"] = json!(insecure);
    }
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": server}],
        "users": [{"name": "agent", "user": {"client-certificate": identity, "client-key": identity}}],
        "contexts": [{"name": "agent", "context": {"cluster": "cluster", "user": "agent"}}],
        "current-context": "agent",
    });
    let text = yaml::write_manifest(&["Made by `daemonlet enroll`.".to_owned()], &config);
    files::IdentityFiles::note_kubeconfig(state_dir, path)?;
    let (folder, name) = (path.parent().unwrap_or(Path::new("/")), path.file_name().unwrap_or_default());
    let (folder, _) = Dir::open_or_create(&Real::shared(), folder, 0o755)?;
    Ok(files::write(&folder, &name.to_string_lossy(), text.as_bytes())?)
}

/// The server's certificate authority in base64.
fn authority(source: &Path, cluster: &Cluster) -> Result<Option<String>, EnrolmentError> {
    if let Some(data) = cluster.certificate_authority_data.clone().filter(|data| !data.is_empty()) {
        return Ok(Some(data));
    }
    let Some(file) = cluster.certificate_authority.as_deref().filter(|file| !file.is_empty()) else { return Ok(None) };
    let read = regular_file::read(Path::new(file)).map_err(|error| KubeconfigError::File {
        path: source.into(),
        field: "certificate-authority",
        file: file.into(),
        source: error,
    })?;
    Ok(Some(STANDARD.encode(read)))
}
