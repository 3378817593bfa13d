//! Odd objects, annotations and settings that a pod takes something from beside its template, judged by the kubelet's
//! file source.
//!
//! Whatever these are: what ours renders, the kubelet takes. So a mistake in one of them ends nothing that runs.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use daemonlet::core::model::Kind;
use daemonlet::core::model::ObjectMap;
use daemonlet::core::model::ObjectRef;
use daemonlet::core::model::Source;
use daemonlet::core::render::Endpoint;
use daemonlet::core::rendering;
use daemonlet::core::rendering::Revision;
use daemonlet::core::validate;
use serde_json::Value;
use serde_json::json;

use crate::oracle;
use crate::templates::VERSIONS;
use crate::templates::ask_kubelet;
use crate::templates::options;

/// What is done to the world of a daemon that is rendered as it is.
enum Change {
    /// Another object instead of the good one.
    Object(Kind, Value),
    /// Another value at a pointer of the DaemonSet.
    DaemonSet(&'static str, Value),
    Endpoint(&'static str),
}

fn daemon_set() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "odd", "namespace": "odd", "annotations": {}},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}, "annotations": {}},
                "spec": {
                    "hostNetwork": true,
                    "serviceAccountName": "one", "priorityClassName": "one", "runtimeClassName": "one",
                    "containers": [{
                        "name": "c", "image": "i:1",
                        "envFrom": [{"configMapRef": {"name": "one"}}, {"secretRef": {"name": "one"}}],
                        "env": [{"name": "HOST", "value": "$(KUBERNETES_SERVICE_HOST)"}],
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    }],
                    "volumes": [{"name": "data", "configMap": {"name": "one"}}],
                },
            },
        },
    })
}

fn objects() -> ObjectMap {
    let mut objects = ObjectMap { complete: true, ..ObjectMap::default() };
    for (kind, object) in [
        (Kind::PriorityClass, json!({"value": 5, "preemptionPolicy": "Never"})),
        (Kind::RuntimeClass, json!({"handler": "h", "overhead": {"podFixed": {"cpu": "10m"}}})),
        (Kind::ServiceAccount, json!({"automountServiceAccountToken": false})),
        (Kind::ConfigMap, json!({"data": {"A": "b"}})),
        (Kind::Secret, json!({"data": {"K": "dg=="}})),
    ] {
        objects.objects.insert(reference(kind), object);
    }
    objects
}

fn reference(kind: Kind) -> ObjectRef {
    let namespace = if matches!(kind, Kind::PriorityClass | Kind::RuntimeClass) { "" } else { "odd" };
    ObjectRef::new(kind, namespace, "one")
}

/// Every change, and whether it must be refused.
fn changes() -> Vec<(Change, bool)> {
    const ANNOTATIONS: &str = "/spec/template/metadata/annotations";
    const GENERATION: &str = "deprecated.daemonset.template.generation";
    let mut changes = Vec::new();
    for (policy, is_wrong) in
        [(json!("never"), true), (json!("Sometimes"), true), (json!(""), true), (json!(5), true), (Value::Null, false)]
    {
        changes.push((Change::Object(Kind::PriorityClass, json!({"value": 5, "preemptionPolicy": policy})), is_wrong));
    }
    for (value, is_wrong) in [
        (json!("5"), true),
        (json!(5.5), true),
        (json!(true), true),
        (json!([]), true),
        (json!(99_999_999_999_i64), true),
        (json!(-2_147_483_649_i64), true),
        (json!(-5), false),
        (json!(7.0), false),
        (Value::Null, false),
    ] {
        changes.push((Change::Object(Kind::PriorityClass, json!({"value": value})), is_wrong));
    }
    for (overhead, is_wrong) in [
        (json!({"foo": 1}), true),
        (json!({"cpu": -1}), true),
        (json!({"cpu": "many"}), true),
        (json!({"pods": 1}), true),
        (json!({"a b": 1}), true),
        (json!({"": 1}), true),
        (json!({"requests.cpu": 1}), true),
        (json!({"example.com/x": "0.5"}), true),
        (json!({"cpu": 1, "hugepages-2Mi": "3Mi"}), true),
        (json!({"hugepages-2Mi": "4Mi"}), true),
        (json!({"cpu": 1, "hugepages-2Mi": "4Mi"}), false),
        (json!({"cpu": 0.5, "memory": "1e3", "example.com/x": 2}), false),
        (json!({}), false),
        (json!([]), true),
        (json!("x"), true),
    ] {
        changes.push((Change::Object(Kind::RuntimeClass, json!({"overhead": {"podFixed": overhead}})), is_wrong));
    }
    for account in [
        json!({"automountServiceAccountToken": "x"}),
        json!({"automountServiceAccountToken": true}),
        json!({"imagePullSecrets": [{"name": "A b"}, {}, 5]}),
        json!({"imagePullSecrets": "x"}),
        json!({"secrets": [{"name": "A b"}]}),
    ] {
        changes.push((Change::Object(Kind::ServiceAccount, account), false));
    }
    for data in [
        json!({"a b": "1", "=": "2", "\u{e4}": "3", "a": "4"}),
        json!({"A": "\u{0}\u{1}\n\r\t\u{85}\u{2028}\u{feff}", "B": "$(C) $$(A) '\""}),
        json!({"A": "x".repeat(1 << 19)}),
        json!({"KUBERNETES_SERVICE_HOST": "a", "KUBERNETES_SERVICE_PORT": "b"}),
        json!("x"),
    ] {
        changes.push((Change::Object(Kind::ConfigMap, json!({"data": data})), false));
    }
    for data in [json!({"a b": "dg==", "=": "dg==", "K": "dg==", ".": "dg=="}), json!("x")] {
        changes.push((Change::Object(Kind::Secret, json!({"data": data})), false));
    }
    for (generation, is_wrong) in [("-3", false), ("0", false), ("+5", false), ("abc", true), ("", true)] {
        changes.push((Change::DaemonSet("/metadata/annotations", json!({GENERATION: generation})), is_wrong));
    }
    for (key, value, is_wrong) in [
        ("kubernetes.io/config.mirror", "x", true),
        ("kubernetes.io/config.source", "api", false),
        ("scheduler.alpha.kubernetes.io/tolerations", "x", true),
        ("scheduler.alpha.kubernetes.io/tolerations", r#"[{"key": "a b"}]"#, true),
        ("scheduler.alpha.kubernetes.io/tolerations", r#"[{"key": "a"}]"#, false),
        ("daemonlet.dev/incarnation", "x y", false),
        ("daemonlet.dev/overlays-digest", "x y", false),
        ("daemonlet.dev/waiting-containers", "x y", false),
    ] {
        changes.push((Change::DaemonSet(ANNOTATIONS, json!({key: value})), is_wrong));
    }
    for bytes in [261_000, 262_044, 262_060, 262_140, 262_143] {
        let annotations = json!({"a": "x".repeat(bytes)});
        changes.push((Change::DaemonSet(ANNOTATIONS, annotations), bytes > 262_000));
    }
    changes.extend(["", "a b", "::1", "\"\n"].map(|host| (Change::Endpoint(host), false)));
    changes
}

/// The manifest and its pod's UID, or why there is none.
fn render(change: &Change, index: usize, version: (u32, u32)) -> Result<(String, String), String> {
    let (mut value, mut objects, mut options) = (daemon_set(), objects(), options(version));
    // The kubelet distinguishes pods by their names.
    value["metadata"]["name"] = json!(format!("odd-{index}"));
    match change {
        Change::Object(kind, object) => drop(objects.objects.insert(reference(*kind), object.clone())),
        Change::DaemonSet(pointer, new) => *value.pointer_mut(pointer).expect("it is there") = new.clone(),
        Change::Endpoint(host) => options.api_endpoint = Some(Endpoint { host: (*host).to_owned(), port: 0 }),
    }
    if version < (1, 35) {
        // What these kubelets cannot read from a file.
        value["spec"]["template"]["spec"]["containers"][0]["envFrom"].as_array_mut().expect("a list").pop();
    }
    let daemon_set = validate::daemon_set(&value, Source::File { path: "odd.yaml".into() });
    let daemon_set = Arc::new(daemon_set.map_err(|errors| errors[0].to_string())?);
    let revision = Revision::of(&daemon_set);
    let rendering = rendering::render(&daemon_set, &revision, 0, &objects, &BTreeMap::new(), &options);
    let rendered = rendering.result.map_err(|refused| refused.errors[0].to_string())?;
    Ok((rendered.text, rendering.identity.uid))
}

#[test]
fn what_is_rendered_of_odd_objects_the_kubelet_takes() {
    let changes = changes();
    let accepts = oracle::program("accepts");
    let mut wrong = Vec::new();
    for version in VERSIONS {
        let name = format!("{}.{}", version.0, version.1);
        let folder = tempfile::tempdir().expect("a folder");
        let mut rendered = Vec::new();
        for (index, (change, is_wrong)) in changes.iter().enumerate() {
            let description = || match change {
                Change::Object(kind, object) => format!("{name}: {kind} {:.200}", object.to_string()),
                Change::DaemonSet(pointer, value) => format!("{name}: {pointer} {:.200}", value.to_string()),
                Change::Endpoint(host) => format!("{name}: endpoint {host:?}"),
            };
            match render(change, index, version) {
                Ok(_) if *is_wrong => wrong.push(format!("{}: not refused", description())),
                Ok((text, uid)) => {
                    fs::write(folder.path().join(format!("{index}.yaml")), text).expect("it is written");
                    rendered.push((index, uid, description()));
                }
                Err(why) if !is_wrong => wrong.push(format!("{}: refused: {why}", description())),
                Err(_) => {}
            }
        }
        let Some(accepts) = &accepts else { continue };
        let (taken, why) = ask_kubelet(accepts, &name, folder.path());
        for (index, _, description) in rendered.iter().filter(|(_, uid, _)| !taken.contains(uid)) {
            wrong.push(format!("{description}: the kubelet does not take it: {:?}", why.get(&format!("{index}.yaml"))));
        }
        println!("referenced: {} of {} rendered and taken for {name}", taken.len(), changes.len());
    }
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
}
