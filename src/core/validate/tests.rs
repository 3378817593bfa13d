use serde_json::Value;
use serde_json::json;

use super::daemon_set;
use super::pod_template_types;
use super::pod_types;
use crate::core::model::IntOrPercent;
use crate::core::model::Source;
use crate::core::model::UpdateStrategy;

fn good() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "name": "d", "labels": { "l": null }, "creationTimestamp": null, "annotations": null },
        "spec": {
            "selector": { "matchLabels": { "a": "b" } },
            "template": {
                "metadata": { "labels": { "a": "b" }, "creationTimestamp": null },
                "spec": { "containers": [{
                    "name": "c", "image": "i", "env": null, "unknown": { "x": 1 },
                    "resources": { "limits": { "cpu": 1, "memory": "64Mi", "ephemeral-storage": 0.5 }, "requests": null },
                    "livenessProbe": { "httpGet": { "port": "http" } },
                    "ports": [{ "containerPort": 80 }],
                }] },
            },
        },
        "status": { "currentNumberScheduled": 1, "unheardOf": "x" },
    })
}

/// The good DaemonSet with another value at `pointer`.
fn with(pointer: &str, value: Value) -> Value {
    let mut object = good();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    match object.pointer_mut(parent).unwrap() {
        Value::Array(items) => items[field.parse::<usize>().unwrap()] = value,
        parent => parent[field] = value,
    }
    object
}

fn errors(object: &Value) -> String {
    match daemon_set(object, Source::Api) {
        Ok(_) => "good".to_owned(),
        Err(errors) => errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
    }
}

#[test]
fn a_file_is_refused_by_the_fields_that_it_has() {
    let mut object = with(
        "/spec/template/spec/volumes",
        json!([{ "name": "i", "image": { "reference": "r" } }, { "name": "h", "hostPath": { "path": "/a/../b" } }]),
    );
    let mounts = json!([{ "name": "i", "mountPath": "/i" }, { "name": "h", "mountPath": "/h", "subPath": "../x" }]);
    object["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = mounts;
    let refused = daemon_set(&object, Source::File { path: "f".into() }).unwrap_err();
    let fields: Vec<&str> = refused.iter().map(|error| error.field.as_str()).collect();
    let expected =
        ["spec.template.spec.volumes[1].hostPath.path", "spec.template.spec.containers[0].volumeMounts[1].subPath"];
    assert_eq!(fields, expected);
}

#[test]
fn a_good_one_is_read_with_defaults() {
    let daemon_set = daemon_set(&good(), Source::Api).unwrap();
    assert_eq!(daemon_set.key.to_string(), "default/d");
    assert_eq!(daemon_set.labels.get("l").map(String::as_str), Some(""));
    let expected =
        UpdateStrategy::RollingUpdate { max_unavailable: IntOrPercent::Int(1), max_surge: IntOrPercent::Int(0) };
    assert_eq!(daemon_set.update_strategy, expected);
    assert!(!daemon_set.deleting);
}

#[test]
fn what_upstream_refuses_is_refused_by_field() {
    const SPEC: &str = "/spec/template/spec";
    const ROLLING: &str = "spec.updateStrategy.rollingUpdate";
    let rolling = |value: Value| with("/spec/updateStrategy", json!({ "rollingUpdate": value }));
    let cases = [
        (with("/metadata/name", json!("A_b")), "metadata.name: must be lower case letters, digits, '-' and '.', each part beginning and ending with a letter or digit".to_owned()),
        (with("/metadata/namespace", json!("a.b")), "metadata.namespace: must be lower case letters, digits and '-', beginning and ending with a letter or digit".to_owned()),
        (with("/metadata/labels", json!({ "a": 1 })), "metadata.labels[a]: must be a string, not the number 1".to_owned()),
        (with("/spec", Value::Null), "spec: required".to_owned()),
        (with("/spec/selector", Value::Null), "spec.selector: required".to_owned()),
        (with("/spec/selector", json!({})), "spec.selector: must not be empty: it would select every pod".to_owned()),
        (with("/spec/selector", json!({ "matchLabels": { "a": "c" } })), "spec.template.metadata.labels: the selector does not match the labels of the template".to_owned()),
        (with("/spec/selector", json!({ "matchExpressions": [{ "key": "a", "operator": "In", "values": ["b"] }] })), "good".to_owned()),
        (with("/spec/selector", json!({ "matchExpressions": [{ "key": "a", "operator": "NotIn", "values": ["b"] }] })), "spec.template.metadata.labels: the selector does not match the labels of the template".to_owned()),
        (with("/spec/selector", json!({ "matchExpressions": [{ "key": "a", "operator": "in" }] })), "spec.selector.matchExpressions[0].operator: must be In, NotIn, Exists or DoesNotExist".to_owned()),
        (with("/spec/template/spec", Value::Null), "spec.template.spec: required".to_owned()),
        (with(&format!("{SPEC}/restartPolicy"), json!("Never")), "spec.template.spec.restartPolicy: must be Always in a DaemonSet, not Never".to_owned()),
        (with(&format!("{SPEC}/activeDeadlineSeconds"), json!(5)), "spec.template.spec.activeDeadlineSeconds: not allowed in a DaemonSet".to_owned()),
        (with(&format!("{SPEC}/containers"), json!([])), "spec.template.spec.containers: required".to_owned()),
        (with(&format!("{SPEC}/containers/0/name"), json!("")), "spec.template.spec.containers[0].name: required".to_owned()),
        (with(&format!("{SPEC}/containers/0/image"), Value::Null), "spec.template.spec.containers[0].image: required".to_owned()),
        (with(&format!("{SPEC}/initContainers"), json!([{ "name": "c", "image": "i" }])), "spec.template.spec.initContainers[0].name: c is used twice".to_owned()),
        (with("/spec/minReadySeconds", json!(-1)), "spec.minReadySeconds: must not be negative".to_owned()),
        (with("/spec/revisionHistoryLimit", json!(0)), "good".to_owned()),
        (with("/spec/updateStrategy", json!({ "type": "Recreate" })), "spec.updateStrategy.type: \"Recreate\" is not a strategy: must be RollingUpdate or OnDelete".to_owned()),
        (rolling(json!({ "maxUnavailable": "10%" })), "good".to_owned()),
        (rolling(json!({ "maxUnavailable": "101%" })), format!("{ROLLING}.maxUnavailable: must not be more than 100%")),
        (rolling(json!({ "maxUnavailable": "10" })), format!("{ROLLING}.maxUnavailable: must be a number or a percentage such as 10%")),
        (rolling(json!({ "maxUnavailable": -1 })), format!("{ROLLING}.maxUnavailable: must not be negative")),
        (rolling(json!({ "maxUnavailable": 0 })), format!("{ROLLING}.maxUnavailable: cannot be 0 when maxSurge is 0")),
        (rolling(json!({ "maxSurge": 1 })), format!("{ROLLING}.maxSurge: may not be set when maxUnavailable is not 0")),
        (rolling(json!({ "maxSurge": "25%", "maxUnavailable": 0 })), "good".to_owned()),
    ];
    for (object, expected) in cases {
        assert_eq!(errors(&object), expected);
    }
}

#[test]
fn the_daemon_sets_own_metadata_is_that_of_the_api() {
    const GENERATION: &str = "deprecated.daemonset.template.generation";
    let owner = |more: Value| {
        let mut owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u" });
        owner.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        owner
    };
    let controller = owner(json!({ "controller": true }));
    for (field, value, wrong) in [
        ("annotations", json!({ GENERATION: "abc" }), [format!("annotations[{GENERATION}]")].as_slice()),
        ("annotations", json!({ GENERATION: null }), &[format!("annotations[{GENERATION}]")]),
        ("annotations", json!({ GENERATION: "-3" }), &[]),
        ("generateName", json!("Q_"), &["generateName".to_owned()]),
        ("generateName", json!("-"), &["generateName".to_owned()]),
        ("generateName", json!("ä-"), &["generateName".to_owned()]),
        ("generateName", json!("a-"), &[]),
        ("generateName", json!("a.b"), &[]),
        ("generateName", json!(""), &[]),
        ("finalizers", json!(["a"]), &["finalizers[0]".to_owned()]),
        ("finalizers", json!(["kubernetes", "a/b"]), &[]),
        (
            "ownerReferences",
            json!([{}]),
            &["apiVersion", "kind", "name", "uid"].map(|field| format!("ownerReferences[0].{field}")),
        ),
        (
            "ownerReferences",
            json!([owner(json!({ "apiVersion": "apps/" }))]),
            &["ownerReferences[0].apiVersion".to_owned()],
        ),
        (
            "ownerReferences",
            json!([owner(json!({ "apiVersion": "a/b/c" }))]),
            &["ownerReferences[0].apiVersion".to_owned()],
        ),
        ("ownerReferences", json!([owner(json!({ "kind": "Event" }))]), &["ownerReferences[0].kind".to_owned()]),
        ("ownerReferences", json!([controller, controller]), &["ownerReferences".to_owned()]),
        ("ownerReferences", json!([controller, owner(json!({ "apiVersion": "apps/v1" }))]), &[]),
    ] {
        let object = with(&format!("/metadata/{field}"), value.clone());
        let found = daemon_set(&object, Source::Api).err().unwrap_or_default();
        let found: Vec<_> = found.iter().map(|error| error.field.trim_start_matches("metadata.").to_owned()).collect();
        assert_eq!(found, wrong, "{value}");
    }
}

#[test]
fn what_go_cannot_decode_beside_the_spec_is_refused() {
    for (status, field) in [
        (json!("x"), "status"),
        (json!({ "numberReady": "x" }), "status.numberReady"),
        (json!({ "conditions": [{ "status": true }] }), "status.conditions[0].status"),
    ] {
        assert!(errors(&with("/status", status)).starts_with(&format!("{field}: must be ")), "{field}");
    }
    let of = |time: &str| errors(&with("/metadata/creationTimestamp", json!(time)));
    let leap = "metadata.creationTimestamp: must be a time such as 2026-01-31T10:00:00Z, \
                not the string \"2016-12-31T23:59:60Z\"";
    assert_eq!(of("2016-12-31T23:59:60Z"), leap);
    for bad in ["2020-01-01t00:00:00Z", "2020-01-01T00:00:00z", "2020-01-01 00:00:00Z", "2020-01-01T00:00:00", "", "é"]
    {
        assert!(of(bad).contains("must be a time"), "{bad}");
    }
    assert!(of("2020-02-30T00:00:00Z").starts_with("metadata.creationTimestamp: "), "there is no such day");
    for good in ["2020-01-01T00:00:00Z", "2020-01-01T00:00:00.5Z", "2020-01-01T00:00:00,123+02:00"] {
        assert_eq!(of(good), "good", "{good}");
    }
    let template = with("/spec/template/metadata/deletionTimestamp", json!("2020-01-01T00:00:00z"));
    assert!(errors(&template).starts_with("spec.template.metadata.deletionTimestamp: must be a time"));
}

#[test]
fn what_could_not_be_read_back_is_refused() {
    let deep = |levels: usize| (0..levels).fold(json!("x"), |value, _| json!([value]));
    assert_eq!(errors(&with("/spec/template/spec/unheardOf", deep(97))), "good");
    let refused = "spec: maps and lists are nested more than 100 levels deep";
    assert_eq!(errors(&with("/spec/template/spec/unheardOf", deep(98))), refused);
}

#[test]
fn types_are_those_that_go_takes() {
    const C: &str = "/spec/template/spec/containers/0";
    const FIELD: &str = "spec.template.spec.containers[0]";
    let cases = [
        ("env", json!([{ "name": "X", "value": 1 }]), "env[0].value: must be a string, not the number 1"),
        ("ports", json!({}), "ports: must be a list, not an object"),
        (
            "ports",
            json!([{ "containerPort": "80" }]),
            "ports[0].containerPort: must be a 32-bit integer, not the string \"80\"",
        ),
        (
            "ports",
            json!([{ "containerPort": 3000000000i64 }]),
            "ports[0].containerPort: must be a 32-bit integer, not the number 3000000000",
        ),
        (
            "ports",
            json!([{ "containerPort": 8.5 }]),
            "ports[0].containerPort: must be a 32-bit integer, not the number 8.5",
        ),
        ("command", json!("sh"), "command: must be a list, not the string \"sh\""),
        ("args", json!(["a", true]), "args[1]: must be a string, not the boolean true"),
        ("tty", json!("yes"), "tty: must be true or false, not the string \"yes\""),
        (
            "resources",
            json!({ "limits": { "cpu": "1 core" } }),
            "resources.limits[cpu]: must be a quantity such as 100m or 64Mi, not the string \"1 core\"",
        ),
        (
            "resources",
            json!({ "limits": { "cpu": true } }),
            "resources.limits[cpu]: must be a quantity, not the boolean true",
        ),
        (
            "resources",
            json!({ "limits": { "x/z": "1e21" } }),
            "resources.limits[x/z]: must be a quantity of less than 1e21, not the string \"1e21\"",
        ),
        ("securityContext", json!([]), "securityContext: must be an object, not a list"),
        (
            "livenessProbe",
            json!({ "httpGet": { "port": true } }),
            "livenessProbe.httpGet.port: must be a 32-bit integer or a string, not the boolean true",
        ),
    ];
    for (field, value, expected) in cases {
        let object = with(&format!("{C}/{field}"), value);
        assert_eq!(errors(&object), format!("{FIELD}.{expected}"));
        let error = pod_template_types(&object["spec"]["template"]).unwrap_err();
        assert_eq!(format!("spec.template.{error}"), format!("{FIELD}.{expected}"));
    }
    // Null is every type's zero value, and a quantity may be a number.
    for (field, value) in [
        ("args", json!(["a", null])),
        ("env", json!([null])),
        ("resources", json!({ "limits": { "cpu": 1, "memory": null, "x/y": "1e3", "x/z": " 9 " } })),
        ("stdin", json!(null)),
    ] {
        let object = with(&format!("{C}/{field}"), value);
        assert_eq!(pod_template_types(&object["spec"]["template"]), Ok(()), "{field}");
    }
    let pod = json!({ "metadata": { "name": "p" }, "spec": { "hostNetwork": "true" } });
    assert_eq!(pod_types(&pod).unwrap_err().field, "spec.hostNetwork");
    assert_eq!(pod_types(&pod).unwrap_err().hint.as_deref(), Some("remove the quotes"));
    let huge = with(&format!("{C}/resources"), json!({ "limits": { "cpu": "1000E" } }));
    let error = pod_template_types(&huge["spec"]["template"]).unwrap_err();
    assert_eq!((error.reason.contains("of less than 1e21"), error.hint), (true, None), "quotes change nothing");
    let fraction = with("/spec/updateStrategy", json!({ "rollingUpdate": { "maxUnavailable": 1.5 } }));
    let expected = "spec.updateStrategy.rollingUpdate.maxUnavailable: must be a 32-bit integer or a string, \
                    not the number 1.5";
    assert_eq!(errors(&fraction), expected);
}

#[test]
fn fields_that_there_are_not_are_found_with_what_was_meant() {
    let none: [String; 0] = [];
    let said = |object: &Value| -> Vec<String> {
        super::unknown_fields(object).iter().map(crate::core::model::FieldError::with_hint).collect()
    };
    let mut object = good();
    object["spec"]["template"]["spec"]["containers"][0].as_object_mut().unwrap().remove("unknown");
    // Names within maps and quantities are people's own.
    object["spec"]["template"]["spec"]["nodeSelector"] = json!({"hostNetwrok": "x"});
    assert_eq!(said(&object), none);
    object["spec"]["template"]["spec"]["hostNetwrok"] = json!(true);
    object["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["httpGet"]["Port"] = json!(1);
    object["spec"]["updateStratgey"] = json!({"anything": 1});
    object["metadata"]["zzz"] = json!(null);
    object["Spec"] = json!({});
    let unknown = "unknown field: Kubernetes 1.36 does not have it";
    assert_eq!(
        said(&object),
        [
            format!("Spec: {unknown} (hint: did you mean spec?)"),
            format!("metadata.zzz: {unknown}"),
            format!(
                "spec.template.spec.containers[0].livenessProbe.httpGet.Port: {unknown} (hint: did you mean port?)"
            ),
            format!("spec.template.spec.hostNetwrok: {unknown} (hint: did you mean hostNetwork?)"),
            format!("spec.updateStratgey: {unknown} (hint: did you mean updateStrategy?)"),
        ]
    );
    assert_eq!(errors(&object), "good", "none of them is a mistake for sure");
}
