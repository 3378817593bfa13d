use serde_json::json;

use super::super::decide::tests::key;
use super::super::decide::tests::observation;
use super::super::decide::tests::state;
use super::*;
use crate::core::knowledge::Knowledge;
use crate::core::model::DaemonSet;
use crate::core::plan::DaemonPlan;
use crate::core::plan::Data;
use crate::core::plan::Evidence;
use crate::core::plan::Permission;
use crate::core::plan::Stock;
use crate::core::plan::Withheld;
use crate::core::record::Fingerprint;
use crate::core::record::HandOver;
use crate::node::agent::remembered_inputs::RememberedInputs;
use crate::node::api::ApiFailure;
use crate::node::api::Entry;
use crate::node::api::FailureKind;
use crate::node::api::ScopeState;
use crate::node::api::Snapshot;

#[test]
fn who_holds_what_an_instance_needs_is_named_while_the_kubelet_does_not_accept_it() {
    let ports = |port: u64, phase: &str| {
        let spec = json!({"containers": [{"ports": [{"hostPort": port}]}]});
        Entry { version: 1, value: Arc::new(json!({"spec": spec, "status": {"phase": phase}})) }
    };
    let mut api = Snapshot::default();
    api.scopes.entry(Scope::Pods).or_default().lists = 1;
    for (name, port, phase) in
        [("holder", 80, "Running"), ("other", 81, "Running"), ("ended", 80, "Failed"), ("net-11111-n1", 80, "Pending")]
    {
        api.pods.insert(ObjectKey::new("kube-system", name), ports(port, phase));
    }
    let mut record = state(&super::super::decide::tests::config()).records.remove(&key()).unwrap();
    let definition = record.instances[0].daemon_set.as_deref().cloned().unwrap();
    let template = json!({"spec": {"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}});
    record.instances[0].daemon_set = Some(Arc::new(DaemonSet { template, ..definition }));
    let notes = |record: DaemonRecord| {
        let mut plan = Plan { daemons: vec![DaemonPlan::new(record)], ..Plan::default() };
        note_lacks(&observation(Some(api.clone())), "n1", &mut plan);
        plan.daemons[0].summary.notes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(notes(record.clone()), Vec::<String>::new(), "it runs");
    let cause = RestartCause::NotAccepted { reason: "NodePorts".to_owned() };
    record.order_restart("uid-1", cause, observation(None).now, &Fingerprint::Unknown);
    assert_eq!(notes(record), ["host port TCP 80 is held by pod kube-system/holder"]);
}

#[test]
fn a_runtime_that_has_lost_all_says_nothing_of_the_pod_that_was_handed_over_to() {
    let config = super::super::decide::tests::config();
    let mut state = state(&config);
    let known =
        HandOver { boot: "b".to_owned(), pod: "net-x".to_owned(), uid: "stock".to_owned(), done: false, missing: None };
    let mut observation = observation(None);
    observation.runtime = Knowledge::Current(Arc::new(Vec::new()));
    for (listed, expected) in [(false, false), (true, true)] {
        state.records.get_mut(&key()).unwrap().instances[0].listed = listed;
        let definition = state.records[&key()].instances[0].daemon_set.clone().unwrap();
        let stock = |_: &[Subject<'_>], facts: &ObservedState<'_>| facts.stock(&definition, Some(&known));
        let stock = with_facts(&observation, &state, &config, &RenderCache::default(), stock);
        assert_eq!(matches!(stock, Stock::Lost(Evidence::Unknown(_))), expected, "{stock:?}");
    }
}

#[test]
fn while_it_is_not_known_whether_a_cluster_has_approvals_a_changed_template_waits_for_them() {
    let config = super::super::decide::tests::config();
    let mut state = state(&config);
    let definition = state.records[&key()].instances[0].daemon_set.clone().unwrap();
    let permission = |state: &AgentState| {
        let permission = |_: &[Subject<'_>], facts: &ObservedState<'_>| facts.permission(&definition, "b");
        with_facts(&observation(None), state, &config, &RenderCache::default(), permission)
    };
    let shows = |missing, kind: Option<FailureKind>| {
        let mut api = Snapshot::default();
        let error = kind.map(|kind| (ApiFailure::new(kind, "refused"), observation(None).now));
        api.scopes.insert(Scope::NodeDaemons, ScopeState { missing, error, ..ScopeState::default() });
        api
    };
    let withheld = Permission::Withheld(Withheld::NotRead);
    assert_eq!(permission(&state), Permission::Free, "an agent before this one has never seen any");
    state.inputs.lost();
    let unlisted = [Snapshot::default(), shows(false, None), shows(false, Some(FailureKind::Server))];
    for api in unlisted.iter().chain([&shows(false, Some(FailureKind::Forbidden))]) {
        state.inputs.follow_coordination(false, Some(api));
        state.inputs = RememberedInputs::restore(state.inputs.to_save(&[]), &state.records);
        assert_eq!(permission(&state), withheld, "also after a restart");
    }
    let mut has_them = state.clone();
    has_them.inputs.follow_coordination(true, Some(&Snapshot::default()));
    has_them.inputs.follow_coordination(false, Some(&shows(true, None)));
    assert_eq!(permission(&has_them), withheld, "coordinated stays coordinated");
    state.inputs.follow_coordination(false, Some(&shows(true, None)));
    assert_eq!(permission(&state), Permission::Free, "the cluster has none");
}

#[test]
fn a_node_counts_its_wait_for_a_daemon_while_the_api_server_answers() {
    let config = Config { startup_taint: true, ..super::super::decide::tests::config() };
    let mut state = state(&config);
    let instance = &mut state.records.get_mut(&key()).unwrap().instances[0];
    let mut definition = instance.daemon_set.as_deref().cloned().unwrap();
    definition.labels.insert(crate::core::model::MODE_LABEL.to_owned(), "static".to_owned());
    definition.annotations.insert(crate::core::model::STARTUP_TAINT.to_owned(), "true".to_owned());
    instance.daemon_set = Some(Arc::new(definition));
    let answers = observation(Some(Snapshot::default()));
    let mut away = answers.clone();
    away.api.as_mut().unwrap().link = crate::node::api::Link::Connecting;
    for (observation, expected) in [(away, None), (answers.clone(), Some(answers.now))] {
        let plan = plan(&observation, &state, &config, &mut RenderCache::default());
        assert_eq!(plan.startup_taint.awaited.len(), 1);
        assert_eq!(plan.daemons[0].record.this_boot.as_ref().and_then(|this| this.awaited_since), expected);
    }
    state.passes = 0;
    let plan = plan(&answers, &state, &config, &mut RenderCache::default());
    assert_eq!(plan.daemons[0].record.this_boot.as_ref().and_then(|this| this.awaited_since), None, "unlinked");
}

#[test]
fn where_what_was_remembered_is_lost_a_manifest_keeps_its_address_of_the_api() {
    let config = super::super::decide::tests::config();
    let mut state = state(&config);
    let instance = &mut state.records.get_mut(&key()).unwrap().instances[0];
    let mut definition = instance.daemon_set.as_deref().cloned().unwrap();
    definition.source = Source::File { path: "/f/net.yaml".into() };
    definition.template["spec"]["automountServiceAccountToken"] = serde_json::json!(false);
    let definition = Arc::new(definition);
    instance.daemon_set = Some(Arc::clone(&definition));
    let waits = |state: &AgentState, api: Option<Snapshot>| {
        let waits = |_: &[Subject<'_>], facts: &ObservedState<'_>| {
            let rendering = facts.rendering(&definition, 0, Data::Current);
            rendering.held().iter().any(|held| held.unconfirmed && held.missing.iter().any(|m| m.kind == "Service"))
        };
        with_facts(&observation(api), state, &config, &RenderCache::default(), waits)
    };
    assert!(!waits(&state, Some(Snapshot::default())), "it has none");
    state.inputs.lost();
    assert!(waits(&state, Some(Snapshot::default())), "it may have one");
    assert!(!waits(&state, None), "no API server gave it one");
}
