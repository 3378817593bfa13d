//! What one namespace may have of the host: `[policy.grants."<namespace>"]`.
//!
//! Owns when a path lies below a granted one, by text. The agent does not look at the host: the kubelet resolves what
//! is left of the path beneath the prefix.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::Serialize;

/// Volume types that a namespace without a grant may use: their content comes from the cluster, or they begin empty.
pub(super) const FREE_TYPES: [&str; 6] = ["configMap", "downwardAPI", "emptyDir", "image", "projected", "secret"];

/// Volume types that can be granted: a driver of the kubelet mounts them without the API. `hostPath` is granted by path.
pub const VOLUME_TYPES: [&str; 18] = [
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// What the pods of a namespace may have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub host_ports: Vec<PortRange>,
    /// Paths of the host, with everything below them, to read.
    pub host_paths: Vec<String>,
    /// Volume types, as a volume's field names them.
    pub volume_types: Vec<String>,
    /// Annotations that container runtimes and their plugins obey: patterns in which `*` matches any text.
    #[serde(default)]
    pub annotations: Vec<String>,
}

/// Ports from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRange {
    pub first: u16,
    pub last: u16,
}

impl PortRange {
    /// Whether `port` is one of them.
    pub fn has(self, port: i64) -> bool {
        (i64::from(self.first)..=i64::from(self.last)).contains(&port)
    }
}

impl FromStr for PortRange {
    type Err = ();

    /// `9100`, or `9100-9110`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or(());
        let (first, last) = (port(first)?, port(last)?);
        if first <= last { Ok(Self { first, last }) } else { Err(()) }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

/// What is left of `path` beneath the longest of `prefixes` that it lies in, and that prefix; `None`: it lies in none.
/// A path with `..` is below nothing.
pub fn below<'p>(path: &str, prefixes: &'p [String]) -> Option<(&'p str, String)> {
    let path = parts(path);
    let longest = prefixes.iter().filter(|prefix| path.starts_with(&parts(prefix))).max_by_key(|p| parts(p).len())?;
    let rest = &path[parts(longest).len()..];
    (!path.contains(&"..")).then(|| (longest.as_str(), rest.join("/")))
}

fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_below_a_path() {
        for (path, prefix, rest) in [
            ("/var/log", "/var/log", Some("")),
            ("/var/log/pods/", "/var/log/", Some("pods")),
            ("/var//log/./pods/a", "/var/log", Some("pods/a")),
            ("/var/logs", "/var/log", None),
            ("/var", "/var/log", None),
            ("/", "/", Some("")),
            ("/etc", "/", Some("etc")),
            ("/var/log/../../etc", "/var/log", None),
            ("/..", "/", None),
        ] {
            let prefixes = [prefix.to_owned()];
            let found = below(path, &prefixes);
            assert_eq!(found, rest.map(|rest| (prefix, rest.to_owned())), "{path} {prefix}");
        }
        let both = ["/var".to_owned(), "/var/log".to_owned()];
        assert_eq!(below("/var/log/x", &both), Some(("/var/log", "x".to_owned())), "the nearest");
    }

    #[test]
    fn ports() {
        let range = |text: &str| text.parse::<PortRange>();
        assert_eq!(range("9100").map(|r| (r.has(9100), r.has(9101), r.to_string())), Ok((true, false, "9100".into())));
        assert_eq!(range("1-3").map(|r| (r.has(0), r.has(1), r.has(3), r.has(4))), Ok((false, true, true, false)));
        for none in ["", "0", "70000", "3-1", "1-", "a", "-1", "1-2-3"] {
            assert_eq!(range(none), Err(()), "{none}");
        }
    }
}
