//! The kubelet's credential providers: programs that return a registry's credentials.
//!
//! Follows `pkg/credentialprovider/plugin`: the configuration, the exchange over standard input and output, and how
//! long an answer is valid. A provider that uses ServiceAccount tokens is called as the kubelet does for a static pod:
//! without a token, or not at all.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::time::Instant;

use serde::Deserialize;
use serde_json::Value;
use serde_json::json;
use tokio::io::AsyncRead;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::core::duration;
use crate::core::images::keyring::DockerConfig;
use crate::core::images::keyring::RegistryCredentials;
use crate::core::images::keyring::matches;
use crate::core::time::Span;
use crate::core::yaml;
use crate::node::api::words;
use crate::node::fsx;
use crate::node::fsx::FileKind;
use crate::node::fsx::Shared;

/// As the kubelet's timeout.
const LIMIT: Duration = Duration::from_secs(60);
/// The longest answer that is read, in bytes. A registry's credentials have a few kilobytes.
const LONGEST: u64 = 1 << 20;
/// The versions of the exchange.
const VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
];

/// A provider as the kubelet's configuration names it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Provider {
    name: String,
    #[serde(default)]
    match_images: Vec<String>,
    #[serde(default)]
    default_cache_duration: String,
    api_version: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<ProviderVariable>,
    #[serde(default)]
    token_attributes: Option<TokenAttributes>,
}

#[derive(Clone, Debug, Deserialize)]
struct ProviderVariable {
    name: String,
    #[serde(default)]
    value: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenAttributes {
    #[serde(default)]
    require_service_account: bool,
}

/// Valid answers, by provider and scope.
type Cache = BTreeMap<(String, String), (Instant, DockerConfig)>;

/// The providers of a node.
#[derive(Debug)]
pub(super) struct Providers {
    files: Shared,
    config: Option<PathBuf>,
    bin_dir: Option<PathBuf>,
    cache: Mutex<Cache>,
}

impl Providers {
    pub(super) fn new(files: Shared, config: Option<&Path>, bin_dir: Option<&Path>) -> Self {
        Self {
            files,
            config: config.map(Path::to_owned),
            bin_dir: bin_dir.map(Path::to_owned),
            cache: Mutex::new(Cache::new()),
        }
    }

    /// The answers of the providers that match `repository`, and their errors.
    pub(super) async fn ask(&self, repository: &str) -> (Vec<DockerConfig>, Vec<String>) {
        let (Some(config), Some(bin_dir)) = (&self.config, &self.bin_dir) else { return (Vec::new(), Vec::new()) };
        let (files, path) = (Arc::clone(&self.files), config.clone());
        let read = fsx::aside(move || providers(&files, &path)).await;
        let providers = match read {
            Ok(Ok(providers)) => providers,
            Ok(Err(why)) => return (Vec::new(), vec![format!("credential providers: {why}")]),
            Err(error) => return (Vec::new(), vec![format!("credential providers: {error}")]),
        };
        let (mut found, mut problems) = (Vec::new(), Vec::new());
        for provider in providers.iter().filter(|p| p.match_images.iter().any(|glob| matches(glob, repository))) {
            if provider.token_attributes.as_ref().is_some_and(|t| t.require_service_account) {
                continue;
            }
            match self.cached(provider, repository) {
                Some(config) => found.push(config),
                None => match self.fetch(provider, bin_dir, repository).await {
                    Ok(config) => found.push(config),
                    Err(why) => problems.push(format!("credential provider {}: {why}", provider.name)),
                },
            }
        }
        (found, problems)
    }

    fn cached(&self, provider: &Provider, repository: &str) -> Option<DockerConfig> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        cache.retain(|_, (until, _)| *until > now);
        let keys = [repository, registry(repository), ""];
        keys.iter().find_map(|key| cache.get(&(provider.name.clone(), (*key).to_owned())).map(|(_, c)| c.clone()))
    }

    async fn fetch(&self, provider: &Provider, bin_dir: &Path, repository: &str) -> Result<DockerConfig, String> {
        let request = json!({
            "apiVersion": provider.api_version, "kind": "CredentialProviderRequest", "image": repository,
        });
        let output = run(provider, &bin_dir.join(&provider.name), &request.to_string()).await?;
        let ProviderAnswer { key, config, holds } = answer(&output, provider, repository)?;
        let until = Instant::now().checked_add(holds.to_duration()).filter(|_| holds > Span::ZERO);
        if let Some(until) = until {
            let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache.insert((provider.name.clone(), key), (until, config.clone()));
        }
        Ok(config)
    }
}

struct ProviderAnswer {
    /// The scope that it holds for.
    key: String,
    config: DockerConfig,
    /// How long it holds.
    holds: Span,
}

/// Reads the output of `provider`, which was asked about `repository`.
fn answer(output: &[u8], provider: &Provider, repository: &str) -> Result<ProviderAnswer, String> {
    // The output may contain credentials: no message quotes it.
    let answer: Value = serde_json::from_slice(output).map_err(|_| "its answer is not JSON".to_owned())?;
    if answer["apiVersion"] != provider.api_version.as_str() || answer["kind"] != "CredentialProviderResponse" {
        return Err(format!("its answer is not a CredentialProviderResponse of {}", provider.api_version));
    }
    let key = match answer["cacheKeyType"].as_str() {
        Some("Image") => repository,
        Some("Registry") => registry(repository),
        Some("Global") => "",
        _ => return Err("its answer has no valid cacheKeyType".to_owned()),
    };
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let auth = answer["auth"].as_object().into_iter().flatten();
    let config: DockerConfig = auth
        .map(|(registry, entry)| {
            let (username, password) = (text(entry, "username"), text(entry, "password"));
            (registry.clone(), RegistryCredentials { username, password })
        })
        .collect();
    let holds = answer["cacheDuration"].as_str().unwrap_or(&provider.default_cache_duration);
    Ok(ProviderAnswer { key: key.to_owned(), config, holds: duration::parse(holds).unwrap_or_default() })
}

/// For fuzz targets and the tests that replay their seeds: the registries of a provider's output, about `repository`.
///
/// # Errors
/// As the agent words it.
#[cfg(any(fuzzing, debug_assertions))]
pub fn registries(output: &[u8], repository: &str) -> Result<Vec<String>, String> {
    let provider = Provider {
        name: "p".to_owned(),
        match_images: Vec::new(),
        default_cache_duration: "1h".to_owned(),
        api_version: VERSIONS[0].to_owned(),
        args: Vec::new(),
        env: Vec::new(),
        token_attributes: None,
    };
    answer(output, &provider, repository).map(|answer| answer.config.into_keys().collect())
}

fn registry(repository: &str) -> &str {
    repository.split('/').next().unwrap_or_default()
}

/// Runs a provider with `request` as its standard input; returns its standard output.
async fn run(provider: &Provider, program: &Path, request: &str) -> Result<Vec<u8>, String> {
    let mut command = Command::new(program);
    command.args(&provider.args).envs(provider.env.iter().map(|v| (&v.name, &v.value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let cannot = |error: std::io::Error| format!("{} cannot be run: {}", program.display(), words(&error));
    let exchange = async {
        let mut child = command.spawn().map_err(cannot)?;
        if let Some(mut input) = child.stdin.take() {
            // A program that ignores its input may still answer.
            let _ = input.write_all(request.as_bytes()).await;
        }
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        // A provider with too much output is killed when `child` goes.
        let (output, errors) = tokio::try_join!(read(output), read(errors))?;
        Ok::<_, String>((child.wait().await.map_err(cannot)?, output, errors))
    };
    let (status, output, errors) = match tokio::time::timeout(LIMIT, exchange).await {
        Ok(answered) => answered?,
        Err(_) => return Err(format!("no answer within {} s", LIMIT.as_secs())),
    };
    if !status.success() {
        let said = String::from_utf8_lossy(&errors);
        let said: String = said.trim().chars().take(300).collect();
        return Err(format!("{status}: {said}"));
    }
    Ok(output)
}

/// What a program writes, if that is no more than [`LONGEST`].
async fn read(from: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        let read = from.take(LONGEST + 1).read_to_end(&mut bytes).await;
        read.map_err(|error| format!("its answer cannot be read: {}", words(&error)))?;
    }
    match bytes.len() as u64 > LONGEST {
        true => Err(format!("its answer has more than {LONGEST} bytes")),
        false => Ok(bytes),
    }
}

/// The providers of a file, or of a folder's *.json, *.yaml and *.yml.
fn providers(disk: &Shared, path: &Path) -> Result<Vec<Provider>, String> {
    let unreadable =
        |path: &Path, error: std::io::Error| format!("{} cannot be read: {}", path.display(), words(&error));
    let mut files = vec![path.to_owned()];
    let is = |path: &Path, kind| disk.look(path).is_ok_and(|stat| stat.kind == kind);
    if is(path, FileKind::Folder) {
        let names = disk.list(path).map_err(|e| unreadable(path, e))?;
        let named = |path: &PathBuf| path.extension().is_some_and(|e| e == "json" || e == "yaml" || e == "yml");
        let paths = names.into_iter().map(|name| path.join(name));
        files = paths.filter(|path| named(path) && is(path, FileKind::File)).collect();
        files.sort();
    }
    let mut providers: Vec<Provider> = Vec::new();
    for file in files {
        let text = disk.text(&file).map_err(|e| unreadable(&file, e))?;
        let bad = |why: &str| format!("{}: {why}", file.display());
        let document = yaml::read_documents(&text).into_iter().next().and_then(|document| document.value.ok());
        let document = document.ok_or_else(|| bad("not a credential-provider configuration"))?;
        if document["kind"] != "CredentialProviderConfig" {
            return Err(bad("its kind is not CredentialProviderConfig"));
        }
        let listed = document.get("providers").cloned().unwrap_or_default();
        let listed: Vec<Provider> = serde_json::from_value(listed).map_err(|error| bad(&error.to_string()))?;
        providers.extend(listed);
    }
    let wrong = providers.iter().find(|p| {
        !VERSIONS.contains(&p.api_version.as_str())
            || p.name.is_empty()
            || p.name.contains(['/', ' '])
            || p.name == ".."
    });
    match wrong {
        Some(p) => Err(format!("provider {:?} with apiVersion {:?} is not valid", p.name, p.api_version)),
        None => Ok(providers),
    }
}

#[cfg(test)]
mod tests;
