//! What a DaemonSet of the API may do to the node: the keys of `[policy]`.
//!
//! Owns the rules and the wording of a refusal: the field, the rule, and how to allow it. Must not know where a
//! DaemonSet comes from; the rules do not apply to folders.

mod broad;
mod confined;
mod grant;
mod runtime_annotations;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::Value;

use super::pod_security::PodSecurityLevel;
use crate::core::images::reference;
use crate::core::json::Json;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;

pub use broad::broad_images;
pub use broad::broad_paths;
pub use grant::Grant;
pub use grant::PortRange;
pub use grant::VOLUME_TYPES;
pub use grant::below;

/// For whom a key holds that no grant sets for one namespace.
pub(super) const NODE_WIDE: &str = "for every namespace that is not trusted";
/// What trust means, after the name of the key.
pub const TRUST: &str = "where whoever writes DaemonSets is root on the node";

/// The rules of `[policy]` about pods.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PodRules {
    /// Namespaces whose DaemonSets have full access to the host; `*` is all. Only `images` binds them.
    pub trusted_namespaces: Vec<String>,
    /// The PodSecurity level that the pods of all others have to meet, at its newest version.
    pub pod_security: PodSecurityLevel,
    /// What single namespaces may have beyond that.
    #[serde(default)]
    pub grants: BTreeMap<String, Grant>,
    /// Whether pods of namespaces that are not trusted may write to the node's disk.
    #[serde(default)]
    pub local_storage: bool,
    /// Whether images are pulled with Secrets of namespaces that are not trusted: on the node they are everybody's.
    #[serde(default)]
    pub shared_pulls: bool,
    /// The longest grace period of pods of namespaces that are not trusted.
    #[serde(default = "max_grace_period")]
    pub max_grace_period: Duration,
    /// Images that may run: patterns in which `*` matches any text. They bind every namespace.
    pub images: Vec<String>,
}

fn max_grace_period() -> Duration {
    Duration::from_secs(600)
}

impl Default for PodRules {
    /// `kube-system` has full access to the host, as a CNI needs; other namespaces have none.
    fn default() -> Self {
        Self {
            trusted_namespaces: vec!["kube-system".to_owned()],
            pod_security: PodSecurityLevel::Baseline,
            grants: BTreeMap::new(),
            local_storage: false,
            shared_pulls: false,
            max_grace_period: max_grace_period(),
            images: vec!["*".to_owned()],
        }
    }
}

/// The hint that lifts the rules for `namespace`, with what that means.
pub fn trusting(namespace: &str) -> String {
    format!("add {namespace:?} to policy.trusted-namespaces, {TRUST}")
}

/// Whether a namespace is one of those that are `trusted`; `*` is all.
pub fn trusts(trusted: &[String], namespace: &str) -> bool {
    trusted.iter().any(|trusted| trusted == "*" || trusted == namespace)
}

impl PodRules {
    /// Rules that trust every namespace.
    pub fn trusting() -> Self {
        Self { trusted_namespaces: vec!["*".to_owned()], ..Self::default() }
    }

    /// Whether the DaemonSets of `namespace` have full access to the host.
    pub fn trusts(&self, namespace: &str) -> bool {
        trusts(&self.trusted_namespaces, namespace)
    }

    /// What the pod of `daemon_set` does against the rules, each with its field, its rule and a hint.
    pub fn violations(&self, daemon_set: &DaemonSet) -> Vec<FieldError> {
        let namespace = &daemon_set.key.namespace;
        let mut found = Vec::new();
        if !self.trusts(namespace) {
            confined::violations(self, daemon_set, &mut found);
        }
        self.images(&daemon_set.pod_template()["spec"], &mut found);
        found
    }

    /// The granted prefixes of host paths below which the pods of `namespace` are kept; `None`: they are trusted.
    pub fn confines(&self, namespace: &str) -> Option<&[String]> {
        let granted = || self.grants.get(namespace).map_or(&[][..], |grant| &grant.host_paths);
        (!self.trusts(namespace)).then(granted)
    }

    fn images(&self, spec: &Value, found: &mut Vec<FieldError>) {
        let of_containers = containers(spec).map(|(field, container)| (format!("{field}.image"), &container["image"]));
        let of_volumes = spec.list_at("volumes").iter().map(|volume| {
            (format!("volumes[{}].image.reference", volume.str_at("name")), &volume["image"]["reference"])
        });
        for (field, image) in of_containers.chain(of_volumes) {
            let Some(image) = image.as_str().filter(|image| !image.is_empty()) else { continue };
            let allows_all = self.images.iter().any(|pattern| pattern == "*");
            if reference::is_id(image) && !allows_all {
                let reason = format!(
                    "{image} is no name that policy.images {} could allow: a runtime takes it for the ID of any image on the node",
                    Listed(&self.images)
                );
                found.push(error(&field, reason, "write the image's name with a tag or a digest".to_owned()));
                continue;
            }
            let full = reference::full_name(image);
            let is_allowed = |pattern: &String| allows_all || is_one_name(&full) && is_like(&full, pattern);
            if !self.images.iter().any(is_allowed) {
                let reason = format!("{full} matches none of policy.images {}", Listed(&self.images));
                let (repository, end) = (reference::repository(image), if full.contains('@') { '@' } else { ':' });
                found.push(error(
                    &field,
                    reason,
                    format!("add \"{repository}{end}*\" to policy.images, for every namespace"),
                ));
            }
        }
    }
}

fn error(field: &str, reason: String, hint: String) -> FieldError {
    FieldError { field: format!("spec.template.spec.{field}"), reason, hint: Some(hint) }
}

/// Every container with its field.
fn containers(spec: &Value) -> impl Iterator<Item = (String, &Value)> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |kind| {
        spec.list_at(kind).iter().map(move |container| (format!("{kind}[{}]", container.str_at("name")), container))
    })
}

/// Whether a reference is one name below its registry, with no way out of a path that a pattern allows.
fn is_one_name(full: &str) -> bool {
    full.split('/').all(|part| !matches!(part, "" | "." | ".."))
        && !full.contains(|c: char| c.is_whitespace() || c.is_control())
}

/// Whether `text` matches `pattern`, in which `*` matches any text.
fn is_like(text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut middle: Vec<&str> = parts.collect();
    // Without a `*` the whole text must match.
    let Some(last) = middle.pop() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// A list in brackets.
struct Listed<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for Listed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        write!(f, "({})", if items.is_empty() { "none".to_owned() } else { items.join(", ") })
    }
}

#[cfg(test)]
mod tests;
