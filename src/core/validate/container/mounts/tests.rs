use serde_json::Value;
use serde_json::json;

use crate::core::validate::container::tests::judged;

fn mount(fields: Value) -> Value {
    let mut mount = json!({"name": "v", "mountPath": "/v"});
    mount.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"volumeMounts": [mount]})
}

#[test]
fn mounts_are_judged_by_field() {
    judged([
        (mount(json!({"name": "w"})), "volumeMounts[0].name: the pod has no volume w"),
        (mount(json!({"name": ""})), "volumeMounts[0].name: required"),
        (mount(json!({"mountPath": ""})), "volumeMounts[0].mountPath: required"),
        (
            json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/v"}]}),
            "volumeMounts[1].mountPath: another volume is mounted at /v",
        ),
        (mount(json!({"mountPath": "v/../w"})), ""),
        (mount(json!({"subPath": "/x"})), "volumeMounts[0].subPath: must be a relative path"),
        (mount(json!({"subPathExpr": "x/../y"})), "volumeMounts[0].subPathExpr: must not contain '..'"),
        (mount(json!({"subPath": "..x/y.."})), ""),
        (
            mount(json!({"subPathExpr": "x", "subPath": "y"})),
            "volumeMounts[0].subPathExpr: may not be set beside subPath",
        ),
        (mount(json!({"subPathExpr": "x", "subPath": ""})), ""),
    ]);
}

#[test]
fn propagation_is_judged() {
    let mut privileged = mount(json!({"mountPropagation": "Bidirectional"}));
    privileged["securityContext"] = json!({"privileged": true});
    judged([
        (
            mount(json!({"mountPropagation": "Bidirectional"})),
            "volumeMounts[0].mountPropagation: Bidirectional needs a privileged container",
        ),
        (privileged, ""),
        (mount(json!({"mountPropagation": "HostToContainer"})), ""),
        (
            mount(json!({"mountPropagation": "Both"})),
            "volumeMounts[0].mountPropagation: must be None or HostToContainer or Bidirectional, not \"Both\"",
        ),
        (
            mount(json!({"mountPropagation": ""})),
            "volumeMounts[0].mountPropagation: must be None or HostToContainer or Bidirectional, not \"\"",
        ),
        (mount(json!({"recursiveReadOnly": "Disabled"})), ""),
        (mount(json!({"recursiveReadOnly": "Enabled"})), "volumeMounts[0].recursiveReadOnly: needs readOnly"),
        (mount(json!({"recursiveReadOnly": "Enabled", "readOnly": true, "mountPropagation": "None"})), ""),
        (
            mount(json!({"recursiveReadOnly": "IfPossible", "readOnly": true, "mountPropagation": "HostToContainer"})),
            "volumeMounts[0].recursiveReadOnly: may not be set with mountPropagation",
        ),
        (
            mount(json!({"recursiveReadOnly": "Yes"})),
            "volumeMounts[0].recursiveReadOnly: must be Disabled or IfPossible or Enabled, not \"Yes\"",
        ),
    ]);
}

#[test]
fn devices_are_judged_by_field() {
    let device = |name: &str, path: &str| json!({"name": name, "devicePath": path});
    let devices = |devices: Value| json!({"volumeDevices": devices});
    judged([
        (devices(json!([device("claim", "/dev/a"), device("own-claim", "b")])), ""),
        (devices(json!([device("", "/dev/a")])), "volumeDevices[0].name: required"),
        (devices(json!([device("w", "/dev/a")])), "volumeDevices[0].name: the pod has no volume w"),
        (
            devices(json!([device("v", "/dev/a")])),
            "volumeDevices[0].name: must be a persistentVolumeClaim or ephemeral volume",
        ),
        (
            devices(json!([device("claim", "/dev/a"), device("claim", "/dev/b")])),
            "volumeDevices[1].name: claim is used twice",
        ),
        (devices(json!([device("claim", "")])), "volumeDevices[0].devicePath: required"),
        (devices(json!([device("claim", "/dev/../a")])), "volumeDevices[0].devicePath: must not contain '..'"),
        (
            devices(json!([device("claim", "/dev/a"), device("own-claim", "/dev/a")])),
            "volumeDevices[1].devicePath: another device is at /dev/a",
        ),
        (
            json!({"volumeDevices": [device("claim", "/a")], "volumeMounts": [{"name": "claim", "mountPath": "/b"}]}),
            "volumeDevices[0].name: claim is also mounted",
        ),
        (
            json!({"volumeDevices": [device("claim", "/a")], "volumeMounts": [{"name": "v", "mountPath": "/a"}]}),
            "volumeDevices[0].devicePath: a volume is mounted at /a",
        ),
    ]);
}
