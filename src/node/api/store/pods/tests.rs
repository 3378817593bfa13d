use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::core::policy::Policy;
use crate::node::api::Selection;
use crate::node::api::Store;
use crate::node::api::store::Scope;

/// A store of a node that trusts `kube-system` alone.
fn store() -> Store {
    let policy = Policy::new(None, "", vec!["*".to_owned()]).unwrap();
    Store::new(Selection::of_policy(Arc::new(policy), BTreeSet::new(), BTreeSet::new()))
}

fn pod(namespace: &str, number: usize) -> Value {
    let ports: Vec<Value> = (1..=1000).map(|port| json!({"hostPort": port})).collect();
    let metadata = json!({"name": format!("p{number}"), "namespace": namespace, "uid": format!("u{number}")});
    json!({"metadata": metadata, "spec": {"containers": [{"ports": ports}]}, "status": {}})
}

fn whole(store: &Store, namespace: &str) -> usize {
    let snapshot = store.snapshot();
    let of =
        snapshot.pods.iter().filter(|(key, entry)| key.namespace == namespace && entry.value.get("spec").is_some());
    of.count()
}

#[test]
fn of_pods_without_number_no_more_is_kept_than_that_they_exist() {
    let store = store();
    for number in 0..200 {
        for namespace in ["outside", "kube-system"] {
            store.apply(&Scope::Pods, pod(namespace, number));
        }
    }
    let of_tenant = whole(&store, "outside");
    assert!((4..20).contains(&of_tenant), "{of_tenant}");
    assert_eq!((whole(&store, "kube-system"), store.snapshot().pods.len()), (200, 400));
    // The same ones once more take no more room; those that go leave theirs.
    (0..200).for_each(|number| store.apply(&Scope::Pods, pod("outside", number)));
    assert_eq!(whole(&store, "outside"), of_tenant);
    store.delete(&Scope::Pods, &pod("outside", 0));
    store.apply(&Scope::Pods, pod("outside", 300));
    assert_eq!(whole(&store, "outside"), of_tenant);
    store.complete(&Scope::Pods, &BTreeSet::new());
    store.apply(&Scope::Pods, pod("outside", 301));
    assert_eq!((whole(&store, "outside"), store.snapshot().pods.len()), (1, 1));
}
