use serde_json::json;

use super::*;
use crate::core::bounds;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::ObjectRef;
use crate::core::model::ObjectSource;
use crate::core::policy::Covered;
use crate::core::policy::Policy;
use crate::node::api::error::ApiFailure;
use crate::node::api::error::FailureKind;

fn daemon_set(name: &str, version: &str, image: &str) -> Value {
    json!({"metadata": {"namespace": "kube-system", "name": name, "uid": format!("uid-{name}"), "resourceVersion": version},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": image}]}}}})
}

fn seen(names: &[&str]) -> BTreeSet<ObjectKey> {
    names.iter().map(|name| ObjectKey::new("kube-system", *name)).collect()
}

#[test]
fn nothing_is_absent_before_a_complete_list() {
    let store = Store::default();
    let key = ObjectKey::new("kube-system", "a");
    store.open(&Scope::DaemonSets);
    assert_eq!(store.snapshot().presence(&key), Presence::Unknown);
    store.complete(&Scope::DaemonSets, &seen(&[]));
    assert_eq!(store.snapshot().presence(&key), Presence::ListedAbsent { list: 1 });
}

#[test]
fn a_relist_removes_only_when_it_is_complete() {
    let store = Store::default();
    for name in ["a", "b"] {
        store.apply(&Scope::DaemonSets, daemon_set(name, "1", "i"));
    }
    store.complete(&Scope::DaemonSets, &seen(&["a", "b"]));
    store.apply(&Scope::DaemonSets, daemon_set("a", "1", "i"));
    assert!(store.failed(&Scope::DaemonSets, ApiFailure::new(FailureKind::Forbidden, "no")));
    assert_eq!(store.snapshot().daemon_sets.len(), 2);
    store.complete(&Scope::DaemonSets, &seen(&["a"]));
    let snapshot = store.snapshot();
    assert_eq!(snapshot.presence(&ObjectKey::new("kube-system", "b")), Presence::ListedAbsent { list: 2 });
    assert!(snapshot.scopes[&Scope::DaemonSets].error.is_some(), "shown until the watch works");
}

#[test]
fn of_what_is_not_selected_it_is_known_that_it_exists() {
    let store = Store::default();
    let key = ObjectKey::new("kube-system", "a");
    let outline = |version: &str| {
        let mut outline = daemon_set("a", version, "i");
        outline["spec"] = Value::Null;
        outline
    };
    let presence = || store.snapshot().presence(&key);
    store.apply(&Scope::DaemonSets, outline("3"));
    store.complete(&Scope::DaemonSets, &seen(&["a"]));
    assert_eq!(presence(), Presence::NotSelected);
    let content = store.snapshot().content;
    store.apply(&Scope::DaemonSets, outline("5"));
    assert_eq!(store.snapshot().content, content, "its changes are no news");
    assert!(!store.read(&daemon_set("a", "4", "i")), "the watch has come further");
    assert_eq!(presence(), Presence::NotSelected);
    assert!(store.read(&daemon_set("a", "5", "i")));
    assert!(matches!(presence(), Presence::Present(_)));
    assert!(store.snapshot().content > content);
    assert!(!store.read(&daemon_set("a", "6", "i")), "the watch tells what comes then");
    store.apply(&Scope::DaemonSets, outline("7"));
    assert_eq!(presence(), Presence::NotSelected, "what was read may be older");
    store.delete(&Scope::DaemonSets, &outline("8"));
    assert_eq!(presence(), Presence::ListedAbsent { list: 1 });
    store.apply(&Scope::DaemonSets, outline("9"));
    store.complete(&Scope::DaemonSets, &seen(&[]));
    assert_eq!(presence(), Presence::ListedAbsent { list: 2 });
}

/// A store of a node on which `runs` runs, and which covers the namespace `a` without trusting it.
fn of_tenant(runs: &[&str]) -> Store {
    let policy = Policy::new(None, "", vec!["a".to_owned(), "kube-system".to_owned()]).unwrap();
    let runs = runs.iter().map(|name| ObjectKey::new("a", *name)).collect();
    Store::new(Selection::of_policy(Arc::new(policy), BTreeSet::new(), runs))
}

/// One in `namespace` whose arguments have so many bytes each.
fn large(namespace: &str, name: &str, arguments: &[usize]) -> Value {
    let mut object = daemon_set(name, "1", "i");
    object["metadata"]["namespace"] = json!(namespace);
    object["metadata"]["labels"] = json!({"daemonlet.dev/mode": "static"});
    let arguments = arguments.iter().map(|bytes| "x".repeat(*bytes)).collect::<Vec<_>>();
    object["spec"]["template"]["spec"]["containers"][0]["args"] = json!(arguments);
    object
}

fn too_large(store: &Store, key: &ObjectKey) -> Option<String> {
    match &store.snapshot().daemon_sets.get(key)?.converted {
        Err(Unusable::TooLarge(too_large)) => {
            assert!(matches!(too_large.covered, Covered::Yes(_)), "it is ours and refused");
            Some(too_large.reason())
        }
        _ => None,
    }
}

#[test]
fn of_what_is_too_large_for_a_tenant_no_more_is_kept_than_why() {
    let store = of_tenant(&[]);
    for namespace in ["a", "kube-system"] {
        store.apply(&Scope::DaemonSets, large(namespace, "d", &[300 << 10]));
    }
    let (tenants, trusted) = (ObjectKey::new("a", "d"), ObjectKey::new("kube-system", "d"));
    let refusal = too_large(&store, &tenants).unwrap();
    assert!(
        refusal.starts_with("spec.template: has 307") && refusal.contains("at most 262144 are allowed"),
        "{refusal}"
    );
    assert!(store.snapshot().daemon_sets[&trusted].is_whole());
    // The connection has left its spec out.
    let mut cut = large("a", "cut", &[]);
    cut["spec"] = json!(["spec", "has more than 524288 bytes as JSON"]);
    store.apply(&Scope::DaemonSets, cut);
    let refusal = too_large(&store, &ObjectKey::new("a", "cut")).unwrap();
    assert!(refusal.starts_with("spec: has more than 524288 bytes as JSON (hint: "), "{refusal}");
    let mut annotated = large("a", "annotated", &[]);
    annotated["metadata"]["annotations"] = json!({"a": "x".repeat(200 << 10)});
    annotated["metadata"]["finalizers"] = (0..1_000).map(|number| json!(format!("a.b/{number:060}"))).collect();
    store.apply(&Scope::DaemonSets, annotated);
    let refusal = too_large(&store, &ObjectKey::new("a", "annotated")).unwrap();
    assert!(refusal.starts_with("metadata: labels, annotations, finalizers and selector have 26"), "{refusal}");
    assert!(matches!(store.snapshot().presence(&tenants), Presence::Present(_)), "they are there");
}

#[test]
fn the_daemon_sets_of_a_tenant_have_bounded_room_and_what_runs_comes_first() {
    let store = of_tenant(&["z"]);
    let fits = bounds::KEPT.each / (250 << 10);
    let key = |number: usize| ObjectKey::new("a", format!("d{number:03}"));
    let object = |number: usize| large("a", &key(number).name, &[250 << 10]);
    let running = large("a", "z", &[250 << 10]);
    for object in (0..fits + 10).map(object).chain([running]) {
        store.apply(&Scope::DaemonSets, object);
    }
    let whole = || store.snapshot().daemon_sets.values().filter(|definition| definition.is_whole()).count();
    assert!((fits - 5..=fits + 1).contains(&whole()), "{} of {fits}", whole());
    assert!(store.snapshot().daemon_sets[&ObjectKey::new("a", "z")].is_whole(), "it ran");
    let refusal = too_large(&store, &key(fits + 5)).unwrap();
    assert!(
        refusal.starts_with("metadata.namespace: the DaemonSets of namespace a take more than 16777216 bytes"),
        "{refusal}"
    );
    let first = (0..fits + 10).map(key).find(|key| too_large(&store, key).is_some()).unwrap();
    store.apply(&Scope::DaemonSets, large("a", "zz", &[10]));
    for number in [0, 1, 2] {
        store.delete(&Scope::DaemonSets, &object(number));
    }
    let snapshot = store.snapshot();
    assert!(snapshot.is_unread(&first) && snapshot.to_read().next() == Some(&first), "it is read again");
    let number = (0..).find(|number| key(*number) == first).unwrap();
    assert!(store.read(&object(number)));
    assert!(store.snapshot().daemon_sets[&first].is_whole());
    assert!(store.snapshot().to_read().all(|key| *key != first));
}

#[test]
fn of_more_daemon_sets_of_a_tenant_than_are_read_it_is_known_that_they_exist() {
    let store = of_tenant(&["zz"]);
    let key = |number: usize| ObjectKey::new("a", format!("d{number:05}"));
    let object = |number: usize| large("a", &key(number).name, &[1]);
    let most = bounds::KNOWN_DAEMON_SETS;
    (0..most + 20).for_each(|number| store.apply(&Scope::DaemonSets, object(number)));
    store.apply(&Scope::DaemonSets, large("a", "zz", &[1]));
    let known = || (store.snapshot().daemon_sets.len(), store.snapshot().beyond().remove("a").unwrap_or(0));
    assert_eq!(known(), (most + 1, 20), "what ran is known all the same");
    assert_eq!(store.snapshot().presence(&key(most + 5)), Presence::NotSelected, "it exists");
    store.apply(&Scope::DaemonSets, object(3));
    assert_eq!(known(), (most + 1, 20), "what is known stays so");
    // Two go, and two that were beyond are read.
    store.delete(&Scope::DaemonSets, &object(0));
    store.delete(&Scope::DaemonSets, &object(1));
    let to_read: Vec<ObjectKey> = store.snapshot().to_read().cloned().collect();
    assert_eq!(to_read, [key(most)], "the other is still known: what ran takes no place of it");
    assert!(store.read(&object(most)));
    assert_eq!(known(), (most, 19));
    // Who is asked for by name is read, however many there are.
    assert!(store.read(&object(most + 7)));
    assert!(store.snapshot().daemon_sets.contains_key(&key(most + 7)));
}

#[test]
fn what_ran_when_the_agent_started_takes_the_room_of_others_and_has_the_same_bound() {
    let fits = bounds::KEPT.each / (251 << 10);
    let names = |prefix: &str, count: usize| (0..count).map(|n| format!("{prefix}{n:03}")).collect::<Vec<_>>();
    let ran = names("ran", fits + 10);
    let store = of_tenant(&ran.iter().map(String::as_str).collect::<Vec<_>>());
    let whole = |prefix: &str| {
        let snapshot = store.snapshot();
        snapshot.daemon_sets.iter().filter(|(key, d)| key.name.starts_with(prefix) && d.is_whole()).count()
    };
    let put = |name: &String| store.apply(&Scope::DaemonSets, large("a", name, &[250 << 10]));
    names("new", fits).iter().for_each(put);
    let before = whole("new");
    assert!(before > fits - 5, "{before} of {fits}");
    ran.iter().take(4).for_each(put);
    assert_eq!((whole("ran"), whole("new")), (4, before - 4));
    let given_up = ObjectKey::new("a", names("new", before).pop().unwrap());
    assert!(too_large(&store, &given_up).is_some_and(|why| why.contains("those that run come first")));
    ran.iter().for_each(put);
    assert_eq!((whole("ran"), whole("new")), (before, 0));
    let last = ObjectKey::new("a", ran.last().unwrap());
    assert!(too_large(&store, &last).is_some() && matches!(store.snapshot().presence(&last), Presence::Present(_)));
}

#[test]
fn the_daemon_sets_of_all_tenants_have_bounded_room_together_and_each_has_a_share() {
    let namespaces = ["a", "b", "c", "d"];
    let policy = Policy::new(None, "", namespaces.map(str::to_owned).to_vec()).unwrap();
    let ran = BTreeSet::from([ObjectKey::new("c", "ran")]);
    let store = Store::new(Selection::of_policy(Arc::new(policy), BTreeSet::new(), ran));
    let put = |namespace: &str, name: &str| store.apply(&Scope::DaemonSets, large(namespace, name, &[250 << 10]));
    let whole = || {
        let snapshot = store.snapshot();
        let of = |namespace: &str| {
            snapshot.daemon_sets.iter().filter(|(key, d)| key.namespace == namespace && d.is_whole()).count()
        };
        namespaces.map(of)
    };
    for namespace in namespaces {
        (0..70).for_each(|number| put(namespace, &format!("d{number:03}")));
    }
    let [first, second, third, fourth] = whole();
    assert!(first > 60 && second > 60, "each has its bound: {:?}", whole());
    assert!((2..=6).contains(&third) && (2..=6).contains(&fourth), "the others their share: {:?}", whole());
    let refusal = too_large(&store, &ObjectKey::new("d", "d069")).unwrap();
    assert!(refusal.contains("or those of all namespaces that are not trusted more than 33554432"), "{refusal}");
    let mut changed = large("a", "d000", &[250 << 10]);
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = json!("j");
    store.apply(&Scope::DaemonSets, changed);
    assert_eq!(whole()[0], first, "what does not grow keeps the room that it has");
    // What ran takes the room of what did not, its own namespace's or another's.
    put("c", "ran");
    assert!(too_large(&store, &ObjectKey::new("c", "ran")).is_none(), "{:?}", whole());
    assert_eq!(whole().iter().sum::<usize>(), first + second + third + fourth, "{:?}", whole());
    // What their shares took beyond the bound is not given to others.
    (0..12).for_each(|number| store.delete(&Scope::DaemonSets, &large("a", &format!("d{number:03}"), &[])));
    assert!(store.snapshot().to_read().next().is_some(), "for what there is room now, that is read again");
}

#[test]
fn a_deletion_that_was_seen_is_no_mere_absence() {
    let store = Store::default();
    let object = daemon_set("a", "1", "i");
    store.apply(&Scope::DaemonSets, object.clone());
    store.complete(&Scope::DaemonSets, &seen(&["a"]));
    store.delete(&Scope::DaemonSets, &object);
    let key = ObjectKey::new("kube-system", "a");
    assert_eq!(store.snapshot().presence(&key), Presence::Deleted { uid: "uid-a".into(), orphan: false });
    store.apply(&Scope::DaemonSets, object);
    assert!(matches!(store.snapshot().presence(&key), Presence::Present(_)));
}

#[test]
fn a_deletion_remembers_that_pods_were_to_be_kept() {
    let key = ObjectKey::new("kube-system", "a");
    let mut going = daemon_set("a", "2", "i");
    going["metadata"]["finalizers"] = json!(["orphan"]);
    // The object as it last was may be in the event, or may only have been seen before it.
    for (last, event) in [(daemon_set("a", "1", "i"), going.clone()), (going, daemon_set("a", "3", "i"))] {
        let store = Store::default();
        store.apply(&Scope::DaemonSets, last);
        store.delete(&Scope::DaemonSets, &event);
        assert_eq!(store.snapshot().presence(&key), Presence::Deleted { uid: "uid-a".into(), orphan: true });
    }
}

#[test]
fn a_write_to_what_nobody_reads_wakes_nobody() {
    let store = Store::default();
    store.apply(&Scope::DaemonSets, daemon_set("a", "1", "i"));
    store.wake();
    let mut changed = store.changed();
    changed.mark_unchanged();
    store.apply(&Scope::DaemonSets, daemon_set("a", "2", "i"));
    store.wake();
    assert!(!changed.has_changed().unwrap());
    store.apply(&Scope::DaemonSets, daemon_set("a", "3", "j"));
    store.wake();
    assert!(changed.has_changed().unwrap());
}

#[test]
fn a_referenced_object_is_unknown_then_absent_then_present() {
    let store = Store::default();
    let reference = ObjectRef::new(Kind::ConfigMap, "default", "c");
    let scope = Scope::Object(reference.clone());
    store.open(&scope);
    assert_eq!(store.snapshot().lookup(&reference), Lookup::Unknown);
    store.complete(&scope, &BTreeSet::new());
    assert_eq!(store.snapshot().lookup(&reference), Lookup::Absent);
    let value = json!({"metadata": {"namespace": "default", "name": "c"}, "immutable": true});
    store.apply(&scope, value.clone());
    assert_eq!(store.snapshot().lookup(&reference), Lookup::Present(&value));
    store.close(&Scope::Object(reference.clone()));
    assert_eq!(store.snapshot().lookup(&reference), Lookup::Unknown);
}

#[test]
fn an_error_keeps_its_beginning_while_its_words_change() {
    let store = Store::default();
    store.open(&Scope::Node);
    assert!(store.failed(&Scope::Node, ApiFailure::new(FailureKind::Timeout, "one")));
    let since = store.snapshot().scopes[&Scope::Node].error.clone().map(|(_, since)| since);
    assert!(!store.failed(&Scope::Node, ApiFailure::new(FailureKind::Timeout, "one")));
    assert!(store.failed(&Scope::Node, ApiFailure::new(FailureKind::Timeout, "two")));
    assert_eq!(store.snapshot().scopes[&Scope::Node].error.clone().map(|(_, since)| since), since);
    let before = *store.changed().borrow();
    store.recovered(&Scope::Node);
    assert!(*store.changed().borrow() > before, "what waited for it goes on");
    assert_eq!(store.snapshot().scopes[&Scope::Node].error, None);
}

#[test]
fn history_goes_back_only_below_what_was_reached() {
    let store = Store::default();
    store.had_reached(100);
    let listed = |at: u64| {
        store.complete(&Scope::DaemonSets, &seen(&[]));
        assert!(
            !store.snapshot().etcd_rollback_detection.is_known,
            "a list's own resource version shows with its watch"
        );
        store.history_continues_at(at);
        store.snapshot().etcd_rollback_detection
    };
    assert_eq!(
        listed(100),
        EtcdRollbackDetection { reached: 100, at_list: 100, is_known: true, ..EtcdRollbackDetection::default() }
    );
    store.apply(&Scope::DaemonSets, daemon_set("a", "150", "i"));
    store.apply(&Scope::Pods, daemon_set("p", "900", "i"));
    assert_eq!(store.snapshot().etcd_rollback_detection.reached, 150, "each resource may have an etcd of its own");
    store.history_continues_at(160);
    assert_eq!(store.snapshot().etcd_rollback_detection.rollback, None);
    assert_eq!(listed(159).rollback, Some(EtcdRollback { number: 1, from: 160, to: 159 }));
    assert_eq!(listed(159).rollback.unwrap().number, 1, "it is reported once");
    assert_eq!(listed(0).rollback.unwrap().number, 1, "a resource version that is no number says nothing");
    assert_eq!(listed(10).rollback, Some(EtcdRollback { number: 2, from: 159, to: 10 }));

    store.complete(&Scope::DaemonSets, &seen(&[]));
    store.apply(&Scope::DaemonSets, daemon_set("b", "201", "i"));
    store.history_continues_at(200);
    assert_eq!(
        store.snapshot().etcd_rollback_detection.rollback.unwrap().number,
        2,
        "an event shows a higher version than the watch resumes at"
    );
    assert_eq!(store.snapshot().etcd_rollback_detection.reached, 201);

    // Another watch shows it first, and that of the DaemonSets continues the list from before.
    let is_known = || store.snapshot().etcd_rollback_detection.is_known;
    store.history_went_back(201, 190);
    store.history_continues_at(201);
    assert!(!is_known(), "nothing is known of the restored history");
    store.complete(&Scope::DaemonSets, &seen(&[]));
    store.history_continues_at(190);
    assert!(is_known());
    store.history_went_back(190, 180);
    store.forget();
    store.history_continues_at(185);
    assert!(!is_known(), "it continues a list that is forgotten");
    store.complete(&Scope::DaemonSets, &seen(&[]));
    store.history_continues_at(185);
    assert!(is_known());
    store.forget();
    assert!(!is_known(), "nothing has been listed since");
}
