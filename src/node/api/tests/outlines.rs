//! What is read only in part: objects that are not selected, long lists, pods that wait.

use crate::core::bounds;
use crate::core::model::MODE_LABEL;

use super::*;

#[tokio::test]
async fn what_is_not_selected_is_an_outline_until_it_is_asked_for() {
    let key = |name: &str| ObjectKey::new("default", name);
    let labelled = |name: &str, mode: Option<&str>| {
        let mut daemon_set = daemon_set(name);
        daemon_set["metadata"]["labels"] = mode.map_or_else(|| json!({}), |mode| json!({MODE_LABEL: mode}));
        daemon_set
    };
    let (events, watched) = mpsc::unbounded_channel();
    let mut watched = Some(watched);
    let fake = Fake::start(100, move |_, path| match (path.contains("/daemonsets"), is_watch(path)) {
        (true, true) => watched.take().map_or_else(quiet, FakeReply::Watch),
        (true, false) if path.ends_with("/daemonsets/asked") => FakeReply::Json(200, labelled("asked", None)),
        (true, false) => list(
            &["ours", "foreign", "asked", "known"].map(|name| labelled(name, (name == "ours").then_some("static"))),
        ),
        _ => empty(path),
    })
    .await;
    let policy = Arc::new(Policy::new(None, "", vec!["default".into()]).unwrap());
    let api = Api::start(ApiOptions { policy, daemon_sets: [key("known")].into(), ..options(&fake) });
    until(&api, "listed", |api| api.store().lists(&Scope::DaemonSets) > 0).await;
    let is_whole = |api: &Api, name: &str| matches!(api.store().snapshot().presence(&key(name)), Presence::Present(_));
    let unread = |api: &Api, name: &str| api.store().snapshot().is_unread(&key(name));
    assert!(is_whole(&api, "ours") && is_whole(&api, "known"));
    assert!(unread(&api, "foreign") && unread(&api, "asked"));
    api.read_daemon_sets(&[key("asked")].into());
    until(&api, "read", |api| is_whole(api, "asked")).await;
    let modified = |daemon_set: Value| json!({"type": "MODIFIED", "object": daemon_set});
    // What is whole stays whole without its label; what gets one becomes whole.
    events.send(modified(labelled("ours", None))).unwrap();
    events.send(modified(labelled("foreign", Some("static")))).unwrap();
    until(&api, "labelled", |api| is_whole(api, "foreign")).await;
    assert!(is_whole(&api, "ours") && is_whole(&api, "asked"));
}

#[tokio::test]
async fn a_list_is_read_in_small_pages_and_the_spec_of_a_tenant_up_to_its_bound() {
    let large = |namespace: &str| {
        let mut daemon_set = daemon_set("large");
        daemon_set["metadata"]["namespace"] = json!(namespace);
        let container = json!({"name": "c", "image": "i", "args": ["x".repeat(1 << 20)]});
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}});
        daemon_set["spec"] = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
        daemon_set
    };
    let fake = Fake::start(100, move |_, path| match path.contains("/daemonsets") && !is_watch(path) {
        true => list(&["default", "kube-system"].map(large)),
        false => empty(path),
    })
    .await;
    let api = Api::start(options(&fake));
    until(&api, "listed", |api| api.store().lists(&Scope::DaemonSets) > 0).await;
    let snapshot = api.store().snapshot();
    let Err(Unusable::TooLarge(tenants)) = &snapshot.daemon_sets[&ObjectKey::new("default", "large")].converted else {
        panic!("{snapshot:?}")
    };
    assert_eq!(tenants.errors[0].to_string(), "spec: has more than 524288 bytes as JSON");
    assert!(snapshot.daemon_sets[&ObjectKey::new("kube-system", "large")].converted.is_ok(), "it is trusted");
    let is_list = |request: &&String| request.contains("/daemonsets?") && !request.contains("watch");
    let requests = fake.requests();
    assert!(requests.iter().find(is_list).is_some_and(|request| request.contains("limit=20")), "{requests:?}");
}

#[tokio::test]
async fn of_the_pods_that_wait_for_this_node_a_few_are_kept_and_no_more_of_each_than_whose_it_is() {
    let pod = |name: &str, node: &str, more: usize| {
        let owner = |kind: &str, uid: &str| json!({"apiVersion": "apps/v1", "kind": kind, "name": "net", "uid": uid, "controller": kind == "DaemonSet"});
        let mut owners = vec![owner("ConfigMap", "c"); more];
        owners.push(owner("DaemonSet", "u"));
        let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
        let affinity =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
        json!({"metadata": {"namespace": "default", "name": name, "uid": "p", "resourceVersion": "11", "ownerReferences": owners}, "spec": {"affinity": affinity},
            "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}]}})
    };
    let mut pods: Vec<Value> = (0..30).map(|number| pod(&format!("p{number:02}"), "n1", 5)).collect();
    pods.insert(0, pod("large", "n1", 2_000));
    pods.insert(0, pod("elsewhere", "n2", 1));
    let (events, receiver) = mpsc::unbounded_channel();
    let mut receiver = Some(receiver);
    let fake = Fake::start(100, move |_, path| match (path.contains("/namespaces/default/pods"), is_watch(path)) {
        (true, false) => list(&pods),
        (true, true) => FakeReply::Watch(receiver.take().expect("one watch")),
        _ => empty(path),
    })
    .await;
    let api = Api::start(options(&fake));
    let daemon = ObjectKey::new("default", "net");
    api.set_pending(&BTreeMap::from([(daemon.clone(), "a=b".to_owned())]));
    until(&api, "listed", |api| api.store().lists(&Scope::Pending(daemon.clone())) > 0).await;
    let kept =
        |api: &Api| -> Vec<String> { api.store().snapshot().pending.keys().map(|(_, pod)| pod.name.clone()).collect() };
    let first: Vec<String> = (0..bounds::PENDING_PODS).map(|number| format!("p{number:02}")).collect();
    assert_eq!(kept(&api), first);
    let owner = json!({"kind": "DaemonSet", "name": "net", "uid": "u", "controller": true});
    let metadata = json!({"namespace": "default", "name": "p00", "uid": "p", "ownerReferences": [owner]});
    let key = (daemon.clone(), ObjectKey::new("default", "p00"));
    let status = json!({"conditions": [{"type": "PodScheduled", "message": "m"}]});
    assert_eq!(*api.store().snapshot().pending[&key].value, json!({"metadata": metadata, "status": status}));

    let modified = |object: Value| events.send(json!({"type": "MODIFIED", "object": object})).unwrap();
    let mut going = pod("p00", "n1", 1);
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    modified(going);
    until(&api, "one that goes is none of them", |api| kept(api) == first[1..]).await;
    modified(pod("p29", "n1", 1));
    until(&api, "another has its place", |api| kept(api).last().is_some_and(|name| name == "p29")).await;
    modified(pod("p28", "n1", 1));
    let mut released = pod("p29", "n1", 1);
    released["metadata"]["ownerReferences"] = json!([]);
    modified(released);
    until(&api, "one without its owner is none of them", |api| kept(api) == first[1..]).await;
}
