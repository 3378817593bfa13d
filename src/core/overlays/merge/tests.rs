use serde_json::json;

use super::*;

fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "a"}, "annotations": {"one": "1", "two": "2"}},
        "spec": {
            "containers": [
                {"name": "agent", "image": "agent:1", "args": ["--a", "--b"],
                    "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}],
                    "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 81}],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "etc", "mountPath": "/etc/a"}],
                    "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}},
                {"name": "sidecar", "image": "sidecar:1"}
            ],
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
            "imagePullSecrets": [{"name": "one"}],
            "tolerations": [{"operator": "Exists"}],
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "etc", "configMap": {"name": "etc"}}]
        }
    })
}

/// The first container after `patch` is merged into it.
fn container(patch: Value) -> Value {
    let mut patch = patch;
    patch["name"] = json!("agent");
    merged(json!({"spec": {"containers": [patch]}}))["spec"]["containers"][0].clone()
}

fn merged(patch: Value) -> Value {
    let mut merged = template();
    merge(&mut merged, &patch, "p").expect("it is merged");
    merged
}

fn refused(patch: Value) -> String {
    merge(&mut template(), &patch, "p").expect_err("it is refused").to_string()
}

#[test]
fn maps_are_merged_and_null_takes_a_field_away() {
    let patch = json!({"requests": {"cpu": "2", "memory": null}, "limits": {"cpu": "4", "memory": null}});
    let resources = container(json!({"resources": patch}))["resources"].clone();
    assert_eq!(resources, json!({"requests": {"cpu": "2"}, "limits": {"cpu": "4"}}));
    let annotations = merged(json!({"metadata": {"annotations": {"one": null, "two": "3", "new": "n"}}}));
    assert_eq!(annotations["metadata"]["annotations"], json!({"two": "3", "new": "n"}));
    assert_eq!(annotations["metadata"]["labels"], json!({"app": "a"}));
}

#[test]
fn lists_of_the_table_are_merged_by_their_keys() {
    // Of two that are in no common order, the patch's comes first, as in kubectl.
    let env =
        container(json!({"env": [{"name": "N", "value": "n"}, {"name": "B", "value": null, "valueFrom": {"x": 1}}]}));
    assert_eq!(
        env["env"],
        json!([{"name": "N", "value": "n"}, {"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"x": 1}},
            {"name": "C", "value": "3"}])
    );
    let ports = container(json!({"ports": [{"containerPort": 81, "hostPort": 81}]}));
    assert_eq!(
        ports["ports"],
        json!([{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 81, "hostPort": 81}])
    );
    let mounts = container(json!({"volumeMounts": [{"mountPath": "/data", "readOnly": true}]}));
    assert_eq!(mounts["volumeMounts"][0], json!({"name": "data", "mountPath": "/data", "readOnly": true}));
    let spec = merged(json!({"spec": {
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["b"]}],
        "imagePullSecrets": [{"name": "two"}],
        "volumes": [{"name": "data", "emptyDir": {"medium": "Memory"}}],
    }}))["spec"]
        .clone();
    assert_eq!(spec["hostAliases"], json!([{"ip": "10.0.0.1", "hostnames": ["b"]}]), "their lists are replaced");
    assert_eq!(spec["imagePullSecrets"], json!([{"name": "two"}, {"name": "one"}]));
    assert_eq!(spec["volumes"][0], json!({"name": "data", "emptyDir": {"medium": "Memory"}}));
    assert_eq!(spec["volumes"][1]["name"], "etc");
}

#[test]
fn other_lists_are_replaced() {
    assert_eq!(container(json!({"args": ["--c"]}))["args"], json!(["--c"]));
    let spec = merged(json!({"spec": {"tolerations": [{"key": "a"}]}}));
    assert_eq!(spec["spec"]["tolerations"], json!([{"key": "a"}]));
}

#[test]
fn directives_delete_and_replace() {
    let env = container(json!({"env": [{"name": "A", "$patch": "delete"}, {"name": "none", "$patch": "delete"}]}));
    assert_eq!(env["env"], json!([{"name": "B", "value": "2"}, {"name": "C", "value": "3"}]));
    let env = container(json!({"env": [{"$patch": "replace"}, {"name": "Z", "value": "z"}]}));
    assert_eq!(env["env"], json!([{"name": "Z", "value": "z"}]));
    let resources = container(json!({"resources": {"$patch": "replace", "limits": {"cpu": "1"}}}));
    assert_eq!(resources["resources"], json!({"limits": {"cpu": "1"}}));
    assert_eq!(container(json!({"resources": {"$patch": "delete"}}))["resources"], json!({}));
    let volume = json!({"name": "etc", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/etc"}});
    let spec = merged(json!({"spec": {"volumes": [volume]}}));
    assert_eq!(spec["spec"]["volumes"][1], json!({"name": "etc", "hostPath": {"path": "/etc"}}));
    let sidecar = merged(json!({"spec": {"containers": [{"name": "sidecar", "$patch": "delete"}]}}));
    assert_eq!(sidecar["spec"]["containers"].as_array().map(Vec::len), Some(1));
}

#[test]
fn what_cannot_be_merged_is_refused_by_field() {
    let of = |patch: Value| refused(json!({"spec": {"containers": [patch]}}));
    assert_eq!(of(json!({"image": "x"})), "p.spec.containers[0].name: required: it identifies the items of this list");
    assert_eq!(of(json!("x")), "p.spec.containers[0]: must be a map");
    assert_eq!(
        of(json!({"name": "agent", "$patch": "merge"})),
        "p.spec.containers[0].$patch: must be replace or delete"
    );
    let order = json!({"name": "agent", "$setElementOrder/env": [{"name": "A"}]});
    assert_eq!(of(order), "p.spec.containers[0][$setElementOrder/env]: this directive is not supported");
    let primitive = json!({"name": "agent", "$deleteFromPrimitiveList/args": ["--a"]});
    assert!(of(primitive).contains("is not supported"));
    let retained = json!({"name": "agent", "$retainKeys": ["name"], "image": "x"});
    assert_eq!(of(retained), "p.spec.containers[0].$retainKeys: does not contain image, which the patch sets");
    assert_eq!(refused(json!({"spec": {"$patch": 1}})), "p.spec.$patch: must be replace or delete");
    assert_eq!(refused(json!([])), "p: must be a map");
}

#[test]
fn a_patch_says_what_it_changes() {
    let patch = json!({"metadata": {"annotations": {"a": "b"}}, "spec": {
        "containers": [{"name": "agent", "resources": {"requests": {"cpu": "2"}}, "ports": [{"containerPort": 80, "hostPort": 1}],
            "args": ["x"]}],
        "initContainers": [{"name": "init", "$patch": "delete"}],
    }});
    assert_eq!(
        changes(&patch),
        [
            "metadata.annotations.a",
            "spec.containers[agent].args",
            "spec.containers[agent].ports[80].hostPort",
            "spec.containers[agent].resources.requests.cpu",
            "spec.initContainers[init] (delete)",
        ]
    );
}

/// Without nulls and directives, which upstream leaves in items that a patch adds to a list.
fn normal(value: &Value) -> Value {
    cleaned(value).unwrap_or_default()
}

#[test]
fn upstream_merges_the_same() {
    // Random templates and patches, and what `strategicpatch.StrategicMergeMapPatch` of Kubernetes 1.36 made of them.
    let cases = include_str!("../../../../tests/golden/overlays/merged.jsonl");
    assert!(cases.lines().count() >= 50);
    for line in cases.lines() {
        let case: Value = serde_json::from_str(line).expect("JSON");
        let mut merged = case["original"].clone();
        merge(&mut merged, &case["patch"], "p").expect("it is merged");
        assert_eq!(normal(&merged), normal(&case["merged"]), "{line}");
    }
}

#[test]
fn many_deletions_are_one_walk_through_the_list() {
    let env = |directive: Value| -> Vec<Value> {
        let item = |n| {
            let mut item = directive.clone();
            item["name"] = json!(format!("V{n}"));
            item
        };
        (0..20_000).map(item).collect()
    };
    let mut template = json!({"spec": {"containers": [{"name": "agent", "env": env(json!({"value": "x"}))}]}});
    let patch = json!({"spec": {"containers": [{"name": "agent", "env": env(json!({"$patch": "delete"}))}]}});
    merge(&mut template, &patch, "p").expect("it is merged");
    assert_eq!(template["spec"]["containers"][0]["env"], json!([]), "walking once for each takes minutes");
}
