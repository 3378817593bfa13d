use serde_json::Value;
use serde_json::json;

use super::clean_path;
use super::common_run_as_user;
use super::nested_mount_points;
use crate::core::render::json::Object;

fn object(value: Value) -> Object {
    value.as_object().cloned().unwrap()
}

fn user(user: i64) -> Value {
    json!({"runAsUser": user})
}

#[test]
fn the_common_user_is_that_of_every_container() {
    let cases = [
        (json!({"containers": [{}]}), None),
        (json!({"securityContext": user(7), "containers": [{}]}), Some(7)),
        (json!({"securityContext": user(7), "containers": [{"securityContext": user(8)}]}), Some(8)),
        (json!({"containers": [{"securityContext": user(7)}, {}]}), None),
        (json!({"containers": [{"securityContext": user(7)}, {"securityContext": user(8)}]}), None),
        (json!({"initContainers": [{"securityContext": user(8)}], "containers": [{"securityContext": user(7)}]}), None),
        (json!({"containers": [{"securityContext": user(0)}]}), Some(0)),
        (json!({"containers": []}), None),
    ];
    for (spec, expected) in cases {
        assert_eq!(common_run_as_user(&object(spec.clone())), expected, "{spec}");
    }
}

#[test]
fn paths_are_cleaned_as_go_does() {
    let cases = [
        ("/a/b", "/a/b"),
        ("/a//b/", "/a/b"),
        ("/a/./b/../c", "/a/c"),
        ("/..", "/"),
        ("", "."),
        ("a/..", "."),
        ("../a", "../a"),
        ("a/../../b", "../b"),
    ];
    for (path, expected) in cases {
        assert_eq!(clean_path(path), expected, "{path}");
    }
}

#[test]
fn mount_points_inside_a_volume_are_found() {
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
    let spec = object(json!({
        "containers": [
            {"volumeMounts": [
                mount("data", "/dir"),
                mount("b", "/dir/nested/double"),
                mount("c", "/dir/nested"),
                mount("d", "/dir/nested-vol"),
                mount("e", "/dir/nested.vol/"),
                mount("f", "/dir2/other"),
            ]},
            {"volumeMounts": [mount("b", "/dir/elsewhere")]},
        ],
        "initContainers": [{"volumeMounts": [mount("data", "/x"), mount("b", "/x/y/z")]}],
    }));
    let found = nested_mount_points(&spec);
    assert_eq!(found["data"].keys().collect::<Vec<_>>(), ["nested", "nested-vol", "nested.vol", "y/z"]);
    assert_eq!(found.get("b"), None);
    assert_eq!(found["c"].keys().collect::<Vec<_>>(), ["double"], "{found:?}");
    assert_eq!(found["data"]["nested"], "spec.template.spec.containers[0].volumeMounts[2].mountPath");
    assert_eq!(found["data"]["y/z"], "spec.template.spec.initContainers[0].volumeMounts[1].mountPath");
}
