use serde_json::Value;
use serde_json::json;

use super::*;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::model::UpdateStrategy;
use crate::core::policy::PodRules;
use crate::core::policy::pod_security::PodSecurityLevel;

fn daemon_set(source: Source, namespace: &str, spec: Value) -> DaemonSet {
    DaemonSet {
        key: ObjectKey::new(namespace, "x"),
        uid: None,
        generation: None,
        labels: Default::default(),
        annotations: Default::default(),
        deleting: false,
        finalizers: Vec::new(),
        selector: json!({}),
        template: json!({ "spec": spec }),
        update_strategy: UpdateStrategy::OnDelete,
        min_ready_seconds: 0,
        admitted: None,
        overlays: None,
        gate: Default::default(),
        rollout: Default::default(),
        source,
    }
}

fn enforcing(level: &str) -> Value {
    json!({"metadata": {"name": "a", "labels": {LEVEL_LABEL: level}}})
}

fn words(admission: &Admission) -> String {
    let all = |verdict: &str, errors: &[FieldError]| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        format!("{verdict}: {}", errors.join("; "))
    };
    match admission {
        Admission::Allowed(notes) => all("allowed", notes),
        Admission::Refused(errors) => all("refused", errors),
        Admission::Waits(missing) => format!("waits for {missing}"),
    }
}

fn of_api(spec: Value) -> DaemonSet {
    daemon_set(Source::Api, "a", spec)
}

fn of_folder(spec: Value) -> DaemonSet {
    daemon_set(Source::File { path: "/x.yaml".into() }, "a", spec)
}

/// A container that takes nothing that others need.
fn bounded() -> Value {
    json!({
        "name": "c", "image": "i",
        "resources": {"limits": {"memory": "1Mi"}},
        "securityContext": {"readOnlyRootFilesystem": true},
    })
}

const BASELINE: &str = "violates PodSecurity \"baseline:latest\": host namespaces (hostPID=true)";

#[test]
fn the_rules_bind_the_api_and_not_folders() {
    let policy = Policy::default();
    let namespace = enforcing("privileged");
    let known = Lookup::Present(&namespace);
    let spec = json!({"hostPID": true, "containers": [bounded()]});
    let rule = "spec.template: policy.pod-security forbids it (\"baseline:latest\"): host namespaces (hostPID=true)";
    assert_eq!(words(&policy.admit(&of_api(spec.clone()), known)), format!("refused: {rule}"));
    assert_eq!(words(&policy.admit(&of_folder(spec.clone()), known)), "allowed: ");
    assert_eq!(policy.admit(&daemon_set(Source::Api, "kube-system", spec), known), Admission::FREE);
}

#[test]
fn the_namespace_binds_the_api_and_is_only_noted_for_folders() {
    let open = Policy::default().with_rules(PodRules { trusted_namespaces: vec!["*".into()], ..PodRules::default() });
    let namespace = enforcing("baseline");
    let known = Lookup::Present(&namespace);
    let spec = json!({"hostPID": true, "containers": [bounded()]});
    let refused = open.admit(&of_api(spec.clone()), known);
    assert_eq!(words(&refused), format!("refused: namespace a: {BASELINE}"));
    let Admission::Refused(errors) = refused else { panic!("it is refused") };
    assert_eq!(
        errors[0].hint.as_deref(),
        Some(
            "change the template, or let the namespace have it, and all who create pods there: `kubectl label --overwrite namespace a \
             pod-security.kubernetes.io/enforce=privileged`"
        )
    );
    assert_eq!(
        words(&open.admit(&of_folder(spec), known)),
        format!(
            "allowed: namespace a: the API refuses its mirror pod, so the pod runs but is not visible in the API: {BASELINE}"
        )
    );
}

#[test]
fn both_refuse_at_once_and_the_hint_is_the_least() {
    let namespace = enforcing("restricted");
    let spec = json!({"containers": [bounded()], "hostIPC": true});
    let Admission::Refused(errors) = Policy::default().admit(&of_api(spec), Lookup::Present(&namespace)) else {
        panic!("it is refused")
    };
    assert_eq!(errors.len(), 2, "{errors:?}");
    let spec = json!({"containers": [bounded()]});
    let Admission::Refused(errors) = Policy::default().admit(&of_api(spec), Lookup::Present(&namespace)) else {
        panic!("it is refused")
    };
    assert!(errors[0].hint.as_ref().is_some_and(|hint| hint.ends_with("enforce=baseline`")), "{errors:?}");
}

#[test]
fn a_namespace_that_nobody_has_seen_is_waited_for() {
    let spec = json!({"containers": [bounded()]});
    for unseen in [Lookup::Unknown, Lookup::Absent] {
        assert_eq!(words(&Policy::default().admit(&of_api(spec.clone()), unseen)), "waits for Namespace a");
        assert_eq!(Policy::default().admit(&of_folder(spec.clone()), unseen), Admission::FREE);
    }
}

#[test]
fn the_default_level_is_for_namespaces_that_say_nothing() {
    let policy = Policy::default().with_defaults(PodSecurityLevel::Restricted, String::new());
    let spec = json!({"containers": [bounded()]});
    let bare = json!({"metadata": {"name": "a"}});
    assert!(words(&policy.admit(&of_api(spec.clone()), Lookup::Present(&bare))).contains("restricted:latest"));
    assert_eq!(policy.admit(&of_api(spec), Lookup::Present(&enforcing("privileged"))), Admission::FREE);
}
