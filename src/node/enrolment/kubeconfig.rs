//! The kubeconfig of the new identity: the server of the source kubeconfig, and our own files.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::Cluster;
use serde_json::Value;
use serde_json::json;

use crate::core::yaml;
use crate::node::api::FileError;
use crate::node::api::KubeconfigError;
use crate::node::api::cluster_of_kubeconfig;
use crate::node::api::read_kubeconfig;
use crate::node::fsx::Dir;
use crate::node::fsx::Real;
use crate::regular_file;

use super::EnrolmentError;
use super::files;

/// Whether the user of the kubeconfig at `path` has the identity in `state_dir`; `None`: the file does not exist. One
/// that cannot be read is of others.
pub(super) fn is_ours(path: &Path, state_dir: &Path) -> Option<bool> {
    let config = match read_kubeconfig(path) {
        Ok(config) => config,
        Err(KubeconfigError::Read { source, .. }) if is_missing(&source) => return None,
        Err(_) => return Some(false),
    };
    let user = cluster_of_kubeconfig(path, &config).ok().and_then(|(_, user)| user);
    let user = user.and_then(|name| config.auth_infos.into_iter().find(|named| named.name == name)?.auth_info);
    let certificate = user.and_then(|user| user.client_certificate);
    Some(certificate.is_some_and(|certificate| Path::new(&certificate) == files::path(state_dir)))
}

fn is_missing(error: &FileError) -> bool {
    matches!(error, FileError::Io(error) if error.kind() == std::io::ErrorKind::NotFound)
}

/// Whether the kubeconfig at `path` has another server than `source`, or trusts another one. One that cannot be read has none.
pub(super) fn differs(path: &Path, source: &Path) -> bool {
    matches!((server(path), server(source)), (Ok(own), Ok(now)) if own != now)
}

/// The server that the kubeconfig `source` names, and how it is trusted.
fn server(source: &Path) -> Result<Value, EnrolmentError> {
    let (cluster, _) = cluster_of_kubeconfig(source, &read_kubeconfig(source)?)?;
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
    Ok(server)
}

/// Writes the kubeconfig at `path` for the server that `source` names. An existing one is replaced only if it is ours.
pub(super) fn write(path: &Path, source: &Path, state_dir: &Path) -> Result<(), EnrolmentError> {
    let identity = files::path(state_dir).display().to_string();
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": server(source)?}],
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_kubeconfig_is_ours_if_its_user_has_our_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let (path, state) = (folder.path().join("kubeconfig"), folder.path().join("state"));
        assert_eq!(is_ours(&path, &state), None, "there is none");
        let ours = files::path(&state).display().to_string();
        let config = |certificate: &str, current: &str| {
            format!(
                "# made from {ours}\napiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: \"https://x:1\"\
                 }}}}]\nusers:\n- {{name: a, user: {{client-certificate: {certificate}, client-key: {certificate}}}}}\n- \
                 {{name: b, user: {{token: t}}}}\ncontexts:\n- {{name: a, context: {{cluster: c, user: a}}}}\n- {{name: b, \
                 context: {{cluster: c, user: b}}}}\ncurrent-context: {current}\n"
            )
        };
        for (text, is) in [
            (config(&ours, "a"), true),
            (config("state/identity/client.pem", "a"), true),
            (config(&ours, "b"), false),
            (config(&format!("{ours}.old"), "a"), false),
            (format!("not: [a kubeconfig of {ours}"), false),
        ] {
            fs::write(&path, &text).unwrap();
            assert_eq!(is_ours(&path, &state), Some(is), "{text}");
        }
        let source = folder.path().join("source");
        fs::write(&source, config(&ours, "b")).unwrap();
        write(&path, &source, &state).unwrap();
        assert_eq!(is_ours(&path, &state), Some(true), "what is written here");
        assert!(!differs(&path, &source));
        let text = config(&ours, "b");
        for (of, another) in [
            ("https://x:1", "https://y:1"),
            ("https://x:1\"", "https://x:1\", certificate-authority-data: YQ=="),
            ("https://x:1\"", "https://x:1\", tls-server-name: other"),
        ] {
            fs::write(&source, text.replace(of, another)).unwrap();
            assert!(differs(&path, &source), "{another}");
            write(&path, &source, &state).unwrap();
            assert!(!differs(&path, &source), "{another}");
        }
        fs::write(&source, "no: kubeconfig").unwrap();
        assert!(!differs(&path, &source), "it names none");
    }
}
