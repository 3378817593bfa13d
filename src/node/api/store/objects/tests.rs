use std::collections::BTreeSet;
use std::sync::Arc;

use futures::FutureExt;
use serde_json::json;

use super::*;
use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::ObjectSource;
use crate::core::policy::Policy;
use crate::node::api::selection::Selection;

/// A store of a node that covers the namespaces `a`, `b` and `c` without trusting them.
fn store() -> Store {
    let policy = Policy::new(None, "", ["a", "b", "c", "kube-system"].map(str::to_owned).into()).unwrap();
    Store::new(Selection::of_policy(Arc::new(policy), BTreeSet::new(), BTreeSet::new()))
}

fn reference(namespace: &str, number: usize) -> ObjectRef {
    ObjectRef::new(Kind::ConfigMap, namespace, format!("c{number:03}"))
}

fn scope(namespace: &str, number: usize) -> Scope {
    Scope::Object(reference(namespace, number))
}

/// The watch of a ConfigMap begins, and finds one of so many KiB.
fn list(store: &Store, namespace: &str, number: usize, kibibytes: usize) {
    let (scope, key) = (scope(namespace, number), reference(namespace, number).key);
    store.open(&scope);
    change(store, namespace, number, kibibytes);
    store.complete(&scope, &BTreeSet::from([key]));
}

fn change(store: &Store, namespace: &str, number: usize, kibibytes: usize) {
    let name = reference(namespace, number).key.name;
    let value = json!({"metadata": {"namespace": namespace, "name": name}, "data": {"a": "x".repeat(kibibytes << 10)}});
    store.apply(&scope(namespace, number), value);
    store.wake();
}

fn found(store: &Store, namespace: &str, number: usize) -> &'static str {
    match store.snapshot().lookup(&reference(namespace, number)) {
        Lookup::Present(_) => "present",
        Lookup::Deleted(_) => "deleted",
        Lookup::Absent => "absent",
        Lookup::Unknown => "unknown",
    }
}

#[test]
fn what_has_no_room_is_not_readable_and_never_absent() {
    let store = store();
    for number in 0..40 {
        list(&store, "a", number, 1_000);
        list(&store, "kube-system", number, 1_000);
    }
    list(&store, "b", 0, 1_000);
    assert_eq!([0, 31, 32, 39].map(|number| found(&store, "a", number)), ["present", "present", "unknown", "unknown"]);
    assert_eq!((found(&store, "kube-system", 39), found(&store, "b", 0)), ("present", "present"));
    assert!(store.lacks_room(&scope("a", 39)) && !store.lacks_room(&scope("a", 0)));
    let snapshot = store.snapshot();
    assert_eq!(snapshot.lists(&scope("a", 39)), 0, "its absence is not known");
    assert!(snapshot.lacks_room(&reference("a", 39)).is_some_and(|weight| weight > 1_000 << 10));
    // It is gone: that is known now.
    store.complete(&scope("a", 39), &BTreeSet::new());
    assert_eq!(found(&store, "a", 39), "absent");
    store.delete(&scope("a", 38), &json!({"metadata": {"namespace": "a", "name": "c038"}}));
    assert_eq!(found(&store, "a", 38), "absent");
    assert!(!store.lacks_room(&scope("a", 38)));
}

#[test]
fn all_namespaces_that_are_not_trusted_have_a_bound_together_and_each_has_a_share() {
    let store = store();
    for number in 0..32 {
        list(&store, "a", number, 1_000);
        list(&store, "b", number, 1_000);
    }
    for number in 0..6 {
        list(&store, "c", number, 1_000);
        list(&store, "kube-system", number, 1_000);
    }
    assert_eq!((found(&store, "a", 31), found(&store, "b", 31)), ("present", "present"));
    assert_eq!([0, 3, 4, 5].map(|number| found(&store, "c", number)), ["present", "present", "unknown", "unknown"]);
    assert_eq!(found(&store, "kube-system", 5), "present");
    // Whoever makes room makes it for all.
    let waiting = scope("c", 4);
    let mut room = Box::pin(store.room(&waiting));
    assert!(store.lacks_room(&waiting) && (&mut room).now_or_never().is_none());
    for number in 0..8 {
        store.close(&scope("a", number));
        store.wake();
    }
    assert!(room.now_or_never().is_some());
}

#[test]
fn what_grows_beyond_the_room_is_not_readable_and_is_once_it_is_small_again() {
    let store = store();
    for number in 0..32 {
        list(&store, "a", number, 1_000);
    }
    let before = store.snapshot().version;
    change(&store, "a", 3, 2_000);
    assert_eq!(found(&store, "a", 3), "unknown");
    assert!(store.snapshot().version > before, "a pass looks at it");
    let seen = store.snapshot().version;
    change(&store, "a", 3, 2_000);
    assert_eq!(store.snapshot().version, seen, "once");
    change(&store, "a", 3, 900);
    assert_eq!(found(&store, "a", 3), "present");
}

#[test]
fn what_had_no_room_is_read_again_once_there_is_room_the_first_by_name_first() {
    let store = store();
    for number in 0..36 {
        list(&store, "a", number, 1_000);
    }
    let reads_again = |number: usize| store.room(&scope("a", number)).now_or_never().is_some();
    assert_eq!([33, 34].map(reads_again), [false, false]);
    let woken = store.changed();
    store.close(&scope("a", 7));
    assert!(woken.has_changed().unwrap(), "who waits for room looks");
    assert_eq!([32, 33, 34].map(reads_again), [true, false, false]);
    list(&store, "a", 32, 1_000);
    assert_eq!((found(&store, "a", 32), reads_again(33)), ("present", false));
    change(&store, "a", 0, 1);
    store.complete(&scope("a", 1), &BTreeSet::new());
    assert_eq!([33, 34, 35].map(reads_again), [true, true, false]);
}
