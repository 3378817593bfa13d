use std::collections::BTreeSet;

use base64::Engine;
use serde_json::json;

use super::*;
use crate::config::Config;
use crate::core::knowledge::Knowledge;
use crate::core::model::Kind;
use crate::core::model::NodeView;
use crate::core::model::ObjectKey;
use crate::core::model::TokenRequest;
use crate::core::plan::Action;
use crate::core::record::DaemonRecord;
use crate::core::record::Instance;
use crate::core::record::LastRun;
use crate::core::sources::Confirmation;
use crate::core::time::Timestamp;
use crate::core::validate;
use crate::node::agent::decide::decide;
use crate::node::agent::decide::tests::config;
use crate::node::agent::decide::tests::decided;
use crate::node::agent::decide::tests::key;
use crate::node::agent::decide::tests::manifests_of;
use crate::node::agent::decide::tests::observation;
use crate::node::agent::decide::tests::state;
use crate::node::agent::objects::Objects;
use crate::node::agent::observation::Observation;
use crate::node::agent::outcome::EffectOutcome;
use crate::node::agent::outcome::RecordFate;
use crate::node::agent::render_cache::RenderCache;
use crate::node::agent::render_cache::VersionedOptions;
use crate::node::agent::requests::Reply;
use crate::node::agent::rollback_data::RollbackData;
use crate::node::agent::state::AgentState;
use crate::node::api::Definition;
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
        record.instances = state(&config()).records.remove(&key()).unwrap().instances;
    }
    let references: BTreeSet<ObjectRef> = numbers.map(|number| config_map(namespace, number)).collect();
    DaemonPlan { references, ..DaemonPlan::new(record) }
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
fn what_is_remembered_of_all_tenants_is_bounded_together_and_listed_objects_stay_known() {
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
    let inputs = RememberedInputs { objects: remembered, ..RememberedInputs::default() };
    extend(&mut objects, &inputs, &policy());
    let of = |namespace: &str| objects.iter().filter(|object| object.key.namespace == namespace).count();
    assert_eq!((of("a"), of("kube-system")), (bounds::OBJECTS, 900));
    assert!((800..1_000).all(|number| objects.contains(&config_map("a", number))), "what daemons need comes first");
}

/// One of the API in the namespace `a` that policy allows, with an argument of so many bytes and these volumes.
fn definition(name: &str, bytes: usize, config_maps: std::ops::Range<usize>) -> Arc<DaemonSet> {
    let container = json!({
        "name": "c", "image": "i:1", "args": ["x".repeat(bytes)], "resources": {"limits": {"memory": "1Mi"}},
        "securityContext": {"readOnlyRootFilesystem": true},
    });
    let volume = |n: usize| json!({"name": format!("v{n}"), "configMap": {"name": config_map("a", n).key.name}});
    let volumes: Vec<Value> = config_maps.map(volume).collect();
    let spec = json!({"automountServiceAccountToken": false, "containers": [container], "volumes": volumes});
    let value = json!({
        "metadata": {"namespace": "a", "name": name, "uid": "u", "labels": {"daemonlet.dev/mode": "static"}},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": {"metadata": {"labels": {"app": "x"}}, "spec": spec}},
    });
    Arc::new(validate::daemon_set(&value, Source::Api).unwrap())
}

/// What the API server shows.
fn shown(daemon_sets: &[Arc<DaemonSet>]) -> Observation {
    let mut api = Snapshot::default();
    (api.version, api.content) = (1, 1);
    api.daemon_sets = daemon_sets.iter().map(|d| (d.key.clone(), Definition::test(d, 1))).collect();
    let namespace = ObjectRef::new(Kind::Namespace, "", "a");
    api.objects.insert(namespace.clone(), Entry { version: 1, value: Arc::new(json!({})) });
    for scope in [Scope::DaemonSets, Scope::Object(namespace)] {
        api.scopes.insert(scope, ScopeState { lists: 1, ..ScopeState::default() });
    }
    observation(Some(api))
}

fn tenants_node(config: &Config) -> AgentState {
    let mut state = state(config);
    state.records.clear();
    state.policy = Arc::new(policy());
    let allocatable = crate::core::policy::Resources { cpu: 64_000, memory: 64 << 30, pods: 2_000 };
    state.inputs.node = Some(NodeView { allocatable: Some(allocatable), registered: true, ..state.node.clone() });
    state
}

fn run(state: &mut AgentState, daemon_set: &Arc<DaemonSet>) {
    let mut record = DaemonRecord::new(daemon_set.key.clone(), 1);
    record.api_uid = Some("u".to_owned());
    let name = format!("{}-{}", daemon_set.key.namespace, daemon_set.key.name);
    let instance = Instance::new(&format!("uid-{name}"), &name, 0, "r", Timestamp::from_secs(1_000));
    record.instances.push(Instance { daemon_set: Some(Arc::clone(daemon_set)), started: true, ..instance });
    state.records.insert(record.key.clone(), record);
}

#[test]
fn what_runs_takes_memory_whatever_its_daemon_set_has_become() {
    let config = config();
    let mut state = tenants_node(&config);
    let names: Vec<String> = (0..bounds::KEPT.each / (250 << 10)).map(|number| format!("d{number:03}")).collect();
    let reason_of = |state: &AgentState| {
        let small = names.iter().map(|name| definition(name, 10, 0..0));
        let all: Vec<_> = small.chain([definition("new", 250 << 10, 0..0)]).collect();
        let decision = decided(&shown(&all), state, &config);
        decision.daemon(&ObjectKey::new("a", "new")).unwrap().summary.reasons.to_string()
    };
    assert!(!reason_of(&state).contains("memory"), "{}", reason_of(&state));
    names.iter().for_each(|name| run(&mut state, &definition(name, 250 << 10, 0..0)));
    let reason = reason_of(&state);
    assert!(reason.contains("the DaemonSets of namespace a take more than 16777216 bytes"), "{reason}");
    // What it may return to is held as well.
    names.iter().for_each(|name| run(&mut state, &definition(name, 10, 0..0)));
    for (name, record) in names.iter().zip(state.records.values_mut()) {
        let daemon_set = definition(name, 250 << 10, 0..0);
        record.previous = Some(LastRun { revision: "p".to_owned(), daemon_set, claimed: false });
    }
    assert!(reason_of(&state).contains("of the agent's memory"), "{}", reason_of(&state));
}

#[test]
fn daemon_sets_that_are_remembered_as_they_were_have_bounded_room_beside_those_of_today() {
    let mut remembered: BTreeMap<ObjectKey, Arc<DaemonSet>> = BTreeMap::new();
    let many = 2 * bounds::KEPT.each / (250 << 10);
    for number in 0..many {
        let daemon_set = definition(&format!("d{number:03}"), 250 << 10, 0..0);
        remembered.insert(daemon_set.key.clone(), daemon_set);
    }
    let mut held = remembered.clone();
    let mut api = Snapshot::default();
    api.daemon_sets = held.iter().map(|(key, daemon_set)| (key.clone(), Definition::test(daemon_set, 1))).collect();
    let (mut today, nothing) = (ApiDefinitions::default(), Default::default());
    today.update(&api);
    forget_definitions(&mut held, &policy(), (&today, &nothing));
    assert_eq!(held.len(), many, "those of today are in memory once");
    forget_definitions(&mut remembered, &policy(), (&ApiDefinitions::default(), &nothing));
    assert!((50..=many / 2).contains(&remembered.len()), "{} of {many}", remembered.len());
    assert!(remembered.contains_key(&ObjectKey::new("a", "d000")), "the first by name");
}

#[test]
fn a_folders_object_counts_also_beyond_the_bound() {
    let config = config();
    let mut state = tenants_node(&config);
    let all: Vec<_> = (0..3).map(|n| definition(&format!("d{n}"), 10, n * 200..(n + 1) * 200)).collect();
    let mut seen = shown(&all);
    let (within, beyond) = (config_map("a", 10), config_map("a", bounds::OBJECTS + 10));
    let folders = Arc::make_mut(&mut seen.folders.objects);
    for object in [&within, &beyond] {
        folders.insert(object.clone(), entry(1));
    }
    for _ in 0..2 {
        state = decided(&seen, &state, &config).state;
        assert_eq!(state.inputs.unread, BTreeSet::new());
        let objects = Objects::today(&seen, &state.inputs, &state.policy);
        assert!(objects.is_folders(&within) && objects.is_folders(&beyond));
    }
}

#[test]
fn what_is_to_be_written_of_tenants_is_written_in_several_passes() {
    let config = config();
    let mut state = tenants_node(&config);
    let mut options = state.options.get().0.clone();
    options.rules = state.policy.rules().clone();
    state.options = VersionedOptions::new(options);
    let (objects, bytes): (Vec<_>, _) = ((0..40).map(|n| config_map("a", n)).collect(), bounds::RENDERED / 16);
    // Values in base64 are decoded for each pod.
    let binary = base64::engine::general_purpose::STANDARD.encode(vec![0; bytes / 8]);
    let all: Vec<_> = (0..40).map(|n| definition(&format!("d{n:02}"), 10, 0..8)).collect();
    let mut seen = shown(&all);
    let folders = Arc::make_mut(&mut seen.folders.objects);
    for object in objects {
        folders.insert(object, Entry { version: 1, value: Arc::new(json!({"binaryData": {"k": binary}})) });
    }
    let mut cache = RenderCache::default();
    let (mut passes, mut started) = (0, BTreeSet::new());
    while started.len() < all.len() {
        let mut decision = decide(&seen, &state, &config, &mut cache);
        if passes == 0 {
            cache.shrink();
            let mut later = state.clone();
            later.rendered_last = Some(ObjectKey::new("a", "d20"));
            let in_turn = decide(&seen, &later, &config, &mut cache);
            decide(&seen, &later, &config, &mut cache).assert_same(&in_turn, "the next call chooses the same");
            decided(&seen, &later, &config).assert_same(&in_turn, "and so does an empty cache");
        }
        let starts = |daemon: &&DaemonPlan| daemon.actions.iter().any(|action| matches!(action, Action::Start { .. }));
        let now: Vec<_> = decision.plan.daemons.iter().filter(starts).collect();
        assert!((1..=16).contains(&now.len()), "{} at one time", now.len());
        let is_last = started.len() + now.len() == all.len();
        assert!(is_last || decision.due == seen.now, "the next pass is due at once");
        started.extend(now.iter().map(|daemon| daemon.key.clone()));
        let is_untouched = |d: &DaemonPlan| started.contains(&d.key) || d.record.instances.is_empty();
        assert!(decision.plan.daemons.iter().all(is_untouched), "nothing is noted of what was not begun");
        let records = started.iter().map(|key| (key.clone(), RecordFate::OnDisk)).collect();
        Arc::make_mut(&mut decision.plan).daemons.retain(|daemon| started.contains(&daemon.key));
        seen.manifests = Knowledge::Current(Arc::default());
        let outcome = EffectOutcome { records, ..EffectOutcome::default() };
        state = AgentState::commit(decision.state, &decision.plan, &outcome, seen.now);
        seen.manifests = manifests_of(&state);
        cache.shrink();
        passes += 1;
    }
    assert!((3..=6).contains(&passes), "{passes}");
}

#[test]
fn what_is_missing_of_a_tenant_holds_and_releases_no_removal_of_others() {
    let config = config();
    let named = |namespace: &str, name: String| {
        Arc::new(DaemonSet { key: ObjectKey::new(namespace, name), ..DaemonSet::clone(&definition("x", 10, 0..0)) })
    };
    let of = |namespace: &'static str, count: usize| (0..count).map(move |n| named(namespace, format!("d{n:02}")));
    let planned = |running: &[Arc<DaemonSet>], shown_of: &[Arc<DaemonSet>]| {
        let mut state = tenants_node(&config);
        running.iter().for_each(|daemon_set| run(&mut state, daemon_set));
        let mut seen = shown(shown_of);
        seen.manifests = manifests_of(&state);
        // Each absence is confirmed by itself, one after the other.
        state = decided(&seen, &state, &config).state;
        let gone = |daemon_set: &Arc<DaemonSet>| Reply::RemovalConfirmed {
            key: daemon_set.key.clone(),
            about: 0,
            cluster: None,
            confirmation: Confirmation::Gone,
        };
        seen.replies = running.iter().filter(|daemon_set| !shown_of.contains(daemon_set)).map(gone).collect();
        decided(&seen, &state, &config).plan
    };
    let held = |plan: &Plan, key: &ObjectKey| {
        let daemon = plan.daemons.iter().find(|daemon| daemon.key == *key).unwrap();
        daemon.summary.reasons.to_string().contains("max-removals")
    };
    let (tenants, trusted): (Vec<_>, Vec<_>) = (of("a", 40).collect(), of("kube-system", 3).collect());
    let all = [tenants.clone(), trusted.clone(), of("b", 2).collect()].concat();
    let plan = planned(&all, &tenants);
    assert!(plan.removals_held, "many of a tenant's make a list no better that lacks all others");
    assert!(trusted.iter().all(|daemon_set| held(&plan, &daemon_set.key)));
    assert!(held(&plan, &ObjectKey::new("b", "d00")), "such a list says nothing of anybody");

    let plan = planned(&all, &trusted[1..]);
    assert!(plan.removals_held && held(&plan, &tenants[0].key));
    assert!(!held(&plan, &trusted[0].key), "a tenant who deletes many holds no other namespace's");
    assert!(!held(&plan, &ObjectKey::new("b", "d00")));
}
