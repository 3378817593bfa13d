//! Grants of `[policy]` that give more than they seem to.
//!
//! Owns which they are, and what to write instead. They are valid: they may be intended.

use std::collections::BTreeMap;
use std::path::Path;

use super::Grant;
use super::trusting;
use crate::core::images::reference;
use crate::core::model::FieldError;

/// Places of sockets, devices and credentials. `/proc` leads into the root folder of each process with no more rights, and to
/// its memory; below `/sys` lie file systems that are writable where the runtime has no mounts that are read only throughout.
const SENSITIVE: [&str; 24] = [
    "/dev",
    "/etc/daemonlet",
    "/etc/kubernetes",
    "/etc/rancher",
    "/etc/shadow",
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/systemd",
    "/home",
    "/proc",
    "/root",
    "/run",
    "/sys",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/crio",
    "/var/lib/daemonlet",
    "/var/lib/docker",
    "/var/lib/etcd",
    "/var/lib/k0s",
    "/var/lib/kubelet",
    "/var/lib/rancher",
    "/var/run",
    "/var/spool/cron",
];

/// Whether at, below or above `path` are sockets or credentials of the node: a process that can read them can become root on it.
pub(super) fn leads_to_sockets(path: &str) -> bool {
    let places = || SENSITIVE.iter().map(Path::new);
    !below(path, places()).is_empty() || above(path, places()).is_some()
}

/// Those of `places` at or below `path`.
fn below<'a>(path: &str, places: impl Iterator<Item = &'a Path>) -> Vec<String> {
    places.filter(|place| place.starts_with(path)).map(|place| place.display().to_string()).collect()
}

/// The one of `places` that `path` lies in.
fn above<'a>(path: &str, mut places: impl Iterator<Item = &'a Path>) -> Option<&'a Path> {
    places.find(|place| Path::new(path).starts_with(place))
}

/// Granted paths by which a pod becomes root on the node; `own` are the places that daemonlet is configured to use.
pub fn broad_paths(grants: &BTreeMap<String, Grant>, own: &[&Path]) -> Vec<FieldError> {
    let places = || SENSITIVE.iter().map(Path::new).chain(own.iter().copied());
    let of = |(namespace, grant): (&String, &Grant)| {
        let broad = |path: &String| {
            let places = match (below(path, places()), above(path, places())) {
                (below, _) if !below.is_empty() => format!("reaches {}", below.join(", ")),
                (_, Some(above)) => format!("lies in {}", above.display()),
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
            broad_paths(&BTreeMap::from([("a".to_owned(), grant)]), &[Path::new("/srv/state")]).pop()
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
            "/proc",
            "/proc/1",
            "/sys/kernel",
            "/var/lib/daemonlet",
        ] {
            let found = of(path).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(found.field, "policy.grants.\"a\".host-paths");
            assert!(leads_to_sockets(path));
        }
        for path in ["/var/log", "/srv/x", "/opt", "/var/lib/kube", "/etc/cni", "/runner", "/opt/cni/bin"] {
            assert_eq!(of(path), None, "{path}");
            assert!(!leads_to_sockets(path));
        }
        assert!(of("/var/lib/k").is_none());
        assert!(of("/srv").unwrap().reason.contains("it reaches /srv/state, and"));
        assert!(of("/srv/state/x").unwrap().reason.contains("it lies in /srv/state, and"));
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
