use serde_json::Value;
use serde_json::json;

use crate::core::validate::container::tests::judged;
use crate::core::validate::container::tests::with;

const NO_LABEL_KEY: &str =
    "must be letters, digits, '-', '_' and '.' (at most 63), optionally preceded by a DNS name and '/'";

fn from(kind: &str, source: Value) -> Value {
    json!({"env": [{"name": "a", "valueFrom": with(kind, source)}]})
}

#[test]
fn variables_are_judged_by_field() {
    judged([
        (json!({"env": [{"value": "x"}]}), "env[0].name: required"),
        (
            json!({"env": [{"name": "a=b"}]}),
            "env[0].name: \"a=b\" is not a variable name: only printable ASCII characters except '=' are allowed",
        ),
        (
            json!({"env": [{"name": "ä"}]}),
            "env[0].name: \"ä\" is not a variable name: only printable ASCII characters except '=' are allowed",
        ),
        (json!({"env": [{"name": " ~1"}]}), ""),
        (json!({"env": [{"name": "a", "valueFrom": {}}]}), "env[0].valueFrom: must have a source"),
        (json!({"env": [{"name": "a", "value": "x", "valueFrom": {}}]}), "env[0].valueFrom: must have a source"),
        (json!({"env": [{"name": "a", "value": "x", "valueFrom": null}]}), ""),
        (
            json!({"env": [{"name": "a", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}),
            "env[0].valueFrom: may not be set beside value",
        ),
        (json!({"env": [{"name": "a", "value": "", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}), ""),
        (
            json!({"env": [{"name": "a", "valueFrom": {
                "secretKeyRef": {"name": "s", "key": "k"}, "configMapKeyRef": {"name": "s", "key": "k"},
            }}]}),
            "env[0].valueFrom: must have exactly one of \
             fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef, fileKeyRef",
        ),
    ]);
}

#[test]
fn fields_of_the_pod_are_judged() {
    let path = |path: &str| from("fieldRef", json!({"fieldPath": path}));
    let refused = |path: &str| {
        format!(
            "env[0].valueFrom.fieldRef.fieldPath: must be metadata.name, metadata.namespace, metadata.uid, \
             spec.nodeName, spec.serviceAccountName, status.hostIP, status.hostIPs, status.podIP, status.podIPs, \
             metadata.labels['<key>'] or metadata.annotations['<key>'], not {path:?}"
        )
    };
    for good in ["status.podIPs", "spec.host", "metadata.labels['a.b/C']", "metadata.annotations['A.B/C']"] {
        judged([(path(good), "")]);
    }
    for bad in ["metadata.labels", "status.phase", "metadata.name['a']", "['a']", "metadata.labels['a'"] {
        judged([(path(bad), refused(bad).as_str())]);
    }
    let key = |key: &str| format!("env[0].valueFrom.fieldRef.fieldPath: the key {key:?} {NO_LABEL_KEY}");
    judged([
        (from("fieldRef", json!({})), "env[0].valueFrom.fieldRef.fieldPath: required"),
        (path("metadata.labels['A.B/C']"), key("A.B/C").as_str()),
        (path("metadata.annotations['']"), key("").as_str()),
        (
            from("fieldRef", json!({"apiVersion": "v2", "fieldPath": "metadata.name"})),
            "env[0].valueFrom.fieldRef.apiVersion: must be v1, not \"v2\"",
        ),
        (from("fieldRef", json!({"apiVersion": "v1", "fieldPath": "metadata.name"})), ""),
    ]);
}

#[test]
fn resources_and_their_divisors_are_judged() {
    let resource =
        |resource: &str, divisor: Value| from("resourceFieldRef", json!({"resource": resource, "divisor": divisor}));
    const SIZES: &str = "1 or 1k or 1M or 1G or 1T or 1P or 1E or 1Ki or 1Mi or 1Gi or 1Ti or 1Pi or 1Ei";
    const DIVISOR: &str = "env[0].valueFrom.resourceFieldRef.divisor: must be";
    judged([
        (from("resourceFieldRef", json!({})), "env[0].valueFrom.resourceFieldRef.resource: required"),
        (
            resource("limits.storage", json!(null)),
            "env[0].valueFrom.resourceFieldRef.resource: must be limits.cpu, limits.memory, limits.ephemeral-storage, \
             requests.cpu, requests.memory, requests.ephemeral-storage or hugepages, not \"limits.storage\"",
        ),
        (resource("limits.cpu", json!(0)), ""),
        (resource("limits.cpu", json!("0.001")), ""),
        (resource("limits.cpu", json!("1000m")), ""),
        (resource("limits.cpu", json!("10m")), format!("{DIVISOR} 1m or 1, not \"10m\"").as_str()),
        (resource("requests.memory", json!("1024Ki")), ""),
        (resource("requests.memory", json!(1024)), format!("{DIVISOR} {SIZES}, not 1024").as_str()),
        (resource("limits.ephemeral-storage", json!("1m")), format!("{DIVISOR} {SIZES}, not \"1m\"").as_str()),
        (resource("limits.hugepages-2Mi", json!("1Mi")), ""),
        (resource("limits.hugepages-2Mi", json!("2Mi")), format!("{DIVISOR} {SIZES}, not \"2Mi\"").as_str()),
    ]);
    for good in ["+0.001", "+1000m", "01000m", "1.0", "10e-1", "0.1e1"] {
        judged([(resource("limits.cpu", json!(good)), "")]);
    }
    for bad in ["01", "+1", "1.", "001", "+1m", "01m", "1e0", " 01 "] {
        judged([(resource("limits.cpu", json!(bad)), format!("{DIVISOR} 1m or 1, not {bad:?}").as_str())]);
    }
    for good in ["01Pi", "+1Ei", "01024Ki", "1000k", "+1000"] {
        judged([(resource("limits.memory", json!(good)), "")]);
    }
    for bad in ["+1k", "1.M", "01G", "01T", "+1P", "1.E", "01Ki", "+1Mi", "01Gi", "01Ti"] {
        judged([(resource("limits.memory", json!(bad)), format!("{DIVISOR} {SIZES}, not {bad:?}").as_str())]);
    }
}

#[test]
fn keys_of_other_objects_are_judged() {
    let label =
        "must be lower case letters, digits, '-' and '.', each part beginning and ending with a letter or digit";
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        let place = format!("env[0].valueFrom.{kind}");
        let key = |key: &str| from(kind, json!({"name": "n.m", "key": key}));
        judged([
            (from(kind, json!({"key": "k"})), format!("{place}.name: required").as_str()),
            (from(kind, json!({"name": "n-", "key": "k"})), format!("{place}.name: {label}").as_str()),
            (from(kind, json!({"name": "n"})), format!("{place}.key: required").as_str()),
            (key(&"k".repeat(253)), ""),
            (key(&"k".repeat(254)), format!("{place}.key: must be no more than 253 bytes").as_str()),
            (key("a b"), format!("{place}.key: must be letters, digits, '-', '_' and '.'").as_str()),
            (key("."), format!("{place}.key: must not be '.'").as_str()),
            (key("..a"), format!("{place}.key: must not begin with '..'").as_str()),
            (key(".a_B-1"), ""),
        ]);
    }
}

#[test]
fn keys_of_files_are_judged() {
    let file = |key: &str, path: &str, volume: &str| {
        from("fileKeyRef", json!({"key": key, "path": path, "volumeName": volume}))
    };
    const PLACE: &str = "env[0].valueFrom.fileKeyRef";
    judged([
        (file("k", "a/b", "v"), ""),
        (file("k", "/a/..b", "unset"), ""),
        (file("", "a", "v"), format!("{PLACE}.key: required").as_str()),
        (file("k", "", "v"), format!("{PLACE}.path: required").as_str()),
        (file("k", "a/..", "v"), format!("{PLACE}.path: must not contain '..'").as_str()),
        (file("k", "a", ""), format!("{PLACE}.volumeName: required").as_str()),
        (file("k", "a", "w"), format!("{PLACE}.volumeName: the pod has no volume w").as_str()),
        (file("k", "a", "host"), format!("{PLACE}.volumeName: must be an emptyDir volume").as_str()),
    ]);
}

#[test]
fn whole_objects_are_judged() {
    let one = |source: Value| json!({"envFrom": [source]});
    judged([
        (one(json!({"configMapRef": {"name": "n"}, "prefix": "1 -"})), ""),
        (
            one(json!({"configMapRef": {"name": "n"}, "prefix": "a="})),
            "envFrom[0].prefix: \"a=\" is not a variable name: only printable ASCII characters except '=' are allowed",
        ),
        (one(json!({})), "envFrom[0]: must have exactly one of configMapRef, secretRef"),
        (
            one(json!({"configMapRef": {"name": "n"}, "secretRef": {"name": "n"}})),
            "envFrom[0]: must have exactly one of configMapRef, secretRef",
        ),
        (one(json!({"secretRef": {}})), "envFrom[0].secretRef.name: required"),
        (
            one(json!({"secretRef": {"name": "-"}})),
            "envFrom[0].secretRef.name: \
             must be lower case letters, digits, '-' and '.', each part beginning and ending with a letter or digit",
        ),
        (one(json!({"secretRef": {"name": "n-"}})), ""),
    ]);
}
