//! The connection, the watches and the requests against a server that misbehaves.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::fake::Fake;
use super::fake::FakeReply;
use super::fake::absent;
use super::fake::is_of_one;
use super::fake::is_watch;
use super::fake::list;
use super::fake::quiet;
use super::fake::status;
use super::fake::write_kubeconfig;
use super::*;
use crate::core::cluster::node_daemons::ClaimWrite;
use crate::core::cluster::node_daemons::Status;
use crate::core::cluster::node_daemons::StatusPatch;
use crate::core::bounds;
use crate::core::cluster::node_daemons::Approval;
use crate::core::cluster::node_daemons::DaemonReport;
use crate::core::cluster::node_daemons::LeaseTerm;
use crate::core::cluster::node_daemons::Precondition;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::MODE_LABEL;
use crate::core::model::Mode;
use crate::core::model::ObjectSource;
use crate::core::model::STARTING_TAINT;
use crate::core::model::TokenRequest;
use crate::core::model::TokenSource;
use crate::core::policy::Policy;

fn options(fake: &Fake) -> ApiOptions {
    with_kubeconfig(fake.kubeconfig())
}

fn with_kubeconfig(kubeconfig: PathBuf) -> ApiOptions {
    ApiOptions {
        kubeconfig,
        node_name: "n1".into(),
        selector: None,
        known: BTreeMap::new(),
        namespaces_bind: false,
        policy: Arc::new(Policy::new(Some(Mode::Static), "", vec!["*".into()]).unwrap()),
        daemon_sets: BTreeSet::new(),
        running: BTreeSet::new(),
    }
}

fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": value},
        "metadata": {"namespace": "default", "name": name, "uid": "u", "resourceVersion": "5",
            "managedFields": [{"manager": "x"}]}})
}

fn daemon_set(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "spec": {"template": {}}, "status": {"numberReady": 1},
        "metadata": {"namespace": "default", "name": name, "uid": "u", "resourceVersion": "5"}})
}

fn reference(name: &str) -> ObjectRef {
    ObjectRef::new(Kind::ConfigMap, "default", name)
}

/// Everything empty, every watch quiet.
fn empty(path: &str) -> FakeReply {
    match path {
        path if is_watch(path) => quiet(),
        path if is_of_one(path) => absent(path),
        _ => list(&[]),
    }
}

/// Waits, on events of the store and the link, until this holds.
async fn until(api: &Api, what: &str, mut holds: impl FnMut(&Api) -> bool) {
    let (mut changed, mut link) = (api.store().changed(), api.connector().link());
    let wait = async {
        while !holds(api) {
            tokio::select! {
                _ = changed.changed() => {}
                _ = link.changed() => {}
                // Counters and recovered watches wake nobody.
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        }
    };
    assert!(timeout(Duration::from_secs(120), wait).await.is_ok(), "{what}: {:?}", api.health());
}

fn error_of(api: &Api, scope: &Scope) -> Option<String> {
    let (failure, _) = api.store().snapshot().scopes.get(scope)?.error.clone()?;
    Some(failure.message)
}

/// Whether all is well, also of what daemons name.
fn is_healthy(api: &Api) -> bool {
    let snapshot = api.store().snapshot();
    api.health().state == LinkHealth::Ok
        && snapshot.is_complete()
        && snapshot.scopes.values().all(|state| state.error.is_none())
}

fn failing(api: &Api) -> Option<String> {
    match api.health().state {
        LinkHealth::Failing { error, .. } => Some(error),
        _ => None,
    }
}

#[tokio::test]
async fn an_object_is_read_watched_and_gone() {
    let (events, receiver) = mpsc::unbounded_channel();
    let mut receiver = Some(receiver);
    let fake = Fake::start(100, move |_, path| match (path.contains("/configmaps"), is_watch(path)) {
        (true, false) => FakeReply::Json(200, config_map("a", "1")),
        (true, true) => FakeReply::Watch(receiver.take().unwrap()),
        _ => empty(path),
    })
    .await;
    let api = Api::start(options(&fake));
    api.set_wanted(&[reference("a")].into());
    until(&api, "listed", |api| api.store().snapshot().is_complete()).await;
    let snapshot = api.store().snapshot();
    let Lookup::Present(value) = snapshot.lookup(&reference("a")) else { panic!("{:?}", snapshot.objects) };
    assert_eq!(value["data"]["k"], "1");
    assert!(value["metadata"].get("managedFields").is_none());
    events.send(json!({"type": "MODIFIED", "object": config_map("a", "2")})).unwrap();
    let value_is = |api: &Api, wanted: &str| match api.store().snapshot().lookup(&reference("a")) {
        Lookup::Present(value) => value["data"]["k"] == wanted,
        _ => false,
    };
    until(&api, "changed", |api| value_is(api, "2")).await;
    events.send(json!({"type": "DELETED", "object": config_map("a", "2")})).unwrap();
    until(&api, "deleted", |api| api.store().snapshot().lookup(&reference("a")) == Lookup::Absent).await;
    until(&api, "healthy", is_healthy).await;
    assert_eq!(api.connector().counters().connections_opened, 1);
    assert_eq!(fake.count("Secret"), 0);
}

#[tokio::test]
async fn a_403_on_one_resource_leaves_the_others_alone_and_ends() {
    let forbidden = || FakeReply::Json(403, status(403, "Forbidden", "configmaps \"a\" is forbidden"));
    let fake = Fake::start(100, move |_, path| match path.contains("/configmaps") {
        true => forbidden(),
        false => empty(path),
    })
    .await;
    let api = Api::start(options(&fake));
    api.set_wanted(&[reference("a")].into());
    let scope = Scope::Object(reference("a"));
    until(&api, "an error", |api| error_of(api, &scope).is_some()).await;
    assert_eq!(error_of(&api, &scope).unwrap(), "configmaps \"a\" is forbidden (403)");
    until(&api, "others", |api| api.store().snapshot().lists(&Scope::Pods) > 0).await;
    assert_eq!(error_of(&api, &Scope::Pods), None);
    assert_eq!(api.store().snapshot().lookup(&reference("a")), Lookup::Unknown);
    // Who writes a DaemonSet decides what it names, and does not make the agent's own link fail.
    until(&api, "connected", |api| api.health().state == LinkHealth::Ok).await;
    let snapshot = api.store().snapshot();
    assert_eq!(snapshot.refused(), [(&reference("a"), "configmaps \"a\" is forbidden (403)")].into());
    fake.answer(|_, path| empty(path));
    until(&api, "recovered", |api| error_of(api, &scope).is_none()).await;
    assert_eq!(api.store().snapshot().lookup(&reference("a")), Lookup::Absent);
}

#[tokio::test]
async fn what_has_no_room_is_not_watched_and_is_read_again_after_a_while() {
    let keys: serde_json::Map<String, Value> = (0..140_000).map(|number| (number.to_string(), json!(""))).collect();
    let mut large = config_map("a", "1");
    large["data"] = Value::Object(keys);
    let large = std::cell::RefCell::new(large);
    let fake = Fake::start(100, move |_, path| match path.contains("/configmaps") && !is_watch(path) {
        true => FakeReply::Json(200, large.replace(config_map("a", "2"))),
        false => empty(path),
    })
    .await;
    let api = Api::start(options(&fake));
    api.set_wanted(&[reference("a")].into());
    let scope = Scope::Object(reference("a"));
    until(&api, "no room", |api| api.store().lacks_room(&scope)).await;
    until(&api, "not watched", |api| api.health().state == LinkHealth::Ok && api.connector().counters().streams == 4)
        .await;
    tokio::time::pause();
    let start = tokio::time::Instant::now();
    until(&api, "read", |api| matches!(api.store().snapshot().lookup(&reference("a")), Lookup::Present(_))).await;
    assert!((20..=100).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_403_on_what_the_agent_itself_needs_is_a_link_that_fails() {
    let forbidden = || FakeReply::Json(403, status(403, "Forbidden", "pods is forbidden"));
    let fake = Fake::start(100, move |_, path| match path.contains("/pods") {
        true => forbidden(),
        false => empty(path),
    })
    .await;
    let api = Api::start(options(&fake));
    until(&api, "an error", |api| failing(api).is_some_and(|error| error.contains("pods of this node"))).await;
}

#[tokio::test]
async fn a_410_asks_for_the_state_and_loses_nothing() {
    let mut watches = 0;
    let fake = Fake::start(100, move |_, path| match (path.contains("/configmaps"), is_watch(path)) {
        (true, false) => FakeReply::Json(200, config_map("a", "1")),
        (true, true) => {
            watches += 1;
            let (events, receiver) = mpsc::unbounded_channel();
            let mut end = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"resourceVersion": "10"}});
            end["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
            let added = json!({"type": "ADDED", "object": config_map("a", &watches.to_string())});
            events.send(added).unwrap();
            events.send(json!({"type": "BOOKMARK", "object": end})).unwrap();
            if watches < 3 {
                let gone = status(410, "Expired", "too old resource version");
                events.send(json!({"type": "ERROR", "object": gone})).unwrap();
            } else {
                std::mem::forget(events);
            }
            FakeReply::Watch(receiver)
        }
        _ => empty(path),
    })
    .await;
    let api = Api::start(options(&fake));
    api.set_wanted(&[reference("a")].into());
    let scope = Scope::Object(reference("a"));
    until(&api, "the third watch", |api| {
        let snapshot = api.store().snapshot();
        assert!(snapshot.lists(&scope) == 0 || snapshot.objects.contains_key(&reference("a")));
        snapshot.objects.get(&reference("a")).is_some_and(|entry| entry.value["data"]["k"] == "3")
    })
    .await;
    assert_eq!((error_of(&api, &scope), api.store().lists(&scope)), (None, 1));
}

#[tokio::test]
async fn a_service_account_is_watched_only_until_it_is_there() {
    let account = |name: &str| json!({"metadata": {"namespace": "default", "name": name, "resourceVersion": "5"}});
    let (events, receiver) = mpsc::unbounded_channel();
    let mut receiver = Some(receiver);
    let fake = Fake::start(100, move |_, path| match (path.contains("/serviceaccounts"), is_watch(path)) {
        (true, false) if path.contains("/there") => FakeReply::Json(200, account("there")),
        (true, true) if path.contains("later") => FakeReply::Watch(receiver.take().unwrap()),
        _ => empty(path),
    })
    .await;
    let api = Api::start(options(&fake));
    let named = |name: &str| ObjectRef::new(Kind::ServiceAccount, "default", name);
    api.set_wanted(&[named("there"), named("later")].into());
    until(&api, "healthy", |api| is_healthy(api) && api.connector().counters().streams == 5).await;
    assert_eq!(api.store().snapshot().lookup(&named("later")), Lookup::Absent);
    events.send(json!({"type": "ADDED", "object": account("later")})).unwrap();
    until(&api, "not watched", |api| api.connector().counters().streams == 4).await;
    let snapshot = api.store().snapshot();
    assert!(["there", "later"].iter().all(|name| matches!(snapshot.lookup(&named(name)), Lookup::Present(_))));
    assert_eq!(fake.requests().iter().filter(|r| r.contains("/serviceaccounts") && is_watch(r)).count(), 1);
}

#[tokio::test]
async fn the_cache_is_asked_once_and_never_for_what_is_remembered() {
    let namespace = |name: &str| json!({"metadata": {"name": name, "uid": "u", "resourceVersion": "5"}});
    let mut watches = 0;
    let fake = Fake::start(100, move |_, path| match (path.contains("/namespaces"), is_watch(path)) {
        (true, false) => FakeReply::Json(200, namespace(if path.contains("new") { "new" } else { "old" })),
        (true, true) if path.contains("new") && watches == 0 => {
            watches += 1;
            FakeReply::Json(410, status(410, "Expired", "too old resource version"))
        }
        (true, true) => quiet(),
        _ => empty(path),
    })
    .await;
    let named = |name: &str| ObjectRef::new(Kind::Namespace, "", name);
    let api = Api::start(ApiOptions { known: [(named("old"), Weak::new())].into(), ..options(&fake) });
    api.set_wanted(&[named("old"), named("new")].into());
    until(&api, "a second list", |api| api.store().snapshot().lists(&Scope::Object(named("new"))) == 2).await;
    let lists = |name: &str| -> Vec<bool> {
        let requests = fake.requests();
        let of_it = requests.iter().filter(|r| r.contains(&format!("/namespaces/{name}")));
        of_it.map(|request| request.ends_with("resourceVersion=0")).collect()
    };
    assert_eq!((lists("new"), lists("old")), (vec![true, false], vec![false]));
}

#[tokio::test]
async fn a_list_that_breaks_off_in_its_second_page_removes_nothing() {
    let page = |items: &[Value], next: &str| {
        FakeReply::Json(200, json!({"metadata": {"resourceVersion": "9", "continue": next}, "items": items}))
    };
    let mut round = 0;
    let fake = Fake::start(100, move |_, path| match (path.contains("/daemonsets"), is_watch(path)) {
        (true, true) => FakeReply::Json(410, status(410, "Expired", "old")),
        (true, false) if path.contains("continue=") => {
            FakeReply::Json(500, status(500, "InternalError", "etcd is away"))
        }
        (true, false) => {
            round += 1;
            if round == 1 { list(&[daemon_set("a"), daemon_set("b")]) } else { page(&[daemon_set("a")], "more") }
        }
        _ => empty(path),
    })
    .await;
    let api = Api::start(options(&fake));
    until(&api, "the second list fails", |api| {
        error_of(api, &Scope::DaemonSets).is_some_and(|error| error.contains("etcd is away"))
    })
    .await;
    let snapshot = api.store().snapshot();
    assert_eq!(snapshot.daemon_sets.len(), 2);
    assert_eq!(snapshot.lists(&Scope::DaemonSets), 1);
}

#[tokio::test]
async fn watches_that_end_at_once_are_not_asked_for_in_a_loop() {
    let fake = Fake::start(100, |_, path| match is_watch(path) {
        true => FakeReply::Watch(mpsc::unbounded_channel().1),
        false => list(&[]),
    })
    .await;
    let api = Api::start(options(&fake));
    let error = |api: &Api| error_of(api, &Scope::Node).is_some_and(|error| error.contains("ended the watch at once"));
    until(&api, "reported", error).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(fake.count("/nodes") <= 4, "{:?}", fake.requests());
}

#[tokio::test]
async fn more_watches_than_streams_open_more_connections() {
    let fake = Fake::start(20, |_, path| empty(path)).await;
    let api = Api::start(options(&fake));
    let wanted: BTreeSet<ObjectRef> = (0..30).map(|number| reference(&format!("c{number}"))).collect();
    api.set_wanted(&wanted);
    let all = |api: &Api| api.connector().counters().requests == 68 && api.connector().counters().streams == 34;
    until(&api, "a GET or a list, and a watch each", all).await;
    let counters = api.connector().counters();
    assert_eq!(counters.connections, 3, "12 watches each: 8 streams stay free for requests");
    api.set_wanted(&BTreeSet::new());
    until(&api, "spare connections closed", |api| api.connector().counters().connections == 1).await;
    assert!(api.store().snapshot().objects.is_empty());
}

#[tokio::test]
async fn a_server_that_comes_back_is_found_and_watches_go_on_without_a_list() {
    let mut fake = Fake::start(100, |_, path| match path.contains("/configmaps") && !is_watch(path) {
        true => FakeReply::Json(200, config_map("a", "1")),
        false => empty(path),
    })
    .await;
    let api = Api::start(options(&fake));
    api.set_wanted(&[reference("a")].into());
    until(&api, "up", is_healthy).await;
    fake.stop();
    until(&api, "down", |api| failing(api).is_some_and(|error| error.contains("connection refused"))).await;
    assert!(matches!(api.store().snapshot().lookup(&reference("a")), Lookup::Present(_)));
    assert!(matches!(api.get_daemon_set(&ObjectKey::new("d", "x")).await, GetResult::Error(_)));
    fake.restart().await;
    until(&api, "up again", |api| is_healthy(api) && api.connector().counters().streams == 5).await;
    assert_eq!(api.store().snapshot().lists(&Scope::Object(reference("a"))), 1);
    assert_eq!(api.connector().counters().connections_opened, 2);
}

#[tokio::test]
async fn a_server_that_answers_nothing_stops_nobody() {
    let fake = Fake::start(100, |_, _| FakeReply::NoAnswer).await;
    let api = Api::start(options(&fake));
    until(&api, "connected", |api| *api.connector().link().borrow() == Link::Up).await;
    tokio::time::pause();
    let asked = tokio::time::Instant::now();
    let GetResult::Error(failure) = api.get_daemon_set(&ObjectKey::new("d", "x")).await else { panic!("no error") };
    assert_eq!(failure.kind, FailureKind::Timeout);
    assert_eq!(asked.elapsed().as_secs(), 30);
    until(&api, "said", |api| error_of(api, &Scope::Node).is_some_and(|error| error.contains("within 30 s"))).await;
}

#[tokio::test]
async fn a_server_that_takes_the_connection_and_is_silent_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("k");
    let address = listener.local_addr().unwrap();
    write_kubeconfig(&kubeconfig, &format!("https://{address}"), "token: abc");
    let accepted = tokio::spawn(async move { listener.accept().await.unwrap() });
    let api = Api::start(with_kubeconfig(kubeconfig));
    let _held = accepted.await.unwrap();
    tokio::time::pause();
    until(&api, "said", |api| failing(api).is_some_and(|error| error.contains("no answer within 10 s"))).await;
}

#[tokio::test]
async fn a_connection_that_falls_silent_is_noticed_by_its_pings() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("k");
    let address = listener.local_addr().unwrap();
    write_kubeconfig(&kubeconfig, &format!("http://{address}"), "token: abc");
    let api = Api::start(with_kubeconfig(kubeconfig));
    let _held = listener.accept().await.unwrap();
    until(&api, "connected", |api| *api.connector().link().borrow() == Link::Up).await;
    drop(listener);
    tokio::time::pause();
    let start = tokio::time::Instant::now();
    until(&api, "said", |api| failing(api).is_some_and(|error| error.contains("left a ping unanswered"))).await;
    // The clock stood still only after the connection was up.
    assert!((35..=45).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[tokio::test]
async fn only_the_servers_word_on_this_object_is_not_found() {
    let mut not_found = status(404, "NotFound", "daemonsets.apps \"x\" not found");
    let key = ObjectKey::new("d", "x");
    let fake = Fake::start(100, |_, path| empty(path)).await;
    let api = Api::start(options(&fake));
    let answers = [
        (404, not_found.clone(), false),
        (404, json!({"kind": "x"}), false),
        (403, status(403, "Forbidden", "no"), false),
    ];
    for (code, body, _) in answers {
        fake.answer(move |_, path| match path.ends_with("/daemonsets/x") {
            true => FakeReply::Json(code, body.clone()),
            false => empty(path),
        });
        assert!(matches!(api.get_daemon_set(&key).await, GetResult::Error(_)), "{code}");
    }
    fake.answer(|_, _| FakeReply::Text(404, "404 page not found\n"));
    assert!(matches!(api.get_daemon_set(&key).await, GetResult::Error(_)));
    not_found["details"] = json!({"kind": "daemonsets", "group": "apps", "name": "x"});
    fake.answer(move |_, path| match path.ends_with("/daemonsets/x") {
        true => FakeReply::Json(404, not_found.clone()),
        false => FakeReply::Json(200, json!({"metadata": {"name": "kube-system", "uid": "cluster"}})),
    });
    assert_eq!(api.get_daemon_set(&key).await, GetResult::NotFound);
    assert_eq!(api.cluster_uid().await, Ok("cluster".into()));
}

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
            "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}})
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
    assert_eq!(*api.store().snapshot().pending[&key].value, json!({"metadata": metadata}));

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

#[tokio::test]
async fn a_fresh_list_goes_over_a_new_connection() {
    let fake = Fake::start(100, |_, path| match path.contains("/daemonsets") && !is_watch(path) {
        true => list(&[daemon_set("a")]),
        false => empty(path),
    })
    .await;
    let api = Api::start(options(&fake));
    until(&api, "listed", is_healthy).await;
    fake.answer(|_, path| empty(path));
    let before = api.relist_fresh();
    assert_eq!(before, 1);
    let key = ObjectKey::new("default", "a");
    assert!(matches!(api.store().snapshot().presence(&key), Presence::Present(_)));
    until(&api, "again", |api| api.store().lists(&Scope::DaemonSets) > before).await;
    assert_eq!(api.store().snapshot().presence(&key), Presence::ListedAbsent { list: 2 });
    assert_eq!(api.connector().counters().connections_opened, 2);
}

#[tokio::test]
async fn a_kubeconfig_may_come_late_and_turn_bad() {
    let fake = Fake::start(100, |_, path| empty(path)).await;
    let good = std::fs::read(fake.kubeconfig()).unwrap();
    std::fs::remove_file(fake.kubeconfig()).unwrap();
    let api = Api::start(options(&fake));
    until(&api, "said", |api| failing(api).is_some_and(|error| error.contains("cannot be read"))).await;
    std::fs::write(fake.kubeconfig(), good).unwrap();
    until(&api, "up", is_healthy).await;
    std::fs::write(fake.kubeconfig(), "nonsense").unwrap();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(6)).await;
    tokio::time::resume();
    let _ = api.cluster_uid().await;
    let health = api.health();
    assert!(health.kubeconfig_error.is_some(), "{health:?}");
    assert_eq!(health.state, LinkHealth::Ok, "the last good one is in force");
}

#[tokio::test]
async fn a_token_is_requested_for_this_node_and_wakes_the_loop() {
    let node = json!({"metadata": {"name": "n1", "uid": "node-uid", "resourceVersion": "3"}});
    let fake = Fake::start(100, move |method, path| match (method, path.contains("/nodes"), is_watch(path)) {
        ("POST", ..) => FakeReply::Json(
            201,
            json!({"spec": {"expirationSeconds": 3600},
                "status": {"token": "issued", "expirationTimestamp": "2126-01-01T00:00:00Z"}}),
        ),
        (_, true, false) => list(std::slice::from_ref(&node)),
        _ => empty(path),
    })
    .await;
    let api = Api::start(options(&fake));
    let request =
        TokenRequest { service_account: ObjectKey::new("ns", "sa"), audience: "a".into(), expiration_seconds: 3600 };
    api.tokens().set_wanted(&[request.clone()].into());
    until(&api, "issued", |api| api.tokens().snapshot().token(&request).is_some()).await;
    assert_eq!(api.tokens().snapshot().token(&request), Some("issued"));
    assert_eq!(fake.count("POST /api/v1/namespaces/ns/serviceaccounts/sa/token"), 1);
    assert_eq!(api.tokens().export("b")[0].node_uid, "node-uid");
}

#[tokio::test]
async fn events_are_sent_once_there_is_a_connection() {
    let mut fake = Fake::start(100, |method, path| match method {
        "POST" => FakeReply::Json(201, json!({})),
        _ => empty(path),
    })
    .await;
    fake.stop();
    let api = Api::start(options(&fake));
    for note in ["one", "two", "two"] {
        api.events().record(AgentEvent {
            regarding: Regarding::DaemonSet { cause: note.into() },
            daemon_set: ObjectKey::new("ns", "d"),
            uid: "u".into(),
            kind: EventKind::Warning,
            reason: "Refused".into(),
            action: "Render".into(),
            note: note.into(),
        });
    }
    until(&api, "down", |api| failing(api).is_some()).await;
    fake.restart().await;
    until(&api, "sent", |_| fake.count("POST /apis/events.k8s.io/v1/namespaces/ns/events") == 2).await;
    assert_eq!(api.events().dropped(), 0);
}

#[tokio::test]
async fn a_status_is_written_whole_or_by_its_changes_and_each_refusal_has_its_kind() {
    let of = Precondition { uid: "u", resource_version: None };
    let daemons = (0..9).map(|n| DaemonReport { name: n.to_string(), ..DaemonReport::default() }).collect();
    let before = Status { daemons, ..Status::default() };
    let mut after = before.clone();
    after.daemons[3].message = "news".into();
    let fake = Fake::start(100, |_, path| empty(path)).await;
    let api = Api::start(options(&fake));
    until(&api, "healthy", is_healthy).await;
    for (code, expected) in [(409, FailureKind::Conflict), (422, FailureKind::Invalid)] {
        fake.answer(move |method, path| match method {
            "PATCH" => FakeReply::Json(code, status(code, "", "no")),
            _ => empty(path),
        });
        for patch in [StatusPatch::whole(&of, &after), StatusPatch::changes(&of, &before, &after)] {
            let refused = api.write_status("n1", patch, None).await;
            assert!(matches!(&refused, Err(NotWritten::Failed(why)) if why.kind == expected), "{refused:?}");
        }
    }
    let path = "PATCH /apis/daemonlet.dev/v1beta1/nodedaemons/n1/status?";
    assert_eq!(fake.count(&format!("{path} application/merge-patch+json")), 2, "{:?}", fake.requests());
    assert_eq!(fake.count(&format!("{path} application/json-patch+json")), 2);
}

#[tokio::test]
async fn a_claim_follows_an_object_that_others_write_all_the_time() {
    let term = LeaseTerm { namespace: "s".into(), name: "l".into(), uid: "lease".into(), transitions: 3 };
    let approval = Approval {
        namespace: "ns".into(),
        name: "net".into(),
        uid: "u-net".into(),
        revision: "r2".into(),
        overlays: String::new(),
        approved_at: String::new(),
        lease: Some(term),
        when: None,
    };
    let daemon = |replacing: Option<&str>| {
        let replacing = replacing.map(str::to_owned);
        DaemonReport { namespace: "ns".into(), name: "net".into(), replacing, ..DaemonReport::default() }
    };
    let status_of = |daemon| Status { daemons: vec![daemon], ..Status::default() };
    let claim =
        ClaimWrite { uid: "u".into(), status: status_of(daemon(Some("r2"))), approvals: vec![approval.clone()] };
    let of = Precondition { uid: "u", resource_version: Some("1") };
    let patch = || StatusPatch::whole(&of, &claim.status);
    let fake = Fake::start(100, |_, path| empty(path)).await;
    let api = Api::start(options(&fake));
    until(&api, "healthy", is_healthy).await;

    // `conflicts`: how often another was faster; `stands`: whether the approval is still there then.
    let at_server = move |conflicts: u32, holder: &'static str, stands: bool| {
        let (mut version, approval) = (1, approval.clone());
        move |method: &str, path: &str| match method {
            "PATCH" if version <= conflicts => {
                version += 1;
                FakeReply::Json(409, status(409, "Conflict", "modified"))
            }
            "PATCH" => FakeReply::Json(200, json!({"kind": "NodeDaemons", "metadata": {"name": "n1"}})),
            _ if path.contains("/leases/") => FakeReply::Json(
                200,
                json!({"metadata": {"name": "l", "uid": "lease"}, "spec": {"holderIdentity": holder, "leaseTransitions": 3}}),
            ),
            _ if path.contains("/nodedaemons/n1") => {
                let approvals = if stands { json!([approval]) } else { json!([]) };
                let metadata = json!({"name": "n1", "uid": "u", "resourceVersion": version.to_string()});
                FakeReply::Json(200, json!({"metadata": metadata, "spec": {"approvals": approvals}, "status": {}}))
            }
            _ => empty(path),
        }
    };
    fake.answer(at_server(0, "one", true));
    assert_eq!(api.write_status("n1", patch(), Some(&claim)).await, Ok(None));
    fake.answer(at_server(5, "one", true));
    assert_eq!(api.write_status("n1", patch(), Some(&claim)).await, Ok(Some(claim.status.clone())));
    fake.answer(at_server(5, "one", false));
    let withdrawn = api.write_status("n1", patch(), Some(&claim)).await;
    assert!(matches!(&withdrawn, Err(NotWritten::Failed(why)) if why.kind == FailureKind::Conflict), "{withdrawn:?}");
    fake.answer(at_server(1, "", true));
    let given_back = api.write_status("n1", patch(), Some(&claim)).await;
    assert!(matches!(&given_back, Err(NotWritten::NotHeld { failure: None, .. })), "{given_back:?}");
    fake.answer(at_server(1000, "one", true));
    let before = fake.count("PATCH");
    let gave_up = api.write_status("n1", patch(), Some(&claim)).await;
    assert!(matches!(&gave_up, Err(NotWritten::Failed(_))), "{gave_up:?}");
    assert_eq!(fake.count("PATCH") - before, 9, "what is never quick enough is decided anew");
}

#[tokio::test]
async fn a_taint_that_is_set_while_it_is_being_taken_away_is_there_in_the_end() {
    let node = |taints: Value| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "u"}, "spec": {"taints": taints}});
    let is_tainted = Arc::new(AtomicBool::new(true));
    let at_server = Arc::clone(&is_tainted);
    let refused = "ValidatingAdmissionPolicy 'daemonlet-agent-nodes' with binding 'b' denied request: no";
    let fake = Fake::start(100, move |method, path| match method {
        "PATCH" if path.contains("dryRun=All") => FakeReply::Json(422, status(422, "Invalid", refused)),
        // What is patched is what is not so yet.
        "PATCH" => {
            at_server.fetch_xor(true, Ordering::SeqCst);
            FakeReply::Json(200, node(json!([])))
        }
        _ if path.contains("/nodes/n1") => FakeReply::Json(
            200,
            node(match at_server.load(Ordering::SeqCst) {
                true => json!([{"key": STARTING_TAINT, "effect": "NoSchedule"}]),
                false => json!([]),
            }),
        ),
        _ => empty(path),
    })
    .await;
    let api = Api::start(options(&fake));
    until(&api, "connected", |api| *api.connector().link().borrow() == Link::Up).await;
    let change = |change| api.change_taint("n1", Some("u"), change);
    let results = tokio::join!(change(TaintChange::Remove), change(TaintChange::Set));
    assert_eq!(results, (NodeWriteResult::Done, NodeWriteResult::Done));
    assert!(is_tainted.load(Ordering::SeqCst));
}

#[tokio::test]
async fn what_waits_to_be_sent_is_sent_before_the_end() {
    let fake = Fake::start(100, |method, path| match method {
        "POST" => FakeReply::Json(201, json!({})),
        _ => empty(path),
    })
    .await;
    let api = Api::start(options(&fake));
    let sent = || fake.count("POST /apis/events.k8s.io/v1/namespaces/ns/events");
    until(&api, "connected", |api| *api.connector().link().borrow() == Link::Up).await;
    for note in ["one", "two"] {
        api.events().record(AgentEvent {
            regarding: Regarding::DaemonSet { cause: note.into() },
            daemon_set: ObjectKey::new("ns", "d"),
            uid: "u".into(),
            kind: EventKind::Normal,
            reason: "Removed".into(),
            action: "Remove".into(),
            note: note.into(),
        });
    }
    assert_eq!(sent(), 0, "they wait for others");
    // Shorter than the shortest wait for others.
    api.flush_events(Duration::from_secs(3)).await;
    assert_eq!(sent(), 2);
    api.flush_events(Duration::from_secs(60)).await;
    assert_eq!(sent(), 2, "nothing is left, and nobody waits");
}

/// A list of nothing at this resource version.
fn list_at(version: u32) -> FakeReply {
    let metadata = json!({"resourceVersion": version.to_string()});
    FakeReply::Json(200, json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": []}))
}

#[tokio::test]
async fn a_history_that_went_back_is_found_when_watches_are_resumed() {
    let mut fake = Fake::start(100, |_, path| empty(path)).await;
    let api = Api::start(options(&fake));
    until(&api, "healthy", is_healthy).await;
    until(&api, "known", |api| api.store().snapshot().etcd_rollback_detection.is_known).await;
    assert_eq!(
        api.store().snapshot().etcd_rollback_detection,
        EtcdRollbackDetection { reached: 10, at_list: 0, is_known: true, rollback: None }
    );
    // Cut off and resumed where it was: one question a kind, and nothing is listed.
    fake.stop();
    until(&api, "cut off", |api| *api.connector().link().borrow() != Link::Up).await;
    fake.restart().await;
    let questions =
        |fake: &Fake| fake.count("limit=1&") + fake.requests().iter().filter(|r| r.ends_with("limit=1")).count();
    until(&api, "asked", |_| questions(&fake) >= 4).await;
    assert_eq!((questions(&fake), api.store().lists(&Scope::DaemonSets)), (4, 1), "{:?}", fake.requests());
    // And where it is younger than what was seen.
    fake.stop();
    until(&api, "cut off", |api| *api.connector().link().borrow() != Link::Up).await;
    fake.answer(|_, path| if is_watch(path) { quiet() } else { list_at(7) });
    fake.restart().await;
    until(&api, "listed anew", |api| {
        [Scope::DaemonSets, Scope::Node, Scope::Pods].iter().all(|scope| api.store().lists(scope) == 2)
    })
    .await;
    until(&api, "known", |api| api.store().snapshot().etcd_rollback_detection.is_known).await;
    assert_eq!(
        api.store().snapshot().etcd_rollback_detection.rollback,
        Some(EtcdRollback { number: 1, from: 10, to: 7 })
    );
    assert_eq!(api.connector().counters().connections_opened, 4, "the lists are of a connection of their own");
}
