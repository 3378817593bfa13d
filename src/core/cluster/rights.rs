//! What agents may read for one DaemonSet, as RBAC can say it: by the names of the objects.
//!
//! Owns the Role and its binding. RBAC cannot see which node a DaemonSet is for: every agent gets them.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::json;

use crate::core::model::Kind;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::TokenRequest;

/// Part of every namespace, and readable by the packaged role.
const ROOT_CA: &str = "kube-root-ca.crt";

/// A Role `daemonlet-<daemonset>` and its binding to `group` in the daemon's namespace; empty where the daemon
/// uses nothing there.
pub fn of_daemon(
    key: &ObjectKey,
    references: &BTreeSet<ObjectRef>,
    tokens: &BTreeSet<TokenRequest>,
    group: &str,
) -> Vec<Value> {
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for reference in references.iter().filter(|r| r.key.namespace == key.namespace && r.key.name != ROOT_CA) {
        let resource = match reference.kind {
            Kind::ConfigMap => "configmaps",
            Kind::Secret => "secrets",
            Kind::ServiceAccount => "serviceaccounts",
            Kind::PriorityClass | Kind::RuntimeClass | Kind::Namespace | Kind::Service | Kind::ControllerRevision => {
                continue;
            }
        };
        names.entry(resource).or_default().insert(&reference.key.name);
    }
    let accounts = tokens.iter().map(|token| &token.service_account).filter(|a| a.namespace == key.namespace);
    for account in accounts {
        names.entry("serviceaccounts/token").or_default().insert(&account.name);
    }
    if names.is_empty() {
        return Vec::new();
    }
    let rule = |(resource, names): (&str, BTreeSet<&str>)| {
        let verbs: &[&str] = if resource == "serviceaccounts/token" { &["create"] } else { &["get", "list", "watch"] };
        json!({"apiGroups": [""], "resources": [resource], "resourceNames": names, "verbs": verbs})
    };
    let rules: Vec<Value> = names.into_iter().map(rule).collect();
    let metadata = json!({"name": format!("daemonlet-{}", key.name), "namespace": key.namespace});
    let api = "rbac.authorization.k8s.io";
    vec![
        json!({"apiVersion": format!("{api}/v1"), "kind": "Role", "metadata": metadata, "rules": rules}),
        json!({
            "apiVersion": format!("{api}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": api, "kind": "Role", "name": metadata["name"]},
            "subjects": [{"apiGroup": api, "kind": "Group", "name": group}],
        }),
    ]
}
