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
/// How the names of the Roles begin: no DaemonSet may give its Role the name of a packaged one.
const PREFIX: &str = "daemonlet:daemon:";

/// A Role `daemonlet:daemon:<daemonset>` and its binding to `group` in the daemon's namespace; empty where the daemon
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
    let metadata = json!({"name": format!("{PREFIX}{}", key.name), "namespace": key.namespace});
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::core::yaml;

    #[test]
    fn no_packaged_object_has_the_name_of_a_daemons_role() {
        let key = ObjectKey::new("kube-system", "agent");
        let used = BTreeSet::from([ObjectRef::new(Kind::Secret, "kube-system", "s")]);
        for object in of_daemon(&key, &used, &BTreeSet::new(), "daemonlet:nodes") {
            assert_eq!(object["metadata"]["name"], "daemonlet:daemon:agent");
        }
        let files = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/k8s")).unwrap();
        let texts = files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "yaml"));
        let documents = texts.flat_map(|path| yaml::read_documents(&fs::read_to_string(path).unwrap()));
        let objects: Vec<Value> = documents.map(|document| document.value.unwrap()).collect();
        let names: Vec<&str> = objects.iter().filter_map(|object| object["metadata"]["name"].as_str()).collect();
        assert!(names.contains(&"daemonlet-agent") && !names.iter().any(|name| name.starts_with(PREFIX)), "{names:?}");
    }
}
