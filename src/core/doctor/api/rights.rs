//! The rights that an agent needs in the API.
//!
//! Owns the list of them, as `packaging/k8s/rbac.yaml`, `rbac-dry-run.yaml`, `startup-taint.yaml` and
//! `node-conditions.yaml` grant them. Must not ask whether they are granted.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::cluster::liveness;
use crate::core::json::Json;

/// A right in the API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// `get`.
    pub verb: String,
    /// The API group; empty: the core's.
    pub group: String,
    /// The resource's plural.
    pub resource: String,
    /// The subresource; empty: none.
    pub subresource: String,
    /// The namespace; empty: all.
    pub namespace: String,
    /// The object; empty: all.
    pub name: String,
}

impl Right {
    fn new(verb: &str, group: &str, resource: &str, namespace: &str, name: &str) -> Self {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let [verb, group, resource, subresource, namespace, name] =
            [verb, group, resource, subresource, namespace, name].map(str::to_owned);
        Self { verb, group, resource, subresource, namespace, name }
    }
}

impl std::fmt::Display for Right {
    /// `create serviceaccounts/token kube-system/cni`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        match (self.namespace.as_str(), self.name.as_str()) {
            ("", "") => Ok(()),
            ("", name) => write!(f, " {name}"),
            (namespace, "") => write!(f, " in {namespace}"),
            (namespace, name) => write!(f, " {namespace}/{name}"),
        }
    }
}

/// The right to write the taint of a node that waits for its daemons (`node.startup-taint`).
pub fn right_to_taint() -> Right {
    Right::new("patch", "", "nodes", "", "")
}

/// The right to write conditions of the agent's own Node (`node.conditions`).
pub fn right_to_conditions() -> Right {
    Right::new("patch", "", "nodes/status", "", "")
}

/// What every agent needs, whatever runs on its node: group, resource, object, verbs.
type Needs = (&'static str, &'static str, &'static str, &'static [&'static str]);
const READ: &[&str] = &["get", "list", "watch"];
const NEEDED: &[Needs] = &[
    ("apps", "daemonsets", "", READ),
    ("", "nodes", "", READ),
    ("", "pods", "", &["get", "list", "watch", "patch", "delete"]),
    ("", "namespaces", "", READ),
    ("scheduling.k8s.io", "priorityclasses", "", READ),
    ("node.k8s.io", "runtimeclasses", "", READ),
    ("apps", "controllerrevisions", "", READ),
    ("", "events", "", &["list"]),
    ("events.k8s.io", "events", "", &["create", "patch"]),
];

/// What it needs in addition if the cluster has NodeDaemons.
const NEEDED_WITH_CRD: &[Needs] = &[
    ("daemonlet.dev", "nodedaemons", "", &["get", "list", "watch", "create"]),
    ("daemonlet.dev", "nodedaemons/status", "", &["patch"]),
];

/// The rights that are checked; `crd`: the cluster has NodeDaemons. `coordinator_lease`: namespace and name.
pub fn rights(crd: bool, coordinator_lease: (&str, &str)) -> BTreeSet<Right> {
    let more = if crd { NEEDED_WITH_CRD } else { &[] };
    let of = |(group, resource, name, verbs): &Needs| {
        let (group, resource, name) = (*group, *resource, *name);
        verbs.iter().map(move |verb| Right::new(verb, group, resource, "", name)).collect::<Vec<_>>()
    };
    let mut rights: BTreeSet<Right> = NEEDED.iter().chain(more).flat_map(of).collect();
    rights.extend(READ.iter().map(|verb| Right::new(verb, "", "services", "default", "kubernetes")));
    let leases = |verb: &&str| Right::new(verb, "coordination.k8s.io", "leases", liveness::NAMESPACE, "");
    rights.extend(["get", "create", "update"].iter().filter(|_| crd).map(leases));
    let (namespace, name) = coordinator_lease;
    let coordinator = Right::new("get", "coordination.k8s.io", "leases", namespace, name);
    rights.extend(crd.then_some(coordinator));
    rights
}

/// The right to dry-run pods (`policy.admission`), in the namespaces whose DaemonSets may run; `*` is all.
pub fn rights_to_ask(namespaces: &[String]) -> BTreeSet<Right> {
    let all = namespaces.iter().any(|namespace| namespace == "*");
    let namespaces = if all { vec![""] } else { namespaces.iter().map(String::as_str).collect() };
    namespaces.into_iter().map(|namespace| Right::new("create", "", "pods", namespace, "")).collect()
}

/// The rights that one daemon needs in addition: the objects, the account and the token that its template names.
pub fn rights_of(namespace: &str, template: &Value) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    let mut read = |resource: &str, name: &str| {
        rights.extend(READ.iter().map(|verb| Right::new(verb, "", resource, namespace, name)));
    };
    let spec = template.get("spec").unwrap_or(&Value::Null);
    named(spec, &mut read);
    let account = spec.text_at("serviceAccountName").or_else(|| spec.text_at("serviceAccount")).unwrap_or("default");
    read("serviceaccounts", account);
    let mounts = spec.get("automountServiceAccountToken") != Some(&Value::Bool(false));
    if mounts || has(spec, "serviceAccountToken") {
        rights.insert(Right::new("create", "", "serviceaccounts/token", namespace, account));
    }
    rights
}

/// Calls `read` for each ConfigMap and Secret named anywhere in `value`.
fn named(value: &Value, read: &mut impl FnMut(&str, &str)) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| named(item, read)),
        Value::Object(fields) => {
            for (field, inner) in fields {
                match (field.as_str(), inner.str_at("name"), inner.str_at("secretName")) {
                    ("configMap" | "configMapRef" | "configMapKeyRef", name, _) if !name.is_empty() => {
                        read("configmaps", name);
                    }
                    ("secret" | "secretRef" | "secretKeyRef", name, secret)
                        if !(name.is_empty() && secret.is_empty()) =>
                    {
                        read("secrets", if secret.is_empty() { name } else { secret });
                    }
                    _ => named(inner, read),
                }
            }
            let pulls = fields.list_at("imagePullSecrets").iter().filter_map(|secret| secret.text_at("name"));
            pulls.for_each(|name| read("secrets", name));
        }
        _ => {}
    }
}

fn has(value: &Value, field: &str) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| has(item, field)),
        Value::Object(fields) => fields.contains_key(field) || fields.values().any(|value| has(value, field)),
        _ => false,
    }
}
