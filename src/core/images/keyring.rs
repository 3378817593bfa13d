//! Registry credentials by image, as the kubelet finds them.
//!
//! Follows `pkg/credentialprovider` (`keyring.go`, `config.go`): the most specific entries first, hosts
//! may have globs, a path is a prefix. Must not show a password: `Debug` leaves it out.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::Value;

use crate::core::json::Json;

/// What Docker Hub's entry is called.
const DEFAULT_REGISTRY: &str = "index.docker.io";

/// A user and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct RegistryCredentials {
    /// The user.
    pub username: String,
    pub password: String,
}

impl fmt::Debug for RegistryCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({:?})", self.username)
    }
}

/// Credentials by registry, as a docker config has them.
pub type DockerConfig = BTreeMap<String, RegistryCredentials>;

/// Reads a docker config: `config.json` and Secrets of type `kubernetes.io/dockerconfigjson`, or with
/// `legacy` `.dockercfg` and type `kubernetes.io/dockercfg`.
///
/// # Errors
/// What is wrong with it; the text never contains a credential.
pub fn docker_config(bytes: &[u8], legacy: bool) -> Result<DockerConfig, String> {
    let value: Value = serde_json::from_slice(bytes).map_err(|_| "it is not JSON".to_owned())?;
    let entries = match legacy {
        true => Some(&value),
        false => value.get("auths").filter(|auths| !auths.is_null()),
    };
    let Some(entries) = entries else { return Ok(DockerConfig::new()) };
    let entries = entries.as_object().ok_or("it is not a map of registries")?;
    let entry = |(registry, entry): (&String, &Value)| Ok((registry.clone(), credentials(registry, entry)?));
    entries.iter().map(entry).collect()
}

fn credentials(registry: &str, entry: &Value) -> Result<RegistryCredentials, String> {
    let auth = entry.str_at("auth");
    if auth.is_empty() {
        return Ok(RegistryCredentials {
            username: entry.str_at("username").to_owned(),
            password: entry.str_at("password").to_owned(),
        });
    }
    let compact: String = auth.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    let engine = if compact.trim_end().ends_with('=') { &STANDARD } else { &STANDARD_NO_PAD };
    let decoded = engine.decode(&compact).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let bad = || format!("auth of {registry} is not base64 of user:password");
    let decoded = decoded.ok_or_else(bad)?;
    let (username, password) = decoded.split_once(':').ok_or_else(bad)?;
    Ok(RegistryCredentials { username: username.to_owned(), password: password.to_owned() })
}

/// Credentials that are looked up by image.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    entries: BTreeMap<String, Vec<RegistryCredentials>>,
}

impl Keyring {
    pub fn add(&mut self, config: &DockerConfig) {
        for (location, credentials) in config {
            let Some(key) = key(location) else { continue };
            self.entries.entry(key).or_default().push(credentials.clone());
        }
    }

    /// The credentials for `repository` (with its registry, without a tag), the most specific first.
    pub fn look_up(&self, repository: &str) -> Vec<RegistryCredentials> {
        let fits = self.entries.iter().rev().filter(|(key, _)| matches(key, repository));
        let found: Vec<RegistryCredentials> = fits.flat_map(|(_, credentials)| credentials.clone()).collect();
        if found.is_empty() && is_default_registry(repository) {
            return self.entries.get(DEFAULT_REGISTRY).cloned().unwrap_or_default();
        }
        found
    }
}

/// The key of an entry: host, and path unless it is `/`, `/v1/` or `/v2/`. `None`: no address.
fn key(location: &str) -> Option<String> {
    let rest = location.strip_prefix("https://").or_else(|| location.strip_prefix("http://")).unwrap_or(location);
    let (host, path) = split(rest)?;
    let path = match path.get(..4) {
        Some("/v1/" | "/v2/") => &path[3..],
        _ => path,
    };
    Some(if path == "/" { host.to_owned() } else { format!("{host}{path}") })
}

/// Host and path of an address without a scheme; the path is empty or begins with `/`.
fn split(address: &str) -> Option<(&str, &str)> {
    let address = address.split(['?', '#']).next().unwrap_or_default();
    let slash = address.find('/').unwrap_or(address.len());
    let (authority, path) = address.split_at(slash);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let is_bad = |c: char| c.is_whitespace() || c.is_control() || c == '%';
    let port_is_bad = port(host).1.is_some_and(|port| !port.bytes().all(|b| b.is_ascii_digit()));
    (!host.contains(is_bad) && !port_is_bad).then_some((host, path))
}

/// Host and port; what has several colons and no brackets has no port.
fn port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if name.starts_with('[') && name.ends_with(']') => (&name[1..name.len() - 1], Some(port)),
        Some((name, port)) if !name.contains(':') => (name, Some(port)),
        _ => (host, None),
    }
}

/// Whether `pattern` (globs in the host, a path as prefix) matches `target` (upstream's `URLsMatchStr`).
pub fn matches(pattern: &str, target: &str) -> bool {
    let (Some((pattern_host, pattern_path)), Some((host, path))) = (split(pattern), split(target)) else {
        return false;
    };
    let ((pattern_host, pattern_port), (host, port)) = (port(pattern_host), port(host));
    let (globs, parts): (Vec<&str>, Vec<&str>) = (pattern_host.split('.').collect(), host.split('.').collect());
    pattern_port.unwrap_or_default() == port.unwrap_or_default()
        && globs.len() == parts.len()
        && path.starts_with(pattern_path)
        && globs.iter().zip(&parts).all(|(glob, part)| {
            let (glob, part): (Vec<char>, Vec<char>) = (glob.chars().collect(), part.chars().collect());
            fits(&glob, &part)
        })
}

/// `filepath.Match` without separators: `*`, `?`, `[a-z]`, `[^a]` and `\`.
fn fits(glob: &[char], text: &[char]) -> bool {
    match (glob.split_first(), text.split_first()) {
        (None, None) => true,
        (Some(('*', rest)), _) => fits(rest, text) || text.split_first().is_some_and(|(_, text)| fits(glob, text)),
        (Some(('?', rest)), Some((_, text))) => fits(rest, text),
        (Some(('[', rest)), Some((c, text))) => class(rest, *c).is_some_and(|(is_in, rest)| is_in && fits(rest, text)),
        (Some(('\\', rest)), Some((c, text))) => rest.split_first().is_some_and(|(g, rest)| g == c && fits(rest, text)),
        (Some((g, rest)), Some((c, text))) => g == c && fits(rest, text),
        _ => false,
    }
}

/// Whether `c` is in the character class after the bracket, and what follows the class; `None`: not a class.
fn class(glob: &[char], c: char) -> Option<(bool, &[char])> {
    let negated = glob.first() == Some(&'^');
    let mut at = usize::from(negated);
    let mut is_in = false;
    let start = at;
    loop {
        let one = |at: &mut usize| -> Option<char> {
            if glob.get(*at) == Some(&'\\') {
                *at += 1;
            }
            let found = glob.get(*at).copied();
            *at += 1;
            found
        };
        if glob.get(at) == Some(&']') && at > start {
            return Some((is_in != negated, &glob[at + 1..]));
        }
        let low = one(&mut at)?;
        let high = match glob.get(at) {
            Some('-') => {
                at += 1;
                one(&mut at)?
            }
            _ => low,
        };
        is_in |= (low..=high).contains(&c);
    }
}

/// Whether an image without an entry of its own belongs to Docker Hub.
fn is_default_registry(repository: &str) -> bool {
    match repository.split_once('/') {
        _ if repository.is_empty() => false,
        None => true,
        Some(("", _)) => false,
        Some(("docker.io" | "index.docker.io", _)) => true,
        Some((host, _)) => !host.contains(['.', ':']),
    }
}

#[cfg(test)]
mod tests;
