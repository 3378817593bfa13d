//! The sources of registry credentials: pull secrets, the node's docker config, and the kubelet's credential
//! providers, in the kubelet's order.
//!
//! Owns reading them, again for each pull, because they change without notice. Must not log their content.

use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::core::images::keyring::DockerConfig;
use crate::core::images::keyring::Keyring;
use crate::core::images::keyring::RegistryCredentials;
use crate::core::images::keyring::docker_config;
use crate::core::images::reference;
use crate::core::json::Json;
use crate::node::fsx;
use crate::node::fsx::FileKind;
use crate::node::fsx::Shared;

use super::provider::Providers;

/// Larger than any docker config (upstream's bound for one read by HTTP).
const MAX_FILE: u64 = 10 << 20;

/// The node's own sources.
#[derive(Debug)]
pub struct CredentialSources {
    files: Shared,
    folders: Vec<PathBuf>,
    json_folders: Vec<PathBuf>,
    providers: Providers,
}

/// What was found for an image.
#[derive(Debug, Default)]
pub(super) struct FoundCredentials {
    /// The credentials in the order of use; empty: pull without.
    pub(super) credentials: Vec<RegistryCredentials>,
    /// Problems with a source, for users.
    pub(super) problems: Vec<String>,
}

impl CredentialSources {
    /// The sources of a kubelet with this root folder and these flags.
    pub fn new(files: Shared, kubelet_root: &Path, config: Option<&Path>, bin_dir: Option<&Path>) -> Self {
        let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from);
        Self {
            folders: vec![kubelet_root.to_owned(), "/".into(), home.clone()],
            json_folders: vec![kubelet_root.to_owned(), "/".into(), home.join(".docker"), "/.docker".into()],
            providers: Providers::new(Arc::clone(&files), config, bin_dir),
            files,
        }
    }

    /// The credentials for `image`, with these pull secrets (by name).
    pub(super) async fn look_up(&self, image: &str, secrets: &[(String, Arc<Value>)]) -> FoundCredentials {
        let repository = reference::repository(image);
        let mut found = FoundCredentials::default();
        let mut of_secrets = Keyring::default();
        for (name, secret) in secrets {
            match of_secret(secret) {
                Ok(config) => of_secrets.add(&config),
                Err(why) => found.problems.push(format!("pull secret {name}: {why}")),
            }
        }
        found.credentials = of_secrets.look_up(&repository);
        let files = Arc::clone(&self.files);
        let (json_folders, folders) = (self.json_folders.clone(), self.folders.clone());
        // The file may be on a hanging file system.
        let node = fsx::aside(move || node_config(&files, &json_folders, &folders)).await;
        let mut of_node = Keyring::default();
        of_node.add(&node.unwrap_or_default());
        found.credentials.extend(of_node.look_up(&repository));
        let mut of_providers = Keyring::default();
        let (configs, problems) = self.providers.ask(&repository).await;
        configs.iter().for_each(|config| of_providers.add(config));
        found.credentials.extend(of_providers.look_up(&repository));
        found.problems.extend(problems);
        found
    }
}

/// The docker config in a Secret of either type; other types contain none (upstream's
/// `secretsToTrackedDockerConfigs`).
fn of_secret(secret: &Value) -> Result<DockerConfig, String> {
    let (key, legacy) = match secret.text_at("type") {
        Some("kubernetes.io/dockerconfigjson") => (".dockerconfigjson", false),
        Some("kubernetes.io/dockercfg") => (".dockercfg", true),
        other => return Err(format!("type {} holds no credentials of a registry", other.unwrap_or("Opaque"))),
    };
    let plain = secret.text_at(["stringData", key]).map(|text| text.as_bytes().to_vec());
    let bytes = match plain {
        Some(bytes) => Some(bytes),
        None => secret.text_at(["data", key]).and_then(|data| STANDARD.decode(data).ok()),
    };
    docker_config(&bytes.ok_or_else(|| format!("it has no key {key}"))?, legacy)
}

/// The node's docker config: the first readable `config.json`, else the first `.dockercfg` (upstream's
/// `ReadDockerConfigFile`).
fn node_config(files: &Shared, json_folders: &[PathBuf], folders: &[PathBuf]) -> DockerConfig {
    let json = json_folders.iter().map(|folder| (folder.join("config.json"), false));
    let plain = folders.iter().map(|folder| (folder.join(".dockercfg"), true));
    let mut configs = json.chain(plain).filter_map(|(path, legacy)| read(files, &path, legacy));
    configs.next().unwrap_or_default()
}

fn read(files: &Shared, path: &Path, legacy: bool) -> Option<DockerConfig> {
    files.look(path).ok().filter(|stat| stat.kind == FileKind::File)?;
    let bytes = files.load(path, MAX_FILE).ok()?;
    match docker_config(&bytes, legacy) {
        Ok(config) => Some(config),
        Err(why) => {
            tracing::warn!("docker config {}: {why}; it is ignored", path.display());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::node::fsx::Real;

    fn config(user: &str) -> String {
        json!({"auths": {"r.test": {"username": user, "password": "p"}}}).to_string()
    }

    async fn users(sources: &CredentialSources, secrets: &[(String, Arc<Value>)]) -> (Vec<String>, Vec<String>) {
        let found = sources.look_up("r.test/x:1", secrets).await;
        (found.credentials.into_iter().map(|c| c.username).collect(), found.problems)
    }

    #[tokio::test]
    async fn secrets_come_before_what_the_node_has() {
        let root = tempfile::tempdir().unwrap();
        let sources = CredentialSources::new(Real::shared(), root.path(), None, None);
        assert_eq!(users(&sources, &[]).await, (vec![], vec![]));
        fs::write(root.path().join("config.json"), config("node")).unwrap();
        let legacy = json!({"r.test": {"username": "legacy", "password": "p"}}).to_string();
        let secrets = [
            json!({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": STANDARD.encode(config("new"))}}),
            json!({"type": "kubernetes.io/dockercfg", "stringData": {".dockercfg": legacy}}),
            json!({"type": "Opaque", "data": {}}),
            json!({"type": "kubernetes.io/dockerconfigjson", "data": {}}),
        ];
        let secrets: Vec<_> = secrets.into_iter().map(|s| ("s".to_owned(), Arc::new(s))).collect();
        let (users, problems) = users(&sources, &secrets).await;
        assert_eq!(users, ["new", "legacy", "node"]);
        assert_eq!(
            problems,
            [
                "pull secret s: type Opaque holds no credentials of a registry",
                "pull secret s: it has no key .dockerconfigjson"
            ]
        );
    }

    #[tokio::test]
    async fn a_config_that_cannot_be_read_is_passed_over() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("config.json"), "{").unwrap();
        fs::write(root.path().join(".dockercfg"), json!({"r.test": {"username": "old"}}).to_string()).unwrap();
        assert_eq!(users(&CredentialSources::new(Real::shared(), root.path(), None, None), &[]).await.0, ["old"]);
    }
}
