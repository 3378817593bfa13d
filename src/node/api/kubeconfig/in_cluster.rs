//! `in-cluster`: a pod's identity as a kubeconfig.
//!
//! Owns where it is found: the API server in the pod's environment, token and certificate authority in its volume,
//! which the kubelet renews in place. Must not read those files: they are read, and checked for changes, like the
//! files of any kubeconfig.

use std::path::Path;
use std::path::PathBuf;

use kube::config::Kubeconfig;
use serde_json::json;

use super::KubeconfigError;

/// Replaces a kubeconfig's path in the configuration; `:` and a folder may follow.
const KEYWORD: &str = "in-cluster";
/// The folder of every pod's token.
const FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The folder of token and certificate authority, if `path` is `in-cluster` and not a path.
pub(super) fn folder(path: &Path) -> Option<PathBuf> {
    match path.to_str()?.strip_prefix(KEYWORD)? {
        "" => Some(FOLDER.into()),
        folder => folder.strip_prefix(':').map(PathBuf::from),
    }
}

/// The kubeconfig of a pod with this environment.
pub(super) fn kubeconfig(
    folder: &Path,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Kubeconfig, KubeconfigError> {
    let wrong = |field, reason: String| KubeconfigError::Field { path: KEYWORD.into(), field, reason };
    let of = |field: &'static str| {
        let value = environment(field).filter(|value| !value.is_empty());
        value.ok_or_else(|| wrong(field, "is not set: only pods have it; use a kubeconfig here".to_owned()))
    };
    let (host, port) = (of("KUBERNETES_SERVICE_HOST")?, of("KUBERNETES_SERVICE_PORT")?);
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let config = json!({
        "current-context": KEYWORD,
        "contexts": [{"name": KEYWORD, "context": {"cluster": KEYWORD, "user": KEYWORD}}],
        "clusters": [{"name": KEYWORD, "cluster": {
            "server": format!("https://{host}:{port}"), "certificate-authority": folder.join("ca.crt"),
        }}],
        "users": [{"name": KEYWORD, "user": {"tokenFile": folder.join("token")}}],
    });
    serde_json::from_value(config).map_err(|error| wrong("environment", error.to_string()))
}
