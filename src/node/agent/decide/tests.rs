//! Whole passes: an observation in, a decision out.

use std::time::Duration;
use std::time::SystemTime;

use serde_json::Value;
use serde_json::json;

use crate::core::health::PodFact;
use crate::core::health::SandboxFact;
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
use crate::node::agent::evidence::RuntimePod;
use crate::node::agent::executor::EffectOutcome;
use crate::node::agent::executor::RecordFate;
use crate::node::agent::inputs::Purpose;
use crate::node::agent::inputs_on_disk::Pause;
use crate::node::agent::remembered_inputs::RememberedInputs;
use crate::node::agent::render_cache::VersionedOptions;
use crate::node::agent::requests::Reply;
use crate::node::api::Definition;
use crate::node::api::Entry;
use crate::node::api::Link;
use crate::node::api::Sighting;
use crate::node::api::Snapshot;
use crate::node::folders;
use crate::node::folders::FolderView;
use crate::node::folders::Rests;
use crate::node::folders::ScanTime;
use crate::node::fsx::Real;
use crate::node::manifests::Manifest;
use crate::node::manifests::Scan;

use super::*;

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

pub(in crate::node::agent) fn observation(api: Option<Snapshot>) -> Observation {
    let boot = Boot::new("b".to_owned(), Timestamp::from_secs(1));
    let manifests = Knowledge::Current(Arc::default());
    Observation { boot, manifests, ..Observation::of(api, Knowledge::NeverHeard, 2_000_000) }
}

pub(in crate::node::agent) fn decided(observation: &Observation, state: &AgentState, config: &Config) -> Decision {
    decide(observation, state, config, &mut RenderCache::default())
}

#[test]
fn what_the_api_server_has_of_what_is_known_is_remembered_though_the_manifest_folder_cannot_be_read() {
    let config = config();
    let mut state = state(&config);
    let namespace = ObjectRef::new(Kind::Namespace, "", &key().namespace);
    let entry = |version| Entry { version, value: Arc::new(json!({})) };
    state.inputs.objects.insert(namespace.clone(), entry(1));
    let mut snapshot = Snapshot::default();
    snapshot.objects.insert(namespace.clone(), entry(2));
    snapshot.scopes.entry(Scope::DaemonSets).or_default().lists = 1;
    let unreadable = Observation { manifests: Knowledge::Unreadable("EIO".to_owned()), ..observation(Some(snapshot)) };
    let decision = decided(&unreadable, &state, &config);
    assert_eq!(decision.state.inputs.objects.get(&namespace).map(|entry| entry.version), Some(2));
    assert!(!decision.requests.iter().any(|r| matches!(r, Request::Follow { .. })), "all that was needed still may be");
}

#[test]
fn a_manifest_folder_that_cannot_be_read_ends_and_starts_nothing_and_the_pass_runs_to_its_end() {
    let config = config();
    let mut state = state(&config);
    state.tear_down();
    let unreadable = Observation { manifests: Knowledge::Unreadable("EIO".to_owned()), ..observation(None) };
    let decision = decided(&unreadable, &state, &config);
    let daemon = decision.daemon(&key()).unwrap();
    assert!(daemon.actions.iter().all(|a| !matches!(a, Action::Start { .. } | Action::End { .. })), "{daemon:?}");
    assert_eq!(daemon.record.instances.len(), 1);
    assert!(daemon.summary.reason.contains("EIO"), "{}", daemon.summary.reason);
    let waits = decision.due - unreadable.now;
    assert!((FAILED_REST..=FAILED_AGAIN).contains(&waits), "it is looked at again soon, and not at once: {waits:?}");
    let readable = decided(&observation(None), &state, &config);
    let daemon = readable.daemon(&key()).unwrap();
    assert!(daemon.actions.iter().any(|a| matches!(a, Action::End { .. })), "{daemon:?}");
}

#[test]
fn the_same_observation_and_state_give_the_same_decision_whatever_the_cache_holds() {
    let (config, observation) = (config(), observation(Some(Snapshot::default())));
    let state = state(&config);
    let mut cache = RenderCache::default();
    let first = decide(&observation, &state, &config, &mut cache);
    let again = decide(&observation, &state, &config, &mut cache);
    let empty = decided(&observation, &state, &config);
    for other in [again, empty] {
        assert_eq!((&other.plan, &other.requests, &other.log), (&first.plan, &first.requests, &first.log));
        assert_eq!((other.due, other.save_inputs, &other.problems), (first.due, first.save_inputs, &first.problems));
        assert_eq!((&other.state.records, &other.state.concerns), (&first.state.records, &first.state.concerns));
    }
}

#[test]
fn an_api_server_that_comes_back_while_the_runtime_hangs_is_noticed_and_nothing_is_taken_for_gone() {
    let config = config();
    let mut state = state(&config);
    let down = |millis: i64, link: Link| {
        let mut observation = observation(Some(Snapshot::default()));
        observation.now = Timestamp::from_millis(millis);
        observation.runtime = Knowledge::Unreadable("the container runtime has not answered yet".to_owned());
        if let Some(api) = &mut observation.api {
            api.link = link;
        }
        observation
    };
    let failure = crate::node::api::ApiFailure::new(crate::node::api::FailureKind::Unreachable, "refused");
    let since = Default::default();
    for (millis, link) in [(2_000_000, Link::Down { failure, since }), (2_000_500, Link::Up)] {
        let observation = down(millis, link);
        let decision = decided(&observation, &state, &config);
        assert_eq!(decision.daemon(&key()).unwrap().record.instances.len(), 1);
        let lines: Vec<&str> = decision.log.0.iter().map(|line| line.text.as_str()).collect();
        let expected = if observation.is_linked() { "answers again" } else { "unreachable" };
        assert!(lines.iter().any(|line| line.contains(expected)), "{lines:?}");
        assert!(!decision.requests.iter().any(|r| matches!(r, Request::RestartSandboxes { .. })));
        state = AgentState::commit(decision.state, &decision.plan, &EffectOutcome::default(), observation.now);
    }
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
        let sighting = Sighting { static_uid, mirror_uid: "m".to_owned(), pod: Some(pod.clone()), seen };
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
fn a_gate_that_could_not_be_closed_is_open() {
    let config = config();
    let (observation, state) = (observation(None), state(&config));
    let mut decision = decided(&observation, &state, &config);
    let record = decision.state.records.get_mut(&key()).unwrap();
    record.in_boot("b").gate_closed = true;
    let uid = record.live().next().unwrap().uid.clone();
    let commit = |left_open: &[&String]| {
        let left_open = left_open.iter().map(|uid| (*uid).clone()).collect();
        let outcome = EffectOutcome { left_open, ..EffectOutcome::default() };
        let state = AgentState::commit(decision.state.clone(), &decision.plan, &outcome, observation.now);
        (state.records[&key()].has_closed_gate(&observation.boot.id), state.unsaved.contains(&key()))
    };
    assert!(commit(&[]).0);
    assert_eq!(commit(&[&uid]), (false, true), "and is saved so");
}

#[test]
fn a_gate_that_could_not_be_opened_is_closed_and_is_opened_again() {
    let config = config();
    let (observation, state) = (observation(None), state(&config));
    let mut decision = decided(&observation, &state, &config);
    Arc::make_mut(&mut decision.plan).daemons[0].record.instances = state.records[&key()].instances.clone();
    let record = &mut Arc::make_mut(&mut decision.plan).daemons[0].record;
    record.in_boot("b").gate_closed = false;
    let uid = record.live().next().unwrap().uid.clone();
    let records = BTreeMap::from([(key(), RecordFate::OnDisk)]);
    let commit = |left_closed: BTreeSet<String>| {
        let outcome = EffectOutcome { left_closed, records: records.clone(), ..EffectOutcome::default() };
        AgentState::commit(decision.state.clone(), &decision.plan, &outcome, observation.now).records[&key()]
            .has_closed_gate(&observation.boot.id)
    };
    assert!(!commit(BTreeSet::new()));
    assert!(commit(BTreeSet::from([uid])));
}

#[test]
fn the_order_in_which_concerns_are_asked_changes_nothing() {
    let config = config();
    let mut ending = state(&config);
    ending.tear_down();
    let mut unsure = state(&config);
    unsure.inputs.daemon_sets.insert(key(), daemon_set());
    for state in [state(&config), ending, unsure] {
        for api in [None, Some(Snapshot::default())] {
            for runtime in [Knowledge::NeverHeard, Knowledge::Current(Arc::default())] {
                let observation = Observation { runtime, ..observation(api.clone()) };
                let mut order = Concern::ALL;
                let first = decide_in_order(&order, &observation, &state, &config, &mut RenderCache::default());
                let mut seed = 1_u64;
                for _ in 0..40 {
                    for end in (1..order.len()).rev() {
                        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        order.swap(end, usize::try_from(seed >> 33).unwrap() % (end + 1));
                    }
                    let other = decide_in_order(&order, &observation, &state, &config, &mut RenderCache::default());
                    other.assert_same(&first, &format!("{order:?}"));
                }
            }
        }
    }
}

/// How a kubelet that does not take a manifest shows itself.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shows {
    /// It answers at its healthz.
    Healthz,
    /// The heartbeat in its Node changes.
    Heartbeat,
    /// It makes sandboxes of other pods.
    Sandboxes,
    /// Its Node is Ready as it last was; others take it for alive.
    Nothing,
    /// It is at work, and has made a sandbox that failed.
    FailedSandbox,
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

/// A node whose kubelet accepts `i:1` and not `i:2`, told in steps of 5 s: what each decision did, and when.
fn unaccepting(shows: Shows, link: &Link) -> (Vec<(i64, String)>, Decision) {
    let config = config();
    let mut state = state(&config);
    state.records.clear();
    let namespace = ObjectRef::new(Kind::Namespace, "", &key().namespace);
    let entry = Entry { version: 1, value: Arc::new(json!({})) };
    state.inputs.objects.insert(namespace, entry);
    let (mut told, mut last) = (Vec::new(), None);
    let mut ours: BTreeMap<String, (String, Arc<Manifest>)> = BTreeMap::new();
    let mut replies = Vec::new();
    for step in 0..120_i64 {
        let seconds = step * 5;
        state.inputs.daemon_sets.insert(key(), labelled(if seconds < 60 { "i:1" } else { "i:2" }));
        let mut snapshot = Snapshot::default();
        let heartbeat = if shows == Shows::Heartbeat { seconds / 10 } else { 0 };
        let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat.to_string()});
        let node = json!({"metadata": {"name": "n1", "uid": "n"}, "status": {"conditions": [ready]}});
        snapshot.node = Some(Entry { version: 1, value: Arc::new(node) });
        let mut seen = observation(Some(snapshot));
        (seen.now, seen.steady) = (Timestamp::from_secs(2_000 + seconds), Span::from_secs(seconds));
        (seen.runtime_as_of, seen.replies) = (seen.now, std::mem::take(&mut replies));
        if let Some(api) = &mut seen.api {
            api.link = link.clone();
        }
        let scan = ours.values().map(|(_, manifest)| (manifest.file.clone(), Arc::clone(manifest))).collect();
        seen.manifests = Knowledge::Current(Arc::new(Scan { ours: scan, ..Default::default() }));
        let made = |image: &str| if image == "i:1" { seen.now } else { Timestamp::MIN };
        let pods = ours.iter().filter(|(_, (image, _))| image == "i:1" || shows == Shows::FailedSandbox);
        let pods = pods.map(|(uid, (image, _))| RuntimePod {
            running_since: (image == "i:1").then(|| made(image)),
            fact: PodFact { sandboxes: vec![SandboxFact { ready: false, made: seen.now }], containers: Vec::new() },
            ..RuntimePod::test(uid, image == "i:1")
        });
        seen.runtime = Knowledge::Current(Arc::new(pods.collect()));
        let decision = decided(&seen, &state, &config);
        let mut outcome = EffectOutcome::default();
        for daemon in &decision.plan.daemons {
            outcome.records.insert(daemon.key.clone(), RecordFate::OnDisk);
            for action in &daemon.actions {
                match action {
                    Action::Start { rendering, .. } => {
                        let rendered = rendering.result.as_ref().unwrap();
                        let image = rendered.pod.pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
                        let manifest = manifest(rendering);
                        told.push((seconds, format!("start {image}")));
                        outcome.written.insert(manifest.uid.clone(), rendering.data.all.clone());
                        ours.insert(manifest.uid.clone(), (image, Arc::new(manifest)));
                    }
                    Action::End { uid, .. } => {
                        let image = ours.remove(uid).map(|(image, _)| image).unwrap_or_default();
                        told.push((seconds, format!("end {image}")));
                    }
                    _ => {}
                }
            }
        }
        for request in &decision.requests {
            let Request::AskAboutLate { late, .. } = request else { continue };
            let other = format!("another-{}", if shows == Shows::Sandboxes { step } else { 0 });
            replies.push(Reply::LateAnswered(crate::node::agent::requests::LateAnswer {
                sandboxes: Some(Ok(BTreeSet::from([other]))),
                network_ready: Some(true),
                kubelet_answers: matches!(shows, Shows::Healthz | Shows::FailedSandbox),
                about: late.iter().map(|late| late.uid.clone()).collect(),
                ..Default::default()
            }));
        }
        state = AgentState::commit(decision.state.clone(), &decision.plan, &outcome, seen.now);
        last = Some(decision);
    }
    (told, last.unwrap())
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
fn a_manifest_that_a_kubelet_at_work_does_not_accept_gives_way_to_the_revision_before_it() {
    let failure = crate::node::api::ApiFailure::new(crate::node::api::FailureKind::Unreachable, "refused");
    let down = Link::Down { failure, since: Default::default() };
    for (shows, link, bound) in [
        (Shows::Healthz, &Link::Up, 30),
        (Shows::Heartbeat, &Link::Up, 30),
        (Shows::Sandboxes, &Link::Up, 30),
        (Shows::Healthz, &down, 150),
    ] {
        let (told, last) = unaccepting(shows, link);
        let what: Vec<&str> = told.iter().map(|(_, what)| what.as_str()).collect();
        assert_eq!(what, ["start i:1", "end i:1", "start i:2", "end i:2", "start i:1"], "{shows:?}: {told:?}");
        let waited = told[3].0 - told[2].0;
        assert!((bound..bound + 30).contains(&waited), "{shows:?}: {told:?}");
        let summary = &last.daemon(&key()).unwrap().summary;
        let failed = summary.failed.as_ref().unwrap();
        assert_eq!(failed.failure.cause, crate::core::record::Cause::NotAccepted, "{summary:?}");
        assert!(summary.reason.contains("is not accepted") && summary.wanted_revision.is_some(), "{summary:?}");
    }
    // A controller that does not run leaves a dead kubelet's Node Ready: that nobody hears of it shows nothing.
    for (shows, link) in [(Shows::Nothing, &Link::Up), (Shows::Nothing, &down), (Shows::FailedSandbox, &down)] {
        let (told, last) = unaccepting(shows, link);
        let what: Vec<&str> = told.iter().map(|(_, what)| what.as_str()).collect();
        assert_eq!(what, ["start i:1", "end i:1", "start i:2"], "{shows:?}: {told:?}");
        assert_eq!(last.daemon(&key()).unwrap().record.failed, None);
    }
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
fn a_clock_set_forward_and_a_machine_that_was_suspended_make_nothing_older() {
    const HOURS: i64 = 36_000;
    let config = config();
    let made = |state: &AgentState| state.records[&key()].instances[0].created;
    let later = |boot_moved: i64, steady: i64| {
        let before = observation(None);
        let mut boot = Boot::new("b".to_owned(), Timestamp::from_secs(1));
        boot.at += Span::from_secs(boot_moved);
        let (now, steady) = (before.now + Span::from_secs(HOURS + 10), Span::from_secs(steady));
        Observation { boot, now, steady, ..before }
    };
    let absorbed = |state: &mut AgentState, observation: &Observation| {
        let mut log = Log::default();
        state.absorb(observation, &config, &mut log);
        made(state) - Timestamp::from_secs(1_000)
    };
    // An agent that runs all the time: by its steady clock 10 s have passed.
    for boot_moved in [HOURS, 0] {
        let mut running = state(&config);
        assert_eq!(absorbed(&mut running, &observation(None)), Span::ZERO);
        let passed = observation(None).steady.as_secs() + 10;
        assert_eq!(absorbed(&mut running, &later(boot_moved, passed)), Span::from_secs(HOURS), "{boot_moved}");
    }
    // One that starts: its steady clock says nothing of the time before.
    for (boot, boot_moved, expected) in [("b", HOURS, HOURS), ("b", 0, 0), ("another", HOURS, 0)] {
        let mut started = state(&config);
        started.inputs.clocks = Boot::new(boot.to_owned(), Timestamp::from_secs(1));
        assert_eq!(absorbed(&mut started, &later(boot_moved, 0)), Span::from_secs(expected), "{boot} {boot_moved}");
    }
}

#[test]
fn a_pass_is_due_by_the_steady_clock() {
    let seen = crate::node::agent::wake::ClockReading::now(Timestamp::from_secs(100));
    let wait = |due: i64| seen.until(Timestamp::from_secs(due)) - seen.until(Timestamp::MIN);
    assert_eq!(wait(107), std::time::Duration::from_secs(7));
    assert_eq!((wait(0), wait(1_000_000)), (std::time::Duration::ZERO, std::time::Duration::from_secs(60)));
}

#[test]
fn what_runs_without_a_record_ends_before_another_one_starts() {
    let config = config();
    let mut state = state(&config);
    (state.records, state.may_run_unrecorded) = (Default::default(), true);
    let found = |source: &str| {
        let annotations = [
            ("kubernetes.io/config.source", source),
            (crate::core::model::OWNER_ANNOTATION, "kube-system/net"),
            (crate::core::model::INCARNATION_ANNOTATION, "6"),
        ];
        let sandbox = crate::node::cri::Sandbox {
            id: "s".to_owned(),
            uid: "lost".to_owned(),
            name: "net-xxxxx-n1".to_owned(),
            namespace: "kube-system".to_owned(),
            attempt: 0,
            state: crate::node::cri::SandboxState::Ready,
            created_at_ns: 0,
            annotations: annotations.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        };
        let pods = crate::node::agent::evidence::runtime_pods(&[sandbox], &[]);
        let seen = Observation { runtime: Knowledge::Current(Arc::new(pods)), ..observation(None) };
        decided(&seen, &state, &config).state
    };
    assert!(found("api").records.is_empty(), "the annotations of other pods are anybody's");
    let silent = |seconds| {
        let runtime = Knowledge::Unreadable("it has not answered yet".to_owned());
        let seen = Observation { runtime, steady: Span::from_secs(seconds), ..observation(None) };
        decided(&seen, &state, &config).state.may_run_unrecorded
    };
    assert!(silent(29) && !silent(30), "what is slow is waited for");
    let adopted = found("file");
    assert!(!adopted.may_run_unrecorded);
    let record = &adopted.records[&key()];
    let ending: Vec<_> = record.ending().map(|i| (i.uid.as_str(), i.pod_name.as_str())).collect();
    assert_eq!((ending.as_slice(), record.next_incarnation), ([("lost", "net-xxxxx")].as_slice(), 7));
}

#[test]
fn a_runtime_that_lists_nothing_of_ours_is_not_believed_where_the_kubelet_runs_pods() {
    let config = config();
    let mut state = state(&config);
    state.may_run_unrecorded = true;
    let waits = |state: &AgentState, uid: &str, may_have_run: bool, seconds: i64| {
        let runtime = Knowledge::Current(Arc::new(vec![RuntimePod::test(uid, true)]));
        let seen = Observation { runtime, may_have_run, steady: Span::from_secs(seconds), ..observation(None) };
        decided(&seen, state, &config).state.may_run_unrecorded
    };
    assert!(waits(&state, "another", true, 29));
    assert!(!waits(&state, "another", true, 30), "what has no manifest has ended");
    assert!(!waits(&state, "another", false, 0), "it has run none in this boot");
    assert!(!waits(&state, "uid-1", true, 0), "it is the kubelet's");
    state.records.clear();
    assert!(!waits(&state, "another", true, 0), "the kubelet was given nothing");
}

#[test]
fn inputs_stay_incomplete_until_all_that_is_in_use_is_heard_of() {
    let config = config();
    let mut state = state(&config);
    state.inputs.incomplete = true;
    let after = |api: &Snapshot| decided(&observation(Some(api.clone())), &state, &config);
    let mut api = Snapshot::default();
    assert!(after(&api).state.inputs.incomplete);
    api.scopes.entry(crate::node::api::Scope::DaemonSets).or_default().lists = 1;
    let decision = after(&api);
    assert!(decision.state.inputs.incomplete, "no object is listed");
    for object in decision.plan.daemons.iter().flat_map(|daemon| &daemon.references) {
        api.scopes.entry(crate::node::api::Scope::Object(object.clone())).or_default().lists = 1;
    }
    assert!(after(&api).state.inputs.incomplete, "the Node is not listed");
    api.scopes.entry(crate::node::api::Scope::Node).or_default().lists = 1;
    assert!(!after(&api).state.inputs.incomplete);
    assert!(!decided(&observation(None), &state, &config).state.inputs.incomplete, "there is nobody to ask");
}

#[test]
fn of_a_daemon_whose_effects_failed_the_cluster_reads_what_is_in_force_and_why() {
    let config = config();
    let mut snapshot = Snapshot::default();
    snapshot.scopes.entry(crate::node::api::Scope::NodeDaemons).or_default().lists += 1;
    let (observation, mut state) = (observation(Some(snapshot)), state(&config));
    let told = |state: &AgentState, plan: &Plan| {
        let cache = RenderCache::default();
        let status = planning::report_to_cluster(&observation, state, &config, &cache, plan).unwrap();
        status.daemons.first().map(|told| (told.instances.len(), told.phase, told.message.clone()))
    };
    let mut plan = planning::plan(&observation, &state, &config, &mut RenderCache::default());
    // What is planned is not what is there.
    plan.daemons[0].summary.mode = Some(crate::core::model::Mode::Static);
    let another = Instance::new("uid-2", "net-22222", 1, "r2", Timestamp::from_secs(1_000));
    plan.daemons[0].record.instances.push(another);
    assert_eq!(told(&state, &plan).map(|(instances, ..)| instances), Some(2));
    state.failed.insert(key(), "no space left".to_owned());
    let failing = crate::core::status::State::Failing;
    assert_eq!(told(&state, &plan), Some((1, Some(failing), "no space left".to_owned())));
}

#[test]
fn a_file_that_overrides_gives_way_once_to_a_newer_version_of_the_api_and_comes_back_only_when_it_changes() {
    let config = config();
    let mut state = state(&config);
    let folder = tempfile::tempdir().unwrap();
    let write = |image: &str| {
        let mut file = object("", json!({}));
        file["apiVersion"] = json!("apps/v1");
        file["kind"] = json!("DaemonSet");
        file["metadata"]["annotations"] = json!({"daemonlet.dev/override": "true"});
        file["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        std::fs::write(folder.path().join("net.json"), file.to_string()).unwrap();
    };
    let mut now = 2_000_000;
    // Whose version counts after each of some passes.
    let mut passes = |state: &mut AgentState, of_api: Option<(&str, u64)>| -> Vec<DefinedIn> {
        let seen = |_| {
            let api = of_api.map(|(image, version)| {
                let mut object = object("d", json!({}));
                object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
                let definition = Definition::of(&object, version);
                let mut api = Snapshot::default();
                api.daemon_sets.insert(key(), definition);
                api
            });
            let mut observation = observation(Some(api.unwrap_or_default()));
            now += 1_000;
            observation.now = Timestamp::from_millis(now);
            let look = ScanTime {
                steady: Duration::from_secs(9),
                wall: SystemTime::now() + Duration::from_secs(3600),
                first: None,
            };
            let dir = [folder.path().to_owned()];
            let view = folders::read(&Real::shared(), &dir, &FolderView::default(), &mut Rests::default(), look);
            observation.folders.view = Arc::new(view);
            let decision = decided(&observation, state, &config);
            let source = decision.daemon(&key()).unwrap().summary.source.clone().unwrap();
            let outcome = EffectOutcome { records: [(key(), RecordFate::OnDisk)].into(), ..EffectOutcome::default() };
            *state = AgentState::commit(decision.state, &decision.plan, &outcome, observation.now);
            if source == DefinedIn::Api { DefinedIn::Api } else { DefinedIn::File { path: "".into() } }
        };
        (0..3).map(seen).collect()
    };
    let (api, file) = (DefinedIn::Api, DefinedIn::File { path: "".into() });
    let all = |source: &DefinedIn| vec![source.clone(); 3];
    write("file:1");
    assert_eq!(passes(&mut state, Some(("i:1", 1))), all(&file));
    assert_eq!(passes(&mut state, Some(("i:2", 2))), all(&api), "it is newer, and nothing goes back");
    state.inputs = RememberedInputs::restore(state.inputs.to_save(&[]), &state.records);
    assert_eq!(passes(&mut state, None), all(&api), "nor at a start without the API server");
    write("file:2");
    assert_eq!(passes(&mut state, None), all(&file), "the owner wants this one now");
    assert_eq!(passes(&mut state, Some(("i:2", 2))), all(&file), "of the same version as before");
    assert_eq!(passes(&mut state, Some(("i:3", 3))), all(&api));
}
