//! The connection, the watches and the requests against a server that misbehaves.

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
use super::*;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::Mode;
use crate::core::model::ObjectSource;
use crate::core::model::TokenSource;
use crate::core::policy::Policy;

mod connections;
mod etcd_rollback;
mod outlines;
mod writes;

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
                // Counters and recovered watches wake no pass.
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
