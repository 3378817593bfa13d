//! Grants of `[policy]` that give more than they seem to.
//!
//! Owns which they are, and what to write instead. They are valid: who writes them may mean them.

use std::collections::BTreeMap;
use std::path::Path;

use super::Grant;
use super::trusting;
use crate::core::images::reference;
use crate::core::model::FieldError;

/// Folders of sockets, devices and credentials.
const SENSITIVE: [&str; 7] =
    ["/dev", "/etc/kubernetes", "/root", "/run", "/var/lib/containerd", "/var/lib/kubelet", "/var/run"];

/// Whether at, below or above `path` are sockets or credentials of the node: whoever reads there is soon root on it.
pub(super) fn leads_to_sockets(path: &str) -> bool {
    !below(path).is_empty() || above(path).is_some()
}

/// The sensitive folders at or below `path`.
fn below(path: &str) -> Vec<&'static str> {
    SENSITIVE.into_iter().filter(|sensitive| Path::new(sensitive).starts_with(path)).collect()
}

/// The sensitive folder that `path` lies in.
fn above(path: &str) -> Option<&'static str> {
    SENSITIVE.into_iter().find(|sensitive| Path::new(path).starts_with(sensitive))
}

/// Granted paths by which a pod becomes root on the node.
pub fn broad_paths(grants: &BTreeMap<String, Grant>) -> Vec<FieldError> {
    let of = |(namespace, grant): (&String, &Grant)| {
        let broad = |path: &String| {
            let places = match (below(path), above(path)) {
                (below, _) if !below.is_empty() => format!("reaches {}", below.join(", ")),
                (_, Some(above)) => format!("lies in {above}"),
                (_, None) => return None,
            };
            Some(FieldError {
                field: format!("policy.grants.{namespace:?}.host-paths"),
                reason: format!(
                    "{path:?} gives the host away: it {places}, and sockets, devices or credentials there make a pod root on the node"
                ),
                hint: Some(format!(
                    "grant no more than the folder that its pods read, such as \"/var/log/pods\", or {}",
                    trusting(namespace)
                )),
            })
        };
        grant.host_paths.iter().filter_map(broad).collect::<Vec<_>>()
    };
    grants.iter().flat_map(of).collect()
}

/// Patterns of `policy.images` that leave the registry open, or match nothing.
pub fn broad_images(patterns: &[String]) -> Vec<FieldError> {
    let broad = |pattern: &String| {
        let fixed = pattern.split('*').next().unwrap_or_default();
        let in_full = "write the registry in full and end it with \"/\": \"registry.example.com/*\"".to_owned();
        let (reason, hint) = match fixed.split_once('/') {
            Some((host, _)) if reference::is_host(host) => return None,
            None if fixed.is_empty() => ("matches images of any registry, whoever may push there".to_owned(), in_full),
            None if fixed != pattern => (
                format!("matches images of any registry whose name begins with {fixed:?}, whoever may push there"),
                in_full,
            ),
            found => {
                let library = if found.is_none() { "library/" } else { "" };
                let reason = "matches nothing: it is compared with the full name, which begins with the registry";
                (reason.to_owned(), format!("write \"docker.io/{library}{pattern}\" if it is Docker's registry"))
            }
        };
        Some(FieldError {
            field: "policy.images".to_owned(),
            reason: format!("{pattern:?} {reason}"),
            hint: Some(hint),
        })
    };
    patterns.iter().filter_map(broad).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leads_to_root_on_the_node_is_named() {
        let of = |path: &str| {
            let grant = Grant { host_paths: vec![path.to_owned()], ..Grant::default() };
            broad_paths(&BTreeMap::from([("a".to_owned(), grant)])).pop()
        };
        for path in [
            "/",
            "/run",
            "/run/",
            "/var/./run",
            "/var/run/docker.sock",
            "/run/containerd/containerd.sock",
            "/etc",
            "/var",
            "/var/lib",
            "/var/lib/kubelet",
            "//var//lib/kubelet/pods",
            "/dev",
            "/root/.ssh",
        ] {
            let found = of(path).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(found.field, "policy.grants.\"a\".host-paths");
            assert!(leads_to_sockets(path));
        }
        for path in ["/var/log", "/proc", "/sys", "/srv", "/var/lib/kube", "/etc/cni", "/runner", "/opt/cni/bin"] {
            assert_eq!(of(path), None, "{path}");
            assert!(!leads_to_sockets(path));
        }
        assert!(of("/var").unwrap().reason.contains("it reaches /var/lib/containerd, /var/lib/kubelet, /var/run, and"));
        assert!(of("/run/x").unwrap().reason.contains("it lies in /run, and"));
    }

    #[test]
    fn a_pattern_that_leaves_the_registry_open_or_matches_nothing_is_named() {
        let of =
            |pattern: &str| broad_images(&[pattern.to_owned()]).pop().map(|found| (found.reason, found.hint.unwrap()));
        for (pattern, words) in [
            ("*", "\"*\" matches images of any registry, "),
            ("*/team/*", "\"*/team/*\" matches images of any registry, "),
            ("registry.example.com*", "whose name begins with \"registry.example.com\""),
            ("busybox*", "whose name begins with \"busybox\""),
            ("busybox:1", "matches nothing"),
            ("team/*", "matches nothing"),
        ] {
            let (reason, _) = of(pattern).unwrap_or_else(|| panic!("{pattern}"));
            assert!(reason.contains(words), "{reason}");
        }
        assert!(of("busybox:1").unwrap().1.contains("\"docker.io/library/busybox:1\""));
        assert!(of("team/*").unwrap().1.contains("\"docker.io/team/*\""));
        for pattern in ["registry.example.com/*", "localhost/a:1", "r.test:5000/a@*", "docker.io/library/busybox:*"] {
            assert_eq!(of(pattern), None, "{pattern}");
        }
    }
}
