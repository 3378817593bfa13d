use serde_json::json;

use super::*;

fn raw(value: Value) -> Value {
    serde_json::from_str::<RawObject>(&value.to_string()).unwrap().value
}

#[test]
fn copies_of_the_object_in_its_metadata_are_left_out() {
    let value = raw(json!({"kind": "ConfigMap", "data": {"managedFields": "kept"}, "metadata": {"name": "a",
        "managedFields": [1], "annotations": {convert::LAST_APPLIED: "{}"}, "unheardOf": {"x": 1}}}));
    let wanted = json!({"kind": "ConfigMap", "data": {"managedFields": "kept"},
        "metadata": {"name": "a", "unheardOf": {"x": 1}}});
    assert_eq!(value, wanted);
}

#[test]
fn an_object_of_any_shape_is_an_object() {
    for odd in [json!({}), json!({"metadata": {"name": 7, "labels": "x"}}), json!({"metadata": {"annotations": [1]}})] {
        assert_eq!(raw(odd.clone()), odd);
    }
}

#[test]
fn heartbeats_of_a_node_leave_no_trace() {
    let node = |time: &str| {
        json!({"metadata": {"name": "n", "uid": "u", "annotations": {"a": time}}, "spec": {"taints": []},
            "status": {"nodeInfo": {"kubeletVersion": "v1.36.2"}, "images": [time],
                "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": time}]}})
    };
    let kept = keep_node(node("1")).unwrap();
    assert_eq!(Some(kept.clone()), keep_node(node("2")));
    assert_eq!(kept["status"]["conditions"], json!([{"type": "Ready", "status": "True"}]));
    assert_eq!(kept["status"]["nodeInfo"]["kubeletVersion"], "v1.36.2");
}

#[test]
fn only_mirror_pods_and_pods_of_daemon_sets_are_kept() {
    let pod = |metadata: Value| json!({"metadata": metadata, "spec": {"x": 1}, "status": {"phase": "Running"}});
    let other = |pod| keep_pod(pod).map(|kept| kept.to_string());
    let named = r#"{"metadata":{"name":"a"},"status":{}}"#;
    assert_eq!(other(pod(json!({"name": "a", "labels": {"x": "y"}}))).as_deref(), Some(named));
    let mut preempted = pod(json!({"name": "a", "ownerReferences": [{"kind": "ReplicaSet"}]}));
    let disruption = json!({"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "t"});
    let conditions = json!([{"type": "Ready"}, disruption]);
    preempted["status"] = json!({"phase": "Failed", "reason": "Preempting", "podIP": "1", "conditions": conditions});
    let disruption = json!({"type": "DisruptionTarget", "lastTransitionTime": "t"});
    let status = json!({"phase": "Failed", "reason": "Preempting", "conditions": [disruption]});
    assert_eq!(keep_pod(preempted), Some(json!({"metadata": {"name": "a"}, "status": status})));
    assert!(keep_pod(pod(json!({"ownerReferences": [{"kind": "DaemonSet"}]}))).is_some());
    let mirror = keep_pod(pod(json!({"annotations": {"kubernetes.io/config.mirror": "x"}}))).unwrap();
    assert!(mirror.get("spec").is_none());
    assert_eq!(mirror["status"]["phase"], "Running");
    for metadata in [json!({"name": "a"}), json!({"annotations": {"kubernetes.io/config.mirror": "x"}})] {
        let mut holder = pod(metadata);
        holder["spec"] = json!({"hostNetwork": true, "containers": [{"name": "a", "ports": [{"containerPort": 80}]}]});
        let spec = json!({"containers": [{"ports": [{"hostIP": "0.0.0.0", "protocol": "TCP", "hostPort": 80}]}]});
        assert_eq!(keep_pod(holder).unwrap()["spec"], spec, "its host ports are kept");
    }
}

#[test]
fn of_what_others_write_into_a_pod_nothing_is_kept() {
    let metadata = |more: Value| {
        let mut metadata = json!({"name": "a", "uid": "u", "annotations": {"kubernetes.io/config.mirror": "x"},
            "labels": {"controller-revision-hash": "h"}});
        for (field, key) in [("annotations", "network-status"), ("labels", "app")] {
            metadata[field][key] = more.clone();
        }
        metadata["generateName"] = more;
        metadata
    };
    let kept = |more| keep_pod(json!({"kind": "Pod", "metadata": metadata(more), "status": {}})).unwrap();
    assert_eq!(kept(json!("1")), kept(json!("2")));
    let runs = |since: &str| {
        let state = json!({"running": {"startedAt": since}});
        let status = json!({"containerStatuses": [{"name": "c", "state": state}]});
        keep_pod(json!({"metadata": metadata(json!("1")), "status": status})).unwrap()["status"].take()
    };
    assert_eq!(runs("1"), json!({"conditions": [], "containerStatuses": [{"name": "c", "state": {"running": {}}}]}));
    // In a pod that does not run yet, only its id shows that a container was made.
    let waits = json!({"initContainerStatuses": [{"name": "c", "containerID": "containerd://1", "imageID": "i"}]});
    let pod = keep_pod(json!({"metadata": metadata(json!("1")), "status": waits})).unwrap();
    assert_eq!(pod["status"]["initContainerStatuses"], json!([{"name": "c", "containerID": "containerd://1"}]));
    let metadata = kept(json!("1"))["metadata"].take();
    assert_eq!(metadata["annotations"], json!({"kubernetes.io/config.mirror": "x"}));
    assert_eq!(metadata["labels"], json!({"controller-revision-hash": "h"}));
}

#[test]
fn compacting_changes_nothing() {
    let value = json!({"b": [1, {"z": null, "a": "x"}], "a": {}});
    assert_eq!(compact(value.clone()).to_string(), value.to_string());
}

#[test]
fn what_is_kept_of_an_object_fits_into_a_checkpoint() {
    let deep = |levels: usize| (0..levels).fold(json!("x"), |value, _| json!([value]));
    let object = |levels| json!({"data": {"a": "b"}, "unheardOf": deep(levels)});
    assert_eq!(keep_all(object(63)), Some(object(63)));
    assert_eq!(keep_all(object(120)).unwrap()["data"], json!({"a": "b"}));
    let saved = serde_json::to_vec(&json!({"objects": [["reference", keep_all(object(120))]]})).unwrap();
    assert!(serde_json::from_slice::<Value>(&saved).is_ok());
}
