//! File form and API form of the same template, and what must stay apart.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::*;
use crate::core::yaml;

/// Pairs that a Kubernetes 1.36 API server made: `X.yaml` was created, `X.json` read back.
#[test]
fn as_written_and_as_the_server_keeps_it() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/canonical");
    for name in ["plain", "spelled", "meaningful"] {
        let file = fs::read_to_string(golden.join(format!("{name}.yaml"))).expect("a golden file");
        let file = yaml::read_documents(&file).remove(0).value.expect("YAML");
        let api = fs::read_to_string(golden.join(format!("{name}.json"))).expect("a golden file");
        let api: Value = serde_json::from_str(&api).expect("JSON");
        let (file, api) = (template(&file["spec"]["template"]), template(&api["spec"]["template"]));
        assert_eq!(
            serde_json::to_string_pretty(&file).expect("JSON"),
            serde_json::to_string_pretty(&api).expect("JSON"),
            "{name}"
        );
        assert_eq!(template(&api), api, "{name}: the canonical form is its own canonical form");
    }
}

fn spec(spec: Value) -> Value {
    template(&json!({ "spec": spec }))
}

/// Defaults leave nothing behind: the spelled-out form is the short one.
#[test]
fn the_same() {
    let nothing = json!({"containers": [{"image": "x:1", "name": "x"}]});
    let table = [
        json!({"containers": [{"name": "x", "image": "x:1", "imagePullPolicy": "IfNotPresent", "resources": {"limits": {}}}]}),
        json!({"containers": [{"name": "x", "image": "x:1"}], "securityContext": {}, "enableServiceLinks": true}),
        json!({"containers": [{"name": "x", "image": "x:1", "ports": null, "stdin": false}], "nodeSelector": {}}),
        json!({"containers": [{"name": "x", "image": "x:1"}], "restartPolicy": "Always", "terminationGracePeriodSeconds": 30.0}),
    ];
    for other in table {
        assert_eq!(spec(other.clone()).to_string(), spec(nothing.clone()).to_string(), "{other}");
    }
    let pairs = [
        (json!({"serviceAccount": "a", "zzz": 1}), json!({"zzz": 1, "serviceAccountName": "a"})),
        (json!({"serviceAccount": "a", "serviceAccountName": "b"}), json!({"serviceAccountName": "b"})),
        (json!({"volumes": [{"name": "a"}]}), json!({"volumes": [{"name": "a", "emptyDir": {"medium": ""}}]})),
        (
            json!({"hostNetwork": true, "containers": [{"ports": [{"containerPort": 1}]}]}),
            json!({"hostNetwork": true, "containers": [{"ports": [{"containerPort": 1, "hostPort": 1, "protocol": "TCP"}]}]}),
        ),
        (json!({"nodeSelector": {"a": null}}), json!({"nodeSelector": {"a": ""}})),
        (json!({"imagePullSecrets": [null, {"name": "a"}]}), json!({"imagePullSecrets": [{}, {"name": "a"}]})),
        (
            json!({"securityContext": {"supplementalGroups": [null, 5]}}),
            json!({"securityContext": {"supplementalGroups": [0, 5]}}),
        ),
        (json!({"new": {"a": 8.0, "b": null}, "newer": []}), json!({"new": {"a": 8}})),
    ];
    for (one, other) in pairs {
        assert_eq!(spec(one.clone()).to_string(), spec(other).to_string(), "{one}");
    }
    let metadata = json!({"metadata": {"creationTimestamp": null, "annotations": {"pod.beta.kubernetes.io/init-containers": "[]"}}});
    assert_eq!(template(&metadata), json!({}));
}

/// What a pod would notice is never taken out.
#[test]
fn not_the_same() {
    let container = |field: &str, value: Value| json!({"containers": [{"name": "x", "image": "x:1", field: value}]});
    let table = [
        (container("securityContext", json!({"runAsUser": 0})), container("securityContext", json!({}))),
        (container("securityContext", json!({"privileged": false})), container("securityContext", json!({}))),
        (container("imagePullPolicy", json!("Always")), container("imagePullPolicy", json!("IfNotPresent"))),
        (container("args", json!([""])), container("args", json!([]))),
        (container("args", json!(["a", "b"])), container("args", json!(["b", "a"]))),
        (json!({"automountServiceAccountToken": false}), json!({})),
        (json!({"enableServiceLinks": false}), json!({})),
        (json!({"terminationGracePeriodSeconds": 0}), json!({})),
        (json!({"nodeSelector": {"a": ""}}), json!({})),
        (json!({"volumes": [{"name": "a", "downwardAPI": {}}]}), json!({"volumes": [{"name": "a", "emptyDir": {}}]})),
        (
            json!({"volumes": [{"name": "a", "secret": {"defaultMode": 0}}]}),
            json!({"volumes": [{"name": "a", "secret": {}}]}),
        ),
        (
            json!({"containers": [{"ports": [{"containerPort": 1, "hostPort": 1}]}]}),
            json!({"containers": [{"ports": [{"containerPort": 1}]}]}),
        ),
        (json!({"new": false}), json!({})),
        (json!({"new": {}}), json!({})),
    ];
    for (one, other) in table {
        assert_ne!(spec(one.clone()), spec(other), "{one}");
    }
}

#[test]
fn what_is_no_template_is_left_alone() {
    for odd in [json!(null), json!("x"), json!([1]), json!({"spec": "x"}), json!({"spec": {"containers": {"a": 1}}})] {
        assert_eq!(template(&odd), odd);
    }
}
