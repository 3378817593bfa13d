use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::core::model::ObjectKey;
use crate::core::model::TokenRequest;
use crate::core::plan;
use crate::core::record::DaemonRecord;
use crate::node::agent::decide::tests::key;
use crate::node::agent::decide::tests::state;
use crate::node::agent::rollback_data::RollbackData;
use crate::node::api::ScopeState;

fn policy() -> Policy {
    Policy::new(None, "", ["a", "b", "c", "kube-system"].map(str::to_owned).into()).unwrap()
}

fn config_map(namespace: &str, number: usize) -> ObjectRef {
    ObjectRef::new(Kind::ConfigMap, namespace, format!("c{number:04}"))
}

/// One that names the ConfigMaps of these numbers of its namespace.
fn daemon(namespace: &str, name: &str, numbers: std::ops::Range<usize>, runs: bool) -> DaemonPlan {
    let mut record = DaemonRecord::new(ObjectKey::new(namespace, name), 1);
    if runs {
        record.instances =
            state(&crate::node::agent::decide::tests::config()).records.remove(&key()).unwrap().instances;
    }
    let references: BTreeSet<ObjectRef> = numbers.map(|number| config_map(namespace, number)).collect();
    DaemonPlan { references, ..plan::empty(record) }
}

#[test]
fn of_a_tenants_objects_so_many_are_read_and_those_of_what_runs_first() {
    let daemons = vec![
        daemon("a", "first", 0..300, false),
        daemon("a", "last", 1_000..1_300, true),
        daemon("a", "shares", 1_000..1_010, false),
        daemon("kube-system", "trusted", 0..900, false),
    ];
    let mut plan = Plan { daemons, ..Plan::default() };
    bound(None, &policy(), &mut plan);
    let read: Vec<usize> = plan.daemons.iter().map(|daemon| daemon.references.len()).collect();
    assert_eq!(read, [bounds::OBJECTS - 300, 300, 10, 900]);
    let notes: Vec<usize> = plan.daemons.iter().map(|daemon| daemon.summary.notes.len()).collect();
    assert_eq!(notes, [1, 0, 0, 0]);
    let note = plan.daemons[0].summary.notes[0].to_string();
    assert!(
        note.starts_with(
            "ConfigMap a/c0212: it is not read: the DaemonSets of namespace a name more than 512 ConfigMaps"
        ),
        "{note}"
    );
}

fn entry(kibibytes: usize) -> Entry {
    Entry { version: 1, value: Arc::new(json!({"data": {"a": "x".repeat(kibibytes << 10)}})) }
}

#[test]
fn so_many_tokens_are_requested_for_a_tenant_and_those_of_what_runs_first() {
    let needing = |name: &str, audiences: std::ops::Range<usize>, runs: bool| {
        let token = |number: usize| TokenRequest {
            service_account: ObjectKey::new("a", "s"),
            audience: format!("a{number:03}"),
            expiration_seconds: 600,
        };
        DaemonPlan { tokens: audiences.map(token).collect(), ..daemon("a", name, 0..0, runs) }
    };
    let daemons = vec![needing("first", 0..200, false), needing("last", 500..600, true)];
    let mut plan = Plan { daemons, ..Plan::default() };
    bound(None, &policy(), &mut plan);
    let requested: Vec<usize> = plan.daemons.iter().map(|daemon| daemon.tokens.len()).collect();
    assert_eq!(requested, [bounds::TOKENS - 100, 100]);
    let note = plan.daemons[0].summary.notes[0].to_string();
    assert!(note.starts_with("ServiceAccount a/s: a token for audience \"a156\" is not requested"), "{note}");
}

#[test]
fn what_is_remembered_of_a_tenants_objects_beside_those_of_today_is_bounded() {
    let entry =
        |kibibytes: usize| Entry { version: 1, value: Arc::new(json!({"data": {"a": "x".repeat(kibibytes << 10)}})) };
    let (mut inputs, mut api) = (RememberedInputs::default(), Snapshot::default());
    for number in 0..40 {
        inputs.objects.insert(config_map("a", number), entry(1_000));
        inputs.objects.insert(config_map("kube-system", number), entry(1_000));
    }
    let mut used: BTreeSet<ObjectRef> = inputs.objects.keys().cloned().collect();
    let listed = || ScopeState { lists: 1, ..ScopeState::default() };
    api.scopes.extend(used.iter().map(|object| (Scope::Object(object.clone()), listed())));
    for number in 0..20 {
        api.objects.insert(config_map("a", number), inputs.objects[&config_map("a", number)].clone());
    }
    forget(&mut inputs, &api, &used, &policy());
    assert_eq!((inputs.objects.len(), &inputs.unread), (80, &BTreeSet::new()), "those of today are in memory once");
    for number in 0..20 {
        api.objects.insert(config_map("a", number), entry(1_000));
    }
    (36..40).for_each(|number| api.no_room(&config_map("a", number)));
    forget(&mut inputs, &api, &used, &policy());
    assert_eq!(inputs.objects.len(), 40 + 32);
    // That the API server has them is known until it says something else, or nothing names them.
    let forgotten = |numbers: std::ops::Range<usize>| numbers.map(|number| config_map("a", number)).collect();
    assert_eq!(inputs.unread, forgotten(36..40));
    let mut api = Snapshot::default();
    forget(&mut inputs, &api, &used, &policy());
    assert_eq!(inputs.unread, forgotten(36..40));
    api.scopes.insert(Scope::Object(config_map("a", 36)), listed());
    used.remove(&config_map("a", 37));
    forget(&mut inputs, &api, &used, &policy());
    assert_eq!(inputs.unread, forgotten(38..40));
}

#[test]
fn what_is_remembered_of_all_tenants_is_bounded_together_and_the_api_server_was_heard() {
    let (mut inputs, mut api) = (RememberedInputs::default(), Snapshot::default());
    for number in 0..30 {
        let of = |namespace: &str| (config_map(namespace, number), entry(1_000));
        inputs.objects.extend(["a", "b", "c"].map(of));
    }
    let used: BTreeSet<ObjectRef> = inputs.objects.keys().cloned().collect();
    forget(&mut inputs, &api, &used, &policy());
    assert_eq!(inputs.objects.len(), 90, "of a checkpoint, while the API server is away");
    let listed = ScopeState { lists: 1, ..ScopeState::default() };
    api.scopes.extend(used.iter().map(|object| (Scope::Object(object.clone()), listed.clone())));
    forget(&mut inputs, &api, &used, &policy());
    let of = |namespace: &str| inputs.objects.keys().filter(|object| object.key.namespace == namespace).count();
    assert_eq!(["a", "b", "c"].map(of), [30, 30, 5]);
}

#[test]
fn a_roll_back_that_is_forgotten_leaves_its_room_to_others() {
    let large = |count: usize| RollbackData {
        revision: "r".to_owned(),
        objects: (0..count).map(|number| (config_map("a", number), entry(1_000))).collect(),
    };
    let key = |name: &str| ObjectKey::new("a", name);
    let mut kept = RollbackDataOf::from([(key("first"), large(40)), (key("next"), large(20)), (key("z"), large(12))]);
    forget_kept(&mut kept, &Versioned::new(), &policy());
    assert_eq!(kept.into_keys().collect::<Vec<_>>(), [key("next"), key("z")]);
}

#[test]
fn what_is_kept_for_the_roll_backs_of_a_tenant_is_bounded_and_counts_once_for_all_daemons() {
    let object = config_map("a", 0);
    let of = |value: Entry| RollbackData { revision: "r".to_owned(), objects: [(object.clone(), value)].into() };
    let kept = |namespace: &str, value: &dyn Fn() -> Entry| -> RollbackDataOf {
        (0..50).map(|number| (ObjectKey::new(namespace, format!("d{number:02}")), of(value()))).collect()
    };
    let (one, today) = (entry(1_000), entry(900));
    let remembered = Versioned::from([(object.clone(), today.clone())]);
    for (mut kept, left) in
        [(kept("a", &|| entry(1_000)), 32), (kept("a", &|| one.clone()), 50), (kept("a", &|| today.clone()), 50)]
    {
        forget_kept(&mut kept, &remembered, &policy());
        assert_eq!(kept.len(), left);
    }
}

#[test]
fn what_is_remembered_counts_among_what_daemons_of_a_namespace_may_have() {
    let remembered: Versioned = (0..900)
        .flat_map(|number| ["a", "kube-system"].map(|namespace| (config_map(namespace, number), entry(1))))
        .collect();
    let mut objects: BTreeSet<ObjectRef> = (800..1_000).map(|number| config_map("a", number)).collect();
    extend(&mut objects, &remembered, &policy());
    let of = |namespace: &str| objects.iter().filter(|object| object.key.namespace == namespace).count();
    assert_eq!((of("a"), of("kube-system")), (bounds::OBJECTS, 900));
    assert!((800..1_000).all(|number| objects.contains(&config_map("a", number))), "what daemons need comes first");
}
