//! Whole passes: an observation in, a decision out.

use crate::node::agent::failure::EffectFailure;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::core::knowledge::Knowledge;
use crate::core::model::Kind;
use crate::core::model::ObjectRef;
use crate::core::model::Source as DefinedIn;
use crate::core::policy::Policy;
use crate::core::record::DaemonRecord;
use crate::core::record::Instance;
use crate::core::record::NotedEvent;
use crate::core::render::PullMode;
use crate::core::render::RenderOptions;
use crate::core::rendering::RenderResult;
use crate::core::validate;
use crate::node::agent::boot::Boot;
use crate::node::agent::evidence;
use crate::node::agent::inputs_on_disk::Pause;
use crate::node::agent::outcome::EffectOutcome;
use crate::node::agent::outcome::RecordFate;
use crate::node::agent::render_cache::VersionedOptions;
use crate::node::agent::requests::Reply;
use crate::node::agent::runtime_pods::RuntimePod;
use crate::node::agent::state::Purpose;
use crate::node::api::Entry;
use crate::node::api::Link;
use crate::node::api::Sighting;
use crate::node::api::Snapshot;
use crate::node::manifests::Manifest;
use crate::node::manifests::Scan;

use super::*;

mod clocks;
mod deleted_mirrors;
mod determinism;
mod gates;
mod inputs;
mod not_accepted;
mod object_sources;
mod overridden;
mod runtime;
mod teardown;

pub(in crate::node::agent) fn config() -> Config {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    std::fs::write(&file, "node-name = \"n1\"\nmanifest-dir = \"/m\"\n").unwrap();
    crate::config::load(Some(&file)).unwrap()
}

pub(in crate::node::agent) fn key() -> ObjectKey {
    ObjectKey::new("kube-system", "net")
}

/// A DaemonSet as the API has it.
pub(in crate::node::agent) fn object(uid: &str, labels: Value) -> Value {
    json!({
        "metadata": {"namespace": "kube-system", "name": "net", "uid": uid, "labels": labels},
        "spec": {
            "selector": {"matchLabels": {"app": "net"}},
            "template": {
                "metadata": {"labels": {"app": "net"}},
                "spec": {"containers": [{"name": "c", "image": "i:1"}]}
            }
        }
    })
}

pub(in crate::node::agent) fn daemon_set() -> Arc<DaemonSet> {
    let template =
        json!({"metadata": {"labels": {"app": "net"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    let value: Value = json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "net", "namespace": "kube-system", "uid": "d"},
        "spec": {"selector": {"matchLabels": {"app": "net"}}, "template": template}});
    Arc::new(validate::daemon_set(&value, DefinedIn::Api).unwrap())
}

/// An agent that has made a pass, and of whose daemon an instance runs.
pub(in crate::node::agent) fn state(config: &Config) -> AgentState {
    let options = VersionedOptions::new(RenderOptions {
        node_name: "n1".to_owned(),
        kubelet_version: Some((1, 36)),
        api_endpoint: None,
        has_api: false,
        inline_secret_env: false,
        pulls: PullMode::ByKubelet,
        token_expiration: crate::core::time::Span::from_secs(3607),
        rules: crate::core::policy::PodRules::trusting(),
        topology: Default::default(),
    });
    let at = Timestamp::from_secs(1_000);
    let mut state = AgentState::new(config, Policy::default(), options, at, Purpose::Work);
    (state.passes, state.may_run_unrecorded) = (1, false);
    let mut record = DaemonRecord::new(key(), 1);
    record.api_uid = Some("d".to_owned());
    let instance = Instance::new("uid-1", "net-11111", 0, "r", at);
    record.instances.push(Instance { daemon_set: Some(daemon_set()), started: true, ..instance });
    state.records.insert(key(), record);
    state
}

/// What was rendered, in the manifest folder.
pub(in crate::node::agent) fn manifest(rendering: &RenderResult) -> Manifest {
    let rendered = rendering.result.as_ref().unwrap();
    Manifest {
        file: rendered.file.clone(),
        owner: key(),
        namespace: key().namespace,
        pod_name: rendering.identity.pod_name.clone(),
        uid: rendering.identity.uid.clone(),
        incarnation: Some(0),
        revision: rendering.revision.clone(),
        sha256: rendered.digest.clone(),
        data_volumes: Vec::new(),
        has_gate: false,
        damage: None,
    }
}

/// What `state` has on this node, as the manifest folder shows it.
pub(in crate::node::agent) fn manifests_of(state: &AgentState) -> Knowledge<Arc<Scan>> {
    let live = state.records.values().flat_map(|record| record.live().map(|instance| (&record.key, instance)));
    let manifest = |(owner, instance): (&ObjectKey, &Instance)| Manifest {
        file: format!("{}.yaml", instance.pod_name),
        owner: owner.clone(),
        namespace: owner.namespace.clone(),
        pod_name: instance.pod_name.clone(),
        uid: instance.uid.clone(),
        incarnation: Some(instance.incarnation),
        revision: instance.revision.clone(),
        sha256: "0".to_owned(),
        data_volumes: Vec::new(),
        has_gate: false,
        damage: None,
    };
    let ours = live.map(manifest).map(|manifest| (manifest.file.clone(), Arc::new(manifest))).collect();
    Knowledge::Current(Arc::new(Scan { ours, ..Scan::default() }))
}

/// What the API server shows while it has `pod` as the mirror pod of `instance`.
pub(in crate::node::agent) fn shows_mirror(instance: &Instance, mut pod: Value) -> Snapshot {
    pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": instance.uid});
    let mirror = evidence::mirror_key(&key().namespace, &instance.pod_name, "n1");
    let mut snapshot = Snapshot::default();
    snapshot.pods.insert(mirror, Entry { version: 1, value: Arc::new(pod) });
    snapshot
}

pub(in crate::node::agent) fn observation(api: Option<Snapshot>) -> Observation {
    let boot = Boot::new("b".to_owned(), Timestamp::from_secs(1));
    let manifests = Knowledge::Current(Arc::default());
    Observation { boot, manifests, ..Observation::of(api, Knowledge::NeverHeard, 2_000_000) }
}

pub(in crate::node::agent) fn decided(observation: &Observation, state: &AgentState, config: &Config) -> Decision {
    decide(observation, state, config, &mut RenderCache::default())
}

/// A DaemonSet of the API with this image.
fn labelled(image: &str) -> Arc<DaemonSet> {
    let mut value = object("d", json!({"daemonlet.dev/mode": "static"}));
    (value["apiVersion"], value["kind"]) = (json!("apps/v1"), json!("DaemonSet"));
    let spec = &mut value["spec"]["template"]["spec"];
    (spec["hostNetwork"], spec["automountServiceAccountToken"]) = (json!(true), json!(false));
    spec["containers"][0]["image"] = json!(image);
    Arc::new(validate::daemon_set(&value, DefinedIn::Api).unwrap())
}

#[test]
fn a_manifest_folder_that_cannot_be_read_ends_and_starts_nothing_and_the_pass_runs_to_its_end() {
    let config = config();
    let mut state = state(&config);
    state.tear_down();
    let unreadable = Observation { manifests: Knowledge::Unreadable("EIO".to_owned().into()), ..observation(None) };
    let decision = decided(&unreadable, &state, &config);
    let daemon = decision.daemon(&key()).unwrap();
    assert!(daemon.actions.iter().all(|a| !matches!(a, Action::Start { .. } | Action::End { .. })), "{daemon:?}");
    assert_eq!(daemon.record.instances.len(), 1);
    assert!(daemon.summary.reasons.to_string().contains("EIO"), "{}", daemon.summary.reasons);
    let waits = decision.due - unreadable.now;
    assert!((FAILED_REST..=FAILED_AGAIN).contains(&waits), "it is looked at again soon, and not at once: {waits:?}");
    let readable = decided(&observation(None), &state, &config);
    let daemon = readable.daemon(&key()).unwrap();
    assert!(daemon.actions.iter().any(|a| matches!(a, Action::End { .. })), "{daemon:?}");
}

#[test]
fn a_reply_about_an_instance_that_is_gone_changes_nothing() {
    let config = config();
    let state = state(&config);
    let replies = vec![
        Reply::MirrorPodDeleted { uid: "another".to_owned(), result: Ok(()) },
        Reply::CrashDiagnosed { uid: "another".to_owned(), diagnosis: Default::default() },
        Reply::SandboxesNotStopped { pod: "another".to_owned(), why: "gone".to_owned() },
        Reply::Published(Ok(None)),
        Reply::Relisting { lists: 7 },
    ];
    let without = decided(&observation(None), &state, &config);
    let with = decided(&Observation { replies, ..observation(None) }, &state, &config);
    assert_eq!((&with.plan, &with.requests), (&without.plan, &without.requests));
}

#[test]
fn of_pods_that_carry_the_annotation_of_a_mirror_pod_the_one_of_its_name_counts() {
    let config = config();
    let state = state(&config);
    let instance = state.records[&key()].live().next().unwrap().clone();
    let mirror = evidence::mirror_key(&key().namespace, &instance.pod_name, &config.node_name);
    let noted = |pod: &ObjectKey| {
        let mut observation = observation(Some(Snapshot::default()));
        let (static_uid, seen) = (instance.uid.clone(), NotedEvent::Gone { set_back: false });
        let node_uid = Some("n".to_owned());
        let (mirror_uid, pod) = ("m".to_owned(), pod.clone());
        let sighting = Sighting { static_uid, mirror_uid, pod, node_uid, daemon_set_uid: None, seen };
        observation.api.as_mut().unwrap().sightings.push(sighting);
        let decision = decided(&observation, &state, &config);
        decision.state.records[&key()].instances[0].noted.is_some()
    };
    assert!(noted(&mirror));
    assert!(!noted(&ObjectKey::new("tenant", &mirror.name)), "of another namespace");
    assert!(!noted(&ObjectKey::new(&mirror.namespace, "x")), "of another name");
}

#[test]
fn a_daemon_whose_effects_failed_keeps_the_record_that_it_had() {
    let config = config();
    let (observation, mut state) = (observation(None), state(&config));
    state.tear_down();
    let decision = decided(&observation, &state, &config);
    let planned = decision.daemon(&key()).unwrap().record.clone();
    let before = decision.state.records[&key()].clone();
    assert_ne!(planned, before, "it ends");
    let failed = AgentState::commit(decision.state.clone(), &decision.plan, &EffectOutcome::default(), observation.now);
    assert_eq!(failed.records[&key()], before);
    let records = BTreeMap::from([(key(), RecordFate::OnDisk)]);
    let outcome = EffectOutcome { records, ..EffectOutcome::default() };
    assert_eq!(AgentState::commit(decision.state, &decision.plan, &outcome, observation.now).records[&key()], planned);
}

#[test]
fn data_that_could_not_be_written_whole_is_not_known_to_be_there() {
    let config = config();
    let (observation, mut state) = (observation(None), state(&config));
    let uids = ["uid-1", "uid-2"].map(str::to_owned);
    state.written.extend(uids.iter().map(|uid| (uid.clone(), "digest".to_owned())));
    let decision = decided(&observation, &state, &config);
    let outcome = EffectOutcome { unwritten: uids[..1].iter().cloned().collect(), ..EffectOutcome::default() };
    let state = AgentState::commit(decision.state, &decision.plan, &outcome, observation.now);
    assert_eq!(state.written.keys().collect::<Vec<_>>(), ["uid-2"]);
}

#[test]
fn what_a_tenant_changes_waits_while_the_disk_rests_from_the_last_write() {
    let config = config();
    let mut state = state(&config);
    let mut elsewhere = DaemonSet::clone(&labelled("i:1"));
    elsewhere.template["spec"]["nodeSelector"] = json!({"a": "b"});
    state.inputs.daemon_sets.insert(key(), Arc::new(elsewhere));
    let policy = |trusted: &[&str]| {
        let trusted_namespaces = trusted.iter().map(|namespace| (*namespace).to_owned()).collect();
        Arc::new(
            Policy::default().with_rules(crate::core::policy::PodRules { trusted_namespaces, ..Default::default() }),
        )
    };
    state.policy = policy(&[]);
    let node = json!({"metadata": {"name": "n1", "uid": "n", "labels": {}}});
    let mut snapshot = Snapshot::default();
    snapshot.node = Some(Entry { version: 1, value: Arc::new(node) });
    let seen = observation(Some(snapshot));
    let ends = |state: &AgentState| {
        let decision = decided(&seen, state, &config);
        let daemon = decision.daemon(&key()).unwrap();
        let ends = daemon.actions.iter().any(|action| matches!(action, Action::End { .. }));
        assert_eq!(decision.save_inputs == SaveInputs::Before, ends, "{:?}", daemon.summary);
        (ends, daemon.wake_at, daemon.record == state.records[&key()])
    };
    let until = seen.now + Span::from_secs(20);
    assert!(ends(&state).0);
    state.inputs_on_disk.pause = Some(Pause { since: seen.now, last: seen.now, to: until });
    assert_eq!(ends(&state), (false, Some(until), true));
    let mut whose = planning::plan(&seen, &state, &config, &mut RenderCache::default()).daemons.remove(0);
    assert_eq!(put_off::paused_until(&whose, &state, seen.now), Some(until));
    whose.summary.source = Some(DefinedIn::File { path: "/f/net.yaml".into() });
    assert_eq!(put_off::paused_until(&whose, &state, seen.now), None, "what the node's owner defines does not wait");
    let mut trusted = state.clone();
    trusted.policy = policy(&["kube-system"]);
    assert!(ends(&trusted).0, "what is trusted does not wait");
    state.goal = Goal::Teardown;
    assert!(ends(&state).0);
}

#[test]
fn a_node_without_order_taint_condition_and_overlay_is_asked_noted_and_written_nothing_of_them() {
    // Both are allowed here, and no DaemonSet asks for one.
    let config = Config { startup_taint: true, node_conditions: true, ..config() };
    let mut state = state(&config);
    state.records.clear();
    let mut value = object("d", json!({"daemonlet.dev/mode": "static"}));
    (value["apiVersion"], value["kind"]) = (json!("apps/v1"), json!("DaemonSet"));
    value["spec"]["template"]["spec"]["hostNetwork"] = json!(true);
    value["spec"]["template"]["spec"]["automountServiceAccountToken"] = json!(false);
    state.inputs.daemon_sets.insert(key(), Arc::new(validate::daemon_set(&value, DefinedIn::Api).unwrap()));
    let namespace = Entry { version: 1, value: Arc::new(json!({})) };
    state.inputs.objects.insert(ObjectRef::new(Kind::Namespace, "", &key().namespace), namespace);
    let mut snapshot = Snapshot::default();
    let node = json!({"metadata": {"name": "n1", "uid": "n"}});
    snapshot.node = Some(Entry { version: 1, value: Arc::new(node) });
    let decision = decided(&observation(Some(snapshot)), &state, &config);
    assert_eq!(decision.plan.startup_taint, Default::default());
    let writes = |r: &Request| matches!(r, Request::StartupTaint { .. } | Request::NodeConditions { .. });
    assert!(!decision.requests.iter().any(writes), "{:?}", decision.requests);
    let daemon = decision.daemon(&key()).unwrap();
    let [Action::Start { rendering, .. }] = &daemon.actions[..] else { panic!("{:?}", daemon.actions) };
    let pod = &rendering.result.as_ref().unwrap().pod;
    assert!(!pod.has_gate && !pod.pod.to_string().contains("daemonlet-gate"), "{}", pod.pod);
    assert_eq!((&daemon.record.this_boot, &daemon.overlays), (&None, &None));
    let instance = &daemon.record.instances[0];
    assert_eq!(instance.daemon_set.as_ref().map(|d| d.gate), Some(crate::core::model::StartGate::None));
    assert!(daemon.summary.notes.is_empty() && daemon.summary.waiting_for.is_empty(), "{:?}", daemon.summary);
}

#[test]
fn of_a_daemon_whose_effects_failed_the_cluster_reads_what_is_in_force_and_why() {
    let config = config();
    let mut snapshot = Snapshot::default();
    snapshot.scopes.entry(crate::node::api::Scope::NodeDaemons).or_default().lists += 1;
    let (observation, mut state) = (observation(Some(snapshot)), state(&config));
    let reported = |state: &AgentState, plan: &Plan| {
        let cache = RenderCache::default();
        let status = planning::report_to_cluster(&observation, state, &config, &cache, plan).unwrap();
        status.daemons.first().map(|daemon| (daemon.instances.len(), daemon.phase, daemon.message.clone()))
    };
    let mut plan = planning::plan(&observation, &state, &config, &mut RenderCache::default());
    // What is planned is not what is there.
    plan.daemons[0].summary.mode = Some(crate::core::model::Mode::Static);
    let another = Instance::new("uid-2", "net-22222", 1, "r2", Timestamp::from_secs(1_000));
    plan.daemons[0].record.instances.push(another);
    assert_eq!(reported(&state, &plan).map(|(instances, ..)| instances), Some(2));
    let failure = EffectFailure { cause: "no space left".to_owned().into(), hint: Some("free some".to_owned()) };
    state.failed.insert(key(), failure);
    let failing = crate::core::status::State::Failing;
    assert_eq!(reported(&state, &plan), Some((1, Some(failing), "no space left (hint: free some)".to_owned())));
}
