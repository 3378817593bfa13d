//! What a DaemonSet of the API may do to the node: the keys of `[policy]`.
//!
//! Owns the rules and the wording of a refusal: the field, the rule, and how to allow it. Must not know where a
//! DaemonSet comes from; the rules do not apply to folders.

use std::fmt;

use serde_json::Value;

use super::pod_security::DEFAULT_CAPABILITIES;
use crate::core::images::reference;
use crate::core::json::Json;
use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::named::named;

named! {
    /// A namespace of the host that a pod can share.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
    pub enum HostNamespace {
        /// `hostNetwork`.
        Network = "network",
        /// `hostPID`.
        Pid = "pid",
        /// `hostIPC`.
        Ipc = "ipc",
    }
}

impl HostNamespace {
    fn field(self) -> &'static str {
        match self {
            Self::Network => "hostNetwork",
            Self::Pid => "hostPID",
            Self::Ipc => "hostIPC",
        }
    }
}

/// The rules of `[policy]` about pods.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PodRules {
    /// Namespaces whose DaemonSets have full access to the host: the next four rules do not bind them; `*` is all.
    pub trusted_namespaces: Vec<String>,
    /// Whether containers may be privileged.
    pub privileged: bool,
    /// The host's namespaces that may be shared.
    pub host_namespaces: Vec<HostNamespace>,
    /// Host paths that may be mounted, with everything below them.
    pub host_paths: Vec<String>,
    /// Capabilities that may be added, without `CAP_`; `*` is all.
    pub capabilities: Vec<String>,
    /// Images that may run: patterns in which `*` matches any text. They bind every namespace.
    pub images: Vec<String>,
}

impl Default for PodRules {
    /// `kube-system` has full access to the host, as a CNI needs; other namespaces have none.
    fn default() -> Self {
        Self {
            trusted_namespaces: vec!["kube-system".to_owned()],
            privileged: false,
            host_namespaces: Vec::new(),
            host_paths: Vec::new(),
            capabilities: DEFAULT_CAPABILITIES.map(str::to_owned).to_vec(),
            images: vec!["*".to_owned()],
        }
    }
}

impl PodRules {
    /// What the pod of `daemon_set` does against the rules, each with its field, its rule and a hint.
    pub fn violations(&self, daemon_set: &DaemonSet) -> Vec<FieldError> {
        let namespace = &daemon_set.key.namespace;
        let spec = &daemon_set.pod_template()["spec"];
        let mut found = Vec::new();
        if !self.trusted_namespaces.iter().any(|trusted| trusted == "*" || trusted == namespace) {
            let mut refuse = |field: &str, reason: String, hint: String| {
                let hint = format!("{hint}, or add {namespace:?} to policy.trusted-namespaces");
                found.push(error(field, reason, hint));
            };
            self.namespaces(spec, &mut refuse);
            self.paths(spec, &mut refuse);
            self.containers(spec, &mut refuse);
        }
        self.images(spec, &mut found);
        found
    }

    fn namespaces(&self, spec: &Value, refuse: &mut impl FnMut(&str, String, String)) {
        let shared = HostNamespace::ALL.iter().copied().filter(|n| spec[n.field()] == true);
        for namespace in shared.filter(|namespace| !self.host_namespaces.contains(namespace)) {
            let name = namespace.as_str();
            let rule = format!("policy.host-namespaces does not contain {name:?}");
            refuse(namespace.field(), rule, format!("add {name:?} to policy.host-namespaces"));
        }
    }

    fn paths(&self, spec: &Value, refuse: &mut impl FnMut(&str, String, String)) {
        for volume in spec.list_at("volumes").iter().filter(|volume| !volume["hostPath"].is_null()) {
            let path = volume.str_at(["hostPath", "path"]);
            if !self.host_paths.iter().any(|prefix| is_below(path, prefix)) {
                let field = format!("volumes[{}].hostPath.path", volume.str_at("name"));
                let rule = format!("{path:?} is not below a path of policy.host-paths {}", Listed(&self.host_paths));
                refuse(&field, rule, format!("add {path:?} to policy.host-paths"));
            }
        }
    }

    fn containers(&self, spec: &Value, refuse: &mut impl FnMut(&str, String, String)) {
        for (field, container) in containers(spec) {
            let context = &container["securityContext"];
            if context["privileged"] == true && !self.privileged {
                let field = format!("{field}.securityContext.privileged");
                refuse(&field, "policy.privileged is false".to_owned(), "set policy.privileged = true".to_owned());
            }
            for added in context.list_at(["capabilities", "add"]).iter().filter_map(Value::as_str) {
                let name = capability(added);
                let allowed = |allowed: &String| allowed == "*" || (capability(allowed) == name && name != "ALL");
                if !self.capabilities.iter().any(allowed) {
                    let field = format!("{field}.securityContext.capabilities.add");
                    let entry = if name == "ALL" { "*" } else { name.as_str() };
                    let rule = format!("policy.capabilities does not contain {added}");
                    refuse(&field, rule, format!("add {entry:?} to policy.capabilities"));
                }
            }
        }
    }

    fn images(&self, spec: &Value, found: &mut Vec<FieldError>) {
        let of_containers = containers(spec).map(|(field, container)| (format!("{field}.image"), &container["image"]));
        let of_volumes = spec.list_at("volumes").iter().map(|volume| {
            (format!("volumes[{}].image.reference", volume.str_at("name")), &volume["image"]["reference"])
        });
        for (field, image) in of_containers.chain(of_volumes) {
            let Some(image) = image.as_str().filter(|image| !image.is_empty()) else { continue };
            let full = reference::full_name(image);
            if !self.images.iter().any(|pattern| is_like(&full, pattern)) {
                let reason = format!("{full} matches none of policy.images {}", Listed(&self.images));
                let (repository, end) = (reference::repository(image), if full.contains('@') { '@' } else { ':' });
                found.push(error(&field, reason, format!("add \"{repository}{end}*\" to policy.images")));
            }
        }
    }
}

fn error(field: &str, reason: String, hint: String) -> FieldError {
    FieldError { field: format!("spec.template.spec.{field}"), reason, hint: Some(hint) }
}

/// Every container with its field.
fn containers(spec: &Value) -> impl Iterator<Item = (String, &Value)> {
    ["initContainers", "containers"].into_iter().flat_map(move |kind| {
        spec.list_at(kind).iter().map(move |container| (format!("{kind}[{}]", container.str_at("name")), container))
    })
}

/// A capability without its prefix, in upper case, as container runtimes read it.
fn capability(name: &str) -> String {
    let name = name.to_ascii_uppercase();
    name.strip_prefix("CAP_").map_or_else(|| name.clone(), str::to_owned)
}

/// Whether `path` is `prefix` or below it. A path with `..` is below nothing.
fn is_below(path: &str, prefix: &str) -> bool {
    let (path, prefix) = (parts(path), parts(prefix));
    !path.contains(&"..") && path.starts_with(&prefix)
}

fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".").collect()
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
struct Listed<'a>(&'a [String]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({})", if self.0.is_empty() { "none".to_owned() } else { self.0.join(", ") })
    }
}

#[cfg(test)]
mod tests;
