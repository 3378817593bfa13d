use serde_json::Value;
use serde_json::json;

use super::*;
use crate::core::field_filter::is_too_large;
use crate::core::model::ObjectKey;
use crate::node::api::object::keep_pod;
use crate::node::api::object::pending::keep_pending;

fn shortening(path: &str, selection: &Selection) -> Option<Shortening> {
    Shortening::of(&Request::get(path).body(()).expect("a request"), selection)
}

/// `object` as it is read of the answer to a GET of `path`.
fn read(path: &str, object: &Value) -> Value {
    let mut shortening = shortening(path, &Selection::default()).expect("it is shortened");
    let read = shortening.feed(json!({"items": [object]}).to_string().as_bytes());
    serde_json::from_slice::<Value>(&read).expect("JSON")["items"][0].clone()
}

fn pod(metadata: Value) -> Value {
    let container = json!({"name": "a", "image": "i", "env": [{"name": "e", "value": "v"}], "volumeMounts": [{}],
        "resources": {"requests": {"cpu": "1"}}, "ports": [{"containerPort": 1, "hostPort": 2}], "restartPolicy": "Always"});
    let status = json!({"name": "a", "containerID": "c", "image": "i", "ready": true, "started": true, "restartCount": 3,
        "state": {"running": {"startedAt": "t"}}, "lastState": {"terminated": {"exitCode": 1}}});
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]});
    let conditions = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}, {"type": "Ready", "status": "True"}]);
    let mut pod = json!({"metadata": {"name": "p", "namespace": "a", "uid": "u", "resourceVersion": "1",
            "labels": {HASH_LABEL: "h", GENERATION_LABEL: "1", "x": "y"}, "annotations": {"x": "y"}, "deletionTimestamp": "t"},
        "spec": {"hostNetwork": true, "overhead": {"cpu": "1m"}, "resources": {"limits": {"memory": "1"}}, "volumes": [{}],
            "initContainers": [container], "containers": [container],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}},
        "status": {"phase": "Failed", "reason": "Preempting", "message": "m", "qosClass": "Burstable", "conditions": conditions,
            "initContainerStatuses": [status], "containerStatuses": [status], "podIPs": [{}]}});
    for (field, value) in metadata.as_object().into_iter().flatten() {
        pod["metadata"][field] = value.clone();
    }
    pod
}

#[test]
fn what_is_kept_of_a_pod_is_read_of_it() {
    let owners = json!([{"kind": "DaemonSet", "name": "d", "uid": "o", "controller": true}]);
    for metadata in [json!({}), json!({"ownerReferences": owners}), json!({"annotations": {MIRROR_ANNOTATION: "m"}})] {
        let pod = pod(metadata);
        let kept = keep_pod(pod.clone());
        assert!(kept.is_some());
        assert_eq!(keep_pod(read("/api/v1/pods", &pod)), kept);
    }
    let mut waits = pod(json!({"ownerReferences": owners}));
    waits["metadata"].as_object_mut().expect("a map").remove("deletionTimestamp");
    let keep = |pod: &Value| keep_pending(pod, &ObjectKey::new("a", "d"), "n");
    let kept = keep(&waits);
    assert!(kept.is_some());
    assert_eq!(keep(&read("/api/v1/namespaces/a/pods", &waits)), kept);
    waits["metadata"]["deletionTimestamp"] = json!("t");
    assert_eq!(keep(&read("/api/v1/namespaces/a/pods", &waits)), None, "it goes");
}

#[test]
fn of_a_pod_that_is_too_large_it_is_known_that_it_exists() {
    let mut large = pod(json!({}));
    large["spec"]["containers"] = json!(vec![json!({"ports": [{}]}); 4096]);
    let read = read("/api/v1/pods", &large);
    assert!(is_too_large(&read));
    let metadata = json!({"name": "p", "namespace": "a", "uid": "u"});
    assert_eq!(keep_pod(read), Some(json!({"metadata": metadata, "status": {}})));
}

#[test]
fn an_error_of_a_watch_is_read_whole() {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "m",
        "reason": "Expired", "code": 410, "details": {"a": [1]}});
    for path in [
        "/api/v1/pods",
        "/api/v1/namespaces/a/pods",
        "/api/v1/namespaces/a/serviceaccounts",
        "/api/v1/events",
        "/apis/apps/v1/controllerrevisions",
        "/apis/apps/v1/daemonsets",
    ] {
        assert_eq!(read(path, &status), status, "{path}");
    }
}

#[test]
fn of_a_service_account_what_pods_get_of_it_is_read() {
    let account = json!({"kind": "ServiceAccount", "metadata": {"name": "s", "namespace": "a", "uid": "u", "labels": {"x": "y"}},
        "automountServiceAccountToken": false, "imagePullSecrets": [{"name": "p", "x": "y"}], "secrets": [{"name": "t"}]});
    let mut kept = account.clone();
    (kept["metadata"]["labels"], kept["imagePullSecrets"]) = (json!({}), json!([{"name": "p"}]));
    kept.as_object_mut().expect("a map").remove("secrets");
    let path = "/api/v1/namespaces/a/serviceaccounts";
    assert_eq!(read(path, &account), kept);
    let mut one = shortening(&format!("{path}/s"), &Selection::default()).expect("it is shortened");
    assert_eq!(serde_json::from_slice::<Value>(&one.feed(account.to_string().as_bytes())).expect("JSON"), kept);
    let mut large = account;
    large["imagePullSecrets"] = json!(vec![json!({"name": "a"}); 200_000]);
    assert!(is_too_large(&read(path, &large)));
}

#[test]
fn of_all_controller_revisions_no_more_is_asked_for_and_read_than_whose_they_are() {
    let path = "/apis/apps/v1/controllerrevisions";
    let owners = json!([{"kind": "DaemonSet", "name": "d", "uid": "o", "controller": true}]);
    let metadata = json!({"name": "r", "namespace": "a", "uid": "u", "resourceVersion": "1", "labels": {"x": "y"}, "ownerReferences": owners});
    let mut whole =
        json!({"kind": "ControllerRevision", "metadata": metadata, "data": {"a": "x".repeat(1 << 20)}, "revision": 1});
    whole["metadata"]["annotations"] = json!({"daemonlet.dev/halted": "x".repeat(1 << 18)});
    whole["metadata"]["managedFields"] = json!(vec![json!({}); 10_000]);
    let mut kept = json!({"kind": "ControllerRevision", "metadata": metadata});
    kept["metadata"]["annotations"] = json!({});
    assert_eq!(read(path, &whole), kept, "also where the API server gives more than it is asked for");
    whole["metadata"]["labels"] =
        json!((0..300).map(|n| (n.to_string(), json!("x"))).collect::<serde_json::Map<_, _>>());
    assert!(is_too_large(&read(path, &whole)));
    let asked = |path: &str| {
        let mut request = Request::get(path).body(()).expect("a request");
        ask_for_less(&mut request);
        request.headers().get(ACCEPT).map(|accept| accept.to_str().expect("text").to_owned()).unwrap_or_default()
    };
    assert!(asked(&format!("{path}?limit=500")).starts_with("application/json;as=PartialObjectMetadataList;"));
    assert!(asked(&format!("{path}?watch=true&x=y")).starts_with("application/json;as=PartialObjectMetadata;"));
    assert_eq!(asked("/apis/apps/v1/namespaces/a/controllerrevisions/r"), "");
}

#[test]
fn a_daemon_set_that_is_asked_for_by_name_is_bounded_where_a_list_is() {
    let selection = Selection::of_label(vec!["trusted".to_owned()]);
    let read = |namespace: &str, values: usize| {
        let path = format!("/apis/apps/v1/namespaces/{namespace}/daemonsets/d");
        let mut one = shortening(&path, &selection).expect("it is shortened");
        let metadata = json!({"name": "d", "namespace": namespace, "labels": {"x": "y"}});
        let object = json!({"metadata": metadata, "spec": {"template": vec![json!({}); values]}});
        let read: Value = serde_json::from_slice(&one.feed(object.to_string().as_bytes())).expect("JSON");
        (read == object, crate::core::outline::too_large(&read).is_some())
    };
    assert_eq!(read("a", 10), (true, false), "also one that no agent selects");
    assert_eq!(read("a", 100_000), (false, true));
    assert_eq!(read("trusted", 100_000), (true, false));
}

#[test]
fn nothing_else_is_shortened() {
    let selection = Selection::of_label(Vec::new());
    for path in ["/apis/apps/v1/daemonsets", "/apis/apps/v1/daemonsets?watch=true", "/api/v1/pods?limit=1"] {
        assert!(shortening(path, &selection).is_some(), "{path}");
    }
    for path in ["/apis/apps/v1/namespaces/a/daemonsets", "/api/v1/namespaces/a/pods/p", "/api/v1/nodes", "/"] {
        assert!(shortening(path, &selection).is_none(), "{path}");
    }
    let one = "/apis/apps/v1/namespaces/a/daemonsets/d";
    assert!(shortening(one, &Selection::default()).is_none(), "it is read whole");
    let post = Request::post("/api/v1/pods").body(()).expect("a request");
    assert!(Shortening::of(&post, &selection).is_none());
}

#[test]
fn a_revision_that_is_read_whole_is_bounded_where_its_namespace_is_not_trusted() {
    let selection = Selection::of_label(vec!["trusted".to_owned()]);
    let object = |namespace: &str, values: usize| {
        let metadata =
            json!({"name": "r", "namespace": namespace, "uid": "u", "labels": {"x": "y"}, "annotations": {"a": "b"}});
        let data = json!({"spec": {"template": vec![json!({"": 0}); values]}});
        json!({"kind": "ControllerRevision", "metadata": metadata, "data": data, "revision": 3})
    };
    let path = |namespace: &str| format!("/apis/apps/v1/namespaces/{namespace}/controllerrevisions");
    let small = object("a", 100);
    let mut one = shortening(&format!("{}/r", path("a")), &selection).expect("it is shortened");
    assert_eq!(serde_json::from_slice::<Value>(&one.feed(small.to_string().as_bytes())).expect("JSON"), small);
    let large = object("a", 100_000);
    let mut one = shortening(&format!("{}/r", path("a")), &selection).expect("it is shortened");
    let read: Value = serde_json::from_slice(&one.feed(large.to_string().as_bytes())).expect("JSON");
    assert!(is_too_large(&read) && read.get("data").is_none());
    let mut event = shortening(&path("a"), &selection).expect("it is shortened");
    let read: Value =
        serde_json::from_slice(&event.feed(json!({"type": "MODIFIED", "object": large}).to_string().as_bytes()))
            .expect("JSON");
    assert!(is_too_large(&read["object"]));
    assert!(shortening(&format!("{}/r", path("trusted")), &selection).is_none());
    assert!(shortening(&format!("{}/r", path("a")), &Selection::default()).is_none(), "of a client that takes all");
}

#[test]
fn of_an_event_the_used_fields_are_read() {
    let event = json!({"metadata": {"name": "e", "namespace": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}, "type": "Warning",
        "reason": "Preempting", "message": "m", "source": {"host": "n"}, "lastTimestamp": "2026-01-01T00:00:01Z"});
    let mut whole = event.clone();
    whole["involvedObject"] = json!({"fieldPath": "x".repeat(1 << 20)});
    whole["metadata"]["annotations"] = json!({"a": "x".repeat(1 << 18)});
    for path in ["/api/v1/events", "/api/v1/namespaces/a/events"] {
        assert_eq!(read(path, &whole), event, "{path}");
        let mut large = event.clone();
        large["message"] = "x".repeat(1 << 20).into();
        assert!(is_too_large(&read(path, &large)));
    }
}

#[test]
fn of_all_daemon_sets_each_is_bounded_where_nobody_selects() {
    let written = json!([{"manager": "m", "subresource": "status", "time": "t", "fieldsV1": {"f:a": {}}}]);
    let mut whole = json!({"metadata": {"name": "d", "namespace": "a", "uid": "u", "generation": 2, "labels": {"x": "y"},
            "annotations": {"x": "y"}, "managedFields": written},
        "spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}},
        "status": {"observedGeneration": 2, "conditions": [{"type": "Released"}], "numberReady": 1}});
    let mut kept = whole.clone();
    kept["metadata"]["managedFields"] = json!([{"manager": "m", "subresource": "status", "time": "t"}]);
    kept["status"].as_object_mut().expect("a map").remove("numberReady");
    let path = "/apis/apps/v1/daemonsets";
    assert_eq!(read(path, &whole), kept);
    whole["spec"]["template"]["spec"]["env"] = json!(vec![json!({"name": "x"}); 100_000]);
    assert!(is_too_large(&read(path, &whole)));
}
