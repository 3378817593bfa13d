//! What counts as the DaemonSet controller's pod.

use super::super::super::boot::Boot;
use super::super::super::runtime_pods::RuntimePod;
use super::*;
use crate::core::health::ContainerFact;
use crate::core::health::Does;
use crate::core::health::PodFact;
use crate::core::knowledge::Absence;
use crate::core::model::Source;
use crate::core::time::at;
use crate::core::validate;
use crate::node::api::ApiFailure;
use crate::node::api::FailureKind;
use crate::node::api::Link;
use crate::node::api::ScopeState;
use serde_json::json;
use std::sync::Arc;

fn daemon_set() -> DaemonSet {
    let template =
        json!({"metadata": {"labels": {"app": "net"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let value = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "net", "namespace": "a", "uid": "d"},
        "spec": {"selector": {"matchLabels": {"app": "net"}}, "template": template}});
    validate::daemon_set(&value, Source::Api).unwrap()
}

fn pod(uid: &str) -> Value {
    let owner = json!({"kind": "DaemonSet", "name": "net", "uid": uid, "controller": true});
    json!({"metadata": {"name": "net-1", "namespace": "a", "uid": "s", "ownerReferences": [owner]}, "status": {}})
}

fn with(pod: Value, pending: bool) -> Snapshot {
    let mut api = Snapshot::default();
    let key = ObjectKey::new("a", "net-1");
    let entry = Entry { version: 1, value: Arc::new(pod) };
    match pending {
        true => drop(api.pending.insert((ObjectKey::new("a", "net"), key), entry)),
        false => drop(api.pods.insert(key, entry)),
    }
    api
}

fn booted(observation: Observation, millis: i64) -> Observation {
    Observation { boot: Boot::new(String::new(), at(millis)), ..observation }
}

fn look(api: &Snapshot) -> Stock {
    let runtime = Knowledge::Absent(Absence::NotConfigured);
    let observation = booted(Observation::of(Some(api.clone()), runtime, 2_000_000), 1_000_000);
    let unrelated_pods = unrelated_pods(observation.snapshot());
    stock(&observation, &unrelated_pods, &daemon_set(), None)
}

#[test]
fn a_pod_of_the_daemon_set_that_is_no_mirror_pod_counts() {
    let here = |ready| {
        Stock::Here(StockPod { name: "net-1".to_owned(), uid: "s".to_owned(), ready, runs: false, unbound: None })
    };
    assert_eq!(look(&with(pod("d"), false)), here(false));
    assert_eq!(look(&with(pod("other"), false)), Stock::Absent);
    let mut mirror = pod("d");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "u"});
    let mut going = pod("d");
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut failed = pod("d");
    failed["status"]["phase"] = json!("Failed");
    for other in [mirror, going, failed] {
        assert_eq!(look(&with(other, false)), Stock::Absent);
    }
    for (time, ready) in
        [("1970-01-01T00:16:39Z", false), ("1970-01-01T00:16:41Z", true), ("1970-01-01T00:33:30Z", false)]
    {
        let mut pod = pod("d");
        pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "lastTransitionTime": time}]);
        assert_eq!(
            look(&with(pod, false)),
            here(ready),
            "readiness of before the boot is the past, and none is of the future"
        );
    }
}

#[test]
fn one_that_cannot_be_bound_counts_where_it_is_of_this_daemon_set() {
    let mut pod_of = pod("d");
    let says = |reason: &str| json!({"conditions": [{"type": "PodScheduled", "message": format!("0/1 nodes are available: {reason}.")}]});
    let why = |pod: &Value, allocatable: Value| {
        let mut api = with(pod.clone(), true);
        api.node = Some(Entry { version: 1, value: Arc::new(json!({"status": {"allocatable": allocatable}})) });
        let Stock::Here(StockPod { unbound: Some(unbound), .. }) = look(&api) else { panic!("it waits") };
        unbound
    };
    pod_of["status"] = says("1 Insufficient a.b/c");
    assert!(why(&pod_of, json!({"a.b/c": "1"})).may_end_with_instance);
    assert!(!why(&pod_of, json!({"a.b/c": "0"})).may_end_with_instance);
    let unknown = why(&pod_of, json!({}));
    assert_eq!((unknown.may_end_with_instance, unknown.message.contains("a.b/c")), (false, true));
    pod_of["status"] = says("1 Too many pods");
    assert!(why(&pod_of, json!({})).may_end_with_instance);
    assert_eq!(look(&with(pod("other"), true)), Stock::Absent);
}

#[test]
fn without_an_api_server_the_runtime_tells() {
    let known =
        HandOver { boot: String::new(), pod: "net-1".to_owned(), uid: "s".to_owned(), done: false, missing: None };
    let judge = |runtime: Knowledge<Arc<Vec<RuntimePod>>>| {
        stock(&Observation::of(None, runtime, 0), &[], &daemon_set(), Some((&known, false)))
    };
    assert!(matches!(judge(Knowledge::Unreadable("hangs".to_owned().into())), Stock::Lost(Evidence::Unknown(_))));
    assert_eq!(judge(Knowledge::Current(Arc::default())), Stock::Lost(Evidence::Gone));
    let with = |containers: Vec<ContainerFact>| {
        Knowledge::Current(Arc::new(vec![RuntimePod {
            fact: PodFact { sandboxes: Vec::new(), containers },
            ..RuntimePod::test("s", true)
        }]))
    };
    assert_eq!(judge(with(Vec::new())), Stock::Lost(Evidence::Gone), "a sandbox without a container does not serve");
    let ended = ContainerFact { name: "c".to_owned(), restarts: 1, does: Does::Ended, made: at(0) };
    assert_eq!(judge(with(vec![ended])), Stock::Lost(Evidence::Running), "one that crashes is the kubelet's business");
}

#[test]
fn an_api_server_that_has_not_listed_the_pods_yet_says_nothing() {
    let mut api = Snapshot::default();
    api.scopes.insert(Scope::DaemonSets, ScopeState { lists: 1, ..ScopeState::default() });
    api.scopes.insert(Scope::Pods, ScopeState::default());
    let mut observation = Observation::of(Some(api), Knowledge::Absent(Absence::NotConfigured), 0);
    let listing = observation.api.as_mut().unwrap();
    Arc::make_mut(&mut listing.snapshot).scopes.insert(Scope::Pods, ScopeState::default());
    assert_eq!(stock(&observation, &[], &daemon_set(), None), Stock::Unlisted);
}

#[test]
fn pods_that_an_api_server_does_not_show_may_have_the_controllers_among_them() {
    let known =
        HandOver { boot: String::new(), pod: "net-1".to_owned(), uid: "s".to_owned(), done: false, missing: None };
    // How often each was listed, and whether its watch fails.
    let judge = |link: Link, of_daemon_sets: (u64, bool), of_pods: (u64, bool), known: Option<&HandOver>| {
        let runtime = Knowledge::Current(Arc::default());
        let mut observation = Observation::of(Some(Snapshot::default()), runtime, 0);
        let api = observation.api.as_mut().unwrap();
        api.link = link;
        for (scope, (lists, fails)) in [(Scope::DaemonSets, of_daemon_sets), (Scope::Pods, of_pods)] {
            let error = fails.then(|| (ApiFailure::new(FailureKind::Server, "429"), at(0)));
            Arc::make_mut(&mut api.snapshot).scopes.insert(scope, ScopeState { lists, error, ..ScopeState::default() });
        }
        stock(&observation, &[], &daemon_set(), known.map(|known| (known, false)))
    };
    let lost = Stock::Lost(Evidence::Gone);
    for pods in [(0, false), (0, true), (1, true)] {
        for known in [None, Some(&known)] {
            assert_eq!(judge(Link::Up, (1, false), pods, known), Stock::Unlisted, "{pods:?}");
            assert_eq!(judge(Link::Connecting, (1, false), pods, known), lost, "no API server: {pods:?}");
        }
    }
    for of_daemon_sets in [(1, true), (0, true), (0, false)] {
        let never_seen = judge(Link::Up, of_daemon_sets, (0, true), None);
        assert_eq!(never_seen, Stock::Unlisted, "one may run that was never seen: {of_daemon_sets:?}");
    }
    assert_eq!(judge(Link::Up, (1, true), (1, true), Some(&known)), lost, "it shows nothing any more");
    assert_eq!(judge(Link::Up, (1, true), (0, true), Some(&known)), lost);
}

#[test]
fn an_api_server_that_takes_connections_and_lists_nothing_is_not_waited_for_without_end() {
    let judge = |steady: Span, lists: u64, kind: Option<FailureKind>| {
        let runtime = Knowledge::Current(Arc::default());
        let mut observation = Observation::of(Some(Snapshot::default()), runtime, 0);
        (observation.steady, observation.api.as_mut().unwrap().link) = (steady, Link::Up);
        let snapshot = Arc::make_mut(&mut observation.api.as_mut().unwrap().snapshot);
        let error = kind.map(|kind| (ApiFailure::new(kind, "no list"), at(0)));
        snapshot.scopes.insert(Scope::DaemonSets, ScopeState { lists, error: error.clone(), ..ScopeState::default() });
        snapshot.scopes.insert(Scope::Pods, ScopeState { error, ..ScopeState::default() });
        stock(&observation, &[], &daemon_set(), None)
    };
    let silent = Some(FailureKind::Timeout);
    assert_eq!(judge(SILENT - Span::from_secs(1), 0, silent), Stock::Unlisted);
    assert_eq!(judge(SILENT, 0, silent), Stock::Lost(Evidence::Gone));
    assert_eq!(judge(SILENT, 1, silent), Stock::Unlisted, "it has answered");
    for answers in [FailureKind::Forbidden, FailureKind::Unauthorized, FailureKind::Server] {
        assert_eq!(
            judge(SILENT, 0, Some(answers)),
            Stock::Unlisted,
            "it may answer the kubelet otherwise: {answers:?}"
        );
    }
    assert_eq!(judge(SILENT, 0, None), Stock::Lost(Evidence::Gone), "its first question still waits");
    assert_eq!(judge(SILENT, 0, Some(FailureKind::Unreachable)), Stock::Unlisted, "the connection is new");
}

#[test]
fn a_selector_is_asked_for_by_its_labels() {
    assert_eq!(labels(&json!({"matchLabels": {"a": "1", "b": "2"}, "matchExpressions": [{}]})), "a=1,b=2");
    assert_eq!(labels(&json!({})), "");
}
