use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use serde_json::json;

use super::DocumentObject;
use super::LAST_APPLIED;
use super::objects;
use crate::core::model::Kind;

fn reason(document: Value) -> String {
    match objects(document).pop() {
        Some(Err(refused)) => {
            let object = refused.object.map(|object| format!("{object}: ")).unwrap_or_default();
            format!("{object}{}", refused.error)
        }
        other => format!("{other:?}"),
    }
}

fn config_map(data: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c" }, "data": data })
}

#[test]
fn lists_are_expanded_also_in_lists_and_lend_their_items_a_kind() {
    let found = objects(json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "ConfigMapList", "items": [{ "metadata": { "name": "a" } }] },
        { "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "n", "namespace": "x" } },
        { "apiVersion": "v1", "kind": "List", "items": null },
        { "kind": "ConfigMap", "metadata": { "name": "b" } },
        { "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" } },
    ] }));
    let said: Vec<String> = found
        .iter()
        .map(|object| match object {
            Ok(DocumentObject::Other(reference, _)) => reference.to_string(),
            Ok(DocumentObject::Ignored { kind, key }) => format!("{kind} {key}"),
            Ok(DocumentObject::DaemonSet { .. }) => "DaemonSet".to_owned(),
            Err(refused) => refused.error.to_string(),
        })
        .collect();
    assert_eq!(said, ["ConfigMap default/a", "Namespace n", "items[3].apiVersion: required", "v1 Pod default/p"]);
}

#[test]
fn a_secret_has_the_keys_that_its_type_asks_for() {
    let secret = |kind: &str, data: Value, annotations: Value| {
        json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "stringData": data,
            "metadata": {"name": "s", "annotations": annotations}})
    };
    let [none, account] = [json!({}), json!({"kubernetes.io/service-account.name": "a"})];
    for (kind, data, annotations, field) in [
        ("Opaque", json!({}), &none, None),
        ("example.org/own", json!({}), &none, None),
        ("kubernetes.io/tls", json!({"tls.crt": ""}), &none, Some("data[tls.key]")),
        ("kubernetes.io/tls", json!({"tls.crt": "", "tls.key": ""}), &none, None),
        ("kubernetes.io/dockerconfigjson", json!({}), &none, Some("data[.dockerconfigjson]")),
        ("kubernetes.io/dockerconfigjson", json!({".dockerconfigjson": "{}"}), &none, None),
        ("kubernetes.io/dockercfg", json!({".dockercfg": "x"}), &none, Some("data[.dockercfg]")),
        ("kubernetes.io/basic-auth", json!({"other": ""}), &none, Some("data[username]")),
        ("kubernetes.io/basic-auth", json!({"password": ""}), &none, None),
        ("kubernetes.io/ssh-auth", json!({"ssh-privatekey": ""}), &none, Some("data[ssh-privatekey]")),
        ("kubernetes.io/ssh-auth", json!({"ssh-privatekey": "k"}), &none, None),
        (
            "kubernetes.io/service-account-token",
            json!({}),
            &none,
            Some("metadata.annotations[kubernetes.io/service-account.name]"),
        ),
        ("kubernetes.io/service-account-token", json!({}), &account, None),
    ] {
        let document = secret(kind, data.clone(), annotations.clone());
        let refused = objects(document).pop().and_then(Result::err).map(|refused| refused.error.field);
        assert_eq!(refused.as_deref(), field, "{kind} {data}");
    }
    let written = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "immutable": "true"});
    assert!(reason(written).contains("immutable: must be true or false"));
}

#[test]
fn what_the_api_server_refuses_is_refused_with_its_field() {
    let cases = [
        (json!("text"), ": not an object: a document needs apiVersion, kind and metadata"),
        (json!({ "kind": "ConfigMap" }), "apiVersion: required"),
        (json!({ "apiVersion": "v1", "kind": 3 }), "kind: must be a string"),
        (json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {} }), "metadata.name: required"),
        (
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "A" } }),
            "metadata.name: must be lower case letters, digits, '-' and '.', each part beginning and ending with a letter or digit (Secret default/A)",
        ),
        (
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c", "generateName": "Q_" } }),
            "metadata.generateName: must be lower case letters, digits, '-' and '.', each part beginning and ending with a letter or digit, but for a '-' at its end (ConfigMap default/c)",
        ),
        (config_map(json!({ "a": 1 })), "ConfigMap default/c: data[a]: must be a string, not a number"),
        (config_map(json!({ "a": true })), "ConfigMap default/c: data[a]: must be a string, not a boolean"),
        (
            config_map(json!({ "a/b": "" })),
            "ConfigMap default/c: data[a/b]: a key consists of letters, digits, '-', '_' and '.', at most 253 characters, and is not '..'",
        ),
        (
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "data": { "k": "no base64" } }),
            "Secret default/s: data[k]: not base64",
        ),
        (
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "data": { "k": 987654 } }),
            "Secret default/s: data[k]: must be a string, not a number",
        ),
        (
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "stringData": { "k": 987654 } }),
            "Secret default/s: stringData[k]: must be a string, not a number",
        ),
        (
            json!({ "apiVersion": "apps/v1beta1", "kind": "DaemonSet", "metadata": { "name": "s" } }),
            "DaemonSet default/s: apiVersion: apps/v1beta1 never had DaemonSets",
        ),
        (
            json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": "s" }, "value": 3000000000i64 }),
            "PriorityClass s: value: must be a 32-bit integer",
        ),
    ];
    for (document, expected) in cases {
        assert_eq!(reason(document), expected);
    }
    assert!(reason(config_map(json!({ "a": "x".repeat((1 << 20) + 1) }))).contains("data: 1048577 bytes"));
}

#[test]
fn string_data_is_folded_into_canonical_base64() {
    let found = objects(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "creationTimestamp": null },
        "data": { "a": "aGVs\nbG8=\n", "b": "YQ==", "n": null }, "stringData": { "b": "über", "e": null },
    }));
    let Ok(DocumentObject::Other(reference, value)) = &found[0] else { panic!("{found:?}") };
    assert_eq!(reference.kind, Kind::Secret);
    assert_eq!(value["data"], json!({ "a": "aGVsbG8=", "b": "w7xiZXI=", "n": "", "e": "" }));
    assert_eq!(value.get("stringData"), None);
}

#[test]
fn a_null_value_is_an_empty_one_as_the_api_server_stores_it() {
    let mut object = config_map(json!({ "empty": null, "full": "x" }));
    object["binaryData"] = json!({ "none": null });
    let Some(Ok(DocumentObject::Other(_, value))) = objects(object).pop() else { panic!("it is taken") };
    assert_eq!(value["data"], json!({ "empty": "", "full": "x" }));
    assert_eq!(value["binaryData"], json!({ "none": "" }));
}

#[test]
fn binary_data_of_a_config_map_is_canonical_as_the_api_server_stores_it() {
    let mut object = config_map(json!({}));
    object["binaryData"] = json!({ "bits": "Yh==", "lines": "Y\nQ==" });
    let Some(Ok(DocumentObject::Other(_, value))) = objects(object).pop() else { panic!("it is taken") };
    assert_eq!(value["binaryData"], json!({ "bits": "Yg==", "lines": "YQ==" }));
}

#[test]
fn an_object_may_have_a_mebibyte_of_data_to_the_byte() {
    let secret = |bytes: usize| {
        let data = json!({ "a": STANDARD.encode(vec![0; bytes]) });
        objects(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "data": data })).pop()
    };
    assert!(matches!(secret(1 << 20), Some(Ok(_))));
    assert!(matches!(secret((1 << 20) + 1), Some(Err(_))));
}

#[test]
fn old_daemon_sets_get_the_defaults_of_their_version() {
    let old = |api_version: &str, strategy: Value| {
        let document = json!({
            "apiVersion": api_version, "kind": "DaemonSet", "metadata": { "name": "d" },
            "spec": { "templateGeneration": 3, "updateStrategy": strategy,
                      "template": { "metadata": { "labels": { "a": "b" } }, "spec": {} } },
        });
        match objects(document).pop() {
            Some(Ok(DocumentObject::DaemonSet { object, .. })) => object,
            other => panic!("{other:?}"),
        }
    };
    let converted = old("extensions/v1beta1", Value::Null);
    assert_eq!(converted["apiVersion"], "apps/v1");
    assert_eq!(converted["spec"]["selector"], json!({ "matchLabels": { "a": "b" } }));
    assert_eq!(converted["spec"]["updateStrategy"], json!({ "type": "OnDelete" }));
    assert_eq!(converted["metadata"]["labels"], json!({ "a": "b" }));
    assert_eq!(converted["spec"].get("templateGeneration"), None);
    let rolling = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 2 } });
    assert_eq!(old("extensions/v1beta1", rolling.clone())["spec"]["updateStrategy"], rolling);
    let converted = old("apps/v1beta2", Value::Null);
    assert_eq!((converted["spec"].get("selector"), &converted["spec"]["updateStrategy"]), (None, &Value::Null));
}

#[test]
fn a_daemon_set_with_a_wrong_label_is_still_known_by_name() {
    let metadata = json!({"name": "d", "namespace": "n", "annotations": {"x": 5}});
    let daemon_set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata});
    let refused = objects(daemon_set).remove(0).unwrap_err();
    assert_eq!(refused.object.map(|object| object.to_string()).as_deref(), Some("DaemonSet n/d"));
    assert_eq!(refused.error.to_string(), "metadata.annotations[x]: must be a string, not a number");
}

#[test]
fn a_slip_in_the_kind_is_refused_and_kinds_of_others_are_ignored() {
    let of = |api_version: &str, kind: &str| {
        let metadata = json!({"name": "d", "namespace": "n"});
        objects(json!({"apiVersion": api_version, "kind": kind, "metadata": metadata})).remove(0).map_err(Box::new)
    };
    for (api_version, kind, object) in [
        ("apps/v1", "Daemonset", "DaemonSet n/d"),
        ("apps/v1", "daemonsets", "DaemonSet n/d"),
        ("v1", "DaemonSet", "DaemonSet n/d"),
        ("app/v1", "DaemonSet", "DaemonSet n/d"),
        ("v1", "Configmap", "ConfigMap n/d"),
        ("apps/v1", "DeamonSet", "DaemonSet n/d"),
        ("apps/v1", "DaemonSett", "DaemonSet n/d"),
        ("v1", "Secerts", "Secret n/d"),
        ("v1", "list", "List n/d"),
        ("apps/v1", "Secret", "Secret n/d"),
        ("scheduling.k8s.io/v1", "Priorityclass", "PriorityClass d"),
    ] {
        let refused = of(api_version, kind).unwrap_err();
        assert_eq!(refused.object.map(|object| object.to_string()).as_deref(), Some(object), "{api_version} {kind}");
        assert_eq!(refused.error.to_string(), format!("kind: {api_version} has no kind {kind:?}"));
        assert!(refused.error.hint.is_some_and(|hint| hint.starts_with("write `apiVersion: ")));
    }
    for (api_version, kind) in [
        ("apps.kruise.io/v1alpha1", "DaemonSet"),
        ("apps/v1", "Deployment"),
        ("v1", "Pod"),
        ("a.b/v1", "configmaps"),
        ("v1", "Config"),
    ] {
        assert!(matches!(of(api_version, kind), Ok(DocumentObject::Ignored { .. })), "{api_version} {kind}");
    }
}

#[test]
fn kinds_of_upstream_are_no_slips() {
    let core = "Binding ComponentStatus Endpoints Event LimitRange Node PersistentVolume PersistentVolumeClaim Pod PodTemplate \
        ReplicationController ResourceQuota Config Eviction";
    let apps = "ControllerRevision Deployment ReplicaSet StatefulSet";
    let others = "batch/v1 Job,batch/v1 CronJob,policy/v1 PodDisruptionBudget,autoscaling/v2 HorizontalPodAutoscaler,\
        extensions/v1beta1 Ingress,scheduling.k8s.io/v1alpha2 Workload";
    let kinds = core.split_whitespace().map(|kind| ("v1", kind));
    let kinds = kinds.chain(apps.split_whitespace().map(|kind| ("apps/v1", kind)));
    for (api_version, kind) in kinds.chain(others.split(',').filter_map(|one| one.trim().split_once(' '))) {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "d"}});
        assert!(matches!(objects(object).remove(0), Ok(DocumentObject::Ignored { .. })), "{api_version} {kind}");
    }
}

#[test]
fn a_list_of_ours_without_a_list_is_refused() {
    for (api_version, kind, items, reason) in [
        ("v1", "List", json!({"a": 1}), "items: must be a list"),
        ("v1", "List", json!("x"), "items: must be a list"),
        ("apps/v1", "DaemonSetList", json!(1), "items: must be a list"),
    ] {
        let refused = objects(json!({"apiVersion": api_version, "kind": kind, "items": items})).remove(0).unwrap_err();
        assert_eq!((refused.object, refused.error.to_string().as_str()), (None, reason));
    }
    let refused = objects(json!({"apiVersion": "v1", "kind": "List"})).remove(0).unwrap_err();
    assert_eq!(refused.error.to_string(), "items: required");
    assert!(objects(json!({"apiVersion": "v1", "kind": "List", "items": null})).is_empty());
    let of_others = json!({"apiVersion": "a.b/v1", "kind": "DaemonSetList", "items": {}, "metadata": {"name": "d"}});
    assert!(matches!(objects(of_others).remove(0), Ok(DocumentObject::Ignored { .. })));
}

#[test]
fn kubectls_copy_of_an_object_is_not_read() {
    for kind in ["ConfigMap", "Secret", "ServiceAccount", "DaemonSet"] {
        let api_version = if kind == "DaemonSet" { "apps/v1" } else { "v1" };
        let mut document = json!({ "apiVersion": api_version, "kind": kind,
            "metadata": { "name": "c", "annotations": { LAST_APPLIED: "copy-4711", "a": "b" } } });
        if kind == "DaemonSet" {
            document["spec"] = json!({ "selector": { "matchLabels": { "a": "b" } }, "template": {
                "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } } });
        }
        let found = objects(document).pop().expect("it is taken");
        let (Ok(DocumentObject::Other(_, value)) | Ok(DocumentObject::DaemonSet { object: value, .. })) = found else {
            panic!("{found:?}")
        };
        assert_eq!(value["metadata"]["annotations"], json!({ "a": "b" }), "{kind}");
    }
}

#[test]
fn what_the_api_server_takes_of_small_objects_and_nothing_else_is_read() {
    let of = |api_version: &str, kind: &str, name: &str, fields: Value| {
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
        object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        objects(object).remove(0).map_err(|refused| refused.error.with_hint())
    };
    let account = |secrets: Value| of("v1", "ServiceAccount", "a", json!({"imagePullSecrets": secrets}));
    let text = account(json!([{"name": "x"}, "regcred"])).unwrap_err();
    assert_eq!(text, "imagePullSecrets[1]: must be an object with the Secret's name (hint: write `- name: regcred`)");
    assert!(account(json!([{"name": 1}])).is_err() && account(json!([7])).is_err());
    assert!(account(json!([{"name": "x"}, {"name": null}, {}, null])).is_ok());
    let runtime_class = |fields| of("node.k8s.io/v1", "RuntimeClass", "r", fields);
    assert_eq!(runtime_class(json!({})), Err("handler: required".to_owned()));
    assert!(runtime_class(json!({"handler": "a_b"})).is_err() && runtime_class(json!({"handler": 1})).is_err());
    assert!(runtime_class(json!({"handler": "runc"})).is_ok());
    let priority_class = |name| of("scheduling.k8s.io/v1", "PriorityClass", name, json!({"value": 5}));
    let reserved = priority_class("system-foo").unwrap_err();
    assert!(
        reserved.starts_with("metadata.name: names that begin with system- are reserved: system-node-"),
        "{reserved}"
    );
    assert!(priority_class("my-system-foo").is_ok() && priority_class("system-node-critical").is_ok());
}

#[test]
fn an_object_with_an_invalid_name_is_named_and_may_be_any() {
    let named = |name: &str| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "a"}});
        objects(object).remove(0).unwrap_err()
    };
    let refused = named("M");
    assert!(refused.error.reason.ends_with(" (ConfigMap a/M)"), "{}", refused.error);
    assert_eq!(refused.object, None, "what the file should define is unknown");
    assert_eq!(named("").error.reason, "required");
}
